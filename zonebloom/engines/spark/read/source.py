"""`spark.read.format("zonebloom").load(path)`: a data source whose tasks read candidate row ranges only.

The ladder: `ZoneBloomSource` says the schema; `ZoneBloomReader` makes a `Plan` against one listing of the data set, of
few tasks; a task reads its row ranges and gives Arrow batches. All but the tasks runs in a Python process beside the
driver, which knows no session: it sees the options, and what Spark pushes.

What may prune is the option `where`, since it belongs to the frame. Filters that Spark pushes may prune only where it
keeps them apart: 4.1 to 4.3 give what was planned for one filter to every other query of that frame, which loses rows.
`PushingSource` is for versions that do not; `register` finds out. Spark evaluates each filter again on what comes back,
which is at most too much.

Spec: specs/spark.md#data-source
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition

from zonebloom.engines.spark.pushdown.filters import column_of, conditions_of_text, predicate_of_filters
from zonebloom.engines.spark.pushdown.types import Judge
from zonebloom.engines.spark.read.row_ranges import kept_rows, open_view
from zonebloom.engines.spark.read.schema import Layout
from zonebloom.engines.spark.read.splits import Piece, Reading, packed, pieces_of
from zonebloom.errors import InvalidArgumentError
from zonebloom.reasons import Reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from zonebloom.search.selection import RowSelection
    from zonebloom.search.view import View

__all__ = [
    "FORMAT",
    "Options",
    "Plan",
    "PushingSource",
    "ZoneBloomReader",
    "ZoneBloomSource",
    "keeps_filters_apart",
    "register",
]

FORMAT = "zonebloom"
_STORAGE = "storage."
_OPTIONS = ("path", "index", "columns", "where")
_OF_FILES = re.compile(r"\binput_file_(name|block_start|block_length)\s*\(|\b_metadata\b", re.IGNORECASE)
_MIXES_FILTERS = (4, 3)
"""The last version of Spark that is known to."""
_REGISTERED: WeakSet[SparkSession] = WeakSet()


def register(spark: SparkSession) -> None:
    """`format("zonebloom")` for this session, classic or Connect; of pushed filters only where Spark keeps them apart.

    Done once for each session, by `ZoneBloom(spark)` too. Beyond Spark 4.3 a query of a second finds out if it does.

    Spec: specs/spark.md#data-source
    """
    if spark in _REGISTERED:
        return
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    is_sure = version > _MIXES_FILTERS and keeps_filters_apart(spark)
    spark.dataSource.register(PushingSource if is_sure else ZoneBloomSource)
    _REGISTERED.add(spark)


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller says of the data set."""

    path: str | None
    """Folder, file, table or URL."""
    index: str | None
    """Where the index is, if not beside the data."""
    columns: tuple[str, ...] | None
    """Columns to read; None for all."""
    where: tuple[str, ...]
    """SQL text that prunes, and filters nothing, if one is given."""
    storage_options: Mapping[str, str] | None
    """For the stores of the data and of the index."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Options:
        """From the options of a reader, whose names have no case.

        Raises
        ------
        InvalidArgumentError
            One is unknown, `where` asks for the files of rows, or neither a path nor an index is given.
        """
        found = {name.lower(): text for name, text in given.items()}
        storage = {name.removeprefix(_STORAGE): text for name, text in found.items() if name.startswith(_STORAGE)}
        strange = sorted(name for name in found if name not in _OPTIONS and not name.startswith(_STORAGE))
        if strange:
            known = ", ".join((*_OPTIONS, f"{_STORAGE}*"))
            raise InvalidArgumentError(f"options of format zonebloom must be among {known}, got {strange[0]}")
        path, index = found.get("path"), found.get("index")
        if not path and not index:
            raise InvalidArgumentError("format zonebloom must be given one path, got none; use load(path)")
        where = (found["where"],) if "where" in found else ()
        if of_files := _OF_FILES.search(" ".join(where)):
            message = f"where must be about columns, as rows of format zonebloom have no file, got {of_files[0]}"
            raise InvalidArgumentError(f"{message}; use ZoneBloom(spark).read(path).where(condition)")
        return cls(path, index, _names(found.get("columns")), where, storage or None)

    def view(self) -> View:
        """The index against the data set as it is now."""
        return open_view(self.path, self.index, self.storage_options)


def _names(text: str | None) -> tuple[str, ...] | None:
    """Names with commas between them, or a JSON list of them; at least one."""
    if text is None:
        return None
    names: Any = [name.strip() for name in text.split(",") if name.strip()]
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except ValueError:
            names = []
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidArgumentError(f"columns must be a list of names, got {text!r:.200}")
    return tuple(names)


class ZoneBloomSource(DataSource):  # type: ignore[misc] # pyspark is not typed here
    """Spark's side of the data source; one for each `load`."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns in the types of Spark's own Parquet reader."""
        options = Options.of(self.options)
        return Layout(options.view()).schema(options.columns)

    def reader(self, schema: StructType) -> ZoneBloomReader:
        """What plans and reads, for all queries of the frame."""
        return ZoneBloomReader(Options.of(self.options), schema)


class PushingSource(ZoneBloomSource):
    """The source where each scan of Spark has a plan of its own, so that its filters may prune."""

    def reader(self, schema: StructType) -> ZoneBloomReader:
        """What plans and reads, for one scan."""
        found = ZoneBloomReader(Options.of(self.options), schema)
        found.pushFilters = Pushdown(found)
        return found


@dataclass(frozen=True, slots=True)
class Plan:
    """What is read, of how much."""

    reading: Reading
    tasks: list[tuple[Piece, ...]]
    """For each task, row groups with the row ranges in them."""
    num_total_rows: int
    """Of the data set."""
    reasons: tuple[Reason, ...]
    """Why rows were kept."""

    @property
    def pieces(self) -> list[Piece]:
        """Those of all tasks."""
        return [piece for task in self.tasks for piece in task]

    @property
    def num_files(self) -> int:
        """Files that are read."""
        return len({piece.path for piece in self.pieces})

    @property
    def num_rows(self) -> int:
        """Rows that are read."""
        return sum(piece.num_rows for piece in self.pieces)

    def __str__(self) -> str:
        parts = f"{self.num_files} files, {len(self.pieces)} row groups"
        lines = [f"{len(self.tasks)} tasks read {self.num_rows} of {self.num_total_rows} rows: {parts}"]
        return "\n".join([*lines, *(f"{reason.code}: {reason.message}" for reason in self.reasons)])


class ZoneBloomReader(DataSourceReader):  # type: ignore[misc] # pyspark is not typed here
    """Plans, and reads tasks."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.asked = schema
        self.filters: list[Filter] = []
        """What Spark pushed, if it may prune."""

    def plan(self) -> Plan:
        """What is read: the index is opened and the data set listed afresh.

        Raises
        ------
        IndexNotFoundError
            There is no index.
        InvalidArgumentError
            The schema that was asked for is not the data set's.
        """
        layout = Layout(self.options.view())
        reading = layout.reading(self.asked)
        rows, reasons = self._candidates(layout)

        def values_of(path: str) -> dict[str, Any]:
            return layout.partition_values(path, self.asked)

        tasks = packed(pieces_of(layout.view, rows, values_of))
        return Plan(reading, tasks, layout.view.universe.num_rows, reasons)

    def _candidates(self, layout: Layout) -> tuple[RowSelection, tuple[Reason, ...]]:
        """The rows that may match, and why those that cannot be judged were kept."""
        judge = Judge(layout.readable, layout.view)
        of_folders = [one for one in self.filters if column_of(one)[:1] and column_of(one)[0] in layout.folders]
        stored = [one for one in self.filters if one not in of_folders]
        predicates, reasons = predicate_of_filters(stored, judge)
        for text in self.options.where:
            more, folders, whys = conditions_of_text(text, judge, layout.folders)
            predicates, of_folders, reasons = [*predicates, *more], [*of_folders, *folders], [*reasons, *whys]
        rows, kept = kept_rows(layout, predicates, of_folders)
        return rows, tuple(dict.fromkeys([*reasons, *kept]))

    def partitions(self) -> list[InputPartition]:
        """One for each task, at least one."""
        if not self.filters and not self.options.where:
            message = "zonebloom reads every row: this Spark mixes the filters of several queries up, or pushed none"
            advice = "give the condition as option where too, or read whole data sets with spark.read.parquet"
            warnings.warn(f"{message}; {advice}", RuntimeWarning, stacklevel=2)
        plan = self.plan()
        return [InputPartition((plan.reading.only(task), task)) for task in plan.tasks or [()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        reading, pieces = partition.value
        found: Iterator[pa.RecordBatch] = reading.batches(pieces)
        return found


class Pushdown:
    """`pushFilters` of a reader, which works whether or not pushdown is on.

    Spark fails a query whose reader has a `pushFilters` of its own while pushdown is off, and the reader cannot see the
    setting. Spark looks for the function behind the method: so this says that it is the base class's. Where Spark
    calls it, pushdown is on.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        """Take the filters, and leave them all to Spark as well."""
        self._reader.filters = list(filters)
        return filters


# --- does Spark keep filters apart? -----------------------------------------------------------------------------------


def keeps_filters_apart(spark: SparkSession) -> bool:
    """Whether Spark pushes filters, and plans each scan of a frame by its own; found out by small queries.

    False as well while pushdown is off, for it may be turned on later.

    Spec: specs/spark.md#data-source
    """
    spark.dataSource.register(ProbingSource)
    frame = spark.read.format(ProbingSource.name()).load()
    if not frame.where("x = 1 AND is_pushed").collect():
        return False
    both = frame.where("x = 1").unionAll(frame.where("x = 2"))
    return bool(both.count() == len((1, 2)) and frame.count() == ProbingReader.num_rows)


class ProbingReader(DataSourceReader):  # type: ignore[misc] # as above
    """Numbers from 0; what was pushed prunes, as `PushingSource` does."""

    num_rows = 3

    def __init__(self) -> None:
        self.filters: list[Filter] | None = None
        self.pushFilters = Pushdown(self)

    def partitions(self) -> list[InputPartition]:
        """One, with the number that is wanted."""
        wanted = [one.value for one in self.filters or [] if isinstance(one, EqualTo) and one.attribute == ("x",)]
        return [InputPartition((wanted, self.filters is not None))]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, bool]]:
        """The numbers, and whether anything was pushed."""
        wanted, is_pushed = partition.value
        numbers = range(self.num_rows)
        return iter([(number, is_pushed) for number in numbers if number in (wanted or numbers)])


class ProbingSource(DataSource):  # type: ignore[misc] # as above
    """What `keeps_filters_apart` asks."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "zonebloom_probe"

    def schema(self) -> str:
        """A number, and how it was read."""
        return "x int, is_pushed boolean"

    def reader(self, schema: StructType) -> ProbingReader:  # noqa: ARG002 - Spark's signature
        """What reads."""
        return ProbingReader()
