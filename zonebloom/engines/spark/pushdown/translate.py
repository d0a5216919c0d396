"""A condition of Spark's as a predicate that prunes soundly, and as what Spark itself still filters by.

Spark has the last word: the condition as it was given is applied to whatever was read. The predicate only has to hold
in each row in which the condition is TRUE. It is guessed from the text or from what a `Column` prints, and Spark is
asked whether the guess means the same (`DataFrame.sameSemantics`), so no difference between its grammar and ours, and
no setting, can lose a row.

Spec: specs/spark.md#conditions
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from zonebloom.engines.spark.pushdown.calendars import has_old_key
from zonebloom.engines.spark.pushdown.sql_text import Joint, Leaf, Part, Word, is_plain, parts_of_column, parts_of_text
from zonebloom.engines.spark.pushdown.to_column import MAX_LITERALS, column_of
from zonebloom.engines.spark.pushdown.types import Judge, Target, UnjudgedError, text_of
from zonebloom.errors import PredicateError
from zonebloom.predicates import And, Equals, IsIn, IsNull, Not, Opaque, Or, Predicate
from zonebloom.predicates.terms import LiteralTerm, Truth
from zonebloom.reasons import ReasonCode

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["EVERY_ROW", "NOT_OF_COLUMNS", "Condition", "Keys", "Unjudged", "keys_condition", "understand"]

EVERY_ROW: Final = Truth(LiteralTerm(True))
"""The predicate that is TRUE in every row."""
NOT_OF_COLUMNS = "the condition is not determined by the columns of the data set"
_HIDDEN = re.compile(r"\b_metadata\b", re.IGNORECASE)
"""The hidden column, which a frame that scans files has; where blocks begin depends on the other files of the scan."""
_COMPARED_LITERALS = 64
"""Of a longer list only the first literal is shown to Spark; the others must be plain."""
_NAME = r"(`[^`]+`|[A-Za-z_]\w*)"
_WORD = r"('[^'\\]*'|-?(?:\d{1,18}|[0-8]\d{18}))"
_SIMPLE = re.compile(rf"\s*{_NAME}\s*(?:==?\s*{_WORD}|[iI][nN]\s*\(\s*{_WORD}(?:\s*,\s*{_WORD})*\s*\))\s*")
"""A condition that reads the same under every setting, so that Spark need not be asked."""
_FUNCTIONS = frozenset(
    {"user", "current_user", "session_user", "current_date", "current_time", "current_timestamp", "localtime"}
)
"""Names that are functions without brackets where Spark reserves keywords."""


class Unjudged(Opaque):
    """A piece of a condition that only Spark evaluates."""

    __slots__ = ("_code", "_text")

    _code: ReasonCode
    _text: str

    def __init__(self, text: str, code: ReasonCode) -> None:
        self._set(_text=text, _code=code)

    @property
    def code(self) -> ReasonCode:
        """Why no filter judges it."""
        return self._code

    @property
    def text(self) -> str:
        """The piece, and why it is not judged."""
        return self._text

    @property
    def is_evaluable(self) -> bool:
        """False: only Spark evaluates it."""
        return False

    def _leaf_columns(self) -> Iterable[str]:
        return ()

    def _expression(self, schema: pa.Schema, parts: list[Any]) -> Any:  # noqa: ARG002 - never evaluated
        raise PredicateError(f"only Spark evaluates {self._text}")

    def _key(self) -> tuple[Any, ...]:
        return self._text, self._code


@dataclass(frozen=True, slots=True)
class Keys:
    """A long list of values of one column, which must be one of them."""

    target: Target
    values: pa.Array
    """Of the column's type in the index, without nulls."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What is known of one condition."""

    shown: str
    """It as people read it."""
    predicate: Predicate
    """TRUE in every row in which the condition is TRUE."""
    residual: tuple[str | Column, ...]
    """What Spark filters by, one after the other; nothing where `keys` say all."""
    keys: tuple[Keys, ...] = ()
    """What Spark joins with."""
    is_local: bool = True
    """Whether the columns of a row determine it, so that who reads the row makes no difference."""

    @property
    def exact(self) -> Predicate:
        """Those parts that Arrow evaluates on rows as Spark does; `EVERY_ROW` where there are none."""
        parts = self.predicate.children if isinstance(self.predicate, And) else (self.predicate,)
        sure = [part for part in parts if not any(isinstance(node, Opaque) for node in part.walk())]
        return And(sure) if sure else EVERY_ROW

    def filtered(self, frame: DataFrame) -> DataFrame:
        """`frame` where Spark finds the condition TRUE, the keys left out."""
        for condition in self.residual:
            frame = frame.where(condition)
        return frame


