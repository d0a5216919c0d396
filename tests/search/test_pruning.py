"""Pruning: kinds, counts, reasons; each reason code is reached by a test.

Oracle: the rows as written.
"""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from zonebloom.errors import PredicateError
from zonebloom.predicates import Not


@pytest.fixture
def index(hive_lake) -> zb.Index:
    return zb.build_index(hive_lake.root, ["user_id", "device_id", "amount", "note"], rows_per_zone=100)


def codes(result) -> set[str]:
    return {str(reason.code) for reason in result.reasons}


def test_pruning_happens(hive_lake, index):
    """A unique key keeps one zone of 72, and the counts add up."""
    user = hive_lake.table["user_id"][3000].as_py()
    result = index.search(zb.Equals("user_id", user))
    assert (result.kind, result.num_zones, result.num_zones_kept) == ("at_most", 72, 1)
    assert result.total.to_dict() | {"bytes": 0} == {"files": 4, "zones": 72, "rows": 7200, "bytes": 0}
    assert result.kept.to_dict() | {"bytes": 0} == {"files": 1, "zones": 1, "rows": 100, "bytes": 0}
    assert 0 < result.kept.bytes < result.total.bytes
    with_rows = [hive_lake.root / path for path in hive_lake.files if "day=2/part-3" not in path]
    assert result.total.bytes == sum(map(total_bytes, with_rows))
    nobody = index.search("user_id = 'nobody'")
    assert (nobody.num_zones_kept, nobody.num_rows_kept, nobody.kept.bytes, nobody.files) == (0, 0, 0, [])


def total_bytes(path) -> int:
    groups = pq.read_metadata(path).to_dict()["row_groups"]
    return sum(column["total_compressed_size"] for group in groups for column in group["columns"])


def test_a_negation_that_is_known_needs_no_reason(index):
    """Folders say where a condition is FALSE, and two negations undo each other, though every row is kept."""
    for predicate in ("NOT day = 99", "NOT (NOT day < 99)", "NOT (NOT (amount IS NULL OR day < 99))"):
        result = index.search(predicate)
        assert (result.num_rows_kept, result.reasons) == (result.num_rows, ()), predicate


def test_kinds(hive_lake, index):
    user = hive_lake.table["user_id"][0].as_py()
    is_user = f"user_id = '{user}'"
    for predicate, kind in (
        *((exact, "exact") for exact in ("day = 1", "NOT day = 1", "day = 1 OR day IS NULL")),
        *((wide, "at_most") for wide in (is_user, f"{is_user} AND day = 1", f"{is_user} OR day = 1", "note IS NULL")),
    ):
        assert index.search(predicate).kind == kind, predicate
    assert index.search(f"NOT user_id = '{user}'").kind in ("at_least", "at_most")
    assert index.search(f"NOT user_id = '{user}'").num_rows_kept == 7200


def test_not_atmost_is_atleast(hive_lake, index):
    """NOT of a filter's answer keeps everything; NOT of NOT prunes again."""
    user = hive_lake.table["user_id"][0].as_py()
    equals = zb.Equals("user_id", user)
    assert index.search(~equals).num_rows_kept == 7200
    assert index.search(~~equals).num_zones_kept == 1
    assert index.search(Not(Not(equals))).num_zones_kept == 1
    assert index.search(~(~equals | zb.Equals("day", 1))).num_rows_kept == 0
    assert index.search(~(zb.Equals("day", 1) | ~equals)).num_rows_kept == 0
    assert index.search(~(zb.Equals("day", 3) | ~equals)).num_zones_kept == 1


def test_and_of_two_columns_meets_in_a_few_zones(hive_lake, index):
    row = hive_lake.table.slice(5000, 1).to_pylist()[0]
    both = zb.Equals("user_id", row["user_id"]) & zb.Equals("device_id", row["device_id"])
    alone = index.search(zb.Equals("device_id", row["device_id"])).num_rows_kept
    assert index.search(both).num_rows_kept == 100 < alone
    other = hive_lake.table["device_id"][6999].as_py()
    assert index.to_table(zb.Equals("user_id", row["user_id"]) & zb.Equals("device_id", other)).num_rows == 0


