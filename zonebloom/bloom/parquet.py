"""Parquet's own bloom filters: the header before a bitset, the bytes that Parquet hashes, and filters read from a file.

The ladder: `split_header` and `header_of` (the bytes before a bitset); `plain_type` and `plain_values` (a column's
values as Parquet stores and hashes them, by the physical type of the footer); `ParquetSbbf`, a filter that hashes so;
`chunk_filters`, the filters of one column over row groups. pyarrow parses the footer, and a caller hands in a function
that reads ranges of bytes. `filter_in` lets pyarrow open the file as well.

A filter that is not proved to be one is no filter, and says why: it must never exclude a value by accident.

Spec: specs/parquet-blooms.md
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from zonebloom.arrow import parquet as pq
from zonebloom.bloom.hashing import hash_values, resolve_column, storage_type, to_hashes
from zonebloom.bloom.hashing.buffers import stored_array
from zonebloom.bloom.sbbf import Sbbf
from zonebloom.bloom.sizing import BLOCK_BYTES, MAX_BLOCKS
from zonebloom.errors import ColumnNotFoundError, DataFileError, InvalidArgumentError, UnsupportedTypeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "ChunkFilter",
    "FileSizes",
    "ParquetSbbf",
    "chunk_filters",
    "filter_in",
    "header_of",
    "leaf_of",
    "leaf_type",
    "plain_type",
    "plain_values",
    "split_header",
    "value_type",
]

_TAIL: Final = bytes.fromhex("1c1c0000 1c1c0000 1c1c0000 00")
"""Split-block, XXH64, uncompressed, and the end of the struct: the only algorithm, hash and compression there are."""
_HEADER: Final = re.compile(rb"\x15([\x80-\xff]{0,4}[\x00-\x7f])" + re.escape(_TAIL))
_HEADER_READ_BYTES: Final = 64
"""Read first where the footer does not say how long a filter is; a header has 15 to 19 bytes."""
_SAME_BYTES: Final = {
    "FLOAT": (pa.float32(),),
    "DOUBLE": (pa.float64(),),
    "BYTE_ARRAY": (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()),
}
"""Arrow types whose values are stored as they are."""
_UNITS: Final = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_MAX_BYTES: Final = MAX_BLOCKS * BLOCK_BYTES + _HEADER_READ_BYTES
"""Bytes of the largest filter, at most."""
_END_BYTES: Final = 8
"""Length of the footer and magic number, after the footer."""

ReadRanges = Callable[[Sequence[tuple[int, int]]], Sequence[bytes]]
"""For each `(offset, length)`, those bytes; fewer at the end of the file."""


# --- the header -------------------------------------------------------------------------------------------------------


def header_of(num_bytes: int) -> bytes:
    """The header of a bitset of `num_bytes` bytes.

    Spec: specs/parquet-blooms.md#header
    """
    number, out = 2 * num_bytes, bytearray(b"\x15")
    while number > 0x7F:  # noqa: PLR2004 - seven bits a byte
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out) + _TAIL


def split_header(data: bytes) -> tuple[int, int] | str:
    """Bytes of the bitset and of the header at the beginning of `data`; or why there is no header of a filter.

    Spec: specs/parquet-blooms.md#header
    """
    found = _HEADER.match(data)
    if found is None:
        got = bytes(data[:24]).hex() or "nothing"
        return f"its header must be of an uncompressed split-block filter of XXH64, got {got}"
    number = sum((byte & 0x7F) << (7 * place) for place, byte in enumerate(found[1]))
    num_bytes = -1 if number & 1 else number >> 1
    if num_bytes % BLOCK_BYTES or not BLOCK_BYTES <= num_bytes <= MAX_BLOCKS * BLOCK_BYTES:
        return f"its bitset must be 32 bytes times 1 to {MAX_BLOCKS}, got {num_bytes} bytes"
    return num_bytes, found.end()


# --- the bytes that Parquet hashes ------------------------------------------------------------------------------------


def plain_type(column_type: pa.DataType, described: pq.ColumnSchema) -> pa.DataType | None:
    """The Arrow type with Parquet's own bytes of the values of `column_type`; None where those are not known.

    Parameters
    ----------
    column_type
        Type of the column as it is read from the file.
    described
        The leaf as the footer describes it: its physical type says what was hashed.

    Spec: specs/parquet-blooms.md#plain
    """
    stored, physical = value_type(column_type), described.physical_type
    if stored is None or described.max_repetition_level:
        return None
    if pa.types.is_decimal(stored):
        is_fixed = physical == "FIXED_LEN_BYTE_ARRAY"
        found = pa.binary(described.length) if is_fixed else {"INT32": pa.int32(), "INT64": pa.int64()}.get(physical)
        return found if described.scale == stored.scale else None
    if physical in ("INT32", "INT64"):
        return _plain_integer(stored, int(physical[3:]), _unit(described))
    if physical == "FIXED_LEN_BYTE_ARRAY":
        is_whole = pa.types.is_fixed_size_binary(stored) or pa.types.is_float16(stored)
        return stored if is_whole and stored.bit_width == 8 * described.length else None
    stored = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}.get(stored, stored)
    return stored if stored in _SAME_BYTES.get(physical, ()) else None


def _plain_integer(stored: pa.DataType, num_bits: int, unit: str | None) -> pa.DataType | None:
    """The type of `num_bits` that holds values of `stored`, times in `unit`."""
    types = pa.types
    if types.is_integer(stored) and stored.bit_width <= num_bits:
        return stored if stored.bit_width == num_bits else pa.int32() if num_bits == 32 else pa.int64()  # noqa: PLR2004
    if num_bits == 32:  # noqa: PLR2004 - bits
        is_time = types.is_time32(stored) and unit == "ms"
        return pa.date32() if types.is_date(stored) else pa.time32("ms") if is_time else None
    if types.is_timestamp(stored) and unit:
        return pa.timestamp(unit, stored.tz)
    if types.is_time64(stored) and unit in ("us", "ns"):
        return pa.time64(unit)
    return stored if types.is_duration(stored) else None


def value_type(column_type: pa.DataType | None) -> pa.DataType | None:
    """The type of one value, without extension types and dictionaries; None where values have no bytes of their own."""
    if isinstance(column_type, pa.Bool8Type):
        return None
    stored = storage_type(column_type)
    return value_type(stored.value_type) if pa.types.is_dictionary(stored) else stored


def _unit(described: pq.ColumnSchema) -> str | None:
    try:
        return _UNITS.get(json.loads(described.logical_type.to_json()).get("timeUnit"))
    except ValueError:
        return None


def plain_values(values: pa.Array, plain: pa.DataType) -> pa.Array:
    """The values that are not null, as the type that `plain_type` gave.

    Raises
    ------
    pa.ArrowInvalid
        A value does not convert exactly.
    """
    values = _decoded(values).drop_null()
    if not pa.types.is_decimal(values.type):
        return values if values.type == plain else values.cast(plain)
    width = values.type.byte_width
    raw = np.frombuffer(values.buffers()[1], np.uint8)[values.offset * width :][: len(values) * width]
    rows = raw.reshape(-1, width)
    if not pa.types.is_fixed_size_binary(plain):
        size = plain.bit_width // 8
        return pa.Array.from_buffers(plain, len(values), [None, pa.py_buffer(_padded(rows, size)[:, :size].tobytes())])
    size = plain.byte_width
    big_endian = _padded(rows, size)[:, :size][:, ::-1]
    return pa.Array.from_buffers(plain, len(values), [None, pa.py_buffer(big_endian.tobytes())])


def _decoded(values: pa.Array) -> pa.Array:
    """`values` without extension types, views, dictionaries and run-end encoding."""
    values = stored_array(values)
    return stored_array(values.dictionary_decode()) if isinstance(values, pa.DictionaryArray) else values


def _padded(rows: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Little-endian integers of at least `size` bytes each."""
    missing = max(0, size - rows.shape[1])
    signs = np.where(rows[:, -1:] >= 0x80, np.uint8(0xFF), np.uint8(0))  # noqa: PLR2004 - the highest bit
    return np.concatenate([rows, np.repeat(signs, missing, axis=1)], axis=1)


