"""`IndexedDataset`: a data set as a pyarrow Dataset, which reads only the rows that may match.

Engines that accept a pyarrow Dataset pass it their filter, so each of them prunes by the index. A ladder:

- a **scan** lists the data set afresh, searches the index with the filter, reads the candidate rows and re-checks them;
- an `IndexedScanner` is a deferred scan: nothing is read before its first batch, and each use scans again;
- an `IndexedFragment` is one file of a listing, with the candidate rows in it: DataFusion reads by fragments.

Data set and scanner are Arrow streams too, so `pyarrow.dataset.write_dataset` and `write_deltalake` accept them.
Scanner and fragment are not classes of pyarrow, because C++ would follow their null pointers. C++ cannot read the data
set itself, because pyarrow has no files of it: joins of pyarrow, unions and `Scanner.from_dataset` raise an error that
says so.

Design: docs/design/engines.md#dataset
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from pyarrow import fs

from zonebloom.bloom.hashing import selected
from zonebloom.bloom.selection import RowSelection
from zonebloom.ground.errors import DataFileError, InvalidArgumentError, PredicateError, first_line
from zonebloom.ground.reasons import Reason, ReasonCode
from zonebloom.predicates import Equals, Predicate, parse_predicate
from zonebloom.predicates.arrow_expression import unread
from zonebloom.predicates.operands import projected
from zonebloom.predicates.terms import LiteralTerm
from zonebloom.search.query import Query
from zonebloom.search.result import SearchResult
from zonebloom.search.scan import scan, top_level
from zonebloom.search.tasks import tasks_of
from zonebloom.search.view import View
from zonebloom.storage.fragments import Fragment

_PLACE = "an indexed data set, which only its own scanner() can read; pass on scanner(filter=...).to_reader()"
"""The one path that pyarrow knows: part of its error where C++ would read on its own."""

_EVERYTHING = Equals(LiteralTerm(True), True)
"""The predicate of a scan without a filter."""
_NO_CONDITION = Reason(ReasonCode.PREDICATE_NOT_SUPPORTED, "no condition was handed over, so every row is read")

Meaning: TypeAlias = Callable[[pc.Expression], pc.Expression]
"""What an engine means by a filter that it hands over, as pyarrow's own semantics."""
Columns: TypeAlias = list[str] | dict[str, pc.Expression] | None
"""Top-level names, or names with their expressions; None for all columns."""


