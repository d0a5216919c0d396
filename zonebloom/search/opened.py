"""`OpenedIndex`: one version of an index, opened: what it answers, and what it says of itself; nothing is written.

`Index` in `zonebloom/index.py` adds what changes an index, and the doors by which one is made and opened.

Spec: specs/pruning.md
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from zonebloom.formats import Dataset, dataset_from_json
from zonebloom.search.searchable import Searchable
from zonebloom.search.snapshot import Snapshot
from zonebloom.search.view import View
from zonebloom.storage.manifest import ColumnEntry
from zonebloom.storage.stores.store import Store, Traffic

if TYPE_CHECKING:
    from zonebloom.search.arrow_dataset import IndexedDataset
    from zonebloom.search.status import Status


class OpenedIndex(Searchable):
    """One version of an index, opened; each answer is of that version and of the data set as it is at the call."""

    def __init__(
        self, snapshot: Snapshot, storage_options: Mapping[str, str] | None = None, dataset: Dataset | None = None
    ) -> None:
        self._snapshot = snapshot
        self._storage_options = storage_options
        self._given = dataset
        self.data = self._dataset_of(snapshot)
        """Where the files are, and what they are; `dataset()` reads their rows."""
        self._past_traffic = Traffic()
        """Of data sets that were looked at before this one."""
        self._view: View | None = None
        """The last view, which a search of the same version and listing takes again."""

    def __repr__(self) -> str:
        columns = ", ".join(self.columns)
        return f"Index({self.location!r}, version {self.version}, columns {columns}, {self.num_fragments} fragments)"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of open segments and footers, with their memory; a later search opens them again."""
        self._view = None
        self._snapshot.close()

    def _repr_html_(self) -> str:
        """For notebooks: what the open version says of itself; nothing is listed."""
        from zonebloom.search.html import facts, headed, table  # noqa: PLC0415 - only for people

        info = self.info()
        names = ("name", "type", "num_zones", "rows_per_zone", "fpp", "sizing", "index_bytes", "bytes_per_row")
        shown = {
            "index": self.location,
            "data set": f"{self.data.location} ({info['dataset_kind']})",
            "version": self.version,
            "files": self.num_fragments,
            "rows": info["num_rows"],
        }
        columns = [[column[name] for name in names] for column in info["columns"]]
        return headed("zonebloom index", facts(shown), table([name.replace("_", " ") for name in names], columns))

    def _dataset_of(self, snapshot: Snapshot) -> Dataset:
        if self._given is not None:
            return self._given
        return dataset_from_json(snapshot.manifest.dataset, snapshot.store.location, self._storage_options)

    @property
    def store(self) -> Store:
        """Where the index is kept."""
        return self._snapshot.store

    @property
    def location(self) -> str:
        """Where the index is kept: a local path or a URL."""
        return self.store.location

    @property
    def root(self) -> Path | str:
        """The folder of the index, or its URL as a text."""
        return self.location if self.store.is_remote else Path(self.location)

    @property
    def traffic(self) -> Traffic:
        """What this index asked of object stores so far, its own and that of the data."""
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
        return self._snapshot.manifest.schema

    @property
    def num_fragments(self) -> int:
        """Data files that the index describes."""
        return len(self._snapshot.fragments)

    def view(self) -> View:
        """The index against the data set as it is now; the last view again where nothing changed."""
        snapshot, last = self._snapshot, self._view
        dataset = self.data.pin()
        listing = dataset.list()
        if last is not None and last.snapshot is snapshot and (last.listing, last.dataset) == (listing, dataset):
            return last
        view = self._view = View(snapshot, dataset, listing)
        return view

    def dataset(self) -> IndexedDataset:
        """The data set as a pyarrow Dataset, whose scans read only the rows that may match.

        DuckDB, DataFusion, Polars and others that take a pyarrow Dataset prune by the index with no further word.

        Spec: specs/engines.md#dataset
        """
        from zonebloom.search.arrow_dataset import IndexedDataset  # noqa: PLC0415 - a plain search does without

        return IndexedDataset(self.view, self.view().plain_schema)

    def exists(self, column: str, values: Any, *, exact: bool = False, strict: bool = False) -> pa.BooleanArray:
        """For each of `values`, whether it may be in `column`: false is certain, null stays null.

        Parameters
        ----------
        values
            Anything that Arrow takes as an array; millions are fine.
        exact
            Read the candidate rows as well, so that true is certain too.
        strict
            As for `search`.

        Spec: specs/pruning.md#exists
        """
        from zonebloom.search.exists import exists  # noqa: PLC0415 - a plain search does without

        return exists(self._checked_view(strict=strict), column, values, exact=exact)

    def locate(self, column: str, keys: Any, *, exact: bool = False, strict: bool = False) -> pa.Table:
        """Row ranges that may hold each of `keys`; the rest of the data set certainly does not hold it.

        A table `(key_index, path, fragment_id, start, stop)`, in order of key and address; a key that is nowhere has no
        line. A column that was built with `locator=True` answers a million keys in a second.

        Parameters
        ----------
        keys
            Anything that Arrow takes as an array.
        exact
            Read the candidate rows: `(key_index, path, row)`, a line for every row that equals a key, and a line of
            nulls for each key that is nowhere.
        strict
            As for `search`.

        Spec: specs/locator.md#locate
        """
        from zonebloom.search.locate import locate  # noqa: PLC0415 - a plain search does without

        return locate(self._checked_view(strict=strict), column, keys, exact=exact)

    def files_for(self, column: str, keys: Any) -> list[str]:
        """Paths of the files that may hold any of `keys`, in order; all others certainly do not.

        Spec: specs/locator.md#locate
        """
        from zonebloom.search.locate import files_for  # noqa: PLC0415 - a plain search does without

        return files_for(self.view(), column, keys)

    def status(self) -> Status:
        """What the index covers of the data set as it is now, and what a search reads whole; print it.

        Damage is told that shows where each part of the index is opened; `verify` reads the parts whole.

        Cost: a listing, the footers of new and changed files, and the positions of all zones.

        Spec: specs/pruning.md#status
        """
        from zonebloom.search.status import status  # noqa: PLC0415 - a plain search does without

        return status(self.view())

    def column_type(self, column: str) -> pa.DataType:
        """Arrow type of an indexed column.

        Raises
        ------
        ColumnNotFoundError
            The column is not indexed.
        """
        return self._column(column).column_type

    def info(self) -> dict[str, Any]:
        """Version, counts, and parameters and size of each column; the object of `zonebloom info --format json`."""
        manifest = self._snapshot.manifest
        num_rows = int(self._snapshot.fragments.num_rows.sum())
        columns = [
            {
                "name": entry.name,
                "type": str(entry.column_type),
                "rows_per_zone": entry.rows_per_zone,
                "fpp": entry.fpp,
                "sizing": entry.sizing,
                "num_zones": entry.num_zones,
                "index_bytes": entry.index_bytes,
                "bytes_per_row": round(entry.index_bytes / num_rows, 4) if num_rows else 0.0,
                "segments": len(entry.segments),
                "is_unfinished": entry.is_unfinished,
                "kinds": dict(sorted(Counter(segment.kind for segment in entry.segments).items())),
                "levels": [
                    {
                        "name": level.name,
                        "num_filters": level.num_filters,
                        "num_values": level.num_values,
                        "fpp": level.fpp,
                        "index_bytes": level.index_bytes,
                    }
                    for level in entry.levels
                ],
            }
            for entry in manifest.columns
        ]
        return {
            "index": self.location,
            "dataset": self.data.location,
            "dataset_kind": manifest.dataset["kind"],
            **{key: manifest.dataset[key] for key in ("table_version", "snapshot_id") if key in manifest.dataset},
            "version": manifest.version,
            "num_fragments": self.num_fragments,
            "num_rows": num_rows,
            "columns": columns,
        }

    def _column(self, name: str) -> ColumnEntry:
        entry = self._snapshot.manifest.column(name)
        if entry is None:
            raise self._snapshot.not_indexed(name)
        return entry
