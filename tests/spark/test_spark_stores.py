"""Data sets and indexes in an object store, through Spark: executors read and write there by themselves, without a JAR.

Oracles: Spark's plain read of a copy on this machine, and the library's build of the same files.
"""

from __future__ import annotations

import datetime as dt
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from deltalake import write_deltalake

import zonebloom
from tests.spark.cluster import changed
from tests.spark.rows import of_lake, of_plain_read, plain_read, shown, write
from zonebloom.engines.spark.pushdown.metadata import CHAR
from zonebloom.errors import InvalidArgumentError
from zonebloom.spark import ZoneBloom

ROWS_PER_ZONE = 64
CONDITIONS = [
    "user = 'u 77'",
    "user IN ('u 77', 'u 1203', 'nobody')",
    "user = 'nobody'",
    "user IS NULL AND amount > 0",
    "user = 'u 77' OR key = 901",
    "key = 1501 AND city = 'São Paulo'",
    "city = 'a/b' AND user = 'u 1999'",
    "amount = 36 AND key < 100",
    "user = 'new 3'",
    "user = 'u 310'",
    "amount > 30",
]


def rows(start: int, stop: int, name: str = "u") -> pa.Table:
    numbers = np.arange(start, stop)
    users = pa.array([f"{name} {number}" for number in numbers], mask=numbers % 50 == 9)
    amounts = np.where(numbers % 40 == 3, np.nan, numbers % 37)
    return pa.table({"key": pa.array(numbers, pa.int64()), "user": users, "amount": amounts})


@pytest.fixture
def copy(tmp_path) -> Path:
    """Where Spark reads the files that the bucket has."""
    root = tmp_path / "copy"
    write(root / "city=São Paulo/p 1.parquet", rows(1000, 1600), row_group_size=200)
    write(root / "city=a%2Fb/p%2.parquet", rows(1600, 2100), row_group_size=200)
    write(root / "city=__HIVE_DEFAULT_PARTITION__/p.parquet", rows(0, 700), row_group_size=200)
    return root


def test_a_lake_in_a_store_lives_as_one_on_a_disk(any_spark, s3, copy, tmp_path):
    url = s3.upload(copy, "lake é")
    zb = ZoneBloom(any_spark, storage_options=s3.options)
    index = zb.create_index(url, ["user", "key"], rows_per_zone=ROWS_PER_ZONE)
    wanted = zonebloom.build_index(copy, ["user", "key"], index=tmp_path / "wanted", rows_per_zone=ROWS_PER_ZONE)
    zones = [opened.zone_table("user").to_arrow().drop_columns("fragment_id") for opened in (index, wanted)]
    assert zones[0].equals(zones[1])
    assert any(key.startswith("_lake é.zonebloom/columns/user/") for key in s3.keys("_lake é"))

    for name, table in (("São Paulo/new", rows(0, 90, "new")), ("__HIVE_DEFAULT_PARTITION__/p", rows(300, 500))):
        write(copy / f"city={name}.parquet", table)
        s3.put(f"lake é/city={name}.parquet", (copy / f"city={name}.parquet").read_bytes())
    (copy / "city=a%2Fb/p%2.parquet").unlink()
    s3.delete("lake é/city=a%2Fb/p%2.parquet")
    lake, plain = zb.read(url.replace("s3://", "s3a://")), plain_read(any_spark, copy)  # the scheme of Hadoop
    expected, some = of_plain_read(plain, CONDITIONS), CONDITIONS[::3]
    assert of_lake(lake, CONDITIONS, "auto") == expected
    assert (lake.schema, shown(lake.toDF())) == (plain.schema, shown(plain))
    for method in ("driver", "row_ranges", "plain"):
        assert of_lake(lake, some, method) == {condition: expected[condition] for condition in some}, method
    assert lake.prepare("key = 77", method="files").method == "row_ranges"
    assert zb.refresh_index(url).num_files_added == 2
    assert zb.optimize_index(url).version == 3
    zb.vacuum_index(url)
    assert of_lake(zb.read(url), some, "auto") == {condition: expected[condition] for condition in some}
    zb.delete_index(url)
    assert not any("zonebloom" in key for key in s3.keys("lake é/"))


def test_texts_of_char_are_padded_as_spark_pads_them(spark, s3, tmp_path):
    frame = spark.sql("SELECT id, rpad(concat('x', id), 5, ' ') AS c FROM range(40)").withMetadata(
        "c", {CHAR: "char(5)"}
    )
    frame.coalesce(1).write.parquet(str(tmp_path / "copy"))
    url = s3.upload(tmp_path / "copy", "chars")
    zonebloom.build_index(url, "c", rows_per_zone=4, storage_options=s3.options)
    conditions = ["c = 'x7'", "c = 'x7   '", "c IN ('x8', 'x9  ')", "c = 'y'"]
    expected = of_plain_read(plain_read(spark, tmp_path / "copy"), conditions)
    fields = [pa.field("id", pa.int64()), pa.field("c", pa.string(), metadata={CHAR: "char(5)"})]
    table = pads.dataset(tmp_path / "copy").to_table(columns=["id", "c"]).cast(pa.schema(fields))
    write_deltalake(tmp_path / "table", table)
    zonebloom.build_index(tmp_path / "table", "c", rows_per_zone=4)
    for place in (url, tmp_path / "table"):
        for how in ("auto", "row_ranges"):
            assert of_lake(ZoneBloom(spark, storage_options=s3.options).read(place), conditions, how) == expected


