"""Keys of joins in SQL: a column as the values that an index hashed, and the check of a Split Block Bloom Filter.

`join_key` has a rule for each pair of a Spark type and an indexed type that Spark's join compares by value, so that
Spark's `=` and equal hashes agree. It refuses other pairs by name: Spark's join would convert one side by settings, and
a filter of other bytes would lose rows.

The check is made of plain SQL expressions, which Spark compiles into its own scan stage. `hash_of` is XXH64 with seed
0, as the index hashes. `words_of` makes words a column of `array<bigint>`, one row for the whole cluster. `may_hold`
looks a hash up in four of them. `in_bitmap` looks up values of small types: all their values were looked up beforehand.
Expressions without an array are SQL text: a Column costs about eight calls of the JVM, a text costs one. Nothing here
runs Python for a row, overflows in ANSI mode or reads past the array.

Spec: specs/spark.md#join-keys, specs/spark.md#sql-filter
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any, Final, Literal
from weakref import WeakSet

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.types import DataType, StringType, StructField

from zonebloom.arrow import from_numpy, unwrapped
from zonebloom.bloom.hashing import hash_array, storage_type
from zonebloom.bloom.sbbf import Sbbf
from zonebloom.bloom.split_block import SALTS
from zonebloom.engines.spark.catalog import check_batch
from zonebloom.engines.spark.pushdown.calendars import FIRST_DATE, SURE_TIME
from zonebloom.engines.spark.pushdown.names import backquoted
from zonebloom.engines.spark.scan.types import arrow_type
from zonebloom.errors import ColumnNotFoundError, InvalidArgumentError, UnsupportedTypeError
from zonebloom.predicates import IsIn

MAX_KEYS: Final = 1_000_000
"""Distinct keys that the driver collects at most: 8 to 60 MB."""
_CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"
"""Where Spark keeps the declared type of a text column."""
_INTEGERS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_DOMAIN_BITS = 16
"""Bits of a type, up to which each of its values is looked up beforehand."""
_TICKS = {"s": 1_000_000, "ms": 1000, "us": 1}
_MILLISECONDS_PER_DAY = 86_400_000
_MAX_DIGITS = 38
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


@dataclass(frozen=True, slots=True)
class JoinKey:
    """A column in the form that the filters of an indexed column look up; expressions are SQL text.

    - A row whose `proofs` are not all true equals no value of the indexed type.
    """

    kind: Literal["hash", "domain", "decimal"]
    """`hash`: XXH64 of `value` is the index's hash; `domain`: `value` is one of `domain`; `decimal`: Arrow hashes."""
    value: str
    """What is looked up."""
    proofs: tuple[str, ...] = ()
    """Conditions that are true in each row that can equal a value of the indexed type."""
    exempt: tuple[str, ...] = ()
    """Conditions under which a row stays without a look at the filters."""
    is_float: bool = False
    """Whether -0.0 equals 0.0; NaN is exempt."""
    domain: pa.Array | None = None
    """All values of the indexed type, in the order of their bits as unsigned integers."""


def join_key(value: str, field: StructField, indexed: pa.DataType) -> JoinKey:
    """`value`, SQL for a column described by `field`, as the index of a column of type `indexed` hashed its values.

    Raises
    ------
    InvalidArgumentError
        Spark does not compare the two types by value, or there is no rule for the pair.

    Spec: specs/spark.md#join-keys
    """
    stored = unwrapped(storage_type(indexed))
    make = _maker(field, stored)
    if make is None:
        raise _refusal(field, indexed)
    return make(value, field.dataType, stored)


def check_pair(field: StructField, indexed: pa.DataType) -> None:
    """Refuse a column that Spark does not compare with an indexed one of type `indexed` by value.

    Raises
    ------
    InvalidArgumentError
        As `join_key`.
    """
    if _maker(field, unwrapped(storage_type(indexed))) is None:
        raise _refusal(field, indexed)


def natural_type(field: StructField) -> pa.DataType:
    """The Arrow type whose values the column described by `field` holds.

    Raises
    ------
    InvalidArgumentError
        There is none that can be indexed.
    """
    is_collated = isinstance(field.dataType, StringType) and field.dataType != StringType()
    try:
        found = arrow_type(field.dataType)
    except UnsupportedTypeError:
        raise _refusal(field, None) from None
    if is_collated or pa.types.is_nested(found) or pa.types.is_null(found):
        raise _refusal(field, None)
    return found


