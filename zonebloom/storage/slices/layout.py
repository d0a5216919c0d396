"""The layout of a group of zones in a slice segment: capacities, row numbers, offsets, and zone runs.

A ladder:

- a **bit row** holds one bit of each zone of the group, then zeros, then 8 bytes of checksum; its length, the
  **stride**, is a power of two from 64 bytes to 4096, so that a row never straddles a page;
- bit row ``block * 256 + word * 32 + bit`` is that bit of that word of that block of every filter;
- a **body** is the rows of some whole blocks; bodies begin at multiples of 4096 in the file;
- a **zone run** is consecutive zones of one fragment of equal length; the length of its last zone may differ.

Spec: specs/slices.md
"""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from functools import cache
from itertools import accumulate, combinations_with_replacement, pairwise

import pyarrow as pa

from zonebloom.bloom.split_block import ROWS_PER_BLOCK
from zonebloom.bloom.zones import ZonePositions
from zonebloom.ground.errors import CorruptIndexError, UnsupportedFormatError
from zonebloom.storage.arrow_file import check_columns, read_batches, reading
from zonebloom.storage.json_fields import array, integer, record
from zonebloom.storage.sealed_rows import CHECKSUM_BYTES
from zonebloom.storage.slices.zone_runs import RUN_SCHEMA, encoded_runs, positions_of

PAGE_BYTES = 4096
WORDS_PER_BLOCK = 8
MIN_STRIDE, MAX_STRIDE = 64, PAGE_BYTES
_BODY_BYTES = 64 << 20
_LAYOUT_KEY = b"zonebloom.slices"
_ZONES_KEY = b"zonebloom.zones"
_LAYOUT_VERSION = 2


def capacity_of(stride: int) -> int:
    """Zones that bit rows of `stride` bytes hold."""
    return 8 * (stride - CHECKSUM_BYTES)


