"""`ZoneBloom.sql`: a query that reads, of indexed tables, only rows that can match.

Spark proves each step. If a proof fails, Spark runs the query as it is:

1. sqlglot finds the tables that the query names. Each indexed table becomes a frame of its own in the text.
   `sameSemantics` checks that the text still means the same. The text of a view is such a query, too.
2. Each frame is replaced by an opaque one. The optimized plan then has the filter right above each frame, with
   parameters bound and constants folded. Comparisons of a column with a literal are read from this filter.
3. The optimizer proves that the filter implies these comparisons (`pushdown.implied`).
4. Each lake is read by its comparisons, and the query runs over these frames.

Design: docs/design/spark-reads.md#sql
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
from zonebloom.engines.spark.pushdown.names import is_sent
from zonebloom.engines.spark.pushdown.types import Binder, UnboundError
from zonebloom.engines.spark.scan.lake import Lake
from zonebloom.engines.spark.scan.read import lake_of
from zonebloom.engines.spark.versions import described
from zonebloom.ground.errors import InvalidArgumentError, PredicateError, ZoneBloomError
from zonebloom.predicates import And, Equals, IsIn, Or, Predicate

_LEAF = re.compile(r"\((\w+)#\d+L? = (.*)\)|(\w+)#\d+L? IN(?: \((.*)\)|SET (.*))")
"""`(user#1 = u-7)`, `user#1 IN (a,b)` and `user#1 INSET a, b` of an optimized plan."""
_OF_READS = re.compile(
    r"\b(input_file_(name|block_\w+)|monotonically_increasing_id|spark_partition_id)\("
    r"|\b(rand|randn|random|randstr|uniform|uuid|shuffle)\(|^[\s:+|-]*Sample ",
    re.IGNORECASE | re.MULTILINE,
)
"""Functions and samples, as a plan prints them, that depend on the reader of a row or on the rows before it."""
_OF_MOMENT = re.compile(
    r"\b(current_\w+|curdate|now|localtimestamp)\(|\b(now|today|tomorrow|yesterday)\b"
    r"|cast\((\w+ ?\(|CASE ).* as (date|timestamp)|to_(date|timestamp)\w*\((\w+ ?\(|CASE )",
    re.IGNORECASE,
)
"""Functions, as an analyzed plan prints them, whose value Spark takes anew for each action on a frame.

