"""The row filter: a predicate as the pyarrow Expression that gives TRUE, FALSE or NULL for each row, as SQL does.

`operands` makes operands of terms; `comparisons` compares them with literals and with each other.

Design: docs/design/conditions.md#to-expression.
"""

from __future__ import annotations

import re
from operator import and_, invert, or_
from typing import TYPE_CHECKING

import pyarrow as pa

from zonebloom.ground.errors import PredicateError
from zonebloom.predicates.comparisons import compare, compare_operands, is_in
from zonebloom.predicates.leaves import Comparison, Condition, Equals, IsIn, IsNull, Like, Piece
from zonebloom.predicates.operands import operand_of, result_type
from zonebloom.predicates.plain_matcher import Matcher, plain_matcher
from zonebloom.predicates.sql_writer import as_sql
from zonebloom.predicates.terms import LiteralTerm
from zonebloom.predicates.tree import And, Not, Or, Predicate, balanced

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:
    from zonebloom.ground.arrow import compute as pc


def matcher_of(predicate: Predicate, schema: pa.Schema) -> Matcher:
    """The matcher that is true in exactly the rows of a table of `schema` in which `predicate` is TRUE.

    Raises
    ------
    PredicateError, ColumnNotFoundError
        As `to_expression`.
    """
    return plain_matcher(predicate, schema) or _by_expression(to_expression(predicate, schema))


def _by_expression(expression: pc.Expression) -> Matcher:
    """The value of `expression` for each row, without the threads of `Table.filter`: they take longer to start."""
    from pyarrow import acero  # noqa: PLC0415 - it loads pandas if installed, and `exists` does not need it

    project = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["is_matching"]))

    def matched(table: pa.Table) -> pa.ChunkedArray:
        source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
        return acero.Declaration.from_sequence([source, project]).to_table(use_threads=False)["is_matching"]

    return matched


def to_expression(predicate: Predicate, schema: pa.Schema) -> pc.Expression:
    """The pyarrow Expression that gives TRUE, FALSE or NULL for the rows of a table of `schema`, as SQL does.

    Literals are cast to their column's type. Floats compare as IEEE 754 says: NaN equals nothing, and both zeros are
    equal.

    Raises
    ------
    PredicateError
        A literal cannot be compared with its column, a function has no kernel for its argument, or the tree is more
        than 1000 levels deep.
    ColumnNotFoundError
        The schema has no such column.

    Design: docs/design/conditions.md#to-expression.
    """
    predicate.check_depth()
    return predicate.fold(lambda node, parts: _expression(node, parts, schema))


def _expression(node: Predicate, parts: list[pc.Expression], schema: pa.Schema) -> pc.Expression:
    if isinstance(node, (And, Or)):
        return balanced(parts, and_ if isinstance(node, And) else or_, _barred)
    if isinstance(node, Not):
        return invert(parts[0])
    if isinstance(node, Condition):
        return _decided(node, schema)
    if not isinstance(node, Piece):
        return _leaf(node, schema)
    if node.expression is None:
        raise PredicateError(f"only Spark evaluates {as_sql(node)}")
    return node.expression


def _barred(expression: pc.Expression) -> pc.Expression:
    return pc.coalesce(expression, pa.scalar(None, pa.bool_()))


def _decided(pair: Condition, schema: pa.Schema) -> pc.Expression:
    type_of_result = result_type(pair.filters, schema, pair.text)
    if not pa.types.is_boolean(type_of_result):
        raise PredicateError("a condition must be true or false", got=f"{pair.text:.200} of type {type_of_result}")
    return pair.filters


def _leaf(leaf: Predicate, schema: pa.Schema) -> pc.Expression:
    if isinstance(leaf, IsIn):
        return is_in(operand_of(leaf.column, schema), leaf.values, null_safe=leaf.null_safe)
    if isinstance(leaf, Equals):
        operand = operand_of(leaf.column, schema)
        is_equal = compare(operand, "=", leaf.value)
        return operand.expression.is_valid() & is_equal if leaf.null_safe else is_equal
    if isinstance(leaf, IsNull):  # of a dictionary's values: before 26 pyarrow sees nulls among its indices alone
        return operand_of(leaf.column, schema).expression.is_null()
    if isinstance(leaf, Comparison):
        left = operand_of(leaf.left, schema)
        if isinstance(leaf.right, LiteralTerm):
            return compare(left, leaf.operator, leaf.right.value)
        return compare_operands(left, leaf.operator, operand_of(leaf.right, schema), as_sql(leaf))
    if isinstance(leaf, Like):
        text = operand_of(leaf.column, schema).expression
        pattern = _backslashed(leaf)
        is_kept_double = r"\\" in pattern  # by pyarrow 26, in a%, %a and %a%
        kernel, pattern = (pc.match_substring_regex, _regex(pattern)) if is_kept_double else (pc.match_like, pattern)
        is_like = kernel(text, pattern, ignore_case=leaf.ignore_case)
        result_type(is_like, schema, as_sql(leaf))
        return is_like
    raise PredicateError("a predicate must be one of zonebloom.predicates", got=type(leaf).__name__)


def _backslashed(like: Like) -> str:
    """The pattern with pyarrow's fixed escape, a backslash."""
    letters: list[str] = []
    rest = iter(like.pattern)
    for letter in rest:
        if letter == like.escape:
            escaped = next(rest, None)
            if escaped is None:
                raise PredicateError("a LIKE pattern must not end with its escape", got=as_sql(like))
            letters.append(f"\\{escaped}" if escaped in "%_\\" else escaped)
        else:
            letters.append("\\\\" if letter == "\\" else letter)
    return "".join(letters)


def _regex(pattern: str) -> str:
    """The regular expression of a pattern of `_backslashed`."""
    letters = re.findall(r"\\?.", pattern, re.DOTALL)
    return f"(?s)^{''.join({'%': '.*', '_': '.'}.get(letter) or re.escape(letter[-1]) for letter in letters)}$"
