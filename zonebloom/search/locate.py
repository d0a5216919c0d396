"""`locate`: for each of many keys, the row ranges that may hold it, or the rows that do; `files_for`: the files.

With a locator (locator.md) a key costs two pages, and the result has hardly any zone by chance. In zones without a
locator the filters are probed; the result then has more zones by chance.

Spec: specs/locator.md#locate
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zonebloom.bloom import hashing
from zonebloom.bloom.selection import RowSelection
from zonebloom.formats.parquet.file import places_of
from zonebloom.ground.arrow import from_numpy
from zonebloom.ground.errors import PredicateError
from zonebloom.search.exists import Keys, comparable, comparable_keys
from zonebloom.search.probed_column import ProbedColumn
from zonebloom.search.query import Query
from zonebloom.search.result import SearchResult, named_files, renumbered_ids
from zonebloom.search.scan import read_candidates, top_level
from zonebloom.search.view import View

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ANY_KEY = np.iinfo(np.int64).max
"""Represents a null `key_index`; it is last in order."""


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


def _zones_of(keys: Keys, probed: ProbedColumn) -> _Ranges:
    """The zones whose filter or locator may have a key; a repeated key is probed once."""
    hashed, (places, zones) = keys.hashed, keys.zones_of_each
    if probed.places is not None:
        zones = probed.places[zones]
        places, zones = places[zones >= 0], zones[zones >= 0]
    ranges = _Ranges.joined([_Ranges(hashed.owners[places], probed.firsts[zones], probed.ends[zones])])
    which, slots = _repeated(ranges.keys, hashed.bounds, hashed.slots)
    return _Ranges(slots, ranges.firsts[which], ranges.ends[which])


def _repeated(
    numbers: NDArray[np.int64], bounds: NDArray[np.int64], slots: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each of `numbers` once for each of its slots `slots[bounds[n]:bounds[n + 1]]`: its place, and the slot."""
    counts = bounds[numbers + 1] - bounds[numbers]
    which = np.repeat(np.arange(len(numbers)), counts)
    inside = np.arange(len(which)) - np.repeat(counts.cumsum() - counts, counts)
    return which, slots[bounds[numbers][which] + inside]


def locate(view: View, column: str, keys: Keys | Any, *, exact: bool) -> pa.Table:
    """Row ranges that may hold each key, asked or not; with `exact`, the rows that hold it. No other rows hold it.

    Rows that may hold any key have one line without a key.

    Raises
    ------
    ColumnNotFoundError
        The column is not indexed.
    PredicateError
        `keys` is not a collection, or a key cannot be compared with the column, such as a struct in newer files.

    Spec: specs/locator.md#locate
    """
    given, probed = Keys.on(view, column, keys)
    if exact:
        return _rows(view, given)
    parts = [_zones_of(given, probed)]
    view.snapshot.warn_of_damage()
    # files without zones may have a wider type than the index and the data set: they may hold any key
    anyone = np.full(int(not given.is_null.all()), _ANY_KEY)
    for slots, rows in ((given.fit.misfits, view.universe), (anyone, probed.uncovered)):
        firsts = (rows.fragment_ids << np.uint64(32)) + rows.starts
        ends = (rows.fragment_ids << np.uint64(32)) + rows.stops
        parts.append(_Ranges(np.repeat(slots, len(rows)), np.tile(firsts, len(slots)), np.tile(ends, len(slots))))
    ranges = _Ranges.joined(parts)
    ids = ranges.firsts >> np.uint64(32)
    paths, fingerprints = named_files(ids, view.files.paths, view.files)
    own_ids = ids if view.numbers is None else renumbered_ids(ids, view.numbers)
    low = np.uint64(2**32 - 1)
    return pa.table(
        {
            "key_index": pa.array(ranges.keys, pa.int64(), mask=ranges.keys == _ANY_KEY),
            "path": paths,
            "fragment_id": from_numpy(own_ids, pa.uint64()),
            "start": from_numpy(ranges.firsts & low, pa.uint64()),
            "stop": from_numpy(ranges.ends - (ids << np.uint64(32)), pa.uint64()),
            "fingerprint": fingerprints,
        }
    )


def files_for(view: View, column: str, keys: Keys | Any) -> list[str]:
    """Paths of the files that may hold any of the keys, asked or not, in order; all others certainly do not.

    Raises as `locate` does.
    """
    return _search(view, Keys.on(view, column, keys)[0]).files


def _search(view: View, keys: Keys) -> SearchResult:
    """The rows that may hold some key."""
    return Query(view, *keys.leaf).result


# --- exact ------------------------------------------------------------------------------------------------------------


def _rows(view: View, given: Keys) -> pa.Table:
    """Each row that equals a key, in order of key, path and row; a key without rows has one line of nulls."""
    column = given.column
    kind = view.column_type(column)  # a table may have a wider type than the index
    if pa.types.is_nested(kind):
        raise PredicateError(f"column {column} must hold plain values to be compared with keys", got=kind)
    slots, values = comparable_keys(given.given, kind)
    distinct = values.unique()
    order = np.argsort(numbers := pc.index_in(values, distinct).to_numpy(), kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(len(distinct) + 1))
    keys, paths, rows = [], [], []
    names: list[str | None] = []
    for path, offsets, values in _values_of(view, column, _search(view, given).row_ranges):
        place = pc.index_in(values, distinct)
        is_key = pc.is_valid(place).to_numpy(zero_copy_only=False) & pc.is_valid(values).to_numpy(zero_copy_only=False)
        if not is_key.any():
            continue
        place = place.filter(pa.array(is_key)).to_numpy()
        which, own = _repeated(place, bounds, slots[order])
        keys.append(own)
        rows.append(offsets[is_key][which])
        if not names or names[-1] != path:
            names.append(path)
        paths.append(np.full(len(keys[-1]), len(names) - 1))
    found_keys = np.concatenate([np.zeros(0, np.int64), *keys])
    absent = np.setdiff1d(np.arange(len(given.is_null)), found_keys)
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
    for task, table in read_candidates(view, rows, top_level(view.schema, {column})):
        first = sum(task.file.row_group_rows[: task.group])
        offsets = first + places_of(task.starts, task.stops - task.starts)
        done = 0
        for batch in table.to_batches():
            values = comparable(hashing.column_array(batch, column))
            yield task.file.path, offsets[done : done + batch.num_rows], values
            done += batch.num_rows
