"""The check of a Split Block Bloom Filter as plain SQL expressions, which Spark compiles into its own scan stage.

The ladder: `hash_of` is XXH64 with seed 0, as the index hashes. `words_of` makes words a column of `array<bigint>`, one
row for the whole cluster. `may_hold` looks a hash up in four of them. `in_bitmap` looks up values of small types: all
their values were looked up beforehand. Expressions without an array are SQL text: a Column costs about eight calls of
the JVM, a text costs one. Nothing here runs Python for a row, overflows in ANSI mode or reads past the array.

Spec: specs/spark.md#sql-filter
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

import numpy as np
import pyarrow as pa

from zonebloom.arrow import from_numpy
from zonebloom.bloom.hashing import hash_array
from zonebloom.bloom.sbbf import Sbbf
from zonebloom.bloom.split_block import SALTS

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import Column, SparkSession

__all__ = ["fold_to_bytes", "hash_of", "hashes_as_the_index", "in_bitmap", "may_hold", "words_of"]

SEED_ZERO: Final = -365884300664092260
"""The bigint that Spark's xxhash64 with seed 42 hashes to 0. As first argument it gives the second one seed 0.

Spec: specs/spark.md#xxhash64
"""

_KNOWN: Final = {
    "cast(id + 7 as int)": pa.array([7], pa.int32()),
    "id - 3": pa.array([-3], pa.int64()),
    "concat('zone-', id)": pa.array(["zone-0"]),
    "repeat('bloom', cast(id + 9 as int))": pa.array(["bloom" * 9]),
}
"""SQL over the one row of `range(1)` and its value: 4 bytes, 8 bytes, a short text, and one of more than XXH64's 32."""
_CHECKED: WeakSet[SparkSession] = WeakSet()
_PAIRS = 4
"""Arrays of a block: each value is 64 bits, two of the filter's words."""
_LOW_32 = 0xFFFFFFFF
_WORDS = pa.list_(pa.field("element", pa.int64(), nullable=False))


def hash_of(value: str) -> str:
    """XXH64 with seed 0 of the bytes of `value`, a bigint; a constant for null. SQL text, as `value` is.

    Equal to `bloom.hashing` for int, bigint, float and double (but -0.0 and NaN), string, binary, date, timestamp.

    Spec: specs/spark.md#xxhash64
    """
    return f"xxhash64({SEED_ZERO}L, {value})"


def hashes_as_the_index(spark: SparkSession) -> bool:
    """Whether `hash_of` is XXH64 with seed 0 in this session: another engine or function may have its name.

    An executor hashes one row. The answer yes is remembered for the session.

    Spec: specs/spark.md#xxhash64
    """
    if spark not in _CHECKED:
        found = spark.range(1).selectExpr(*map(hash_of, _KNOWN)).collect()[0]
        if list(found) != [hash_array(value).view(np.int64)[0] for value in _KNOWN.values()]:
            return False
        _CHECKED.add(spark)
    return True


def words_of(spark: SparkSession, words: NDArray[np.int64]) -> Column:
    """`words` (int64, one dimension) as a scalar subquery of type `array<bigint>` without nulls: name it once."""
    offsets = from_numpy(np.array([0, len(words)], np.int32), pa.int32())
    values = from_numpy(np.ascontiguousarray(words, np.int64), pa.int64())
    column = pa.ListArray.from_arrays(offsets, values, type=_WORDS)
    schema = pa.schema([pa.field("words", _WORDS, nullable=False)])
    return spark.createDataFrame(pa.table([column], schema=schema)).scalar()


def pairs_of(filter_: Sbbf) -> NDArray[np.int64]:
    """The words of `filter_` two by two: shape (4, num_blocks); the even one of each pair in the low half."""
    pairs = filter_.blocks.astype("<u4", copy=False).view("<i8").reshape(filter_.num_blocks, _PAIRS)
    return np.ascontiguousarray(pairs.T)


def may_hold(spark: SparkSession, hashes: str, filter_: Sbbf) -> Column:
    """For each of `hashes` (SQL, bigint) true if `filter_` may hold it, false if not.

    Four conjuncts, each with an array of its own, so that most absent values cost one read in a quarter of the filter.

    Spec: specs/spark.md#sql-filter
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - an optional extra; Spark's own habit

    block = F.expr(f"shiftrightunsigned(shiftrightunsigned({hashes}, 32) * {filter_.num_blocks}L, 32)")
    none = F.expr("0L")
    checks = []
    for pair, words in enumerate(pairs_of(filter_)):
        even, odd = (_bit_of(hashes, salt) for salt in SALTS[2 * pair : 2 * pair + 2])
        mask = F.expr(f"shiftleft(1L, {even}) | shiftleft({1 << 32}L, {odd})")
        checks.append(F.bitwise_not(words_of(spark, words)[block]).bitwiseAND(mask) == none)
    return reduce(and_, checks)


def _bit_of(hashes: str, salt: int) -> str:
    """`uint32(hash * salt) >> 27` as int. A salt read as a signed number keeps the product within a bigint."""
    product = f"({hashes} & {_LOW_32}L) * {np.uint32(salt).astype(np.int32)}L"
    return f"cast(shiftrightunsigned({product}, 27) & 31L as int)"


def in_bitmap(value: str, words: Column, num_values: int) -> Column:
    """For `value` (SQL, bigint) its bit in `words`, at the place of its low bits; `num_values` is 2^k."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as above

    place = f"({value} & {num_values - 1}L)"
    word = words[F.expr(f"shiftrightunsigned({place}, 6)")]
    return word.bitwiseAND(F.expr(f"shiftleft(1L, cast({place} & 63L as int))")) != F.expr("0L")


def bitmap_words(is_set: Sequence[bool] | NDArray[np.bool_]) -> NDArray[np.int64]:
    """Bits as `in_bitmap` reads them, padded to whole words."""
    bits = np.asarray(is_set, np.bool_)
    padded = np.zeros(-(-len(bits) // 64) * 64, np.bool_)
    padded[: len(bits)] = bits
    return np.packbits(padded, bitorder="little").view("<i8")


def fold_to_bytes(filter_: Sbbf, max_bytes: int, max_fpp: float) -> Sbbf | None:
    """`filter_`, folded as little as `max_bytes` needs; None if its fpp would exceed `max_fpp`."""
    num_blocks = filter_.num_blocks
    least = -(-filter_.num_bytes // max_bytes) if max_bytes > 0 else num_blocks + 1
    factor = next((one for one in range(max(least, 1), num_blocks + 1) if num_blocks % one == 0), None)
    if factor is None:
        return None
    if factor == 1:
        return filter_
    folded = filter_.fold(factor)
    return folded if folded.fpp() <= max_fpp else None
