"""The data files of one listing, compared with the fragments of the index: known, changed, or new.

A new or changed file has an id that the index never used; one that cannot be read has the largest possible number of
rows.

Spec: specs/pruning.md#coverage
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from zonebloom.bloom.addresses import MAX_ROWS
from zonebloom.bloom.selection import RowSelection
from zonebloom.formats import DatasetSnapshot
from zonebloom.ground.cached import cached_property
from zonebloom.ground.errors import DataFileError
from zonebloom.ground.reasons import Reason, ReasonCode
from zonebloom.ground.threads import concurrently
from zonebloom.storage.fragments import CHANGED, Fragment, FragmentTable
from zonebloom.stores.fingerprint import Fingerprint

if TYPE_CHECKING:
    from numpy.typing import NDArray

_OPENERS = 16
"""Threads that read the footers of new and changed files; on an object store they mostly wait."""


@dataclass(frozen=True, eq=False)
class Files(Mapping[str, Fragment]):
    """The files of one listing by path, in its order."""

    table: FragmentTable
    """The files in columns."""
    is_known: NDArray[np.bool_]
    """For each file, whether the index describes its current version."""
    num_changed: int
    """Files whose fragments have another fingerprint."""
    num_deleted: int
    """Fragments whose files are gone."""
    reasons: tuple[Reason, ...]
    """Why files are read whole."""

    @classmethod
    def listed(
        cls, fragments: FragmentTable, dataset: DatasetSnapshot, listing: Mapping[str, Fingerprint], next_id: int
    ) -> Self:
        """The files of `listing`; new and changed files get ids from `next_id`, and are opened."""
        positions = fragments.compare(listing)
        is_known = positions >= 0
        num_changed = int((positions == CHANGED).sum())
        num_deleted = len(fragments) - int(is_known.sum()) - num_changed
        if is_known.all():
            is_whole = len(positions) == len(fragments) and bool((np.diff(positions) == 1).all())
            return cls(fragments if is_whole else fragments.take(positions), is_known, 0, num_deleted, ())
        names = list(listing)
        unknown = [names[place] for place in np.flatnonzero(~is_known).tolist()]
        changed = (positions[~is_known] == CHANGED).tolist()
        opened, reasons = _opened(dataset, {path: listing[path] for path in unknown}, next_id, changed)
        table = FragmentTable.concatenated([fragments.take(positions[is_known]), FragmentTable.of(opened)])
        order = np.empty(len(names), np.int64)
        order[np.concatenate([np.flatnonzero(is_known), np.flatnonzero(~is_known)])] = np.arange(len(names))
        return cls(table.take(order), is_known, num_changed, num_deleted, tuple(reasons))

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[str]:
        return iter(self.table)

    def __contains__(self, path: object) -> bool:
        return path in self.table

    def __getitem__(self, path: str) -> Fragment:
        return self.table[path]

    def of_fragments(self, fragment_ids: NDArray[np.uint64]) -> list[Fragment]:
        """The files with these ids, in order of the listing."""
        if len(fragment_ids) and (fragment_ids == fragment_ids[0]).all():  # usual for one key; `isin` takes longer
            is_wanted = self.table.fragment_ids == fragment_ids[0]
        else:
            is_wanted = np.isin(self.table.fragment_ids, fragment_ids)
        return [self.table.at(position) for position in np.flatnonzero(is_wanted).tolist()]

    def is_unknown(self, path: str) -> bool:
        """Whether the file at `path` is new or changed."""
        return not self.is_known[self.table.position(path)]

    @cached_property
    def indexed(self) -> FragmentTable:
        """The files whose current version the index describes."""
        return self.table.where(self.is_known)

    @cached_property
    def unknown_paths(self) -> list[str]:
        """Paths of the files that are new or changed."""
        return list(self.table.paths[~self.is_known])

    @cached_property
    def unreadable_paths(self) -> list[str]:
        """Paths of the new or changed files that cannot be read; their numbers of rows are unknown."""
        return [reason.path or "" for reason in self.reasons if reason.code is ReasonCode.FILE_UNREADABLE]

    @cached_property
    def paths(self) -> dict[int, str]:
        """The path of each fragment id."""
        return dict(zip(self.table.fragment_ids.tolist(), self.table.paths.tolist(), strict=True))

    def rows(self, mask: NDArray[np.bool_] | None = None) -> RowSelection:
        """All rows of the files, or of those in `mask`."""
        chosen = self.table.num_rows > 0
        chosen = chosen if mask is None else chosen & mask
        ids = self.table.fragment_ids[chosen]
        return RowSelection.from_arrays(ids, np.zeros(len(ids), np.uint64), self.table.num_rows[chosen])


def _opened(
    dataset: DatasetSnapshot, listing: Mapping[str, Fingerprint], next_id: int, changed: Sequence[bool]
) -> tuple[list[Fragment], list[Reason]]:
    """Fragments of new and changed files, and why they are read whole."""

    def shape(path: str) -> tuple[int, tuple[int, ...], tuple[int, ...]] | DataFileError:
        try:
            with dataset.open(path, listing[path]) as file:
                return file.num_rows, file.row_group_rows, file.row_group_bytes
        except DataFileError as error:
            return error

    shapes = concurrently(shape, listing, _OPENERS)
    fragments, reasons = [], []
    for number, (path, is_changed, footer) in enumerate(zip(listing, changed, shapes, strict=True), next_id):
        code = ReasonCode.FILE_CHANGED if is_changed else ReasonCode.FILE_NOT_INDEXED
        message = "the file changed since it was indexed" if is_changed else "the index has not seen the file"
        reasons.append(Reason(code, f"{message}; it is read whole until the next refresh", path=path))
        if isinstance(footer, DataFileError):
            reasons.append(Reason(ReasonCode.FILE_UNREADABLE, str(footer), path=path))
            footer = (MAX_ROWS, (MAX_ROWS,), (int(listing[path][0]),))  # noqa: PLW2901 - what it can be at most
        size, mtime_ns, etag = listing[path]
        fragments.append(Fragment(number, path, size, mtime_ns, etag, *footer))
    return fragments, reasons
