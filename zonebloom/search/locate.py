"""`locate`: for each of many keys, the row ranges that may hold it, or the very rows; `files_for`: the files.

With a locator (locator.md) a key costs one page, and names hardly a zone by chance. Zones without one are asked by
their filters, which name more zones by chance.

Spec: specs/locator.md#locate
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zonebloom.arrow import from_numpy
from zonebloom.bloom import hashing
from zonebloom.formats.parquet.file import places_of
from zonebloom.search.exists import check_comparable, comparable, comparable_keys, fitted, key_hashes, values_array
from zonebloom.search.result import renumbered_ids
from zonebloom.search.scan import read_candidates, tasks_of
from zonebloom.search.selection import RowSelection
from zonebloom.search.view import View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zonebloom.search.exists import Fitted


class _Ranges(NamedTuple):
    """Row ranges of keys, in order of key and address."""

    keys: NDArray[np.int64]
    """Index of the key."""
    firsts: NDArray[np.uint64]
    """Address of the first row."""
    ends: NDArray[np.uint64]
    """Address after the last row."""

    @classmethod
    def joined(cls, parts: list[_Ranges]) -> _Ranges:
        """The ranges of all parts; adjacent ranges of a key are joined."""
        keys, firsts, ends = (np.concatenate([part[index] for part in parts]) for index in range(3))
        order = np.lexsort((firsts, keys))
        keys, firsts, ends = keys[order], firsts[order], ends[order]
        begins = np.ones(len(keys), np.bool_)
        begins[1:] = (keys[1:] != keys[:-1]) | (firsts[1:] > ends[:-1])
        numbers = begins.nonzero()[0]
        return cls(keys[numbers], firsts[numbers], np.maximum.reduceat(ends, numbers) if len(numbers) else ends)


class _Candidates(NamedTuple):
    """The rows that may hold each key."""

    indexed_type: pa.DataType
    """The type of the values that were indexed."""
    fit: Fitted
    """The keys in that type."""
    zones: _Ranges
    """The zones whose filter or locator has a key."""
    others: tuple[tuple[NDArray[np.int64], RowSelection], ...]
    """Further rows, with the indexes of the keys that each of them may hold."""

    @classmethod
    def of(cls, view: View, column: str, array: pa.Array) -> _Candidates:
        """The candidates of the keys `array`."""
        probed = view.column(column)
        if probed is None:
            raise view.snapshot.not_indexed(column)
        assert probed.column_type is not None
        fit = fitted(array, probed.column_type)
        check_comparable(view, column, array, fit)
        slots, hashes = key_hashes(fit)
        keys, zones = probed.zones.zones_of_each(hashes)
        view.snapshot.warn_of_damage()
        if probed.places is not None:
            zones = probed.places[zones]
            keys, zones = keys[zones >= 0], zones[zones >= 0]
        found = _Ranges(slots[keys], probed.grid.firsts[zones], probed.grid.ends[zones])
        # files without zones may have a wider type than the index and the data set: they may hold any key
        asked = np.flatnonzero(pc.is_valid(array).to_numpy(zero_copy_only=False))
        return cls(probed.column_type, fit, found, ((asked, probed.grid.uncovered), (fit.misfits, view.universe)))

    @property
    def ranges(self) -> _Ranges:
        """The row ranges of each key; as many as keys times rows without zones."""
        parts = [self.zones]
        for slots, rows in self.others:
            firsts = (rows.fragment_ids << np.uint64(32)) + rows.starts
            ends = (rows.fragment_ids << np.uint64(32)) + rows.stops
            count = len(slots)
            parts.append(_Ranges(np.repeat(slots, len(rows)), np.tile(firsts, count), np.tile(ends, count)))
        return _Ranges.joined(parts)

    @property
    def rows(self) -> RowSelection:
        """The rows that may hold some key."""
        found = RowSelection.from_addresses(self.zones.firsts, self.zones.ends)
        for slots, rows in self.others:
            found = found | rows if len(slots) else found
        return found


def locate(view: View, column: str, keys: Any, *, exact: bool) -> pa.Table:
    """Row ranges that may hold each key, or, if `exact`, the rows that do; all other rows certainly do not.

    Raises
    ------
    ColumnNotFoundError
        The column is not indexed.
    InvalidArgumentError
        `keys` is no collection, or one of several types.
    PredicateError
        A key is of a kind that cannot be compared with the column.

    Spec: specs/locator.md#locate
    """
    array = values_array(keys)
    candidates = _Candidates.of(view, column, array)
    if exact:
        return _rows(view, column, array, candidates)
    ranges = candidates.ranges
    ids = ranges.firsts >> np.uint64(32)
    names, places = np.unique(ids, return_inverse=True)
    own_ids = ids if view.numbers is None else renumbered_ids(ids, view.numbers)
    low = np.uint64(2**32 - 1)
    return pa.table(
        {
            "key_index": from_numpy(ranges.keys, pa.int64()),
            "path": pa.array([view.paths.get(one) for one in names.tolist()], pa.string()).take(pa.array(places)),
            "fragment_id": from_numpy(own_ids, pa.uint64()),
            "start": from_numpy(ranges.firsts & low, pa.uint64()),
            "stop": from_numpy(ranges.ends - (ids << np.uint64(32)), pa.uint64()),
        }
    )


def files_for(view: View, column: str, keys: Any) -> list[str]:
    """Paths of the files that may hold any of the keys, in order; all others certainly do not.

    Raises as `locate` does.
    """
    rows = _Candidates.of(view, column, values_array(keys)).rows
    touched = np.unique(rows.fragment_ids)
    return sorted(view.paths[one] for one in touched.tolist() if one in view.paths)


# --- exact ------------------------------------------------------------------------------------------------------------


def _rows(view: View, column: str, array: pa.Array, candidates: _Candidates) -> pa.Table:
    """Each row that equals a key, in order of key, path and row; a key without rows has one line of nulls."""
    column_type, fit = view.column_type(column), candidates.fit
    if column_type != candidates.indexed_type:  # a table may have a wider one
        fit = fitted(array, column_type)
    slots, values = comparable_keys(array, fit, column_type)
    distinct = values.unique()
    order = np.argsort(numbers := pc.index_in(values, distinct).to_numpy(), kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(len(distinct) + 1))
    keys, paths, rows = [], [], []
    names: list[str | None] = []
    for path, offsets, found in _values_of(view, column, candidates.rows):
        place = pc.index_in(found, distinct)
        is_key = pc.is_valid(place).to_numpy(zero_copy_only=False) & pc.is_valid(found).to_numpy(zero_copy_only=False)
        if not is_key.any():
            continue
        place = place.filter(pa.array(is_key)).to_numpy()
        counts = bounds[place + 1] - bounds[place]
        ends = np.cumsum(counts)
        inside = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
        keys.append(slots[order[np.repeat(bounds[place], counts) + inside]])
        rows.append(np.repeat(offsets[is_key], counts))
        if not names or names[-1] != path:
            names.append(path)
        paths.append(np.full(len(keys[-1]), len(names) - 1))
    found_keys = np.concatenate([np.zeros(0, np.int64), *keys])
    absent = np.setdiff1d(np.arange(len(array)), found_keys)
    all_keys = np.concatenate((found_keys, absent))
    all_rows = np.concatenate([np.zeros(0, np.int64), *rows, np.zeros(len(absent), np.int64)])
    all_paths = np.concatenate([np.zeros(0, np.int64), *paths, np.full(len(absent), len(names))])
    names.append(None)
    chosen = np.lexsort((all_rows, all_paths, all_keys))
    is_null = all_paths[chosen] == len(names) - 1
    return pa.table(
        {
            "key_index": pa.array(all_keys[chosen], pa.int64()),
            "path": pa.array(names, pa.string()).take(pa.array(all_paths[chosen])),
            "row": pa.array(all_rows[chosen], pa.int64(), mask=is_null),
        }
    )


def _values_of(view: View, column: str, rows: RowSelection) -> Iterator[tuple[str, NDArray[np.int64], pa.Array]]:
    """The values of the rows, row group by row group: path, row offsets, values."""
    top = [name for name in view.schema.names if column == name or column.startswith(f"{name}.")]
    for task, table in read_candidates(view, tasks_of(view, rows), top):
        first = sum(task.file.row_group_rows[: task.group])
        offsets = first + places_of(task.starts, task.stops - task.starts)
        done = 0
        for batch in table.to_batches():
            values = comparable(hashing.column_array(batch, column))
            yield task.file.path, offsets[done : done + batch.num_rows], values
            done += batch.num_rows
