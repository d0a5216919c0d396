"""`ZoneBloom.sql`: a query that reads, of indexed tables, only rows that can match.

Spark proves each step. If a proof fails, Spark runs the query as it is:

1. sqlglot finds the tables that the query names. Each indexed table becomes a frame of its own in the text.
   `sameSemantics` checks that the text still means the same.
2. Each frame is replaced by an opaque one. The optimized plan then has the filter right above each frame, with
   parameters bound and constants folded. Comparisons of a column with a literal are read from this filter.
3. The optimizer proves that the filter implies these comparisons (`pushdown.implied`).
4. Each lake is read by its comparisons, and the query runs over these frames.

Design: docs/design/spark.md#sql
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp, parse
from sqlglot.errors import SqlglotError

from zonebloom.engines.spark.catalog import Catalog
from zonebloom.engines.spark.pushdown.columns import column_of
from zonebloom.engines.spark.pushdown.implied import opaque, optimized_plan, parts_of, plans
from zonebloom.engines.spark.pushdown.types import Binder, UnboundError
from zonebloom.engines.spark.scan.lake import Lake
from zonebloom.engines.spark.scan.read import lake_of
from zonebloom.errors import PredicateError, ZoneBloomError
from zonebloom.predicates import And, Equals, IsIn, Or, Predicate

_LEAF = re.compile(r"\((\w+)#\d+L? = (.*)\)|(\w+)#\d+L? IN(?: \((.*)\)|SET (.*))")
"""`(user#1 = u-7)`, `user#1 IN (a,b)` and `user#1 INSET a, b` of an optimized plan."""
_OF_READS = re.compile(
    r"\b(input_file_(name|block_\w+)|monotonically_increasing_id|spark_partition_id)\("
    r"|\b(rand|randn|random|randstr|uniform|uuid|shuffle)\(|^[\s:+|-]*Sample ",
    re.IGNORECASE | re.MULTILINE,
)
"""Functions and samples, as a plan prints them, that depend on the reader of a row or on the rows before it."""
_OF_MOMENT = re.compile(r"\b(current_\w+|curdate|now|localtimestamp)\(", re.IGNORECASE)
"""Functions, as an analyzed plan prints them, whose value Spark takes anew for each action on a frame."""
_FIELD = re.compile(r"\{(\w+)\}")
_SCAN = "zonebloom_scan_"


class Reference(NamedTuple):
    """A table that a query names."""

    name: str
    """Name, quoted as in the text."""
    start: int
    stop: int
    """Start and end of the name in the text."""
    alias: str
    """Alias to add, so that its columns have the same names."""


@dataclass(frozen=True)
class Scanned:
    """A reference to an indexed table."""

    reference: Reference
    source: DataFrame
    """The frame that Spark reads for it."""
    lake: Lake


def pruned_sql(catalog: Catalog, text: str, args: Any = None, **lakes: Lake | DataFrame) -> DataFrame:
    """`spark.sql(text, args, **lakes)`, but scans of indexed tables read only rows that can match.

    Design: docs/design/spark.md#sql
    """
    frames = {name: one.toDF() if isinstance(one, Lake) else one for name, one in lakes.items()}
    found = (_scanned(catalog, reference, lakes, frames) for reference in references_of(text))
    scans = [scan for scan in found if scan is not None]
    query = Query(catalog.spark, text, args, frames)
    return (query.pruned(scans) if scans else None) or query.run(text)


# --- which tables -----------------------------------------------------------------------------------------------------


def references_of(text: str) -> list[Reference]:
    """The tables that a query names, in order; none if the statement is not a query.

    >>> references_of("SELECT * FROM db.events WHERE u = 1")
    [Reference(name='db.events', start=14, stop=23, alias=' AS events')]
    """
    try:
        trees = parse(_FIELD.sub(r"`\1`", text), dialect="spark")
    except (SqlglotError, RecursionError):
        return []
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        return []
    own = {one.alias.lower() for one in trees[0].find_all(exp.CTE)}
    return sorted(_references(text, trees[0], own), key=lambda one: one.start)


def _references(text: str, tree: exp.Query, own: set[str]) -> Iterator[Reference]:
    for table in tree.find_all(exp.Table):
        parts = table.parts
        if not all(isinstance(part, exp.Identifier) and "start" in part.meta for part in parts):
            continue
        if len(parts) == 1 and table.name.lower() in own:
            continue
        start, stop = parts[0].meta["start"], parts[-1].meta["end"] + 1
        last = text[parts[-1].meta["start"] : stop]
        is_called = table.alias or _FIELD.fullmatch(last)
        yield Reference(text[start:stop], start, stop, "" if is_called else f" AS {last}")


def _scanned(
    catalog: Catalog, reference: Reference, lakes: Mapping[str, Any], frames: Mapping[str, DataFrame]
) -> Scanned | None:
    """The scan of `reference`, if it is an indexed data set."""
    field = _FIELD.fullmatch(reference.name)
    given = lakes.get(field[1]) if field else None
    if isinstance(given, Lake):
        return Scanned(reference, frames[field[1]], given)  # type: ignore[index]  # it matched
    try:
        source = frames[field[1]] if field else catalog.spark.table(reference.name)
        if not catalog.has_index(source):
            return None
        lake = lake_of(catalog, source)
        lake.resolve = None  # it is used for this query only
        return Scanned(reference, source, lake)
    except (PySparkException, ZoneBloomError, KeyError):
        return None


def rewritten(text: str, references: Sequence[Reference], *, has_fields: bool) -> str:
    """`text` with a field of `str.format` for each reference: `{zonebloom_scan_0}`, ...

    >>> rewritten("SELECT '{' FROM t", [Reference("t", 16, 17, " AS t")], has_fields=False)
    "SELECT '{{' FROM {zonebloom_scan_0} AS t"
    """
    made, last = "", 0
    for number, one in enumerate(references):
        made += _escaped(text[last : one.start], has_fields) + f"{{{_SCAN}{number}}}{one.alias}"
        last = one.stop
    return made + _escaped(text[last:], has_fields)


def _escaped(text: str, has_fields: bool) -> str:  # noqa: FBT001 - of a text that is formatted already
    return text if has_fields else text.replace("{", "{{").replace("}", "}}")


# --- what they are filtered by ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Query:
    """A query with its arguments and frames."""

    spark: SparkSession
    text: str
    args: Any
    frames: Mapping[str, DataFrame]
    """Frames for the fields of the text."""

    def run(self, text: str, scans: Iterable[DataFrame] = ()) -> DataFrame:
        """The query's `text`, or a rewritten one over `scans`."""
        fields = {**self.frames, **{f"{_SCAN}{number}": frame for number, frame in enumerate(scans)}}
        return self.spark.sql(text, **fields) if self.args is None else self.spark.sql(text, self.args, **fields)

    def pruned(self, scans: Sequence[Scanned]) -> DataFrame | None:
        """The query over pruned reads; None without a proof."""
        text = rewritten(self.text, [one.reference for one in scans], has_fields=bool(self.frames))
        try:
            whole, same = self.run(self.text), self.run(text, (one.source for one in scans))
            if not same.sameSemantics(whole) and not _is_same_plan(same, whole):
                return None
            found = self._proved(text, scans)
            if all(one is None for one in found):
                return None
            reads = [
                one.source if known is None else _read(one, known) for one, known in zip(scans, found, strict=True)
            ]
            return self.run(text, reads)
        except PySparkException:
            return None

    def _proved(self, text: str, scans: Sequence[Scanned]) -> list[Predicate | None]:
        """For each scan a predicate that is TRUE in all rows that the query uses; Spark's optimizer has proved it."""
        places = range(len(scans))
        unknown = [opaque(self.spark, scans[place].lake.full_schema, f"{_SCAN}{place}") for place in places]
        analyzed, plan = plans(self.run(text, unknown))
        if plan is None or _OF_READS.search(plan) or _OF_MOMENT.search(analyzed):
            return [None for _ in places]
        guesses = [_guess(plan, place, scans[place].lake) for place in places]

        def holds(asked: Iterable[int]) -> bool:
            frames = list(unknown)
            for place in asked:
                guess = guesses[place]
                if guess is not None:
                    frames[place] = frames[place].where(column_of(guess, scans[place].lake.binder()))
            return optimized_plan(self.run(text, frames)) == plan

        guessed = [place for place in places if guesses[place] is not None]
        if guessed and holds(guessed):
            return guesses
        sure = [place for place in guessed if len(guessed) > 1 and holds([place])]
        return [guesses[place] if place in sure else None for place in places]


