"""Joins with an index: rows that cannot join are dropped before the shuffle, and none that can is lost.

The oracle is Spark 4.3's own join of the same frames without a filter; for hashes, the library's own.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zonebloom
from tests.conftest import index_of
from tests.depth import IS_DEEP, some
from zonebloom.bloom.hashing import hash_array
from zonebloom.bloom.sbbf import Sbbf
from zonebloom.engines.spark.catalog import Catalog
from zonebloom.engines.spark.join.keys import fold_to_bytes, hash_of
from zonebloom.engines.spark.join.semi_join import filter_by_index
from zonebloom.errors import ColumnNotFoundError, IndexNotFoundError, InvalidArgumentError

NAN = float("nan")
DAY = dt.date(2024, 2, 29)
NOON = dt.datetime.fromisoformat("2024-03-31T02:30:00.123456")  # an hour that Berlin does not have
UTC = dt.UTC


def lake_of(folder: Path, values: Any, of_type: pa.DataType | None = None, **options: Any) -> zonebloom.Index:
    """A lake of two files whose column `key` has `values`, with an index that has the level of the data set."""
    folder.mkdir(exist_ok=True)
    table = pa.table({"key": pa.array(values, of_type), "row": np.arange(len(values))})
    middle = len(table) // 2
    pq.write_table(table[:middle], folder / "a.parquet")
    pq.write_table(table[middle:], folder / "b.parquet")
    return zonebloom.build_index(folder, "key", levels=("zone", "dataset"), rows_per_zone=64, **options)


def rows_of(frame) -> Counter:
    """The rows as a multiset, NaN and zeros told apart from others but not among themselves."""
    return Counter(tuple(map(_shown, row)) for row in frame.collect())


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value + 0.0)
    return repr(value)


def joined(probe, lake, how: str = "inner", *, null_safe: bool = False):
    """`probe` joined with `lake` on `key`, as a user writes it."""
    if not null_safe:
        return probe.join(lake, "key", how)
    lake = lake.withColumnRenamed("key", "their_key")
    return probe.join(lake, probe["key"].eqNullSafe(lake["their_key"]), how)


def of_frame(spark, folder: Path, values: Any, of_type: pa.DataType | None = None):
    """A frame whose column `key` has `values`, and `id` their numbers; `createDataFrame` would shift local times."""
    table = pa.table({"key": pa.array(values, of_type), "id": np.arange(len(values))})
    pq.write_table(table, folder / "probe.parquet")
    return spark.read.parquet(str(folder / "probe.parquet"))


def numbers(low: int, high: int, num: int, seed: int = 0) -> list[int]:
    """Integers of [low, high], its ends among them."""
    source = random.Random(seed)
    return [low, high, *(source.randint(low, high) for _ in range(num))]


def with_nulls(values: list[Any]) -> list[Any]:
    return [None, *values, None]


I64 = numbers(-(2**63), 2**63 - 1, 200)
I32 = numbers(-(2**31), 2**31 - 1, 200)
U64 = numbers(0, 2**64 - 1, 200)
FLOATS = [0.5, -0.0, 1e300, math.inf, -math.inf, 3.25, NAN, *map(float, range(10, 200))]
SINGLES = [0.5, -0.0, 1e30, math.inf, 3.25, NAN, *map(float, range(10, 200))]
TEXTS = ["", "a", "é", "x" * 7, "x" * 8, "y" * 31, "y" * 32, "y" * 33, "z" * 100, *(f"user-{i}" for i in range(200))]
DAYS = [dt.date(1, 1, 1), dt.date(1969, 12, 31), *(DAY + dt.timedelta(days=i) for i in range(200))]
EVE = dt.datetime.fromisoformat("1969-12-31T23:59:59.999")
TIMES = [EVE, *(NOON + dt.timedelta(minutes=i) for i in range(200))]
MILLIS = [one.replace(microsecond=one.microsecond // 1000 * 1000) for one in TIMES]
IDS = [bytes([i] * 16) for i in range(99)]
CENTS = [Decimal(i) / 100 for i in (-99_999_999, 0, *range(1, 400, 2))]


def zoned(times: list[dt.datetime]) -> list[dt.datetime]:
    return [one.replace(tzinfo=UTC) for one in times]


def dec(digits: int, scale: int) -> pa.DataType:
    return pa.decimal128(digits, scale)


MICROS = pa.timestamp("us", "UTC")
CASES: dict[str, tuple[list[Any], pa.DataType, list[Any], pa.DataType]] = {
    "bool": ([True, None], pa.bool_(), [True, False], pa.bool_()),
    "int8": ([-128, 5, 127], pa.int8(), list(range(-128, 128)), pa.int8()),
    "int8-bigint": ([-128, 5, 127], pa.int8(), [*range(-300, 300), *I64], pa.int64()),
    "int16": (list(range(-500, 500, 3)), pa.int16(), list(range(-32768, 32768, 7)), pa.int16()),
    "int16-int": (list(range(-500, 500, 3)), pa.int16(), [*range(-40000, 40000, 11), *I32], pa.int32()),
    "int32": (I32[::2], pa.int32(), I32, pa.int32()),
    "int32-bigint": (I32[::2], pa.int32(), [*I32, *(one + 2**32 for one in I32), *I64], pa.int64()),
    "int32-smallint": (list(range(-300, 300, 2)), pa.int32(), list(range(-400, 400)), pa.int16()),
    "int64": (I64[::2], pa.int64(), I64, pa.int64()),
    "int64-int": (list(range(-300, 300, 2)), pa.int64(), [*range(-400, 400), *I32], pa.int32()),
    "int64-decimal": (I64[::2], pa.int64(), [*I64, 2**63, -(10**30), 10**37], dec(38, 0)),
    "uint8-smallint": ([0, 7, 255], pa.uint8(), list(range(-300, 300)), pa.int16()),
    "uint16-int": ([0, 7, 65535, *range(9, 999, 5)], pa.uint16(), list(range(-70000, 70000, 13)), pa.int32()),
    "uint32-bigint": ([0, 2**31, 2**32 - 1, 7], pa.uint32(), [0, 2**31, 2**32 - 1, 7, *I32, *I64], pa.int64()),
    "uint64-decimal": (U64[::2], pa.uint64(), [*U64, -1, 2**64], dec(21, 0)),
    "uint64-bigint": (U64[::2], pa.uint64(), [one - 2**63 for one in U64] + [one % 2**63 for one in U64], pa.int64()),
    "float32": (SINGLES[::2], pa.float32(), [0.0, *SINGLES], pa.float32()),
    "float32-double": (SINGLES[::2], pa.float32(), [0.0, 0.1, 1e300, *SINGLES], pa.float64()),
    "float64": (FLOATS[::2], pa.float64(), [0.0, *FLOATS], pa.float64()),
    "float64-zero": ([0.0, 1.0], pa.float64(), [-0.0, 1.0, 2.0, 3.0], pa.float64()),
    "float64-minus-zero": ([-0.0, 1.0], pa.float64(), [0.0, 1.0, 2.0, 3.0], pa.float64()),
    "float64-float": (SINGLES[::2], pa.float64(), [0.0, *SINGLES], pa.float32()),
    "string": (TEXTS[::2], pa.string(), TEXTS, pa.string()),
    "dictionary": (TEXTS[::2], pa.dictionary(pa.int32(), pa.string()), TEXTS, pa.string()),
    "binary": ([one.encode() for one in TEXTS[::2]], pa.binary(), [one.encode() for one in TEXTS], pa.binary()),
    "fixed": (IDS[::2], pa.binary(16), IDS, pa.binary()),
    "date32": (DAYS[::2], pa.date32(), DAYS, pa.date32()),
    "date64": (DAYS[::2], pa.date64(), DAYS, pa.date32()),
    "timestamp": (zoned(TIMES[::2]), pa.timestamp("us", "UTC"), zoned(TIMES), MICROS),
    "timestamp-ms": (zoned(MILLIS[::2]), pa.timestamp("ms", "UTC"), zoned([*TIMES, *MILLIS]), MICROS),
    "ntz": (TIMES[::2], pa.timestamp("us"), TIMES, pa.timestamp("us")),
    "ntz-ms": (MILLIS[::2], pa.timestamp("ms"), [*TIMES, *MILLIS], pa.timestamp("us")),
    "decimal": (CENTS[::2], dec(10, 2), CENTS, dec(10, 2)),
    "decimal-scale": (CENTS[::2], dec(10, 2), [*CENTS, Decimal("0.005"), Decimal("1.234"), 10**12], dec(18, 3)),
    "decimal-large": (CENTS[::2], dec(30, 2), CENTS, dec(10, 2)),
}  # fmt: skip


def wide(columns: list[tuple[list[Any], pa.DataType]], numbers: str) -> pa.Table:
    """Each of `columns` as `c0`, `c1`, ..., with null at both ends and up to the longest; and the rows' numbers."""
    num_rows = max(len(values) for values, _ in columns) + 2
    table = {numbers: pa.array(range(num_rows), pa.int64())}
    for number, (values, of_type) in enumerate(columns):
        table[f"c{number}"] = pa.array([None, *values] + [None] * (num_rows - len(values) - 1), of_type)
    return pa.table(table)


