"""Each write of a build, refresh, optimize, vacuum or restore goes wrong, in every way that a store can go wrong.

`Faults` stands between the index and the real local store, and spoils the n-th write: an object that is created or
written, or a deletion. For each operation, each of its writes and each fault, a copy of one small lake is made; then
all rows must be found, and the same operation must come to its end when it is called again.

- fail: nothing is written, and an error is raised.
- fail after: it is written, and an error is raised all the same.
- partial: a part is written, and an error is raised.
- torn: a part is written, and nothing is said.
- twice: it is written, and the answer is lost; so it is written again.
- delayed: before it is written another writer commits.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import zonebloom as zb
from tests.depth import some
from tests.lives import assert_every_row_is_found, write
from zonebloom.errors import ConcurrentCommitError, CorruptIndexError, StorageError
from zonebloom.storage.manifest import list_versions
from zonebloom.stores.local import LocalStore

FAULTS = ("fail", "fail after", "partial", "torn", "delayed", "twice")


class Faults:
    """Counts the writes of the local store, and spoils number `at` of them."""

    def __init__(self, at: int | None = None, kind: str = "", between: Callable[[], object] = lambda: None) -> None:
        self.at, self.kind, self.between = at, kind, between
        self.count = 0
        self.has_struck, self.is_armed = False, True

    @contextlib.contextmanager
    def installed(self) -> Iterator[Faults]:
        create, writing, delete = LocalStore.create, LocalStore.writing, LocalStore.delete

        def faulty_create(store, path, data):
            with self.failing(path) as kind:
                done = create(store, path, part_of(data, kind))
                return create(store, path, data) if kind == "twice" else done

        @contextlib.contextmanager
        def faulty_writing(store, path):
            with self.failing(path) as kind:
                with writing(store, path) as file:
                    yield file
                if kind:
                    (store.root / path).write_bytes(part_of((store.root / path).read_bytes(), kind))

        def faulty_delete(store, path):
            with self.failing(path) as kind:
                for _ in range({"partial": 0, "torn": 0, "twice": 2}.get(kind, 1)):
                    delete(store, path)

        with pytest.MonkeyPatch.context() as patch:
            for name, faulty in (("create", faulty_create), ("writing", faulty_writing), ("delete", faulty_delete)):
                patch.setattr(LocalStore, name, faulty)
            yield self

    @contextlib.contextmanager
    def failing(self, path: str) -> Iterator[str]:
        """Gives the fault of the write that is to be done now, and raises its error before or after it."""
        kind = self.strikes()
        if kind != "fail":
            yield kind
        if kind in ("fail", "fail after", "partial"):
            raise StorageError(f"cannot write {path}: injected")

    def strikes(self) -> str:
        """The fault of the write that is to be done now."""
        number, self.count = self.count, self.count + self.is_armed
        if not self.is_armed or number != self.at:
            return ""
        self.has_struck = True
        if self.kind == "delayed":
            self.is_armed = False
            self.between()
            self.is_armed = True
        return self.kind


def part_of(data: bytes, kind: str) -> bytes:
    return data[: len(data) // 2] if kind in ("partial", "torn") else data


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A lake whose index has three versions, and whose files have changed since."""
    root = tmp_path_factory.mktemp("faults") / "lake"
    root.mkdir()
    for number in range(4):
        write(root / f"f{number}.parquet", range(number * 100, number * 100 + 40))
    zb.build_index(root, "k", rows_per_zone=10, kind="both", workers=1, index=root / "_zonebloom")
    write(root / "g.parquet", range(1000, 1040))
    zb.open_index(root).refresh(workers=1)
    write(root / "h.parquet", range(2000, 2040))
    zb.open_index(root).refresh(workers=1)
    write(root / "f0.parquet", range(3000, 3040), extra=1)
    (root / "f1.parquet").unlink()
    write(root / "i.parquet", range(4000, 4040))
    write(root / "j.parquet", range(5000, 5040))
    return root


