"""`IndexedDataset`: a data set as a pyarrow Dataset, which reads only the rows that may match.

Engines that take a pyarrow Dataset hand it their filter, so each of them prunes by the index as it is. A ladder:

- a **scan** lists the data set afresh, searches the index with the filter, reads the candidate rows and re-checks them;
- an `IndexedScanner` is a scan to come: nothing is read before its first batch, and each use of it scans again;
- an `IndexedFragment` is one file of a listing, with the candidate rows in it: DataFusion reads by fragments.

What C++ would read past these classes (joins of pyarrow, unions, `Scanner.from_dataset`) fails with an error that says
so: pyarrow knows of no file here.

Spec: specs/engines.md#dataset
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from pyarrow import fs

from zonebloom.errors import ColumnNotFoundError, DataFileError, PredicateError
from zonebloom.predicates import Predicate, parse_predicate
from zonebloom.predicates.arrow_expression import FromExpression, OpaqueExpression
from zonebloom.predicates.arrow_pickle import Call, Field, Node, UnreadableExpressionError, take_apart
from zonebloom.reasons import ReasonCode
from zonebloom.search.freshness import File
from zonebloom.search.result import SearchResult
from zonebloom.search.scan import scan, tasks_of
from zonebloom.search.selection import RowSelection
from zonebloom.search.view import View

_PLACE = "an indexed data set, which only its own scanner() can read; pass on a table, to_table(filter=...)"
"""The one path that pyarrow knows: part of its error where C++ would read on its own."""

_EVERYTHING = OpaqueExpression(pc.scalar(True), (), ReasonCode.PREDICATE_NOT_SUPPORTED)
"""What a scan without a filter searches for."""

Columns: TypeAlias = list[str] | dict[str, pc.Expression] | None
"""Top-level names, or names with what they are made of; None for all."""


class IndexedDataset(pads.FileSystemDataset):  # type: ignore[misc]  # pyarrow has no types
    """The rows of an indexed data set: the same as without the index, but zones that cannot match are not read.

    Made by `Index.dataset` or `zonebloom.dataset`. Each scan reads the data set as it is then; `schema` stays. Views of
    texts and bytes are plain texts and bytes: DuckDB hands no filter to a data set that has views. A filter
    that no index can evaluate reads everything and is applied all the same; `last_scan` tells.

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

    Spec: specs/engines.md#dataset
    """

    def __init__(self, view: Callable[[], View], schema: pa.Schema, expression: pc.Expression | None = None) -> None:
        self._view = view
        self._filter = expression
        self._last_scan: SearchResult | None = None
        parquet, local = pads.ParquetFileFormat(), fs.LocalFileSystem()
        super().__init__([parquet.make_fragment(_PLACE, local)], schema, parquet, local)

    def __repr__(self) -> str:
        shown = "" if self._filter is None else f", filter {self._filter}"
        return f"<IndexedDataset of {len(self.schema)} columns{shown}>"

    def __reduce__(self) -> Any:
        raise TypeError("an indexed data set must be made where it is used, got a copy of it; send the path instead")

    @property
    def last_scan(self) -> SearchResult | None:
        """Counts of the last scan (`kept`, `total`), and why it read no less (`reasons`); None before the first."""
        return self._last_scan

    @property
    def files(self) -> list[str]:
        """The data files there are now, absolute."""
        view = self._view()
        return [view.dataset.absolute(path) for path in view.listing]

    def filter(self, expression: pc.Expression) -> IndexedDataset:
        """The rows for which `expression` is true too; nothing is read yet."""
        return IndexedDataset(self._view, self.schema, _both(self._filter, expression))

    def scanner(
        self,
        columns: Columns = None,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
        **_reading: Any,
    ) -> IndexedScanner:
        """The scan for `columns` of the rows for which `filter` is true; nothing is read yet.

        pyarrow's further options say how to read, not what, and are not used.
        """
        return IndexedScanner(self._scan, self.schema, columns, _both(self._filter, filter))

    def get_fragments(
        self,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
    ) -> Iterator[IndexedFragment]:
        """The files with rows for which `filter` may be true, in order of path; if no file has one, any file.

        DataFusion 55 plans no sort of no files.
        """
        wanted = _both(self._filter, filter)
        view = self._view()
        rows = self._search(view, as_predicate(self.schema, wanted))
        kept_files = view.files.of_fragments(rows.fragment_ids) or [view.files[path] for path in list(view.files)[:1]]
        for file in sorted(kept_files, key=lambda one: one.path):
            kept = rows.fragment(file.fragment_id)
            yield IndexedFragment(view, file, self.schema, kept, (self._filter, wanted))

    def read(
        self, predicate: Predicate | None, columns: list[str] | None = None, limit: int | None = None
    ) -> pa.RecordBatchReader:
        """The first `limit` rows for which `predicate` is true, with the top-level `columns`; the filter set aside."""
        view = self._view()
        names = self.schema.names if columns is None else columns
        rows = self._search(view, predicate)
        return _checked(scan(view, predicate, rows, names, limit, is_plain=True), self.schema)

    def _scan(self, columns: list[str], expression: pc.Expression | None) -> pa.RecordBatchReader:
        return self.read(as_predicate(self.schema, expression), columns)

    def _search(self, view: View, predicate: Predicate | None) -> RowSelection:
        """The rows that may match; sets `last_scan`."""
        found = view.search(_EVERYTHING if predicate is None else predicate)
        self._last_scan = view.as_numbered(found)
        return found.row_ranges

    def count_rows(
        self,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
        **_reading: Any,
    ) -> int:
        """The number of rows for which `filter` is true; without one no data is read."""
        wanted = _both(self._filter, filter)
        if wanted is not None:
            return self.scanner([], filter).count_rows()
        view = self._view()
        return sum(int((task.stops - task.starts).sum()) for task in tasks_of(view, self._search(view, None)))


class IndexedScanner(pads.Scanner):  # type: ignore[misc]  # pyarrow has no types
    """A scan to come; each use of it scans again."""

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

    @property
    def dataset_schema(self) -> pa.Schema:
        """Of the data set."""
        return self._schema

    @property
    def projected_schema(self) -> pa.Schema:
        """Of the rows that come."""
        if isinstance(self._columns, dict):
            return pads.dataset(self._schema.empty_table()).scanner(columns=self._columns).projected_schema
        for name in self._columns:
            if self._schema.get_field_index(name) < 0:
                raise ColumnNotFoundError.among(name, self._schema.names, "the data set")
        return pa.schema([self._schema.field(name) for name in self._columns])

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, scanned on demand; closing the iterator ends the scan."""
        if not isinstance(self._columns, dict):
            yield from self._read(self._columns, self._filter)
            return
        names = _columns_of(list(self._columns.values()), self._schema)
        yield from pads.Scanner.from_batches(self._read(names, self._filter), columns=self._columns).to_batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """All rows."""
        return self.to_reader().read_all()

    def scan_batches(self) -> Iterator[pads.TaggedRecordBatch]:
        """The rows, of no known fragment."""
        return (pads.TaggedRecordBatch(batch, None) for batch in self.to_batches())

    def head(self, num_rows: int) -> pa.Table:
        """The first rows; no more row groups are read than hold them."""
        taken, left = [], num_rows
        for batch in self.to_batches() if num_rows > 0 else ():
            taken.append(batch.slice(0, left))
            left -= taken[-1].num_rows
            if not left:
                break
        return pa.Table.from_batches(taken, self.projected_schema)

    def count_rows(self) -> int:
        """How many rows there are."""
        return sum(batch.num_rows for batch in self._read([], self._filter))

    def take(self, indices: Any) -> pa.Table:
        """The rows at `indices` among all that come."""
        return self.to_table().take(indices)


