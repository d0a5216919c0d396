"""A pyarrow Expression as a `Condition`: a tree that prunes, and the expression itself, which decides.

pyarrow's semantics differ from SQL's: ``is_in`` gives false on null rows, and may match nulls and NaN. The expression
itself is the row filter, so the answers are pyarrow's.

Design: docs/design/conditions.md#pyarrow-expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zonebloom.bloom.hashing import dotted
from zonebloom.ground.errors import PredicateError
from zonebloom.ground.reasons import ReasonCode
from zonebloom.predicates.arrow_pickle import (
    EMIT_NULL,
    INCONCLUSIVE,
    MATCH,
    SKIP,
    Call,
    Field,
    Literal,
    Node,
    Tree,
    UnreadableExpressionError,
    take_apart,
)
from zonebloom.predicates.leaves import Condition, Equals, IsIn, IsNull, Piece, expression_text
from zonebloom.predicates.simplify import merged
from zonebloom.predicates.terms import LiteralTerm
from zonebloom.predicates.tree import And, Or, Predicate, check_depth, fold

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_NS_MILLIS = 2**63 // 10**6
"""Milliseconds from 1970 to the last one of a timestamp in nanoseconds."""


def from_expression(expression: pc.Expression) -> Condition:
    """The pair of a tree that prunes soundly for `expression`, and `expression` itself.

    Raises
    ------
    PredicateError
        The expression refers to a field by position, or this version of pyarrow serializes it in an unknown form.

    Design: docs/design/conditions.md#pyarrow-expressions.
    """
    try:
        tree = take_apart(expression)
        check_depth(tree.depth - 1)  # a call that joins nothing is a leaf
        translated = fold(tree.root, _operands, lambda node, parts: _joint(node, parts) if parts else _leaf(tree, node))
    except UnreadableExpressionError as error:
        raise PredicateError(
            "a pyarrow Expression must name its columns",
            got=f"{expression_text(expression):.200} ({error})",
            do="write the condition as SQL text",
        ) from error
    columns = (name for name, _depth in _read(tree.root))
    return Condition(merged(translated), tree.expression, columns)


def unread(expression: pc.Expression, columns: Sequence[str]) -> Condition:
    """The condition of an expression that cannot be decoded. It prunes nothing and may read any of `columns`."""
    return Condition(_piece(expression, columns), expression, columns)


_AND = frozenset({"and_kleene", "and"})
_OR = frozenset({"or_kleene", "or"})


def _operands(node: Node) -> Sequence[Node]:
    """The operands of a joint; none for a leaf."""
    if not isinstance(node, Call):
        return ()
    if (node.function in _AND | _OR and len(node.arguments) == 2) or (  # noqa: PLR2004 -- binary
        node.function == "invert" and len(node.arguments) == 1
    ):
        return node.arguments
    return node.arguments[-2:-1] if _is_nulled(node) else ()


def _is_nulled(node: Call) -> bool:
    """Whether `node` is ``if_else(…, p, null)`` or ``coalesce(p, null)``.

    Such a call is TRUE only in rows in which p is TRUE, and FALSE only in rows in which p is FALSE.
    """
    if (node.function, len(node.arguments)) not in (("if_else", 3), ("coalesce", 2)):
        return False
    last = node.arguments[-1]
    return isinstance(last, Literal) and not last.value.is_valid


def _joint(node: Node, children: list[Predicate]) -> Predicate:
    """And, Or or Not of the children.

    Arrow's ``and`` and ``or`` without Kleene logic are NULL in more rows. They do not differ otherwise.
    """
    function = node.function if isinstance(node, Call) else ""
    if function in _AND:
        return And(children)
    if function in _OR:
        return Or(children)
    return ~children[0] if function == "invert" else children[0]


def _leaf(tree: Tree, node: Node) -> Predicate:
    if isinstance(node, Literal):
        return Equals(LiteralTerm(node.value), True)
    if isinstance(node, Field):
        name = _column(node)
        return Equals(name, True) if name else _piece(pc.field(*node.path), node.path[:1])
    leaf = _LEAVES[node.function](node) if node.function in _LEAVES else None
    return leaf if leaf is not None else _unknown(tree, node)


def _unknown(tree: Tree, node: Call) -> Piece:
    """A call of an unknown function, with the columns that it reads."""
    names = list(_read(node))
    is_wrapped = any(depth > 1 for _name, depth in names)
    code = ReasonCode.CAST_ON_COLUMN if is_wrapped else ReasonCode.PREDICATE_NOT_SUPPORTED
    return _piece(tree.piece(node), (name for name, _depth in names), code)


def _piece(
    expression: pc.Expression, columns: Iterable[str], code: ReasonCode = ReasonCode.PREDICATE_NOT_SUPPORTED
) -> Piece:
    return Piece(expression_text(expression), code=code, columns=columns, expression=expression)


def _read(node: Node) -> Iterator[tuple[str, int]]:
    """The columns that a node reads, each with the number of calls around it."""
    waiting: list[tuple[Node, int]] = [(node, 0)]
    while waiting:
        part, depth = waiting.pop()
        if isinstance(part, Field):
            yield _column(part) or part.path[0], depth
        elif isinstance(part, Call):
            waiting.extend((argument, depth + 1) for argument in part.arguments)


def _column(node: Node) -> str | None:
    return dotted(node.path) if isinstance(node, Field) else None


def _equal(node: Call) -> Predicate | None:
    left, right = node.arguments
    if isinstance(left, Literal):
        left, right = right, left
    name = _column(left)
    return Equals(name, right.value) if name is not None and isinstance(right, Literal) else None


def _not_equal(node: Call) -> Predicate | None:
    equal = _equal(node)
    return None if equal is None else ~equal


def _is_in(node: Call) -> Predicate | None:
    """The predicate of ``is_in``. By default ``is_in`` is FALSE, not NULL, on null rows."""
    name = _column(node.arguments[0])
    options = node.options
    if name is None or options is None or set(options) != {"value_set", "null_matching_behavior", "_type_name"}:
        return None
    values, nulls = options["value_set"].values, options["null_matching_behavior"].as_py()
    if nulls not in (MATCH, SKIP, EMIT_NULL, INCONCLUSIVE) or _is_special(values):
        return None
    if nulls in (EMIT_NULL, INCONCLUSIVE):
        return IsIn(name, values)
    is_listed = IsIn(name, values.drop_null(), null_safe=True)
    return Or((is_listed, IsNull(name))) if nulls == MATCH and values.null_count else is_listed


def _is_special(values: pa.Array) -> bool:
    """Whether ``is_in`` may compare these values differently from ``=``.

    ``is_in`` hashes: NaN matches NaN, and a zero matches only the zero of the same sign. It also casts the values to
    the column's type. A double too large for a float32 becomes infinite, infinity becomes an integer, and a float16
    becomes the nearest integer. If a day is beyond timestamps in ns, it casts times to days, so that an hour is in the
    list of its day. For views pyarrow 26 gives wrong answers.
    """
    if isinstance(values, pa.DictionaryArray):
        return _is_special(values.dictionary)
    if values.type in (pa.string_view(), pa.binary_view(), pa.float16()):
        return True
    if pa.types.is_date(values.type):
        millis = values.drop_null().cast(pa.date64()).view(pa.int64()).to_numpy()
        return bool(((millis > _NS_MILLIS) | (millis < -_NS_MILLIS)).any())
    if not pa.types.is_floating(values.type):
        return False
    floats = values.drop_null().to_numpy(zero_copy_only=False).astype(np.float64)
    is_large = np.abs(floats) > _FLOAT32_MAX
    return bool((np.isnan(floats) | (floats == 0) | is_large).any())


def _is_null(node: Call) -> Predicate | None:
    name = _column(node.arguments[0])
    counts_nan = node.options is not None and node.options["nan_is_null"].as_py() is not False
    return None if name is None or counts_nan else IsNull(name)


def _is_valid(node: Call) -> Predicate | None:
    name = _column(node.arguments[0])
    return None if name is None else ~IsNull(name)


_Reader: TypeAlias = Callable[[Call], Predicate | None]
_LEAVES: dict[str, _Reader] = {
    "equal": _equal,
    "is_in": _is_in,
    "is_null": _is_null,
    "is_valid": _is_valid,
    "not_equal": _not_equal,
}
"""Arrow function → its predicate; None if the predicate would not be sound."""
