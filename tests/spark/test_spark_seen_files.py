"""Which files of a folder, a file or a list a lake reads: those whose rows Spark's plain read has.

Oracle: the column `_metadata` of Spark's plain read.
"""

from __future__ import annotations

import pytest

import zonebloom as zb
from tests.spark.rows import escaped, plain_read, shown, url_of, write
from zonebloom.engines.spark.frames import location_of
from zonebloom.engines.spark.scan.readers import SparkReader
from zonebloom.errors import InvalidArgumentError
from zonebloom.formats import open_dataset
from zonebloom.spark import ZoneBloom

SKIPPED = ["_h", ".dot", "copied._COPYING_", "_metadata", "_common_metadata"]
"""Names of files and folders that Spark skips; `0` in place of one is a file of 0 bytes."""
FOLDERS = {
    "flat": ["a", "_k=1", "d=1.parquet", *SKIPPED, "x/b", "_x/c", ".x/c", "x._COPYING_/c", "0", "x/0"],
    "keyed": ["a", "day=1/b", "day=2/x/c", *(f"day=1/{name}" for name in SKIPPED), "day=1/_x/c", "day=3._COPYING_/c"],
    "keyed by a file of 0 bytes": ["a", "day=1/0"],
    "keyed by no file": ["a", "day=1/_h", "day=2/c._COPYING_", "_h/day=1/b"],
    "keys below": ["x/day=1/a", "x/day=x/b"],
    "keys below keys": ["day=1/x/hour=1/a", "day=1/x/hour=2/b"],
    "hidden keys": ["_day=1/a", "a", ".day=1/b"],
    "escaped": ["a%3D1/b", "ü [x] {y}*?"],
}
LISTS = {
    "flat": ["a", *SKIPPED, "x/b", "_x/c", ".x/c", "x._COPYING_/c", "_metadata_x/d", "0"],
    "keyed": ["day=1/a", "day=2/_x/b", "day=2/_h", "day=3/0"],
}


@pytest.mark.parametrize("is_folder", [True, False])
def test_the_files_of_a_lake_are_those_whose_rows_spark_reads(spark, tmp_path, is_folder):
    for name, paths in (FOLDERS if is_folder else LISTS).items():
        root = tmp_path / name
        for path in paths:
            write(root / path, {"x": [1]})
            if path.endswith("0"):
                (root / path).write_bytes(b"")
        given = root if is_folder else [str(root / path) for path in paths]
        files = SparkReader(spark, open_dataset(given)).pin()
        reader = spark.read if is_folder else spark.read.option("basePath", str(root))
        plain = reader.parquet(*(escaped(url_of(str(path))) for path in ([root] if is_folder else given)))
        rows = plain.select("_metadata.file_path").collect()
        assert sorted(map(files.absolute, files.list())) == sorted(location_of(row[0]) for row in rows), name
        assert rows or "0" in str(paths)


def test_a_frame_of_some_files_of_an_indexed_folder_is_read(spark, tmp_path):
    for number in range(4):
        write(tmp_path / f"flat/{number}.parquet", {"key": [f"k-{number}", "x"]})
        write(tmp_path / f"keyed/day={number % 2}/{number}.parquet", {"key": [f"k-{number}", "x"]})
    write(tmp_path / "flat/below/4.parquet", {"key": ["x"]})  # to Spark no file of the folder
    bloom, flat, keyed = ZoneBloom(spark), tmp_path / "flat", tmp_path / "keyed"
    for root in (flat, keyed):
        zb.build_index(root, "key")
    with_base = spark.read.option("basePath", f"{keyed}/")
    files = [f"{keyed}/day={number % 2}/{number}.parquet" for number in (1, 2)]
    for frame, num_rows, num_later in [
        (spark.read.parquet(f"{flat}/1.parquet"), 1, 1),
        (spark.read.parquet(f"{flat}/2.parquet", f"{flat}/1.parquet"), 2, 2),
        (spark.read.parquet(*(f"file:{flat}/{number}.parquet" for number in range(4))), 4, 4),
        (plain_read(spark, flat), 4, 5),
        (with_base.parquet(*files), 2, 2),
    ]:
        lake = bloom.read(frame)
        rows = shown(lake.where("key = 'x'"))
        assert (rows, len(rows)) == (shown(frame.where("key = 'x'")), num_rows)
        assert lake.plan("key = 'k-1'").result.kept.files == 1
        write(flat / "new.parquet", {"key": ["x"]})
        assert lake.where("key = 'x'").count() == num_later
        (flat / "new.parquet").unlink()
    with pytest.raises(InvalidArgumentError, match="or of files by name"):
        bloom.read(spark.read.parquet(f"{flat}/*.parquet"))
    with pytest.raises(InvalidArgumentError, match="read files in key=value folders with the option basePath"):
        bloom.read(spark.read.parquet(*files))


def test_the_index_of_a_folder_is_not_refreshed_from_some_of_its_files(any_spark, small_lake):
    some = any_spark.read.parquet(f"{small_lake}/part-1.parquet")
    with pytest.raises(InvalidArgumentError, match=r"refreshed from the folder, got a list of files.*paths="):
        ZoneBloom(any_spark).refresh_index(some)
    assert ZoneBloom(any_spark).refresh_index(plain_read(any_spark, small_lake)).num_files_dropped == 0
    assert zb.open_index(small_lake).num_fragments == 6