So it takes the day of a text such as `'today'` where it casts the text to a date or a timestamp. A function may give
such a text.
"""
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


def pruned_sql(catalog: Catalog, text: str, args: Any = None, **lakes: Lake | DataFrame) -> DataFrame:
    """`spark.sql(text, args, **lakes)`, but scans of indexed tables read only rows that can match.

    Design: docs/design/spark-reads.md#sql
    """
    if not is_sent(text):
        raise InvalidArgumentError("text must be SQL, in UTF-8", got=f"{text!r:.80}")
    frames = {name: lake.toDF() if isinstance(lake, Lake) else lake for name, lake in lakes.items()}
    whole = _run(catalog.spark, text, args, frames)
    try:
        return _query(catalog, text, args, frames, lakes).pruned(whole) or whole
    except (PySparkException, InvalidArgumentError):  # the second of a lake that only Spark may read now
        return whole


def _run(spark: SparkSession, text: str, args: Any, frames: Mapping[str, DataFrame]) -> DataFrame:
    return spark.sql(text, **frames) if args is None else spark.sql(text, args, **frames)


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
    own = {query.alias.lower() for query in trees[0].find_all(exp.CTE)}
    names = [*own, *(table.name for table in trees[0].find_all(exp.Table))]
    if own and not all(map(str.isascii, names)):  # to Java, which compares them, the dotless i of Turkish is an i
        return []
    return sorted(_references(text, trees[0], own), key=lambda reference: reference.start)


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


def _query(catalog: Catalog, text: str, args: Any, frames: Mapping[str, DataFrame], lakes: Mapping[str, Any]) -> Query:
    """`text` with a field for each table that is indexed, and for each view of such tables."""
    references = references_of(text)
    scans = [_scan(catalog, reference, frames, lakes) for reference in references]
    pairs = [(reference, scan) for reference, scan in zip(references, scans, strict=True) if scan is not None]
    shown = rewritten(text, [reference for reference, _ in pairs], has_fields=bool(frames))
    return Query(catalog.spark, shown, args, frames, [scan for _, scan in pairs])


def _scan(
    catalog: Catalog, reference: Reference, frames: Mapping[str, DataFrame], lakes: Mapping[str, Any]
) -> Scan | None:
    """The scan of `reference`, if it is an indexed data set or a view of some, and not cached."""
    field = _FIELD.fullmatch(reference.name)
    given = lakes.get(field[1]) if field else None
    if isinstance(given, Lake):
        return Scan(frames[field[1]], given)  # type: ignore[index]  # it matched
    try:
        if field is None and catalog.spark.catalog.isCached(reference.name):
            return None
        source = frames[field[1]] if field else catalog.spark.table(reference.name)
        if not isinstance(source, DataFrame):  # a value that Spark puts into the text
            return None
        with contextlib.suppress(ZoneBloomError):
            index = None if field else catalog.index_called(reference.name)
            if index is not None or catalog.has_index(source):
                lake = lake_of(catalog, source, index)
                if index is not None:
                    catalog.check_called(reference.name, index, lake.index.data.location)
                lake.resolve = None  # it is used for this query only
                return Scan(source, lake)
        return None if field else _view(catalog, reference.name, source)
    except (PySparkException, KeyError):
        return None


def _view(catalog: Catalog, name: str, source: DataFrame) -> Scan | None:
    """The scans of a view's text, if Spark reports that the text means the view here; None for any other table."""
    text = described(catalog.spark, name).get("view_text")
    query = _query(catalog, text, None, {}, {}) if text else None
    if query is None or not query.scans:
        return None
    same = query.run(scan.source for scan in query.scans)
    return Scan(source, query) if same.columns == source.columns and same.sameSemantics(source) else None


def rewritten(text: str, references: Sequence[Reference], *, has_fields: bool) -> str:
    """`text` with a field of `str.format` for each reference: `{zonebloom_scan_0}`, ...

    >>> rewritten("SELECT '{' FROM t", [Reference("t", 16, 17, " AS t")], has_fields=False)
    "SELECT '{{' FROM {zonebloom_scan_0} AS t"
    """
    fields, last = "", 0
    for number, reference in enumerate(references):
        fields += _escaped(text[last : reference.start], has_fields) + f"{{{_SCAN}{number}}}{reference.alias}"
        last = reference.stop
    return fields + _escaped(text[last:], has_fields)


def _escaped(text: str, has_fields: bool) -> str:  # noqa: FBT001 - of a text that is formatted already
    return text if has_fields else text.replace("{", "{{").replace("}", "}}")


# --- what they are filtered by ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scan:
    """A frame that a query names, and the lake or the view whose rows it has."""

    source: DataFrame
    """The frame that Spark reads for it."""
    of: Lake | Query