class Probed:
    """Lakes and probes of some `CASES`, each case a column of one data set and of one frame: few scans, few jobs."""

    def __init__(self, spark: Any, folder: Path, cases: Sequence[str]) -> None:
        self.spark, self.cases = spark, cases
        lake, probe = folder / "lake", folder / "probe.parquet"
        lake.mkdir()
        rows = wide([CASES[case][:2] for case in cases], "row")
        for name, part in (("a", rows[: len(rows) // 2]), ("b", rows[len(rows) // 2 :])):
            pq.write_table(part, lake / f"{name}.parquet")
        names = [name for name in rows.column_names if name != "row"]
        self.index = zonebloom.build_index(lake, names, levels=("zone", "dataset"), rows_per_zone=64)
        pq.write_table(wide([CASES[case][2:] for case in cases], "id"), probe)
        self.lake, self.probe = spark.read.parquet(str(lake)), spark.read.parquet(str(probe))

    def kept(self, number: int, **options: Any) -> Any:
        """What the filter leaves of the probe of a case; `id` and `key`."""
        column = f"c{number}"
        name = {"column": "key", "indexed_column": column}
        return filter_by_index(Catalog(self.spark), self.probed(number), self.index, **name, **options)

    def probed(self, number: int) -> Any:
        """The probe of a case, without the rows that only pad it."""
        num_rows = len(CASES[self.cases[number]][2]) + 2
        return self.probe.selectExpr(f"c{number} AS key", "id").where(f"id < {num_rows}")

    def partners(self, number: int, *, null_safe: bool) -> Any:
        """The rows of the probe of a case that have a partner."""
        num_rows = len(CASES[self.cases[number]][0]) + 2
        keys = self.lake.where(f"row < {num_rows}").selectExpr(f"c{number} AS theirs")
        probe = self.probed(number)
        same = probe["key"].eqNullSafe(keys["theirs"]) if null_safe else probe["key"] == keys["theirs"]
        return probe.join(keys, same, "left_semi")


def ids_of(frames: list[Any]) -> list[set[int]]:
    """The `id`s of each frame, by one query."""
    tagged = [frame.selectExpr(f"{number} AS frame", "id") for number, frame in enumerate(frames)]
    found: list[set[int]] = [set() for _ in frames]
    for row in reduce(lambda one, other: one.unionAll(other), tagged).collect():
        found[row.frame].add(row.id)
    return found


@pytest.mark.parametrize("ansi", ["false" if IS_DEEP else "true"])
def test_no_row_that_joins_is_lost_and_others_are_dropped(any_spark, tmp_path, ansi):
    """The zone of the session has summer time."""
    settings = {"spark.sql.ansi.enabled": ansi, "spark.sql.session.timeZone": "Europe/Berlin"}
    before = {name: any_spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        any_spark.conf.set(name, value)
    try:
        probed = Probed(any_spark, tmp_path, some(CASES, 3))
        numbers = range(len(probed.cases))
        kept = ids_of([probed.kept(number) for number in numbers])
        partners = ids_of([probed.partners(number, null_safe=False) for number in numbers])
    finally:
        for name, value in before.items():
            any_spark.conf.set(name, value)
    for case, ours, wanted in zip(probed.cases, kept, partners, strict=True):
        assert wanted, case
        assert wanted <= ours, case
        assert len(ours) < 0.75 * len(CASES[case][2]), case


NULLABLE = ["bool", "uint32-bigint", "float64", "string", "decimal-scale"]


def test_null_safe_joins_keep_null(any_spark, tmp_path):
    probed = Probed(any_spark, tmp_path, NULLABLE)
    numbers = range(len(NULLABLE))
    kept = ids_of([probed.kept(number, null_safe=True) for number in numbers])
    partners = ids_of([probed.partners(number, null_safe=True) for number in numbers])
    for case, ours, wanted in zip(NULLABLE, kept, partners, strict=True):
        last = len(CASES[case][2]) + 1
        assert {0, last} <= wanted, case
        assert wanted <= ours, case
        assert len(ours) < 0.75 * len(CASES[case][2]) + 2, case


def test_the_arrow_path_keeps_what_the_sql_path_keeps(any_spark, tmp_path):
    probed = Probed(any_spark, tmp_path, ["int32-bigint", "int64", "float64", "string", "timestamp-ms", "ntz-ms"])
    numbers = range(len(probed.cases))
    ways = [[probed.kept(number, path=path) for number in numbers] for path in ("sql", "arrow")]
    assert ids_of(ways[0]) == ids_of(ways[1])


def test_the_arrow_path_asks_no_session_but_the_frame_s(connect, tmp_path, monkeypatch):
    """A type given as text is parsed by the session that was made last, whose server may be gone."""
    index = lake_of(tmp_path / "lake", [1, 2, 3], pa.int64())
    probe = of_frame(connect, tmp_path, range(100), pa.int64())
    monkeypatch.delattr(type(connect), "_parse_ddl")
    assert filter_by_index(Catalog(connect), probe, index, "key", path="arrow").count() < 10


HASHED = ["int32", "int64", "float32", "float64", "string", "binary", "date32", "timestamp", "ntz"]


def test_spark_hashes_as_the_index_does(spark, tmp_path):
    columns = [([one for one in CASES[case][2] if str(one) not in ("nan", "-0.0")], CASES[case][3]) for case in HASHED]
    rows = wide(columns, "id")
    pq.write_table(rows, tmp_path / "probe.parquet")
    frame = spark.read.parquet(str(tmp_path / "probe.parquet")).orderBy("id")
    found = frame.selectExpr(*(f"{hash_of(f'c{number}')} AS c{number}" for number in range(len(HASHED)))).toArrow()
    for number, case in enumerate(HASHED):
        column = rows[f"c{number}"].combine_chunks()
        is_there = column.is_valid()
        hashes = hash_array(column.filter(is_there)).view(np.int64).tolist()
        assert found[f"c{number}"].filter(is_there).to_pylist() == hashes, case


def test_joins_that_drop_rows_without_a_partner(spark, tmp_path):
    index = lake_of(tmp_path / "lake", with_nulls(list(range(0, 400, 2))))
    lake = spark.read.parquet(str(tmp_path / "lake"))
    probe = of_frame(spark, tmp_path, with_nulls(list(range(100, 1000))))
    for how in ("inner", "left_semi", "right"):
        kept = filter_by_index(Catalog(spark), probe, index, "key", how=how)
        assert rows_of(joined(kept, lake, how)) == rows_of(joined(probe, lake, how)), how
    assert kept.count() < 160
    for how in ("leftsemi", "right_outer"):  # other names of these
        filter_by_index(Catalog(spark), probe, index, "key", how=how)


def test_other_joins_are_refused_by_name(spark, tmp_path):
    index = lake_of(tmp_path / "lake", [1, 2])
    for how in ("left", "left_outer", "full", "outer", "left_anti", "anti", "cross", "sideways"):
        with pytest.raises(InvalidArgumentError, match=f"how must be inner.*{how}"):
            filter_by_index(Catalog(spark), spark.range(3), index, "id", indexed_column="key", how=how)


REFUSED = {
    "text to int": ("cast(id as string)", pa.int64()),
    "int to text": ("id", pa.string()),
    "int to double": ("id", pa.float64()),
    "double to int": ("cast(id as double)", pa.int64()),
    "date to timestamp": ("date'2024-01-01'", pa.timestamp("us")),
    "timestamp to local": ("timestamp'2024-01-01'", pa.timestamp("us")),
    "local to timestamp": ("timestamp_ntz'2024-01-01'", pa.timestamp("us", "UTC")),
    "timestamp to nanoseconds": ("timestamp_ntz'2024-01-01'", pa.timestamp("ns")),
    "decimal without common type": ("cast(id as decimal(38,20))", pa.decimal128(30, 2)),
    "decimal to int": ("cast(id as decimal(9,2))", pa.int64()),
    "collated": ("cast(id as string) collate utf8_lcase", pa.string()),
    "text to binary": ("cast(id as string)", pa.binary()),
    "time": ("time'10:00'", pa.time64("us")),
}


def test_pairs_of_types_that_spark_converts_are_refused_by_name(spark, tmp_path):
    for number, (expression, indexed) in enumerate(REFUSED.values()):
        index = lake_of(tmp_path / str(number), pa.array([None, None], indexed))
        frame = spark.range(3).selectExpr(f"{expression} as key")
        with pytest.raises(InvalidArgumentError, match="column key must be of a type that Spark compares by value"):
            filter_by_index(Catalog(spark), frame, index, "key")


def test_padded_text_is_refused_by_name(spark, tmp_path):
    index = lake_of(tmp_path / "lake", ["ab"])
    spark.sql("create table padded (key char(5)) using parquet")
    try:
        with pytest.raises(InvalidArgumentError, match=r"got char\(5\)"):
            filter_by_index(Catalog(spark), spark.table("padded"), index, "key")
    finally:
        spark.sql("drop table padded")


def test_local_times_that_spark_reads_as_instants_are_refused(spark, tmp_path):
    index = lake_of(tmp_path / "lake", TIMES, pa.timestamp("us"))
    probe = spark.range(3).selectExpr("timestamp_ntz'2024-01-01' AS key")
    spark.conf.set("spark.sql.parquet.inferTimestampNTZ.enabled", "false")
    try:
        with pytest.raises(InvalidArgumentError, match="inferTimestampNTZ"):
            filter_by_index(Catalog(spark), probe, index, "key")
    finally:
        spark.conf.unset("spark.sql.parquet.inferTimestampNTZ.enabled")


def test_new_and_changed_files_join(any_spark, tmp_path):
    folder = tmp_path / "lake"
    index = lake_of(folder, list(range(100)))
    pq.write_table(pa.table({"key": range(500, 600), "row": range(100)}), folder / "c.parquet")
    pq.write_table(pa.table({"key": range(700, 777), "row": range(77)}), folder / "a.parquet")
    lake = any_spark.read.parquet(str(folder))
    probe = any_spark.range(2000).withColumnRenamed("id", "key")
    kept = filter_by_index(Catalog(any_spark), probe, index, "key")
    assert rows_of(joined(kept, lake)) == rows_of(joined(probe, lake))
    assert 227 <= kept.count() < 300  # what a.parquet had is still in the index's filter


def test_every_refresh_adds_a_filter(any_spark, tmp_path):
    folder = tmp_path / "lake"
    index = lake_of(folder, list(range(100)))
    for number in range(9):
        start = 1000 * (number + 1)
        pq.write_table(pa.table({"key": range(start, start + 100), "row": range(100)}), folder / f"new{number}.parquet")
        index.refresh()
    lake = any_spark.read.parquet(str(folder))
    probe = any_spark.range(5000).withColumnRenamed("id", "key")
    kept = filter_by_index(Catalog(any_spark), probe, index, "key")
    assert rows_of(joined(kept, lake)) == rows_of(joined(probe, lake))
    assert 500 <= kept.count() < 600


def test_too_many_new_rows_drop_nothing_and_say_so(spark, tmp_path):
    folder = tmp_path / "lake"
    index = lake_of(folder, list(range(100)))
    pq.write_table(pa.table({"key": range(500, 600), "row": range(100)}), folder / "c.parquet")
    probe = spark.range(1000).withColumnRenamed("id", "key")
    said = r"1 new or changed files, such as c\.parquet, with 100 rows; no row is dropped"
    with pytest.warns(RuntimeWarning, match=said):
        kept = filter_by_index(Catalog(spark), probe, index, "key", max_new_rows=99)
    assert kept.count() == 1000


def test_a_new_file_that_cannot_be_read_drops_nothing_and_says_so(spark, tmp_path):
    folder = tmp_path / "lake"
    index = lake_of(folder, list(range(100)))
    (folder / "c.parquet").write_bytes(b"no Parquet")
    with pytest.warns(RuntimeWarning, match="rows that cannot be read; no row is dropped"):
        kept = filter_by_index(Catalog(spark), spark.range(1000), index, "id", indexed_column="key")
    assert kept.count() == 1000


def test_a_new_file_of_another_type_drops_nothing_and_says_so(spark, tmp_path):
    folder = tmp_path / "lake"
    index = lake_of(folder, list(range(100)))
    pq.write_table(pa.table({"key": ["1"], "row": [1]}), folder / "c.parquet")
    with pytest.warns(RuntimeWarning, match="whose key does not convert to int64; no row is dropped"):
        kept = filter_by_index(Catalog(spark), spark.range(1000), index, "id", indexed_column="key")
    assert kept.count() == 1000


def test_a_name_that_another_column_has_now_drops_nothing_and_says_so(spark, catalog, tmp_path):
    data = pa.table({"key": range(100), "row": range(500, 600)})
    table = catalog.create_table("db.t", schema=data.schema)
    table.append(data)
    index = zonebloom.build_index(table, "key", index=tmp_path / "index", levels=("zone", "dataset"))
    for name, new in (("key", "other"), ("row", "key")):
        with table.update_schema() as change:
            change.rename_column(name, new)
    with pytest.warns(RuntimeWarning, match=r"another column of that name .*; no row is dropped"):
        kept = filter_by_index(Catalog(spark), spark.range(1000), index, "id", indexed_column="key")
    assert kept.count() == 1000


def test_a_damaged_filter_is_made_anew_from_the_files(spark, tmp_path):
    folder = tmp_path / "lake"
    index = lake_of(folder, list(range(100)))
    place = next(index_of(folder).rglob("*.sbbf"))
    place.write_bytes(bytes(place.stat().st_size))
    with pytest.warns(RuntimeWarning, match="must have checksum"):
        kept = filter_by_index(Catalog(spark), spark.range(1000), index, "id", indexed_column="key")
    assert 100 <= kept.count() < 120


def test_an_index_without_the_level_is_refused(spark, tmp_path):
    lake_of(tmp_path / "lake", [1, 2])
    plain = zonebloom.build_index(tmp_path / "lake", "row")
    with pytest.raises(IndexNotFoundError, match=r'levels=\("zone", "dataset"\)'):
        filter_by_index(Catalog(spark), spark.range(3), plain, "id", indexed_column="row")
    with pytest.raises(ColumnNotFoundError):
        filter_by_index(Catalog(spark), spark.range(3), plain, "id")


def test_the_sql_check_runs_in_sparks_own_code(spark, tmp_path):
    index = lake_of(tmp_path / "lake", list(range(100)))
    settings = {"adaptive.enabled": "false", "codegen.wholeStage": "true", "codegen.factoryMode": "CODEGEN_ONLY"}
    before = {f"spark.sql.{name}": spark.conf.get(f"spark.sql.{name}") for name in settings}
    for name, value in settings.items():
        spark.conf.set(f"spark.sql.{name}", value)
    try:
        kept = filter_by_index(Catalog(spark), spark.range(1000), index, "id", indexed_column="key")
        found = {row.id for row in kept.collect()}
        plan = kept._explain_string(mode="formatted") if hasattr(kept, "_explain_string") else ""
        plan = plan or kept._jdf.queryExecution().toString()
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    assert set(range(100)) <= found
    assert len(found) < 110
    assert "Python" not in plan
    assert "ArrowEval" not in plan
    assert plan.count("LocalTableScan [words") == 4  # each array once a query
    assert "*(1) Filter" in plan  # whole-stage code


def test_large_filters_are_folded_or_go_through_arrow(any_spark, tmp_path):
    index = lake_of(tmp_path / "lake", [7 * i for i in range(5000)], fpp=1e-6)
    num_bytes = index.dataset_filter("key").num_bytes
    probe = any_spark.range(35_000).withColumnRenamed("id", "key")
    exact = set(range(0, 35_000, 7))
    sizes = [num_bytes, num_bytes // 2, num_bytes // 100]
    for size in sizes:
        kept = filter_by_index(Catalog(any_spark), probe, index, "key", max_sql_bytes=size)
        found = {row.key for row in kept.collect()}
        assert exact <= found
        assert len(found) < 9000
    with pytest.raises(InvalidArgumentError, match="raise max_sql_bytes"):
        filter_by_index(Catalog(any_spark), probe, index, "key", max_sql_bytes=num_bytes // 100, path="sql")


def test_folding_stops_where_it_would_pass_too_much():
    filter_ = Sbbf.with_blocks(60)
    filter_.insert(pa.array(range(300)))
    assert fold_to_bytes(filter_, 60 * 32, 0.1) is filter_
    assert fold_to_bytes(filter_, 59 * 32, 0.1) == filter_.fold(2)
    assert fold_to_bytes(filter_, 32, 0.1) is None
    assert fold_to_bytes(filter_, 0, 0.1) is None


def test_a_filter_that_somebody_else_made(any_spark):
    filter_ = Sbbf.for_ndv(100, 0.001)
    filter_.insert(pa.array(range(100)))
    kept = filter_by_index(Catalog(any_spark), any_spark.range(1000), filter_, "id")
    assert {row.id for row in kept.collect()} >= set(range(100))
    assert kept.count() < 110


def test_filters_of_a_few_refreshes_in_sql(any_spark, tmp_path):
    folder = tmp_path / "lake"
    index = lake_of(folder, list(range(100)))
    for number in range(2):
        start = 1000 * (number + 1)
        pq.write_table(pa.table({"key": range(start, start + 100), "row": range(100)}), folder / f"new{number}.parquet")
        index.refresh()
    probe = any_spark.range(5000).withColumnRenamed("id", "key")
    for path in ("sql", "arrow"):
        kept = filter_by_index(Catalog(any_spark), probe, index, "key", path=path)
        assert 300 <= kept.count() < 340


def test_odd_column_names(spark, tmp_path):
    index = lake_of(tmp_path / "lake", list(range(100)))
    frames = []
    for name in ("a.b", "back`tick", "with space", "ключ"):
        quoted = "`" + name.replace("`", "``") + "`"
        probe = spark.range(1000).selectExpr(f"id as {quoted}")
        kept = filter_by_index(Catalog(spark), probe, index, name, indexed_column="key")
        frames.append(kept.selectExpr(f"{quoted} AS id"))
    for ids in ids_of(frames):
        assert 100 <= len(ids) < 110


def test_a_name_that_spark_would_substitute_is_refused(spark, tmp_path):
    index = lake_of(tmp_path / "lake", list(range(100)))
    probe = spark.range(9).withColumnRenamed("id", "${spark.app.name}")
    with pytest.raises(InvalidArgumentError, match="column must have no"):
        filter_by_index(Catalog(spark), probe, index, "${spark.app.name}", indexed_column="key")


def test_a_leaf_of_a_struct(spark, tmp_path):
    index = lake_of(tmp_path / "lake", list(range(100)))
    probe = spark.range(1000).selectExpr("named_struct('b', id) as a")
    assert 100 <= filter_by_index(Catalog(spark), probe, index, "a.b", indexed_column="key").count() < 110


def test_an_empty_data_set_joins_nothing(spark, tmp_path):
    folder = tmp_path / "lake"
    index = lake_of(folder, [1, 2, 3])
    for file in folder.glob("*.parquet"):
        file.unlink()
    assert filter_by_index(Catalog(spark), spark.range(10), index, "id", indexed_column="key").count() == 0


def test_rows_are_kept_where_spark_hashes_otherwise(spark, tmp_path):
    """A function of that name, found before Spark's own, is what another engine's hash would be."""
    index = lake_of(tmp_path / "lake", list(range(0, 400, 2)), pa.int64())
    session = spark.newSession()
    session.sql("CREATE TEMPORARY FUNCTION xxhash64(seed BIGINT, value STRING) RETURNS BIGINT RETURN 5")
    session.conf.set("spark.sql.functionResolution.sessionOrder", "first")
    probe = session.range(100).withColumnRenamed("id", "key")
    with pytest.warns(RuntimeWarning, match="xxhash64 must take the hash of one argument as the seed of the next"):
        kept = filter_by_index(Catalog(session), probe, index, "key")
    assert joined(kept, session.read.parquet(str(tmp_path / "lake"))).count() == 50
    session.conf.unset("spark.sql.functionResolution.sessionOrder")
    assert filter_by_index(Catalog(session), probe, index, "key").count() < 60
