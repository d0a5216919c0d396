"""Arrays and numbers that do not fit are refused before a kernel has their address, whichever argument is wrong."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from zonebloom.bloom import split_block
from zonebloom.bloom.kernels import locator, pairs, row_checksums, sbbf, slices, xxh64, zones
from zonebloom.bloom.kernels.pairs import PartitionedRuns
from zonebloom.bloom.locator_pages import MAX_ZONES
from zonebloom.errors import InvalidArgumentError


def words(*shape):
    return np.zeros(shape, np.uint32)


def longs(*shape):
    return np.zeros(shape, np.uint64)


def octets(*shape):
    return np.zeros(shape, np.uint8)


def of(function, free="", written="", **arguments):
    """A call that is right, whose memory is just large enough, but for arrays that are `free` to be shorter."""
    return pytest.param(function, arguments, free.split(), written.split(), id=function.__name__)


TWO, ENDS = longs(2), np.array([0, 32, 128])
NULLS = {"validity": octets(2), "validity_offset": 0}
ROWS = {"filters": words(2, 4, 8), "valid_counts": TWO, "num_rows": 16, "rows_per_zone": 8, "first_fill": 0, **NULLS}
PAGES, BLOCKS, HASHES = octets(2, 4096), words(4, 8), longs(3)
READ, ZEROS = {"pages": PAGES, "zone_bits": 3}, {"first_fill": 0, "first_zone": 0}
CALLS = [
    of(xxh64.hash_fixed, data=octets(16), width=8),
    of(xxh64.hash_variable, "offsets", data=octets(8), offsets=np.array([0, 8], np.int32)),
    of(sbbf.filter_insert, "blocks hashes", "blocks", blocks=BLOCKS, hashes=HASHES),
    of(sbbf.filter_check, "blocks hashes", blocks=BLOCKS, hashes=HASHES),
    of(sbbf.check_zones, "offsets hashes", data=octets(128), offsets=ENDS, hashes=HASHES),
    of(sbbf.check_hashes, "offsets hashes", data=octets(128), offsets=ENDS, hashes=HASHES, live=TWO > 0),
    of(sbbf.count_distinct, "hashes", hashes=HASHES),
    of(zones.insert_into_zones, "", "filters valid_counts", layout="fixed", keys=(octets(128), 8), **ROWS),
    of(zones.insert_into_zones, layout="variable", keys=(octets(16), np.arange(17)), **ROWS),
    of(zones.insert_into_zones, layout="dictionary", keys=(TWO, words(16) + np.uint32(1)), **ROWS),
    of(slices.slice_zones, "filters", "out", filters=words(9, 2, 8), out=octets(512, 2), first_zone=0),
    of(slices.unslice_zones, "out", "out", rows=octets(512, 2), out=words(9, 2, 8), first_zone=0),
    of(slices.probe_rows, "hashes", "out", rows=octets(512, 2), hashes=HASHES, num_zones=9, out=octets(2)),
    of(slices.find_live_zone, "", "out", rows=octets(512, 64), hashes=HASHES, live=octets(64), out=HASHES > 0),
    of(
        *(pairs.pack_pairs, "hashes", "pairs has_null"),
        **{"hashes": longs(16), "pairs": longs(17), "has_null": TWO > 0, "rows_per_zone": 8, **ZEROS, **NULLS},
    ),
    of(pairs.partition_pairs, "pairs", "target", pairs=HASHES, target=longs(3), partition_bits=2),
    of(locator.encode_pages, "pairs pages", "pages begun", pairs=HASHES, zone_bits=3, pages=PAGES, begun=TWO),
    of(locator.decode_pages, "pages", "pairs", num_zones=8, pairs=longs(1978), new_numbers=words(8), **READ),
    of(
        *(locator.find_pairs, "hashes keys", "keys zones"),
        **{"hashes": HASHES, "begins": longs(3), "ends": longs(3) + np.uint64(2), **READ},
        **dict.fromkeys(("keys", "zones"), longs(4)),
    ),
    of(row_checksums.seal_rows, "rows", "rows", rows=octets(4, 256), first_row=0),
    of(row_checksums.first_bad_row, "chosen", rows=octets(4, 256), first_row=0, chosen=TWO + np.uint64(3)),
]


def others(name, value, free, written):
    """What does not fit in the place of an argument."""
    if isinstance(value, int):
        return [] if name == "first_row" else [-1, 1 << 40]
    if isinstance(value, tuple):
        wrong = [(place, other) for place, part in enumerate(value) for other in others("", part, free, written)]
        return [(*value[:place], other, *value[place + 1 :]) for place, other in wrong]
    if isinstance(value, str):
        return []
    signed = np.uint8 if value.dtype == np.bool_ else f"i{value.itemsize}" if value.dtype.kind == "u" else "f4"
    read_only = value.copy()
    read_only.flags.writeable = False
    wrong = [value.tolist(), value.view(signed), value[None], np.repeat(value, 2, axis=0)[::2]]
    return wrong + [value[:-1]] * (name not in free) + [read_only] * (name in written)


@pytest.mark.parametrize(("function", "arguments", "free", "written"), CALLS)
def test_an_argument_that_does_not_fit_is_refused(function, arguments, free, written):
    function(**arguments)
    for name, value in arguments.items():
        for other in others(name, value, free, written):
            with pytest.raises(InvalidArgumentError):
                function(**arguments | {name: other})


FIVE, ROOM = longs(5), longs(8)
packed = partial(pairs.pack_pairs, FIVE, ROOM, ROOM > 0, rows_per_zone=2)


def runs(*starts):
    return PartitionedRuns([FIVE], [np.array(starts, np.uint32)], width=63)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: xxh64.hash_variable(octets(8), np.array([-1, 8], np.int32)), "offsets must rise"),
        (lambda: xxh64.hash_variable(octets(8), np.array([5, 3], np.int32)), "offsets must rise"),
        (lambda: sbbf.filter_insert(words(4, 7), FIVE), "blocks of 8 words"),
        (lambda: sbbf.filter_insert(words(0, 8), FIVE), "1 or more blocks"),
        (lambda: split_block.fold(words(2, 4, 8), 3), "factor must divide"),
        (lambda: split_block.fold(words(2, 4, 8), 0), "factor must divide"),
        (lambda: slices.slice_zones(words(8, 2, 8), octets(512, 3), 4), "first_zone must be a multiple of 8, got 4"),
        (lambda: slices.slice_zones(words(8, 2, 8), octets(256, 3)), "512 bit rows"),
        (lambda: slices.unslice_zones(octets(0, 3), words(8, 2, 8)), "256 bit rows a block, got 0"),
        (lambda: slices.find_live_zone(octets(512, 3), FIVE, live=octets(3), out=longs(5) > 0), "multiple of 64"),
        (lambda: packed(first_fill=2), "first_fill must be"),
        (lambda: packed(first_zone=MAX_ZONES - 2), "first_zone must be"),
        (lambda: pairs.sort_pairs(longs(5), ROOM[:4]), "target must have at least 5 items, got 4"),
        (lambda: runs(0, 3, 2), "bounds must ascend to at most the end"),
        (lambda: runs(0, 2, 6), "bounds must ascend to at most the end"),
        (lambda: runs(0, 2, 5).merge(0, 3, ROOM), "stop must be from 0 to 2"),
        (lambda: runs(0, 2, 5).merge(1, 2, ROOM[:2]), "at least 3 items, got 2"),
        (lambda: pairs.merge_runs([FIVE, FIVE], ROOM), "merged must have at least 10 items, got 8"),
        (lambda: pairs.merge_runs([ROOM[::2]], ROOM), "runs must be a C-contiguous NumPy array of uint64"),
        (lambda: locator.encode_pages(FIVE, 3, PAGES, longs(2) + np.uint64(3)), "pages begun must be from 0 to 2"),
        (lambda: locator.encode_pages(FIVE, 3, octets(2, 4000), longs(2)), "4096 bytes each, got 4000"),
        (lambda: row_checksums.seal_rows(octets(4, 128), 0), "at least 256"),
        (lambda: row_checksums.seal_rows(octets(4, 257), 0), "multiple of 8"),
    ],
)
def test_numbers_and_shapes_that_contradict_each_other_are_refused(call, message):
    with pytest.raises(InvalidArgumentError, match=message):
        call()
