"""Older versions: list, restore, vacuum; and deletion of an index.

Nothing in an index is overwritten, so an older version stays until a vacuum removes it. Restoring a version is a
commit.

Design: docs/design/refresh.md#retention
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise

from zonebloom.formats.identity import NAMES
from zonebloom.ground.errors import CorruptIndexError, InvalidArgumentError, UnsupportedFormatError, Words
from zonebloom.ground.reasons import counted
from zonebloom.ground.rendering import Result, Results
from zonebloom.storage.manifest import Manifest, commit, list_versions, named_paths, read_version, version_path
from zonebloom.storage.snapshot import check_kept, sizes_of
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.store import Store

_OURS = re.compile(
    r"versions/\.?\d{20}\.json(\.[0-9a-f]+)?|ids/\.?\d{20}(\.[0-9a-f]+)?|fragments/[0-9a-f-]{36}\.arrow"
    r"|columns/[^/]+/[0-9a-f-]{36}\.(zones\.arrow|slices\.arrow|locator|sbbf)"
)
"""Paths that zonebloom writes; no other file in the folder is ever removed."""
FOLDERS = ("versions", "ids", "fragments", "columns")


@dataclass(frozen=True, slots=True)
class Version(Result):
    """One commit."""

    number: int
    """Number of the version, from 1."""
    operation: str
    """The operation: build, refresh, optimize, restore."""
    committed_at: datetime
    """Time of the commit in UTC, by the writer's clock."""
    num_files: int
    """Number of data files that the version describes."""
    num_zones: int
    """Zones of its segments over all columns, including zones of dropped files."""
    index_bytes: int
    """Bytes of its segments."""
    columns: tuple[str, ...]
    """The indexed columns."""


def versions(store: Store) -> Results[Version]:
    """The readable versions, the oldest first."""
    listed: Results[Version] = Results()
    for number in list_versions(store):
        try:
            manifest = read_version(store, number)
        except (CorruptIndexError, UnsupportedFormatError):
            continue
        dropped = sum(stop - start for start, stop in manifest.dropped)
        listed.append(
            Version(
                number,
                manifest.operation,
                datetime.fromisoformat(manifest.committed_at),
                sum(entry.num_fragments for entry in manifest.fragment_lists) - dropped,
                sum(entry.num_zones for entry in manifest.columns),
                sum(entry.index_bytes for entry in manifest.columns),
                tuple(entry.name for entry in manifest.columns),
            )
        )
    return listed


def restore(store: Store, version: int) -> Manifest:
    """Commit and return a new version with the content of `version`; if `version` is current, only return it.

    Raises
    ------
    InvalidArgumentError
        There is no such version.
    CorruptIndexError
        The version file, or a segment or list in it, is missing or damaged.
    ConcurrentCommitError
        Another commit came first; nothing was changed.

    Design: docs/design/refresh.md#restore
    """
    kept = list_versions(store)
    check_kept(version, kept)
    wanted = read_version(store, version)
    if version == kept[-1]:
        return wanted
    needed = [entry.path for entry in wanted.fragment_lists]
    needed += [path for entry in wanted.columns for path in entry.files]
    missing = next(iter(sorted({*needed} - sizes_of(store, needed).keys())), None)
    if missing:
        raise CorruptIndexError(f"all files of version {version} must exist to restore it", got=f"none at {missing}")
    readable = _readable(store, kept)
    ids = [wanted.next_fragment_id, *(manifest.next_fragment_id for manifest in readable)]
    now = next(
        (each.dataset for each in reversed(readable) if each.dataset.get("kind") == wanted.dataset.get("kind")), {}
    )
    dataset = wanted.dataset | {name: now[name] for name in NAMES if name in now}
    restored = wanted.following("restore", version=kept[-1] + 1, next_fragment_id=max(ids), dataset=dataset)
    commit(store, restored)
    return restored


def _readable(store: Store, numbers: Iterable[int]) -> list[Manifest]:
    readable = []
    for number in numbers:
        try:
            readable.append(read_version(store, number))
        except CorruptIndexError:
            continue
    return readable


# --- vacuum -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Vacuum(Result):
    """The files that a vacuum removed, or would remove."""

    versions: tuple[int, ...]
    """Numbers of the versions."""
    files: tuple[str, ...]
    """Files in the folder of the index, version files included."""
    num_bytes: int
    """Bytes of the files."""
    is_dry_run: bool
    """Whether the call removed nothing."""

    @property
    def headline(self) -> str:
        """The outcome in a line."""
        verb = "would remove" if self.is_dry_run else "removed"
        files = f"{counted(len(self.versions), 'version')} and {counted(len(self.files), 'file')}"
        return f"{verb} {files}, {self.num_bytes:,} bytes"


