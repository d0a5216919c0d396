"""Rows that tests of tables write, and what a search of a table must give."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import zonebloom as zb

ROWS_PER_ZONE = 8


def rows(start: int, stop: int, **columns) -> pa.Table:
    """Rows with an `id` of their own, and a text `u` that no other row has."""
    ids = range(start, stop)
    return pa.table({"id": pa.array(ids, pa.int64()), "u": [f"user {i * 7919 % 100_003}" for i in ids], **columns})


def user(row: int) -> str:
    return f"u = 'user {row * 7919 % 100_003}'"


def assert_same(ours: pa.Table, theirs: pa.Table) -> None:
    """The same rows, whatever their order and the kind of their texts."""
    assert ours.column_names == theirs.column_names
    assert ours.sort_by("id").to_pylist() == theirs.sort_by("id").to_pylist()


def assert_agrees(index: zb.Index, theirs: pa.Table) -> None:
    """All rows of a table by its own reader, all by their keys, and every seventh by its own key."""
    assert_same(index.to_table("id IS NOT NULL"), theirs)
    rows = list(zip(theirs["id"].to_pylist(), theirs["u"].to_pylist(), strict=True))
    assert {id_ for id_, _ in rows} <= {*index.to_table(zb.IsIn("u", [key for _, key in rows]))["id"].to_pylist()}
    for id_, key in rows[::7]:
        assert id_ in index.to_table(zb.col("u") == key)["id"].to_pylist()


def plain(reader: Any) -> pa.Table:
    """What `deltalake` reads, without views, which pyarrow cannot sort."""
    table = pa.table(reader)
    return table.cast(pa.schema([(one.name, _without_views(one.type)) for one in table.schema]))


def _without_views(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([(one.name, _without_views(one.type)) for one in kind])
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(kind, kind)
