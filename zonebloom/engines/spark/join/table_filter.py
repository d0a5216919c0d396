"""The filters that together hold every value of an indexed column in the present data set.

The filters of the index describe the files that they were built from. The driver reads other files, up to a limit, into
one more filter. A value that no filter may hold is in no file of the listing.

Spec: specs/spark.md#filter-by-index
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeAlias

from zonebloom.bloom.addresses import MAX_ROWS
from zonebloom.bloom.hashing import hash_array
from zonebloom.bloom.sbbf import Sbbf
from zonebloom.engines.spark.pushdown.names import Names, respelled
from zonebloom.errors import CorruptIndexError, DataFileError, IndexNotFoundError
from zonebloom.formats.schema_evolution import column_values, columns_of_folders
from zonebloom.index import Index
from zonebloom.options import num_cores
from zonebloom.search.freshness import File
from zonebloom.search.view import View
from zonebloom.storage.levels import DatasetFilter
from zonebloom.storage.levels.fill import USELESS_FPP, Filling
from zonebloom.storage.manifest import ColumnEntry

Filter: TypeAlias = Sbbf | DatasetFilter
"""A filter in the driver's memory, sent by value, or one of the index, sent by its place."""


def _warn(message: str) -> None:
    warnings.warn(f"{message}; no row is dropped by it", RuntimeWarning, stacklevel=2)


@lru_cache
def warn_once(message: str) -> None:
    """Warn of damage that a filter shows when it is asked, once a process."""
    _warn(message)


def dataset_filters(index: Index, column: str, max_new_rows: int) -> list[Filter] | str:
    """Filters that together hold every value of `column` in the present data set; or why there are none.

    Raises
    ------
    ColumnNotFoundError
        The column is not indexed.
    IndexNotFoundError
        It has no level `dataset`.
    """
    index.column_type(column)
    view = index.view()
    if not Names(view).is_same(column):
        return "columns or folders that Spark takes for this column and the index does not"
    if column in view.replaced:
        return "another column of that name than the one that was indexed"
    entry = view.snapshot.manifest.column(column)
    assert entry is not None
    levels = [level for level in entry.levels if level.name == "dataset"]
    if not levels:
        message = f"column {column} must have the level dataset, got {[level.name for level in entry.levels] or 'none'}"
        raise IndexNotFoundError(f'{message}; build it with levels=("zone", "dataset")')
    segments = [one for level in levels for one in level.segments]
    found: list[Filter] = []
    ids = view.files.table.fragment_ids
    needed = view.files.table.num_rows > 0
    for segment in segments:
        try:
            filter_ = DatasetFilter(view.snapshot.store, segment)
        except CorruptIndexError as error:
            _warn(str(error))
            continue
        mine = filter_.covers(ids) & view.files.is_known
        if mine.any() and filter_.is_sound():
            found.append(filter_)
            needed &= ~mine
        if filter_.damage is not None:
            warn_once(filter_.damage)
    if not needed.any():
        return found
    rest = view.files.of_fragments(ids[needed])
    built = _filter_of(view, rest, entry, max_new_rows)
    return built if isinstance(built, str) else [*found, built]


def _filter_of(view: View, files: Sequence[File], column: ColumnEntry, max_rows: int) -> Sbbf | str:
    """A filter of all values of `column` in `files`, or why there is none."""
    num_rows = sum(one.num_rows for one in files)
    if num_rows > max_rows:
        shown = f"{num_rows:,} rows" if all(one.num_rows < MAX_ROWS for one in files) else "rows that cannot be read"
        return f"{len(files)} new or changed files, such as {files[0].path}, with {shown}"
    filling = Filling(num_rows, column.fpp)

    def add(file: File) -> str | None:
        try:
            return _add_file(view, file, column, filling)
        except DataFileError as error:
            return str(error)

    with ThreadPoolExecutor(num_cores(), thread_name_prefix="zonebloom-filter") as pool:
        failure = next((reason for reason in pool.map(add, files) if reason), None)
    if failure is not None:
        return failure
    filled = filling.finish()
    if filled.fpp > USELESS_FPP:
        return f"about {filled.num_values:,} new values, too many for a filter"
    return Sbbf(filled.blocks)


def _add_file(view: View, file: File, column: ColumnEntry, filling: Filling) -> str | None:
    with view.dataset.open(file.path, file.fingerprint) as data:
        if data.fingerprint != file.fingerprint:
            return f"{file.path}, which changed meanwhile"
        if respelled(data.schema, view.schema):
            return f"{file.path}, which spells a column in another case"
        if columns_of_folders(data, view.dataset.path_values(file.path), [column.name]):
            return f"{file.path}, which has {column.name} as a folder only"
        for batch in data.column_batches([column.name], 0, data.num_rows):
            values = column_values(batch, column.name, column.column_type)
            if values is None:
                return f"{file.path}, whose {column.name} does not convert to {column.column_type}"
            filling.add(hash_array(values))
        data.check_unchanged()
    return None
