"""The predicate tree: leaves that filters evaluate, leaves that only the row filter evaluates, and AND, OR, NOT.

A ladder:

- **leaves** that a filter evaluates: `Equals`, `IsIn`, `IsNull`;
- `Opaque`, a leaf that no filter evaluates: a range, a function, a cast. It prunes nothing, and the row filter still
  evaluates it;
- **joints**: `And`, `Or`, `Not`, with SQL's three-valued logic.

A tree is immutable and has no schema; `Predicate.to_expression` takes one. No method recurses: a joint may have any
number of children, and trees may be deep.

Spec: specs/pruning.md#predicates.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import and_, invert, or_
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, final

import numpy as np
import pyarrow as pa

from zonebloom.arrow import compute, python_value
from zonebloom.errors import PredicateError

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from zonebloom.reasons import ReasonCode

N = TypeVar("N")
T = TypeVar("T")

_SHOWN_VALUES = 5
MAX_DEPTH = 1000
"""Levels of And, Or and Not in turns: pyarrow recurses over them in C++, and overflows its stack near 10 000."""
CHUNK = 64
"""Expressions that are joined before a barrier."""


def fold(root: N, below: Callable[[N], Sequence[N]], visit: Callable[[N, list[T]], T]) -> T:
    """The result of `visit` for the node `root`: `visit` takes a node and the results for the nodes `below` it."""
    pending: list[tuple[N, Sequence[N] | None]] = [(root, None)]
    done: list[T] = []
    while pending:
        node, children = pending.pop()
        if children is None:
            children = below(node)
            pending.append((node, children))
            pending.extend((child, None) for child in reversed(children))
            continue
        first = len(done) - len(children)
        parts = done[first:]
        del done[first:]
        done.append(visit(node, parts))
    return done[0]


class Predicate(ABC):
    """A condition on rows: TRUE, FALSE or NULL for each; combined with ``&``, ``|`` and ``~``.

    A subclass names its fields in `__match_args__`: equality, `repr` and patterns take them from there.
    """

    __slots__ = ()
    __match_args__: tuple[str, ...] = ()

    @property
    def children(self) -> tuple[Predicate, ...]:
        """The predicates that this one joins; none for a leaf."""
        return ()

    @final
    def columns(self) -> set[str]:
        """The names of all columns that the predicate reads."""
        return set(itertools.chain.from_iterable(node._leaf_columns() for node in self.walk()))  # noqa: SLF001 -- of its class

    @final
    def walk(self) -> Iterator[Predicate]:
        """Every node, parents before children."""
        waiting: list[Predicate] = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))

    @final
    def to_expression(self, schema: pa.Schema) -> pc.Expression:
        """The pyarrow Expression that gives TRUE, FALSE or NULL for the rows of a table of `schema`, as SQL does.

        Literals are cast to their column's type. Floats compare as IEEE 754 says: NaN equals nothing, and both zeros
        are equal.

        Raises
        ------
        PredicateError
            A literal cannot be compared with its column, a function has no kernel for its argument, or the tree is
            more than 1000 levels deep.
        ColumnNotFoundError
            The schema has no such column.

        Spec: specs/pruning.md#to-expression.
        """
        self.check_depth()
        return self.fold(lambda node, parts: node._expression(schema, parts))  # noqa: SLF001 -- of its class

    @final
    def check_depth(self) -> None:
        """Refuse a tree of more than 1000 levels.

        Raises
        ------
        PredicateError
            And, Or and Not are more than 1000 levels deep.
        """
        check_depth(self.fold(lambda _, depths: 1 + max(depths, default=-1)))

    @final
    def fold(
        self,
        visit: Callable[[Predicate, list[T]], T],
        below: Callable[[Predicate], Sequence[Predicate]] | None = None,
    ) -> T:
        """The result of `visit` for this node: `visit` takes a node and the results for the nodes `below` it.

        By default these are the children whose expressions the node takes.
        """
        return fold(self, below or (lambda node: node._evaluated), visit)  # noqa: SLF001 -- of its class

    @property
    def _evaluated(self) -> tuple[Predicate, ...]:
        """The children whose expressions `_expression` takes."""
        return self.children

    def _leaf_columns(self) -> Iterable[str]:
        """The columns that the node itself names."""
        return ()

    @abstractmethod
    def _expression(self, schema: pa.Schema, parts: list[pc.Expression]) -> pc.Expression:
        """The node's expression, from those of its children."""

    def _key(self) -> tuple[Any, ...]:
        """Equal for two nodes of one class that say the same, but for their children."""
        return tuple((type(value), value) for value in self._values())

    def _values(self) -> list[Any]:
        return [getattr(self, name) for name in self.__match_args__]

    def __and__(self, other: Predicate) -> Predicate:
        """TRUE where both are TRUE, FALSE where one is FALSE, else NULL."""
        return And((self, other)) if isinstance(other, Predicate) else NotImplemented

    def __or__(self, other: Predicate) -> Predicate:
        """TRUE where one is TRUE, FALSE where both are FALSE, else NULL."""
        return Or((self, other)) if isinstance(other, Predicate) else NotImplemented

    def __invert__(self) -> Predicate:
        """TRUE where this is FALSE, and NULL where this is NULL."""
        return Not(self)

    def __bool__(self) -> NoReturn:
        raise PredicateError(
            "predicates must be combined with &, | and ~ (each side in parentheses), got one used as true or false; "
            "replace and, or, not, in, and chains like lo < col(x) < hi"
        )

    def __eq__(self, other: object) -> bool:
        """Whether both are the same tree."""
        if not isinstance(other, Predicate):
            return NotImplemented
        pairs = zip(self.walk(), other.walk(), strict=False)  # trees of two lengths differ in some node's key
        return all(mine._is_like(theirs) for mine, theirs in pairs)  # noqa: SLF001 -- of its class

    def _is_like(self, other: Predicate) -> bool:
        return type(self) is type(other) and self._key() == other._key()

    __hash__ = None  # type: ignore[assignment]  # values may be arrays

    def __repr__(self) -> str:
        return self.fold(lambda node, parts: node._shown(parts))  # noqa: SLF001 -- of its class

    def _shown(self, parts: list[str]) -> str:
        return f"{type(self).__name__}({', '.join(parts or map(repr, self._values()))})"

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"a predicate is immutable, got an assignment to {name}")

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        self._set(**state[1])

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)


