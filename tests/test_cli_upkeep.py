"""The commands that keep an index: refresh, versions, restore, vacuum, optimize."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


def zonebloom(*arguments):
    command = [sys.executable, "-c", "from zonebloom.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.fixture
def lake(tmp_path):
    for number in range(3):
        pq.write_table(pa.table({"k": range(number * 100, number * 100 + 100)}), tmp_path / f"{number}.parquet")
    assert zonebloom("build", tmp_path, "--column", "k", "--rows-per-zone", 10).returncode == 0
    return tmp_path


def test_refresh_adds_and_drops_what_changed(lake):
    (lake / "0.parquet").unlink()
    pq.write_table(pa.table({"k": [7777]}), lake / "3.parquet")
    done = json.loads(zonebloom("refresh", lake, "--format", "json").stdout)
    assert (done["num_files_added"], done["num_files_dropped"], done["num_files_kept"]) == (1, 1, 2)
    found = json.loads(zonebloom("search", lake, "--where", "k = 7777", "--format", "json").stdout)
    assert (found["files"], found["reasons"]) == (["3.parquet"], [])
    again = zonebloom("refresh", lake)
    assert again.stdout.startswith("version 2: 0 files added, 0 dropped, 3 kept")


def test_an_unknown_mode_is_the_callers_mistake(lake):
    done = zonebloom("refresh", lake, "--mode", "sideways")
    assert done.returncode == 2
    assert "'incremental', 'quick', 'full'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_versions_restore_and_vacuum(lake):
    pq.write_table(pa.table({"k": [7777]}), lake / "3.parquet")
    assert zonebloom("refresh", lake).returncode == 0
    assert zonebloom("restore", lake, 1).stdout == "version 3\n"
    listed = json.loads(zonebloom("versions", lake, "--format", "json").stdout)
    assert [(one["number"], one["operation"]) for one in listed] == [(1, "build"), (2, "refresh"), (3, "restore")]
    looked = json.loads(zonebloom("vacuum", lake, "--older-than", 0, "--dry-run", "--format", "json").stdout)
    assert looked["versions"] == [1, 2]
    assert zonebloom("vacuum", lake, "--older-than", 0).stdout.startswith("removed 2 versions")
    assert len(json.loads(zonebloom("versions", lake, "--format", "json").stdout)) == 1
    assert zonebloom("restore", lake, 1).returncode == 2
    assert zonebloom("scan", lake, "--where", "k = 7777").stdout == "k\n7777\n"


def test_optimize_has_nothing_to_do_for_one_small_segment(lake):
    assert zonebloom("optimize", lake).returncode == 0
    assert zonebloom("optimize", lake).stdout.startswith("nothing to do")