ELSEWHERE = ("build", "build in steps")
OPERATIONS: dict[str, Callable[[Path], object]] = {
    "build": lambda root: zb.build_index(root, ["k", "s"], rows_per_zone=10, index=root / "_other", workers=1),
    "build in steps": lambda root: zb.build_index(
        root, "k", rows_per_zone=10, index=root / "_other", kind="both", commit_every=80, workers=1
    ),
    "build of another column": lambda root: zb.build_index(
        root, "s", rows_per_zone=10, workers=1, overwrite=True, kind="locator"
    ),
    "refresh": lambda root: zb.open_index(root).refresh(workers=1),
    "refresh in steps": lambda root: zb.open_index(root).refresh(workers=1, commit_every=40),
    "quick refresh": lambda root: zb.open_index(root).refresh("quick"),
    "full refresh": lambda root: zb.open_index(root).refresh("full", rows_per_zone=20, workers=1),
    "optimize": lambda root: zb.open_index(root).optimize(),
    "vacuum": lambda root: zb.open_index(root).vacuum(older_than=timedelta(0)),
    "restore": lambda root: zb.open_index(root).restore(list_versions(LocalStore(root / "_zonebloom"))[0]),
}


def finish(root: Path, name: str) -> None:
    """What was begun comes to its end, without help, and all that is unknown is indexed."""
    if name in ("vacuum", "optimize"):
        OPERATIONS["refresh"](root)  # they refuse while the current version is damaged
    try:
        OPERATIONS[name](root)
    except zb.errors.IndexExistsError:
        assert name in ELSEWHERE
    for place in (root / "_other", root) if name in ELSEWHERE else (root,):
        assert zb.open_index(place).refresh(check=True, workers=1).unreadable == ()
        assert_every_row_is_found(root, zb.open_index(place), is_fresh=True)


@pytest.mark.parametrize("name", some(OPERATIONS, 2))
def test_a_write_that_goes_wrong_loses_nothing(template, tmp_path, name, figure):
    operation = OPERATIONS[name]
    numbers = itertools.count()
    root = tmp_path / "lake"
    injected = raised = 0

    def another_writer() -> None:
        path = f"z{next(numbers)}.parquet"
        write(root / path, range(9000, 9010))
        zb.open_index(root).refresh(paths=[path], workers=1)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of what is damaged
        shutil.copytree(template, root)
        with Faults().installed() as faults:
            operation(root)
        num_writes = faults.count
        assert num_writes
        shutil.rmtree(root)
        each = 5 if num_writes < 10 else 19  # neither divides the number of kinds, so all kinds take part
        for at, kind in some(itertools.product(range(num_writes), FAULTS), each=each):
            shutil.copytree(template, root)
            before = list_versions(LocalStore(root / "_zonebloom"))[-1]
            files = {*root.rglob("*")}
            expected = (StorageError, ConcurrentCommitError, *([CorruptIndexError] if kind == "torn" else []))
            with Faults(at, kind, another_writer).installed() as faults:
                try:
                    operation(root)
                except expected:
                    raised += 1
            assert faults.has_struck, (at, kind)
            assert {*root.rglob("*")} == files or (name, kind) != ("optimize", "fail"), at
            injected += 1
            assert list_versions(LocalStore(root / "_zonebloom"))[-1] >= before
            index = zb.open_index(root)
            assert_every_row_is_found(root, index)
            if kind not in ("partial", "torn"):
                assert not index._snapshot.damage, (at, kind)
                assert not index._snapshot.damaged_segments, (at, kind)
            if list_versions(LocalStore(root / "_other")):
                with contextlib.suppress(zb.errors.CorruptIndexError):  # its only version may be torn
                    assert_every_row_is_found(root, zb.open_index(root / "_other"))
            finish(root, name)
            shutil.rmtree(root)
    assert raised < injected
    figure(f"faults in {name}: {injected} injected at {num_writes} writes, {raised} raised, 0 rows lost")
