"""Rows read by pages: what comes out is what reading the row group gives, whatever wrote the file.

Oracle: pyarrow 26 reading whole row groups. Writers: pyarrow, Polars 2.1, DuckDB 2.0, DataFusion 55, Spark 4.3. The
constants that say when a page pays are set to nothing here, so that small files are cut too.
"""

from __future__ import annotations

import decimal
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import zonebloom as zb
from tests.depth import at_depth
from tests.formats.page_costs import every_page_pays
from tests.fuzz.writers import by_datafusion, by_duckdb, write_pyarrow
from tests.newer import has
from zonebloom.errors import DataFileError
from zonebloom.formats.lru_cache import LruCache
from zonebloom.formats.parquet import footer as footers, pages
from zonebloom.formats.parquet.file import DataFile
from zonebloom.formats.parquet.footer import read_footer
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.local_file import LocalFile


class CountingFile(LocalFile):
    """A local file that notes what is read of it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.requests: list[list[tuple[int, int]]] = []
        self.num_whole = 0
        """Row groups that were read whole."""

    def read_ranges(self, ranges):
        self.requests.append(list(ranges))
        return super().read_ranges(ranges)

    def arrow_file(self):
        self.num_whole += 1
        return super().arrow_file()

    def read_into(self, memory, ranges):
        self.requests.append(list(ranges))
        return super().read_into(memory, ranges)

    @property
    def num_bytes(self) -> int:
        return sum(length for ranges in self.requests for _offset, length in ranges)


@contextmanager
def opened(path: Path) -> Iterator[tuple[DataFile, CountingFile]]:
    """A file of which what was read for its footer is not counted."""
    source = CountingFile(path)
    with DataFile(source) as data:
        source.requests.clear()
        yield data, source


@pytest.fixture(autouse=True)
def small_pages_pay(monkeypatch):
    every_page_pays(monkeypatch.setattr)


# --- whatever pyarrow writes ----------------------------------------------------------------------------------------

TEXTS = ["", "a", "é" * 3, "long " * 30, "\x00", *(f"value {i}" for i in range(300))]
DICTIONARY = pa.dictionary(pa.int32(), pa.string())
VIEWS = {pa.string_view(), pa.binary_view()}
STRUCT = pa.struct([("x", pa.int32()), ("deep", pa.struct([("s", pa.string()), ("b", pa.bool_())]))])


INTEGERS = (pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64())
TIMES = (
    *(pa.date32(), pa.time32("ms"), pa.time64("us"), pa.time64("ns"), pa.duration("us")),
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us") for zone in (None, "Europe/Berlin")),
)
NARROW = (pa.decimal32(9, 2), pa.decimal64(18, 2)) if has("narrow_decimals_in_files") else ()
DECIMALS = (*NARROW, *(pa.decimal128(*size) for size in ((8, 2), (12, 2), (20, 3), (38, 2))))
DECIMALS = (*DECIMALS, pa.decimal256(20, 3), pa.decimal256(60, 2))
VALUES: dict[pa.DataType, Callable[[int], Any]] = {
    **dict.fromkeys((pa.int8(), pa.uint8()), lambda n: n % 128),
    pa.date64(): lambda n: 86_400_000 * n,
    **dict.fromkeys((*INTEGERS, *TIMES), lambda n: n),
    pa.timestamp("ns"): lambda n: n * 1000,  # old versions of the format have microseconds alone
    pa.float16(): lambda n: np.float16(n / 8),
    **dict.fromkeys((pa.float32(), pa.float64()), lambda n: n / 8),
    pa.bool_(): lambda n: n % 3 == 0,
    pa.null(): lambda _: None,
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view(), DICTIONARY), lambda n: TEXTS[n % len(TEXTS)]),
    **dict.fromkeys((pa.binary(), pa.large_binary(), pa.binary_view()), lambda n: TEXTS[n % len(TEXTS)].encode()),
    pa.binary(4): lambda n: n.to_bytes(4, "big"),
    pa.uuid(): lambda n: (n * 7919).to_bytes(16, "big"),
    **dict.fromkeys(DECIMALS, lambda n: decimal.Decimal(n) / 4),
    STRUCT: lambda n: {"x": n if n % 3 else None, "deep": {"s": str(n), "b": n % 2 == 0} if n % 5 else None},
    pa.list_(pa.int32()): lambda n: list(range(n % 4)),
    pa.map_(pa.string(), pa.int64()): lambda n: [(str(i), i) for i in range(n % 3)],
}
"""Of each type the value for a number."""
KINDS = list(VALUES)
FLAT_TYPES = [kind for kind in KINDS if not (pa.types.is_nested(kind) or kind in (pa.bool_(), pa.null()))]
"""Those whose values a bloom filter may hold."""


def some_values(kind: pa.DataType, num_rows: int, random: Random) -> pa.Array:
    """Random values of `kind`, some of them null, with few or many distinct ones."""
    span = random.choice([3, 300, 2**15 - 1])
    is_null = [random.random() < random.choice([0, 0.1, 0.9]) for _ in range(num_rows)]
    return pa.array([None if no else VALUES[kind](random.randint(0, span)) for no in is_null], kind)


def some_table(random: Random) -> pa.Table:
    """A table of some columns."""
    num_rows = random.choice([1, 2, 50, 700, 3000])
    kinds = random.sample(KINDS, random.randint(1, 6))
    return pa.table({f"column {i}": some_values(kind, num_rows, random) for i, kind in enumerate(kinds)})


def plain(table: pa.Table) -> pa.Table:
    """Views and dictionaries as plain values, one chunk a column: equal values may have dictionaries that differ."""
    wide = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary(), DICTIONARY: pa.string()}
    schema = pa.schema([field.with_type(wide.get(field.type, field.type)) for field in table.schema])
    return table.cast(schema).combine_chunks()


def some_ranges(num_rows: int, random: Random) -> list[tuple[int, int]]:
    """Sorted, disjoint ranges: few or many, short or long."""
    count = random.choice([1, 2, 5, 100])
    cuts = sorted(random.sample(range(num_rows + 1), min(2 * count, num_rows + 1) // 2 * 2))
    return list(zip(cuts[::2], cuts[1::2], strict=True))


def check_ranges(
    data: DataFile, oracle: pq.ParquetFile, group: int, ranges: list[tuple[int, int]], columns: list[str] | None = None
) -> None:
    """The rows that `data` reads are those of the row group."""
    starts, stops = [start for start, _ in ranges], [stop for _, stop in ranges]
    names = oracle.schema_arrow.names if columns is None else columns
    rows = data.read_rows(group, starts, stops, names)
    whole = oracle.read_row_group(group, columns=names)
    expected = pa.concat_tables([plain(whole).slice(start, stop - start) for start, stop in ranges])
    rows.validate(full=True)
    pairs = zip(rows.schema.types, whole.schema.types, strict=True)
    assert [read for read, wanted in pairs if read != wanted and wanted not in VIEWS] == []
    assert plain(rows).equals(expected.combine_chunks()), ranges


@settings(max_examples=at_depth(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_rows_read_by_pages_are_the_rows_of_the_row_group(seed):
    random = Random(seed)
    table = some_table(random)
    with TemporaryDirectory() as folder:
        path = Path(folder, "x.parquet")
        options = {
            "row_group_size": random.choice([max(1, len(table) // 3), len(table)]),
            "data_page_size": random.choice([16, 100, 1000, 1 << 20]),
            "write_batch_size": random.choice([1, 7, 64, 1024]),
            "dictionary_pagesize_limit": random.choice([10, 500, 1 << 20]),
            "write_page_index": random.random() < 0.9,
            "write_page_checksum": random.choice([True, False]),
            "use_deprecated_int96_timestamps": random.random() < 0.2,
        }
        try:
            write_pyarrow(table, path, random, **options)
        except (pa.ArrowNotImplementedError, OSError):  # an encoding that pyarrow has not for a type
            return
        oracle = pq.ParquetFile(path)
        with opened(path) as (data, _source):
            for group in range(oracle.num_row_groups):
                for _ in range(4):
                    check_ranges(data, oracle, group, some_ranges(data.row_group_rows[group], random))


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_every_flat_type_and_struct_is_cut(tmp_path, kind, version):
    """No row group is read for them, and few bytes; lists and maps are read with the row group."""
    table = pa.table({"c": some_values(kind, 5000, Random(1)), "other": np.arange(5000)})
    options = {"data_page_size": 64, "write_batch_size": 64, "data_page_version": version, "write_page_index": True}
    pq.write_table(table, tmp_path / "x.parquet", dictionary_pagesize_limit=600, **options)
    is_cut = not (pa.types.is_list(kind) or pa.types.is_map(kind) or pa.types.is_null(kind))  # nulls are one page
    with opened(tmp_path / "x.parquet") as (data, source):
        check_ranges(data, pq.ParquetFile(tmp_path / "x.parquet"), 0, [(2000, 2010), (4321, 4322)], ["c"])
        assert source.num_whole == (not is_cut)
        if is_cut:
            assert len(source.requests) == 2
            assert sum(length for _, length in source.requests[1]) < (9000 if kind == STRUCT else 3000)


# --- files of other writers -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def events() -> pa.Table:
    random = Random(3)
    numbers = [random.randrange(2**40) for _ in range(60_000)]
    return pa.table(
        {
            "k": numbers,
            "text": [f"user {number % 5000}" for number in numbers],
            "id": [f"{number:036}" for number in numbers],
            "half": [None if number % 4 else number / 2 for number in numbers],
            "flag": [number % 3 == 0 for number in numbers],
            "at": pa.array(numbers, pa.timestamp("us", "UTC")),
            "price": pa.array([decimal.Decimal(number % 10**7) / 100 for number in numbers], pa.decimal128(9, 2)),
            "deep": [{"x": number, "y": str(number % 10)} for number in numbers],
            "many": [[number, 1][: number % 3] for number in numbers],
        }
    )


def check_file(path: Path, random: Random) -> set[str]:
    """Random ranges of all columns are those of the row groups; the columns that a cut was made of."""
    with opened(path) as (data, source):
        oracle = pq.ParquetFile(path, coerce_int96_timestamp_unit=data.footer.int96_unit)
        for group, num_rows in enumerate(data.row_group_rows):
            for _ in range(4):
                check_ranges(data, oracle, group, some_ranges(num_rows, random))
        footer = read_footer(source)
        middle = np.array([data.row_group_rows[0] // 2])
        return set(pages.read_cuts(source, footer, 0, (middle, middle + 1), data.schema.names))


FLAT = {"k", "text", "id", "half", "flag", "at", "price"}


def by_polars(events: pa.Table, path: Path) -> None:
    frame = pl.from_arrow(events).with_columns(kind=pl.col("text").cast(pl.Categorical))
    frame.write_parquet(path, row_group_size=40_000, data_page_size=20_000)


WRITERS: dict[str, tuple[Callable[[pa.Table, Path], None], set[str]]] = {
    "polars": (by_polars, FLAT | {"kind"}),
    "duckdb v1": (by_duckdb, set()),
    "duckdb v2": (partial(by_duckdb, parquet_version="v2"), set()),
    "datafusion": (by_datafusion, FLAT | {"deep"}),
}
"""Who writes a file, and the columns that are cut: DuckDB writes no page index, and a page for each column chunk."""


@pytest.mark.parametrize(("write", "is_cut"), WRITERS.values(), ids=WRITERS)
def test_files_of_other_writers(events, tmp_path, write, is_cut):
    write(events, tmp_path / "x.parquet")
    columns = check_file(tmp_path / "x.parquet", Random(1))
    assert columns >= is_cut
    assert bool(columns) == bool(is_cut)


# --- what is read, and what is kept ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large_file(tmp_path_factory) -> Path:
    """Two row groups of 100 000 rows, with a page index; `key` is unique."""
    random = np.random.default_rng(2)
    table = pa.table(
        {
            "key": random.permutation(200_000),
            "text": [f"{number:036}" for number in random.integers(0, 2**60, 200_000)],
            "amount": random.random(200_000),
        }
    )
    path = tmp_path_factory.mktemp("large") / "x.parquet"
    options = {"row_group_size": 100_000, "compression": "none", "use_dictionary": False, "write_page_index": True}
    pq.write_table(table, path, data_page_size=1 << 16, **options)
    return path


@pytest.fixture
def large_lake(tmp_path, large_file) -> Path:
    """A folder of a copy of the large file, which is old."""
    (tmp_path / "lake").mkdir()
    os.utime(shutil.copy(large_file, tmp_path / "lake"), (1, 1))
    return tmp_path / "lake"


@pytest.fixture
def counted(monkeypatch) -> list[CountingFile]:
    """The local files that are opened from now on."""
    sources: list[CountingFile] = []

    def counting(path: Path) -> CountingFile:
        sources.append(CountingFile(path))
        return sources[-1]

    monkeypatch.setattr("zonebloom.stores.local.LocalFile", counting)
    return sources


def test_a_scan_of_one_key_reads_a_page_of_each_column(large_lake, counted):
    """Of 10 MB: its page of `key`, and one of each other column, in two lists of ranges; the footer is known."""
    index = zb.build_index(large_lake, "key", rows_per_zone=1000, fpp=1e-6)
    expected = pq.read_table(large_lake / "x.parquet", filters=[("key", "=", 77)])
    counted.clear()
    assert index.to_table("key = 77").equals(expected)
    assert [counter.num_whole for counter in counted] == [0]
    assert counted[0].num_bytes < 4 * (1 << 16)
    counted.clear()
    assert index.to_table("key = 77").equals(expected)
    assert [len(counter.requests) for counter in counted] == [2]
    counted.clear()
    assert index.to_table("key = 77 and amount > 2").num_rows == 0
    assert [len(counter.requests) for counter in counted] == [1]


def test_a_row_that_is_found_does_not_keep_its_page(large_lake):
    index = zb.build_index(large_lake, "key", rows_per_zone=1000)
    rows = index.to_table("key = 77")
    assert rows.get_total_buffer_size() < 1000


def test_a_footer_is_parsed_once_for_all_who_open_the_file(large_lake):
    path = large_lake / "x.parquet"
    assert read_footer(LocalFile(path)) is read_footer(LocalFile(path))
    os.utime(path, (2, 2))
    second = read_footer(LocalFile(path))
    assert second is read_footer(LocalFile(path))
    pq.write_table(pa.table({"key": [1]}), path)
    os.utime(path, (2, 2))
    assert read_footer(LocalFile(path)).metadata.num_rows == 1


def test_the_footer_of_a_file_of_the_same_size_and_time_is_read_again(tmp_path):
    """So after a full refresh no row group is excluded by the statistics of the file that was there before."""
    path, sizes = tmp_path / "x.parquet", set()
    for numbers in ([1, 2], [8, 9]):
        pq.write_table(pa.table({"key": numbers}), path, compression="none")
        os.utime(path, (1, 1))
        assert read_footer(LocalFile(path)).metadata.row_group(0).column(0).statistics.min == numbers[0]
        sizes.add(path.stat().st_size)
    assert len(sizes) == 1


def test_the_footer_of_a_new_file_is_not_kept(tmp_path):
    """Who writes again in the same instant may leave size and time as they are."""
    pq.write_table(pa.table({"key": [1, 2]}), tmp_path / "x.parquet")
    assert read_footer(LocalFile(tmp_path / "x.parquet")) is not read_footer(LocalFile(tmp_path / "x.parquet"))


def test_footers_are_kept_up_to_a_size(tmp_path, monkeypatch):
    paths = [tmp_path / f"{number}.parquet" for number in range(3)]
    for path in paths:
        pq.write_table(pa.table({"key": [1, 2]}), path)
        os.utime(path, (1, 1))
    size = read_footer(LocalFile(paths[0])).num_bytes
    monkeypatch.setattr(footers, "_KEPT", LruCache(2 * size, lambda footer: footer.num_bytes))
    first, second, third = (read_footer(LocalFile(path)) for path in paths)
    assert read_footer(LocalFile(paths[2])) is third
    assert read_footer(LocalFile(paths[1])) is second
    assert read_footer(LocalFile(paths[0])) is not first


def test_the_footer_of_a_file_that_a_log_added_again_is_read_again(large_lake):
    """An object store gives it the same name, and a table's log tells its size alone."""
    path = large_lake / "x.parquet"
    old, new = Fingerprint(path.stat().st_size, 1), Fingerprint(path.stat().st_size, 2)
    os.utime(path, (1, 1))
    assert read_footer(LocalFile(path), logged=old) is read_footer(LocalFile(path), logged=old)
    assert read_footer(LocalFile(path), logged=old) is not read_footer(LocalFile(path), logged=new)


