"""The commands that keep an index: refresh, versions, restore, vacuum, optimize, delete."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import index_of


@pytest.fixture
def lake(tmp_path, run):
    """Files in the folders day=0 to day=2."""
    for number in range(3):
        (tmp_path / f"day={number}").mkdir()
        write(tmp_path / f"day={number}/a.parquet", range(number * 100, number * 100 + 100))
    assert run("build", tmp_path, "--column", "k", "--rows-per-zone", 10).code == 0
    return tmp_path


def write(path, keys):
    pq.write_table(pa.table({"k": pa.array(keys, pa.int64())}), path)


def test_refresh_adds_and_drops_what_changed(lake, run):
    (lake / "day=0/a.parquet").unlink()
    write(lake / "day=1/b.parquet", [7777])
    assert run("search", lake, "--where", "k = 7777", "--strict").code == 1
    assert run("refresh", lake, "--partition", "day=2").out.startswith("version 1: 0 files added, 0 dropped, 1 kept")
    done = run("refresh", lake, "--format", "json").document
    assert (done["num_files_added"], done["num_files_dropped"], done["num_files_kept"]) == (1, 1, 2)
    document = run("search", lake, "--where", "k = 7777", "--strict", "--format", "json").document
    assert (document["files"], document["reasons"]) == (["day=1/b.parquet"], [])
    again = run("refresh", lake)
    assert again.out.startswith("version 2: 0 files added, 0 dropped, 3 kept; 0 zones added, ")
    new = run("refresh", lake, "--mode", "full", "--rows-per-zone", 50, "--kind", "both")
    assert new.out.startswith("version 3: 3 files added, 3 dropped, 0 kept; 5 zones added, 5 in the index")
    assert run("status", lake, "--format", "json").document["columns"][0]["kind"] == "both"


def test_a_delete_asks_first_and_leaves_what_others_wrote(lake, run):
    for answer in (b"n\n", b""):
        done = run("delete", lake, stdin=answer)
        assert (done.code, done.err.endswith("zonebloom: stopped\n")) == (1, True)
    assert (index_of(lake) / "versions").exists()
    (index_of(lake) / "README").write_text("mine")
    assert run("delete", lake, "--yes").code == 0
    assert [path.name for path in index_of(lake).rglob("*")] == ["README"]
