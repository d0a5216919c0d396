"""`spark.read.format("zonebloom").load(path)`: a data source whose tasks read candidate row ranges only.

The ladder: `ZoneBloomSource` gives the schema. `ZoneBloomReader` plans few tasks against one listing of the data set. A
task reads its row ranges and gives Arrow batches. The source and the reader run in a Python process beside the driver,
which has no session: it gets the options.

Only the option `where` prunes, as it belongs to the frame. Spark 4.1 to 4.3 use the plan of one pushed filter for every
other query of that frame, which would lose rows.

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
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from zonebloom.engines.spark.pushdown.translate import predicate_of_option
from zonebloom.engines.spark.pushdown.types import Binder
from zonebloom.engines.spark.scan.schema import Layout
from zonebloom.engines.spark.scan.splits import Reading, Split
from zonebloom.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from zonebloom.search.view import View

FORMAT = "zonebloom"
_STORAGE = "storage."
_REGISTERED: WeakSet[SparkSession] = WeakSet()
_OPTIONS = ("path", "index", "columns", "where")
_OF_TABLES = frozenset({"location", "owner", "provider"})
"""Options that Spark adds where it creates a table of its catalog. Those of the caller then begin with `option.`."""
_STORED = "zonebloom"
"""Key in the metadata of a table's columns. Spark gives reads of a table the stored columns, and not its options."""
_OF_FILES = re.compile(r"\binput_file_(name|block_start|block_length)\s*\(|\b_metadata\b", re.IGNORECASE)


def register(spark: SparkSession) -> None:
    """Register `format("zonebloom")` for this session, classic or Connect; `ZoneBloom(spark)` does it too.

    Spec: specs/spark.md#data-source
    """
    if spark not in _REGISTERED:  # Spark warns at a second registration
        spark.dataSource.register(ZoneBloomSource)
        _REGISTERED.add(spark)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the caller about the data set."""

    path: str | None
    """Folder, file, table or URL."""
    index: str | None
    """Place of the index, if it is not beside the data."""
    columns: tuple[str, ...] | None
    """Columns to read; None for all."""
    where: str | None
    """SQL text that prunes, and filters nothing."""
    storage_options: Mapping[str, str] | None
    """Options for the stores of the data and of the index."""
    is_of_table: bool = False
    """Whether a table of Spark's catalog is being created."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Options:
        """Options of a reader, or of a table that is created; their names have no case.

        Raises
        ------
        InvalidArgumentError
            An option is unknown, `where` uses the files of rows or belongs to a table, or neither a path nor an index
            is given.
        """
        found = {name.lower(): text for name, text in given.items()}
        is_of_table = not _OF_TABLES.isdisjoint(found)
        if is_of_table:
            found = _of_created(found)
        storage = {name.removeprefix(_STORAGE): text for name, text in found.items() if name.startswith(_STORAGE)}
        strange = sorted(name for name in found if name not in _OPTIONS and not name.startswith(_STORAGE))
        if strange:
            known = ", ".join((*_OPTIONS, f"{_STORAGE}*"))
            raise InvalidArgumentError(f"options of format zonebloom must be among {known}, got {strange[0]}")
        path, index = found.get("path"), found.get("index")
        if not path and not index:
            advice = "use load(path), and create a table without a list of columns"
            raise InvalidArgumentError(f"format zonebloom must be given one path, got none; {advice}")
        where = found.get("where")
        if of_files := _OF_FILES.search(where or ""):
            message = f"where must be about columns, as rows of format zonebloom have no file, got {of_files[0]}"
            raise InvalidArgumentError(f"{message}; use ZoneBloom(spark).read(path).where(condition)")
        return cls(path, index, _names(found.get("columns")), where, storage or None, is_of_table)

    def view(self) -> View:
        """The index against the data set as it is now."""
        from zonebloom.engines.spark.catalog import Catalog  # noqa: PLC0415 - executors do without

        catalog = Catalog(None, storage_options=self.storage_options)
        return catalog.view(self.index) if self.path is None else catalog.view(self.path, self.index)


