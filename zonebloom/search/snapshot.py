"""A version of the index: the choice of the version to open, its damage, and the parts read so far.

Spec: specs/index-format.md#versions
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from zonebloom.errors import (
    ColumnNotFoundError,
    CorruptIndexError,
    IndexNotFoundError,
    InvalidArgumentError,
    UnsupportedFormatError,
    ZoneBloomError,
)
from zonebloom.reasons import Reason, ReasonCode
from zonebloom.search.column_reader import ColumnReader, OpenedSegment, answers
from zonebloom.storage.fragments import FragmentTable, is_in_runs, read_fragments
from zonebloom.storage.manifest import ColumnEntry, Manifest, list_versions, read_version
from zonebloom.storage.segment import SegmentEntry
from zonebloom.storage.slices.reader import SliceSegment
from zonebloom.storage.stores.locations import joined
from zonebloom.storage.stores.open import open_store
from zonebloom.storage.stores.store import Store
from zonebloom.storage.zone_segment import ZoneSegment

if TYPE_CHECKING:
    from zonebloom.bloom.zones import ZoneFilters
    from zonebloom.storage.levels import LeveledZones
    from zonebloom.storage.locator.zones import LocatedZones

_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")


class Snapshot:
    """One version of the index; segments are opened when a search first needs them, and kept open.

    What a version says never changes. What is known of damage grows as segments are read: it is kept with them.
    """

    def __init__(self, store: Store, manifest: Manifest, *, distrust: Reason | None = None) -> None:
        self.store = store
        self.manifest = manifest
        self.is_distrusted = distrust is not None
        self._columns: dict[str, ColumnReader] = {}
        self._leveled: dict[str, LeveledZones | LocatedZones] = {}
        self._warned: set[str] = set()
        """Messages of damage that was warned of."""
        self._is_quiet = False
        lists = () if distrust else manifest.fragment_lists
        tables = list(self._opened(partial(read_fragments, store), lists))
        sound = [table for table in tables if not isinstance(table, Exception)]
        self.fragments = FragmentTable.concatenated(
            [table.where(~is_in_runs(table.fragment_ids, manifest.dropped)) for table in sound]
        )
        bad = {one.path: table for one, table in zip(lists, tables, strict=True) if isinstance(table, Exception)}
        self.damaged_lists = frozenset(bad)
        """Paths of the fragment lists that could not be read."""
        unread = [Reason(ReasonCode.SEGMENT_CORRUPT, str(error)) for error in bad.values()]
        self.damage = [*([distrust] if distrust else []), *unread]
        """What concerns all columns: the version's own file, and lists of fragments."""
        for reason in unread:
            self._warn(reason.message)

    def _opened(
        self, opener: Callable[[_Asked], _Answer], many: Sequence[_Asked]
    ) -> Iterable[_Answer | CorruptIndexError | UnsupportedFormatError]:
        """For each, in order, what `opener` gives or raises; of a remote index at once."""

        def opened(one: _Asked) -> _Answer | CorruptIndexError | UnsupportedFormatError:
            try:
                return opener(one)
            except (CorruptIndexError, UnsupportedFormatError) as error:
                return error

        return answers(opened, many, is_remote=self.store.is_remote)

    def column(self, entry: ColumnEntry) -> ColumnReader:
        """The zones of an indexed column; damaged parts are left out, and warned of."""
        if entry.name not in self._columns:
            found = self._opened(partial(_open_segment, self.store, entry.name), entry.segments)
            segments = [
                _unopened(segment, entry.name, one) if isinstance(one, Exception) else one
                for segment, one in zip(entry.segments, found, strict=True)
            ]
            self._columns[entry.name] = ColumnReader(segments, is_remote=self.store.is_remote)
            self.warn_of_damage()
        return self._columns[entry.name]

    def zones(self, entry: ColumnEntry) -> ZoneFilters:
        """The zones of an indexed column with the sound levels above them, if it has any."""
        if not entry.levels:
            return self.column(entry)
        if entry.name not in self._leveled:
            from zonebloom.storage.levels import open_levels  # noqa: PLC0415 - most columns have no levels

            self._leveled[entry.name] = open_levels(self.store, entry.levels, self.column(entry))
            self.warn_of_damage()
        return self._leveled[entry.name]

    def not_indexed(self, name: str) -> ColumnNotFoundError:
        """The error for `name`, which is no indexed column."""
        names = [entry.name for entry in self.manifest.columns]
        return ColumnNotFoundError.among(name, names, f"the index {self.store.location}")

    def close(self) -> None:
        """Let go of the segments that are open; a later search opens them again."""
        self._columns.clear()
        self._leveled.clear()

    # --- damage -------------------------------------------------------------------------------------------------------

    @property
    def damaged_segments(self) -> frozenset[str]:
        """Paths of the zone and slice segments that were found to be damaged so far."""
        opened = [segment for column in list(self._columns.values()) for segment in column.segments]
        return frozenset(segment.path for segment in opened if segment.is_damaged)

    def warn_of_damage(self) -> None:
        """Warn of all damage found so far, once of each; called after filters were probed."""
        for column in list(self._columns.values()):
            for message in (*(reason.message for reason in column.lost), *column.damage):
                self._warn(message)
        for leveled in list(self._leveled.values()):
            for message in leveled.level_damage:
                self._warn(message, "the zones beneath are asked instead")

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """No warning of damage inside the block; the next search warns of it."""
        self._is_quiet = True
        try:
            yield
        finally:
            self._is_quiet = False

    def _warn(self, message: str, effect: str = "rows that it describes are read whole") -> None:
        if message not in self._warned and not self._is_quiet:
            self._warned.add(message)
            warnings.warn(f"{message}; {effect}", RuntimeWarning, stacklevel=3)


