"""Names that Spark and the library read differently lose no row: other case, folders named like columns, variables.

Oracle: PySpark 4.3, `spark.read.parquet(path)`, and joins with it. Lakes are pyarrow's.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

import zonebloom as zb
from tests.depth import deep_only, some
from tests.spark.cluster import changed
from tests.spark.rows import assert_as_plain, indexed, plain_read, rows_of_each, write
from zonebloom.engines.spark.pushdown.names import respelled
from zonebloom.engines.spark.scan.readers import url_of
from zonebloom.errors import ColumnNotFoundError, ConcurrentCommitError, InvalidArgumentError, PredicateError
from zonebloom.spark import ZoneBloom

WAYS = ("auto", "files", "plain")


def check(spark, root, *conditions) -> None:
    assert all(assert_as_plain(spark, root, list(conditions), *WAYS)), conditions


@pytest.fixture
def two_cases(tmp_path) -> Path:
    """1000 rows with `key` and `s.x`, and two with `KEY` and `s.X`, which Spark takes for the same."""
    rows = {"key": range(1000), "o": range(1000), "s": [{"x": number} for number in range(1000)]}
    indexed(tmp_path, {"a": rows}, ["key", "o", "s.x"], rows_per_zone=50)
    write(tmp_path / "b.parquet", {"KEY": [5005, 5006], "o": [7, 8], "s": [{"X": 5005}, {"X": 6}]})
    return tmp_path


@pytest.mark.filterwarnings("ignore:prune_join:RuntimeWarning")
@pytest.mark.parametrize("is_indexed", some([True, False], 2))
def test_columns_and_fields_of_another_case_are_read_and_joined(any_spark, two_cases, is_indexed):
    if is_indexed:
        zb.open_index(two_cases).refresh()
    check(any_spark, two_cases, "key = 5005", "s.x = 5005", "s.X = 5005", "key = 7", "o = 7")
    plain, zonebloom = plain_read(any_spark, two_cases), ZoneBloom(any_spark)
    small = any_spark.createDataFrame([(1, 1), (5005, 7), (9999, 9)], "key long, o long")
    frames = []
    for on in ("key", ["key", "o"]):
        keys = small.select(on)
        frames += [plain.join(keys, on), zonebloom.prune_join(str(two_cases), keys, on)]
    rows = rows_of_each([frame.select("key", "o") for frame in frames])
    assert rows[::2] == rows[1::2]
    assert list(map(len, rows)) == [2] * 4


@pytest.mark.filterwarnings("ignore:prune_join:RuntimeWarning")
def test_folders_that_are_named_like_columns_prune_no_join(spark, tmp_path):
    indexed(tmp_path, {f"day={number}/a": {"day": pa.array([7, 8], pa.int32())} for number in (1, 2)}, "day")
    keys = spark.createDataFrame([(1,), (7,)], "day int")
    zonebloom, plain = ZoneBloom(spark), plain_read(spark, tmp_path)
    assert plain.join(keys, "day").count() == zonebloom.prune_join(str(tmp_path), keys, "day").count() == 2
    with pytest.raises(InvalidArgumentError, match=r"got column day in files and in folders"):
        zonebloom.map_candidates(str(tmp_path), "day = 1", lambda batches: batches, "day int")


@pytest.mark.parametrize("name", some(["Day", "day"], 2))
def test_a_column_of_folders_has_its_place_in_the_files(any_spark, tmp_path, name):
    indexed(tmp_path, {f"{name}=1/a": {"day": [7], "key": [5]}}, "key")
    plain, lake = plain_read(any_spark, tmp_path), ZoneBloom(any_spark).read(str(tmp_path))
    for way in WAYS:
        assert lake.where("key = 5", method=way).columns == lake.columns == plain.columns == [name, "key"]
    check(any_spark, tmp_path, "key = 5", f"{name} = 1", "_metadata.file_name = 'a.parquet'")


@deep_only
def test_row_ranges_of_a_file_with_another_case_are_refused(spark, two_cases):
    rows = ZoneBloom(spark).map_candidates(str(two_cases), "key = 5005", lambda batches: batches, "key long, o long")
    with pytest.raises(Exception, match="must spell its columns as the index does, got KEY"):
        rows.collect()


@deep_only
def test_where_spark_distinguishes_case_no_other_spelling_is_taken(any_spark, tmp_path):
    rows = {"key": range(100), "s": [{"x": number} for number in range(100)]}
    indexed(tmp_path, {"a": rows}, ["key", "s.x"], rows_per_zone=10)
    lake = ZoneBloom(any_spark).read(str(tmp_path))
    calls = (
        (1, lambda: lake.where_in("KEY", [5, 7000])),
        (0, lambda: lake.where_in("KEY", [7000])),
        (1, lambda: lake.where_in("s.X", [5])),
        (1, lambda: lake.where_in("key", any_spark.sql("SELECT 5L AS KEY, 1 AS other"))),
        (100, lambda: lake.where(zb.col("KEY").isin(range(2000)))),
        (1, lambda: lake.select("KEY").where("key = 5")),
    )
    assert [call().count() for _, call in calls] == [count for count, _ in calls]
    with changed(any_spark, "spark.sql.caseSensitive", "true"):
        for _, call in calls:
            with pytest.raises((ColumnNotFoundError, PredicateError), match=r"(?i)names are case-sensitive"):
                call()
        assert lake.where_in("key", [5]).count() == lake.select("key").where("key = 5").count() == 1


def test_names_within_lists_and_maps_are_compared():
    def schema(name):
        inner = pa.struct([(name, pa.int32())])
        return pa.schema({"l": pa.list_(inner), "m": pa.map_(pa.string(), inner), "s": pa.struct([("i", inner)])})

    assert respelled(schema("a"), schema("a")) is None
    assert respelled(schema("b"), schema("a")) is None
    assert respelled(schema("A"), schema("a")) is not None
    for name in ("l", "m", "s"):
        assert respelled(pa.schema([schema("A").field(name)]), schema("a")) is not None
    assert respelled(pa.schema({"K": pa.int32()}), pa.schema({"k": pa.int32(), "K": pa.int32()})) is None


def test_a_newer_file_whose_struct_has_other_fields_is_read_by_spark(spark, tmp_path):
    indexed(tmp_path, {"a": {"k": ["a"], "s": [{"a": 1}]}}, "k")
    write(tmp_path / "b.parquet", {"k": ["a", "c"], "s": [{"b": 1}, None]})
    for value in ("true", "false"):  # Spark before 4.1 does as by true
        with changed(spark, "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing", value):
            assert_as_plain(spark, tmp_path, ["k = 'a' AND s IS NULL", "k = 'a' AND s IS NOT NULL"], *WAYS)


def test_maps_that_connect_makes_anew_are_read_by_spark(connect, tmp_path):
    """Of the entries of one key it keeps the last, or raises; Spark's reader keeps all."""
    twice = pa.MapArray.from_arrays([0, 2, 2], pa.array(["x", "x"]), pa.array([1, 2]))
    indexed(tmp_path, {"a": {"k": ["a", "b"], "m": twice}}, "k")
    with changed(connect, "spark.sql.mapKeyDedupPolicy", "LAST_WIN"):
        assert_as_plain(connect, tmp_path, ["k = 'a' AND m['x'] = 1", "k = 'b'"], "auto", "row_ranges")
    lake = ZoneBloom(connect).read(str(tmp_path))
    with pytest.raises(InvalidArgumentError, match="hand the rows to Spark, got a column with maps"):
        lake.where("k = 'a'", method="driver")
    assert lake.select("k").where("k = 'a'", method="driver").count() == 1


