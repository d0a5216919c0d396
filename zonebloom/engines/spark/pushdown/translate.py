"""A Spark condition as a predicate that prunes soundly, and as the filter that Spark still applies.

Spark applies the given condition to all rows that were read. The predicate only has to be TRUE in each row in which
the condition is TRUE. The steps:

1. `sql_text` and `columns` guess the predicate of SQL text and of a `Column`, over Spark's columns;
2. `columns` converts the guess back to a `Column`. Spark compares the two (`DataFrame.sameSemantics`), so no difference
   of grammar or setting can lose a row;
3. if they differ, for example because a function has no Column, Spark proves which comparisons are implied;
4. `bound` retains the comparisons that Spark evaluates on the values that the index has hashed.

Design: docs/design/spark-reads.md#conditions
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, functions

from zonebloom.engines.spark.pushdown.calendars import has_old
from zonebloom.engines.spark.pushdown.columns import MAX_LITERALS, column_of, predicate_of_column, text_of_column
from zonebloom.engines.spark.pushdown.implied import implies, opaque
from zonebloom.engines.spark.pushdown.names import backquoted, is_sent
from zonebloom.engines.spark.pushdown.sql_text import COMPARED_LITERALS, predicate_of_text, shortened
from zonebloom.engines.spark.pushdown.types import Binder, Piece, Target, UnboundError
from zonebloom.engines.spark.scan.types import arrow_type
from zonebloom.ground.arrow import is_text, unwrapped
from zonebloom.ground.errors import PredicateError
from zonebloom.predicates import And, Equals, IsIn, IsNull, Predicate
from zonebloom.predicates.coerce import fit_values
from zonebloom.predicates.leaves import Comparison
from zonebloom.predicates.sql_writer import as_sql
from zonebloom.predicates.terms import LiteralTerm
from zonebloom.predicates.tree import conjuncts, rebuilt

_OF_NUMBERS = frozenset({"integer", "decimal", "float", "bool", "folder integer"})
EVERY_ROW: Final = Equals(LiteralTerm(True), True)
"""The predicate that is TRUE in every row."""
_MOST_PROOFS = 4
"""Comparisons tried one by one if Spark does not prove all together; each takes about 0.2 s."""
NOT_OF_COLUMNS = "the condition is not determined by the columns of the data set"
_ROWS = "zonebloom_rows"
"""The alias of a frame whose own name must not count."""
_HIDDEN = re.compile(r"\b_metadata\b", re.IGNORECASE)
"""The hidden column of a frame that scans files. Its blocks depend on the other files of the scan."""


@dataclass(frozen=True, slots=True)
class Keys:
    """A long list of values: the column must have one of them."""

    target: Target
    values: pa.Array
    """Distinct values of the column's type in the index, without nulls."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition, and its parts for the index and for Spark."""

    shown: str
    """Its text for people."""
    predicate: Predicate
    """TRUE in every row in which the condition is TRUE."""
    residual: tuple[str | Column, ...]
    """Filters that Spark applies in order; none if `keys` are the whole condition."""
    keys: tuple[Keys, ...] = ()
    """Lists that Spark joins with."""
    is_local: bool = True
    """Whether the columns of a row determine it, so that any reader gives the same rows."""

    @property
    def columns(self) -> frozenset[str] | None:
        """Names of columns, or of leaves of structs, that the condition reads; None if only Spark knows them."""
        if any(isinstance(node, Piece) for node in self.predicate.walk()):
            return None
        return frozenset(self.predicate.columns())

    @property
    def exact(self) -> Predicate:
        """The parts that Arrow evaluates on rows as Spark does; `EVERY_ROW` if there are none."""
        unsure = Piece, Comparison
        sure = [part for part in conjuncts(self.predicate) if not any(isinstance(node, unsure) for node in part.walk())]
        return And(sure) if sure else EVERY_ROW


def understand(given: str | Column | Predicate, binder: Binder, template: DataFrame) -> Condition:
    """Translate a condition to its parts for the index and for Spark.

    Parameters
    ----------
    given
        SQL text, a Column, or a predicate made with `zonebloom.col`.
    template
        A frame with the columns of the data set; it is never executed.

    Raises
    ------
    TypeError
        `given` has another type, or is None.
    PredicateError
        A part of a predicate has no form in Spark.
    """
    if isinstance(given, Predicate):
        return _with_keys(f"{given!r:.400}", given, given, binder)
    if isinstance(given, str):
        if not is_sent(given):
            raise PredicateError("a condition must be in UTF-8", got=f"{given!r:.200}")
        return _of_text(given, binder, template)
    if not isinstance(given, Column):
        raise TypeError(f"a condition must be SQL text, a Column, or a predicate made with col(), got {given!r:.200}")
    shown = text_of_column(given)
    guess = predicate_of_column(shown, binder)
    if isinstance(guess, Piece):  # made by expr(), which prints SQL
        guess = predicate_of_text(shown, binder)
    condition = _verified(Condition(shown, bound(guess, binder), (given,)), given, guess, binder, template)
    if not condition.is_local:
        return condition
    if isinstance(condition.predicate, Piece):
        return _implied(condition, given, guess, binder, template)
    return replace(condition, residual=(column_of(guess, binder),))


