"""`IndexReader`: one opened version of an index, and its answers.

Each answer is about the data set at the moment of the call: files are listed afresh, and new and changed files are read
whole. `Searchable` defines search, scan and explain.

Spec: specs/pruning.md
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa

from zonebloom.formats import Dataset, DatasetSnapshot, dataset_from_json
from zonebloom.ground.arrow import schema_without_views
from zonebloom.ground.reasons import counted
from zonebloom.ground.threads import concurrently
from zonebloom.predicates import Predicate
from zonebloom.search.probe import Probes, probed
from zonebloom.search.query import Query
from zonebloom.search.searchable import Searchable
from zonebloom.search.view import View
from zonebloom.storage.manifest import ColumnEntry
from zonebloom.storage.snapshot import Snapshot
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.store import Store, Traffic

if TYPE_CHECKING:
    from zonebloom.ground.rendering import Results
    from zonebloom.search.arrow_dataset import IndexedDataset
    from zonebloom.search.exists import Keys
    from zonebloom.search.status import IndexedColumn, Status
    from zonebloom.search.zone_table import ZoneTable

_Answer = TypeVar("_Answer")


class IndexReader(Searchable):
    """One opened version of an index; it answers, and changes nothing."""

    def __init__(self, snapshot: Snapshot, dataset: Dataset | None = None) -> None:
        self._snapshot = snapshot
        self._given = dataset
        super().__init__(dataset or dataset_from_json(snapshot.manifest.dataset, snapshot.store))
        self._past_traffic = Traffic()
        """Requests of the data sets that this index opened before the current one."""

    def __repr__(self) -> str:
        columns, size = ", ".join(self.columns), f"{self.num_rows:,} rows of {counted(self.num_fragments, 'file')}"
        return f"Index({self.location!r}, version {self.version}, columns {columns}, {size})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release open segments and footers, and their memory; a later search opens them again."""
        self._view = None
        self._snapshot.close()

    def _repr_html_(self) -> str:
        """The facts of the open version, for notebooks; nothing is listed."""
        from zonebloom.ground.rendering import headed  # noqa: PLC0415 - a plain search shows nothing

        return headed(repr(self), self.indexed_columns()._repr_html_())

    @property
    def store(self) -> Store:
        """The store of the index."""
        return self._snapshot.store

    @property
    def location(self) -> str:
        """Location of the index: a local path or a URL."""
        return self.store.location

    @property
    def root(self) -> Path | str:
        """The folder of the index, or its URL as a text."""
        return self.location if self.store.is_remote else Path(self.location)

    @property
    def traffic(self) -> Traffic:
        """Requests and bytes so far, of the object stores of the index and of the data."""
        return self._past_traffic + self.store.traffic + self.data.traffic

    @property
    def version(self) -> int:
        """Number of the version that is open."""
        return self._snapshot.manifest.version

    @property
    def columns(self) -> list[str]:
        """Names of the indexed columns."""
        return [entry.name for entry in self._snapshot.manifest.columns]

    @property
    def schema(self) -> pa.Schema:
        """Schema of the data set, partition columns included."""
        return self._snapshot.schema

    @property
    def num_fragments(self) -> int:
        """Number of data files that the index describes."""
        return len(self._snapshot.fragments)

    @property
    def num_rows(self) -> int:
        """Number of rows of these files."""
        return int(self._snapshot.fragments.num_rows.sum())

    @property
    def dataset_kind(self) -> str:
        """The kind of the data set: parquet, delta, iceberg or lance."""
        return str(self._snapshot.manifest.dataset["kind"])

    def view(self) -> View:
        """The index against the data set as it is now; the last view again if nothing changed."""
        snapshot = self._snapshot
        return self._view_beside(snapshot, dict)[0]

    def query(self, predicate: Predicate) -> Query:
        """`predicate` on the data set as it is now; an index in an object store is asked while the files are listed."""
        snapshot = self._snapshot
        ask: Callable[[], Probes] = partial(probed, predicate, snapshot) if snapshot.store.is_remote else dict
        view, probes = self._view_beside(snapshot, ask)
        return Query(view, predicate, probes)

    def _view_beside(self, snapshot: Snapshot, ask: Callable[[], _Answer]) -> tuple[View, _Answer]:
        """The view of a version, and what `ask` gives, which runs meanwhile if the index is in an object store."""

        def listed() -> tuple[DatasetSnapshot, Mapping[str, Fingerprint]]:
            dataset = self.data.pin()
            return dataset, dataset.list(snapshot.paths_to_list_by)

        parts: tuple[Callable[[], Any], ...] = (listed, ask, snapshot.read_lists)
        at_once = len(parts) if snapshot.store.is_remote else 0
        (dataset, listing), answer, _ = concurrently(lambda part: part(), parts, at_once)
        last = self._view
        if last is not None and last.snapshot is snapshot and (last.listing, last.dataset) == (listing, dataset):
            return last, answer
        view = self._view = View(snapshot, dataset, listing)
        return view, answer

    def dataset(self) -> IndexedDataset:
        """The data set as a pyarrow Dataset, whose scans read only the rows that may match.

        DuckDB, DataFusion, Polars and other engines that accept a pyarrow Dataset then prune by the index.

        Design: docs/design/engines.md#dataset
        """
        from zonebloom.search.arrow_dataset import IndexedDataset  # noqa: PLC0415 - a plain search does without

        declared = self.data.pin().declared
        schema = self.schema if declared is None else declared.schema
        return IndexedDataset(self.query, schema_without_views(schema))

    def _asked(
        self, answer: str, column: str, values: Any, *, strict: bool, exact: bool = False
    ) -> tuple[View, Keys | Any]:
        """The view for an answer about `values`, and these as keys; new and changed files are a warning."""
        from zonebloom.search.exists import Keys  # noqa: PLC0415 - a plain search does without

        snapshot = self._snapshot
        view, keys = self._view_beside(snapshot, partial(Keys.asked, answer, column, values, snapshot))
        if strict:
            view.check_known()
        if not exact:
            view.warn_of_unknown()
        return view, keys

    def exists(self, column: str, values: Any, *, exact: bool = False, strict: bool = False) -> pa.BooleanArray:
        """For each of `values`, whether it may be in `column`: false is certain, null stays null.

        Files that are new or changed since the last refresh may hold any value. If there are such files and `exact` is
        false, there is a `StaleWarning`.

        Parameters
        ----------
        values
            A list, a NumPy or Arrow array, a series of pandas or Polars; millions are fine.
        exact
            Read the candidate rows too; then true is also certain.
        strict
            As for `search`.

        Raises
        ------
        ColumnNotFoundError
            The column is not indexed.
        PredicateError
            `values` is not a collection, or a value cannot be compared with the column.

        Spec: specs/pruning.md#exists
        """
        from zonebloom.search.exists import exists  # noqa: PLC0415 - a plain search does without

        view, keys = self._asked("are_in_zones", column, values, strict=strict, exact=exact)
        return exists(view, column, keys, exact=exact)

    def locate(self, column: str, keys: Any, *, exact: bool = False, strict: bool = False) -> pa.Table:
        """Row ranges that may hold each of `keys`; the rest of the data set certainly does not hold it.

        The result is a table `(key_index, path, fragment_id, start, stop, fingerprint)`, in order of key and address. A
        key without a row range has no line. Lines with a null `key_index` come last: their row ranges may hold any of
        the keys. They belong to files without filters, and to files that are new or changed since the last refresh; new
        and changed files are also a `StaleWarning`. A column of the kind `locator` or `both` answers a million keys in
        a second.

        Parameters
        ----------
        keys
            As the values of `exists`.
        exact
            Read the candidate rows. The table is then `(key_index, path, row)`: a line for every row that equals a key,
            and a line of nulls for each key without a row.
        strict
            As for `search`.

        Raises
        ------
        ColumnNotFoundError, PredicateError
            As `exists`.

        Spec: specs/locator.md#locate
        """
        from zonebloom.search.locate import locate  # noqa: PLC0415 - a plain search does without

        view, asked = self._asked("leaf" if exact else "zones_of_each", column, keys, strict=strict, exact=exact)
        return locate(view, column, asked, exact=exact)

    def files_for(self, column: str, keys: Any, *, strict: bool = False) -> list[str]:
        """Paths of the files that may hold any of `keys`, in order; all others certainly do not.

        The files are those of `search(column=column, values=keys)`. New and changed files are a `StaleWarning`.

        Raises
        ------
        ColumnNotFoundError, PredicateError
            As `exists`.

        Spec: specs/locator.md#locate
        """
        from zonebloom.search.locate import files_for  # noqa: PLC0415 - a plain search does without

        view, asked = self._asked("leaf", column, keys, strict=strict)
        return files_for(view, column, asked)

    def status(self) -> Status:
        """What the index holds, the files that it covers now, and the files that a search reads whole; print it.

        Reports damage that is visible when a part is opened. `verify` reads every byte.

        Cost: a listing, the footers of new and changed files, and the positions of all zones.

        Spec: specs/pruning.md#status
        """
        from zonebloom.search.status import status  # noqa: PLC0415 - a plain search does without

        return status(self.view())

    def indexed_columns(self) -> Results[IndexedColumn]:
        """Parameters and size of each column; nothing is listed. Print it, or iterate it."""
        from zonebloom.search.status import indexed_columns  # noqa: PLC0415 - a plain search does without

        return indexed_columns(self._snapshot)

    def column_type(self, column: str) -> pa.DataType:
        """Arrow type of an indexed column.

        Raises
        ------
        ColumnNotFoundError
            The column is not indexed.
        """
        return self._column(column).column_type

    def _column(self, name: str) -> ColumnEntry:
        entry = self._snapshot.manifest.column(name)
        if entry is None:
            raise self._snapshot.not_indexed(name)
        return entry

    def zone_table(self, column: str, *, numbered_by_path: bool = False) -> ZoneTable:
        """The zones of `column` over the live fragments, in order of fragment and start.

        The zones describe the column that had this name when it was indexed, and the files of this version.

        Parameters
        ----------
        numbered_by_path
            Number fragments by the order of their paths, as `import_index` reads them, not by the ids of this index.

        Raises
        ------
        ColumnNotFoundError
            The column is not indexed.
        CorruptIndexError
            A segment is damaged: a search of an incomplete table would lose rows.
        StaleIndexError
            Rows of a live fragment have no zones of this column: a search of the table would lose them too.
        """
        from zonebloom.indexing import export as exchange  # noqa: PLC0415 - a plain search does without

        table = exchange.zone_table(self._snapshot, self._column(column))
        return exchange.numbered_by_path(self._snapshot, table) if numbered_by_path else table
