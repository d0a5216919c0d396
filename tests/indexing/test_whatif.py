"""`whatif` against the index that is then really built: bytes and zones kept within bounds, and the verdicts."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from zonebloom.bloom.hashing import hash_values
from zonebloom.bloom.sizing import SIZINGS
from zonebloom.errors import ColumnNotFoundError, InvalidArgumentError
from zonebloom.indexing.whatif import advice
from zonebloom.types import Forecast

ROWS_PER_ZONE = 256
NUM_FILES = 6
FILE_ROWS = 25_000  # no multiple of a zone: each file ends with a short one
ZONES_PER_FILE = -(-FILE_ROWS // ROWS_PER_ZONE)
NUM_ZONES = NUM_FILES * ZONES_PER_FILE
NUM_ROWS = NUM_FILES * FILE_ROWS


def write(root: Path, column: Callable[[int], pa.Array], num_files: int = NUM_FILES, **options) -> Path:
    root.mkdir()
    for number in range(num_files):
        options = {"row_group_size": 5000, **options}
        pq.write_table(pa.table({"key": column(number)}), root / f"{number}.parquet", **options)
    return root


@pytest.fixture(scope="module")
def keys() -> np.ndarray:
    """Keys of all rows: each of 30 000 about five times, in zones that are far apart."""
    return np.random.default_rng(0).integers(0, 30_000, NUM_ROWS)


@pytest.fixture(scope="module")
def lake(tmp_path_factory, keys) -> Path:
    parts = keys.reshape(NUM_FILES, FILE_ROWS)
    return write(tmp_path_factory.mktemp("whatif") / "lake", lambda number: pa.array(parts[number]))


@pytest.fixture(scope="module")
def forecast(lake) -> Forecast:
    return zb.whatif(lake, "key", rows_per_zone=ROWS_PER_ZONE)


def option_of(forecast, sizing):
    return next(option for option in forecast.options if option.sizing == sizing)


def built(lake, tmp_path, **options):
    return zb.build_index(lake, "key", rows_per_zone=ROWS_PER_ZONE, index=tmp_path / "index", **options)


def test_there_is_an_option_for_each_sizing_and_for_a_locator(forecast):
    options = [(option.kind, option.sizing) for option in forecast.options]
    assert options == [*(("bloom", sizing) for sizing in SIZINGS), ("locator", None)]
    assert (forecast.num_files, forecast.num_rows, forecast.num_zones) == (NUM_FILES, NUM_ROWS, NUM_ZONES)


def test_a_sample_reads_little_and_leaves_nothing(forecast, lake, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    zb.whatif(lake / "0.parquet", "key")
    assert list(tmp_path.iterdir()) == []
    assert forecast.sampled["zones"] <= 128 < NUM_ZONES
    assert sorted(path.name for path in lake.iterdir()) == [f"{number}.parquet" for number in range(NUM_FILES)]
    assert [path.name for path in lake.parent.iterdir()] == ["lake"]


@pytest.mark.parametrize("sizing", SIZINGS)
def test_bytes_and_false_zones_are_those_of_the_index(forecast, lake, tmp_path, sizing):
    index = built(lake, tmp_path, sizing=sizing)
    option = option_of(forecast, sizing)
    assert option.index_bytes == pytest.approx(index.indexed_columns()[0].index_bytes, rel=0.02)
    measured = index.verify(sample=1.0).columns[0].measured_fpp
    assert option.real_fpp == pytest.approx(measured, rel=0.1)
    expected = index.explain(zb.Equals("key", -1)).false_zones.expected
    assert option.absent_kept == pytest.approx(expected, rel=0.3), "two samples of one truth"


@pytest.mark.parametrize(("fpp", "sizing"), [(0.00057, "power_of_two"), (0.01, "adaptive")])
def test_zones_kept_are_those_of_the_index(lake, keys, tmp_path, fpp, sizing):
    zones = built(lake, tmp_path, fpp=fpp, sizing=sizing).zone_table("key")
    option = option_of(zb.whatif(lake, "key", rows_per_zone=ROWS_PER_ZONE, fpp=fpp), sizing)
    random = np.random.default_rng(1)

    def kept(values) -> int:
        return int(zones.may_contain(np.asarray(hash_values(pa.array(values, pa.int64())), np.uint64)).sum())

    present = np.mean([kept([key]) for key in random.choice(keys, 400).tolist()])
    assert option.present_kept == pytest.approx(present, rel=0.1)
    absent = [kept([key]) for key in range(10**6, 10**6 + 2000)]
    assert option.absent_kept == pytest.approx(np.mean(absent), abs=5 * np.std(absent) / len(absent) ** 0.5 + 0.03)
    many_absent = [kept(list(range(first, first + 1000))) for first in range(10**7, 10**7 + 5000, 1000)]
    assert option.many_absent_kept == pytest.approx(np.mean(many_absent), rel=0.1, abs=3)
    many_present = [kept(random.choice(keys, 1000).tolist()) for _ in range(5)]
    assert option.many_present_kept == pytest.approx(np.mean(many_present), rel=0.05)


def test_a_build_recommends_a_locator_by_what_its_filters_hold(keys, lake, tmp_path):
    located = built(lake, tmp_path, kind="locator", workers=1)
    expected = located.explain(zb.Equals("key", -1)).false_zones.expected
    filters = built(lake, tmp_path, overwrite=True)
    (advised,) = advice(filters.view())
    assert advised.index_bytes == pytest.approx(located.indexed_columns()[0].index_bytes, rel=0.15)
    assert advised.filter_bytes == filters.indexed_columns()[0].index_bytes
    assert advised.absent_kept == pytest.approx(expected, rel=0.1)
    assert advised.filters_kept == pytest.approx(filters.explain(zb.Equals("key", -1)).false_zones.expected, rel=0.01)
    assert (advised.kind, advised.build_options) == ("locator", ["--kind", "locator", "--rows-per-zone", "256"])
    (advised,) = advice(built(lake, tmp_path, overwrite=True, fpp=0.01).view())
    assert advised.build_options[:6] == ["--kind", "bloom", "--sizing", "adaptive", "--fpp", "0.01"]
    adaptive = built(lake, tmp_path, overwrite=True, fpp=0.01, sizing="adaptive", workers=1)
    assert advised.index_bytes == pytest.approx(adaptive.indexed_columns()[0].index_bytes, rel=0.1)
    assert advised.absent_kept == pytest.approx(adaptive.explain(zb.Equals("key", -1)).false_zones.expected, rel=0.1)
    for options in ({"kind": "locator"}, {"sizing": "adaptive", "fpp": 0.01}):
        assert advice(built(lake, tmp_path, overwrite=True, **options).view()) == []


def test_a_locator_is_as_it_is_built(forecast, lake, keys, tmp_path):
    index = built(lake, tmp_path, kind="locator", workers=1)
    option = option_of(forecast, None)
    assert option.index_bytes == pytest.approx(index.indexed_columns()[0].index_bytes, rel=0.05)
    assert option.absent_kept == pytest.approx(index.explain(zb.Equals("key", -1)).false_zones.expected, rel=0.02)
    chosen = np.random.default_rng(1).choice(keys, 400).tolist()
    present = np.mean([index.search(zb.Equals("key", key)).num_zones_kept for key in chosen])
    assert option.present_kept == pytest.approx(present, rel=0.1)
    many = index.search(zb.IsIn("key", np.random.default_rng(2).choice(keys, 1000).tolist())).num_zones_kept
    assert option.many_present_kept == pytest.approx(many, rel=0.05)
    assert index.search(zb.IsIn("key", list(range(10**7, 10**7 + 1000)))).num_zones_kept == 0
    assert option.many_absent_kept == pytest.approx(1000 * option.absent_kept)
    assert option.many_absent_kept < 0.001
    assert option.build_seconds > 0


def test_one_way_to_build_is_recommended(forecast, lake, tmp_path):
    best = forecast.recommended
    assert best.kind == "locator"
    command = f"zonebloom build {lake} -c key --kind locator --rows-per-zone {ROWS_PER_ZONE}"
    assert forecast.command(best) == forecast.to_dict()["recommended"]["command"] == command
    assert f"\nrecommended: {command} ({best.index_bytes / 1e6:.3g} MB)\n" in str(forecast)
    repeated = write(tmp_path / "a lake", lambda _: pa.array(np.random.default_rng(3).integers(0, 40, 20_000)), 2)
    few = zb.whatif(repeated, "key", rows_per_zone=ROWS_PER_ZONE)
    assert (few.verdict.is_useful, few.recommended) == (False, None)
    assert str(few).endswith("recommended: no index on key")
    options = (replace(forecast.options[2], index_bytes=1), *forecast.options[:2], best)
    bloom = replace(forecast, source="a lake", options=options)
    command = "zonebloom build 'a lake' -c key --kind bloom --sizing adaptive --"
    assert bloom.command(bloom.recommended).startswith(command)


def test_a_small_data_set_is_counted_and_not_estimated(tmp_path):
    random = np.random.default_rng(2)
    rows = [random.integers(0, 700, 2000) for _ in range(3)]
    lake = write(tmp_path / "lake", lambda number: pa.array(rows[number]), 3)
    forecast = zb.whatif(lake, "key", rows_per_zone=100)
    zones = [set(part[first : first + 100].tolist()) for part in rows for first in range(0, 2000, 100)]
    holding = [sum(key in zone for zone in zones) for part in rows for key in part.tolist()]
    assert forecast.sampled["zones"] == forecast.num_zones == len(zones)
    assert forecast.distinct_per_zone == pytest.approx(np.mean([len(zone) for zone in zones]))
    assert forecast.zones_per_key == pytest.approx(np.mean(holding))


def uuid7s(first: int, count: int, random: np.random.Generator) -> pa.Array:
    milliseconds = np.sort(random.integers(first, first + 10**6, count))
    values = [uuid.UUID(int=int(ms) << 80 | 7 << 76 | 2 << 62 | int(random.integers(1 << 62))) for ms in milliseconds]
    return pa.array([str(value) for value in values])


def test_an_unsupported_type_is_named_and_nothing_else_said(tmp_path):
    lake = write(tmp_path / "lake", lambda _: pa.array([[1, 2]] * 10), 1)
    forecast = zb.whatif(lake, "key")
    assert (forecast.verdict.code, forecast.options) == ("UNSUPPORTED_TYPE", ())
    assert "UNSUPPORTED_TYPE" in str(forecast)


RANDOM, ROWS = np.random.default_rng(3), 5000


@pytest.mark.parametrize(
    ("values", "code", "message"),
    [
        (lambda number: pa.array(np.arange(number * ROWS, (number + 1) * ROWS)), "SORTED", "statistics"),
        (lambda number: uuid7s(number * 10**6, 6000, RANDOM), "SORTED", ""),
        (lambda number: pa.array(np.repeat(number * 5 + np.arange(5), ROWS)), "SORTED", ""),
        (lambda _: pa.array(RANDOM.choice(["red", "green", "blue", "white"], ROWS)), "LOW_CARDINALITY", ""),
        (lambda _: pa.array([], pa.int64()), "NO_ROWS", ""),
        (lambda _: pa.array([7] * ROWS), "CONSTANT", ""),
        (lambda _: pa.nulls(ROWS, pa.string()), "CONSTANT", ""),
    ],
    ids=["sorted", "ids that grow with time", "repeated values in order", "few values", "no rows", "constant", "nulls"],
)
def test_a_verdict_is_named(tmp_path, values, code, message):
    verdict = zb.whatif(write(tmp_path / "lake", values, row_group_size=1000), "key", rows_per_zone=64).verdict
    assert (verdict.code, verdict.is_useful) == (code, False)
    assert message in verdict.message


def test_without_statistics_the_zones_tell_what_is_sorted(tmp_path):
    def rising(number):
        return pa.array([f"{value:09}" for value in range(number * ROWS, (number + 1) * ROWS)])

    lake = write(tmp_path / "lake", rising, write_statistics=False)
    verdict = zb.whatif(lake, "key", rows_per_zone=64).verdict
    assert (verdict.code, "other zones" in verdict.message) == ("SORTED", True)


def test_a_few_frequent_keys_do_not_make_an_index_useless(tmp_path):
    random = np.random.default_rng(5)

    def skewed(_):
        rare = random.integers(0, 2**62, 20_000)
        return pa.array(np.where(random.random(20_000) < 0.7, 1, rare))

    forecast = zb.whatif(write(tmp_path / "lake", skewed), "key", rows_per_zone=ROWS_PER_ZONE)
    assert forecast.zones_per_key > 0.5 * forecast.num_zones
    assert forecast.verdict.is_useful
    assert "frequent keys" in forecast.verdict.message


@pytest.mark.parametrize(
    "values",
    [
        pa.array([uuid.UUID(int=value * 7919 % 10007).bytes for value in range(2000)], pa.binary(16)),
        pa.array(np.random.default_rng(6).random(2000), pa.float64()),
        pa.array(np.random.default_rng(6).integers(0, 10**15, 2000), pa.timestamp("ns", "UTC")),
        pa.array(np.random.default_rng(6).integers(0, 10**9, 2000), pa.duration("us")),
        pa.array([f"{value * 7919 % 10007}" for value in range(2000)], pa.large_string()).dictionary_encode(),
        pa.array([value * 7919 % 10007 for value in range(2000)], pa.decimal128(12, 2)),
    ],
    ids=lambda values: str(values.type).split("<", maxsplit=1)[0],
)
def test_every_type_gets_its_verdict(tmp_path, values):
    lake = write(tmp_path / "lake", lambda _: values, 2, row_group_size=500)
    forecast = zb.whatif(lake, "key", rows_per_zone=50)
    assert forecast.verdict.code == "USEFUL"
    assert forecast.range_overlap > 0.9


@pytest.mark.filterwarnings("ignore:.*it is not indexed:RuntimeWarning")
def test_a_file_that_cannot_be_read_is_passed_over(tmp_path):
    lake = write(tmp_path / "lake", lambda number: pa.array(np.arange(1000) * 31 + number), 3)
    (lake / "1.parquet").write_bytes(b"PAR1 no")
    assert zb.whatif(lake, "key").num_files == 2


def test_a_file_without_the_column_holds_nulls(tmp_path):
    lake = write(tmp_path / "lake", lambda number: pa.array(np.arange(1000) * 31 + number), 3)
    pq.write_table(pa.table({"other": range(1000)}), lake / "0.parquet")
    forecast = zb.whatif(lake, "key")
    assert forecast.num_files == 3
    assert forecast.range_overlap > 0.9


def test_mistakes_are_the_callers(lake):
    for arguments, options, told in (
        (["kee"], {}, r"no column kee in .*; did you mean key"),
        (["key"], {"fpp": 0.0}, "fpp"),
        ([["key"]], {}, r"one column, got \['key'\]; call whatif for each column"),
        (["key"], {"workers": 0}, "workers"),
    ):
        with pytest.raises((ColumnNotFoundError, InvalidArgumentError), match=told):
            zb.whatif(lake, *arguments, **options)