def _of_created(found: Mapping[str, str]) -> dict[str, str]:
    """The caller's options of a table that is created, without properties of the table, which Spark mixes with them."""
    options = {name.removeprefix("option."): text for name, text in found.items() if name.startswith("option.")}
    if "where" in options:
        raise _where_of_table(options["where"])
    place = found.get("location")  # Hadoop's path: nothing in it is encoded
    return options if place is None else {**options, "path": re.sub(r"^file:/+", "/", place)}


def _where_of_table(where: str) -> InvalidArgumentError:
    """The error for `where` on a table of Spark's catalog; specs/spark.md#data-source says why."""
    message = f"a table of format zonebloom must have all rows, got the option where {where!r:.200}"
    return InvalidArgumentError(f"{message}; query it by ZoneBloom(spark).sql, or make a view with path and where")


def stored_in(schema: StructType) -> dict[str, str]:
    """Path and index of a table of Spark's catalog, from its columns; empty where the columns are of no such table."""
    found = (one.metadata.get(_STORED) for one in schema if one.metadata)
    return next((dict(one) for one in found if one), {})


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
        """The columns in the types of Spark's own Parquet reader; of a table with its path, as its reads need that."""
        options = Options.of(self.options)
        found = Layout(options.view()).schema(options.columns)
        if options.is_of_table:
            places = {"path": options.path, "index": options.index}
            stored = {name: place for name, place in places.items() if place is not None}
            for field in found:
                field.metadata = {**(field.metadata or {}), _STORED: stored}
        return found

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802, ARG002 - Spark's names
        """Refuse a stream: an index does not describe rows to come.

        Raises
        ------
        InvalidArgumentError
            Always.
        """
        message = "format zonebloom must be read as a batch, got a stream"
        raise InvalidArgumentError(
            f"{message}; call ZoneBloom(spark).read in foreachBatch, as docs/how-to/spark.md shows"
        )

    def reader(self, schema: StructType) -> ZoneBloomReader:
        """The reader for all queries of the frame.

        Raises
        ------
        InvalidArgumentError
            An option is wrong, or `where` is given for a table of Spark's catalog.
        """
        has_place = any(name.lower() in ("path", "index") for name in self.options)
        options = Options.of({**({} if has_place else stored_in(schema)), **self.options})
        if options.where is not None and not has_place:
            raise _where_of_table(options.where)
        return ZoneBloomReader(options, schema)


class ZoneBloomReader(DataSourceReader):  # type: ignore[misc] # pyspark is not typed here
    """Plans a read, and reads the rows of its tasks."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.asked = schema

    def tasks(self) -> tuple[Reading, list[tuple[Split, ...]]]:
        """How tasks read, and the row groups of each. The index is opened again, and the data set is listed again.

        Raises
        ------
        IndexNotFoundError
            There is no index.
        InvalidArgumentError
            The caller's schema differs from the data set's.
        """
        layout = Layout(self.options.view())
        view, rows = layout.view, layout.view.universe
        if self.options.where is not None:
            rows = view.search(predicate_of_option(self.options.where, Binder(layout.readable, view))).row_ranges
        return layout.tasks(rows, self.asked)

    def partitions(self) -> list[InputPartition]:
        """One for each task, at least one."""
        if self.options.where is None:
            message = "zonebloom reads every row: Spark does not tell a data source which filter belongs to which query"
            advice = "query by ZoneBloom(spark).sql, or load(path) with the condition as option where too"
            warnings.warn(f"{message}; {advice}", RuntimeWarning, stacklevel=2)
        reading, tasks = self.tasks()
        return [InputPartition((reading.only(task), task)) for task in tasks or [()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        reading, splits = partition.value
        found: Iterator[pa.RecordBatch] = reading.batches(splits)
        return found
