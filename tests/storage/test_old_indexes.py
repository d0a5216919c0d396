"""Indexes of older versions are read.

Oracle: `tests/data`. `index-with-levels` is of format 1: its locators answer, its other levels are ignored and not
removed. A folder like `index-0.2.0` has the lake and the index of `tests.vectors.make` as that release wrote them.
"""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

import zonebloom as zb
from tests.vectors.make import ANSWERS, WRITTEN
from zonebloom.storage.manifest import named_paths
from zonebloom.stores.local import LocalStore

DATA = Path(__file__).parents[1] / "data"


def copied(folder: Path, tmp_path: Path) -> Path:
    """A copy of the lake with its index; its files are as old as the index knows them."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    for path in (tmp_path / "lake").iterdir():
        os.utime(path, ns=(WRITTEN, WRITTEN))
    return tmp_path / "lake"


@pytest.fixture
def lake(tmp_path):
    """Two files of 100 rows; `id` has a locator and a filter of the data set, `name` of files, `code` a locator."""
    return copied(DATA / "index-with-levels", tmp_path)


@pytest.mark.parametrize("release", sorted(folder.name for folder in DATA.glob("index-[0-9]*")))
def test_the_index_of_each_release_is_read_and_goes_on(release, tmp_path):
    lake = copied(DATA / release, tmp_path)
    for change in (None, zb.Index.optimize, lambda index: index.refresh("full", kind="locator")):
        if change is not None:
            change(zb.open_index(lake))
        index = zb.open_index(lake)
        assert index.status().is_fresh
        assert index.verify(sample=1.0).is_sound
        for where, ids in ANSWERS.items():
            assert index.to_table(where)["id"].to_pylist() == ids, where
            assert index.search(where).num_zones_kept < index.search(where).num_zones, where
        assert index.exists("id", [0, 599, 600]).to_pylist() == [True, True, False]


def assert_it_answers(index) -> None:
    answers = {"id = 150": [150], "id = 1000": [], "name = 'n 41'": [41], "code IN (7, 1393)": [1, 199]}
    for where, ids in answers.items():
        result = index.search(where)
        assert (result.reasons, result.num_zones_kept, result.num_zones) == ((), len(ids), 10), where
        assert index.to_table(where)["id"].to_pylist() == ids
    assert index.to_table("name IS NULL")["id"].to_pylist() == [0, 50, 100, 150]
    assert index.exists("id", [1, 199, 200]).to_pylist() == [True, True, False]
    assert index.locate("code", [700], exact=True).to_pylist() == [{"key_index": 0, "path": "part-1.parquet", "row": 0}]


def test_an_index_with_levels_is_read(lake):
    index = zb.open_index(lake)
    kinds = {column.name: column.kind for column in index.indexed_columns()}
    assert kinds == {"id": "both", "name": "bloom", "code": "locator"}
    assert_it_answers(index)
    assert index.status().is_fresh
    assert index.verify(sample=1.0).is_sound
    assert [version.number for version in index.versions()] == [1, 2, 3, 4]
    assert zb.open_index(lake, version=1).search("id = 5").num_zones_kept == 1


def test_a_vacuum_leaves_what_older_versions_name(lake):
    index = zb.open_index(lake)
    index.optimize()
    before = {path for path in index.root.rglob("*.*") if path.is_file()}
    assert any(path.suffix == ".sbbf" for path in before)
    for path in before:
        os.utime(path, (0, 0))
    version = max((index.root / "versions").iterdir())
    os.utime(version)
    store = LocalStore(index.root)
    assert {path for path in named_paths(store, 4) if path.endswith(".sbbf")}
    gone = index.vacuum(older_than=timedelta(days=1), dry_run=True)
    assert {path for path in gone.files if path.endswith(".sbbf")} == set(), "version 4 is younger than its successor"
    index.vacuum(older_than=timedelta(0))
    assert not list(index.root.rglob("*.sbbf"))
    assert_it_answers(zb.open_index(lake))


def test_it_is_refreshed_restored_and_made_anew(lake):
    index = zb.open_index(lake)
    assert index.refresh().version == 4, "nothing to do"
    assert index.optimize().version == 5
    assert_it_answers(zb.open_index(lake))
    assert index.restore(4) == 6
    assert_it_answers(zb.open_index(lake))
    index.refresh("full", kind="locator")
    assert {segment.kind for entry in index._snapshot.manifest.columns for segment in entry.segments} == {"locator"}
    assert_it_answers(zb.open_index(lake))
