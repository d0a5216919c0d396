"""The levels of a build whose units are spread over several writers, which share only the store.

A fragment whose rows are all read by one writer gets its filter there. For each other filter, as for the data set's, a
writer makes a **part**: the hashes of its rows, or a bitset of the size that all parts have; the smaller of both. Parts
are scratch objects of the index. `merge_dataset` and `merge_fragments` make one filter of them: the same that
`LevelBuilder` makes of the same rows. The driver of the build deletes the parts.

Spec: specs/levels.md#partials
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import pyarrow as pa

from zonebloom.bloom import hashing
from zonebloom.storage.fragments import Fragment
from zonebloom.storage.level import LevelEntry
from zonebloom.storage.levels.fill import (
    USELESS_FPP,
    Filled,
    Filling,
    FragmentRows,
    LevelBuilder,
    write_dataset_filter,
)
from zonebloom.storage.segment import new_path
from zonebloom.storage.stores.store import Store


@dataclass(frozen=True, slots=True)
class Part:
    """One writer's part of one filter."""

    column: str
    """Name of the column."""
    fragment_id: int | None
    """The fragment's filter; None for the data set's."""
    path: str
    """Path of the scratch object, relative to the index."""
    is_hashes: bool
    """Whether the object holds hashes; if not, blocks."""
    has_null: bool
    """Whether a row of the writer is null."""


class PartialLevels:
    """Takes the values of some units; a context manager that leaves no file behind if the block raises.

    Parameters
    ----------
    rows
        Rows of each fragment that this writer reads, by id.
    total_rows
        Rows of all fragments of the build.
    of_rows
        As for `LevelBuilder`.
    """

    def __init__(
        self,
        store: Store,
        columns: Mapping[str, pa.DataType],
        levels: Iterable[str],
        fpp: float,
        fragments: Sequence[Fragment],
        *,
        rows: Mapping[int, int],
        total_rows: int,
        of_rows: int = 0,
    ) -> None:
        self._store = store
        here = sum(rows.values())
        has_fragments = "fragment" in levels
        whole = [one for one in fragments if has_fragments and rows[one.fragment_id] == one.num_rows]
        self._whole = {one.fragment_id for one in whole}
        self._builder = LevelBuilder(store, columns if whole else {}, ["fragment"], fpp, whole)
        self._fillings: dict[tuple[str, int | None], Filling] = {}
        self._has_null: set[tuple[str, int | None]] = set()
        self._written: list[str] = []
        for column in columns:
            if "dataset" in levels:
                self._fillings[column, None] = Filling.part(here, fpp, all_rows=total_rows, of_rows=of_rows)
            for one in fragments:
                if has_fragments and one.fragment_id not in self._whole:
                    filling = Filling.part(rows[one.fragment_id], fpp, all_rows=one.num_rows)
                    self._fillings[column, one.fragment_id] = filling

    def __enter__(self) -> Self:
        self._builder.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._builder.__exit__(kind, error, traceback)

    def add(self, column: str, fragment_id: int, values: pa.Array) -> None:
        """Rows of a fragment, in any order."""
        hashes = hashing.hash_array(values)
        has_null = len(hashes) < len(values)
        if fragment_id in self._whole:
            self._builder.add_hashes(column, fragment_id, hashes, has_null=has_null)
        for target in ((column, None), (column, fragment_id)):
            if target in self._fillings:
                self._fillings[target].add(hashes)
                if has_null:
                    self._has_null.add(target)

    def end_unit(self, fragment_id: int, num_rows: int, unfit: Iterable[str]) -> None:
        """`num_rows` rows of a fragment were added, but not for the columns `unfit`."""
        if fragment_id in self._whole:
            self._builder.end_unit(fragment_id, num_rows, unfit)

    def finish(self, failed: Iterable[int]) -> tuple[dict[str, tuple[LevelEntry, ...]], list[Part]]:
        """After the block: the levels of whole fragments by column, and the parts of all other filters."""
        entries = {
            column: tuple(level for level in levels if level.num_filters)
            for column, levels in self._builder.finish(failed).items()
        }
        return entries, [self._write(*target) for target in list(self._fillings)]

    def _write(self, column: str, fragment_id: int | None) -> Part:
        is_hashes, content = self._fillings.pop((column, fragment_id)).content()
        path = new_path(column, "partial")
        with self._store.writing(path) as file:
            file.write(content.tobytes())
        return Part(column, fragment_id, path, is_hashes, (column, fragment_id) in self._has_null)


def _merged(store: Store, parts: Iterable[Part], filling: Filling) -> Filled:
    for part in parts:
        filling.add_content(store.read(part.path), is_hashes=part.is_hashes)
    return filling.finish()


def merge_dataset(
    store: Store, column: str, parts: Sequence[Part], filling: Filling, *, covered: Iterable[int]
) -> tuple[LevelEntry | None, int, float]:
    """The data set's filter of `parts`, which has all values of the fragments `covered`; its values and its fpp.

    `filling` is empty and made for all their rows. If the filter is useless, the level is None.
    """
    filled = _merged(store, parts, filling)
    if filled.fpp > USELESS_FPP:
        return None, filled.num_values, filled.fpp
    segment = write_dataset_filter(store, column, filled.blocks, covered)
    return LevelEntry("dataset", filled.num_values, filled.fpp, (segment,)), filled.num_values, filled.fpp


def merge_fragments(
    store: Store, column: str, column_type: pa.DataType, parts: Sequence[Part], *, fpp: float, rows: Mapping[int, int]
) -> LevelEntry | None:
    """The filters of the fragments of `parts` as one segment; `rows` has the rows of each fragment."""
    by_fragment: defaultdict[int, list[Part]] = defaultdict(list)
    for part in parts:
        if part.fragment_id is not None:
            by_fragment[part.fragment_id].append(part)
    table = FragmentRows(store, column, column_type, fpp)
    with table.writer:
        for fragment_id, mine in sorted(by_fragment.items()):
            filled = _merged(store, mine, Filling(rows[fragment_id], fpp))
            if filled.fpp <= USELESS_FPP:
                table.add(fragment_id, rows[fragment_id], filled, has_null=any(part.has_null for part in mine))
        level = table.finish()
    return level if level.num_filters else None
