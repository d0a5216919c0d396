"""The plan of a build or refresh: one listing compared with one version. Nothing is written, no data file is opened.

A build is the refresh of a version without the columns. Unchanged files are kept; new and changed files become new
fragments; fragments of changed and deleted files are dropped. Damaged zones are built again. Missing zones of kept
fragments are built too.

Design: docs/design/refresh.md
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from zonebloom.formats import DatasetSnapshot, column_id
from zonebloom.formats.hive import Partitions, agrees, wanted_partitions
from zonebloom.formats.index_location import is_under
from zonebloom.ground.errors import DataFileError, InvalidArgumentError
from zonebloom.storage.fragments import FragmentTable, is_in_runs
from zonebloom.storage.manifest import ColumnEntry
from zonebloom.storage.options import IndexOptions
from zonebloom.storage.segment import covered_by
from zonebloom.storage.snapshot import Snapshot
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.locations import absolute

Mode = Literal["incremental", "quick", "full"]
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""One file or folder, or several."""
UNKNOWN_TYPE = pa.null()
"""Placeholder for the type of a new column until the data files are opened."""


def listed_paths(paths: Paths) -> list[str | os.PathLike[str]]:
    """A caller's paths as a list; one path alone is a list of one.

    Raises
    ------
    InvalidArgumentError
        One of them is no path, or empty.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    listed = list(given) if isinstance(given, Iterable) else [given]
    for path in listed:
        if not isinstance(path, (str, os.PathLike)):
            raise InvalidArgumentError("paths must be texts or os.PathLike", got=f"{path!r:.80}")
        absolute(path)  # only its check: relative paths are those below the data set
    return listed


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of a data set that a refresh reads."""

    paths: Sequence[str] | None = None
    """Files and folders, relative to the data set's root."""
    partitions: Sequence[Mapping[str, str | None]] | None = None
    """Values of partition columns as in folder names; a file must match one of these."""

    @classmethod
    def of(
        cls,
        dataset: DatasetSnapshot,
        snapshot: Snapshot,
        paths: Sequence[str | os.PathLike[str]] | None,
        partitions: Partitions | None,
    ) -> Scope:
        """The scope given by the arguments of a refresh.

        Raises
        ------
        InvalidArgumentError
            Both arguments are given, a path is outside the data set, or a partition names another column. Or the
            index is of a folder, and `dataset` has only some files of it.
        """
        described = dataset.to_json(snapshot.store.location)
        if described.get("files") and snapshot.manifest.dataset.get("layout") == "folder":
            raise InvalidArgumentError(
                "the index of a folder must be refreshed from the folder",
                got=f"a list of files, such as {described['files'][0]}",
                do="open the index by the folder's path, and name files by paths=",
            )
        if paths is not None and partitions is not None:
            raise InvalidArgumentError("a refresh must be confined to paths or to partitions", got="both")
        known_keys = snapshot.manifest.dataset.get("partition_columns", [])
        return cls(
            None if paths is None else [dataset.relative(path) for path in paths],
            None if partitions is None else wanted_partitions(partitions, known_keys),
        )

    @property
    def is_whole(self) -> bool:
        """Whether the scope is the whole data set."""
        return self.paths is None and self.partitions is None

    def list(self, dataset: DatasetSnapshot, snapshot: Snapshot) -> dict[str, Fingerprint]:
        """The current files of the scope; nothing else is listed."""
        if self.is_whole:
            return dataset.list(snapshot.paths_to_list_by)
        if self.partitions is not None:
            return dataset.list_partitions(self.partitions)
        return dataset.list_under(self.paths or ())

    def fragments(self, fragments: FragmentTable) -> FragmentTable:
        """The fragments of the scope."""
        if self.is_whole:
            return fragments
        if self.partitions is not None:
            is_inside = [agrees(path, self.partitions) for path in fragments]
        else:
            is_inside = [is_under(path, self.paths or ()) for path in fragments]
        return fragments.where(np.array(is_inside, np.bool_))


@dataclass(frozen=True, slots=True)
class Plan:
    """The files, columns and segments to open, build, replace and drop."""

    operation: str
    """The operation in the new version: build or refresh."""
    snapshot: Snapshot
    """The version that the first commit changes."""
    dataset: DatasetSnapshot
    """The pinned data set."""
    new: Mapping[str, Fingerprint]
    """Files that become fragments."""
    kept: FragmentTable
    """Fragments of unchanged files."""
    dropped: FragmentTable
    """Fragments to remove."""
    columns: tuple[ColumnEntry, ...]
    """The columns to build, with their new parameters; empty if nothing is built."""
    gaps: Mapping[int, frozenset[str]]
    """By id of a kept fragment, the columns without zones for it."""
    replaced: frozenset[str] = frozenset()
    """Paths of segments to remove."""
    is_rebuild: bool = False
    """Whether the columns are rebuilt; searches use their old zones until the commit."""
    is_whole: bool = True
    """Whether the whole data set was listed."""
    is_first: bool = False
    """Whether the types of the columns are still unknown, and must be read from the files."""
    is_resumed: bool = False
    """Whether the plan resumes an unfinished build."""
    reopened: Mapping[str, Fingerprint] = field(default_factory=dict)
    """Files of kept fragments to open too, for the types of the columns."""


