"""Systems that lack calls of Linux: a process without them builds, searches, refreshes, optimizes and erases."""

from __future__ import annotations

import pytest

from tests.child import run_python

TAKE_AWAY = """
import ctypes, errno, mmap, os, sys
for name in ("pread", "preadv", "pwrite", "pwritev", "posix_fadvise", "fchmod", "fchown", "chown", "sched_getaffinity"):
    delattr(os, name)
for name in ("O_DIRECT", "O_DIRECTORY", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"):
    delattr(os, name)
for name in [name for name in dir(mmap) if name.startswith(("MADV", "MAP_"))]:
    delattr(mmap, name)
sys.modules["fcntl"] = None
"""
LIFE = """
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
import zonebloom

folder = Path(sys.argv[1])
def write(name, start):
    pq.write_table(pa.table({"key": range(start, start + 5000), "row": range(5000)}), folder / name)
def rows(*keys):
    index = zonebloom.open_index(folder)
    return sorted(index.to_table(zonebloom.col("key").isin(keys))["key"].to_pylist())

for name, start in ("a.parquet", 0), ("b.parquet", 5000):
    write(name, start)
index = zonebloom.build_index(folder, "key", kind="both", rows_per_zone=1024)
assert rows(7, 5007, 20_000) == [7, 5007]
assert index.exists("key", [7, 20_000]).to_pylist() == [True, False]
write("c.parquet", 10_000)
index.refresh()
index.optimize()
assert rows(7, 5007, 12_000) == [7, 5007, 12_000]
assert rows(*range(0, 15_000, 10)) == list(range(0, 15_000, 10))
zonebloom.erase(folder, "key", [7, 12_000], record=folder.parent / "erased.json")
assert rows(7, 5007, 12_000) == [5007]
print("lived")
"""


def test_a_life_without_the_calls_of_linux(tmp_path):
    lake = tmp_path / "lake"
    lake.mkdir()
    assert run_python(TAKE_AWAY + LIFE, lake).stdout == "lived\n"


def test_a_commit_without_hard_links_and_renameat2_says_so(tmp_path):
    code = (
        "def refused(*_):\n    raise OSError(errno.EPERM, 'Operation not permitted')\n"
        "os.link, sys.platform = refused, 'darwin'\n"
        "from zonebloom.stores.local import LocalStore\n"
        "LocalStore(sys.argv[1]).create('name', b'')\n"
    )
    with pytest.raises(AssertionError, match="the file system must make hard links, or rename without replacing"):
        run_python(TAKE_AWAY + code, tmp_path)
    assert not list(tmp_path.iterdir())