class IndexedFragment(pads.Fragment):  # type: ignore[misc]  # pyarrow has no types
    """One data file of a listing: a scan with the filter that it was listed by does not search again."""

    def __init__(
        self,
        view: View,
        file: File,
        schema: pa.Schema,
        candidates: RowSelection,
        filters: tuple[pc.Expression | None, pc.Expression | None],
    ) -> None:
        self._view = view
        self._schema = schema
        self._fragment_id = file.fragment_id
        self._candidates = candidates
        self._base, self._listed_by = filters
        self.path = view.dataset.absolute(file.path)

    def __repr__(self) -> str:
        return f"<IndexedFragment {self.path}, {self._candidates.num_rows} candidate rows>"

    def __reduce__(self) -> Any:
        raise TypeError(f"a fragment must be read where it was listed, got a copy of {self!r}; send its path instead")

    @property
    def physical_schema(self) -> pa.Schema:
        """The data set's, in whose types each file is read."""
        return self._schema

    @property
    def partition_expression(self) -> pc.Expression:
        """True: the listing has evaluated the partitions."""
        return pc.scalar(True)

    def scanner(
        self,
        schema: pa.Schema | None = None,
        columns: Columns = None,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
        **_reading: Any,
    ) -> IndexedScanner:
        """The scan for `columns` of the file's rows for which `filter` is true; nothing is read yet."""
        return IndexedScanner(self._scan, schema or self._schema, columns, _both(self._base, filter))

    def _scan(self, columns: list[str], expression: pc.Expression | None) -> pa.RecordBatchReader:
        predicate = as_predicate(self._schema, expression)
        rows = self._candidates
        if not _are_equal(expression, self._listed_by):
            found = self._view.search(_EVERYTHING if predicate is None else predicate)
            rows = found.row_ranges.fragment(self._fragment_id)
        return _checked(scan(self._view, predicate, rows, columns, None, is_plain=True), self._schema)

    def to_batches(self, schema: pa.Schema | None = None, **scan: Any) -> Iterator[pa.RecordBatch]:
        """As those of a scanner."""
        return self.scanner(schema, **scan).to_batches()

    def to_table(self, schema: pa.Schema | None = None, **scan: Any) -> pa.Table:
        """As that of a scanner."""
        return self.scanner(schema, **scan).to_table()

    def head(self, num_rows: int, **scan: Any) -> pa.Table:
        """As that of a scanner."""
        return self.scanner(**scan).head(num_rows)

    def count_rows(self, **scan: Any) -> int:
        """As that of a scanner."""
        return self.scanner(**scan).count_rows()


