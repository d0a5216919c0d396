"""`verify`: a value that its zone's filter denies is found; sound indexes are said to be sound.

Oracle: indexes spoiled on purpose.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from zonebloom.bloom.zones import ZONE_FIELDS
from zonebloom.errors import (
    CorruptIndexError,
    DataFileError,
    IndexExistsError,
    InvalidArgumentError,
    InvalidZoneTableError,
)

COLUMNS = ["user_id", "device_id", "trace", "note", "amount"]


def test_a_fresh_index_is_sound(flat_lake):
    for sizing in ("power_of_two", "exact", "adaptive", "parquet"):
        index = zb.build_index(flat_lake.root, COLUMNS, rows_per_zone=300, sizing=sizing, overwrite=True)
        verification = index.verify(sample=1.0)
        assert verification.is_sound
        assert (verification.num_files, verification.num_files_read, verification.damage) == (3, 3, ())
        for column in verification.columns:
            values = flat_lake.table[column.name]
            assert column.num_values == len(values) - values.null_count
            assert (column.num_missing, column.num_wrong_has_null) == (0, 0)
            assert column.num_zones == 17 + 10 + 1


def test_expected_and_measured_fpp_agree(tmp_path):
    """Full zones of distinct values: the promise, the bits and the probes say about the same."""
    values = np.random.default_rng(0).integers(0, 2**62, 40_000)
    pq.write_table(pa.table({"c": values}), tmp_path / "a.parquet")
    for fpp in (0.1, 0.01):
        index = zb.build_index(tmp_path, "c", rows_per_zone=2000, fpp=fpp, sizing="exact", overwrite=True)
        (column,) = index.verify(sample=1.0).columns
        assert fpp * 0.8 < column.expected_fpp <= fpp
        assert column.measured_fpp == pytest.approx(column.expected_fpp, rel=0.1)
        assert column.measured_false_positives == pytest.approx(column.measured_fpp, rel=0.1)


def test_missing_values_and_wrong_has_nulls_are_counted(flat_lake, tmp_path):
    """In indexes from a zone table that was spoiled and imported without a check."""
    table = zb.build_index(flat_lake.root, "note", rows_per_zone=300).zone_table("note").to_arrow()
    bitsets, rows = table[4].to_pylist(), flat_lake.table["note"].slice(5000 + 3 * 300, 300)
    bitsets[20] = bytes(len(bitsets[20]))
    num_null = sum(table[3].to_pylist())
    for number, values, counts in (
        (4, pa.array(bitsets, pa.binary()), (300 - rows.null_count, 0)),
        (3, pa.array([False] * len(table)), (0, num_null)),
    ):
        zones = zb.ZoneTable.from_arrow(table.set_column(number, ZONE_FIELDS[number], values))
        index = zb.import_index(flat_lake.root, zones, column="note", index=tmp_path / str(number), check=False)
        verification = index.verify(sample=1.0)
        assert not verification.is_sound
        assert (verification.columns[0].num_missing, verification.columns[0].num_wrong_has_null) == counts
    assert num_null >= 27


def test_a_sample_reads_some_files(make_lake):
    lake = make_lake((100,) * 8)
    index = zb.build_index(lake.root, "user_id", rows_per_zone=30)
    assert index.verify(sample=0.5).num_files_read == 4
    assert index.verify(sample=1e-9).num_files_read == 1
    for seed in range(3):
        assert index.verify(sample=0.25, seed=seed).columns[0].num_values == 200


@pytest.mark.parametrize("sample", [0, -0.1, 1.1, float("nan"), "1", None])
def test_sample_must_be_a_share(flat_lake, sample):
    index = zb.build_index(flat_lake.root, "user_id")
    with pytest.raises(InvalidArgumentError, match="sample must be in"):
        index.verify(sample=sample)


def test_unknown_files_are_no_matter(flat_lake):
    index = zb.build_index(flat_lake.root, "user_id")
    (flat_lake.root / "part-9.parquet").write_bytes(b"not Parquet")
    pq.write_table(flat_lake.table.slice(0, 5), flat_lake.root / flat_lake.files[0])
    verification = index.verify(sample=1.0)
    assert verification.is_sound
    assert (verification.num_files, verification.num_files_read) == (4, 2)


def test_a_data_file_that_does_not_decode_is_an_error(flat_lake):
    """Its fingerprint is the same, its pages are not."""
    import os

    index = zb.build_index(flat_lake.root, "user_id")
    path = flat_lake.root / flat_lake.files[0]
    stat = path.stat()
    data = bytearray(path.read_bytes())
    data[4:3000] = bytes(2996)
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(DataFileError, match="must decode as Parquet"):
        index.verify(sample=1.0)


def test_files_that_do_not_convert_are_no_matter(tmp_path):
    """A file whose zones end where a value did not convert, and one that has none."""
    for number, values in enumerate(([1, 2, 3], [1.5, 2.5], ["x", "y"])):
        pq.write_table(pa.table({"c": values}), tmp_path / f"{number}.parquet")
    index = zb.build_index(tmp_path, "c", rows_per_zone=2)
    assert index.verify(sample=1.0).is_sound


# --- import ---------------------------------------------------------------------------------------------------------


def test_rows_between_zones_need_not_convert(tmp_path):
    """A file is built in several parts; in one of them values do not convert after some zones."""
    pq.write_table(pa.table({"c": pa.array([7], pa.int32())}), tmp_path / "a.parquet")
    index = zb.build_index(tmp_path, "c", rows_per_zone=1 << 16, kind="locator")
    values = np.arange(2_300_000, dtype=np.int64)
    values[1_100_000:1_110_000] = 2**40
    pq.write_table(pa.table({"c": values}), tmp_path / "b.parquet", row_group_size=200_000)
    index.refresh(workers=2)
    assert list(index.search("c = -1")) == [("b.parquet", 1 << 20, 34 << 16)], "zones before and after"
    verification = index.verify(sample=1.0)
    assert (verification.is_sound, verification.damage) == (True, ())
    assert verification.columns[0].num_values == 1 + len(values) - (18 << 16)


def test_an_import_is_checked_against_the_data(flat_lake, tmp_path):
    zones = zb.build_index(flat_lake.root, "user_id", rows_per_zone=300).zone_table("user_id")
    taken = zb.import_index(flat_lake.root, zones, column="user_id", index=tmp_path / "i")
    assert taken.indexed_columns()[0].sizing == "imported"
    assert taken.verify(sample=1.0).is_sound
    with pytest.raises(InvalidZoneTableError, match="the zones describe other data"):
        zb.import_index(flat_lake.root, zones, column="device_id", index=tmp_path / "j")
    assert not (tmp_path / "j" / "versions").exists()
    with pytest.raises(IndexExistsError, match="there must be no index yet"):
        zb.import_index(flat_lake.root, zones, column="user_id")


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.slice(1),
        lambda table: table.slice(0, 2),
        lambda table: table.take([0, 2]),
        lambda table: table.slice(0, 0),
        lambda table: table.set_column(2, ZONE_FIELDS[2], pa.array([1500, 1500, 1001], pa.uint64())),
    ],
    ids=["first is missing", "last is missing", "middle is missing", "none", "past the end"],
)
def test_zones_must_tile_the_files(single_file, tmp_path, change):
    table = zb.build_index(single_file.root, "user_id", rows_per_zone=1500).zone_table("user_id").to_arrow()
    changed = zb.ZoneTable.from_arrow(change(table))
    with pytest.raises(InvalidZoneTableError, match="must tile the files"):
        zb.import_index(single_file.root, changed, column="user_id", index=tmp_path / "i")
    assert not (tmp_path / "i" / "versions").exists()


def test_a_version_that_a_vacuum_removed_is_not_called_damaged(tmp_path):
    pq.write_table(pa.table({"c": range(9)}), tmp_path / "a.parquet")
    old, new = zb.build_index(tmp_path, "c"), zb.open_index(tmp_path)
    new.refresh("full")
    assert old.verify().is_sound
    new.vacuum(older_than=0)
    with pytest.raises(CorruptIndexError, match="got a removed one; open the index again"):
        old.verify()
    assert new.verify().is_sound
