"""An index with locators: searches keep the zones that hold a key and no other, through every change of the data.

Expected zones and rows come from all rows of the files, by brute force.
"""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import zonebloom as zb
from tests.conftest import flip
from tests.lives import assert_every_row_is_found, lake_of, rows_of, write
from zonebloom.errors import DataFileError, PredicateError
from zonebloom.storage.locator.reader import LocatorSegment

ROWS_PER_ZONE = 10


def keys_of(seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, 1 << 40, 95).tolist()


@pytest.fixture
def lake(tmp_path):
    """Three files of which each has keys of its own and some of all; the filters are bad, so that chance shows."""
    return lake_of(tmp_path, *([*keys_of(number), 7, 7, *range(100, 103)] for number in range(3)))


BESIDE, INSTEAD = {"kind": "both"}, {"kind": "locator"}
"""Locators beside the filters of zones, and instead of them."""
both = pytest.mark.parametrize("how", [BESIDE, INSTEAD], ids=["beside filters", "instead of filters"])


def build(lake, **options):
    return zb.build_index(lake, "k", rows_per_zone=ROWS_PER_ZONE, fpp=0.05, **{"kind": "both"} | options)


def locators_of(index):
    [column] = index._snapshot.manifest.columns
    return [segment for segment in column.segments if segment.kind == "locator"]


