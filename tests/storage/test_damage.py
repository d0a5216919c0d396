"""Bytes on disk: damage of any kind is found, said, and loses no row; what cannot be written is not half there.

Oracle: the rows as written.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import shutil
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.child import run_python
from tests.conftest import flip, index_of
from tests.depth import some
from zonebloom.errors import CorruptIndexError, StorageError, UnsupportedFormatError, ZoneBloomError
from zonebloom.storage.manifest import FORMAT_VERSION, list_versions, read_version
from zonebloom.stores import local as local_store
from zonebloom.stores.local import LocalStore

ROWS = 60
VALUES = [None if number % 9 == 0 else number for number in range(ROWS)]


@pytest.fixture
def root(tmp_path) -> Path:
    """A lake of two files with an index of 20 small zones, in one segment."""
    for number in range(2):
        part = pa.array(VALUES[number * 30 : number * 30 + 30], pa.int64())
        pq.write_table(pa.table({"c": part}), tmp_path / f"part-{number}.parquet")
    zb.build_index(tmp_path, "c", rows_per_zone=3, fpp=0.01, workers=1)
    return tmp_path


def check_honest(root: Path) -> None:
    """Whatever the damage: an error of ours, or an index that warns, says why, and finds every row."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            index = zb.open_index(root)
        except (CorruptIndexError, UnsupportedFormatError):
            return
        result = index.search("c = 31")
        assert index.to_table("c = 31")["c"].to_pylist() == [31]
        assert index.to_table("c IS NULL").num_rows == sum(value is None for value in VALUES)
        assert index.to_table("c IN (2, 58, 1000)")["c"].to_pylist() == [2, 58]
        assert index.exists("c", [2, 58]).to_pylist() == [True, True]
        assert index.exists("c", [2, 9999], exact=True).to_pylist() == [True, False]
    if result.num_rows_kept > 3:
        assert {reason.code for reason in result.reasons} & {"SEGMENT_CORRUPT", "FORMAT_TOO_NEW"}
        assert any(issubclass(warning.category, RuntimeWarning) for warning in caught)


def names_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def files_of(root: Path, kind: str) -> Path:
    (path,) = (index_of(root) / kind).rglob("*.*")
    return path


@pytest.mark.parametrize("kind", ["columns", "fragments", "versions"])
def test_every_truncation_of_an_index_file_is_rejected(root, kind):
    """Every length below the whole: never accepted, never a crash, never a lost row."""
    path = files_of(root, kind)
    data = path.read_bytes()
    step = 1 if len(data) < 1500 else len(data) // 150
    for length in [*some(range(0, len(data) - 1, step), each=8), len(data) - 1]:
        path.write_bytes(data[:length])
        check_honest(root)
        with warnings.catch_warnings(action="ignore"), pytest.raises(CorruptIndexError):
            zb.open_index(root).zone_table("c")
    path.write_bytes(data)
    assert len(zb.open_index(root).zone_table("c")) == 20


