"""The predicate tree: what can be judged by filters, how it combines, and what is kept whole.

A ladder:

- **leaves** that a filter judges: `Equals`, `IsIn`, `IsNull`;
- `Opaque`, the leaf that no filter judges: a range, a function, a cast. It prunes nothing and is still evaluated;
- **joints**: `And`, `Or`, `Not`, with SQL's three-valued logic.

A tree is immutable and knows no schema; `Predicate.to_expression` meets one. No method recurses: a joint may have any
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

from zonebloom.arrow import python_value
from zonebloom.errors import PredicateError

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from zonebloom.reasons import ReasonCode

__all__ = ["And", "Equals", "IsIn", "IsNull", "Not", "Opaque", "Or", "Predicate"]

T = TypeVar("T")

_SHOWN_VALUES = 5
MAX_DEPTH = 1000
"""Levels of And, Or and Not in turns: pyarrow recurses over them in C++, and overflows its stack near 10 000."""
CHUNK = 64
"""Expressions that are joined before a barrier."""


class Predicate(ABC):
    """A condition on rows: TRUE, FALSE or NULL for each; combined with ``&``, ``|`` and ``~``."""

    __slots__ = ()

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
        """What `visit` makes of this node: it is called for each node with what it made of those `below` the node.

        These are by default the children whose expressions the node takes.
        """
        pending: list[tuple[Predicate, Sequence[Predicate] | None]] = [(self, None)]
        done: list[T] = []
        while pending:
            node, children = pending.pop()
            if children is None:
                children = below(node) if below is not None else node._evaluated  # noqa: SLF001 -- of its class
                pending.append((node, children))
                pending.extend((child, None) for child in reversed(children))
                continue
            first = len(done) - len(children)
            parts = done[first:]
            del done[first:]
            done.append(visit(node, parts))
        return done[0]

    @property
    def _evaluated(self) -> tuple[Predicate, ...]:
        """The children whose expressions `_expression` takes."""
        return self.children

    @abstractmethod
    def _leaf_columns(self) -> Iterable[str]:
        """The columns that the node itself names."""

    @abstractmethod
    def _expression(self, schema: pa.Schema, parts: list[pc.Expression]) -> pc.Expression:
        """The node's expression, from those of its children."""

    @abstractmethod
    def _key(self) -> tuple[Any, ...]:
        """What makes two nodes of one class equal."""

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
        fields = parts or [repr(part) for part in self._key()]
        return f"{type(self).__name__}({', '.join(fields)})"

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"a predicate is immutable, got an assignment to {name}")

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        self._set(**state[1])

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)


def _check_column(column: str) -> str:
    if not isinstance(column, str) or not column:
        raise PredicateError(f"a column must be named by a text that is not empty, got {column!r}")
    return column


class Equals(Predicate):
    """``column = value``: TRUE in the rows whose value equals it; NULL in null rows, and everywhere for a null value.

    `value` is a Python, NumPy or Arrow scalar. With `null_safe` a null row makes it FALSE instead of NULL, as
    ``<=>`` does; its value must not be null (that is `IsNull`).
    """

    __slots__ = ("column", "null_safe", "value")

    column: str
    value: Any
    null_safe: bool

    def __init__(self, column: str, value: Any, *, null_safe: bool = False) -> None:
        if isinstance(value, (list, tuple, set, frozenset, dict, np.ndarray, pa.Array, pa.ChunkedArray)):
            kind = type(value).__name__
            raise PredicateError(f"column {column} must equal one value, got a {kind}; use isin() for several")
        if null_safe and is_null_literal(value):
            raise PredicateError(f"a null-safe comparison of {column} must have a value, got null; use is_null()")
        self._set(column=_check_column(column), value=value, null_safe=null_safe)

    def _leaf_columns(self) -> Iterable[str]:
        return (self.column,)

    def _expression(self, schema: pa.Schema, parts: list[pc.Expression]) -> pc.Expression:  # noqa: ARG002 -- a leaf
        from zonebloom.predicates import row_filter as recheck  # noqa: PLC0415 -- pyarrow.compute is slow to import

        return recheck.equals(recheck.column_operand(schema, self.column), self.value, null_safe=self.null_safe)

    def _key(self) -> tuple[Any, ...]:
        return self.column, type(self.value), self.value, self.null_safe

    def _shown(self, parts: list[str]) -> str:  # noqa: ARG002 -- a leaf
        return f"Equals({self.column!r}, {self.value!r}{', null_safe=True' if self.null_safe else ''})"


