"""One Split Block Bloom Filter: insert hashes or Arrow values, check whether a value may be in it.

`Sbbf` looks up a few hashes by NumPy, and many by the kernels. A bitset is
`Sbbf.to_bytes`: the blocks in order, 8 little-endian words each; the same bytes that Parquet and Lance store.

Property: a filter never excludes an inserted value. The OR of two filters of equal size has the values of both. A
filter folded by k equals the filter that was built with k times fewer blocks.

Spec: specs/sbbf.md
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import numpy as np
import numpy.typing as npt

from zonebloom.bloom.numba_loading import SECONDS_A_PROBE, kernels_to_read
from zonebloom.bloom.sizing import BLOCK_BYTES, MAX_BLOCKS, check_fpp, num_blocks_for
from zonebloom.bloom.split_block import fold, measured_fpp
from zonebloom.ground.errors import InvalidArgumentError

if TYPE_CHECKING:
    import pyarrow as pa

_HEADER_TAIL: Final = bytes.fromhex("1c1c0000 1c1c0000 1c1c0000 00")
"""Split-block, XXH64, uncompressed, and the end of the struct; Parquet has no other algorithm, hash or compression."""
_HEADER_LENGTHS: Final = range(15, 20)
"""Bytes of a header: the size of the bitset is a varint of one to five."""


def _header(num_bytes: int) -> bytes:
    """Parquet's header of a bitset of `num_bytes` bytes.

    Spec: specs/parquet-blooms.md#header
    """
    number, out = 2 * num_bytes, bytearray(b"\x15")
    while number > 0x7F:  # noqa: PLR2004 - seven bits a byte
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number]) + _HEADER_TAIL


class Sbbf:
    """An approximate set: `check` is never false for an inserted value, and seldom true for another value.

    `zonebloom.parquet_bloom` gives the filter that a Parquet file has of a column.

    Parameters
    ----------
    blocks : ndarray of uint32, shape (num_blocks, 8)
        The filter's words; taken as they are, not copied.

    Raises
    ------
    InvalidArgumentError
        If the dtype or the shape does not fit.

    Examples
    --------
    >>> import pyarrow as pa
    >>> filter_ = Sbbf.for_ndv(1000, 0.001)
    >>> filter_.insert(pa.array(["ash", "oak", None]))
    >>> filter_.check(pa.array(["oak", "elm", None])).to_pylist()
    [True, False, None]
    """

    __slots__ = ("_blocks",)

    def __init__(self, blocks: npt.NDArray[np.uint32]) -> None:
        fits = isinstance(blocks, np.ndarray) and blocks.dtype == np.uint32 and blocks.flags.c_contiguous
        if not fits or blocks.ndim != 2 or blocks.shape[1] != 8 or not 1 <= len(blocks) <= MAX_BLOCKS:  # noqa: PLR2004
            got = f"{blocks.dtype} of shape {blocks.shape}" if isinstance(blocks, np.ndarray) else type(blocks).__name__
            raise InvalidArgumentError(
                f"blocks must be a contiguous uint32 array of shape (1 to {MAX_BLOCKS}, 8)", got=got
            )
        self._blocks = blocks

    @classmethod
    def for_ndv(
        cls, ndv: int, fpp: float, *, sizing: Literal["power_of_two", "exact", "parquet"] = "power_of_two"
    ) -> Sbbf:
        """An empty filter, large enough for `ndv` distinct values at `fpp`.

        Raises
        ------
        InvalidArgumentError
            If an argument is outside its range.

        Notes
        -----
        Spec: specs/sizing.md#num_blocks_for
        """
        return cls.with_blocks(num_blocks_for(ndv, fpp, sizing))

    @classmethod
    def with_blocks(cls, num_blocks: int) -> Sbbf:
        """An empty filter of `num_blocks` blocks, from 1 to 2^22.

        Raises
        ------
        InvalidArgumentError
            If there are none, or too many.
        """
        if isinstance(num_blocks, bool) or not isinstance(num_blocks, int) or not 1 <= num_blocks <= MAX_BLOCKS:
            raise InvalidArgumentError(f"num_blocks must be an integer from 1 to {MAX_BLOCKS}", got=f"{num_blocks!r}")
        return cls(np.zeros((num_blocks, 8), np.uint32))

    @classmethod
    def from_bytes(cls, bitset: bytes | bytearray | memoryview) -> Sbbf:
        """The filter with this bitset, which is copied.

        Raises
        ------
        InvalidArgumentError
            If it is empty, no multiple of 32 bytes, or more than 128 MiB.

        Notes
        -----
        Spec: specs/sbbf.md#bitset
        """
        num_bytes = memoryview(bitset).nbytes
        if num_bytes == 0 or num_bytes % BLOCK_BYTES or num_bytes > MAX_BLOCKS * BLOCK_BYTES:
            raise InvalidArgumentError(f"a bitset must be 32 bytes times 1 to {MAX_BLOCKS}", got=f"{num_bytes} bytes")
        return cls(np.frombuffer(bitset, "<u4").reshape(-1, 8).astype(np.uint32))

    @classmethod
    def from_parquet_bytes(cls, data: bytes | bytearray | memoryview) -> Sbbf:
        """The filter with Parquet's header before its bitset, which is copied.

        Raises
        ------
        InvalidArgumentError
            The header is not that of an uncompressed split-block XXH64 filter, or the bitset has another size than the
            header says.

        Notes
        -----
        Spec: specs/parquet-blooms.md#header
        """
        raw = bytes(data)
        for start in _HEADER_LENGTHS:
            if start < len(raw) and raw.startswith(_header(len(raw) - start)):
                return cls.from_bytes(raw[start:])
        raise InvalidArgumentError(
            "a filter must be the header of an uncompressed split-block filter of XXH64, and as many bytes as it says",
            got=f"{len(raw)} bytes that begin with {raw[:20].hex() or 'nothing'}",
        )

    def to_parquet_bytes(self) -> bytes:
        """Header and bitset, as a Parquet file has them; `bloom_filter_length` is their length.

        Spec: specs/parquet-blooms.md#header
        """
        return _header(self.num_bytes) + self.to_bytes()

    def to_bytes(self) -> bytes:
        """The bitset: `num_bytes` bytes, as Parquet and Lance store it.

        Spec: specs/sbbf.md#bitset
        """
        return self._blocks.astype("<u4", copy=False).tobytes()

    @property
    def blocks(self) -> npt.NDArray[np.uint32]:
        """The words themselves, shape (num_blocks, 8); changing them changes the filter."""
        return self._blocks

    @property
    def num_blocks(self) -> int:
        """How many blocks of 256 bits there are."""
        return len(self._blocks)

    @property
    def num_bytes(self) -> int:
        """The size of the bitset."""
        return self._blocks.nbytes

    def insert_hashes(self, hashes: npt.NDArray[np.uint64]) -> None:
        """`check_hashes` is true for every one of `hashes` (uint64, one dimension) from now on.

        Raises
        ------
        InvalidArgumentError
            If `hashes` is no array of uint64.
        """
        from zonebloom.bloom.kernels.sbbf import filter_insert  # noqa: PLC0415 - numba is loaded by the first insert

        filter_insert(self._blocks, np.ascontiguousarray(hashes))

    def check_hashes(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """For each hash: true if it may have been inserted, false if it certainly was not.

        Raises
        ------
        InvalidArgumentError
            If `hashes` is no array of uint64.
        """
        hashes = np.ascontiguousarray(hashes)
        if hashes.dtype != np.uint64 or hashes.ndim != 1:
            raise InvalidArgumentError("hashes must be an array of uint64 of one dimension", got=hashes.dtype)
        kernels = kernels_to_read("sbbf", len(hashes) * SECONDS_A_PROBE)
        answers: npt.NDArray[np.bool_] = kernels.filter_check(self._blocks, hashes)
        return answers

    def insert(self, values: Any) -> None:
        """`check` is true for every one of `values`, an array or a list, from now on; nulls are passed over.

        Raises
        ------
        UnsupportedTypeError
            If the values' type has no hash input.
        InvalidArgumentError
            If pyarrow cannot read the values.
        """
        from zonebloom.bloom.hashing import hash_array  # noqa: PLC0415 - hashes alone need no pyarrow
        from zonebloom.ground.arrow import chunks_of  # noqa: PLC0415

        for chunk in chunks_of(values):
            self.insert_hashes(hash_array(self._hashed(chunk)))

    def check(self, values: Any) -> pa.BooleanArray:
        """For each of `values`: true if it may have been inserted, false if certainly not, null if the value is null.

        A value is looked up as the bytes it has: -0.0 does not find an inserted 0.0.

        Raises
        ------
        UnsupportedTypeError, InvalidArgumentError
            As `insert`.
        """
        import pyarrow as pa  # noqa: PLC0415 - hashes alone need no pyarrow

        from zonebloom.ground.arrow import chunks_of, plain_array  # noqa: PLC0415

        answers = []
        for chunk in chunks_of(values):
            is_valid = plain_array(chunk).is_valid().to_numpy(zero_copy_only=False)  # an index may point to a null
            may_match = np.zeros(len(chunk), np.bool_)
            may_match[is_valid] = self._may_have(self._hashed(chunk))
            answers.append(pa.array(may_match, pa.bool_(), mask=~is_valid))
        return pa.concat_arrays(answers)

    def _hashed(self, values: pa.Array) -> pa.Array:
        """The values whose bytes are hashed for `values`; nulls may be left out."""
        return values

    def _may_have(self, values: pa.Array) -> npt.NDArray[np.bool_]:
        """Of each of `values` that is not null, whether it may have been inserted."""
        from zonebloom.bloom.hashing import hash_array  # noqa: PLC0415 - hashes alone need no pyarrow

        return self.check_hashes(hash_array(values))

    def fold(self, factor: int = 2) -> Sbbf:
        """The filter with `factor` times fewer blocks, equal to one that was built with them.

        Raises
        ------
        InvalidArgumentError
            If `factor` does not divide `num_blocks`.

        Notes
        -----
        Spec: specs/sbbf.md#fold
        """
        return Sbbf(fold(self._blocks, factor))

    def fold_to_fpp(self, fpp: float) -> Sbbf:
        """The smallest folding whose `fpp()` is at most `fpp`; the filter itself if there is none.

        Raises
        ------
        InvalidArgumentError
            If `fpp` is outside the range of `check_fpp`.

        Notes
        -----
        Spec: specs/sbbf.md#fold
        """
        check_fpp(fpp)
        for num_blocks in range(1, self.num_blocks // 2 + 1):
            if self.num_blocks % num_blocks == 0:
                folded = self.fold(self.num_blocks // num_blocks)
                if folded.fpp() <= fpp:
                    return folded
        return self

    def fpp(self) -> float:
        """The false positive probability of the filter, computed from its bits: exact for a uniformly distributed hash.

        Spec: specs/sbbf.md#measured_fpp
        """
        return float(measured_fpp(self._blocks[None])[0])

    def expected_ndv(self) -> float:
        """The number of distinct values that would set as many bits as are set.

        Spec: specs/sbbf.md#expected_ndv
        """
        num_bits = 8 * self.num_bytes
        unset = max(num_bits - int(np.bitwise_count(self._blocks).sum()), 0.5) / num_bits
        return math.log(unset) / math.log1p(-1 / (32 * self.num_blocks))

    def __ior__(self, other: object) -> Self:
        """Add the values of `other`, which must have the same size.

        Spec: specs/sbbf.md#union
        """
        if not isinstance(other, Sbbf):
            return NotImplemented
        if other.num_blocks != self.num_blocks:
            raise InvalidArgumentError(
                "filters must be of equal size to be united",
                got=f"{self.num_blocks} and {other.num_blocks} blocks",
                do="fold the larger one",
            )
        np.bitwise_or(self._blocks, other._blocks, out=self._blocks)
        return self

    def __eq__(self, other: object) -> bool:
        """Whether the bitsets are equal."""
        return isinstance(other, Sbbf) and bool(np.array_equal(self._blocks, other._blocks))

    __hash__: Any = None  # mutable

    def __repr__(self) -> str:
        return f"Sbbf(num_blocks={self.num_blocks}, num_bytes={self.num_bytes}, fpp={self.fpp():.3g})"