def _is_same_plan(one: DataFrame, other: DataFrame) -> bool:
    """Whether two queries have the same optimized plan. `sameSemantics` would report any two WITH as different."""
    plan = optimized_plan(one)
    return plan is not None and plan == optimized_plan(other)


def _read(scan: Scanned, known: Predicate) -> DataFrame:
    """The candidate rows of the scan, or the whole table."""
    found = scan.lake.prepare(known)
    return scan.source if found.method == "plain" else found.frame


def _guess(plan: str, number: int, lake: Lake) -> Predicate | None:
    """The comparisons in the filter right above scan `number`, read from its text."""
    lines = plan.splitlines()
    place = next((one for one, line in enumerate(lines) if f"MapInArrow {_SCAN}{number}(" in line), 0)
    above = re.match(r"[\s:+|-]*Filter (.*)", lines[place - 1]) if place else None
    binder = lake.binder()
    found: list[Predicate] = []
    for piece in parts_of(above[1]) if above else ():
        with contextlib.suppress(PredicateError, UnboundError):
            found.append(Or([_leaf(one, binder) for one in parts_of(piece, " OR ")]))
    return And(found) if found else None


def _leaf(text: str, binder: Binder) -> Predicate:
    """A comparison of a column with literals, as a plan prints it.

    Raises
    ------
    PredicateError, UnboundError
        `text` is not such a comparison, or the filters do not evaluate it.
    """
    found = _LEAF.fullmatch(text)
    if found is None:
        raise PredicateError("a comparison must be of a column with literals", got=f"{text:.200}")
    name, one, listed, unique = found[1] or found[3], found[2], found[4], found[5]
    texts = [one] if one is not None else listed.split(",") if listed is not None else unique.split(", ")
    target = binder.target(binder.path(name))
    values = [binder.printed(each, target) for each in texts]
    leaf = Equals(name, values[0]) if len(values) == 1 else IsIn(name, values)
    column_of(leaf, binder)  # raises for literals that Spark does not have
    return leaf
