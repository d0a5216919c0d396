"""An opened version of the index: the choice of the version, its damage, and the parts read so far.

Spec: specs/index-format.md#versions
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np
import pyarrow as pa

from zonebloom.bloom.hashing import leaf_paths
from zonebloom.bloom.locator_pages import PAGE_BYTES, likely_pages
from zonebloom.ground.arrow import optional
from zonebloom.ground.cached import cached_property
from zonebloom.ground.errors import (
    ColumnNotFoundError,
    CorruptIndexError,
    IndexNotFoundError,
    InvalidArgumentError,
    UnsupportedFormatError,
    Words,
    ZoneBloomError,
)
from zonebloom.ground.reasons import Reason, ReasonCode
from zonebloom.ground.threads import concurrently
from zonebloom.storage.column_reader import SEGMENTS_AT_ONCE, ColumnReader, OpenedSegment
from zonebloom.storage.fragments import FragmentListEntry, FragmentTable, is_in_runs, read_fragments
from zonebloom.storage.manifest import ColumnEntry, Manifest, list_versions, read_version
from zonebloom.storage.segment import Runs, SegmentEntry
from zonebloom.storage.slices.reader import SliceSegment
from zonebloom.storage.zone_segment import ZoneSegment
from zonebloom.stores.locations import joined
from zonebloom.stores.store import Store

if TYPE_CHECKING:
    from numpy.typing import NDArray

_READ_WHOLE = "rows that it describes are read whole"
_ASKED_ALONE = 4
"""Up to this many files, sizes are requested one by one; more files are listed."""
_SHOWN = 8
"""Numbers of versions in a message."""
_KEYS_PER_PAGE = 1000
"""Of a listing of most object stores."""
_FEW_HASHES, _MOST_LIKELY_BYTES = 16, 2 << 20
"""Hashes and bytes of a locator that are fetched before it is opened: the bytes take as long as a request."""
_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")


class _Lists(NamedTuple):
    """The fragment lists of a version."""

    fragments: FragmentTable
    """The fragments of all lists that could be read."""
    errors: dict[str, str]
    """By path of a list, why it could not be read."""

    @classmethod
    def read(cls, store: Store, lists: Sequence[FragmentListEntry], dropped: Runs) -> Self:
        """The fragments of `lists` without those in `dropped`."""
        tables = list(_opened(store, partial(read_fragments, store), lists))
        sound = [table for table in tables if not isinstance(table, Exception)]
        live = [table.where(~is_in_runs(table.fragment_ids, dropped)) for table in sound]
        errors = {
            entry.path: str(table) for entry, table in zip(lists, tables, strict=True) if isinstance(table, Exception)
        }
        return cls(FragmentTable.concatenated(live), errors)


class Snapshot:
    """One version of the index; a segment is opened when a search first needs it, and stays open.

    The content of a version never changes. Damage is found as segments are read, and is recorded with the segments.
    """

    def __init__(self, store: Store, manifest: Manifest, *, distrust: Reason | None = None) -> None:
        self.store = store
        self.manifest = manifest
        self.is_distrusted: bool = distrust is not None
        self._columns: dict[str, ColumnReader] = {}
        self._warned: set[str] = set()
        """Messages of damage that were issued as warnings."""
        self._is_quiet = False
        self._distrust = distrust
        self._lists: _Lists | None = None
        self._lock = threading.Lock()
        if not store.is_remote:  # at once, as it costs no round: later a vacuum may have removed the lists
            self._warn_of_lists(self.read_lists())

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of files and folders, all `optional`, since a newer file may have nulls or miss a column."""
        return pa.schema(map(optional, self.manifest.schema))

    def column(self, entry: ColumnEntry) -> ColumnReader:
        """The zones of an indexed column; damaged parts are omitted, with a warning."""
        reader = self.opened(entry)
        self.warn_of_damage()
        return reader

    def opened(self, entry: ColumnEntry, hashes: NDArray[np.uint64] | None = None) -> ColumnReader:
        """As `column`, without a warning: other threads call it.

        What the first probe, of `hashes`, will probably read of a remote locator is fetched while it is opened.
        """
        if entry.name not in self._columns:
            if self.store.is_remote and hashes is not None and len(hashes) <= _FEW_HASHES:
                for segment in entry.segments:
                    if segment.kind == "locator":
                        self.store.will_need(segment.path, _likely_ranges(segment, hashes.tolist()))
            self._columns[entry.name] = self.reader(entry.name, entry.segments)
        return self._columns[entry.name]

    def reader(self, column: str, segments: Sequence[SegmentEntry]) -> ColumnReader:
        """The zones of some segments of a column; the segments are opened again."""
        opener = partial(_open_segments, self.store, column)  # not a method: a reference cycle would keep files mapped
        return ColumnReader(segments, opener, is_remote=self.store.is_remote)

    # --- fragments ----------------------------------------------------------------------------------------------------

    @property
    def fragments(self) -> FragmentTable:
        """The data files that the version describes, without those of damaged lists, of which there is a warning."""
        lists = self.read_lists()
        self._warn_of_lists(lists)
        return lists.fragments

    @property
    def damaged_lists(self) -> frozenset[str]:
        """Paths of the fragment lists that could not be read."""
        return frozenset(self.read_lists().errors)

    @property
    def damage(self) -> list[Reason]:
        """Damage that concerns all columns: of the version file, and of fragment lists."""
        unread = [Reason(ReasonCode.SEGMENT_CORRUPT, error) for error in self.read_lists().errors.values()]
        return [*([self._distrust] if self._distrust else []), *unread]

    @property
    def paths_to_list_by(self) -> Sequence[str]:
        """Paths of the fragments, if a listing of as many files has several pages: one page need not wait for them."""
        num_fragments = sum(entry.num_fragments for entry in self.manifest.fragment_lists)
        return () if num_fragments < _KEYS_PER_PAGE else self.read_lists().fragments.paths.tolist()

    def read_lists(self) -> _Lists:
        """The fragment lists, without a warning: other threads call it. A remote index reads them when needed."""
        with self._lock:
            if self._lists is None:
                lists = () if self.is_distrusted else self.manifest.fragment_lists
                self._lists = _Lists.read(self.store, lists, self.manifest.dropped)
            return self._lists

    def num_live_zones(self, entry: ColumnEntry) -> int:
        """Number of a column's zones, without zones of removed files that its segments still have.

        Cost: none, unless a segment has zones of a removed file; then the column is opened.
        """
        ids = np.sort(self.fragments.fragment_ids)
        runs = np.array([run for segment in entry.segments for run in segment.fragments], np.uint64).reshape(-1, 2)
        num_live = np.diff(ids.searchsorted(runs)).sum()
        if num_live == np.diff(runs).sum():
            return entry.num_zones
        return int(np.isin(self.column(entry).positions.fragment_ids, ids).sum())

    def not_indexed(self, name: str) -> ColumnNotFoundError:
        """The error for `name`, which is not an indexed column."""
        if name in leaf_paths(self.manifest.schema):
            is_partition = name in self.manifest.dataset.get("partition_columns", [])
            do = (
                "search or scan by it: a partition column needs no index"
                if is_partition
                else Words.BUILD_COLUMN.of(name)
            )
            return ColumnNotFoundError(f"column {name} is not indexed", do=do)
        names = [entry.name for entry in self.manifest.columns]
        return ColumnNotFoundError.among(name, names, f"the index {self.store.location}")

    def close(self) -> None:
        """Close the open segments; a later search opens them again."""
        self._columns.clear()

    # --- damage -------------------------------------------------------------------------------------------------------

    @property
    def damaged_segments(self) -> frozenset[str]:
        """Paths of the segments that were found to be damaged so far."""
        return frozenset[str]().union(*(column.damaged_segments for column in list(self._columns.values())))

    def unsound_segments(self, *, check: bool) -> frozenset[str]:
        """Paths of segments that are missing, of a wrong length, or known to be damaged; `check` reads all bytes."""
        segments = [segment for entry in self.manifest.columns for segment in entry.segments]
        sizes = sizes_of(self.store, [segment.path for segment in segments])
        unsound = {segment.path for segment in segments if sizes.get(segment.path) != segment.num_bytes}
        for entry in self.manifest.columns if check else ():
            reader = self.reader(entry.name, entry.segments)
            reader.verify()
            unsound |= reader.damaged_segments
        return self.damaged_segments | unsound

    def warn_of_damage(self) -> None:
        """Warn of all damage found so far, once for each message; called after filters were probed."""
        for column in list(self._columns.values()):
            for segment in column.segments:
                for message in segment.damage:
                    spared = "other segments of the column are asked instead"
                    self._warn(message, spared if column.is_spared(segment) else _READ_WHOLE)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Suppress warnings of damage inside the block; the next search warns."""
        self._is_quiet = True
        try:
            yield
        finally:
            self._is_quiet = False

    def _warn_of_lists(self, lists: _Lists) -> None:
        for message in lists.errors.values():
            self._warn(message)

    def _warn(self, message: str, effect: str = _READ_WHOLE) -> None:
        if message not in self._warned and not self._is_quiet:
            self._warned.add(message)
            warnings.warn(f"{message}; {effect}", RuntimeWarning, stacklevel=3)


def _likely_ranges(locator: SegmentEntry, hashes: Iterable[int]) -> list[tuple[int, int]]:
    """The ranges that a search of some hashes probably reads of a locator."""
    num_pages = locator.spans[0].num_bytes // PAGE_BYTES
    runs = [likely_pages(num_pages, value) for value in hashes] if num_pages else []
    ranges = [(first * PAGE_BYTES, (last + 1 - first) * PAGE_BYTES) for first, last in runs]
    return ranges if sum(length for _, length in ranges) <= _MOST_LIKELY_BYTES else []


def _opened(
    store: Store, opener: Callable[[_Asked], _Answer], asked: Sequence[_Asked]
) -> Iterable[_Answer | CorruptIndexError | UnsupportedFormatError]:
    """For each of `asked`, in order, the result or error of `opener`; concurrent for a remote index."""

    def opened(part: _Asked) -> _Answer | CorruptIndexError | UnsupportedFormatError:
        try:
            return opener(part)
        except (CorruptIndexError, UnsupportedFormatError) as error:
            return error

    return concurrently(opened, asked, SEGMENTS_AT_ONCE if store.is_remote else 0)


def _open_segments(store: Store, column: str, entries: Sequence[SegmentEntry]) -> list[OpenedSegment]:
    results = _opened(store, partial(_open_segment, store, column), entries)
    return [
        _unopened(entry, column, result) if isinstance(result, Exception) else result
        for entry, result in zip(entries, results, strict=True)
    ]


def _open_segment(store: Store, column: str, entry: SegmentEntry) -> OpenedSegment:
    if entry.kind == "zones":
        zones, damage = ZoneSegment(store, entry).zones()
        lost = tuple(Reason(ReasonCode.SEGMENT_CORRUPT, message, column=column) for message in damage)
        return OpenedSegment(entry, zones, lost)
    if entry.kind == "slices":
        return OpenedSegment(entry, SliceSegment(store, entry))
    if entry.kind == "locator":
        from zonebloom.storage.locator.reader import LocatorSegment  # noqa: PLC0415 - most columns have filters

        return OpenedSegment(entry, LocatorSegment(store, entry))
    raise UnsupportedFormatError.newer(f"segment {entry.path} must be of kind zones, slices or locator", entry.kind)


def _unopened(entry: SegmentEntry, column: str, error: Exception) -> OpenedSegment:
    is_new = isinstance(error, UnsupportedFormatError)
    code = ReasonCode.FORMAT_TOO_NEW if is_new else ReasonCode.SEGMENT_CORRUPT
    return OpenedSegment(entry, None, (Reason(code, str(error), column=column),))


def sizes_of(store: Store, paths: Sequence[str]) -> dict[str, int]:
    """Sizes of the existing files among `paths`, and of others; many are listed: one request lists a thousand."""
    sizes: dict[str, int] = {}
    if len(paths) > _ASKED_ALONE:
        for folder in {path.partition("/")[0] for path in paths}:
            sizes |= {path: file.size for path, file in store.files(folder).items()}
        return sizes
    for path in paths:
        with suppress(FileNotFoundError):
            sizes[path] = store.size(path)
    return sizes


def check_kept(version: Any, kept: Sequence[int]) -> None:
    """Check that `version` is one of the numbers `kept`.

    Raises
    ------
    InvalidArgumentError
        It is not, or is no integer.
    """
    if type(version) is not int or version not in kept:
        shown = ", ".join(map(str, kept if len(kept) <= _SHOWN else [*kept[:3], "…", *kept[-4:]]))
        raise InvalidArgumentError(f"no version {version!r:.80} is kept", do=f"versions: {shown}")


def load_snapshot(store: Store, version: int | None, versions: Sequence[int] = ()) -> Snapshot:
    """The requested version, or the highest; if the highest is unreadable, an older one whose filters are not used.

    `versions` is the result of a listing just before this call.
    """
    versions = versions or list_versions(store)
    if not versions:
        place = joined(store.location, "versions")
        raise IndexNotFoundError("an index must have a version", got=f"none in {place}", do="build it")
    if version is not None:
        check_kept(version, versions)
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


def load_trusted(store: Store) -> tuple[Snapshot, bool]:
    """The current version as the base of the next one, and whether its file is undamaged.

    If it is damaged, the base is the newest undamaged version: its entries of unchanged files are still right.

    Raises
    ------
    UnsupportedFormatError
        A newer zonebloom wrote it.
    """
    snapshot = load_snapshot(store, None)
    if not snapshot.is_distrusted:
        return snapshot, True
    if snapshot.damage[0].code == ReasonCode.FORMAT_TOO_NEW:
        raise UnsupportedFormatError(snapshot.damage[0].message)
    return Snapshot(snapshot.store, snapshot.manifest), False