def test_is_null_prunes_by_has_null(tmp_path):
    pq.write_table(pa.table({"c": [1] * 50 + [None] + [1] * 49, "d": [math.nan] * 100}), tmp_path / "a.parquet")
    index = zb.build_index(tmp_path, ["c", "d"], rows_per_zone=10)
    assert list(index.search("c IS NULL").row_ranges) == [(0, 50, 60)]
    assert index.search("d IS NULL").num_rows_kept == 0
    assert index.search("c IS NOT NULL").num_rows_kept == 100


# --- reasons --------------------------------------------------------------------------------------------------------


def test_reasons_of_a_condition(index):
    for conditions, expected in [
        (["trace IS NULL"], {"COLUMN_NOT_INDEXED"}),
        (["user_id > 'a'", "user_id LIKE 'a%'", "user_id = note", "amount BETWEEN 1 AND 2"],
         {"PREDICATE_NOT_SUPPORTED"}),
        (["user_id != 'a'", "NOT user_id = 'a'", "user_id NOT IN ('a')", "note IS NOT NULL"], {"NEGATED_PREDICATE"}),
        (["CAST(user_id AS BIGINT) = 1", "upper(user_id) = 'A'"], {"CAST_ON_COLUMN"}),
        (["device_id = 1.5"], {"TYPE_MISMATCH"}),
        ([zb.Equals("amount", math.nan), zb.IsIn("amount", [1.0, math.nan])], {"NAN_LITERAL"}),
        (["user_id = 'a' OR trace IS NULL"], {"COLUMN_NOT_INDEXED", "OR_WITH_UNINDEXED_BRANCH"}),
        (["user_id = 'a' OR note IS NULL"], set()),  # one branch may match in every zone
    ]:  # fmt: skip
        for condition in conditions:
            result = index.search(condition)
            assert (codes(result), result.num_rows_kept) == (expected, 7200), condition
    assert [reason.column for reason in index.search("trace IS NULL").reasons] == ["trace"]


def test_reason_file_not_indexed_changed_and_unreadable(hive_lake, index):
    pq.write_table(hive_lake.table.slice(0, 10).drop_columns("day"), hive_lake.root / "day=1" / "new.parquet")
    pq.write_table(hive_lake.table.slice(0, 10).drop_columns("day"), hive_lake.root / hive_lake.files[0])
    (hive_lake.root / hive_lake.files[1]).write_bytes(b"PAR1 but no more")
    (hive_lake.root / hive_lake.files[4]).unlink()
    result = index.search("user_id = 'nobody'")
    first, torn, new = *hive_lake.files[:2], "day=1/new.parquet"
    told = {(reason.path, str(reason.code)) for reason in result.reasons}
    wanted = {(new, "FILE_NOT_INDEXED"), (first, "FILE_CHANGED"), (torn, "FILE_CHANGED"), (torn, "FILE_UNREADABLE")}
    assert told == wanted
    assert result.files == sorted([*hive_lake.files[:2], "day=1/new.parquet"])
    explained = index.explain("user_id = 'nobody'")
    assert explained.to_dict()["files"] == {"covered": 2, "unknown": 3, "changed": 2, "deleted": 1}
    assert re.search(r"indexed files +2\n.*ignored +1 deleted file\n", str(explained), re.DOTALL)
    assert re.search(r"read whole +1 new, 2 changed files\n", str(explained))
    assert "FILE_UNREADABLE" in str(explained)


def test_reason_saturated_filter(tmp_path):
    """Zones with far more distinct values than their filters were made for: explain looks into them, and says so."""
    pq.write_table(pa.table({"c": range(3000)}), tmp_path / "a.parquet")
    index = zb.build_index(tmp_path, "c", rows_per_zone=1000, fpp=0.9)
    explained = index.explain("c = -1 OR c = 7 OR c = -3 OR c = -4 OR c = -5")
    assert "SATURATED_FILTER" in codes(explained.result)
    assert "SATURATED_FILTER" in str(explained)