_Maker = Callable[[str, DataType, pa.DataType], JoinKey]


def _refusal(field: StructField, indexed: pa.DataType | None) -> InvalidArgumentError:
    declared = (field.metadata or {}).get(_CHAR_VARCHAR)
    found = declared or field.dataType.simpleString()
    if indexed is None:
        return InvalidArgumentError(f"column {field.name} must be of a type that can be indexed, got {found}")
    message = f"column {field.name} must be of a type that Spark compares by value with an indexed {indexed}"
    return InvalidArgumentError(f"{message}, got {found}; cast it, or join without pruning")


def _maker(field: StructField, stored: pa.DataType) -> _Maker | None:
    """The key for the pair of types; None if the pair is refused."""
    types, name = pa.types, field.dataType.simpleString()
    is_text = stored in (pa.string(), pa.large_string(), pa.string_view())
    is_bytes = stored in (pa.binary(), pa.large_binary(), pa.binary_view()) or types.is_fixed_size_binary(stored)
    is_char = (field.metadata or {}).get(_CHAR_VARCHAR, name).startswith("char(")
    if (name == "string" or name.startswith("varchar(")) and is_text and not is_char:
        return _as_it_is
    if name == "binary" and is_bytes:
        return _as_it_is
    if name == "boolean" and types.is_boolean(stored):
        return _boolean
    if types.is_integer(stored) and (name in _INTEGERS or (name.startswith("decimal(") and name.endswith(",0)"))):
        return _integer
    if name in ("float", "double") and stored in (pa.float32(), pa.float64()):
        return _float
    if name == "date" and types.is_date(stored):
        return _date
    if types.is_timestamp(stored) and name == ("timestamp" if stored.tz else "timestamp_ntz"):
        return _timestamp if stored.unit in _TICKS else None  # Spark has no nanoseconds
    if types.is_decimal(stored) and name.startswith("decimal("):
        return _decimal if _has_common_decimal(field.dataType, stored) else None
    return None


def _as_it_is(value: str, _: DataType, __: pa.DataType) -> JoinKey:
    return JoinKey("hash", value)


def _boolean(value: str, _: DataType, __: pa.DataType) -> JoinKey:
    return JoinKey("domain", f"cast({value} as bigint)", domain=pa.array([False, True]))


def _integer(value: str, found: DataType, stored: pa.DataType) -> JoinKey:
    """Integers of any width on both sides; a value outside the range of the indexed type equals nothing."""
    bits, is_signed = stored.bit_width, pa.types.is_signed_integer(stored)
    least = -(2 ** (bits - 1)) if is_signed else 0
    most = least + 2**bits - 1
    found_bits = _INTEGERS.get(found.simpleString())
    is_within = found_bits is not None and is_signed and found_bits <= bits
    proofs = () if is_within else (f"{value} between {_number(least)} and {_number(most)}",)
    if found_bits is None:
        whole = value
        if bits == 64 and not is_signed:  # noqa: PLR2004 - the upper half, as the same bits
            lower = f"{value} - {_number(2**64)}"
            whole = f"case when {value} > {_number(2**63 - 1)} then {lower} else {value} end"
        wide = f"try_cast({whole} as bigint)"
    else:
        wide = f"cast({value} as bigint)"
    if bits <= _DOMAIN_BITS:
        unsigned = np.arange(2**bits, dtype=np.uint16 if bits == _DOMAIN_BITS else np.uint8)
        return JoinKey("domain", wide, proofs, domain=from_numpy(unsigned, stored))
    if bits == 32:  # noqa: PLR2004 - shifted up and down, the low half is a signed int, and no cast overflows
        narrow = value if found_bits == bits else f"cast(shiftright(shiftleft({wide}, 32), 32) as int)"
        return JoinKey("hash", narrow, proofs)
    return JoinKey("hash", wide, proofs)


