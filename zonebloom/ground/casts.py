"""Casts of Arrow whose values are the same, or an error: those of pyarrow may round, wrap, cut and misread.

Spec: specs/zones.md#schema-evolution
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from zonebloom.ground.arrow import is_bytes, is_number, is_text, plain_array, unwrapped, with_inner, with_leaves

_Values = TypeVar("_Values", pa.Array, pa.ChunkedArray)


def cast_exactly(values: _Values, wanted: pa.DataType) -> _Values:
    """`values` as the type `wanted`, each as it is.

    Raises
    ------
    ArrowInvalid, ArrowNotImplementedError
        A value does not convert, or would be another one.
    """
    if values.type == wanted:
        return values
    if some_leaf(rounds_floats, values.type, wanted):
        raise pa.ArrowInvalid("narrower floats would be rounded")
    if some_leaf(misreads, values.type, wanted):
        raise pa.ArrowInvalid("values of one type are not read as those of the other")
    values = _widened(values, wanted)
    own = converted(values, wanted)
    is_checked = some_leaf(is_unchecked, values.type, wanted)
    if is_checked and not _has_values_of(values.cast(_shared(values.type, wanted)), own):
        raise pa.ArrowInvalid("it has not all of the values")
    return own


def _shared(held: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """The type `held` without fields of structs that `wanted` has not."""
    if pa.types.is_struct(held) and pa.types.is_struct(wanted):
        pairs = [(field, wanted.field(field.name)) for field in held if wanted.get_field_index(field.name) >= 0]
    elif pa.types.is_nested(held) and held.id == wanted.id:
        pairs = [(held.field(number), wanted.field(number)) for number in range(held.num_fields)]
    else:
        return held
    return with_inner(held, [field.with_type(_shared(field.type, other.type)) for field, other in pairs])


def converted(values: _Values, wanted: pa.DataType, *, safe: bool = True) -> _Values:
    """`values` cast to `wanted`: a decimal becomes the nearest float, and an integer any decimal of its value.

    pyarrow 26 has 1.5010000000000001 for the decimal 1.501, and 1.501 for its text.
    """
    values = _widened(values, wanted)
    return values.cast(_between(values.type, wanted, _digits_for_floats)).cast(wanted, safe=safe)


def _widened(values: _Values, wanted: pa.DataType) -> _Values:
    """`values` to cast to `wanted`; integers for decimals have all digits.

    pyarrow 26 compares the digits of the two types, not the values: it refuses the int64 1 for a decimal of 5 digits.
    """
    return values.cast(_between(values.type, wanted, _all_digits_for_decimals))


def _digits_for_floats(held: pa.DataType, wanted: pa.DataType) -> pa.DataType | None:
    return pa.string() if pa.types.is_decimal(held) and pa.types.is_floating(wanted) else None


def _all_digits_for_decimals(held: pa.DataType, wanted: pa.DataType) -> pa.DataType | None:
    return pa.decimal256(76, 0) if pa.types.is_integer(held) and pa.types.is_decimal(wanted) else None


def _between(
    held: pa.DataType, wanted: pa.DataType, leaf_type: Callable[[pa.DataType, pa.DataType], pa.DataType | None]
) -> pa.DataType:
    """The type `held` with the leaves that `leaf_type` gives for two leaves at one place; without one it stays."""
    leaf = leaf_type(unwrapped(held), unwrapped(wanted))
    if leaf is not None or not (pa.types.is_nested(held) and pa.types.is_nested(wanted)):
        return held if leaf is None else leaf
    fields = [held.field(number) for number in range(held.num_fields)]
    types = [wanted.field(number).type for number in range(wanted.num_fields)]
    if pa.types.is_struct(held) and pa.types.is_struct(wanted):
        by_name = {field.name: field.type for field in wanted}
        types = [by_name.get(field.name, field.type) for field in fields]
    if len(fields) != len(types):
        return held
    inner = zip(fields, types, strict=True)
    return with_inner(held, [field.with_type(_between(field.type, kind, leaf_type)) for field, kind in inner])


def _has_values_of(values: pa.Array | pa.ChunkedArray, others: pa.Array | pa.ChunkedArray) -> bool:
    """Whether `others`, cast back, are `values`."""
    if not len(values):
        return True
    sides = ([side] if isinstance(side, pa.Array) else side.chunks for side in (values, others))
    before, after = (pa.chunked_array(list(map(plain_array, chunks))) for chunks in sides)
    after = after.cast(before.type)
    bits = with_leaves(before.type, as_bits)
    held, own = (pa.chunked_array([chunk.view(bits) for chunk in side.chunks], bits) for side in (after, before))
    return bool(held.equals(own))


def as_bits(leaf: pa.DataType) -> pa.DataType:
    """Floats as integers, since no NaN equals another."""
    return {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[leaf.bit_width] if pa.types.is_floating(leaf) else leaf


def some_leaf(is_so: Callable[[pa.DataType, pa.DataType], bool], of_file: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether `is_so` holds for two leaves at one place of the two types. Fields of structs are matched by name."""
    of_file, wanted = unwrapped(of_file), unwrapped(wanted)
    if pa.types.is_struct(of_file) and pa.types.is_struct(wanted):
        wanted_types = {field.name: field.type for field in wanted}
        return any(
            some_leaf(is_so, field.type, wanted_types[field.name]) for field in of_file if field.name in wanted_types
        )
    are_nested = pa.types.is_nested(of_file) and pa.types.is_nested(wanted) and of_file.num_fields == wanted.num_fields
    if are_nested and _is_list_view(of_file) == _is_list_view(wanted):
        pairs = [(of_file.field(number).type, wanted.field(number).type) for number in range(of_file.num_fields)]
        return any(some_leaf(is_so, *pair) for pair in pairs)
    return is_so(of_file, wanted)


def rounds_floats(of_file: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a cast is from wider floats to narrower ones."""
    are_floats = pa.types.is_floating(of_file) and pa.types.is_floating(wanted)
    return are_floats and bool(of_file.bit_width > wanted.bit_width)


def misreads(of_file: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether pyarrow 26 casts these types, but not their values.

    It crashes on the text 1e-9999999 for a decimal, and takes 0xff for -1 and 16777217 for a close float. It takes a
    number for a count of a time's unit, and the bytes of a UUID for letters. It casts a list view to a
    list without the last offset.
    """
    pairs = ((is_text, is_number), (pa.types.is_fixed_size_binary, is_text))
    views = ((_is_list_view, pa.types.is_nested), (pa.types.is_nested, _is_list_view))
    counts = ((pa.types.is_integer, pa.types.is_temporal), (pa.types.is_temporal, pa.types.is_integer))
    return any(is_own(of_file) and is_wanted(wanted) for is_own, is_wanted in (*pairs, *views, *counts))


def _is_list_view(arrow_type: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(arrow_type) or pa.types.is_large_list_view(arrow_type))


def is_unchecked(held: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a safe cast of pyarrow 26 might change values without an error: any from one kind of type to another.

    Of one kind decimals wrap, and times of day are cut.
    """
    t = pa.types
    kinds = (t.is_integer, t.is_floating, is_text, is_bytes, t.is_timestamp)
    is_one_kind = held == wanted or any(is_it(held) and is_it(wanted) for is_it in kinds)
    is_printed_exactly = t.is_floating(held) and is_text(wanted)  # and no NaN equals the NaN that it is read as
    return not (is_one_kind or is_printed_exactly or t.is_null(held) or is_text(held))
