"""The check of a Split Block Bloom Filter as plain SQL expressions, which Spark compiles into its own scan stage.

The ladder: `hash_of` is XXH64 with seed 0, as the index hashes; `words_of` makes a filter a column of `array<bigint>`,
one row for the whole cluster; `may_hold` looks a hash up in it; `in_bitmap` does so for types of so few values that
all of them were asked beforehand. Nothing here runs Python for a row, overflows in ANSI mode or reads past the array.

Spec: specs/spark.md#sql-filter
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from zonebloom.arrays import from_numpy
from zonebloom.sbbf import SALT, Sbbf

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import Column, SparkSession

__all__ = ["fold_to_bytes", "hash_of", "in_bitmap", "may_hold", "words_of"]

SEED_ZERO: Final = -365884300664092260
"""The bigint that Spark's xxhash64, whose seed is 42, maps to 0: as its first argument it makes 0 the next one's seed.

Spec: specs/spark.md#xxhash64
"""

_WORDS_PER_BLOCK = 4
"""Of 64 bits, each two of the filter's words."""
_LOW_32 = 0xFFFFFFFF
_WORDS = pa.list_(pa.field("element", pa.int64(), nullable=False))


def hash_of(value: Column) -> Column:
    """XXH64 with seed 0 of the bytes of `value`: bigint; of null, some constant.

    Equal to `zonebloom.hashing` for int, bigint, float and double (but -0.0 and NaN), string, binary, date, timestamp.

    Spec: specs/spark.md#xxhash64
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - an optional extra; Spark's own habit

    return F.xxhash64(F.lit(SEED_ZERO), value)


def words_of(spark: SparkSession, words: NDArray[np.int64]) -> Column:
    """`words` (int64, one dimension) as a scalar subquery of type `array<bigint>` without nulls.

    Spark evaluates it once a query, however often it is named, and ships it with the stage that uses it.
    """
    offsets = from_numpy(np.array([0, len(words)], np.int32), pa.int32())
    values = from_numpy(np.ascontiguousarray(words, np.int64), pa.int64())
    column = pa.ListArray.from_arrays(offsets, values, type=_WORDS)
    schema = pa.schema([pa.field("words", _WORDS, nullable=False)])
    return spark.createDataFrame(pa.table([column], schema=schema)).scalar()


def filter_words(filter_: Sbbf) -> NDArray[np.int64]:
    """The words of `filter_` two by two: shape (4 * num_blocks,); the even one of each pair in the low half."""
    return filter_.blocks.astype("<u4", copy=False).reshape(-1).view("<i8")


def may_hold(hashes: Column, words: Column, num_blocks: int) -> Column:
    """For each of `hashes` (bigint) true if the filter with `words` and `num_blocks` may hold it, false if not.

    Four conjuncts, one a pair of words, so that most absent values cost one read.

    Spec: specs/spark.md#sql-filter
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as above

    block = F.shiftrightunsigned(F.shiftrightunsigned(hashes, 32) * F.lit(num_blocks).cast("bigint"), 32)
    first = block * F.lit(_WORDS_PER_BLOCK).cast("bigint")
    low = hashes.bitwiseAND(F.lit(_LOW_32))
    pairs = []
    for pair in range(_WORDS_PER_BLOCK):
        even, odd = (_bit_of(low, salt) for salt in SALT[2 * pair : 2 * pair + 2])
        mask = _shifted(1, even).bitwiseOR(_shifted(1 << 32, odd))
        word = words[first + F.lit(pair).cast("bigint") if pair else first]
        pairs.append(F.bitwise_not(word).bitwiseAND(mask) == F.lit(0).cast("bigint"))
    return reduce(and_, pairs)


def _bit_of(low: Column, salt: np.uint32) -> Column:
    """`uint32(low * salt) >> 27` as int. A salt read as a signed number keeps the product within a bigint."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as above

    signed = int(salt.astype(np.int32))
    product = low * F.lit(signed).cast("bigint")
    return F.shiftrightunsigned(product, 27).bitwiseAND(F.lit(31).cast("bigint")).cast("int")


def _shifted(one: int, by: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as above

    return F.call_function("shiftleft", F.lit(one).cast("bigint"), by)


def in_bitmap(values: Column, words: Column, num_values: int) -> Column:
    """For each of `values` (bigint) its bit in `words`, at the place that its low bits say; `num_values` is 2^k."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as above

    place = values.bitwiseAND(F.lit(num_values - 1).cast("bigint"))
    word = words[F.shiftrightunsigned(place, 6)]
    bit = _shifted(1, place.bitwiseAND(F.lit(63).cast("bigint")).cast("int"))
    return word.bitwiseAND(bit) != F.lit(0).cast("bigint")


def bitmap_words(is_set: Sequence[bool] | NDArray[np.bool_]) -> NDArray[np.int64]:
    """Bits as `in_bitmap` reads them, padded to whole words."""
    bits = np.asarray(is_set, np.bool_)
    padded = np.zeros(-(-len(bits) // 64) * 64, np.bool_)
    padded[: len(bits)] = bits
    return np.packbits(padded, bitorder="little").view("<i8")


def fold_to_bytes(filter_: Sbbf, max_bytes: int, max_fpp: float) -> Sbbf | None:
    """`filter_`, folded as little as fits `max_bytes`; None where none fits that is wrong for at most `max_fpp`."""
    num_blocks = filter_.num_blocks
    least = -(-filter_.num_bytes // max_bytes) if max_bytes > 0 else num_blocks + 1
    factor = next((one for one in range(max(least, 1), num_blocks + 1) if num_blocks % one == 0), None)
    if factor is None:
        return None
    if factor == 1:
        return filter_
    folded = filter_.fold(factor)
    return folded if folded.fpp() <= max_fpp else None
