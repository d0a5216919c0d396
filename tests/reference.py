"""The specs' pseudo-code in plain Python integers: slow, obvious, and what every kernel is compared with.

Nothing here imports zonebloom. Filters are lists of blocks, blocks are lists of 8 ints, hashes are ints. The xxhash
package is the reference of hashes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import xxhash

M32 = (1 << 32) - 1

SALT = [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31]

Filter = list[list[int]]


def hashes_of(inputs: Iterable[bytes]) -> list[int]:
    return [xxhash.xxh64_intdigest(value) for value in inputs]


# --- specs/sbbf.md ----------------------------------------------------------------------------------------------------


def empty_filter(num_blocks: int) -> Filter:
    return [[0] * 8 for _ in range(num_blocks)]


def mask(hash_: int) -> list[int]:
    key = hash_ & M32
    return [1 << ((key * salt & M32) >> 27) for salt in SALT]


def block_index(hash_: int, num_blocks: int) -> int:
    return (hash_ >> 32) * num_blocks >> 32


def block_insert(block: list[int], hash_: int) -> None:
    for i, bit in enumerate(mask(hash_)):
        block[i] |= bit


def block_check(block: Sequence[int], hash_: int) -> bool:
    return all(block[i] & bit for i, bit in enumerate(mask(hash_)))


def filter_insert(filter_: Filter, hash_: int) -> None:
    block_insert(filter_[block_index(hash_, len(filter_))], hash_)


def filter_check(filter_: Filter, hash_: int) -> bool:
    return block_check(filter_[block_index(hash_, len(filter_))], hash_)


def filter_of(hashes: Iterable[int], num_blocks: int) -> Filter:
    filter_ = empty_filter(num_blocks)
    for hash_ in hashes:
        filter_insert(filter_, hash_)
    return filter_


def zones_of(hashes: Sequence[int | None], rows_per_zone: int, num_blocks: int) -> tuple[list[Filter], list[int]]:
    """The filter and the number of valid rows of each zone; None is a null row."""
    zones = [hashes[start : start + rows_per_zone] for start in range(0, len(hashes), rows_per_zone)]
    valid = [[hash_ for hash_ in zone if hash_ is not None] for zone in zones]
    return [filter_of(zone, num_blocks) for zone in valid], [len(zone) for zone in valid]


def fold(filter_: Filter, factor: int) -> Filter:
    folded = empty_filter(len(filter_) // factor)
    for i, block in enumerate(filter_):
        for j, word in enumerate(block):
            folded[i // factor][j] |= word
    return folded


def measured_fpp(filter_: Filter) -> float:
    return sum(math.prod(word.bit_count() / 32 for word in block) for block in filter_) / len(filter_)


# --- specs/slices.md --------------------------------------------------------------------------------------------------


def slice_zones(filters: Sequence[Filter], row_bytes: int) -> list[bytes]:
    """Bit row ``block * 256 + word * 32 + bit``; bit i of a row, least significant first, is zone i's."""
    rows = []
    for block in range(len(filters[0])):
        for word in range(8):
            for bit in range(32):
                row = sum((filter_[block][word] >> bit & 1) << zone for zone, filter_ in enumerate(filters))
                rows.append(row.to_bytes(row_bytes, "little"))
    return rows


def probe_rows(rows: Sequence[bytes], num_blocks: int, hashes: Iterable[int]) -> int:
    """The zones that may hold any of the hashes, as the bits of one int."""
    actual = 0
    for hash_ in hashes:
        first = block_index(hash_, num_blocks) * 256
        bits = [bit.bit_length() - 1 for bit in mask(hash_)]
        zones = ~0
        for word, bit in enumerate(bits):
            zones &= int.from_bytes(rows[first + word * 32 + bit], "little")
        actual |= zones
    return actual


# --- specs/locator.md -------------------------------------------------------------------------------------------------


def locator_pair(hash_: int, zone: int, zone_bits: int) -> int:
    return hash_ >> 23 << zone_bits | zone


def locator_pages(pairs: Iterable[int]) -> list[bytes]:
    """The pages of a set of pairs, without checksums."""
    pages: list[list[int]] = []
    for pair in sorted(set(pairs)):
        span = (pair >> 32) - (pages[-1][0] >> 32) if pages else 0
        if not pages or 33 * (len(pages[-1]) + 1) + span > 8 * 4080:
            pages.append([])
        pages[-1].append(pair)
    return [_locator_page(page) for page in pages]


def _locator_page(pairs: Sequence[int]) -> bytes:
    first_bucket = pairs[0] >> 32
    bits = sum(1 << ((pair >> 32) - first_bucket + index) for index, pair in enumerate(pairs))
    entries = b"".join((pair & M32).to_bytes(4, "little") for pair in reversed(pairs))
    head = first_bucket.to_bytes(4, "little") + len(pairs).to_bytes(4, "little")
    body = bits.to_bytes(4080, "little")
    assert not any(body[len(body) - len(entries) :])
    return head + body[: len(body) - len(entries)] + entries + bytes(8)


def pairs_of_locator_page(page: bytes) -> list[int]:
    bucket, count = int.from_bytes(page[:4], "little"), int.from_bytes(page[4:8], "little")
    bits, pairs, place = int.from_bytes(page[8:4088], "little"), [], 0
    while len(pairs) < count:
        if bits >> place & 1:
            start = 4088 - 4 * (len(pairs) + 1)
            pairs.append(bucket << 32 | int.from_bytes(page[start : start + 4], "little"))
        else:
            bucket += 1
        place += 1
    return pairs


# --- specs/sizing.md --------------------------------------------------------------------------------------------------


def poisson_fpp(ndv: int, num_blocks: int) -> float:
    """The sum over how many values share a block, each block as likely as another."""
    mean = ndv / num_blocks
    return math.fsum(
        math.exp(i * math.log(mean) - mean - math.lgamma(i + 1)) * (1 - (31 / 32) ** i) ** 8 for i in range(1, 750)
    )


def binomial_fpp(ndv: int, num_blocks: int) -> float:
    return math.fsum(
        math.comb(ndv, i) * (1 / num_blocks) ** i * (1 - 1 / num_blocks) ** (ndv - i) * (1 - (31 / 32) ** i) ** 8
        for i in range(1, ndv + 1)
    )