def check_name(column: str) -> str:
    """`column` itself, which must be a text that is not empty."""
    if not isinstance(column, str) or not column:
        raise PredicateError(f"a column must be named by a text that is not empty, got {column!r}")
    return column


class _OfColumn(Predicate):
    """A leaf that filters evaluate, on one column."""

    __slots__ = ("column",)
    __match_args__ = ("column",)

    column: str

    def _leaf_columns(self) -> Iterable[str]:
        return (self.column,)

    def _expression(self, schema: pa.Schema, parts: list[pc.Expression]) -> pc.Expression:  # noqa: ARG002 -- a leaf
        from zonebloom.predicates.row_filter import leaf_expression  # noqa: PLC0415 -- only where rows are read

        return leaf_expression(self, schema)


class Equals(_OfColumn):
    """``column = value``: TRUE in the rows whose value equals it; NULL in null rows, and everywhere for a null value.

    `value` is a Python, NumPy or Arrow scalar. With `null_safe` the result for a null row is FALSE instead of NULL, as
    with ``<=>``; `value` must not be null then (use `IsNull`).
    """

    __slots__ = ("null_safe", "value")
    __match_args__ = ("column", "value", "null_safe")

    value: Any
    null_safe: bool

    def __init__(self, column: str, value: Any, *, null_safe: bool = False) -> None:
        if isinstance(value, (list, tuple, set, frozenset, dict, np.ndarray, pa.Array, pa.ChunkedArray)):
            kind = type(value).__name__
            raise PredicateError(f"column {column} must equal one value, got a {kind}; use isin() for several")
        if null_safe and is_null_literal(value):
            raise PredicateError(f"a null-safe comparison of {column} must have a value, got null; use is_null()")
        self._set(column=check_name(column), value=value, null_safe=null_safe)

    def _shown(self, parts: list[str]) -> str:  # noqa: ARG002 -- a leaf
        return f"Equals({self.column!r}, {self.value!r}{', null_safe=True' if self.null_safe else ''})"