def _number(value: int) -> str:
    """A literal of type bigint; of type decimal if bigint has no such value or literal."""
    return f"{value}L" if -(2**63) < value < 2**63 else f"{value}BD"


def _float(value: str, found: DataType, stored: pa.DataType) -> JoinKey:
    """A float32 equals a double only if the double converts to it exactly; NaN equals NaN of any bits."""
    is_nan = f"isnan({value})"
    if found.simpleString() == "double" and stored == pa.float32():
        narrow = f"cast({value} as float)"
        exact = f"cast({narrow} as double) = {value}"
        return JoinKey("hash", narrow, (exact,), exempt=(is_nan,), is_float=True)
    same = f"cast({value} as {'float' if stored == pa.float32() else 'double'})"
    return JoinKey("hash", same, exempt=(is_nan,), is_float=True)


def _date(value: str, _: DataType, stored: pa.DataType) -> JoinKey:
    """Days, or the milliseconds at which they begin."""
    old = f"{value} < date'{FIRST_DATE}'"
    if stored == pa.date32():
        return JoinKey("hash", value, exempt=(old,))
    milliseconds = f"cast(unix_date({value}) as bigint) * {_MILLISECONDS_PER_DAY}L"
    return JoinKey("hash", milliseconds, exempt=(old,))


def _timestamp(value: str, _: DataType, stored: pa.DataType) -> JoinKey:
    """Spark's microseconds in the index's unit, if they convert exactly."""
    first = f"timestamp_ltz'{SURE_TIME} UTC'" if stored.tz else f"timestamp_ntz'{SURE_TIME}'"
    old = f"{value} < {first}"
    ticks = _TICKS[stored.unit]
    if ticks == 1:
        return JoinKey("hash", value, exempt=(old,))
    micros = f"unix_micros({value})" if stored.tz else f"({_local_micros(value)})"
    return JoinKey("hash", f"{micros} div {ticks}L", (f"{micros} % {ticks}L = 0L",), exempt=(old,))


def _local_micros(value: str) -> str:
    """Microseconds of a timestamp without zone, in a session of any zone."""
    days = f"cast(unix_date(cast({value} as date)) as bigint) * {_MILLISECONDS_PER_DAY * 1000}L"
    minutes = f"(cast(hour({value}) as bigint) * 60L + cast(minute({value}) as bigint)) * 60000000L"
    return f"{days} + {minutes} + cast(date_part('SECOND', {value}) * 1000000 as bigint)"


def _has_common_decimal(found: Any, stored: Any) -> bool:
    """Whether a decimal type of Spark holds the values of both, so that it compares them without rounding."""
    whole = max(found.precision - found.scale, stored.precision - stored.scale)
    return bool(whole + max(found.scale, stored.scale) <= _MAX_DIGITS and stored.scale >= 0)


def _decimal(value: str, found: Any, stored: pa.DataType) -> JoinKey:
    if (found.precision, found.scale) == (stored.precision, stored.scale):
        return JoinKey("decimal", value)
    exact = f"try_cast({value} as decimal({stored.precision},{stored.scale}))"
    return JoinKey("decimal", exact, (f"{exact} = {value}",))


def collected(column: str, keys: Any) -> pa.Array:
    """The distinct keys of a caller, of a frame or of any collection, as an Arrow array without nulls.

    Raises
    ------
    ColumnNotFoundError
        A frame of several columns has none of that name.
    InvalidArgumentError
        There are more than a million.

    Spec: specs/spark.md#keys
    """
    if hasattr(keys, "toArrow"):
        check_batch(keys)
        names = keys.columns
        name = next((one for one in names if one.lower() == column.lower()), names[0] if len(names) == 1 else None)
        if name is None:
            raise ColumnNotFoundError.among(column, names, "the frame of keys")
        wanted = keys.select(backquoted(name)).distinct().limit(MAX_KEYS + 1)
        values = wanted.toArrow().column(0).combine_chunks().drop_null()
    else:
        values = IsIn(column, keys).values
    if len(values) > MAX_KEYS:
        message = f"keys must be at most {MAX_KEYS:,}, got more"
        raise InvalidArgumentError(f"{message}; use prune_join, or filter_by_index")
    return values


# --- the check --------------------------------------------------------------------------------------------------------


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