def understand(given: str | Column | Predicate, judge: Judge, template: DataFrame) -> Condition:
    """What is known of a condition.

    Parameters
    ----------
    given
        SQL text, a Column, or a predicate made with `zonebloom.col`.
    template
        A frame with the columns of the data set; it is never executed.

    Raises
    ------
    TypeError
        It is something else: None, say, of a function that found no condition.
    PredicateError
        A predicate holds what Spark has no words for.
    """
    from pyspark.sql import Column  # noqa: PLC0415 - an optional extra

    if isinstance(given, Predicate):
        return _of_predicate(given, judge)
    if isinstance(given, str):
        return _of_text(given, judge, template)
    if not isinstance(given, Column):
        raise TypeError(f"a condition must be SQL text, a Column, or a predicate made with col(), got {given!r:.200}")
    shown = str(given)
    part = _spelled(parts_of_column(shown), judge)
    found = Condition(shown.removeprefix("Column<'").removesuffix("'>"), _predicate(part, judge, {}), (given,))
    if isinstance(part, Leaf) and part.kind == "opaque":  # made by expr(): what it prints is SQL
        part = parts_of_text(found.shown)
        found = replace(found, predicate=_predicate(part, judge, {}))
    return _verified(found, given, part, judge, template)


def _of_text(given: str, judge: Judge, template: DataFrame) -> Condition:
    part = parts_of_text(given)
    judged: dict[int, Predicate] = {}
    found = Condition(given.strip(), _predicate(part, judge, judged), (given,))
    simple = _SIMPLE.fullmatch(given)
    long = _long_lists(part, judged)
    if not long and id(part) in judged and simple and simple[1].lower() not in _FUNCTIONS:  # judged: it names a column
        return found
    try:
        shortened = _shortened(given, part)
    except UnjudgedError as error:
        return _unverified(found, str(error), is_local=False)  # Spark was not asked
    checked = _verified(found, shortened, part, judge, template)
    if not long or isinstance(checked.predicate, Unjudged):
        return checked
    return _with_keys(replace(checked, shown=shortened.strip()), part, long, judge)


def keys_condition(path: tuple[str, ...], values: pa.Array, judge: Judge) -> Condition:
    """The condition that the column at `path` is one of `values`.

    Raises
    ------
    PredicateError
        The values are not of the column's type.
    """
    try:
        target = judge.target(path)
        fitted = _fitted(values, target)
    except UnjudgedError as error:
        message = f"a long list of values must be of the type of column {'.'.join(path)}, got: {error}"
        raise PredicateError(message) from error
    shown = f"{target.name} IN ({len(fitted)} values)"
    predicate: Predicate = IsIn(target.name, fitted)
    if has_old_key(fitted):
        message = f"{shown}: keys before 1901 may be of another calendar in old files"
        predicate = Unjudged(message, ReasonCode.PREDICATE_NOT_SUPPORTED)
    return Condition(shown, predicate, (), (Keys(target, fitted),))


def _spelled(part: Part, judge: Judge) -> Part:
    """`part` of what a Column printed, with names that are dotted cut where the schema says."""
    if isinstance(part, Joint):
        return replace(part, parts=tuple(_spelled(one, judge) for one in part.parts))
    return replace(part, name=judge.path(part.name[0])) if len(part.name) == 1 else part


# --- pruning ----------------------------------------------------------------------------------------------------------


def _predicate(part: Part, judge: Judge, judged: dict[int, Predicate]) -> Predicate:
    """What prunes soundly for `part`; leaves that filters judge are noted in `judged` by their id."""
    if isinstance(part, Joint):
        children = [_predicate(one, judge, judged) for one in part.parts]
        return {"and": And, "or": Or}[part.kind](children) if part.kind != "not" else ~children[0]
    try:
        found = judged[id(part)] = _leaf(part, judge)
    except UnjudgedError as error:
        return Unjudged(f"{part.text:.200}: {error}", error.reason.code)
    return found