def test_a_lake_of_a_view_is_of_the_view_of_now(any_spark, tmp_path):
    for name in "ab":
        indexed(tmp_path / name, {"f": {"k": ["x"], "of": [name]}}, "k")
        any_spark.read.parquet(str(tmp_path / name)).createOrReplaceTempView("replaced")
        if name == "a":
            lake = ZoneBloom(any_spark).read("replaced")
        assert [row.of for row in lake.where("k = 'x'").collect()] == [name]
    any_spark.catalog.dropTempView("replaced")
    with pytest.raises(AnalysisException, match="replaced"):
        lake.where("k = 'x'").collect()


def test_a_lake_of_a_table_stays_of_that_table(spark):
    """Whatever database is used later, or view is made."""
    spark.sql("CREATE DATABASE elsewhere")
    for name in ("mine", "elsewhere.mine"):
        spark.createDataFrame([("x", name)], "k string, of string").write.saveAsTable(name)
        ZoneBloom(spark).create_index(name, "k")
    try:
        lake = ZoneBloom(spark).read("mine")
        spark.sql("USE elsewhere")
        assert [row.of for row in lake.where("k = 'x'").collect()] == ["mine"]
        spark.sql("USE default")
        folder = ZoneBloom(spark).read("elsewhere.mine").index.data.location
        spark.read.parquet(folder).createOrReplaceTempView("mine")
        for frame in (lake.where("k = 'x'"), lake.toDF()):
            assert [row.of for row in frame.collect()] == ["mine"]
        of_view = ZoneBloom(spark).read("mine")
        spark.catalog.dropTempView("mine")
        with pytest.raises(InvalidArgumentError, match="mine must be the view that was read, got a table"):
            of_view.where("k = 'x'")
    finally:
        spark.sql("USE default")
        spark.sql("DROP TABLE mine")
        spark.sql("DROP DATABASE elsewhere CASCADE")


