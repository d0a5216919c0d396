"""Schema evolution: files of different types → one schema, and values of exactly the indexed type.

A newer file may have more columns, or wider types. A value is converted only if the conversion is exact. A file with
another value gets no zones for the column, and is read whole.

Spec: specs/zones.md#schema-evolution
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain

import pyarrow as pa

from zonebloom.bloom import hashing
from zonebloom.formats.dataset import OpenedFile
from zonebloom.formats.parquet.file import has_column
from zonebloom.ground.arrow import unwrapped, with_inner
from zonebloom.ground.casts import cast_exactly


def unified(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """One schema for files with added columns or widened types; if types conflict, the first file's type counts.

    Spec: specs/zones.md#schema-evolution
    """
    try:
        return pa.unify_schemas(list(schemas), promote_options="default")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        fields: dict[str, pa.Field] = {}
        for field in chain.from_iterable(schemas):
            former = fields.get(field.name)
            wanted = field.type if former is None else _wider(former.type, field.type)
            fields[field.name] = pa.field(field.name, wanted)
        return pa.schema(list(fields.values()))


def _wider(former: pa.DataType, added: pa.DataType) -> pa.DataType:
    """The least type that holds the values of both types of one family; for other pairs the known type."""
    if pa.types.is_dictionary(former) and not pa.types.is_dictionary(added):
        added = pa.dictionary(pa.int32(), added, former.ordered)  # it may have more values than narrow indices reach
    elif pa.types.is_dictionary(added) and not pa.types.is_dictionary(former):
        added = added.value_type
    if pa.types.is_struct(former) and pa.types.is_struct(added):
        return _merged(former, added)
    if _is_list(former) and _is_list(added):
        return with_inner(former, [former.value_field.with_type(_wider(former.value_type, added.value_type))])
    if pa.types.is_map(former) and pa.types.is_map(added):
        item = former.item_field.with_type(_wider(former.item_type, added.item_type))
        return pa.map_(_wider(former.key_type, added.key_type), item, former.keys_sorted)
    both = [pa.schema([pa.field("", candidate)]) for candidate in (former, added)]
    for promotion in ("default", "permissive"):
        try:
            common = pa.unify_schemas(both, promote_options=promotion).field(0).type
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            continue
        if promotion == "default" or (_keeps_values(former, common) and _keeps_values(added, common)):
            return common
    return former


def _is_list(arrow_type: pa.DataType) -> bool:
    return bool(pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type))  # Polars writes the latter


def _merged(former: pa.StructType, added: pa.StructType) -> pa.DataType:
    """The fields of both, each with the wider type; the former type if a name is of two fields."""
    fields = {field.name: field for field in former}
    if len(fields) < former.num_fields or len({field.name for field in added}) < added.num_fields:
        return former
    for field in added:
        own = fields.get(field.name, field)
        fields[field.name] = pa.field(field.name, _wider(own.type, field.type), own.nullable or field.nullable)
    return pa.struct(list(fields.values()))


def column_values(batch: pa.RecordBatch, column: str, column_type: pa.DataType) -> pa.Array | None:
    """The values of `column` as `column_type`; nulls if the file has no such column, None if one does not convert.

    Spec: specs/zones.md#schema-evolution
    """
    if not has_column(batch.schema, column):
        return pa.nulls(batch.num_rows, column_type)
    values = hashing.column_array(batch, column)
    return conformed(values, column_type)


def columns_of_folders(file: OpenedFile, folders: Collection[str], columns: Iterable[str]) -> set[str]:
    """The columns in `columns` whose value comes from this file's path (`key=value` folders); they get no zones.

    Spec: specs/pruning.md#partition-columns
    """
    return {column for column in columns if column in folders and not has_column(file.schema, column)}


def conformed(values: pa.Array, column_type: pa.DataType) -> pa.Array | None:
    """`values` with the hash input of `column_type`, converted exactly; None if that is not possible."""
    own, wanted = unwrapped(values.type), unwrapped(column_type)
    if own == wanted:
        return values
    if pa.types.is_null(own):
        return pa.nulls(len(values), column_type)
    if not _keeps_values(own, wanted):
        return None
    try:
        return cast_exactly(values.dictionary_decode() if pa.types.is_dictionary(values.type) else values, wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _keeps_values(stored: pa.DataType, wanted: pa.DataType) -> bool:
    t = pa.types
    if t.is_dictionary(stored) and t.is_dictionary(wanted):
        return stored.value_type == wanted.value_type or _keeps_values(stored.value_type, wanted.value_type)
    if t.is_integer(stored) and t.is_integer(wanted):
        return True
    if t.is_floating(stored) and t.is_floating(wanted):
        return bool(stored.bit_width <= wanted.bit_width)
    if t.is_decimal(stored) and t.is_decimal(wanted):
        return bool(stored.scale <= wanted.scale)
    if t.is_timestamp(stored) and t.is_timestamp(wanted):
        return (stored.tz is None) == (wanted.tz is None)
    texts = (t.is_string, t.is_large_string, t.is_string_view)
    bytes_ = (t.is_binary, t.is_large_binary, t.is_binary_view)
    return any(all(any(is_kind(kind) for is_kind in group) for kind in (stored, wanted)) for group in (texts, bytes_))
