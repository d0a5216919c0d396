"""Short runs of the scheduler; `python -m tests.fuzz.interleavings --seconds 600` is a long one."""

from __future__ import annotations

import gc
from unittest.mock import patch

import pytest

from tests.depth import IS_DEEP
from tests.fuzz.interleavings import World, run, single_threaded
from tests.fuzz.memory import MemoryStore
from zonebloom.storage.transaction import Rebase

INTERLEAVINGS = 400 if IS_DEEP else 40
FIRST = 1_000_000


@pytest.mark.parametrize("first", range(FIRST, FIRST + 1200, INTERLEAVINGS) if IS_DEEP else [FIRST])
def test_no_interleaving_loses_a_row_or_a_commit(first, figure):
    """1,200 in the deep suite, in parts that the workers share."""
    gc.freeze()  # else the objects of all tests are looked through again and again, in a tenth of the time
    ended, findings = run(first, INTERLEAVINGS)
    gc.unfreeze()
    assert not findings, f"{len(findings)} findings, such as {findings[0]}"
    assert ended["interleavings"] == INTERLEAVINGS
    assert ended["versions"] > 3 * INTERLEAVINGS
    figure(
        f"interleavings from seed {first}: {INTERLEAVINGS}, {ended['operations']} operations, {ended['killed']} "
        f"writers killed, {ended['versions']} versions; 0 rows and 0 commits lost"
    )


def test_a_seed_is_one_interleaving():
    traces = []
    with single_threaded():
        for _ in range(2):
            world = World(7)
            world.run()
            traces.append([(name, what.split("/")[0]) for name, what in world.trace])
    assert traces[0] == traces[1]


def _overwrites(store: MemoryStore, path: str, data: bytes) -> bool:
    store._do("create", path)
    store._put(path, data)
    return True


def _without_rebase(rebase: Rebase):
    following = _following(rebase)
    stale = Rebase(rebase.store, rebase.base, rebase.base, rebase.change, rebase.lists)
    return following and _following(stale).following("refresh", version=following.version)


_following = Rebase.following


MUTANTS = [
    pytest.param("zonebloom.storage.transaction.Rebase.following", _without_rebase, id="no rebase"),
    pytest.param("tests.fuzz.memory.MemoryStore.create", _overwrites, id="commits overwrite"),
    pytest.param("zonebloom.storage.manifest._holds", lambda *_: False, id="a lost answer is a lost race"),
    pytest.param("zonebloom.storage.commit._may_exist", lambda *_: False, id="an error deletes what was written"),
]


@pytest.mark.parametrize(("where", "mutant"), MUTANTS if IS_DEEP else MUTANTS[:1])
def test_a_wrong_protocol_is_found(where, mutant):
    """Within a thousand interleavings, else the scheduler proves little; from the seed that finds the first of them."""
    with patch(where, mutant):
        assert any(run(first, 4)[1] for first in range(76, 1076, 4))