def test_keys_of_a_column_of_json_are_joined(spark, tmp_path):
    indexed(tmp_path, {"a": {"j": pa.array(["1", "2"], pa.json_()), "k": [1, 2]}}, "j")
    assert [row.k for row in ZoneBloom(spark).read(str(tmp_path)).where_in("j", ["2", "3"]).collect()] == [2]


def test_columns_that_spark_finds_by_their_ids_lose_no_row(spark, tmp_path):
    from pyspark.sql import types

    for name, number in (("a", 1), ("b", 5)):
        field = types.StructField(name, types.LongType(), True, {"parquet.field.id": 1})
        frame = spark.createDataFrame([(number,)], types.StructType([field]))
        frame.write.mode("append").parquet(url_of(str(tmp_path / "lake")))
    zb.build_index(tmp_path / "lake", ["a", "b"])
    lake = ZoneBloom(spark).read(str(tmp_path / "lake"))
    name = lake.columns[0]
    assert lake.plan(f"{name} = 5").result.kept.rows == (name == "b")
    with changed(spark, "spark.sql.parquet.fieldId.read.enabled", "TRUE"):  # Spark reads such values in any case
        check(spark, tmp_path / "lake", f"{name} = 1", f"{name} = 5")
        assert ZoneBloom(spark).search(str(tmp_path / "lake"), f"{name} = 5").kept.rows == 2


