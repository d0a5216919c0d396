"""Rows of an upsert as the table has them: the same values, or an error that names the one that differs.

pyarrow casts structs by name, and gives null for a field that is missing. Some of its casts change values without an
error; these are compared.

Design: docs/design/engines.md#upsert-values
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zonebloom.ground.arrow import is_number, is_text, plain_array, python_value, unwrapped
from zonebloom.ground.casts import converted, is_unchecked, misreads, some_leaf
from zonebloom.ground.errors import InvalidArgumentError, first_line
from zonebloom.predicates.coerce import fit_each
from zonebloom.predicates.literals import null_mask

_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
"""Types that pyiceberg takes for the same; it reads a file as the types that it was written with."""


def as_declared(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """`rows` with the columns of `schema`, in its order and its types; floats are rounded to narrower ones.

    Raises
    ------
    InvalidArgumentError
        Columns or fields of structs differ, a required value is null, or a value does not convert.
    """
    if sorted(rows.column_names) != sorted(schema.names):
        raise InvalidArgumentError(
            f"rows must have the columns {', '.join(schema.names)} of the table", got=", ".join(rows.column_names)
        )
    columns = [_converted(rows[field.name], field) for field in schema]
    fields = [field.with_type(column.type) for field, column in zip(schema, columns, strict=True)]
    return pa.table(columns, schema=pa.schema(fields))


def _converted(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    wanted = column.type if _LARGE.get(column.type) == field.type else field.type
    chunks = []
    if is_text(unwrapped(column.type)) and is_number(wanted):
        column = _numbers(column, wanted, field.name)
    if some_leaf(misreads, column.type, wanted):
        raise InvalidArgumentError(
            "rows must convert to the types of the table", got=f"{column.type} for {field.name}, a {wanted}"
        )
    for chunk in column.chunks or [pa.nulls(0, column.type)]:
        try:
            chunks.append(converted(chunk, wanted))
            _check(field.name, chunk, chunks[-1], is_required=not field.nullable)
        except InvalidArgumentError:
            raise
        except (pa.ArrowException, ValueError) as error:
            raise InvalidArgumentError(
                "rows must convert to the types of the table", got=f"for {field.name}, a {wanted}: {first_line(error)}"
            ) from error
    return pa.chunked_array(chunks, wanted)


def _numbers(column: pa.ChunkedArray, wanted: pa.DataType, name: str) -> pa.ChunkedArray:
    """The numbers that texts spell, floats as doubles."""
    texts = plain_array(column.combine_chunks())
    fit = fit_each(texts, pa.float64() if pa.types.is_floating(wanted) else wanted)
    places = np.full(len(texts), -1)
    places[fit.slots] = np.arange(len(fit.slots))
    misses = np.flatnonzero((places < 0) & ~null_mask(texts))
    if len(misses):
        text = texts[misses[0]].as_py()
        raise InvalidArgumentError(
            "rows must convert to the types of the table", got=f"{text!r:.80} for {name}, a {wanted}"
        )
    return pa.chunked_array([fit.values.take(pa.array(places, mask=places < 0))])


def _check(name: str, before: pa.Array, after: pa.Array, *, is_required: bool) -> None:
    """Refuse values of column or field `name` that were cast to others; the parents of both have the same nulls."""
    before, kind = plain_array(before, keeps_uuid=True), after.type
    if is_required and after.null_count:
        raise InvalidArgumentError(f"rows must have a value of {name} everywhere, as the table does", got="null")
    if pa.types.is_null(before.type):
        return
    if pa.types.is_struct(kind):
        names, wanted = before.type.names, kind.names
        if sorted(names) != sorted(wanted):
            raise InvalidArgumentError(
                f"rows must have the fields {', '.join(wanted)} of {name} of the table", got=", ".join(names)
            )
        parts = dict(zip(names, before.drop_null().flatten(), strict=True))
        for field, part in zip(kind, after.drop_null().flatten(), strict=True):
            _check(f"{name}.{field.name}", parts[field.name], part, is_required=not field.nullable)
    elif pa.types.is_nested(kind):
        items = kind.field(0)
        _check(f"{name}.{items.name}", _items(before), _items(after), is_required=not items.nullable)
    elif before.type != kind and (places := pc.indices_nonzero(_is_changed(before, after))):
        value = python_value(before[places[0].as_py()])
        raise InvalidArgumentError(
            "rows must convert to the types of the table", got=f"{value!r:.80} for {name}, a {kind}"
        )


def _items(array: pa.Array) -> pa.Array:
    """The items of all lists, without those of null; of maps as structs."""
    kind = array.type
    if pa.types.is_map(kind):
        array = array.cast(pa.list_(pa.struct([pa.field("key", kind.key_type, nullable=False), kind.item_field])))
    return array.flatten()


def _is_changed(before: pa.Array, after: pa.Array) -> pa.Array:
    """For each value: whether `after`, a cast of `before`, is another one; null if it is null."""
    own, wanted = before.type, after.type
    if pa.types.is_timestamp(own) and pa.types.is_timestamp(wanted) and (own.tz is None) != (wanted.tz is None):
        return before.is_valid()
    if is_unchecked(own, wanted):
        return pc.not_equal(after.cast(own), before)
    if pa.types.is_floating(wanted):
        return pc.and_not(pc.is_inf(after), pc.is_inf(before.cast(pa.float64())))
    return pa.array([], pa.bool_())