@dataclass(frozen=True)
class Query:
    """A query with its arguments and frames."""

    spark: SparkSession
    text: str
    """The query, with the fields `{zonebloom_scan_0}`, … for `scans`."""
    args: Any
    frames: Mapping[str, DataFrame]
    """Frames for the other fields of the text."""
    scans: Sequence[Scan]

    def run(self, scans: Iterable[DataFrame]) -> DataFrame:
        """The query over one frame for each of `scans`."""
        fields = {**self.frames, **{f"{_SCAN}{number}": frame for number, frame in enumerate(scans)}}
        return _run(self.spark, self.text, self.args, fields)

    @property
    def texts(self) -> str:
        """Its text, and those of views: `DATE 'today'` is a day in each plan, but not the same one tomorrow."""
        return "\n".join([self.text, *(scan.of.texts for scan in self.scans if isinstance(scan.of, Query))])

    def leaves(self) -> Iterator[tuple[DataFrame, Lake]]:
        """The indexed tables that it reads, also through views: each with the frame that Spark reads for it."""
        for scan in self.scans:
            yield from scan.of.leaves() if isinstance(scan.of, Query) else [(scan.source, scan.of)]

    def over(self, frames: Iterator[DataFrame]) -> DataFrame:
        """The query over one frame for each of `leaves`."""
        return self.run([scan.of.over(frames) if isinstance(scan.of, Query) else next(frames) for scan in self.scans])

    def pruned(self, whole: DataFrame) -> DataFrame | None:
        """The query over pruned reads, if it means `whole`; None without a proof."""
        if not self.scans:
            return None
        same = self.run(scan.source for scan in self.scans)
        if not same.sameSemantics(whole) and not _is_same_plan(same, whole):
            return None
        leaves = list(self.leaves())
        predicates = self._proved([lake for _, lake in leaves])
        if all(predicate is None for predicate in predicates):
            return None
        pairs = zip(leaves, predicates, strict=True)
        return self.over(source if wanted is None else _read(source, lake, wanted) for (source, lake), wanted in pairs)

    def _proved(self, lakes: Sequence[Lake]) -> list[Predicate | None]:
        """For each lake a predicate that is TRUE in all rows that the query uses; Spark's optimizer has proved it."""
        places = range(len(lakes))
        unknown = [opaque(self.spark, lakes[place].schema, f"{_SCAN}{place}") for place in places]
        analyzed, plan = plans(self.over(iter(unknown)))
        if plan is None or _OF_READS.search(plan) or _OF_MOMENT.search(analyzed + self.texts):
            return [None for _ in places]
        guesses = [_guess(plan, place, lakes[place]) for place in places]

        def holds(asked: Iterable[int]) -> bool:
            frames = list(unknown)
            for place in asked:
                guess = guesses[place]
                if guess is not None:
                    frames[place] = frames[place].where(column_of(guess, lakes[place].binder()))
            return optimized_plan(self.over(iter(frames))) == plan

        guessed = [place for place in places if guesses[place] is not None]
        if guessed and holds(guessed):
            return guesses
        sure = [place for place in guessed if len(guessed) > 1 and holds([place])]
        return [guesses[place] if place in sure else None for place in places]


def _is_same_plan(query: DataFrame, other: DataFrame) -> bool:
    """Whether two queries have the same optimized plan. `sameSemantics` would report any two WITH as different."""
    plan = optimized_plan(query)
    return plan is not None and plan == optimized_plan(other)


def _read(source: DataFrame, lake: Lake, wanted: Predicate) -> DataFrame:
    """The candidate rows of the lake, or the whole table."""
    read = lake.prepare(wanted)
    return source if read.method == "plain" else read.frame


def _guess(plan: str, number: int, lake: Lake) -> Predicate | None:
    """The comparisons in the filter right above scan `number`, read from its text."""
    lines = plan.splitlines()
    place = next((line_number for line_number, line in enumerate(lines) if f"MapInArrow {_SCAN}{number}(" in line), 0)
    above = re.match(r"[\s:+|-]*Filter (.*)", lines[place - 1]) if place else None
    binder = lake.binder()
    comparisons: list[Predicate] = []
    for piece in parts_of(above[1]) if above else ():
        with contextlib.suppress(PredicateError, UnboundError):
            comparisons.append(Or([_leaf(part, binder) for part in parts_of(piece, " OR ")]))
    return And(comparisons) if comparisons else None


def _leaf(text: str, binder: Binder) -> Predicate:
    """A comparison of a column with literals, as a plan prints it.

    Raises
    ------
    PredicateError, UnboundError
        `text` is not such a comparison, or the filters do not evaluate it.
    """
    match = _LEAF.fullmatch(text)
    if match is None:
        raise PredicateError("a comparison must be of a column with literals", got=f"{text:.200}")
    name, single, listed, unique = match[1] or match[3], match[2], match[4], match[5]
    texts = [single] if single is not None else listed.split(",") if listed is not None else unique.split(", ")
    target = binder.target(binder.path(name))
    is_local = target.kind == "local"
    is_moment = is_local or target.kind == "instant"  # plans have them in the session's zone, Columns in the JVM's
    values = [binder.moment(each, is_local=is_local) if is_moment else binder.printed(each, target) for each in texts]
    leaf = Equals(name, values[0]) if len(values) == 1 else IsIn(name, values)
    column_of(leaf, binder)  # raises for literals that Spark does not have
    return leaf
