"""A lake without an index, searched by the bloom filters inside its Parquet files.

Spec: specs/parquet-blooms.md#open_lake
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from zonebloom.formats import DatasetSnapshot, open_dataset
from zonebloom.formats.hive import with_keys
from zonebloom.formats.schema_evolution import unified
from zonebloom.ground.errors import DataFileError
from zonebloom.ground.reasons import ReasonCode
from zonebloom.search.searchable import Searchable
from zonebloom.search.view import View
from zonebloom.storage.manifest import Manifest
from zonebloom.storage.snapshot import Snapshot
from zonebloom.stores.open import open_store


def open_lake(source: Any, *, storage_options: Mapping[str, str] | None = None) -> UnindexedLake:
    """Open the data files of `source` for searches without an index; nothing is written.

    The bloom filters inside the files exclude row groups; partition folders exclude files.

    Parameters
    ----------
    source, storage_options
        As for `build_index`.

    Raises
    ------
    DataFileError
        There is no data at `source`.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
    >>> folder = tempfile.mkdtemp()
    >>> pq.write_table(pa.table({"id": range(1000)}), f"{folder}/a.parquet", row_group_size=100)
    >>> open_lake(folder).to_table("id = 250").num_rows
    1

    Spec: specs/parquet-blooms.md#open_lake
    """
    lake = UnindexedLake(open_dataset(source, storage_options))
    lake.view()
    return lake


class UnindexedLake(Searchable):
    """Data files without an index; their footers and their own filters exclude row groups."""

    def __repr__(self) -> str:
        return f"UnindexedLake({self.data.location!r})"

    @property
    def schema(self) -> pa.Schema:
        """Schema of the data set, partition columns included."""
        return self.view().schema

    def view(self) -> View:
        """The current files; the last view if nothing changed."""
        dataset = self.data.pin()
        listing = dataset.list()
        if self._view is None or self._view.listing != listing or self._view.dataset != dataset:
            self._view = View(_without_index(dataset, listing), dataset, listing)
            missing = ReasonCode.FILE_NOT_INDEXED  # true for every file of a lake without an index
            self._view.reasons = [reason for reason in self._view.reasons if reason.code != missing]
        return self._view


def _without_index(dataset: DatasetSnapshot, listing: Mapping[str, Any]) -> Snapshot:
    """An index without columns and files, with the unified schema of the files."""
    declared = dataset.declared
    schema = pa.schema([])
    names: list[str] = []
    if declared is not None:
        schema = declared.schema
    else:
        schemas = []
        for path in listing:
            try:
                with dataset.open(path, listing[path]) as file:
                    schemas.append(file.schema)
            except DataFileError:  # a search reports the file, and a scan of the file fails
                continue
        if not schemas:
            raise DataFileError(
                "a data set must have at least one file that can be read", got=f"none in {dataset.location}"
            )
        schema, names = with_keys(unified(list(dict.fromkeys(schemas))), listing)
    described = {"partition_columns": names}
    manifest = Manifest(0, "", described, schema, 0, (), ())
    return Snapshot(open_store(dataset.location), manifest)