def test_folders_have_the_types_that_spark_infers_as_they_are_spelled(spark, s3, tmp_path):
    """`%2B4` is no number, and `4` is one."""
    for folder in ("phone=%2B4/n=4", "phone=5/n=5%20"):
        write(tmp_path / "copy" / folder / "a.parquet", {"k": ["a", "b"]})
    url = s3.upload(tmp_path / "copy", "spelled")
    zonebloom.build_index(url, "k", storage_options=s3.options)
    lake, plain = ZoneBloom(spark, storage_options=s3.options).read(url), plain_read(spark, tmp_path / "copy")
    conditions = ["k = 'a'", "phone = '+4'", "phone = '4'", "phone = 4", "phone = '5'", "n = '5 '", "n = 5", "n = '4'"]
    assert lake.schema == plain.schema
    assert of_lake(lake, conditions, "auto") == of_plain_read(plain, conditions)


@pytest.mark.parametrize("skipped", ["sub/b.parquet", "b.parquet._COPYING_", "old/2020/b.parquet", ""])
def test_files_that_spark_skips_are_skipped_in_a_store(spark, s3, tmp_path, skipped):
    names = ("a.parquet", skipped) if skipped else ("d=1/a.parquet", "a.parquet")
    for name in names:
        write(tmp_path / "copy" / name, {"k": ["a"], "of": [name]})
    url = s3.upload(tmp_path / "copy", "skipped")
    zonebloom.build_index(url, "k", storage_options=s3.options)
    zb = ZoneBloom(spark, storage_options=s3.options)
    for frame in (zb.read(url).where("k = 'a'"), zb.read(url).toDF()):
        assert [row.of for row in frame.collect()] == [names[0]]
    assert zb.search(url, "k = 'a'").files == [names[0]]


SETTINGS = {
    "parquet.datetimeRebaseModeInRead": ("LEGACY", "born", "moves dates and times"),
    "parquet.binaryAsString": ("true", "raw", "of spark.sql.parquet.binaryAsString"),
    "parquet.inferTimestampNTZ.enabled": ("false", "at", "of spark.sql.parquet.inferTimestampNTZ.enabled"),
    "sources.partitionColumnTypeInference.enabled": ("false", "zip", "partitionColumnTypeInference.enabled"),
}
"""Settings of `spark.sql`: a value that is no default, a column that Spark then reads otherwise, what is told."""


@pytest.mark.parametrize("name", SETTINGS)
def test_what_spark_reads_otherwise_by_a_setting_is_not_read_from_a_store(spark, s3, tmp_path, name):
    value, column, told = SETTINGS[name]
    moment = pa.array([dt.datetime(2020, 1, 1, 12)], pa.timestamp("us"))  # noqa: DTZ001 - a local time
    columns = {"k": ["a"], "born": pa.array([dt.date(1500, 1, 1)]), "raw": [b"x"], "at": moment}
    write(tmp_path / "copy" / "zip=01234" / "a.parquet", columns)
    url = s3.upload(tmp_path / "copy", "settings")
    zonebloom.build_index(url, "k", storage_options=s3.options)
    zb = ZoneBloom(spark, storage_options=s3.options)
    lake = zb.read(url)
    with changed(spark, f"spark.sql.{name}", value):
        assert lake.select("k").where("k = 'a'").collect() == [("a",)]
        of_column = lake.select("k", column)
        for read in (lambda: of_column.where("k = 'a'"), of_column.toDF, lambda: lake.where(f"{column} IS NULL")):
            with pytest.raises(InvalidArgumentError, match=told):
                read()
        with pytest.raises(InvalidArgumentError, match=told):
            zb.map_candidates(url, "k = 'a'", lambda batches: batches, "k string", columns=["k", column])


def test_what_is_chosen_and_skipped(any_spark, s3, copy, few):
    url = s3.upload(copy, "lake")
    options = {"rows_per_zone": ROWS_PER_ZONE, "storage_options": s3.options}
    zonebloom.build_index(url, ["user", "key"], **options)
    zb = ZoneBloom(any_spark, storage_options=s3.options)
    lake = zb.read(url)
    read = lake.prepare("user = 'u 1203'")
    assert (read.method, read.plan.result.kept.files) == ("row_ranges", 1)
    assert read.plan.result.kept.rows <= ROWS_PER_ZONE
    assert not lake.prepare("user = 'nobody'").plan.paths
    assert lake.where_in("key", [5, 1203, 99_999]).count() == 2
    keys = any_spark.createDataFrame([(5,), (1203,), (99_999,)], "key long")
    assert lake.where_in("key", keys).count() == 2
    assert shown(zb.prune_join(url, keys, on="key")) == shown(plain_read(any_spark, copy).join(keys, "key"))
    assert "zones" in str(zb.explain(url, "user = 'u 1203'"))


def test_the_driver_lists_the_data_while_it_asks_the_index(any_spark, s3, copy, monkeypatch):
    """A listing waits for a request to a segment: one after the other they would never end."""
    url = s3.upload(copy, "lake")
    options = {"rows_per_zone": ROWS_PER_ZONE, "kind": "locator", "storage_options": s3.options}
    zonebloom.build_index(url, "user", **options)
    lake = ZoneBloom(any_spark, storage_options=s3.options).read(url)
    assert lake.where("user = 'u 77'").count() == 1
    is_asked, waits = threading.Event(), []

    def fault(_method: str, path: str, query: str) -> None:
        if "/columns/" in path:
            is_asked.set()
        elif "list-type" in query:
            waits.append(is_asked.wait(20))

    monkeypatch.setattr(lake, "_looked", float("-inf"))  # so the newest version of the index is looked for too
    with s3.server.misbehaving(fault), s3.server.recorded() as requests:
        read = lake.prepare("user = 'u 1300'")
    assert read.method == "driver"
    assert waits == [True, True]
    assert [request.method for request in requests if request.path.endswith(".parquet")] == ["GET"]
    assert [row["key"] for row in read.frame.collect()] == [1300]