def plan_build(snapshot: Snapshot, dataset: DatasetSnapshot, names: Sequence[str], options: IndexOptions) -> Plan:
    """The plan that gives `names` zones over the whole data set.

    Raises
    ------
    DataFileError
        The data set has no files.
    """
    listing = dataset.list(snapshot.paths_to_list_by)
    if not listing:
        raise DataFileError("a data set must have at least one file", got=f"none in {dataset.location}")
    fragments = snapshot.fragments
    positions = fragments.compare(listing)
    is_kept = np.zeros(len(fragments), np.bool_)
    is_kept[positions[positions >= 0]] = True
    kept = fragments.where(is_kept)
    wanted = frozenset(names)
    return Plan(
        "build",
        snapshot,
        dataset,
        new={path: file for path, file in listing.items() if path not in kept},
        kept=kept,
        dropped=fragments.where(~is_kept),
        columns=tuple(
            ColumnEntry(name, UNKNOWN_TYPE, segments=(), column_id=column_id(name, dataset.declared), **asdict(options))
            for name in names
        ),
        gaps=dict.fromkeys(kept.fragment_ids.tolist(), wanted),
        replaced=frozenset(path for entry in snapshot.manifest.columns if entry.name in wanted for path in entry.files),
        is_rebuild=True,
        is_first=True,
        reopened={path: file for path, file in listing.items() if path in kept},
    )


def plan_refresh(
    snapshot: Snapshot,
    dataset: DatasetSnapshot,
    mode: Mode,
    scope: Scope,
    wanted: Mapping[str, IndexOptions],
    *,
    check: bool = False,
    is_resumed: bool = False,
) -> Plan:
    """The plan that updates `snapshot` to the part `scope` of `dataset`.

    Parameters
    ----------
    wanted
        By column, its options in a full refresh.
    check
        Whether to read the whole index, and rebuild segments that differ from their checksums.
    is_resumed
        Whether the refresh resumes an unfinished build.
    """
    listing = scope.list(dataset, snapshot)
    if snapshot.manifest.replaced_columns(dataset.declared) and mode != "quick":
        if not scope.is_whole:
            raise InvalidArgumentError(
                "a refresh must be of the whole table after an indexed column became another one", got="a part of it"
            )
        mode = "full"
    present = snapshot.manifest.columns
    bad = frozenset() if mode == "quick" else snapshot.unsound_segments(check=check)
    segments = [segment for entry in present for segment in entry.segments]
    fragments = scope.fragments(snapshot.fragments)
    positions = fragments.compare(listing)
    is_kept = np.zeros(len(fragments), np.bool_)
    is_kept[positions[positions >= 0]] = mode != "full"
    is_kept &= ~is_in_runs(fragments.fragment_ids, covered_by(segment for segment in segments if segment.path in bad))
    kept, dropped = fragments.where(is_kept), fragments.where(~is_kept)
    is_rebuild = mode == "full" and scope.is_whole
    columns = present
    if is_rebuild:
        columns = tuple(
            replace(entry, column_id=column_id(entry.name, dataset.declared), **asdict(wanted[entry.name]))
            for entry in present
        )
    return Plan(
        "build" if is_resumed else "refresh",
        snapshot,
        dataset,
        new={path: file for path, file in listing.items() if path not in kept},
        kept=kept,
        dropped=dropped,
        columns=columns if mode != "quick" else (),
        gaps=_gaps(columns, kept) if mode == "incremental" else {},
        replaced=frozenset(path for entry in present for path in entry.files) if is_rebuild else frozenset(),
        is_rebuild=is_rebuild,
        is_whole=scope.is_whole,
        is_resumed=is_resumed,
    )


def _gaps(columns: Iterable[ColumnEntry], kept: FragmentTable) -> dict[int, frozenset[str]]:
    """By id of a fragment with rows, the columns without zones for it."""
    gaps: defaultdict[int, set[str]] = defaultdict(set)
    ids = kept.fragment_ids
    for entry in columns:
        is_seen = is_in_runs(ids, covered_by(entry.segments)) | is_in_runs(ids, entry.unfit)
        for fragment_id in ids[(kept.num_rows > 0) & ~is_seen].tolist():
            gaps[fragment_id].add(entry.name)
    return {fragment_id: frozenset(names) for fragment_id, names in gaps.items()}