def _leaf(leaf: Leaf, judge: Judge) -> Predicate:
    if leaf.kind == "opaque":
        raise UnjudgedError(ReasonCode.PREDICATE_NOT_SUPPORTED, "only Spark evaluates it")
    target = judge.target(leaf.name)
    if leaf.kind in ("null", "not null"):
        return IsNull(target.name) if leaf.kind == "null" else ~IsNull(target.name)
    if leaf.kind == "column":
        return Equals(target.name, judge.fitted(True, target))
    values = [judge.value(word, target) for word in leaf.words]
    if leaf.kind in ("in", "not in"):
        found: Predicate = IsIn(target.name, values)
    elif leaf.kind == "<=>":
        found = IsNull(target.name) if values[0] is None else Equals(target.name, values[0], null_safe=True)
    else:
        found = Equals(target.name, values[0])
    return Not(found) if leaf.kind in ("not in", "!=") else found


# --- asking Spark -----------------------------------------------------------------------------------------------------


def _verified(found: Condition, given: str | Column, part: Part, judge: Judge, template: DataFrame) -> Condition:
    """`found`, if Spark says that `part` means what was given; else nothing is pruned, and said."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - an optional extra

    if _HIDDEN.search(found.shown):
        return _unverified(found, NOT_OF_COLUMNS, is_local=False)
    try:
        is_same = _joined(template, given).sameSemantics(_joined(template, _column(part, judge)))
    except PySparkException:
        try:
            _joined(template, given).schema  # noqa: B018 - asks Spark to resolve it
        except PySparkException:
            return _unverified(found, NOT_OF_COLUMNS, is_local=False)
        is_same = False
    return found if is_same else _unverified(found, "it is not understood, so that only Spark evaluates it")


def _joined(template: DataFrame, condition: str | Column) -> DataFrame:
    """`template` where `condition`, as a join with a frame without columns: Spark takes only what is deterministic.

    `input_file_name()`, `monotonically_increasing_id()` and `rand()` are not, nor is a user's function that calls one.
    """
    from pyspark.sql import functions  # noqa: PLC0415 - an optional extra

    column = functions.expr(condition) if isinstance(condition, str) else condition
    return template.join(template.sparkSession.range(0).select(), column)


def _unverified(found: Condition, why: str, *, is_local: bool = True) -> Condition:
    code = ReasonCode.PREDICATE_NOT_SUPPORTED
    return replace(found, predicate=Unjudged(f"{found.shown:.200}: {why}", code), is_local=is_local)


def _column(part: Part, judge: Judge) -> Column:
    """`part` as a Column of our own making."""
    from pyspark.sql import functions  # noqa: PLC0415 - an optional extra

    if isinstance(part, Joint):
        children = [_column(one, judge) for one in part.parts]
        return ~children[0] if part.kind == "not" else reduce(and_ if part.kind == "and" else or_, children)
    if part.kind == "opaque":
        return functions.expr(part.text)
    column = functions.col(".".join(f"`{name.replace('`', '``')}`" for name in part.name))
    if part.kind == "null":
        return column.isNull()
    if part.kind == "not null":
        return column.isNotNull()
    if part.kind == "column":
        return column
    words = part.words[: 1 if len(part.words) > _COMPARED_LITERALS else None]
    literals = [_literal(word, part, judge) for word in words]
    if part.kind in ("in", "not in"):
        found = column.isin(*literals)
        return found if part.kind == "in" else ~found
    compared = {"=": column.__eq__, "!=": column.__ne__, "<=>": column.eqNullSafe}[part.kind]
    return compared(literals[0])


def _literal(word: Word, leaf: Leaf, judge: Judge) -> Column:
    """The literal; where its text reads the same under every setting, as that text."""
    from pyspark.sql import functions  # noqa: PLC0415 - an optional extra

    if word.kind == "string":
        return functions.lit(word.value)
    if word.kind != "raw":
        return functions.expr(word.text)
    try:
        value = judge.value(word, judge.target(leaf.name))
    except UnjudgedError:
        value = word.value
    text = text_of(value)
    return functions.lit(value) if text is None else functions.expr(text)


def _shortened(text: str, part: Part) -> str:
    """The condition with its long IN lists cut to their first literal.

    Raises
    ------
    UnjudgedError
        One holds escapes.
    """
    for leaf in _leaves(part):
        if len(leaf.words) > _COMPARED_LITERALS:
            if not all(map(is_plain, leaf.words)):
                message = "its list is too long and holds literals with escapes"
                raise UnjudgedError(ReasonCode.PREDICATE_NOT_SUPPORTED, message)
            head = leaf.text[: leaf.text.index(leaf.words[0].text, leaf.text.index("(")) + len(leaf.words[0].text)]
            text = text.replace(leaf.text, f"{head})", 1)
    return text


def _leaves(part: Part) -> Iterable[Leaf]:
    if isinstance(part, Leaf):
        yield part
    else:
        for one in part.parts:
            yield from _leaves(one)


# --- long lists -------------------------------------------------------------------------------------------------------


def _long_lists(part: Part, judged: dict[int, Predicate]) -> list[tuple[Leaf, IsIn]]:
    """Judged IN lists among the parts of the outermost AND, which become a join."""
    parts = part.parts if isinstance(part, Joint) and part.kind == "and" else (part,)
    pairs = [(one, judged.get(id(one))) for one in parts if isinstance(one, Leaf) and len(one.words) > MAX_LITERALS]
    return [(leaf, found) for leaf, found in pairs if leaf.kind == "in" and isinstance(found, IsIn)]


def _with_keys(found: Condition, part: Part, long: list[tuple[Leaf, IsIn]], judge: Judge) -> Condition:
    leaves = {id(leaf) for leaf, _ in long}
    parts = part.parts if isinstance(part, Joint) else (part,)
    rest = tuple(_column(one, judge) for one in parts if id(one) not in leaves)
    keys = []
    for leaf, values in long:
        target = judge.target(leaf.name)
        keys.append(Keys(target, _fitted(values.values, target)))
    return replace(found, residual=rest, keys=tuple(keys))


def _fitted(values: Any, target: Target) -> pa.Array:
    from zonebloom.predicates.coerce import fit_values  # noqa: PLC0415 - only for long lists

    fit = fit_values(values, target.arrow)
    if fit.reason is not None:
        raise UnjudgedError(fit.reason.code, fit.reason.message)
    return fit.values.unique()


# --- predicates made with col() ------


def _of_predicate(given: Predicate, judge: Judge) -> Condition:
    """A predicate, with Spark's meaning of it."""
    parts = given.children if isinstance(given, And) else (given,)
    keys: list[Keys] = []
    rest: list[Column] = []
    judged: list[Predicate] = []
    for part in parts:
        if isinstance(part, IsIn) and len(part.values) > MAX_LITERALS:
            found = keys_condition(judge.path(part.column), part.values, judge)
            keys += found.keys
            judged.append(found.predicate)
        else:
            rest.append(part.fold(lambda node, children: column_of(node, children, judge)))
            judged.append(part.fold(lambda node, children: _judged(node, children, judge)))
    return Condition(f"{given!r:.400}", And(judged) if len(judged) > 1 else judged[0], tuple(rest), tuple(keys))


def _judged(node: Predicate, children: list[Predicate], judge: Judge) -> Predicate:
    if isinstance(node, Not):
        return ~children[0]
    if isinstance(node, (And, Or)):
        return type(node)(children)
    try:
        if isinstance(node, IsNull):
            return IsNull(judge.target(judge.path(node.column)).name)
        if isinstance(node, Equals):
            target = judge.target(judge.path(node.column))
            return Equals(target.name, judge.fitted(node.value, target), null_safe=node.null_safe)
        if isinstance(node, IsIn):
            target = judge.target(judge.path(node.column))
            return IsIn(target.name, [judge.fitted(one, target) for one in node.values], null_safe=node.null_safe)
    except UnjudgedError as error:
        return Unjudged(f"{node!r:.200}: {error}", error.reason.code)
    return Unjudged(f"{node!r:.200}: only Spark evaluates it", ReasonCode.PREDICATE_NOT_SUPPORTED)
