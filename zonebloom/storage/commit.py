"""Committing a change on the current version, and again on top of another writer's commit.

A writer has a change (added and removed fragments and segments), not a finished version. If another writer commits
first and the two changes do not overlap, the writer applies its change to the new version. So nothing is built twice.

Design: docs/design/refresh.md#rebase
"""

from __future__ import annotations

from zonebloom.ground.attempts import MOST_ATTEMPTS, attempts
from zonebloom.ground.errors import ConcurrentCommitError, CorruptIndexError, IndexNotFoundError, StorageError
from zonebloom.storage.fragments import FragmentTable, read_fragments
from zonebloom.storage.manifest import Manifest, commit, list_versions, read_version
from zonebloom.storage.transaction import Change, Rebase, name_of
from zonebloom.stores.store import Store, delete_all


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
    new_lists: list[str] = []
    following = None
    try:
        for attempt in attempts():
            current = newest(store) if attempt else base
            for entry in current.fragment_lists:
                if entry.path not in lists and entry.path not in change.removed_lists:
                    lists[entry.path] = read_fragments(store, entry)
            following = Rebase(store, base, current, change, lists).following()
            if following is None:
                delete_all(store, change.written)
                return current
            new_lists = [entry.path for entry in following.fragment_lists if entry not in current.fragment_lists]
            try:
                commit(store, following)
                return following  # noqa: TRY300 - an interrupt after the commit must meet the handler below
            except ConcurrentCommitError:
                delete_all(store, new_lists)
                following, new_lists = None, []
        raise ConcurrentCommitError(  # noqa: TRY301 - the handler below treats it like other errors
            f"one of {MOST_ATTEMPTS} attempts to commit {change.operation} must come first",
            got="none",
            do=f"the last was beaten by {name_of(current)}",
        )
    except BaseException:
        if following is None or not _may_exist(store, following.version):
            delete_all(store, [*change.written, *new_lists])
        raise


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