# --- one filter -------------------------------------------------------------------------------------------------------


class ParquetSbbf(Sbbf):
    """A column chunk's own filter: it hashes values as Parquet does, by the physical type of the column.

    `check` finds a stored zero by either zero, and excludes no NaN. `check_hashes` takes hashes of Parquet's bytes.
    """

    __slots__ = ("column_type", "plain_type")

    def __init__(
        self, blocks: NDArray[np.uint32], column_type: pa.DataType | None = None, plain: pa.DataType | None = None
    ) -> None:
        super().__init__(blocks)
        self.column_type = column_type
        """Type of the column as it is read from the file."""
        self.plain_type = plain
        """Type whose bytes are hashed; None where they are not known, as for INT96."""

    def insert(self, array: pa.Array | pa.ChunkedArray) -> None:
        """`check` is true for every value of `array` from now on; nulls are passed over.

        Raises
        ------
        UnsupportedTypeError
            It is not known which bytes Parquet hashes for the column.
        InvalidArgumentError
            A value is none of the column's type.
        """
        for chunk in array.chunks if isinstance(array, pa.ChunkedArray) else [array]:
            self.insert_hashes(to_hashes(self._plain(chunk)))

    def check(self, array: pa.Array) -> pa.BooleanArray:
        """For each value: true if it may be in the column chunk, false if certainly not, null if the value is null.

        Raises
        ------
        UnsupportedTypeError
            It is not known which bytes Parquet hashes for the column.
        InvalidArgumentError
            A value is none of the column's type.
        """
        is_valid = _decoded(array).is_valid().to_numpy(zero_copy_only=False)
        plain = self._plain(array)
        answers = np.zeros(len(array), np.bool_)
        found = self.check_hashes(to_hashes(plain))
        if pa.types.is_floating(plain.type):
            zeros = np.asarray(hash_values(pa.array(np.zeros(1, plain.to_numpy().dtype), plain.type)), np.uint64)
            floats = plain.to_numpy()
            found = found | ((floats == 0) & self.check_hashes(zeros).any()) | np.isnan(floats)
        answers[is_valid] = found
        return pa.array(answers, pa.bool_(), mask=~is_valid)

    def _plain(self, values: pa.Array) -> pa.Array:
        if self.plain_type is None:
            message = f"a column with a filter must be of a type whose stored bytes are known, got {self.column_type}"
            raise UnsupportedTypeError(message)
        try:
            same = values if values.type == self.column_type else values.cast(value_type(self.column_type))
            return plain_values(same, self.plain_type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidArgumentError(
                f"values must be of the column's type {self.column_type}, got {error}"
            ) from error


# --- the filters of a file --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChunkFilter:
    """What a file has as the filter of one column chunk."""

    row_group: int
    """Number of the row group."""
    leaf: int
    """Number of the leaf."""
    offset: int
    """Where its header begins in the file."""
    filter: ParquetSbbf | None
    """The filter; None where it is not proved to be one."""
    problem: str | None = None
    """Why it is none."""


class FileSizes(NamedTuple):
    """Sizes of a file and its footer."""

    file_bytes: int
    """Bytes of the file."""
    footer_bytes: int
    """Bytes of the footer: more than those of its struct where it is signed, so that columns may be encrypted."""


def leaf_of(metadata: pq.FileMetaData, column: str) -> int | None:
    """Number of the leaf at the path `column`; None where the file has none, or several."""
    paths = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    return paths.index(column) if paths.count(column) == 1 else None


def chunk_filters(
    metadata: pq.FileMetaData,
    leaf: int,
    column_type: pa.DataType,
    sizes: FileSizes,
    read_ranges: ReadRanges,
    *,
    groups: Iterable[int] | None = None,
) -> list[ChunkFilter]:
    """The filters of a leaf in the row groups that have one, in order.

    At most two calls of `read_ranges`, the second for filters of which the footer does not say how long they are.

    Parameters
    ----------
    metadata
        The footer.
    leaf
        Number of the leaf.
    column_type
        Its type as it is read from the file.
    sizes
        Of the file and of its footer.
    groups
        Row groups to look at; all by default.

    Spec: specs/parquet-blooms.md#chunk_filters
    """
    groups = range(metadata.num_row_groups) if groups is None else groups
    if sizes.footer_bytes != metadata.serialized_size:  # pyarrow 26 ends the process where it meets an encrypted chunk
        return [ChunkFilter(group, leaf, 0, None, "its file is encrypted") for group in groups]
    last = sizes.file_bytes - _END_BYTES
    plain = plain_type(column_type, metadata.schema.column(leaf))
    chunks = {group: metadata.row_group(group).column(leaf) for group in groups}
    offsets = {group: one.bloom_filter_offset for group, one in chunks.items() if one.bloom_filter_offset is not None}
    lengths = {group: _length_said(chunks[group], last) for group in offsets}
    unsized = [group for group, length in lengths.items() if length is None]
    if unsized:
        boundaries = _boundaries(metadata, last - metadata.serialized_size)
        heads = read_ranges([(offsets[group], _HEADER_READ_BYTES) for group in unsized])
        for group, head in zip(unsized, heads, strict=True):
            lengths[group] = _length_found(head, offsets[group], boundaries)
    sized = {group: length for group, length in lengths.items() if isinstance(length, int)}
    data = read_ranges([(offsets[group], length) for group, length in sized.items()]) if sized else []
    read = {group: _parsed(one, sized[group]) for group, one in zip(sized, data, strict=True)}
    found = []
    for group, offset in offsets.items():
        one = read.get(group, lengths[group])
        own = ParquetSbbf(one.blocks, column_type, plain) if isinstance(one, Sbbf) else None
        found.append(ChunkFilter(group, leaf, offset, own, one if isinstance(one, str) else None))
    return found


def _length_said(chunk: pq.ColumnChunkMetaData, last: int) -> int | str | None:
    """The length of a filter as the footer has it, None where it does not say; or why there can be none."""
    offset, length = chunk.bloom_filter_offset, chunk.bloom_filter_length
    if chunk.file_path:
        return f"it must be in the same file, got {chunk.file_path}"
    least = 1 if length is None else length
    if not 0 < offset < last or not 0 < least <= min(last - offset, _MAX_BYTES):
        return f"it must lie in the {last} bytes before the end of its file, got {length} bytes at {offset}"
    return None if length is None else int(length)


def _length_found(head: bytes, offset: int, boundaries: set[int]) -> int | str:
    """The length of a filter by its header; or why there is none."""
    header = split_header(head)
    if not isinstance(header, str) and offset + sum(header) not in boundaries:
        return f"it must end where another part of the file begins, got {header[0]} bytes at {offset}"
    return header if isinstance(header, str) else sum(header)


def _parsed(data: bytes, length: int) -> Sbbf | str:
    """The filter in `data`, whose length is to be that; or why there is none."""
    header = split_header(data)
    if isinstance(header, str):
        return header
    num_bytes, start = header
    if not len(data) == length == start + num_bytes:
        return f"it must have the {length} bytes that the footer gives it, got {start + num_bytes} by its header"
    return Sbbf.from_bytes(data[start:])


def _boundaries(metadata: pq.FileMetaData, footer: int) -> set[int]:
    """Offsets at which filters and column chunks begin, and the footer."""
    found = {footer}
    for group in range(metadata.num_row_groups):
        described = metadata.row_group(group)
        for number in range(described.num_columns):
            chunk = described.column(number)
            found |= {chunk.bloom_filter_offset, chunk.dictionary_page_offset, chunk.data_page_offset}
    return found - {None}


def filter_in(file: Any, row_group: int, column: str) -> ParquetSbbf | None:
    """See `Sbbf.from_parquet`."""
    is_path = isinstance(file, (str, os.PathLike))
    try:
        with ExitStack() as stack:
            opened = stack.enter_context(pa.OSFile(os.fspath(file), "rb")) if is_path else file
            source = opened if isinstance(opened, pa.NativeFile) else pa.PythonFile(opened, "r")
            reader = pq.ParquetFile(source)
            leaf = leaf_of(reader.metadata, column)
            if leaf is None:
                paths = [reader.metadata.schema.column(number).path for number in range(reader.metadata.num_columns)]
                raise ColumnNotFoundError.among(column, paths, f"{file}, once")
            if not 0 <= row_group < reader.metadata.num_row_groups:
                message = f"row_group must be one of the {reader.metadata.num_row_groups} of the file, got {row_group}"
                raise InvalidArgumentError(message)
            column_type = leaf_type(reader.schema_arrow, column)
            size = source.size()
            sizes = FileSizes(size, int.from_bytes(source.read_at(4, size - _END_BYTES), "little"))
            read = partial(_read_ranges, source)
            found = chunk_filters(reader.metadata, leaf, column_type, sizes, read, groups=[row_group])
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # pyarrow decodes names that may be damaged
        raise DataFileError(f"{file} must be a whole Parquet file, got: {error}") from error
    if not found:
        return None
    if found[0].filter is None:
        message = f"the filter of column {column} in row group {row_group} of {file} cannot be used"
        raise DataFileError(f"{message}: {found[0].problem}")
    return found[0].filter


def _read_ranges(source: pa.NativeFile, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    return [source.read_at(length, offset) for offset, length in ranges]


def leaf_type(schema: pa.Schema, column: str) -> pa.DataType:
    """Type of the leaf at the path `column`; null where it lies in a list or a map, which have no values to look up."""
    try:
        return resolve_column(schema, column).type
    except ColumnNotFoundError:
        return pa.null()
