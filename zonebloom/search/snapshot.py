"""Loading a version of an index: the one asked for, or the current one as far as it can be trusted.

Spec: specs/index-format.md#versions
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace

from zonebloom.errors import (
    CorruptIndexError,
    IndexNotFoundError,
    InvalidArgumentError,
    UnsupportedFormatError,
    ZoneBloomError,
)
from zonebloom.reasons import Reason, ReasonCode
from zonebloom.search.view import Snapshot
from zonebloom.storage.manifest import list_versions, read_version
from zonebloom.storage.stores.locations import joined
from zonebloom.storage.stores.open import open_store
from zonebloom.storage.stores.store import Store

__all__ = ["load_snapshot", "load_trusted"]


def load_snapshot(store: Store, version: int | None, versions: Sequence[int] = ()) -> Snapshot:
    """The version asked for, or the highest that is sound; one from the future is loaded without trust.

    `versions` are those that a listing found just now.
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
    """The current version as the ground of the next one, and whether its file is sound.

    Where it is damaged, the newest sound version stands in: what that says of a file which did not change is true.

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