def zones_with(lake, keys) -> set[tuple[str, int]]:
    """Path and first row of the zones that hold any of `keys`."""
    wanted, actual = set(keys), set()
    for path in sorted(lake.glob("*.parquet")):
        for row, key in enumerate(pq.read_table(path)["k"].to_pylist()):
            if key in wanted:
                actual.add((path.name, row // ROWS_PER_ZONE * ROWS_PER_ZONE))
    return actual


def keys_by_zone(lake):
    columns = [pq.read_table(path)["k"].to_pylist() for path in sorted(lake.glob("*.parquet"))]
    return [keys[start : start + ROWS_PER_ZONE] for keys in columns for start in range(0, len(keys), ROWS_PER_ZONE)]


def zones_kept(result) -> set[tuple[str, int]]:
    rows = result.to_arrow().to_pylist()
    starts = [(row["path"], start) for row in rows for start in range(row["start"], row["stop"], ROWS_PER_ZONE)]
    return {(path, start // ROWS_PER_ZONE * ROWS_PER_ZONE) for path, start in starts}


def assert_only_zones_with_keys_are_kept(lake, index):
    every = rows_of(lake)
    for keys in ([7], [every[0]], [every[-1], every[50]], [101, 10**15], [10**15], every[::3]):
        result = index.search(zb.IsIn("k", keys))
        assert not result.reasons
        assert zones_kept(result) == zones_with(lake, keys)
    exists = index.exists("k", [*every, 10**15, -5, None]).to_pylist()
    assert exists == [*[True] * len(every), False, False, None]


@pytest.mark.parametrize("workers", [1, 3])
@both
def test_a_search_keeps_the_zones_that_hold_a_key_and_no_other(lake, workers, how):
    index = build(lake, workers=workers, **how)
    [column] = index._snapshot.manifest.columns
    assert sum(locator.num_zones for locator in locators_of(index)) == column.num_zones
    assert {segment.kind for segment in column.segments} == ({"locator"} if how == INSTEAD else {"locator", "zones"})
    assert_only_zones_with_keys_are_kept(lake, index)
    plain = build(lake, kind="bloom", index=lake.parent / "plain")
    absent = zb.IsIn("k", list(range(10**15, 10**15 + 20_000)))
    num_kept = [opened.search(absent).num_zones_kept for opened in (index, plain)]
    assert num_kept[0] == 0 < num_kept[1]
    assert_every_row_is_found(lake, index, is_fresh=True)


def test_what_needs_filters_says_that_there_are_none(lake):
    index = build(lake, **INSTEAD)
    with pytest.raises(LookupError, match=r'filters for a zone table, got kind locator; .* mode="full", kind="both"'):
        index.zone_table("k")
    [column] = index.indexed_columns()
    assert (column.kind, column.fpp, column.sizing) == ("locator", None, None)
    for kind, kinds in (("bloom", {"zones"}), ("both", {"zones", "locator"}), ("locator", {"locator"})):
        index.refresh("full", kind=kind)
        assert {segment.kind for segment in index._snapshot.manifest.columns[0].segments} == kinds
        if kind != "locator":
            assert len(index.zone_table("k")) == len(keys_by_zone(lake))
    assert_only_zones_with_keys_are_kept(lake, index)


@both
def test_nulls_and_zeros(tmp_path, how):
    values = [None, 0.0, -0.0, 1.5, float("nan"), 2.5, None, 3.5]
    pq.write_table(pa.table({"x": pa.array(values, pa.float64())}), tmp_path / "x.parquet")
    index = zb.build_index(tmp_path, "x", rows_per_zone=1, **how)
    assert index.search("x = 0").row_ranges.num_rows == 2
    assert index.search("x IS NULL").row_ranges.num_rows == 2
    assert index.search("x = 1.5 OR x IS NULL").row_ranges.num_rows == 3
    assert index.search("NOT x = 1.5").row_ranges.num_rows >= 5


@pytest.mark.parametrize("how", ["missing", "tail", "page"])
def test_a_damaged_locator_is_told_and_the_filters_answer(lake, how):
    index = build(lake, workers=1)
    path = index.root / locators_of(index)[0].path
    if how == "missing":
        path.unlink()
    else:
        flip(path, path.stat().st_size - 40 if how == "tail" else 100)
    index = zb.open_index(lake)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for key in rows_of(lake)[::10]:
            result = index.search(zb.Equals("k", key))
            assert zones_kept(result) >= zones_with(lake, [key])
            assert [reason.code for reason in result.reasons] == ["SEGMENT_CORRUPT"]
            assert result.num_zones_kept < result.num_zones, "the filters still prune"
        assert all(index.exists("k", rows_of(lake)).to_pylist())
        assert not index.verify(sample=1.0).is_sound
    assert [str(warning.message).count("other segments of the column are asked instead") for warning in caught] == [1]
    index.refresh(check=True)
    assert not index.search(zb.Equals("k", 7)).reasons


@both
@pytest.mark.parametrize("count", [30, 3000])
def test_a_value_that_is_asked_for_repeatedly_is_looked_up_once(lake, how, count, monkeypatch):
    """A key of many zones has as many pairs: for each repetition anew they would fill the memory."""
    index, asked, genuine = build(lake, **how), [], LocatorSegment.lookup
    monkeypatch.setattr(
        LocatorSegment, "lookup", lambda self, hashes: asked.append(len(hashes)) or genuine(self, hashes)
    )
    keys = [7, 10**15] * count
    assert zones_kept(index.search(column="k", values=keys)) == zones_with(lake, [7])
    assert index.exists("k", keys).to_pylist() == [True, False] * count
    assert max(asked) == 2


# --- locate -----------------------------------------------------------------------------------------------------------


def rows_with(lake, keys) -> list[tuple[int, str | None, int | None]]:
    """Key by key the path and row of each occurrence, or None where there is none."""
    values = {path.name: pq.read_table(path)["k"].to_pylist() for path in sorted(lake.glob("*.parquet"))}
    actual = []
    for index, key in enumerate(keys):
        mine = [(index, path, row) for path in values for row, value in enumerate(values[path]) if value == key]
        actual += mine if mine or key is None else [(index, None, None)]
    return actual


def located(index, keys, **options) -> list[tuple]:
    return [tuple(row.values()) for row in index.locate("k", keys, **options).to_pylist()]


@pytest.mark.parametrize("how", [BESIDE, INSTEAD, {"kind": "bloom"}])
def test_locate_names_every_row_of_every_key(lake, how):
    index = build(lake, **how)
    every = rows_of(lake)
    keys = [7, 10**15, *every[::9], 101, 7, -1]
    ranges = index.locate("k", keys).to_pylist()
    expected = {(key, path, row) for key, path, row in rows_with(lake, keys) if path}
    rows = [(part["key_index"], part["path"], range(part["start"], part["stop"])) for part in ranges]
    covered = {(key, path, row) for key, path, numbers in rows for row in numbers}
    assert covered >= expected
    if how in (BESIDE, INSTEAD):
        zones = [zones_with(lake, [key]) for key in keys]
        assert len(covered) <= ROWS_PER_ZONE * sum(map(len, zones))
        order = [(row_range["key_index"], row_range["path"], row_range["start"]) for row_range in ranges]
        assert order == sorted(order)
        assert index.files_for("k", keys[:2]) == sorted({path for path, _ in zones[0]})
        assert index.files_for("k", [10**15]) == []
    assert located(index, keys, exact=True) == rows_with(lake, keys)
    assert located(index, [], exact=True) == []
    table = index.locate("k", [None, 7], exact=True)
    assert table.schema == pa.schema([("key_index", pa.int64()), ("path", pa.string()), ("row", pa.int64())])


def test_locators_instead_of_filters_that_are_damaged_keep_their_zones(lake):
    index = build(lake, workers=1, **INSTEAD)
    flip(index.root / locators_of(index)[0].path, 100)
    index = zb.open_index(lake)
    with pytest.warns(RuntimeWarning, match="rows that it describes are read whole"):
        result = index.search("k = 7")
    assert [reason.code for reason in result.reasons] == ["SEGMENT_CORRUPT"]
    assert result.num_zones_kept == result.num_zones
    assert located(index, [7, 10**15], exact=True) == rows_with(lake, [7, 10**15])
    index.refresh()
    assert_only_zones_with_keys_are_kept(lake, index)


@both
@pytest.mark.parametrize("answer", ["locate", "files_for"])
def test_locate_warns_of_a_damaged_locator(lake, how, answer):
    path = build(lake, workers=1, **how).root / "columns/k"
    [locator] = path.glob("*.locator")
    flip(locator, 100)
    with pytest.warns(RuntimeWarning, match=r"page 0 of segment .* must have the checksum that it carries"):
        getattr(zb.open_index(lake), answer)("k", [7])


def test_filters_name_the_zones_of_many_keys_as_of_few(tmp_path, monkeypatch):
    """A slice segment and a zone segment: each key has the zones that a search for it alone keeps."""
    for number in range(3):
        write(tmp_path / f"f{number}.parquet", [*range(number * 900, number * 900 + 900), 7])
    index = zb.build_index(tmp_path, "k", rows_per_zone=3, fpp=0.05)
    keys = pa.array(range(0, 3000, 7))
    alone = [index.search(zb.Equals("k", key)).row_ranges.num_rows for key in keys.to_pylist()]
    assert index.optimize().columns
    for few in (10**6, 0):
        monkeypatch.setattr("zonebloom.storage.slices.reader.FEW_HASHES", few)
        table = zb.open_index(tmp_path).locate("k", keys)
        rows = np.zeros(len(keys), np.int64)
        np.add.at(rows, table["key_index"].to_numpy(), pc.subtract(table["stop"], table["start"]).to_numpy())
        assert rows.tolist() == alone


def test_locate_reads_what_the_index_does_not_know(lake):
    index = build(lake)
    write(lake / "f3.parquet", [7, 10**15, 3], 1)
    write(lake / "f1.parquet", [10**15], 2)
    (lake / "f2.parquet").unlink()
    keys = [7, 10**15, 101, 12345]
    assert located(index, keys, exact=True) == rows_with(lake, keys)
    assert {"f1.parquet", "f3.parquet"} <= set(index.files_for("k", [12345]))
    index.refresh()
    assert located(index, keys, exact=True) == rows_with(lake, keys)
    assert index.files_for("k", [12345]) == []


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        *((pa.array([1], pa.int32()), pa.array([2**40]), 2**40), (pa.array([1.5], pa.float32()), pa.array([0.1]), 0.1)),
        *((pa.array([1]), pa.array([0.5]), 0.5), (pa.array([1]), pa.array([2**63], pa.uint64()), 2**63)),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_a_key_beyond_the_type_of_the_index_may_be_in_files_that_have_no_zones(tmp_path, old, new, key):
    pq.write_table(pa.table({"x": old}), tmp_path / "a.parquet")
    index = zb.build_index(tmp_path, "x")
    pq.write_table(pa.table({"x": new}), tmp_path / "b.parquet")
    for mode in ("quick", "incremental"):
        assert "b.parquet" in index.files_for("x", [key])
        assert "b.parquet" in index.locate("x", [key])["path"].to_pylist()
        try:
            assert index.locate("x", [key], exact=True)["path"].to_pylist() == ["b.parquet"]
        except DataFileError as error:
            assert "must convert to the data set's type" in str(error)  # noqa: PT017 - either is right
        index.refresh(mode)


def test_keys_of_a_column_that_has_become_a_struct_are_refused(tmp_path):
    write_deltalake(tmp_path / "t", pa.table({"x": [1, 7]}))
    index = zb.build_index(tmp_path / "t", "x")
    structs = pa.table({"x": [{"y": 7}]})
    write_deltalake(tmp_path / "t", structs, mode="overwrite", schema_mode="overwrite")
    for keys in ([7], [None], []):
        with pytest.raises(PredicateError, match="x must hold plain values to be compared with keys, got struct<y"):
            index.locate("x", keys, exact=True)


def test_memory_for_many_keys_does_not_grow_with_the_new_files(tmp_path):
    (tmp_path / "lake").mkdir()
    for number in range(40):
        pq.write_table(pa.table({"x": range(number * 10, number * 10 + 10)}), tmp_path / f"lake/{number:02}.parquet")
        if not number:
            index = zb.build_index(tmp_path / "lake", "x")
    keys = pa.array(range(50_000))
    tracemalloc.start()
    try:
        assert len(index.files_for("x", keys)) == 40
        assert index.locate("x", keys, exact=True)["row"].null_count == 50_000 - 400
        assert tracemalloc.get_traced_memory()[1] < 24 << 20  # a product of keys and files would be 48 MB
    finally:
        tracemalloc.stop()


@both
def test_memory_does_not_grow_with_repeated_keys(tmp_path, how):
    """Ten values in each of 2000 zones: a pair for each key and zone would be 100 million."""
    pq.write_table(pa.table({"k": np.arange(20_000) % 10}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": [50]}), tmp_path / "b.parquet")
    index = zb.build_index(tmp_path, "k", rows_per_zone=10, **how)
    keys = np.arange(50_000) % 10
    index.locate("k", keys[:1])
    tracemalloc.start()
    try:
        assert index.files_for("k", keys) == index.search(column="k", values=keys).files == ["a.parquet"]
        table = index.locate("k", keys)
        assert table["key_index"].to_pylist() == list(range(50_000)), "zones that touch are one range"
        assert pc.min_max(table["stop"]).as_py() == {"min": 20_000, "max": 20_000}
        assert tracemalloc.get_traced_memory()[1] < 48 << 20
    finally:
        tracemalloc.stop()
    few = [7, 50, None, 7, 2]
    assert located(index, few, exact=True)[:2000] == [(0, "a.parquet", row) for row in range(7, 20_000, 10)]
    assert index.locate("k", few)["key_index"].to_pylist() == [0, 1, 3, 4]


@both
def test_rows_that_may_hold_any_key_are_said_once(tmp_path, how):
    for number in range(6):
        write(tmp_path / f"f{number}.parquet", [number * 10, 7])
        if number == 1:
            index = zb.build_index(tmp_path, "k", **how)
    table = index.locate("k", [10, 10**15, None, *range(100, 1100)])
    of_key = {"key_index": 0, "path": "f1.parquet", "fragment_id": 1, "start": 0, "stop": 2}
    assert table.drop_columns("fingerprint").to_pylist()[:1] == [of_key]
    assert table["key_index"].to_pylist() == [0, None, None, None, None]
    assert table["path"].to_pylist()[1:] == [f"f{number}.parquet" for number in range(2, 6)]
    assert index.locate("k", [None]).num_rows == index.locate("k", []).num_rows == 0