@pytest.mark.filterwarnings("ignore:prune_join:RuntimeWarning")
def test_columns_that_only_the_table_finds_by_ids_lose_no_row_of_a_join(spark, tmp_path):
    """The second file has the ids of both columns exchanged; a plain read of the files goes by names."""
    from pyspark.sql import types

    for number, ids in enumerate(((1, 2), (2, 1))):
        fields = [
            pa.field(name, pa.int64()).with_metadata({"PARQUET:field_id": f"{i}"})
            for name, i in zip("ab", ids, strict=True)
        ]
        write(tmp_path / f"{number}.parquet", pa.table([[10 * number + i] for i in ids], pa.schema(fields)))
    zb.build_index(tmp_path, ["a", "b"])
    declared = [
        types.StructField(name, types.LongType(), True, {"parquet.field.id": i}) for name, i in (("a", 1), ("b", 2))
    ]
    spark.catalog.createTable("by_ids", str(tmp_path), "parquet", types.StructType(declared))
    bloom, keys = ZoneBloom(spark), spark.createDataFrame([(11,)], "a long")
    try:
        with changed(spark, "spark.sql.parquet.fieldId.read.enabled", "TRUE"):
            expected = spark.table("by_ids").join(keys, "a").collect()
            assert expected == bloom.prune_join("by_ids", keys, "a").collect() == [(11, 12)]
            for way in ("auto", "files", "plain"):
                assert bloom.read("by_ids").where_in("a", [11], method=way).collect() == expected
            assert bloom.search("by_ids", "a = 11").kept.rows == 2
            with pytest.raises(InvalidArgumentError, match="got Spark finds columns by their ids"):
                bloom.map_candidates("by_ids", "a = 11", lambda batches: batches, "a long, b long")
    finally:
        spark.sql("DROP TABLE by_ids")


@deep_only
def test_a_variable_that_spark_replaces_in_a_text_loses_no_row(any_spark, tmp_path):
    indexed(tmp_path, {number: {"key": [word]} for number, word in enumerate(["b", "${my.word}", "c"])}, "key")
    many = ", ".join(["'c'", "'${my.word}'", *(f"'no {number}'" for number in range(70))])
    more = f"{many}, " + ", ".join(f"'not {number}'" for number in range(1000))
    with changed(any_spark, "my.word", "b"):
        texts = ["key = '${my.word}'", "key IN ('${my.word}')", f"key IN ({many})", f"key IN ({more})"]
        check(any_spark, tmp_path, *texts)
        lake = ZoneBloom(any_spark).read(str(tmp_path))
        for condition in ("key = 'b'", zb.col("key") == "${my.word}"):
            assert lake.plan(condition).result.kept.files == 1


def test_a_list_of_files_within_and_beside_folders_of_keys_is_refused(spark, tmp_path):
    paths = [str(tmp_path / "a.parquet"), str(tmp_path / "day=1/b.parquet")]
    for path in paths:
        write(Path(path), {"k": ["x"]})
    zb.build_index(paths, "k", index=tmp_path / "index")
    lake = ZoneBloom(spark).read(paths, index=str(tmp_path / "index"))
    with pytest.raises(InvalidArgumentError, match=r"all or none, got a\.parquet"):
        lake.where("k = 'x'")
    zb.build_index(paths[0], "k")
    for columns in (3, [None]):
        with pytest.raises(InvalidArgumentError, match="columns must be one or more names"):
            ZoneBloom(spark).map_candidates(paths[0], "k = 'x'", iter, "k string", columns=columns)


def test_a_lake_of_a_relative_path_stays_where_it_was_when_the_process_moves(spark, tmp_path, monkeypatch):
    for number, name in enumerate(("a", "b")):
        file = tmp_path / name / "lake" / "file.parquet"
        write(file, {"key": [number] * 100})
        os.utime(file, (10**9, 10**9))
        zb.build_index(file.parent, "key")
    monkeypatch.chdir(tmp_path / "a")
    lake = ZoneBloom(spark).read("lake")
    zb.open_index("lake").refresh("full")
    monkeypatch.chdir(tmp_path / "b")
    assert lake.where("key = 0").count() == 100


def test_a_lake_does_not_follow_its_index_to_another_data_set(spark, tmp_path):
    place = str(tmp_path / "index")
    for name in ("a", "b"):
        write(tmp_path / name / "file.parquet", {"key": range(100)})
    zb.build_index(tmp_path / "a", "key", index=place)
    lake = ZoneBloom(spark).read(str(tmp_path / "a"), index=place)
    zb.open_index(place, dataset=tmp_path / "b").refresh()
    lake._looked = 0.0
    with pytest.raises(ConcurrentCommitError, match=r"must stay the index of .*a, got one of .*b now"):
        lake.where("key = 0")