def understand_all(given: Sequence[str | Column | Predicate], binder: Binder, template: DataFrame) -> Condition:
    """Conditions that must all be TRUE, as one."""
    if not given:
        raise TypeError("a condition must be given, got none; toDF() has all rows")
    conditions = [understand(condition, binder, template) for condition in given]
    shown = " AND ".join(condition.shown for condition in conditions)
    return conditions[0] if len(conditions) == 1 else _joint(shown, conditions)


def _joint(shown: str, parts: Sequence[Condition]) -> Condition:
    """The condition that all `parts` are TRUE."""
    return Condition(
        shown,
        And([part.predicate for part in parts]),
        tuple(filtered for part in parts for filtered in part.residual),
        tuple(keys for part in parts for keys in part.keys),
        all(part.is_local for part in parts),
    )


def _of_text(given: str, binder: Binder, template: DataFrame) -> Condition:
    guess = predicate_of_text(given, binder)
    condition = Condition(given.strip(), bound(guess, binder), (given,))
    is_short = all(len(node.values) <= COMPARED_LITERALS for node in guess.walk() if isinstance(node, IsIn))
    shown = given
    if not is_short:
        try:
            shown = shortened(given)
        except UnboundError as error:
            return _unverified(condition, str(error), is_local=False)  # Spark was not asked
    checked = _verified(condition, shown, guess.fold(_shortened), binder, template)
    if isinstance(checked.predicate, Piece) or not any(map(_is_long, conjuncts(checked.predicate))):
        return checked
    try:
        return _with_keys(shown.strip(), guess, checked.predicate, binder)
    except PredicateError as error:  # values that Spark compares otherwise; it is given the whole list
        return _unverified(condition, str(error))


def keys_condition(path: tuple[str, ...], values: pa.Array | list[Any], binder: Binder) -> Condition:
    """The condition that the column at `path` is one of `values`.

    Raises
    ------
    PredicateError
        The values are not of the column's type.
    """
    try:
        target = binder.target(path)
        is_of_folder = target.kind.startswith("folder")  # the index has texts of such values
        fit = fit_values(values, unwrapped(arrow_type(target.spark) if is_of_folder else target.arrow))
        got = None if fit.reason is None else fit.reason.message
        if target.kind in _OF_NUMBERS and _has_texts(values):  # Spark would cast them, by settings
            got = "texts"
    except UnboundError as error:
        got = error.reason.message
    if got is not None:
        name = ".".join(path)
        raise PredicateError(f"keys, and lists of more than {MAX_LITERALS} values, must fit column {name}", got=got)
    fitted = fit.values.unique()
    shown = f"{target.name} IN ({len(fitted)} values)"
    predicate: Predicate = IsIn(target.name, fitted.cast(target.arrow) if is_of_folder else fitted)
    if has_old(pa.chunked_array([fitted])):
        predicate = Piece(shown, "keys before 1901 may be of another calendar in old files")
    return Condition(shown, predicate, (), (Keys(target, fitted),))


def _has_texts(values: pa.Array | list[Any]) -> bool:
    return (
        is_text(unwrapped(values.type))
        if isinstance(values, pa.Array)
        else any(isinstance(value, str) for value in values)
    )


# --- pruning ----------------------------------------------------------------------------------------------------------


def bound(guess: Predicate, binder: Binder) -> Predicate:
    """The predicate over the index's columns that prunes soundly for `guess`; Spark has proved `guess`."""

    def visit(node: Predicate, children: list[Predicate]) -> Predicate:
        if children:
            return rebuilt(node, children)
        if isinstance(node, Piece):
            return node
        try:
            leaf = _leaf(node, binder)
        except UnboundError as error:
            return Piece(as_sql(node), str(error), error.reason.code)
        return Piece(as_sql(node)) if leaf is None else leaf

    return guess.fold(visit)


def _leaf(node: Predicate, binder: Binder) -> Predicate | None:
    """A comparison over the columns of the index; None if the index cannot evaluate it."""
    if isinstance(node, Comparison) and isinstance(node.left, str) and isinstance(node.right, LiteralTerm):
        target = binder.target(binder.path(node.left))
        value = binder.fitted(node.right.value, target) if target.is_ordered else None
        return None if value is None else Comparison(target.name, node.operator, LiteralTerm(value))
    if not isinstance(node, (Equals, IsIn, IsNull)) or not isinstance(node.column, str):
        return None
    target = binder.target(binder.path(node.column))
    if isinstance(node, IsNull):
        return IsNull(target.name)
    if isinstance(node, Equals):
        return Equals(target.name, binder.fitted(node.value, target), null_safe=node.null_safe)
    return IsIn(target.name, [binder.fitted(value, target) for value in node.values], null_safe=node.null_safe)


# --- asking Spark -----------------------------------------------------------------------------------------------------


