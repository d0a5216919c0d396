"""Reserved fragment ids: before a build, a writer takes ids that no other writer gets, by creating a file.

Design: docs/design/refresh.md#ids
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from zonebloom.bloom.addresses import MAX_FRAGMENT_ID
from zonebloom.ground.attempts import MOST_ATTEMPTS, attempts
from zonebloom.ground.errors import ConcurrentCommitError, StorageError
from zonebloom.storage.manifest import list_versions
from zonebloom.stores.store import Store, delete_all

_UNKNOWN_RESERVATION = 1 << 16
"""Number of ids that an unreadable reservation is assumed to have."""
_RESERVATION = re.compile(r"\d{20}")


@contextmanager
def reserved_ids(store: Store, next_fragment_id: int, count: int) -> Iterator[int]:
    """Reserve `count` consecutive ids for the block, and give the first; if the block raises, the ids are never used.

    `ids/<first>` is created if absent; its content is the first id of the next reservation. It is removed only if the
    block raises and there is no index yet, so that no file stays.

    Design: docs/design/refresh.md#ids
    """
    if not count:
        yield next_fragment_id
        return
    first = _reserved(store, next_fragment_id, count)
    try:
        yield first
    except BaseException:
        with suppress(StorageError):  # the caller's error is raised
            if not list_versions(store):
                delete_all(store, [_path(first)])
                store.prune(["ids"])
        raise


def _path(first: int) -> str:
    return f"ids/{first:020d}"


def _reserved(store: Store, next_fragment_id: int, count: int) -> int:
    for _ in attempts():
        first = max(next_fragment_id, _end_of_last(store))
        if first + count > MAX_FRAGMENT_ID:
            raise StorageError(
                f"fragment ids must stay below {MAX_FRAGMENT_ID}",
                got=f"{count} more from {first}",
                do="build the index anew in another folder",
            )
        if store.create(_path(first), f"{first + count} {secrets.token_hex(8)}".encode()):
            return first
    raise ConcurrentCommitError(
        f"one of {MOST_ATTEMPTS} attempts to reserve fragment ids must succeed",
        got=f"none in {store.location}/ids",
        do="run again when fewer writers are busy",
    )


def _end_of_last(store: Store) -> int:
    names = [name for name in store.list("ids") if _RESERVATION.fullmatch(name)]
    if not names:
        return 0
    try:
        end, _, _ = store.read(f"ids/{names[-1]}").partition(b" ")
        return max(int(end), int(names[-1]) + 1)
    except (ValueError, FileNotFoundError):
        return int(names[-1]) + _UNKNOWN_RESERVATION
