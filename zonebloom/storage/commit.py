"""Committing a change on the current version, and again on top of another writer's commit.

A writer has a change (added and removed fragments and segments), not a finished version. If another writer commits
first and the two changes do not overlap, the writer applies its change to the new version. So nothing is built twice.
Before a build, the writer reserves fragment ids by creating a file.

Design: docs/design/refresh.md#rebase
"""

from __future__ import annotations

import random
import re
import secrets
import time

from zonebloom.bloom.addresses import MAX_FRAGMENT_ID
from zonebloom.ground.errors import ConcurrentCommitError, CorruptIndexError, IndexNotFoundError, StorageError
from zonebloom.storage.fragments import FragmentTable, read_fragments
from zonebloom.storage.manifest import Manifest, commit, list_versions, read_version
from zonebloom.storage.transaction import Change, Rebase, name_of
from zonebloom.stores.store import Store, delete_all

_MAX_ATTEMPTS = 200
_LONGEST_PAUSE = 32
"""The longest pause, in durations of the last attempt; pauses are random, so that losers do not collide again."""
_UNKNOWN_RESERVATION = 1 << 16
"""Number of ids that an unreadable reservation is assumed to have."""
_RESERVATION = re.compile(r"\d{20}")


# --- ids --------------------------------------------------------------------------------------------------------------


def reserve_ids(store: Store, next_fragment_id: int, count: int) -> int:
    """The first of `count` consecutive fragment ids that no other writer gets.

    `ids/<first>` is created if absent; its content is the first id of the next reservation. Ids of a writer that dies
    are never used.

    Design: docs/design/refresh.md#ids
    """
    for attempt in range(_MAX_ATTEMPTS):
        started = time.perf_counter()
        first = max(next_fragment_id, _reserved(store))
        if first + count > MAX_FRAGMENT_ID:
            raise StorageError(
                f"fragment ids must stay below {MAX_FRAGMENT_ID}",
                got=f"{count} more from {first}",
                do="build the index anew in another folder",
            )
        if store.create(f"ids/{first:020d}", f"{first + count} {secrets.token_hex(8)}".encode()):
            return first
        _pause(attempt, time.perf_counter() - started)
    raise ConcurrentCommitError(
        f"one of {_MAX_ATTEMPTS} attempts to reserve fragment ids must succeed",
        got=f"none in {store.location}/ids",
        do="run again when fewer writers are busy",
    )


def release_ids(store: Store, first: int) -> None:
    """Give back the ids that were reserved from `first`; no version may use them."""
    delete_all(store, [f"ids/{first:020d}"])


def _reserved(store: Store) -> int:
    names = [name for name in store.list("ids") if _RESERVATION.fullmatch(name)]
    if not names:
        return 0
    try:
        end, _, _ = store.read(f"ids/{names[-1]}").partition(b" ")
        return max(int(end), int(names[-1]) + 1)
    except (ValueError, FileNotFoundError):
        return int(names[-1]) + _UNKNOWN_RESERVATION


# --- commits ----------------------------------------------------------------------------------------------------------


def commit_change(store: Store, base: Manifest, change: Change) -> Manifest:
    """Commit `change`, made for `base`, on the current version; returns the new version.

    If nothing is left to change, the result is the current version. If the change is not committed, its files are
    deleted. If an error hides whether the change was committed, its files stay until a vacuum.

    Raises
    ------
    ConcurrentCommitError
        Another commit came first, and the two changes overlap.
    CorruptIndexError
        The current version or one of its fragment lists is damaged.

    Design: docs/design/refresh.md#rebase
    """
    lists: dict[str, FragmentTable] = {}
    current, following = base, None
    try:
        for attempt in range(_MAX_ATTEMPTS):
            started = time.perf_counter()
            for entry in current.fragment_lists:
                if entry.path not in lists and entry.path not in change.removed_lists:
                    lists[entry.path] = read_fragments(store, entry)
            following = Rebase(store, base, current, change, lists).following()
            if following is None:
                delete_all(store, change.written)
                return current
            if _is_committed(store, current, following):
                return following
            following = None
            _pause(attempt, time.perf_counter() - started)
            current = newest(store)
        raise ConcurrentCommitError(  # noqa: TRY301 - the handler below treats it like other errors
            f"one of {_MAX_ATTEMPTS} attempts to commit {change.operation} must come first",
            got="none",
            do=f"the last was beaten by {name_of(current)}",
        )
    except BaseException:
        if following is None or not _may_exist(store, following.version):
            delete_all(store, [*change.written, *_new_lists(current, following)])
        raise


def _is_committed(store: Store, current: Manifest, following: Manifest) -> bool:
    try:
        commit(store, following)
    except ConcurrentCommitError:
        delete_all(store, _new_lists(current, following))
        return False
    return True


def _new_lists(current: Manifest, following: Manifest | None) -> list[str]:
    listed = {entry.path for entry in current.fragment_lists}
    return [entry.path for entry in following.fragment_lists if entry.path not in listed] if following else []


def _may_exist(store: Store, version: int) -> bool:
    try:
        return version in list_versions(store)
    except StorageError:
        return True


def newest(store: Store) -> Manifest:
    """The current version.

    Raises
    ------
    IndexNotFoundError
        The index has none, as it was deleted.
    CorruptIndexError
        It is damaged.
    """
    while True:
        numbers = list_versions(store)
        if not numbers:
            raise IndexNotFoundError("an index must have a version", got=f"none in {store.location}", do="build it")
        try:
            return read_version(store, numbers[-1])
        except CorruptIndexError:
            if list_versions(store)[-1:] == numbers[-1:]:
                raise  # if there is a newer version, a vacuum removed this one


def _pause(attempt: int, elapsed: float) -> None:
    time.sleep(random.uniform(0, elapsed * min(_LONGEST_PAUSE, 2**attempt)))  # noqa: S311 - no secret