def _open_segment(store: Store, column: str, entry: SegmentEntry) -> OpenedSegment:
    if entry.kind == "zones":
        zones, damage = ZoneSegment(store, entry).zones()
        lost = tuple(Reason(ReasonCode.SEGMENT_CORRUPT, message, column=column) for message in damage)
        return OpenedSegment(entry.path, zones, lost)
    if entry.kind == "slices":
        return OpenedSegment(entry.path, SliceSegment(store, entry))
    if entry.kind == "locator":
        from zonebloom.storage.locator.reader import LocatorSegment  # noqa: PLC0415 - most columns have filters

        return OpenedSegment(entry.path, LocatorSegment(store, entry))
    message = f"segment {entry.path} must be of kind zones, slices or locator, got {entry.kind}"
    raise UnsupportedFormatError(f"{message}; a newer zonebloom wrote it: upgrade this one")


def _unopened(entry: SegmentEntry, column: str, error: Exception) -> OpenedSegment:
    is_new = isinstance(error, UnsupportedFormatError)
    code = ReasonCode.FORMAT_TOO_NEW if is_new else ReasonCode.SEGMENT_CORRUPT
    return OpenedSegment(entry.path, None, (Reason(code, str(error), column=column),))


def load_snapshot(store: Store, version: int | None, versions: Sequence[int] = ()) -> Snapshot:
    """The version asked for, or the highest. If that is damaged or too new, the newest readable one without filters.

    `versions` are the result of a listing just now.
    """
    versions = versions or list_versions(store)
    if not versions:
        place = joined(store.location, "versions")
        raise IndexNotFoundError(f"an index must have a version, got none in {place}; build it")
    if version is not None:
        if version not in versions:
            message = f"version must be one of {versions[0]} to {versions[-1]} that is kept, got {version}"
            raise InvalidArgumentError(message)
        return Snapshot(store, read_version(store, version))
    failure: ZoneBloomError | None = None
    for number in reversed(versions):
        try:
            manifest = read_version(store, number)
        except (CorruptIndexError, UnsupportedFormatError) as error:
            if list_versions(store)[-1:] != versions[-1:]:  # others committed, and a vacuum may have removed this one
                return load_snapshot(store, None)
            failure = failure or error
            continue
        if failure is None:
            return Snapshot(store, manifest)
        warnings.warn(f"{failure}; everything is read whole", RuntimeWarning, stacklevel=3)
        is_new = isinstance(failure, UnsupportedFormatError)
        code = ReasonCode.FORMAT_TOO_NEW if is_new else ReasonCode.SEGMENT_CORRUPT
        last = replace(manifest, version=versions[-1])
        return Snapshot(store, last, distrust=Reason(code, str(failure)))
    assert failure is not None
    raise failure


def load_trusted(place: Store | str | os.PathLike[str]) -> tuple[Snapshot, bool]:
    """The current version as the base of the next one, and whether its file is undamaged.

    If it is damaged, the base is the newest undamaged version: its entries of unchanged files are still right.

    Raises
    ------
    UnsupportedFormatError
        A newer zonebloom wrote it.
    """
    store = open_store(place) if isinstance(place, (str, os.PathLike)) else place
    snapshot = load_snapshot(store, None)
    if not snapshot.is_distrusted:
        return snapshot, True
    if snapshot.damage[0].code == ReasonCode.FORMAT_TOO_NEW:
        raise UnsupportedFormatError(snapshot.damage[0].message)
    return Snapshot(snapshot.store, snapshot.manifest), False
