"""Page indexes and headers of pages that lie: no row is lost, whatever they say.

Oracle: the values of the file are its row numbers. The damage is done to the bytes of files that pyarrow 26 wrote.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import flip
from tests.depth import at_depth, some
from tests.formats.test_pages import opened, small_pages_pay  # noqa: F401 - a fixture of each test
from zonebloom.errors import DataFileError
from zonebloom.formats.parquet import thrift
from zonebloom.formats.parquet.footer import read_footer
from zonebloom.stores.local_file import LocalFile

NUM_ROWS = 800
PLAIN = {"use_dictionary": False, "compression": "none"}
PROBES = [([0], [1]), ([99], [101]), ([140, 477], [260, 480]), ([799], [800])]


@pytest.fixture
def indexed_file(tmp_path) -> Path:
    """8 pages of 100 rows, whose values are their row numbers."""
    table = pa.table({"row": np.arange(NUM_ROWS)}, schema=pa.schema([pa.field("row", pa.int64(), nullable=False)]))
    options = {"data_page_size": 1, "write_batch_size": 100, "write_page_index": True}
    pq.write_table(table, tmp_path / "x.parquet", **options, **PLAIN)
    return tmp_path / "x.parquet"


def index_span(path: Path) -> tuple[int, int]:
    """Where the OffsetIndex of the only column chunk is."""
    chunk = read_footer(LocalFile(path)).chunk(0, 0)
    return chunk[4], chunk[5]


def check_rows(path: Path) -> int:
    """The rows read are right, whatever the page index says; how often no row group was read."""
    num_cuts = 0
    for starts, stops in PROBES:
        with opened(path) as (data, source):
            rows = data.read_rows(0, starts, stops, ["row"])
            expected = [row for pair in zip(starts, stops, strict=True) for row in range(*pair)]
            assert rows["row"].to_pylist() == expected
            num_cuts += not source.num_whole
    return num_cuts


def test_a_sound_page_index_is_used(indexed_file):
    assert check_rows(indexed_file) == len(PROBES)


def drop_page_index(path: Path) -> None:
    pq.write_table(pq.read_table(path), path, data_page_size=1, write_batch_size=100, **PLAIN)


def test_a_file_without_a_page_index_is_walked(indexed_file):
    """Its headers are read once, as the map is kept; then pages alone. (The file is not new, so its footer is kept.)"""
    drop_page_index(indexed_file)
    os.utime(indexed_file, (1, 1))
    assert 5 not in read_footer(LocalFile(indexed_file)).chunk(0, 0)
    assert check_rows(indexed_file) == len(PROBES)
    with opened(indexed_file) as (data, source):
        assert data.read_rows(0, [140], [150], ["row"])["row"].to_pylist() == list(range(140, 150))
        assert len(source.requests) == 1
        assert 800 < source.num_bytes < 1000


def test_no_flipped_bit_of_a_page_index_loses_a_row(indexed_file):
    """Each bit in turn; where the index still serves, it serves pages that the flip does not concern."""
    offset, length = index_span(indexed_file)
    whole = indexed_file.read_bytes()
    num_used, bits = 0, some(range(8 * length), each=7)
    for number in bits:
        indexed_file.write_bytes(whole)
        flip(indexed_file, offset + number // 8, number % 8)
        num_used += check_rows(indexed_file) > 0
    assert 0 < num_used < len(bits) / 3


@pytest.mark.parametrize("keep", [0, 1, 2, 5, 30, -3])
def test_a_page_index_cut_short_is_not_used(indexed_file, keep):
    offset, length = index_span(indexed_file)
    whole = indexed_file.read_bytes()
    kept = whole[offset : offset + length][:keep]
    indexed_file.write_bytes(whole[:offset] + kept + bytes(length - len(kept)) + whole[offset + length :])
    assert check_rows(indexed_file) == 0


def rewritten(path: Path, locations: list[tuple[int, int, int]]) -> None:
    """Put these offsets, sizes and first rows into the page index, in as many bytes as before."""
    offset, length = index_span(path)
    structs = [
        thrift.write_struct({1: (thrift.I64, at), 2: (thrift.I32, size), 3: (thrift.I64, row)})
        for at, size, row in locations
    ]
    blob = thrift.write_struct({1: (thrift.LIST, thrift.write_list(thrift.STRUCT, structs))})
    assert len(blob) == length
    whole = path.read_bytes()
    path.write_bytes(whole[:offset] + blob + whole[offset + length :])


def locations_of(path: Path) -> list[tuple[int, int, int]]:
    offset, length = index_span(path)
    fields, _ = thrift.read_struct(path.read_bytes()[offset : offset + length])
    return [(place[1], place[2], place[3]) for place in fields[1]]


@pytest.mark.parametrize("miscounted", [1, 2, 5, 7])
@pytest.mark.parametrize("by", [-3, 1, 40])
def test_a_page_that_was_miscounted_is_found_whichever_page_is_read(indexed_file, miscounted, by):
    """Every later page begins at the wrong row then, and agrees with its neighbours; the last one does not with n."""
    locations = locations_of(indexed_file)
    assert [row for _, _, row in locations] == list(range(0, NUM_ROWS, 100))
    moved = [(at, size, row + by * (number >= miscounted)) for number, (at, size, row) in enumerate(locations)]
    rewritten(indexed_file, moved)
    assert check_rows(indexed_file) == 0


def test_pages_in_another_order_or_twice_are_not_used(indexed_file):
    sound = locations_of(indexed_file)
    places, rows = [location[:2] for location in sound], [row for _, _, row in sound]
    swapped = [*places[:2], places[3], places[2], *places[4:]]
    twice = [*places[:3], places[4], *places[4:]]
    backwards = [*rows[:5], rows[2], *rows[6:]]
    for changed_places, changed_rows in ((swapped, rows), (twice, rows), (places, backwards)):
        rewritten(indexed_file, [(*place, row) for place, row in zip(changed_places, changed_rows, strict=True)])
        assert check_rows(indexed_file) == 0


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("seed", range(at_depth(15, 2)))
def test_a_damaged_page_is_an_error_or_gives_the_row_group_s_rows(indexed_file, has_index, seed):
    """A flip in headers of pages or in values: never a row less, and never another error than ours."""
    if not has_index:
        drop_page_index(indexed_file)
    chunk, random = pq.read_metadata(indexed_file).row_group(0).column(0), Random(seed)
    whole, damaged = indexed_file.read_bytes(), indexed_file.with_name("damaged")
    for _ in range(40):
        damaged.write_bytes(whole)
        flip(damaged, chunk.data_page_offset + random.randrange(chunk.total_compressed_size), random.randrange(8))
        for starts, stops in PROBES:
            with opened(damaged) as (data, _source):
                try:
                    rows = data.read_rows(0, starts, stops, ["row"])
                except DataFileError:
                    continue
                assert rows.num_rows == sum(stops) - sum(starts)


def test_a_row_group_with_fewer_rows_than_its_footer_says_is_an_error(indexed_file):
    """pyarrow 26 gives the rows that there are."""
    offset = locations_of(indexed_file)[7][0]
    whole = indexed_file.read_bytes()
    count, fewer = (thrift.write_fields({1: (thrift.I32, number)}) for number in (100, 99))
    place = whole.index(count, offset)
    indexed_file.write_bytes(whole[:place] + fewer + whole[place + len(count) :])
    with opened(indexed_file) as (data, _source), pytest.raises(DataFileError, match="must hold 800 rows, got 799"):
        data.read_rows(0, [0], [800], ["row"])