def duration(value: timedelta | str | float) -> timedelta:
    """`value` as a time of at least 0: a number of days, or a text such as 7d, 12h or 30m.

    Raises
    ------
    InvalidArgumentError
        `value` is not such a time.
    """
    text = f"{Decimal(value):f}" if isinstance(value, (int, float)) and type(value) is not bool else str(value)
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([dhm]?)", text)
    unit = {"": "days", "d": "days", "h": "hours", "m": "minutes"}
    try:
        span = timedelta(**{unit[match[2]]: float(match[1])}) if match else value
    except OverflowError:
        span = None
    if isinstance(span, timedelta) and span >= timedelta(0):
        return span
    raise InvalidArgumentError(f"{Words.OLDER_THAN} {value!r} is no time", do="write 7d, 12h or 30m")


def vacuum(store: Store, *, older_than: timedelta | str | float, dry_run: bool) -> Vacuum:
    """Remove versions that were superseded longer ago than `older_than`, and files that no remaining version names.

    The current version stays. Files younger than `older_than` stay too: a running commit may use them.

    Raises
    ------
    InvalidArgumentError
        `older_than` is negative, or not a time.
    UnsupportedFormatError
        A newer zonebloom wrote a remaining version, so the files of that version are unknown.
    CorruptIndexError
        The current version is damaged.

    Design: docs/design/refresh.md#vacuum
    """
    older_than = duration(older_than)
    before = time.time_ns() - int(older_than.total_seconds() * 1e9)
    numbers = list_versions(store)
    _named(store, numbers[-1:])
    files = _files(store)
    present = [number for number in numbers if version_path(number) in files]  # another vacuum may have removed some
    expired = [number for number, successor in pairwise(present) if files[version_path(successor)].mtime_ns <= before]
    removed = [version_path(number) for number in expired]
    if not dry_run:
        for path in removed:
            store.delete(path)
    kept = [number for number in list_versions(store) if number not in expired]
    named = _named(store, kept)
    named |= set(sorted(path for path in files if re.fullmatch(r"ids/\d{20}", path))[-1:])
    named.update(removed, filter(re.compile(r"versions/\d{20}\.json").fullmatch, files))
    orphans = [path for path, file in files.items() if path not in named and file.mtime_ns <= before]
    if not dry_run:
        for path in orphans:
            store.delete(path)
    gone = [*removed, *orphans]
    return Vacuum(tuple(expired), tuple(gone), sum(files[path].size for path in gone), dry_run)


def _files(store: Store) -> dict[str, Fingerprint]:
    """The fingerprints of all files that zonebloom wrote, by path."""
    return {path: file for folder in FOLDERS for path, file in store.files(folder).items() if _OURS.fullmatch(path)}


def _named(store: Store, numbers: list[int]) -> set[str]:
    """Paths that the versions name; a damaged older version names none."""
    named: set[str] = set()
    for number in numbers:
        try:
            if number == numbers[-1]:
                read_version(store, number)
            named |= named_paths(store, number)
        except CorruptIndexError as error:
            if number == numbers[-1]:
                raise CorruptIndexError(
                    "the current version must be sound for a vacuum", got=error, do="refresh"
                ) from error
    return named


@dataclass(frozen=True, slots=True)
class Removal(Result):
    """The files that `delete_index` removed, or would remove."""

    location: str
    """Location of the index."""
    num_files: int
    """Number of the files."""
    is_dry_run: bool
    """Whether nothing was removed."""

    @property
    def headline(self) -> str:
        """The outcome in a line."""
        verb = "would remove" if self.is_dry_run else "removed"
        return f"{verb} {counted(self.num_files, 'file')} of {self.location}"


def delete_index(store: Store, *, dry_run: bool = False) -> Removal:
    """Remove all files that zonebloom wrote below `store`, with or without a commit, and folders that become empty.

    Version files are removed first, the current one last. So an interrupted deletion leaves a working index or none.
    """
    numbers = list_versions(store)
    order = [version_path(number) for number in numbers]
    order += [path for path in _files(store) if path not in order]
    if order and not dry_run:
        for path in order:
            store.delete(path)
        store.prune(FOLDERS)
    return Removal(store.location, len(order), dry_run)