def test_reasons_are_said_once_and_survive_json(index):
    result = index.search("user_id > 'a' AND user_id > 'a' OR user_id > 'a' AND trace IS NULL")
    keys = [(reason.code, reason.message) for reason in result.reasons]
    assert len(keys) == len(set(keys))
    assert json.loads(json.dumps(result.to_dict()))["reasons"][0]["code"] in set(codes(result))


# --- explain --------------------------------------------------------------------------------------------------------


# --- predicates that are hard on the evaluator ----------------------------------------------------------------------


def test_an_empty_lake_has_nothing_to_find(tmp_path):
    pq.write_table(pa.table({"c": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    index = zb.build_index(tmp_path, "c")
    result = index.search("c = 1")
    assert (result.num_zones, result.num_rows, result.num_rows_kept, result.reasons) == (0, 0, 0, ())
    assert index.to_table("c IS NULL OR NOT c = 1").num_rows == 0
    assert index.exists("c", [1, None]).to_pylist() == [False, None]
    assert index.zone_table("c").to_arrow().num_rows == 0
    assert "none of 0 rows need be read" in str(index.explain("c = 1"))
    assert index.verify().is_sound


@pytest.mark.parametrize(
    "predicate",
    [*("", "  ", "user_id =", "user_id = 'a", "SELECT 1", ";", "user_id = 1; DROP", None, 5, True), ["user_id = 1"]],
)
def test_what_is_no_predicate_is_refused(index, predicate):
    for call in (index.search, index.scan, index.explain):
        with pytest.raises(PredicateError):
            call(predicate)


# --- zone tables without a data set -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (pa.array([5, 7], pa.int32()), [5, 0.5]),
        (pa.array([5, 7], pa.int32()), pa.array([5], pa.int64())),
        (pa.array([5, 7], pa.timestamp("us")), [pd.Timestamp(5, unit="us"), pd.Timestamp(1)]),
        (pa.array([5, 7], pa.timestamp("us")), np.array([5000, 1], "datetime64[ns]")),
        (pa.array(["5", "7"]), pa.array(["5"], pa.large_string())),
        (pa.array([5, 7], pa.int32()), [5, True]),  # no type of Lance's holds a boolean: nothing is proved
    ],
    ids=str,
)
def test_a_zone_table_without_a_type_loses_no_row_of_any_type(column, values):
    """One literal of a list that a type cannot hold does not keep the others from being probed in it."""
    builder = zb.ZoneBuilder(column.type, rows_per_zone=1)
    builder.add(0, column)
    table = builder.finish().to_arrow()
    untyped = table.cast(pa.schema([field.remove_metadata() for field in table.schema], table.schema.metadata))
    result = zb.ZoneTable.from_arrow(untyped).search(zb.col("any").isin(values))
    assert list(result.row_ranges) == ([(0, 0, 2)] if any(value is True for value in values) else [(0, 0, 1)])


def test_a_zone_table_is_searched_alone():
    builder = zb.ZoneBuilder(pa.string(), column="user", rows_per_zone=2)
    builder.add(4, pa.array(["a", "b", "c", None, "e"]))
    zones = zb.ZoneTable.from_arrow(builder.finish().to_arrow())
    assert list(zones.search("user = 'c'").row_ranges) == [(4, 2, 4)]
    assert list(zones.search(zb.Equals("anything", "e")).row_ranges) == [(4, 4, 5)]
    assert list(zones.search("user IS NULL").row_ranges) == [(4, 2, 4)]
    assert zones.search("user != 'c'").num_rows_kept == 5
    assert list(zones.search(pc.field("user").isin(["a", "zzz"])).row_ranges) == [(4, 0, 2)]
    assert zones.search("user = 'zzz'").to_arrow()["path"].null_count == 0
    with pytest.raises(PredicateError, match="describes one column"):
        zones.search("user = 'a' AND other = 'b'")