class IsIn(_OfColumn):
    """``column IN (values)``: TRUE in the rows whose value equals one of `values`.

    As in SQL, the result is NULL in null rows. A null among the values makes every result NULL that is not TRUE.
    Duplicates change nothing. Without values the result is FALSE in every row. With `null_safe` the result is FALSE
    where it would be NULL, and a null among the values changes nothing.

    `values` is any collection: a list, set or other iterable, a NumPy or Arrow array, an object of the Arrow PyCapsule
    interface (a Polars or pandas column). Its length has no limit; arrays are not copied.
    """

    __slots__ = ("null_safe", "values")
    __match_args__ = ("column", "values", "null_safe")

    values: pa.Array | list[Any]
    null_safe: bool

    def __init__(self, column: str, values: Any, *, null_safe: bool = False) -> None:
        self._set(column=check_name(column), values=_collected(column, values), null_safe=null_safe)

    def _key(self) -> tuple[Any, ...]:
        return *super()._key(), None if isinstance(self.values, pa.Array) else [type(value) for value in self.values]

    def _shown(self, parts: list[str]) -> str:  # noqa: ARG002 -- a leaf
        head = self.values[:_SHOWN_VALUES]
        shown = [repr(python_value(value) if isinstance(value, pa.Scalar) else value) for value in head]
        more = [f"… {len(self.values)} values"] if len(self.values) > _SHOWN_VALUES else []
        values = ", ".join(shown + more)
        return f"IsIn({self.column!r}, [{values}]{', null_safe=True' if self.null_safe else ''})"


class IsNull(_OfColumn):
    """``column IS NULL``: TRUE or FALSE, never NULL; NaN is no null."""

    __slots__ = ()

    def __init__(self, column: str) -> None:
        self._set(column=check_name(column))


class Opaque(Predicate):
    """A condition that no filter can evaluate: it prunes nothing, and is evaluated on the rows that are read.

    Subclasses define how. To read the tree, `code`, `text` and `columns()` are enough.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def code(self) -> ReasonCode:
        """Why no filter can evaluate it."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The condition as people write it."""

    @property
    def is_evaluable(self) -> bool:
        """Whether `to_expression` has an expression for it; if not, only the engine that it came from evaluates it."""
        return True

    def _shown(self, parts: list[str]) -> str:  # noqa: ARG002 -- a leaf
        return f"{type(self).__name__}({self.text!r})"


class _Joint(Predicate):
    """Several predicates joined by one associative operation; nested joints of the same class are flattened.

    They are flattened when `children` is first read. Flattening in the constructor would take quadratic time for a
    chain of n operators, which makes n joints.
    """

    __slots__ = ("_children", "_is_flat")

    _children: tuple[Predicate, ...]
    _is_flat: bool

    def __init__(self, children: Iterable[Predicate]) -> None:
        given = tuple(children)
        name = type(self).__name__
        for child in given:
            if not isinstance(child, Predicate):
                raise PredicateError(f"{name} must join predicates, got {child!r}")
        if not given:
            raise PredicateError(f"{name} must join at least one predicate, got none")
        self._set(_children=given, _is_flat=False)

    @property
    def children(self) -> tuple[Predicate, ...]:
        """The predicates joined; none of them is of this same class."""
        if not self._is_flat:
            flat: list[Predicate] = []
            waiting = list(reversed(self._children))
            while waiting:
                child = waiting.pop()
                if isinstance(child, _Joint) and type(child) is type(self):
                    waiting.extend(reversed(child._children))  # noqa: SLF001 -- of its class
                else:
                    flat.append(child)
            self._set(_children=tuple(flat), _is_flat=True)
        return self._children

    def __getstate__(self) -> object:
        """The flat joint: pickle recurses."""
        assert self.children
        return object.__getstate__(self)

    def _key(self) -> tuple[Any, ...]:
        return (len(self.children),)


