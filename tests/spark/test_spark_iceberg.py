"""Iceberg tables as the JAR of Iceberg writes them, through lives of deletes, renames, partition specs and branches.

Oracle: Spark 3.5 with the real JAR (iceberg-spark-runtime 1.10.2), which reads its own table by the same condition. The
JAR comes in a wheel that `make test-spark SPARK=3.5.7` installs; there is none for another Spark.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import zonebloom
from tests.depth import deep_only
from tests.spark import cluster
from tests.spark.rows import rows_of_each
from zonebloom.errors import InvalidArgumentError
from zonebloom.spark import ZoneBloom

MERGE_ON_READ = ", ".join(f"'write.{text}.mode'='merge-on-read'" for text in ("delete", "update", "merge"))


def inserts(start: int, stop: int, more: str = "", table: str = "{t}") -> str:
    key = "concat('key ', id * 7919 % 100003)"
    return f"INSERT INTO {table} SELECT id, {key}, CAST(id % 3 AS INT){more} FROM range({start}, {stop})"


LIFE = {
    "deletes in three files": "DELETE FROM {t} WHERE id % 100 = 7",
    "more deletes of the same files": "DELETE FROM {t} WHERE id BETWEEN 1000 AND 1040",
    "an update": "UPDATE {t} SET key = 'key of an update' WHERE id IN (1, 501, 2501)",
    "a new column": "ALTER TABLE {t} ADD COLUMN amount DOUBLE",
    "its rows": inserts(3000, 3400, ", id / 4"),
    "a renamed key": "ALTER TABLE {t} RENAME COLUMN key TO name",
    "a column of the old name": "ALTER TABLE {t} ADD COLUMN key STRING",
    "rows of both": inserts(3400, 3700, ", id / 4, concat('other ', id)"),
    "one field of partitions more": "ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id)",
    "rows of the new spec": inserts(3700, 4000, ", 0, NULL"),
    "one field less": "ALTER TABLE {t} DROP PARTITION FIELD part",
    "deletes in files of all specs": "DELETE FROM {t} WHERE id % 50 = 3",
    "a merge": "MERGE INTO {t} USING (SELECT id * 400 AS id FROM range(20)) s ON {t}.id = s.id "
    "WHEN MATCHED AND s.id < 2000 THEN DELETE WHEN MATCHED THEN UPDATE SET name = 'key of a merge' "
    "WHEN NOT MATCHED THEN INSERT (id, name, part) VALUES (s.id, 'key of nobody', 1)",
    "a branch": "ALTER TABLE {t} CREATE BRANCH other",
    "rows of the branch": inserts(9000, 9100, ", 0, NULL", "{t}.branch_other"),
    "deletes of the branch": "DELETE FROM {t}.branch_other WHERE id < 500",
    "the branch becomes the table": "CALL lake.system.fast_forward('{n}', 'main', 'other')",
    "files in fewer": "CALL lake.system.rewrite_data_files(table => '{n}', options => map('min-input-files', '2'))",
    "a dropped column": "ALTER TABLE {t} DROP COLUMN key",
}
"""Steps of a life, in order."""


@pytest.fixture(params=[2, 3], ids=["position deletes", "deletion vectors"])
def table(spark, request) -> Iterator[str]:
    """A table of 3000 rows in three commits, of each version of the format that has deletes of rows."""
    if cluster.iceberg_jar() is None:
        pytest.skip("Iceberg's JAR for Spark 3.5 comes with make test-spark SPARK=3.5.7")
    name = f"db.t{request.param}"
    spark.sql(
        f"CREATE TABLE lake.{name} (id BIGINT, key STRING, part INT) USING iceberg PARTITIONED BY (part) "
        f"TBLPROPERTIES ('format-version'='{request.param}', {MERGE_ON_READ})"
    )
    for start in (0, 1000, 2000):
        spark.sql(inserts(start, start + 1000, table=f"lake.{name}"))
    yield name
    spark.sql(f"DROP TABLE lake.{name}")


def folder_of(spark, name: str) -> Path:
    return Path(spark.conf.get("spark.sql.catalog.lake.warehouse"), *name.split("."))


def assert_agrees(spark, name: str, index: Path, step: str) -> None:
    """By some keys and all rows, by the library and on each way of Spark."""
    theirs, zb = spark.table(f"lake.{name}"), ZoneBloom(spark)
    key = "name" if "name" in theirs.columns else "key"
    keys = [f"key {number * 7919 % 100_003}" for number in (0, 7, 1, 1020, 2499, 3003, 3500, 3999, 9050, 99_999)]
    keys += ["key of an update", "key of a merge", "key of nobody", "other 3500"]
    condition = f"{key} IN ({', '.join(map(repr, keys))})"
    lake = zb.read(str(folder_of(spark, name)), index=index)
    assert lake.columns == theirs.columns, step
    ways = [lake.where(condition, method=way) for way in ("auto", "driver", "row_ranges", "plain")]
    expected, every, *actual = rows_of_each([theirs.where(condition), theirs, *ways, lake.toDF()])
    assert actual == [*[expected] * len(ways), every], step
    ours = zonebloom.open_index(index).to_table(zonebloom.col(key).isin(keys))
    assert sorted(map(repr, (tuple(row.values()) for row in ours.to_pylist()))) == expected, step


@deep_only
def test_rows_of_a_table_of_icebergs_jar_are_those_of_spark_at_each_step_of_its_life(spark, table, tmp_path):
    index, folder = tmp_path / "index", folder_of(spark, table)
    ZoneBloom(spark).create_index(str(folder), "key", rows_per_zone=256, index=index)
    assert_agrees(spark, table, index, "the beginning")
    for number, (step, statement) in enumerate(LIFE.items()):
        spark.sql(statement.format(t=f"lake.{table}", n=table))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of files that the index does not know yet
            assert_agrees(spark, table, index, step)
        if number % 3 == 2:
            ZoneBloom(spark).refresh_index(str(folder), index=index)
            assert_agrees(spark, table, index, f"{step}, refreshed")


@deep_only
def test_a_search_of_a_table_of_icebergs_jar_skips_files(spark, table, tmp_path):
    index = zonebloom.build_index(folder_of(spark, table), "key", rows_per_zone=256, index=tmp_path / "index")
    result = index.search(zonebloom.col("key") == "key 0")
    assert (result.kept.files, result.total.files) == (1, 9)


@deep_only
def test_a_frame_of_icebergs_jar_may_be_of_any_version_so_its_path_is_read(spark, table, tmp_path):
    """A delete leaves the files as they were, and a plan names no version: a read by them lost the deleted rows."""
    zb, folder, index = ZoneBloom(spark), str(folder_of(spark, table)), tmp_path / "index"
    before = spark.sql(f"SELECT snapshot_id FROM lake.{table}.snapshots ORDER BY committed_at DESC").head()[0]
    spark.sql(f"DELETE FROM lake.{table} WHERE id = 14")
    key = f"key {14 * 7919 % 100_003}"
    now, former = spark.table(f"lake.{table}"), spark.read.option("snapshot-id", before).table(f"lake.{table}")
    assert (now.where(f"key = '{key}'").count(), former.where(f"key = '{key}'").count()) == (0, 1)
    zb.create_index(now, "key", rows_per_zone=256, index=index)
    zb.create_index(folder, "key", rows_per_zone=256)
    for frame in (now, former, f"lake.{table}"):
        for read in (
            lambda given: zb.read(given, index=index),
            lambda given: zb.search(given, "id = 1", index=index),
            zb.read,
        ):
            with pytest.raises(InvalidArgumentError, match="must be read by its path, or as a DeltaTable"):
                read(frame)
    assert zb.read(folder, index=index).where_in("key", [key]).count() == 0
    former.createOrReplaceTempView("former")
    texts = [f"SELECT id FROM {name} WHERE key = '{key}'" for name in ("former", f"lake.{table}")]
    assert [zb.sql(text).count() for text in texts] == [1, 0]
