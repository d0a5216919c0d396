"""A lake without an index, searched by the bloom filters that its Parquet files have of their own.

Spec: specs/parquet-blooms.md#open_lake
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from zonebloom.errors import DataFileError
from zonebloom.formats import Dataset, DatasetSnapshot, open_dataset
from zonebloom.formats.hive import infer_fields
from zonebloom.formats.schema_evolution import unified
from zonebloom.reasons import ReasonCode
from zonebloom.search.searchable import Searchable
from zonebloom.search.snapshot import Snapshot
from zonebloom.search.view import View
from zonebloom.storage.manifest import Manifest
from zonebloom.storage.stores.open import open_store
from zonebloom.storage.stores.store import Traffic


def open_lake(source: Any, *, storage_options: Mapping[str, str] | None = None) -> Lake:
    """The data files of `source`, to be searched without an index; nothing is written.

    Row groups are left out by the filters that the files have of their own, and files by their folders.

    Parameters
    ----------
    source, storage_options
        As for `build_index`.

    Raises
    ------
    DataFileError
        Nothing is there.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
    >>> folder = tempfile.mkdtemp()
    >>> filters = {"id": {"ndv": 100, "fpp": 0.001}}
    >>> rows = pa.table({"id": range(1000)})
    >>> pq.write_table(rows, f"{folder}/a.parquet", row_group_size=100, bloom_filter_options=filters)
    >>> open_lake(folder).to_table("id = 250").num_rows
    1

    Spec: specs/parquet-blooms.md#open_lake
    """
    lake = Lake(open_dataset(source, storage_options))
    lake.view()
    return lake


class Lake(Searchable):
    """Data files without an index; their footers and their own filters exclude row groups."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self._view: View | None = None

    def __repr__(self) -> str:
        return f"Lake({self.dataset.location!r})"

    @property
    def traffic(self) -> Traffic:
        """What reading the files asked of object stores so far."""
        return self.dataset.traffic

    @property
    def schema(self) -> pa.Schema:
        """Schema of the data set, partition columns included."""
        return self.view().schema

    def view(self) -> View:
        """The current files; the last view if nothing changed."""
        dataset = self.dataset.pin()
        listing = dataset.list()
        if self._view is None or self._view.listing != listing or self._view.dataset != dataset:
            self._view = View(_without_index(dataset, listing), dataset, listing)
            missing = ReasonCode.FILE_NOT_INDEXED  # of every file, and nobody asked for an index
            self._view.reasons = [one for one in self._view.reasons if one.code != missing]
        return self._view


def _without_index(dataset: DatasetSnapshot, listing: Mapping[str, Any]) -> Snapshot:
    """An index of no columns and no files, with the schema that the files have together."""
    declared = dataset.declared()
    schema, names = pa.schema([]), []
    if declared is not None:
        schema = declared.schema
    else:
        schemas = []
        for path in listing:
            try:
                with dataset.open(path, listing[path]) as file:
                    schemas.append(file.schema)
            except DataFileError:  # a search says so, and a scan of it fails
                continue
        if not schemas:
            raise DataFileError(
                f"a data set must have at least one file that can be read, got none in {dataset.location}"
            )
        schema = unified(list(dict.fromkeys(schemas)))
        fields = infer_fields(listing, schema.names)
        names = [field.name for field in fields]
        schema = pa.schema([*schema, *fields])
    described = {"partition_columns": names}
    manifest = Manifest(0, "", described, schema, 0, (), ())
    return Snapshot(open_store(dataset.location), manifest)