@pytest.mark.parametrize("kind", ["columns", "fragments", "versions"])
def test_a_flip_at_every_tenth_byte_is_found(root, kind):
    path = files_of(root, kind)
    data = path.read_bytes()
    for position in some(range(0, len(data), 10), each=11):
        path.write_bytes(data)
        flip(path, position, position // 10 % 8)
        check_honest(root)


def test_a_flip_in_one_batch_costs_only_its_rows(tmp_path):
    """The other batches of the segment are still used."""
    pq.write_table(pa.table({"c": range(4000)}), tmp_path / "a.parquet")
    index = zb.build_index(tmp_path, "c", rows_per_zone=1, workers=1, optimize=False)
    entry = read_version(LocalStore(index.root), 1).columns[0].segments[0]
    assert len(entry.spans) == 6
    flip(index.root / entry.path, entry.spans[0].num_bytes + entry.spans[1].num_bytes + 50_000, 2)
    with pytest.warns(RuntimeWarning, match="span 2 of segment"):
        result = zb.open_index(tmp_path).search("c = 7")
    assert 1024 < result.num_rows_kept < 1024 + 200
    assert [reason.code for reason in result.reasons] == ["SEGMENT_CORRUPT"]


@pytest.mark.parametrize("is_longer", [False, True])
@pytest.mark.parametrize("kind", ["columns", "fragments"])
def test_a_missing_or_longer_file_of_the_index_keeps_everything(root, kind, is_longer):
    path = files_of(root, kind)
    data = path.read_bytes()
    path.unlink()
    if is_longer:
        path.write_bytes(data + bytes(8))
    with pytest.warns(RuntimeWarning, match="must have|must hold|must be" if is_longer else "must exist"):
        result = zb.open_index(root).search("c = 31")
    assert result.num_rows_kept == ROWS
    assert "SEGMENT_CORRUPT" in {reason.code for reason in result.reasons}
    check_honest(root)


# --- versions -------------------------------------------------------------------------------------------------------


def from_the_future(root: Path, number: int) -> None:
    versions = index_of(root) / "versions"
    document = json.loads((versions / f"{1:020d}.json").read_text())
    document |= {"format_version": FORMAT_VERSION + 1, "body": {"what": ["a", "later", "format", "holds"]}}
    (versions / f"{number:020d}.json").write_text(json.dumps(document))


def test_a_version_from_the_future_keeps_everything_and_says_so(root):
    from_the_future(root, 2)
    with pytest.warns(RuntimeWarning, match="a newer zonebloom wrote it"):
        index = zb.open_index(root)
    assert index.version == 2
    result = index.search("c = 31")
    assert result.num_rows_kept == ROWS
    assert "FORMAT_TOO_NEW" in {reason.code for reason in result.reasons}
    assert index.to_table("c = 31").num_rows == 1


def test_an_index_with_only_a_version_from_the_future_does_not_open(root):
    from_the_future(root, 1)
    with pytest.raises(UnsupportedFormatError, match=r"format_version <= 2, got 3; .*upgrade"):
        zb.open_index(root)


def test_nothing_is_built_on_a_version_from_the_future(root):
    from_the_future(root, 2)
    before = sorted(index_of(root).rglob("*"))
    for change in (lambda: zb.build_index(root, "c", overwrite=True), lambda: zb.open_index(root).refresh()):
        with pytest.warns(RuntimeWarning), pytest.raises(UnsupportedFormatError):
            change()
    assert sorted(index_of(root).rglob("*")) == before


GARBAGE = [
    *("", "{}", "[]", "null", "5", '"x"', "{", '{"format": "zonebloom"}', '{"format": "other"}', "\xff"),
    *("[" * 100_000, "[" * 10**6, '{"a":' * 10**5, "9" * 10**6, "1e999999"),
    '{"format": "zonebloom", "format_version": "1", "body": {}, "checksum": ""}',
    '{"format": "zonebloom", "format_version": null, "body": null, "checksum": null}',
]


@pytest.mark.parametrize("text", GARBAGE, ids=lambda text: text[:40])
def test_garbage_is_no_version(root, text):
    path = index_of(root) / "versions" / f"{2:020d}.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(CorruptIndexError, match=r"0002\.json must"):
        zb.open_index(root, version=2)
    check_honest(root)


def test_other_files_among_the_versions_are_ignored(root):
    versions = index_of(root) / "versions"
    for name in (".00000000000000000009.json.0a1b", "9.json", "00000000000000000009.json.tmp", "README"):
        (versions / name).write_text("not a version")
    (versions / f"{9:020d}.json").mkdir()
    assert list_versions(LocalStore(index_of(root))) == [1]
    assert zb.open_index(root).version == 1


def test_a_build_after_a_damaged_version_starts_a_sound_one(root):
    """The highest number is taken by a file that cannot be read: the next one heals the index."""
    (index_of(root) / "versions" / f"{2:020d}.json").write_text("{")
    with pytest.warns(RuntimeWarning):
        zb.build_index(root, "c", rows_per_zone=3, overwrite=True)
    index = zb.open_index(root)
    assert index.version == 3
    assert index.search("c = 31").num_rows_kept == 3
    assert index.to_table("c IS NULL").num_rows == sum(value is None for value in VALUES)


def test_threads_share_a_store_of_more_files_than_stay_open(tmp_path):
    store, names = LocalStore(tmp_path), [str(number) for number in range(300)]
    for name in names:
        (tmp_path / name).write_text(name)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    with contextlib.ExitStack() as stack:
        stack.callback(sys.setswitchinterval, interval)
        pool = stack.enter_context(ThreadPoolExecutor(8))
        entries = list(pool.map(lambda name: store.read_ranges(name, [(0, 9)]), names * 20))
    assert entries == [[name.encode()] for name in names * 20]


def no_links(*_paths):
    """What a file system without hard links answers; mounting one takes rights that a test does not have."""
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def test_without_hard_links_one_of_many_writers_commits_and_what_it_wrote_is_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", no_links)
    for number in range(50):
        path, parts = f"versions/{number}.json", [bytes([writer]) * 100_000 for writer in range(4)]
        barrier = threading.Barrier(len(parts))

        def create(data, path=path, barrier=barrier):
            barrier.wait()
            return LocalStore(tmp_path).create(path, data)

        with ThreadPoolExecutor(len(parts)) as pool:
            won = list(pool.map(create, parts))
        assert won.count(True) == 1
        assert LocalStore(tmp_path).read(path) == parts[won.index(True)]
    assert len(names_in(tmp_path / "versions")) == 50


def test_a_file_system_that_can_only_overwrite_is_refused_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", no_links)
    monkeypatch.setattr(local_store, "_renamed", lambda *_paths: errno.EINVAL)
    with pytest.raises(StorageError, match=r"make hard links, or rename without replacing.*; keep the index else"):
        LocalStore(tmp_path).create("versions/1.json", b"first")
    assert names_in(tmp_path / "versions") == []


# --- no permission, no space ----------------------------------------------------------------------------------------

DROP_PRIVILEGES = "import os; os.getuid() or (os.setgid(65534), os.setuid(65534))"
BUILD = f"""
import sys, zonebloom as zb
lake, warm, *places = sys.argv[1:]
warmed = zb.build_index(lake, "device_id", rows_per_zone=64, index=warm)  # all modules and kernels are loaded now
warmed.to_table("device_id = 1")
{DROP_PRIVILEGES}
for place in places:
    try:
        zb.build_index(lake, "user_id", rows_per_zone=64, index=place)
    except zb.ZoneBloomError as error:
        print(type(error).__name__, error)
"""


def in_child(script: str, *arguments: object) -> str:
    done = run_python(script, *arguments)
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.fixture
def open_lake(flat_lake):
    """A lake that another user can reach and read, but not write."""
    for folder in (flat_lake.root, *flat_lake.root.parents):
        if folder.stat().st_uid == os.getuid() and folder != Path(folder.anchor):
            folder.chmod(folder.stat().st_mode | 0o055)
    flat_lake.root.chmod(0o555)
    yield flat_lake
    flat_lake.root.chmod(0o755)


def test_no_write_permission(open_lake, tmp_path):
    """Beside the data; and where segments could be written, the commit not: what was there still answers."""
    beside = index_of(open_lake.root)
    index = zb.build_index(open_lake.root, "device_id", rows_per_zone=64, index=tmp_path / "index")
    for folder in (index.root, index.root / "columns", index.root / "fragments"):
        folder.chmod(0o777)
    (index.root / "versions").chmod(0o555)
    refused = in_child(BUILD, open_lake.root, tmp_path / "warm", beside, index.root).splitlines()
    for place, message in zip((beside, index.root / "versions"), refused, strict=True):
        assert message.startswith(f"StorageError cannot write {place}")
        assert "Permission denied; grant access; an index can also be elsewhere, by index=" in message
    assert names_in(open_lake.root) == list(open_lake.files)
    again = zb.open_index(index.root)
    assert (again.version, again.columns) == (1, ["device_id"])
    assert again.verify(sample=1.0).is_sound


def test_an_index_that_may_only_be_read(open_lake, tmp_path):
    """It answers, of new files too; what would change it is refused, and changes nothing."""
    index = zb.build_index(open_lake.root, "user_id", rows_per_zone=64, kind="both")
    for name in ("known.parquet", "new.parquet"):
        index.refresh()
        shutil.copy(open_lake.root / open_lake.files[0], open_lake.root / name)
    for path in (index.root, *index.root.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    script = """
import sys, datetime, zonebloom as zb
warmed = zb.build_index(sys.argv[1], "user_id", kind="both", index=sys.argv[2])
warmed.refresh("full")
warmed.verify(sample=1.0)
warmed.to_table("user_id IS NULL")
{before}
index = zb.open_index(sys.argv[1])
key = index.to_table("amount IS NOT NULL", columns=["user_id"], limit=1)["user_id"][0]
print(index.to_table(zb.col("user_id") == key).num_rows, index.verify(sample=1.0).is_sound)
for change in (
    index.refresh,
    lambda: index.refresh("full"),
    lambda: index.restore(1),
    lambda: index.vacuum(older_than=datetime.timedelta(0)),
    lambda: zb.delete_index(sys.argv[1]),
):
    try:
        print(change())
    except zb.ZoneBloomError as error:
        print(type(error).__name__)
print(zb.open_index(sys.argv[1]).to_table(zb.col("user_id") == key).num_rows)
"""
    printed = in_child(script.format(before=DROP_PRIVILEGES), open_lake.root, tmp_path / "warm")
    first, *refused, last = printed.splitlines()
    assert (first, last) == ("3 True", "3")
    assert refused == ["StorageError"] * 5
    for path in (index.root, *index.root.rglob("*")):
        path.chmod(0o755)


def test_no_read_permission(open_lake):
    """A data file that this user may not read is kept by a search, and an error of a scan."""
    open_lake.root.chmod(0o755)
    zb.build_index(open_lake.root, "user_id", rows_per_zone=64)
    script = """
import sys, zonebloom as zb
index = zb.open_index(sys.argv[1])
index.to_table("amount > -1e9")
{before}
print(index.search("user_id = 'nobody'").num_rows_kept)
try:
    index.to_table("amount > -1e9")
except zb.ZoneBloomError as error:
    print(type(error).__name__, error)
"""
    (open_lake.root / open_lake.files[1]).chmod(0o000)
    out = in_child(script.format(before=DROP_PRIVILEGES), open_lake.root).splitlines()
    assert out[0] == "0"
    assert out[1].startswith("DataFileError data file ")
    assert "Permission denied" in out[1]


def test_folders_that_this_user_may_not_read_are_told(tmp_path):
    """Also behind names that are no data, and a table's log, without which removed rows would be read."""
    for path in ("lake/d=1", "lake/d=2", "private/inner", "delta/_delta_log"):
        (tmp_path / path).mkdir(parents=True)
        pq.write_table(pa.table({"k": [1, 2]}), tmp_path / path / "a.parquet")
    for name, target in ((".hidden", tmp_path / "private/inner"), (".loop", ".loop")):
        (tmp_path / "lake" / name).symlink_to(target)
    files = [tmp_path / "lake" / path for path in ("d=1/a.parquet", "d=2/a.parquet")]
    zb.build_index(files, "k", index=tmp_path / "index")
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    for path in ("private", "delta/_delta_log"):
        (tmp_path / path).chmod(0o700)
    script = """
import sys, os, zonebloom as zb
root, before = sys.argv[1], sys.argv[2]
index = zb.build_index(f"{root}/lake", "k")
assert index.to_table("k = 1").num_rows == 2
os.chmod(f"{root}/lake/d=2", 0o700)
exec(before)
for refused in (
    lambda: index.refresh(paths=["d=2/a.parquet"]),
    lambda: zb.open_index(f"{root}/index").to_table("k = 1"),
    lambda: zb.build_index(f"{root}/delta", "k", index=f"{root}/index"),
):
    try:
        print(refused())
    except zb.errors.DataFileError as error:
        print(error)
"""
    refused = in_child(script, tmp_path, DROP_PRIVILEGES).splitlines()
    for path, told in zip(("lake/d=2", "lake/d=2", "delta/_delta_log"), refused, strict=True):
        assert str(tmp_path / path) in told
        assert told.endswith("got Permission denied")


def test_an_index_folder_that_cannot_be_made(flat_lake, tmp_path):
    (tmp_path / "file").write_text("in the way")
    for place in (tmp_path / "file" / "index", Path("/proc/zonebloom"), Path("/dev/null/index")):
        with pytest.raises(StorageError, match=r"cannot (write|list|read) "):
            zb.build_index(flat_lake.root, "user_id", index=place)


@contextlib.contextmanager
def full_after(num_bytes: int) -> Iterator[None]:
    """Writes end after so many bytes of a file, as on a disk that is full; Python would leave its own cut off."""
    is_without, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        sys.dont_write_bytecode = is_without


def test_a_full_disk_commits_nothing(flat_lake, tmp_path):
    zb.build_index(flat_lake.root, "user_id", rows_per_zone=64)  # all kernels are loaded now
    for limit in (20_000, 100, 0):
        with full_after(limit), pytest.raises(StorageError, match=r"cannot write .*File too large"):
            zb.build_index(flat_lake.root, "user_id", rows_per_zone=64, index=tmp_path / "index")
        assert not [path for path in (tmp_path / "index").glob("versions/*") if path.is_file()]
        with pytest.raises(ZoneBloomError):
            zb.open_index(tmp_path / "index")


def test_an_output_for_which_there_is_no_space_replaces_nothing(flat_lake, tmp_path, run):
    zb.build_index(flat_lake.root, "user_id")
    written = tmp_path / "written"
    written.mkdir()
    (written / "yesterday.html").write_text("kept")
    export = "lance", "export", flat_lake.root, "--column", "user_id", "-o", written / "out.arrow"
    for command in (export, ("report", flat_lake.root, "-o", written / "yesterday.html", "--overwrite")):
        with full_after(1000):
            done = run(*command)
        assert (done.code, done.err.count("\n"), done.err.startswith("zonebloom: cannot write")) == (1, 1, True)
    assert {path.name: path.read_text() for path in written.iterdir()} == {"yesterday.html": "kept"}
