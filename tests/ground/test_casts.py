"""Casts that change no value."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from zonebloom.ground.casts import cast_exactly


def test_a_struct_with_nan_and_a_wider_decimal_has_the_same_values():
    def kind(digits: int) -> pa.DataType:
        return pa.struct([("price", pa.decimal128(digits, 2)), ("rates", pa.list_(pa.float64()))])

    held = pa.array([{"price": 1, "rates": [float("nan"), 1.0]}, None], kind(5))
    parts = pa.chunked_array([held, held[:0], held[1:]])
    assert cast_exactly(parts, kind(9)).type == kind(9)


@pytest.mark.parametrize("kind", [pa.decimal32(5, 1), pa.decimal64(12, 3), pa.decimal128(9, 2), pa.decimal256(40, 38)])
def test_integers_become_decimals_of_fewer_digits_than_their_type_has(kind):
    assert cast_exactly(pa.array([1, None, -3]), kind).to_pylist() == [1, None, -3]
    rows = pa.array([{"a": 7, "b": 2}, None])
    assert cast_exactly(rows, pa.struct([("a", kind), ("b", pa.float64())])).to_pylist() == rows.to_pylist()
    with pytest.raises(pa.ArrowInvalid):
        cast_exactly(pa.array([10**12]), kind)


def test_decimals_become_the_nearest_floats():
    prices = [Decimal(mills).scaleb(-3) for mills in range(-3000, 3000)]
    for kind in (pa.decimal64(12, 3), pa.decimal128(12, 3), pa.decimal256(60, 3)):
        held = pa.chunked_array([prices[:7], [], [None, *prices[7:]]], kind)
        doubles = cast_exactly(held, pa.float64())
        assert doubles.drop_null().to_pylist() == list(map(float, prices))
        assert cast_exactly(held, pa.float32()).drop_null().equals(doubles.drop_null().cast(pa.float32()))
    for digits in ("12345678901234567.891", "0.12345678901234567891"):
        with pytest.raises(pa.ArrowInvalid, match="not all of the values"):
            cast_exactly(pa.array([Decimal(digits)]), pa.float64())


def test_decimals_in_lists_maps_and_structs_become_the_nearest_floats():
    def kind(price: pa.DataType, *gone: tuple[str, pa.DataType]) -> pa.DataType:
        return pa.list_(pa.struct([*gone, ("prices", pa.map_(price, price)), ("cents", pa.decimal128(9, 2))]))

    def rows(price: object, **gone: object) -> list[object]:
        return [None, [], [{**gone, "prices": [(price, price), (price, None)], "cents": Decimal("1.10")}, None]]

    held = pa.array(
        rows(Decimal("1.501"), gone=Decimal("0.1")), kind(pa.decimal128(12, 3), ("gone", pa.decimal128(1, 1)))
    )
    assert cast_exactly(held, kind(pa.float64())).to_pylist() == rows(1.501)


@pytest.mark.parametrize("around", [lambda kind: kind, pa.list_, lambda kind: pa.map_(pa.string(), kind)])
def test_fields_that_are_dropped_are_not_compared(around):
    """As of an Iceberg table whose struct lost a field and widened another."""
    held = around(pa.struct([("price", pa.decimal128(10, 2)), ("gone", pa.string())]))
    wanted = around(pa.struct([("price", pa.decimal128(12, 2)), ("new", pa.int64())]))
    row = {"price": Decimal("1.25"), "gone": "x"}
    kept = {"price": Decimal("1.25"), "new": None}
    inside = {pa.struct: lambda row: row, pa.list_: lambda row: [row, None], pa.map_: lambda row: [("a", row)]}
    wrapped = inside[pa.list_ if pa.types.is_list(held) else pa.map_ if pa.types.is_map(held) else pa.struct]
    assert cast_exactly(pa.array([wrapped(row), None], held), wanted).to_pylist() == [wrapped(kept), None]


@pytest.mark.parametrize("view", [pa.list_view, pa.large_list_view])
def test_lists_and_list_views_are_not_cast_to_each_other(view):
    """pyarrow 26 gives a list of a list view without its last offset."""
    for held, wanted in ((view(pa.int64()), pa.list_(pa.int64())), (pa.list_(pa.int64()), view(pa.int64()))):
        with pytest.raises(pa.ArrowInvalid, match="not read as those of the other"):
            cast_exactly(pa.array([[1, 2], None], held), wanted)
