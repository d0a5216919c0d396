"""`FilterChunk`: the filters of one record batch of zones, as NumPy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from zonebloom.bloom.numba_loading import SECONDS_A_PROBE, is_worth_loading, kernels_to_read
from zonebloom.bloom.sizing import BLOCK_BYTES
from zonebloom.bloom.split_block import block_index, block_indexes, measured_fpp
from zonebloom.ground.errors import InvalidZoneTableError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_KERNELS = "zonebloom.bloom.kernels.sbbf"
_FEW_PROBES = 1 << 12
"""Pairs of a zone and a hash that NumPy probes as fast as a kernel is called."""


def is_work_for_kernel(num_probes: int) -> bool:
    """Whether a kernel is faster than NumPy for `num_probes` pairs of a zone and a hash."""
    return num_probes > _FEW_PROBES and is_worth_loading(_KERNELS, num_probes * SECONDS_A_PROBE)


class FilterChunk:
    """The filters of consecutive zones in one Arrow binary array, without a copy.

    - `data`: uint8, the bytes of all filters.
    - `offsets`: int64, the first byte of each filter, and the end of the last.
    - `filters`: all words, shape `(num_zones, num_blocks, 8)`; None if the filters differ in size.
    """

    __slots__ = ("data", "filters", "offsets")

    def __init__(self, array: pa.BinaryArray | pa.LargeBinaryArray) -> None:
        offset_type = np.int64 if pa.types.is_large_binary(array.type) else np.int32
        _, offsets_buffer, data_buffer = array.buffers()
        if len(array) == 0 or offsets_buffer is None:
            offsets: NDArray[Any] = np.zeros(1, np.int64)
        else:
            offsets = np.frombuffer(offsets_buffer, offset_type)[array.offset : array.offset + len(array) + 1]
        sizes = np.diff(offsets)
        bad = np.flatnonzero((sizes <= 0) | (sizes % BLOCK_BYTES != 0))
        if len(bad):
            raise InvalidZoneTableError(
                f"each bitset must be a positive multiple of {BLOCK_BYTES} bytes",
                got=f"{int(sizes[bad[0]])} bytes in zone {int(bad[0])}",
            )
        base, end = int(offsets[0]), int(offsets[-1])
        data = data_buffer.slice(base, end - base) if data_buffer is not None else pa.py_buffer(b"")
        self.data: NDArray[np.uint8] = np.frombuffer(data, np.uint8)
        self.offsets: NDArray[np.int64] = offsets.astype(np.int64) - base
        is_uniform = len(sizes) > 0 and bool((sizes == sizes[0]).all())
        self.filters: NDArray[np.uint32] | None = self._blocks.reshape(len(sizes), -1, 8) if is_uniform else None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def _blocks(self) -> NDArray[np.uint32]:
        """The blocks of all filters, shape `(num_blocks, 8)`."""
        return self.data.view("<u4").reshape(-1, 8)

    @property
    def num_blocks(self) -> NDArray[np.int64]:
        """Blocks of each filter."""
        return np.diff(self.offsets) // BLOCK_BYTES

    def may_contain(self, value: int, mask: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """For each zone, whether the hash `value`, which has this `mask`, may have been inserted; False is certain."""
        if self.filters is not None:
            blocks = self.filters[:, block_index(value, self.filters.shape[1])]
        else:
            numbers = block_indexes(np.uint64(value), self.num_blocks).astype(np.int64)
            blocks = self._blocks[self.offsets[:-1] // BLOCK_BYTES + numbers]
        return np.asarray(((blocks & mask) == mask).all(axis=1))

    def may_contain_any(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each zone, whether any of `hashes` may have been inserted; by a kernel, which is faster for many."""
        from zonebloom.bloom.kernels import sbbf as kernels  # noqa: PLC0415 - loaded once it is worth it

        return kernels.check_zones(self.data, self.offsets, hashes)

    def contained(self, hashes: NDArray[np.uint64], live: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        """For each of `hashes`, whether any zone (in the mask `live`) may contain it."""
        kernels = kernels_to_read("sbbf", len(self) * len(hashes) * SECONDS_A_PROBE)
        answers: NDArray[np.bool_] = kernels.check_hashes(self.data, self.offsets, hashes, live)
        return answers

    def blocks(self, zone: int) -> NDArray[np.uint32]:
        """The filter of one zone, shape `(num_blocks, 8)`."""
        return self.data[self.offsets[zone] : self.offsets[zone + 1]].view("<u4").reshape(-1, 8)

    def copy_blocks(self, out: NDArray[np.uint32], first_zone: int, first_block: int) -> None:
        """As `BlockFilters.copy_blocks`, of zones of this chunk."""
        last_block = first_block + out.shape[1]
        if self.filters is not None:
            out[:] = self.filters[first_zone : first_zone + len(out), first_block:last_block]
            return
        for zone, blocks in enumerate(out, first_zone):
            blocks[:] = self.blocks(zone)[first_block:last_block]

    def measured_fpp(self) -> NDArray[np.float64]:
        """The exact false positive probability of each filter, from its set bits."""
        if self.filters is not None:
            return measured_fpp(self.filters)
        parts = [measured_fpp(self.blocks(zone)[None]) for zone in range(len(self))]
        return np.concatenate(parts) if parts else np.zeros(0)