def _verified(
    condition: Condition, given: str | Column, guess: Predicate, binder: Binder, template: DataFrame
) -> Condition:
    """`condition`, if `guess` and `given` are the same for Spark; otherwise one that prunes nothing, and why."""
    if _HIDDEN.search(condition.shown):
        return _unverified(condition, NOT_OF_COLUMNS, is_local=False)
    if _is_same(template, given, lambda: column_of(guess, binder)):
        return condition
    if not _is_same(template, given, lambda: given):
        return _unverified(condition, NOT_OF_COLUMNS, is_local=False)
    return _unverified(condition, "it is not understood, so that only Spark evaluates it")


def _is_same(
    template: DataFrame, given: str | Column, other: Callable[[], str | Column], rows: DataFrame | None = None
) -> bool:
    """Whether Spark resolves `given` over `template` to what `other` is in `rows`.

    By default these are rows without the name of a table in front.

    In a table that is called like one of its structs, that name and a dot mean the table; in its rows the struct.
    """
    try:
        return bool(_joined(template, given).sameSemantics(_joined(rows or template.alias(_ROWS), other())))
    except (PySparkException, PredicateError):
        return False


def names_its_frame(
    given: str | Column | Predicate, frame: DataFrame, rows: DataFrame, table: DataFrame | None = None
) -> bool:
    """Whether `given` names columns of `frame` so that `rows`, a frame of the same columns, has none or others.

    `table` is `frame` by the name of its table, if `rows` have that.
    """
    if isinstance(given, Predicate) or not _is_resolved(lambda: frame.where(given)):
        return False
    if not _is_resolved(lambda: rows.where(given)):
        return True
    if _is_resolved(lambda: _joined(frame, given)):
        return not _is_same(frame, given, lambda: given, table)
    text = str(given).casefold()  # Spark compares no conditions that are not deterministic, but the names in them
    structs = [field for field in rows.schema if hasattr(field.dataType, "names") and field.name.casefold() in text]
    fields = [f"{backquoted(struct.name, name)} IS NULL" for struct in structs for name in struct.dataType.names]
    return not all(_is_same(frame, name, partial(str, name), table) for name in fields)


def _is_resolved(frame: Callable[[], DataFrame]) -> bool:
    try:
        frame().schema  # noqa: B018 - asks Spark to resolve it
    except Exception:  # noqa: BLE001 - Spark 3.5 ends some refused joins in an error of Java
        return False
    return True


def _joined(template: DataFrame, condition: str | Column) -> DataFrame:
    """A join of `template` with an empty frame on `condition`. Spark refuses a condition that is not deterministic.

    `input_file_name()`, `monotonically_increasing_id()` and `rand()` and their callers are not deterministic.
    """
    column = functions.expr(condition) if isinstance(condition, str) else condition
    return template.join(template.sparkSession.range(0).select(), column)


def _implied(condition: Condition, given: Column, guess: Predicate, binder: Binder, template: DataFrame) -> Condition:
    """`condition` with the comparisons of `guess` that Spark proves TRUE in each row in which `given` is."""
    sure = [(part, bound(part, binder)) for part in conjuncts(guess)]
    sure = [(part, pruning) for part, pruning in sure if not any(isinstance(node, Piece) for node in pruning.walk())]
    if not sure:
        return condition
    for parts in (sure, *([pair] for pair in sure[:_MOST_PROOFS] if len(sure) > 1)):
        try:
            base = opaque(template.sparkSession, template.schema)  # Spark refuses some types, such as months
            if implies(base, given, column_of(And([part for part, _ in parts]), binder)):
                return replace(condition, predicate=And([*(pruning for _, pruning in parts), condition.predicate]))
        except (PySparkException, PredicateError):
            continue
    return condition


def _unverified(condition: Condition, why: str, *, is_local: bool = True) -> Condition:
    return replace(condition, predicate=Piece(condition.shown, why), is_local=is_local)


def _shortened(node: Predicate, children: list[Predicate]) -> Predicate:
    """`node` with long IN lists cut to their first literal, as `shortened` cuts them in the text."""
    if children:
        return rebuilt(node, children)
    if isinstance(node, IsIn) and len(node.values) > COMPARED_LITERALS:
        return IsIn(node.column, node.values[:1])
    return node


# --- long lists -------------------------------------------------------------------------------------------------------


def _is_long(node: Predicate) -> bool:
    return isinstance(node, IsIn) and len(node.values) > MAX_LITERALS


def _with_keys(shown: str, given: Predicate, checked: Predicate, binder: Binder) -> Condition:
    """`given` with long lists as joins; Columns filter by the other parts.

    Parameters
    ----------
    checked
        `given` with long lists as arrays of values; other lists stay literals.
    """
    conditions: list[Condition] = []
    for part, values in zip(conjuncts(given), conjuncts(checked), strict=True):
        if isinstance(values, IsIn) and isinstance(values.column, str) and _is_long(values):
            conditions.append(keys_condition(binder.path(values.column), values.values, binder))
        else:
            conditions.append(Condition("", bound(part, binder), (column_of(part, binder),)))
    return _joint(shown, conditions)
