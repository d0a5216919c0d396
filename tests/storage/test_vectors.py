"""The golden files of `tests/vectors` hold: this code does what they say to implementers elsewhere.

Oracle: the files, of which hashes, filters and sizes were made by plain Python.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash

import zonebloom as zb
from tests.bloom.test_hashing import INPUTS, make
from tests.vectors.make import WRITTEN
from zonebloom.bloom.hashing import hash_array
from zonebloom.bloom.kernels.sbbf import filter_insert
from zonebloom.bloom.sizing import num_blocks_for
from zonebloom.errors import CorruptIndexError, UnsupportedFormatError

VECTORS = Path(__file__).parents[1] / "vectors"


def read(name: str) -> Any:
    return json.loads((VECTORS / f"{name}.json").read_text("utf-8"))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A copy of the lake with its index beside it; its files are as old as the index knows them."""
    for name in ("lake", "_lake.zonebloom"):
        shutil.copytree(VECTORS / name, tmp_path / name)
    for path in (tmp_path / "lake").iterdir():
        os.utime(path, ns=(WRITTEN, WRITTEN))
    return tmp_path / "lake"


def test_hashes() -> None:
    golden = {row["type"]: row["values"] for row in read("hashes")}
    assert golden.keys() == {str(kind) for kind in INPUTS}
    for kind, (values, _) in INPUTS.items():
        wanted = [int(row["xxh64"], 16) for row in golden[str(kind)]]
        assert hash_array(make(values, kind)).tolist() == wanted, kind
        assert [xxhash.xxh64_intdigest(bytes.fromhex(row["input"])) for row in golden[str(kind)]] == wanted


def test_filters() -> None:
    for row in read("filters"):
        blocks = np.zeros((row["num_blocks"], 8), np.uint32)
        filter_insert(blocks, hash_array(make(list(range(row["num_keys"])), pa.int64())))
        assert blocks.astype("<u4").tobytes().hex() == row["bitset"]


def test_sizes() -> None:
    for row in read("sizes"):
        assert num_blocks_for(row["ndv"], row["fpp"], "exact") == row["exact"]


def test_the_index_gives_its_answers(lake: Path) -> None:
    index = zb.open_index(lake)
    assert index.status().is_fresh
    assert index.verify(sample=1.0).is_sound
    for where, answer in read("answers").items():
        assert index.search(where).to_dict()["row_ranges"] == answer["ranges"], where
        assert index.to_table(where)["id"].to_pylist() == answer["ids"], where


@pytest.mark.parametrize(
    "damage", json.loads((VECTORS / "malformed" / "files.json").read_text("utf-8")), ids=lambda case: case["file"]
)
def test_a_malformed_file_is_refused_or_costs_no_row(lake: Path, damage: dict[str, str]) -> None:
    shutil.copyfile(VECTORS / "malformed" / damage["file"], lake.with_name("_lake.zonebloom") / damage["instead of"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of what is damaged
        try:
            index = zb.open_index(lake)
        except (CorruptIndexError, UnsupportedFormatError):
            assert damage["instead of"].startswith("versions/")
            return
        for where, answer in read("answers").items():
            assert index.to_table(where)["id"].to_pylist() == answer["ids"], where
        assert not index.verify().is_sound