def _both(first: pc.Expression | None, second: pc.Expression | pa.Scalar | None) -> pc.Expression | None:
    if isinstance(second, pa.Scalar):  # DataFusion's FALSE
        second = pc.scalar(second)
    if first is None or second is None:
        return second if first is None else first
    return first & second


def _are_equal(first: pc.Expression | None, second: pc.Expression | None) -> bool:
    return first is second or (first is not None and second is not None and first.equals(second))


def as_predicate(schema: pa.Schema, expression: pc.Expression | None) -> Predicate | None:
    """The predicate of `expression`; an unreadable expression prunes nothing, and filters the rows itself."""
    if expression is None:
        return None
    try:
        return parse_predicate(expression)
    except PredicateError:
        opaque = OpaqueExpression(expression, schema.names, ReasonCode.PREDICATE_NOT_SUPPORTED)
        return FromExpression(expression, opaque)


def _checked(reader: pa.RecordBatchReader, schema: pa.Schema) -> pa.RecordBatchReader:
    """The unchanged rows, if their columns have the types of `schema`."""
    for field in reader.schema:
        promised = schema.field(field.name).type
        if field.type != promised:
            message = f"column {field.name} must keep its type {promised} for a data set that is open, got {field.type}"
            raise DataFileError(f"{message}; open it again")
    return reader


def _columns_of(expressions: Iterable[pc.Expression], schema: pa.Schema) -> list[str]:
    """The columns of `schema` that the expressions read; all columns if an expression is unreadable."""
    found: set[str] = set()
    for expression in expressions:
        try:
            nodes: list[Node] = [take_apart(expression).root]
        except UnreadableExpressionError:
            return list(schema.names)
        while nodes:
            node = nodes.pop()
            if isinstance(node, Call):
                nodes.extend(node.arguments)
            elif isinstance(node, Field):
                found.add(node.path[0])
    return [name for name in schema.names if name in found]