class And(_Joint):
    """TRUE where every child is TRUE, FALSE where one is FALSE, else NULL."""

    __slots__ = ()

    def _expression(self, schema: pa.Schema, parts: list[pc.Expression]) -> pc.Expression:  # noqa: ARG002 -- joined only
        return balanced(parts, and_, _barred)


class Or(_Joint):
    """TRUE where one child is TRUE, FALSE where every one is FALSE, else NULL."""

    __slots__ = ()

    def _expression(self, schema: pa.Schema, parts: list[pc.Expression]) -> pc.Expression:  # noqa: ARG002 -- joined only
        return balanced(parts, or_, _barred)


class Not(Predicate):
    """TRUE where the child is FALSE, FALSE where it is TRUE, NULL where it is NULL."""

    __slots__ = ("child",)

    child: Predicate

    def __init__(self, child: Predicate) -> None:
        if not isinstance(child, Predicate):
            raise PredicateError(f"Not must negate a predicate, got {child!r}")
        self._set(child=child)

    @property
    def children(self) -> tuple[Predicate, ...]:
        """The one child."""
        return (self.child,)

    def __invert__(self) -> Predicate:
        """The child: NOT NOT p is p in three-valued logic too."""
        return self.child

    def _expression(self, schema: pa.Schema, parts: list[pc.Expression]) -> pc.Expression:  # noqa: ARG002 -- joined only
        return invert(parts[0])


def check_depth(depth: int) -> None:
    """Refuse to nest deeper than 1000 levels."""
    if depth > MAX_DEPTH:
        raise PredicateError(f"a predicate must nest at most {MAX_DEPTH} levels deep, got {depth}")


def is_null_literal(value: Any) -> bool:
    """Whether `value` is the null literal: None, an invalid Arrow scalar, NumPy's NaT."""
    if isinstance(value, pa.Scalar):
        return not value.is_valid
    return value is None or (isinstance(value, (np.datetime64, np.timedelta64)) and bool(np.isnat(value)))


def balanced(parts: list[T], join: Callable[[T, T], T], bar: Callable[[T], T]) -> T:
    """All parts joined in a balanced tree; more than 64 parts are joined in chunks of 64, with a barrier around each.

    pyarrow 26 rewrites a tree of one associative function as a chain, in quadratic time, and recurses over the chain:
    8000 ORs take 2 s, 12 000 crash the process. ``coalesce(p, NULL)`` has the value of p and ends a chain: with these
    barriers 20 000 ORs take 0.3 s.
    """
    while len(parts) > CHUNK:
        chunks = [balanced(parts[i : i + CHUNK], join, bar) for i in range(0, len(parts), CHUNK)]
        parts = [bar(chunk) for chunk in chunks]
    while len(parts) > 1:
        pairs = [join(*pair) for pair in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0]


def _barred(expression: pc.Expression) -> pc.Expression:
    return compute.coalesce(expression, pa.scalar(None, pa.bool_()))


def _collected(column: str, values: Any) -> pa.Array | list[Any]:
    """`values` as an Arrow array if they are an array of any library, else as a list of Python objects."""
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, (str, bytes, bytearray, memoryview, pa.Scalar, dict)) or not hasattr(values, "__iter__"):
        raise PredicateError(f"isin of column {column} must have a collection of values, got {values!r}")
    try:
        if isinstance(values, np.ndarray) and values.dtype.kind != "O":
            return pa.array(values)
        if hasattr(values, "__arrow_c_stream__"):
            return pa.chunked_array(values).combine_chunks()
        if hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_array__"):
            return pa.array(values)
    except pa.ArrowException as error:
        raise PredicateError(f"isin of column {column} must have a 1-d array of values, got {error}") from error
    return list(values.tolist() if isinstance(values, np.ndarray) else values)
