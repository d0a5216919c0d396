"""XXH64 of many keys at once: one key a lane, several groups of eight lanes side by side.

One group's steps wait for each other (a rotation for a multiplication, and so on); the next group's fill the gaps.
Lanes never gather: eight rows of 32 bytes are loaded and transposed in registers.

Spec: specs/xxh64.md#lanes
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.core import cgutils

from zonebloom.bloom.kernels.steps import (
    PRIME_5,
    START,
    avalanche,
    merge_accumulator,
    mix_u8,
    mix_u32,
    mix_u64,
    round_,
    sum_accumulators,
)
from zonebloom.bloom.kernels.vector import (
    I8,
    I32,
    I32X8,
    I64,
    I64X4,
    I64X8,
    any_lane,
    constant,
    lane,
    load,
    maximum,
    offset,
    operation,
    splat,
    stack_slot,
    store,
    transpose_4x8,
)

EQUAL_GROUPS: Final = 4
VARIABLE_GROUPS: Final = 2
KEYS_OF_EQUAL_LENGTH: Final = 8 * EQUAL_GROUPS
"""How many keys `hash_keys_of_equal_length` takes."""
KEYS_OF_ANY_LENGTH: Final = 8 * VARIABLE_GROUPS
"""How many keys `hash_keys_of_any_length` takes."""

STRIPE: Final = 32


class _Variable:
    """A value that loops and branches change; LLVM keeps it in a register."""

    def __init__(self, b: Any, value: Any) -> None:
        self._builder = b
        self._slot = stack_slot(b, value.type)
        self.set(value)

    def get(self) -> Any:
        return self._builder.load(self._slot)

    def set(self, value: Any) -> None:
        self._builder.store(value, self._slot)


def _start_accumulators(b: Any) -> list[_Variable]:
    return [_Variable(b, constant(start)) for start in START]


def _merge(b: Any, accumulators: Sequence[_Variable]) -> Any:
    values = [accumulator.get() for accumulator in accumulators]
    hash_ = sum_accumulators(b, *values)
    for value in values:
        hash_ = merge_accumulator(b, hash_, value)
    return hash_


# --- keys of equal length ---------------------------------------------------------------------------------------------


class _EqualKeys:
    """One group of eight keys, `length` bytes each, one after the other; it reads no byte beyond them."""

    def __init__(self, b: Any, source: Any, length: Any) -> None:
        self._builder, self._length = b, length
        self._at = _Variable(b, source)
        self._accumulators = _start_accumulators(b)
        self._hash = _Variable(b, constant(PRIME_5))

    def _rows(self, kind: Any, num_bytes: int) -> list[Any]:
        b, address, rows = self._builder, self._at.get(), []
        self._at.set(offset(b, address, num_bytes))
        for _ in range(8):
            rows.append(load(b, address, kind))
            address = b.add(address, self._length)
        return rows

    def take_stripe(self) -> None:
        b = self._builder
        for accumulator, word in zip(self._accumulators, transpose_4x8(b, self._rows(I64X4, STRIPE)), strict=True):
            accumulator.set(round_(b, accumulator.get(), word))

    def merge(self) -> None:
        self._hash.set(_merge(self._builder, self._accumulators))

    def add_length(self) -> None:
        self._hash.set(self._builder.add(self._hash.get(), splat(self._builder, self._length)))

    def take_word(self, kind: Any, num_bytes: int, mix: Any) -> None:
        b = self._builder
        words = ir.Constant(I64X8, ir.Undefined)
        for index, row in enumerate(self._rows(kind, num_bytes)):
            word = row if kind == I64 else b.zext(row, I64)
            words = b.insert_element(words, word, constant(index, I32))
        self._hash.set(mix(b, self._hash.get(), words))

    def finish(self) -> Any:
        return avalanche(self._builder, self._hash.get())


@operation()
def hash_keys_of_equal_length(b: Any, source: Any, length: Any, hashes: Any) -> None:
    """Hashes `KEYS_OF_EQUAL_LENGTH` keys of `length` bytes each, one after the other from `source`."""
    bytes_per_group = b.shl(length, constant(3, I64))
    groups = []
    for _ in range(EQUAL_GROUPS):
        groups.append(_EqualKeys(b, source, length))
        source = b.add(source, bytes_per_group)

    with b.if_then(b.icmp_unsigned(">=", length, constant(STRIPE, I64))):
        with cgutils.for_range(b, b.lshr(length, constant(5, I64)), intp=I64):
            for group in groups:
                group.take_stripe()
        for group in groups:
            group.merge()
    for group in groups:
        group.add_length()
    num_words = b.and_(b.lshr(length, constant(3, I64)), constant(3, I64))
    with cgutils.for_range(b, num_words, intp=I64):
        for group in groups:
            group.take_word(I64, 8, mix_u64)
    with b.if_then(b.trunc(b.lshr(length, constant(2, I64)), ir.IntType(1))):
        for group in groups:
            group.take_word(I32, 4, mix_u32)
    with cgutils.for_range(b, b.and_(length, constant(3, I64)), intp=I64):
        for group in groups:
            group.take_word(I8, 1, mix_u8)
    for index, group in enumerate(groups):
        store(b, group.finish(), offset(b, hashes, 64 * index))


# --- keys of any length -----------------------------------------------------------------------------------------------


class _AnyKeys:
    """One group of eight keys, from `starts[i]` to `starts[i + 1]` of `data`; it reads up to 32 bytes beyond them."""

    def __init__(self, b: Any, data: Any, starts: Any) -> None:
        self._builder = b
        begin, end = load(b, starts, I64X8), load(b, offset(b, starts, 8), I64X8)
        self.lengths = b.sub(end, begin)
        self.num_stripes = b.lshr(self.lengths, constant(5))
        self._at = _Variable(b, b.add(begin, splat(b, data)))
        self._accumulators = _start_accumulators(b)
        self._hash = _Variable(b, constant(PRIME_5))

    def _columns(self) -> Any:
        b, addresses = self._builder, self._at.get()
        return transpose_4x8(b, [load(b, lane(b, addresses, index), I64X4) for index in range(8)])

    def take_stripe(self, index: Any) -> None:
        b = self._builder
        is_stripe = b.icmp_unsigned("<", splat(b, index), self.num_stripes)
        for accumulator, word in zip(self._accumulators, self._columns(), strict=True):
            old = accumulator.get()
            accumulator.set(b.select(is_stripe, round_(b, old, word), old))
        self._at.set(b.add(self._at.get(), b.select(is_stripe, constant(STRIPE), constant(0))))

    def merge(self) -> None:
        b = self._builder
        is_long = b.icmp_unsigned("!=", self.num_stripes, constant(0))
        self._hash.set(b.select(is_long, _merge(b, self._accumulators), constant(PRIME_5)))

    def load_tail(self) -> None:
        b = self._builder
        self._hash.set(b.add(self._hash.get(), self.lengths))
        self.words = self._columns()
        self.rest = b.and_(self.lengths, constant(STRIPE - 1))
        self.has_word = [b.icmp_unsigned(">=", self.rest, constant(8 * count)) for count in (1, 2, 3)]

    def _mix_where(self, condition: Any, mix: Any, word: Any) -> None:
        b, old = self._builder, self._hash.get()
        self._hash.set(b.select(condition, mix(b, old, word), old))

    def take_word(self, index: int) -> None:
        self._mix_where(self.has_word[index], mix_u64, self.words[index])

    def load_last_bytes(self) -> None:
        b = self._builder
        word = self.words[0]
        for has_word, next_word in zip(self.has_word, self.words[1:], strict=True):
            word = b.select(has_word, next_word, word)
        self.last_word = word
        self.has_half = b.icmp_unsigned("!=", b.and_(self.rest, constant(4)), constant(0))
        self.num_bytes = b.and_(self.rest, constant(3))
        self.last_bytes = b.select(self.has_half, b.lshr(word, constant(32)), word)

    def take_half(self) -> None:
        self._mix_where(self.has_half, mix_u32, self._builder.and_(self.last_word, constant(0xFFFFFFFF)))

    def take_byte(self, index: int) -> None:
        b = self._builder
        byte = b.and_(b.lshr(self.last_bytes, constant(8 * index)), constant(0xFF))
        self._mix_where(b.icmp_unsigned(">", self.num_bytes, constant(index)), mix_u8, byte)

    def finish(self) -> Any:
        return avalanche(self._builder, self._hash.get())


def _any_of(b: Any, conditions: Sequence[Any]) -> Any:
    combined = conditions[0]
    for condition in conditions[1:]:
        combined = b.or_(combined, condition)
    return any_lane(b, combined)


@operation()
def hash_keys_of_any_length(b: Any, data: Any, starts: Any, hashes: Any) -> None:
    """Hashes `KEYS_OF_ANY_LENGTH` keys: key i is bytes `starts[i]` to `starts[i + 1]` of `data`.

    32 bytes beyond the last key must be readable: every lane loads 32 bytes wherever its key ends.
    """
    groups = [_AnyKeys(b, data, offset(b, starts, 64 * index)) for index in range(VARIABLE_GROUPS)]
    most_stripes = maximum(b, _elementwise_maximum(b, [group.num_stripes for group in groups]))
    with b.if_then(b.icmp_unsigned("!=", most_stripes, constant(0, I64))):
        with cgutils.for_range(b, most_stripes, intp=I64) as loop:
            for group in groups:
                group.take_stripe(loop.index)
        for group in groups:
            group.merge()
    _take_tails(b, groups)
    for index, group in enumerate(groups):
        store(b, group.finish(), offset(b, hashes, 64 * index))


def _take_tails(b: Any, groups: Sequence[_AnyKeys]) -> None:
    for group in groups:
        group.load_tail()
    for word in range(3):
        with b.if_then(_any_of(b, [group.has_word[word] for group in groups])):
            for group in groups:
                group.take_word(word)
    for group in groups:
        group.load_last_bytes()
    with b.if_then(_any_of(b, [group.has_half for group in groups])):
        for group in groups:
            group.take_half()
    has_byte = [b.icmp_unsigned("!=", group.num_bytes, constant(0)) for group in groups]
    with b.if_then(_any_of(b, has_byte)):
        for byte in range(3):
            for group in groups:
                group.take_byte(byte)


def _elementwise_maximum(b: Any, vectors: Sequence[Any]) -> Any:
    most = vectors[0]
    for vector in vectors[1:]:
        most = b.select(b.icmp_unsigned(">", vector, most), vector, most)
    return most


@operation(types.uint64)
def longest_key(b: Any, starts: Any) -> Any:
    """The length of the longest of the next `KEYS_OF_ANY_LENGTH` keys."""
    lengths = [
        b.sub(load(b, offset(b, starts, 64 * index + 8), I64X8), load(b, offset(b, starts, 64 * index), I64X8))
        for index in range(VARIABLE_GROUPS)
    ]
    return maximum(b, _elementwise_maximum(b, lengths))


# --- offsets ----------------------------------------------------------------------------------------------------------


@operation()
def widen_u32_x8(b: Any, source: Any, target: Any) -> None:
    """Eight 32-bit words become 64-bit words."""
    store(b, b.zext(load(b, source, I32X8), I64X8), target)


@operation(types.boolean)
def has_other_length_x8(b: Any, starts: Any, length: Any) -> Any:
    """Whether any of the next eight keys has another length."""
    lengths = b.sub(load(b, offset(b, starts, 8), I64X8), load(b, starts, I64X8))
    return any_lane(b, b.icmp_unsigned("!=", lengths, splat(b, length)))
