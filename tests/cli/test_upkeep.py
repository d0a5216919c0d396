"""The commands that keep an index: refresh, versions, restore, vacuum, optimize."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture
def lake(tmp_path, run):
    for number in range(3):
        pq.write_table(pa.table({"k": range(number * 100, number * 100 + 100)}), tmp_path / f"{number}.parquet")
    assert run("build", tmp_path, "--column", "k", "--rows-per-zone", 10).code == 0
    return tmp_path


def test_refresh_adds_and_drops_what_changed(lake, run):
    (lake / "0.parquet").unlink()
    pq.write_table(pa.table({"k": [7777]}), lake / "3.parquet")
    done = run("refresh", lake, "--format", "json").document
    assert (done["num_files_added"], done["num_files_dropped"], done["num_files_kept"]) == (1, 1, 2)
    found = run("search", lake, "--where", "k = 7777", "--format", "json").document
    assert (found["files"], found["reasons"]) == (["3.parquet"], [])
    again = run("refresh", lake)
    assert again.out.startswith("version 2: 0 files added, 0 dropped, 3 kept")


def test_an_unknown_mode_is_the_callers_mistake(lake, run):
    done = run("refresh", lake, "--mode", "sideways")
    assert done.code == 2
    assert "'incremental', 'quick', 'full'" in done.err
    assert len(done.err.splitlines()) == 1


def test_versions_restore_and_vacuum(lake, run):
    pq.write_table(pa.table({"k": [7777]}), lake / "3.parquet")
    assert run("refresh", lake).code == 0
    assert run("restore", lake, 1).out == "version 3\n"
    listed = run("versions", lake, "--format", "json").document
    assert [(one["number"], one["operation"]) for one in listed] == [(1, "build"), (2, "refresh"), (3, "restore")]
    looked = run("vacuum", lake, "--older-than", 0, "--dry-run", "--format", "json").document
    assert looked["versions"] == [1, 2]
    assert run("vacuum", lake, "--older-than", 0).out.startswith("removed 2 versions")
    assert len(run("versions", lake, "--format", "json").document) == 1
    assert run("restore", lake, 1).code == 2
    assert run("scan", lake, "--where", "k = 7777").out == "k\n7777\n"


def test_optimize_has_nothing_to_do_for_one_small_segment(lake, run):
    assert run("optimize", lake).code == 0
    assert run("optimize", lake).out.startswith("nothing to do")
