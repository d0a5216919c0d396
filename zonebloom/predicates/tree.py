"""The predicate tree: the base of all predicates, and AND, OR, NOT with SQL's three-valued logic.

A tree is immutable and has no schema; `row_filter.to_expression` takes a schema. A joint may have any number of
children, and trees may be deep, so no method recurses. The leaves are in `leaves`.

Spec: specs/pruning.md#predicates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import is_
from typing import Any, ClassVar, NoReturn, TypeVar, final

import pyarrow as pa

from zonebloom.ground.arrow import compute as pc
from zonebloom.ground.errors import PredicateError

N = TypeVar("N")
T = TypeVar("T")

MAX_DEPTH = 1000
"""Levels of alternating And, Or and Not. pyarrow recurses over them in C++, and overflows its stack near 10 000."""
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


class Predicate:
    """A condition on rows: TRUE, FALSE or NULL for each; combined with ``&``, ``|`` and ``~``.

    A subclass names its fields in `__match_args__`, for equality, `repr` and patterns.
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
        names: set[str] = set()
        for node in self.walk():
            names.update(node.own_columns)
        return names

    @final
    def walk(self) -> Iterator[Predicate]:
        """Every node, parents before children."""
        waiting: list[Predicate] = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))

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
        self, visit: Callable[[Predicate, list[T]], T], below: Callable[[Predicate], Sequence[Predicate]] | None = None
    ) -> T:
        """The result of `visit` for this node: `visit` takes a node and the results for the nodes `below` it.

        By default these are its children.
        """
        return fold(self, below or (lambda node: node.children), visit)

    @final
    def combined(self, value_of: Callable[[Predicate], Any]) -> Any:
        """The result for each row from those of the leaves: all are pyarrow Expressions, or all are Arrow arrays."""
        return self.fold(lambda node, parts: _combined(node, parts) if parts else value_of(node))

    @property
    def own_columns(self) -> Iterable[str]:
        """The columns that the node itself reads."""
        return ()

    def _key(self) -> tuple[Any, ...]:
        """The node's fields without its children; two nodes of one class with equal keys differ only in children."""
        return tuple((type(value), value) for value in self._values())

    def _values(self) -> list[Any]:
        return [getattr(self, name) for name in self.__match_args__]

    def __and__(self, other: Predicate) -> Predicate:
        """TRUE if both are TRUE, FALSE if one is FALSE, else NULL."""
        return And((self, other)) if isinstance(other, Predicate) else NotImplemented

    def __or__(self, other: Predicate) -> Predicate:
        """TRUE if one is TRUE, FALSE if both are FALSE, else NULL."""
        return Or((self, other)) if isinstance(other, Predicate) else NotImplemented

    def __invert__(self) -> Predicate:
        """TRUE if this is FALSE, FALSE if this is TRUE, NULL if this is NULL."""
        return Not(self)

    def __bool__(self) -> NoReturn:
        raise PredicateError(
            "predicates must be combined with &, | and ~ (each side in parentheses)",
            got="one used as true or false",
            do="replace and, or, not, in, and chains like lo < col(x) < hi",
        )

    def __eq__(self, other: object) -> bool:
        """Whether both are the same tree."""
        if not isinstance(other, Predicate):
            return NotImplemented
        pairs = zip(self.walk(), other.walk(), strict=False)  # trees of two lengths differ in some node's key
        return all(type(mine) is type(theirs) and mine._key() == theirs._key() for mine, theirs in pairs)  # noqa: SLF001 -- of its class

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # values may be arrays

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


class _Joint(Predicate):
    """Several predicates joined by one associative operation; nested joints of the same class are flattened.

    They are flattened when `children` is first read. A chain of n operators makes n joints, so flattening in the
    constructor would take quadratic time.
    """

    __slots__ = ("_children", "_is_flat")

    _children: tuple[Predicate, ...]
    _is_flat: bool

    def __init__(self, children: Iterable[Predicate]) -> None:
        given = tuple(children)
        name = type(self).__name__
        for child in given:
            if not isinstance(child, Predicate):
                raise PredicateError(f"{name} must join predicates", got=f"{child!r}")
        if not given:
            raise PredicateError(f"{name} must join at least one predicate", got="none")
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
    """TRUE if every child is TRUE, FALSE if one is FALSE, else NULL."""

    __slots__ = ()


class Or(_Joint):
    """TRUE if one child is TRUE, FALSE if every child is FALSE, else NULL."""

    __slots__ = ()


class Not(Predicate):
    """TRUE if the child is FALSE, FALSE if the child is TRUE, NULL if the child is NULL."""

    __slots__ = ("child",)

    child: Predicate

    def __init__(self, child: Predicate) -> None:
        if not isinstance(child, Predicate):
            raise PredicateError("Not must negate a predicate", got=f"{child!r}")
        self._set(child=child)

    @property
    def children(self) -> tuple[Predicate, ...]:
        """The one child."""
        return (self.child,)

    def __invert__(self) -> Predicate:
        """The child: NOT NOT p is p in three-valued logic too."""
        return self.child


def rebuilt(joint: Predicate, parts: Sequence[Predicate]) -> Predicate:
    """The And, Or or Not `joint` with the children `parts`; `joint` itself if its children are `parts`."""
    if len(parts) == len(joint.children) and all(map(is_, parts, joint.children)):
        return joint
    make: Any = type(joint)
    joined: Predicate = make(parts[0] if isinstance(joint, Not) else parts)
    return joined


def conjuncts(predicate: Predicate) -> tuple[Predicate, ...]:
    """The children of the outermost And, none of them an And; the predicate itself if it is not an And."""
    return predicate.children if isinstance(predicate, And) else (predicate,)


def _combined(node: Predicate, parts: list[Any]) -> Any:
    if isinstance(node, Not):
        return pc.invert(parts[0])
    return balanced(parts, pc.and_kleene if isinstance(node, And) else pc.or_kleene, _barred)


def _barred(part: Any) -> Any:
    return pc.coalesce(part, pa.scalar(None, pa.bool_()))


def check_depth(depth: int) -> None:
    """Refuse to nest deeper than 1000 levels."""
    if depth > MAX_DEPTH:
        raise PredicateError(f"a predicate must nest at most {MAX_DEPTH} levels deep", got=depth)


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