CAPACITIES = tuple(capacity_of(MAX_STRIDE >> shift) for shift in range((MAX_STRIDE // MIN_STRIDE).bit_length()))
"""32 704, 16 320, 8128, 4032, 1984, 960, 448 zones: the sizes of groups."""
FULL_GROUP = CAPACITIES[0]
_MOST_BYTES, _MOST_REMOTE_BYTES = 8 / 7, 16 / 7
"""Bytes of bit rows for each byte of the filters at most: of full rows of 64 bytes, and of rows that are half empty."""
_MOST_PARTIAL_GROUPS = 4


def stride_for(num_zones: int) -> int:
    """The least stride in bytes whose rows hold `num_zones` zones (at most 32 704).

    Spec: specs/slices.md#bit-rows
    """
    return next(MIN_STRIDE << shift for shift in range(7) if capacity_of(MIN_STRIDE << shift) >= num_zones)


@cache
def cut_into_groups(num_zones: int, *, is_remote: bool = False) -> tuple[int, ...]:
    """Sizes of the groups that `num_zones` zones of one filter size are cut into; empty if slicing does not pay.

    Full groups come first. The rest takes the fewest groups, at most 4, with which all bit rows have at most 8/7 of the
    bytes of the filters. If there are none, slicing does not pay on a disk. In an object store a filter costs a
    request, so that rows which are half empty still pay.

    Spec: specs/slices.md#cut_into_groups
    """
    num_full, rest = divmod(num_zones, FULL_GROUP)
    full = (FULL_GROUP,) * num_full
    if not rest:
        return full
    for most in (_MOST_BYTES, _MOST_REMOTE_BYTES) if is_remote else (_MOST_BYTES,):
        for count in range(1, _MOST_PARTIAL_GROUPS + 1):
            cuts = (cut for cut in combinations_with_replacement(CAPACITIES, count) if sum(cut) >= rest)
            tight = min(cuts, key=sum)
            if sum(stride_for(size) * 8 for size in full + tight) <= most * num_zones:
                ends = [min(end, rest) for end in accumulate(tight)]
                return full + tuple(end - start for start, end in pairwise([0, *ends]))
    return ()


@dataclass(frozen=True, slots=True)
class GroupLayout:
    """Where the bit rows of one group lie in its file.

    - `body_offsets` are multiples of 4096; every body but the last has `blocks_per_body` blocks.
    """

    num_blocks: int
    """Blocks of each filter."""
    num_zones: int
    """Zones of the group."""
    stride: int
    """Bytes of a bit row with its checksum."""
    blocks_per_body: int
    """Whole blocks of a record batch."""
    body_offsets: tuple[int, ...]
    """Offset of each record batch's rows in the file."""
    version: int = _LAYOUT_VERSION
    """Of the format: 1 if the checksums of rows do not know the path."""

    @classmethod
    def planned(cls, num_blocks: int, num_zones: int) -> GroupLayout:
        """The layout of a new group, whose bodies have no offsets yet."""
        stride = stride_for(num_zones)
        blocks_per_body = min(num_blocks, max(1, _BODY_BYTES // (ROWS_PER_BLOCK * stride)))
        return cls(num_blocks, num_zones, stride, blocks_per_body, (0,) * -(-num_blocks // blocks_per_body))

    def bodies(self) -> list[tuple[int, int]]:
        """Half-open range of blocks of each body."""
        step = self.blocks_per_body
        return [(first, min(first + step, self.num_blocks)) for first in range(0, self.num_blocks, step)]

    def offset(self, row: int) -> int:
        """Offset of bit row `row` in the file."""
        body, inside = divmod(row, self.blocks_per_body * ROWS_PER_BLOCK)
        return self.body_offsets[body] + inside * self.stride

    def check(self, file_bytes: int, where: str) -> None:
        """Raise `CorruptIndexError` unless every row lies inside a file of `file_bytes`."""
        is_sound = (
            self.stride in (MIN_STRIDE << shift for shift in range(7))
            and 0 <= self.num_zones <= capacity_of(self.stride)
            and 1 <= self.num_blocks <= file_bytes // (ROWS_PER_BLOCK * self.stride)
            and 1 <= self.blocks_per_body <= self.num_blocks
            and len(self.body_offsets) == -(-self.num_blocks // self.blocks_per_body)
        )
        end = 0
        for offset, (first, stop) in zip(self.body_offsets, self.bodies() if is_sound else (), strict=False):
            is_sound = is_sound and offset >= end and offset % PAGE_BYTES == 0
            end = offset + (stop - first) * ROWS_PER_BLOCK * self.stride
        if not is_sound or end > file_bytes:
            raise CorruptIndexError(f"segment {where} must describe rows inside its {file_bytes} bytes", got=self)


_VERSION = record(lambda version: version, version=integer())
_LAYOUT = record(
    GroupLayout,
    num_blocks=integer(),
    num_zones=integer(),
    stride=integer(),
    blocks_per_body=integer(),
    body_offsets=array(integer()),
    version=integer(),
)


def encode(layout: GroupLayout, positions: ZonePositions) -> dict[bytes, bytes]:
    """Schema metadata with all that a probe needs to know: the layout, and the positions of the zones.

    Spec: specs/slices.md#metadata
    """
    return {
        _LAYOUT_KEY: json.dumps(asdict(layout), separators=(",", ":")).encode(),
        _ZONES_KEY: base64.b64encode(encoded_runs(positions)),
    }


def decode_layout(schema: pa.Schema, file_bytes: int, where: str) -> GroupLayout:
    """The layout in the metadata of a slice segment of `file_bytes`.

    Raises
    ------
    CorruptIndexError
        It has no layout, or that of another file.
    UnsupportedFormatError
        A newer zonebloom wrote it.
    """
    described = json.loads((schema.metadata or {})[_LAYOUT_KEY])
    version = _VERSION(described)
    if version > _LAYOUT_VERSION:
        raise UnsupportedFormatError.newer(f"segment {where} must have layout version <= {_LAYOUT_VERSION}", version)
    layout = _LAYOUT(described)
    layout.check(file_bytes, where)
    check_columns(schema, pa.schema([pa.field("bit_rows", pa.binary(layout.stride), nullable=False)]))
    return layout


def decode_positions(schema: pa.Schema, num_zones: int, where: str) -> ZonePositions:
    """The positions of the zones in the metadata of a slice segment.

    Raises
    ------
    CorruptIndexError
        They are missing, or their number differs from `num_zones`.
    """
    with reading(f"the zone runs of segment {where}"):
        stream = base64.b64decode((schema.metadata or {})[_ZONES_KEY], validate=True)
        (runs,) = read_batches(pa.py_buffer(stream), RUN_SCHEMA)
        return positions_of(runs, num_zones, where)