if TYPE_CHECKING:

    class _FileSystemDataset:  # pyarrow has no types
        def __init__(self, *args: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

else:
    _FileSystemDataset = pads.FileSystemDataset


class IndexedDataset(_FileSystemDataset):
    """The rows of an indexed data set: the same as without the index, but zones that cannot match are not read.

    `Index.dataset` makes it. Each scan reads the data set at that moment; `schema` does not change. String and binary
    views become plain strings and bytes, because DuckDB passes no filter to a data set with views. If no index can
    evaluate a filter, a scan reads everything and applies the filter; `last_scan` says so.

    Tested: DuckDB 2.0 (by name, relations, joins, CTEs), DataFusion 55 (`register_dataset`), Polars 2.1
    (`scan_pyarrow_dataset`), pandas 2.3 (`to_table(...).to_pandas()`).

    Examples
    --------
    >>> import tempfile, pathlib, pyarrow as pa, pyarrow.compute as pc, pyarrow.parquet as pq, zonebloom as zb
    >>> lake = pathlib.Path(tempfile.mkdtemp(), "lake")
    >>> lake.mkdir()
    >>> pq.write_table(pa.table({"id": range(50_000)}), lake / "a.parquet")
    >>> events = zb.build_index(lake, "id").dataset()
    >>> events.to_table(filter=pc.field("id") == 40_000).to_pylist()
    [{'id': 40000}]
    >>> events.last_scan.kept.rows, events.last_scan.total.rows
    (8192, 50000)

    Design: docs/design/engines.md#dataset
    """

    def __init__(
        self,
        ask: Callable[[Predicate], Query],
        schema: pa.Schema,
        expression: pc.Expression | None = None,
        meaning: Meaning | None = None,
    ) -> None:
        self._ask = ask
        self._filter = expression
        self._meaning = meaning
        self._last_scan: SearchResult | None = None
        parquet, local = pads.ParquetFileFormat(), fs.LocalFileSystem()
        super().__init__([parquet.make_fragment(_PLACE, local)], schema, parquet, local)
        if expression is not None:
            self._scan_options = {"filter": expression}

    def __repr__(self) -> str:
        shown = "" if self._filter is None else f", filter {self._filter}"
        return f"<IndexedDataset of {len(self.schema)} columns{shown}>"

    def __reduce__(self) -> Any:
        raise TypeError("an indexed data set must be made where it is used, got a copy of it; send the path instead")

    @property
    def last_scan(self) -> SearchResult:
        """The last scan: its counts (`kept`, `total`), and why it did not read less (`reasons`).

        Raises
        ------
        InvalidArgumentError
            No engine has scanned yet.
        """
        if self._last_scan is None:
            raise InvalidArgumentError("no engine has scanned this data set yet", do="run a query first")
        return self._last_scan

    @property
    def files(self) -> list[str]:
        """Absolute paths of the current data files."""
        view = self._ask(_EVERYTHING).view
        return [view.dataset.absolute(path) for path in view.listing]

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.scanner().__arrow_c_stream__(requested_schema)

    def filter(self, expression: pc.Expression) -> IndexedDataset:
        """The data set with `expression` as a further filter; nothing is read yet."""
        return IndexedDataset(self._ask, self.schema, self._both(expression), self._meaning)

    def meant_as(self, meaning: Meaning) -> IndexedDataset:
        """The data set for an engine whose filters mean something else than pyarrow's."""
        return IndexedDataset(self._ask, self.schema, self._filter, meaning)

    def _both(self, expression: pc.Expression | None) -> pc.Expression | None:
        return _both(self._filter, expression, self._meaning)

    def scanner(
        self,
        columns: Columns = None,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
        **_reading: Any,
    ) -> IndexedScanner:
        """The scan for `columns` of the rows for which `filter` is true; nothing is read yet.

        Other options of pyarrow do not change the rows, and are not used.
        """
        return IndexedScanner(self._scan, self.schema, columns, self._both(filter))

    def get_fragments(
        self,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
    ) -> Iterator[IndexedFragment]:
        """The files with rows for which `filter` may be true, in order of path; if there is none, any one file.

        DataFusion 55 cannot plan a sort over zero files.
        """
        wanted = self._both(filter)
        query = self.search(as_predicate(self.schema, wanted))
        view, rows = query.view, query.result.row_ranges
        kept_files = view.files.of_fragments(rows.fragment_ids) or [view.files[path] for path in list(view.files)[:1]]
        for file in sorted(kept_files, key=lambda file: file.path):
            kept = rows.fragment(file.fragment_id)
            yield IndexedFragment(view, file, self.schema, kept, (self._filter, wanted), meaning=self._meaning)

    def read(
        self, predicate: Predicate | None, columns: list[str] | None = None, limit: int | None = None
    ) -> pa.RecordBatchReader:
        """The first `limit` rows for which `predicate` is true, with the top-level `columns`; ignores the filter."""
        return self.read_kept(self.search(predicate), predicate, columns, limit)

    def read_kept(
        self, query: Query, predicate: Predicate | None, columns: list[str] | None = None, limit: int | None = None
    ) -> pa.RecordBatchReader:
        """As `read`, of the rows that a search for `predicate` kept."""
        names = self.schema.names if columns is None else columns
        rows = query.result.row_ranges
        return _checked(scan(query.view, predicate, rows, names, limit, is_plain=True), self.schema)

    def _scan(self, columns: list[str], expression: pc.Expression | None) -> pa.RecordBatchReader:
        return self.read(as_predicate(self.schema, expression), columns)

    def search(self, predicate: Predicate | None) -> Query:
        """The rows that may match; sets `last_scan`."""
        query = replace(self._ask(_EVERYTHING if predicate is None else predicate), own_filters=False)
        result = query.numbered
        if predicate is None:
            others = (reason for reason in result.reasons if reason.code is not _NO_CONDITION.code)
            result = replace(result, reasons=(_NO_CONDITION, *others))
        self._last_scan = result
        return query

    def count_rows(
        self,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
        **_reading: Any,
    ) -> int:
        """The number of rows for which `filter` is true; without one no data is read."""
        wanted = self._both(filter)
        if wanted is not None:
            return self.scanner([], filter).count_rows()
        query = self.search(None)
        tasks = tasks_of(query.view, query.result.row_ranges)
        return sum(int((task.stops - task.starts).sum()) for task in tasks)


class IndexedScanner:
    """A deferred scan; each use scans again.

    It is not a `pyarrow.dataset.Scanner`. Such a scanner over Python's batches reads ahead in threads of Arrow. A
    process that ends meanwhile, for example after a LIMIT, is aborted (pyarrow 26).
    """

    def __init__(
        self,
        read: Callable[[list[str], pc.Expression | None], pa.RecordBatchReader],
        schema: pa.Schema,
        columns: Columns,
        expression: pc.Expression | None,
    ) -> None:
        self._read = read
        self._schema = schema
        self._columns: list[str] | dict[str, pc.Expression] = schema.names if columns is None else columns
        self._filter = expression

    def __repr__(self) -> str:
        return f"<IndexedScanner of {list(self._columns)}, filter {self._filter}>"

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    @property
    def projected_schema(self) -> pa.Schema:
        """Schema of the rows of the scan."""
        if isinstance(self._columns, dict):
            try:
                return projected(self._schema, self._columns)
            except (pa.ArrowException, TypeError) as error:
                raise InvalidArgumentError(
                    "columns must be names, or names with expressions over the data set", got=first_line(error)
                ) from error
        return selected(self._schema, self._columns, "the data set")

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, scanned on demand, or an empty batch if there are none; closing the iterator ends the scan."""
        batches = self._batches()
        first = next(batches, None)
        yield _without_rows(self.projected_schema) if first is None else first
        yield from batches

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if not isinstance(self._columns, dict):
            yield from self._read(self._columns, self._filter)
            return
        read = (as_predicate(self._schema, expression) for expression in self._columns.values())
        names = set().union(*(part.columns() for part in read if part is not None))
        for batch in self._read(top_level(self._schema, names), self._filter):
            yield from pads.dataset(batch).to_batches(columns=self._columns)

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """All rows."""
        return self.to_reader().read_all()

    def head(self, num_rows: int) -> pa.Table:
        """The first `num_rows` rows; later row groups are not read."""
        taken, left = [], num_rows
        for batch in self.to_batches() if num_rows > 0 else ():
            taken.append(batch.slice(0, left))
            left -= taken[-1].num_rows
            if not left:
                break
        return pa.Table.from_batches(taken, self.projected_schema)

    def count_rows(self) -> int:
        """The number of rows of the scan."""
        return sum(batch.num_rows for batch in self._read([], self._filter))

    def take(self, indices: Any) -> pa.Table:
        """The rows at `indices` among all rows of the scan."""
        return self.to_table().take(indices)


class IndexedFragment:
    """One data file of a listing; a scan with the filter of the listing does not search again."""

    def __init__(
        self,
        view: View,
        file: Fragment,
        schema: pa.Schema,
        candidates: RowSelection,
        filters: tuple[pc.Expression | None, pc.Expression | None],
        *,
        meaning: Meaning | None,
    ) -> None:
        self._view = view
        self._schema = schema
        self._fragment_id = file.fragment_id
        self._candidates = candidates
        self._base, self._listed_by = filters
        self._meaning = meaning
        self.path: str = view.dataset.absolute(file.path)

    def __repr__(self) -> str:
        return f"<IndexedFragment {self.path}, {self._candidates.num_rows} candidate rows>"

    def __reduce__(self) -> Any:
        raise TypeError(f"a fragment must be read where it was listed, got a copy of {self!r}; send its path instead")

    @property
    def physical_schema(self) -> pa.Schema:
        """Schema of the data set; each file is read in its types."""
        return self._schema

    @property
    def partition_expression(self) -> pc.Expression:
        """Always true, because the listing has evaluated the partitions."""
        return pc.scalar(True)

    def scanner(
        self,
        schema: pa.Schema | None = None,
        columns: Columns = None,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
        **_reading: Any,
    ) -> IndexedScanner:
        """The scan for `columns` of the file's rows for which `filter` is true; nothing is read yet.

        `schema` may choose among the columns of the data set, in its types.
        """
        for field in schema or ():
            at = self._schema.get_field_index(field.name)
            if at >= 0 and field.type != (own := self._schema.field(at).type):
                raise InvalidArgumentError(
                    "a fragment must be read in the types of its data set",
                    got=f"{field.type} for {field.name}, a {own}",
                )
        wanted = _both(self._base, filter, self._meaning)
        return IndexedScanner(self._scan, schema or self._schema, columns, wanted)

    def _scan(self, columns: list[str], expression: pc.Expression | None) -> pa.RecordBatchReader:
        predicate = as_predicate(self._schema, expression)
        rows = self._candidates
        if not _are_equal(expression, self._listed_by):
            query = Query(self._view, _EVERYTHING if predicate is None else predicate, own_filters=False)
            rows = query.result.row_ranges.fragment(self._fragment_id)
        return _checked(scan(self._view, predicate, rows, columns, None, is_plain=True), self._schema)

    def to_batches(self, schema: pa.Schema | None = None, **scan: Any) -> Iterator[pa.RecordBatch]:
        """The batches of `scanner`."""
        return self.scanner(schema, **scan).to_batches()

    def to_table(self, schema: pa.Schema | None = None, **scan: Any) -> pa.Table:
        """The table of `scanner`."""
        return self.scanner(schema, **scan).to_table()

    def head(self, num_rows: int, **scan: Any) -> pa.Table:
        """The first rows of `scanner`."""
        return self.scanner(**scan).head(num_rows)

    def count_rows(self, **scan: Any) -> int:
        """The number of rows of `scanner`."""
        return self.scanner(**scan).count_rows()


def _without_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _both(
    first: pc.Expression | None, second: pc.Expression | pa.Scalar | None, meaning: Meaning | None
) -> pc.Expression | None:
    if isinstance(second, pa.Scalar):  # DataFusion's FALSE
        second = pc.scalar(second)
    if second is not None and meaning is not None:
        second = meaning(second)
    if first is None or second is None:
        return second if first is None else first
    return first & second


def _are_equal(first: pc.Expression | None, second: pc.Expression | None) -> bool:
    return first is second or (first is not None and second is not None and first.equals(second))


def as_predicate(schema: pa.Schema, expression: pc.Expression | None) -> Predicate | None:
    """The predicate of `expression`; an expression that cannot be parsed prunes nothing, and only filters rows."""
    if expression is None:
        return None
    try:
        return parse_predicate(expression)
    except PredicateError:
        return unread(expression, schema.names)


def _checked(reader: pa.RecordBatchReader, schema: pa.Schema) -> pa.RecordBatchReader:
    """The unchanged rows, if their columns have the types of `schema`, and nulls only where it has some."""
    for field in reader.schema:
        promised = schema.field(field.name)
        if field.type != promised.type or field.nullable > promised.nullable:
            raise DataFileError(f"a data set that is open must keep {promised}", got=field, do="open it again")
    return reader
