"""An erasure that is killed at any step: each file is old or new, and the same call goes on, with a true record."""

from __future__ import annotations

import json
import signal
from contextlib import closing

import pyarrow.parquet as pq

import zonebloom as zb
from tests.depth import at_depth
from tests.lives import hundreds, lake_of, rows_of
from zonebloom.erasing.journal import Journal

KEYS = range(300)
GONE = [7, 107, 207]


def lake(folder):
    folder.mkdir()
    root = lake_of(folder, *hundreds(3))
    (root / ".f1.parquet.crc").write_bytes(b"of the old file")
    zb.build_index(root, "k", rows_per_zone=10, workers=1)
    return root


def assert_files_are_old_or_new(root) -> None:
    for number in range(3):
        keys = pq.ParquetFile(root / f"f{number}.parquet").read()["k"].to_pylist()  # read_table opens a file twice
        old = list(range(100 * number, 100 * number + 100))
        assert keys in (old, [key for key in old if key not in GONE])
        assert number != 1 or keys == old or not (root / ".f1.parquet.crc").exists()


def assert_record_is_whole(root, record) -> None:
    document = json.loads(record.read_text())
    assert (document["num_rows_erased"], document["num_rows_left"], document["num_values"]) == (3, 0, 3)
    assert [file["path"] for file in document["files"]] == [f"f{number}.parquet" for number in range(3)]
    for file in document["files"]:
        assert file["bytes_after"] == (root / file["path"]).stat().st_size
    assert document["removed"] == [".f1.parquet.crc"]
    assert document["index_versions"][0] == 1
    assert rows_of(root) == [key for key in KEYS if key not in GONE]
    assert {path.name for path in record.parent.iterdir()} == {"lake", "_lake.zonebloom", record.name}
    assert all(path.suffix == ".parquet" for path in root.iterdir())
    index = zb.open_index(root)
    assert index.status().is_fresh
    assert len(index.versions()) == 1


def test_an_erasure_killed_before_each_step_goes_on(tmp_path, zygote, figure):
    """Killed before its first step, its second, and so on, each time in another lake."""
    steps = killed = 0
    while True:
        root = lake(tmp_path / str(steps))
        record = root.parent / "erased.json"
        code = zygote.wait(zygote.fork("erase", root, record=str(record), steps=steps))
        if not code:
            break
        assert code == -signal.SIGKILL
        killed += 1
        assert_files_are_old_or_new(root)
        if not record.exists():  # the last step removes the journal
            assert zb.erase(root, "k", GONE, record=record).num_rows_left == 0
            assert_record_is_whole(root, record)
        steps += at_depth(1, 4)
    assert_record_is_whole(root, record)
    assert killed > at_depth(30, 7)
    figure(f"erasures killed before a step: {killed}; all went on, with a true record")


def test_an_erasure_killed_again_and_again_goes_on(tmp_path, zygote):
    """Killed before every fourth step of what is left, until one call is done."""
    root = lake(tmp_path / "a")
    record = root.parent / "erased.json"
    while zygote.wait(zygote.fork("erase", root, record=str(record), steps=12)):
        assert_files_are_old_or_new(root)
    assert_record_is_whole(root, record)


def test_a_step_that_is_taken_back_is_not_in_the_journal_of_the_next_call(tmp_path):
    """The last one takes the file with it."""
    record, request = (
        tmp_path / "erased.json",
        {"dataset": ["lake"], "column": "k", "num_values": 0, "values_sha256": ""},
    )
    with closing(Journal(record, request)) as journal:
        journal.add("held", [1])
        journal.add("held", [2])
        journal.take_back()
        journal.add("removed", ["é"])
    with closing(Journal(record, request)) as journal:
        assert ([*journal.all("held")], journal.last("removed")) == ([[1]], ["é"])
        journal.take_back()
        journal.take_back()
        assert not [*tmp_path.iterdir()]
        journal.add("held", [3])
    with closing(Journal(record, request)) as journal:
        assert [*journal.all("held")] == [[3]]
