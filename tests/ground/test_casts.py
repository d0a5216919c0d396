"""Casts that change no value."""

from __future__ import annotations

import pyarrow as pa

from zonebloom.ground.casts import cast_exactly


def test_a_struct_with_nan_and_a_wider_decimal_has_the_same_values():
    def kind(digits: int) -> pa.DataType:
        return pa.struct([("price", pa.decimal128(digits, 2)), ("rates", pa.list_(pa.float64()))])

    held = pa.array([{"price": 1, "rates": [float("nan"), 1.0]}, None], kind(5))
    parts = pa.chunked_array([held, held[:0], held[1:]])
    assert cast_exactly(parts, kind(9)).type == kind(9)