def test_a_file_that_changes_under_a_kept_footer_is_an_error(large_lake):
    index = zb.build_index(large_lake, "key", rows_per_zone=1000)
    assert index.to_table("key = 77").num_rows == 1
    reader = index.scan("key = 77")
    table = pq.read_table(large_lake / "x.parquet")
    pq.write_table(table.slice(0, 5), large_lake / "x.parquet")
    with pytest.raises(DataFileError, match="must not change during a scan"):
        reader.read_all()
    assert index.to_table("key >= 0").num_rows == 5


def test_where_most_rows_are_wanted_the_row_group_is_read(large_lake, monkeypatch):
    monkeypatch.undo()
    with opened(large_lake / "x.parquet") as (data, source):
        starts = np.arange(0, 100_000, 1000)
        rows = data.read_rows(0, starts, starts + 990, ["key", "text"])
        assert rows.num_rows == 99_000
        assert source.num_whole == 1


def test_of_an_object_store_little_is_fetched_for_one_key(large_lake, s3):
    """The file's end with footer and page index; the page of `key`, then those of the two other columns at once.

    The first time, the header of each column's last page comes with them. The scan after that asks for 3 pages alone.
    """
    url = s3.upload(large_lake, "lake")
    index = zb.build_index(url, "key", rows_per_zone=1000, fpp=1e-6, storage_options=s3.options)
    footers._KEPT.clear()
    expected = pq.read_table(large_lake / "x.parquet", filters=[("key", "=", 77)])
    for num_requests, num_bytes in ((7, 5 * (1 << 16)), (3, 4 * (1 << 16))):
        with s3.server.recorded() as requests:
            assert index.to_table("key = 77").equals(expected)
        of_data = [request for request in requests if request.path.endswith("x.parquet")]
        assert len(of_data) == num_requests
        assert sum(request.num_bytes for request in of_data) < num_bytes