class IsIn(Predicate):
    """``column IN (values)``: TRUE in the rows whose value equals one of `values`.

    As in SQL it is NULL in null rows; a null among the values makes it NULL wherever it is not TRUE; duplicates change
    nothing; and without values it is FALSE everywhere. With `null_safe` it is FALSE instead of NULL, and a null among
    the values changes nothing.

    `values` is any collection: a list, set or other iterable, a NumPy or Arrow array, an object of the Arrow PyCapsule
    interface (a Polars or pandas column). Its length has no limit; arrays are not copied.
    """

    __slots__ = ("column", "null_safe", "values")

    column: str
    values: pa.Array | list[Any]
    null_safe: bool

    def __init__(self, column: str, values: Any, *, null_safe: bool = False) -> None:
        self._set(column=_check_column(column), values=_collected(column, values), null_safe=null_safe)

    def _leaf_columns(self) -> Iterable[str]:
        return (self.column,)

    def _expression(self, schema: pa.Schema, parts: list[pc.Expression]) -> pc.Expression:  # noqa: ARG002 -- a leaf
        from zonebloom.predicates import row_filter as recheck  # noqa: PLC0415 -- pyarrow.compute is slow to import

        return recheck.is_in(recheck.column_operand(schema, self.column), self.values, null_safe=self.null_safe)

    def _key(self) -> tuple[Any, ...]:
        kinds = None if isinstance(self.values, pa.Array) else [type(value) for value in self.values]
        return self.column, type(self.values), kinds, self.values, self.null_safe

    def _shown(self, parts: list[str]) -> str:  # noqa: ARG002 -- a leaf
        head = self.values[:_SHOWN_VALUES]
        shown = [repr(python_value(value) if isinstance(value, pa.Scalar) else value) for value in head]
        more = [f"… {len(self.values)} values"] if len(self.values) > _SHOWN_VALUES else []
        values = ", ".join(shown + more)
        return f"IsIn({self.column!r}, [{values}]{', null_safe=True' if self.null_safe else ''})"


class IsNull(Predicate):
    """``column IS NULL``: TRUE or FALSE, never NULL; NaN is no null."""

    __slots__ = ("column",)

    column: str

    def __init__(self, column: str) -> None:
        self._set(column=_check_column(column))

    def _leaf_columns(self) -> Iterable[str]:
        return (self.column,)

    def _expression(self, schema: pa.Schema, parts: list[pc.Expression]) -> pc.Expression:  # noqa: ARG002 -- a leaf
        from zonebloom.predicates import row_filter as recheck  # noqa: PLC0415 -- pyarrow.compute is slow to import

        return recheck.is_null(schema, self.column)

    def _key(self) -> tuple[Any, ...]:
        return (self.column,)


class Opaque(Predicate):
    """A condition that no filter can judge: it prunes nothing, and is evaluated on the rows that are read.

    The subclasses say how; a reader of the tree needs only `code`, `text` and `columns()`.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def code(self) -> ReasonCode:
        """Why it cannot be judged."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The condition as people write it."""

    @property
    def is_evaluable(self) -> bool:
        """Whether `to_expression` knows it; else only the engine that it came from does."""
        return True

    def _shown(self, parts: list[str]) -> str:  # noqa: ARG002 -- a leaf
        return f"{type(self).__name__}({self.text!r})"


class _Joint(Predicate):
    """Several predicates joined by one associative operation; nested joints of the same class are taken apart.

    They are taken apart once, when the children are first asked for: a chain of n operators has n joints.
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
        """The joint taken apart: pickle recurses."""
        assert self.children
        return object.__getstate__(self)

    def _leaf_columns(self) -> Iterable[str]:
        return ()

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

    def _leaf_columns(self) -> Iterable[str]:
        return ()

    def _expression(self, schema: pa.Schema, parts: list[pc.Expression]) -> pc.Expression:  # noqa: ARG002 -- joined only
        return invert(parts[0])

    def _key(self) -> tuple[Any, ...]:
        return ()


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
    """All parts joined: in a balanced tree, behind barriers where they are many.

    pyarrow 26 rewrites a tree of one associative function as a chain, in quadratic time, and recurses over it: 8000
    ORs take 2 s, 12 000 crash the process. ``coalesce(p, NULL)`` is p, and ends a chain; so 20 000 take 0.3 s.
    """
    while len(parts) > CHUNK:
        chunks = [balanced(parts[i : i + CHUNK], join, bar) for i in range(0, len(parts), CHUNK)]
        parts = [bar(chunk) for chunk in chunks]
    while len(parts) > 1:
        pairs = [join(*pair) for pair in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0]


def _barred(expression: pc.Expression) -> pc.Expression:
    import pyarrow.compute as pc  # noqa: PLC0415 -- slow to import

    return pc.coalesce(expression, pa.scalar(None, pa.bool_()))


def _collected(column: str, values: Any) -> pa.Array | list[Any]:
    """`values` as an Arrow array where they are some array, else as a list of their own objects."""
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
