"""Footers: columns by their place in the schema, and encrypted or absurd ones without harm to other files.

Damaged ones are in tests/fuzz/parsers.py. Oracles: the rows as written; for chunks and sizes pyarrow 26, which reads
the footers that it wrote itself.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import encryption

import zonebloom as zb
from tests.formats.footers import edited, replace_footer
from tests.newer import need
from zonebloom.errors import DataFileError, InvalidArgumentError
from zonebloom.formats.parquet import thrift
from zonebloom.formats.parquet.file import DataFile
from zonebloom.formats.parquet.footer import read_footer
from zonebloom.ground.reasons import ReasonCode
from zonebloom.stores.local_file import LocalFile

ROWS = 1000


# --- columns by their place -------------------------------------------------------------------------------------------


def dotted_table(order: list[str]) -> pa.Table:
    """Columns whose names are the paths of others; those have values 1000 and more."""
    columns = {
        "k": pa.array(range(10)),
        "a.b": pa.array(range(10)),
        "a": pa.array([{"b": 1000 + number} for number in range(10)]),
        "x.list.element": pa.array(range(10)),
        "x": pa.array([[1000 + number] for number in range(10)]),
    }
    return pa.table({name: columns[name] for name in order})


@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("indexed", ["k", "x.list.element"])
def test_a_column_named_as_the_path_of_another_is_told_from_it(tmp_path, step, indexed):
    table = dotted_table(["k", "a.b", "a", "x.list.element", "x"][::step])
    pq.write_table(table, tmp_path / "a.parquet")
    index = zb.build_index(tmp_path, indexed)
    for name in ("a.b", "x.list.element"):
        assert index.to_table(pc.field(name) < 6).num_rows == 6
        assert index.to_table(pc.field(name) == 3).to_pylist() == table.slice(3, 1).to_pylist()
        assert index.to_table(pc.field(name) >= 1000).num_rows == 0
    assert index.to_table(pc.field("a", "b") == 1003).to_pylist() == table.slice(3, 1).to_pylist()
    assert index.to_table("k = 3", columns=["a"])["a"].to_pylist() == [{"b": 1003}]
    with DataFile(LocalFile(tmp_path / "a.parquet")) as data:
        assert data.column_ranges("a.b") == data.column_ranges("x.list.element") == [(0, 9)]
        (batch,) = data.column_batches(["a.b"], 0, 10)
        assert batch.to_pydict() == {"a.b": list(range(10))}


def test_a_name_of_two_columns_is_not_indexed(tmp_path):
    """Which of them the filters are of, a later file could change."""
    pq.write_table(dotted_table(["k", "a.b", "a"]), tmp_path / "a.parquet")
    with pytest.raises(InvalidArgumentError, match=r"must have a name of its own, got 'a\.b'"):
        zb.build_index(tmp_path, "a.b")
    assert zb.build_index(tmp_path, "k").to_table(pc.field("a.b") == 3).num_rows == 1


def test_a_name_that_a_later_file_gives_to_another_column_prunes_nothing(tmp_path):
    pq.write_table(pa.table({"a.b": range(10)}), tmp_path / "a.parquet")
    index = zb.build_index(tmp_path, "a.b", rows_per_zone=5)
    assert index.exists("a.b", [3, 1003]).to_pylist() == [True, False]
    pq.write_table(pa.table({"a": [{"b": 1000 + number} for number in range(10)]}), tmp_path / "b.parquet")
    assert index.to_table(pc.field("a.b").is_null()).num_rows == 10
    index.refresh()
    assert index.to_table(pc.field("a.b") == 3).num_rows == 1
    assert index.to_table(pc.field("a.b").is_null()).num_rows == 10
    assert index.search(pc.field("a.b") == 3).num_zones_kept == index.search(pc.field("a.b") == 3).num_zones
    with pytest.raises(InvalidArgumentError, match=r"must have a name of its own, got 'a\.b'"):
        index.exists("a.b", [3])


# --- columns that are there twice -------------------------------------------------------------------------------------


TEN = pa.array(range(10))
TWICE = {
    "x": (TEN, pa.Table.from_arrays([TEN, TEN, TEN], ["x", "x", "y"])),
    "x.b": (
        pa.StructArray.from_arrays([TEN], ["b"]),
        pa.Table.from_arrays([pa.StructArray.from_arrays([TEN, TEN], ["b", "b"]), TEN], ["x", "y"]),
    ),
}


@pytest.mark.parametrize("column", TWICE)
def test_a_column_that_a_new_file_has_twice_is_an_error_that_names_both(tmp_path, column):
    x, new = TWICE[column]
    pq.write_table(pa.table({"x": x, "y": TEN, "X": TEN}), tmp_path / "a.parquet")  # names that differ in case are two
    index = zb.build_index(tmp_path, column)
    assert index.to_table(f"{column} = 5").num_rows == 1
    pq.write_table(new, tmp_path / "b.parquet")
    refused = f"b.parquet must have each column once, got {column} twice"
    for is_refreshed in (False, True):
        if is_refreshed:
            with pytest.warns(RuntimeWarning, match=refused):
                assert index.refresh().unreadable == ("b.parquet",)
        for condition in (f"{column} = 105", f"{column} IS NULL", f"{column} > 0"):
            with pytest.raises(DataFileError, match=refused):
                index.to_table(condition, columns=["y"])
        for ask in (lambda: index.exists(column, [105], exact=True), lambda: index.to_table("y = 3")):
            with pytest.raises(DataFileError, match=refused):
                ask()
        assert index.to_table("y = 3", columns=["y"]).num_rows == 2


# --- what the footer says of chunks -----------------------------------------------------------------------------------


def every_kind(num_rows: int) -> pa.Table:
    numbers = np.arange(num_rows)
    return pa.table(
        {
            "i": pa.array(numbers, pa.int32()),
            "t": pa.array([f"{'long ' * (number % 20)}{number}" for number in range(num_rows)]),
            "s": pa.array([{"p": float(number), "q": [number, None]} for number in range(num_rows)]),
            "at": pa.array(numbers, pa.timestamp("us")),
            "n": pa.nulls(num_rows),
        }
    )


@pytest.mark.parametrize("options", [{}, {"write_page_index": True}, {"write_statistics": False}], ids=str)
def test_chunks_and_sizes_are_those_that_pyarrow_finds(tmp_path, options):
    pq.write_table(every_kind(ROWS), tmp_path / "a.parquet", row_group_size=300, **options)
    footer, metadata = read_footer(LocalFile(tmp_path / "a.parquet")), pq.read_metadata(tmp_path / "a.parquet")
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for number, group in enumerate(groups):
        chunks = [group.column(leaf) for leaf in range(group.num_columns)]
        assert footer.row_group_bytes[number] == sum(chunk.total_compressed_size for chunk in chunks)
        for leaf, chunk in enumerate(chunks):
            meta = footer.chunk(number, leaf)[3]
            said = b".".join(meta[3]).decode(), meta[5], meta[7], meta[9]
            numbers = chunk.num_values, chunk.total_compressed_size, chunk.data_page_offset
            assert said == (chunk.path_in_schema, *numbers)
    with DataFile(LocalFile(tmp_path / "a.parquet")) as data:
        stats = [(group.column(0).statistics, group.column(1).statistics) for group in groups]
        whole = "write_statistics" not in options
        assert data.column_ranges("i") == [(i.min, i.max) if whole else None for i, _ in stats]
        assert data.column_ranges("t") == [(t.min.encode(), t.max.encode()) if whole else None for _, t in stats]


@pytest.mark.parametrize(
    ("place", "number", "message"),
    [
        *(((4, ..., 1, ..., 3, 7), number, "a column chunk must lie in the") for number in (-5000, 1 << 62)),
        *((place, -10, "the row groups of data file") for place in ((4, ..., 3), (3,))),
        ((3,), 1 << 60, "the row groups of data file"),
    ],
)
def test_a_footer_with_absurd_numbers_concerns_its_file_alone(tmp_path, place, number, message):
    pq.write_table(pa.table({"k": range(10)}), tmp_path / "a.parquet")
    index = zb.build_index(tmp_path, "k")
    pq.write_table(pa.table({"k": range(10, 20)}), tmp_path / "b.parquet")
    replace_footer(tmp_path / "b.parquet", lambda footer: edited(footer, place, lambda _: (thrift.I64, number)))
    result = index.search("k = 3")
    assert [reason.path for reason in result.reasons if reason.code is ReasonCode.FILE_UNREADABLE] == ["b.parquet"]
    assert set(result.files) == {"a.parquet", "b.parquet"}
    assert index.exists("k", [3]).to_pylist() == [True]
    with pytest.raises(DataFileError, match=message):
        index.to_table("k = 3")
    with pytest.warns(RuntimeWarning, match=message):
        assert index.refresh().unreadable == ("b.parquet",)


def test_a_page_that_claims_two_gigabytes_takes_no_memory(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": range(10)}), path, use_dictionary=False, compression="none", write_statistics=False)
    whole = path.read_bytes()
    header, stop = thrift.written_fields(whole, 4)
    claimed = thrift.write_struct(header | {3: (thrift.I32, 2**31 - 1)})  # bytes of the page as it is stored
    path.write_bytes(whole[:4] + claimed + whole[stop:])
    size = thrift.I64, read_footer(LocalFile(path)).row_group_bytes[0] + len(claimed) - stop + 4
    replace_footer(path, lambda footer: edited(footer, (4, ..., 1, ..., 3, 7), lambda _: size))
    pool = pa.default_memory_pool()
    before = pool.max_memory()
    with DataFile(LocalFile(path)) as data, pytest.raises(DataFileError, match=r"smaller .* than expected"):
        list(data.column_batches(["k"], 0, 10))
    assert pool.max_memory() < max(before + 1, 1 << 30)


# --- encrypted columns ------------------------------------------------------------------------------------------------


class Keys(encryption.KmsClient):
    """A key store whose keys are their own names."""

    def __init__(self, _config):
        super().__init__()

    def wrap_key(self, key_bytes, _name):
        return key_bytes.hex()

    def unwrap_key(self, wrapped_key, _name):
        return bytes.fromhex(wrapped_key)


def write_encrypted(
    path: Path, table: pa.Table, columns: list[str], *, row_group_size: int = 300, has_plain_footer: bool = True
) -> None:
    """`table` with `columns` encrypted; pyarrow writes no filters then."""
    options = {"column_keys": {"c": columns}, "plaintext_footer": has_plain_footer}
    config = encryption.EncryptionConfiguration(footer_key="f", **options)
    properties = encryption.CryptoFactory(Keys).file_encryption_properties(encryption.KmsConnectionConfig(), config)
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table, row_group_size=row_group_size)


def test_plain_columns_of_a_file_with_encrypted_ones_are_indexed_and_read(tmp_path):
    need("partly_encrypted")
    table = pa.table({"k": range(ROWS), "v": range(ROWS), "t": [f"t{number % 7}" for number in range(ROWS)]})
    write_encrypted(tmp_path / "a.parquet", table, ["k"])
    index = zb.build_index(tmp_path, ["v", "t"], rows_per_zone=100)
    assert index.search("v = 7").num_zones_kept == 1
    for condition, num_rows in (("v = 7", 1), ("v < 7", 7), ("t = 't1'", 143)):
        assert index.to_table(condition, columns=["v", "t"]).num_rows == num_rows
    assert index.exists("v", [7, ROWS], exact=True).to_pylist() == [True, False]
    index.verify()


def test_an_encrypted_column_is_refused_by_name(tmp_path):
    need("partly_encrypted")
    write_encrypted(tmp_path / "a.parquet", pa.table({"k": range(ROWS), "v": range(ROWS)}), ["k"])
    refused = "column k of data file .*a.parquet must be readable, got one that is encrypted"
    with pytest.raises(DataFileError, match=refused):
        zb.build_index(tmp_path, "k")
    index = zb.build_index(tmp_path, "v")
    for condition, columns in (("v = 7", None), ("k = 7", ["v"]), ("k < 7", ["v"]), ("v = 7", ["k"])):
        with pytest.raises(DataFileError, match=refused):
            index.to_table(condition, columns=columns)
