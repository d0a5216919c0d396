"""The schema of a zone table: Lance's five columns and two metadata keys, and ours, for the name and type of the
column.

Spec: specs/zones.md#zone-table
"""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from zonebloom.bloom.sizing import check_fpp, check_rows_per_zone
from zonebloom.ground.errors import InvalidZoneTableError

ZONE_FIELDS = (
    pa.field("fragment_id", pa.uint64(), nullable=False),
    pa.field("zone_start", pa.uint64(), nullable=False),
    pa.field("zone_length", pa.uint64(), nullable=False),
    pa.field("has_null", pa.bool_(), nullable=False),
    pa.field("bloom_filter_data", pa.binary(), nullable=False),
)
_COLUMN_KEY = b"zonebloom.column"
_TYPE_KEY = b"zonebloom.type"


def decimal_text(value: float) -> str:
    """`value` as decimal digits without an exponent, as Rust prints an f64: `1e-05` gives `0.00001`."""
    return format(Decimal(repr(float(value))), "f")


def zone_schema(
    rows_per_zone: int, fpp: float, *, column: str | None = None, column_type: pa.DataType | None = None
) -> pa.Schema:
    """The schema of a zone table, with Lance's two metadata keys.

    The name and type of the column are in the metadata of the field `bloom_filter_data`, so the schema's own metadata
    is exactly Lance's.

    Spec: specs/zones.md#metadata
    """
    described: dict[bytes, bytes] = {}
    if column is not None:
        described[_COLUMN_KEY] = column.encode()
    if column_type is not None:
        described[_TYPE_KEY] = pa.schema([pa.field("", column_type)]).serialize().to_pybytes().hex().encode()
    data = ZONE_FIELDS[4].with_metadata(described) if described else ZONE_FIELDS[4]
    metadata = {
        b"bloomfilter_item": str(rows_per_zone).encode(),
        b"bloomfilter_probability": decimal_text(fpp).encode(),
    }
    return pa.schema([*ZONE_FIELDS[:4], data], metadata)


def described_by(field: pa.Field) -> tuple[str | None, pa.DataType | None]:
    """Name and type of the column, from the metadata of the field `bloom_filter_data`."""
    metadata = field.metadata or {}
    column = metadata[_COLUMN_KEY].decode() if _COLUMN_KEY in metadata else None
    column_type = None
    if _TYPE_KEY in metadata:
        try:
            raw = bytes.fromhex(metadata[_TYPE_KEY].decode())
            column_type = pa.ipc.read_schema(pa.py_buffer(raw)).field(0).type
        except (ValueError, IndexError, OSError, pa.ArrowException) as error:
            raise InvalidZoneTableError(
                f"the field metadata {_TYPE_KEY.decode()} must hold a serialised Arrow type", got=error
            ) from error
    return column, column_type


def parameters_of(schema: pa.Schema) -> tuple[int, float]:
    """Rows of a full zone and fpp, from Lance's two keys."""
    metadata = schema.metadata or {}
    try:
        rows_per_zone = int(metadata.get(b"bloomfilter_item", b"8192"))
        fpp = float(metadata.get(b"bloomfilter_probability", b"0.00057"))
        check_rows_per_zone(rows_per_zone)
        check_fpp(fpp)
    except ValueError as error:
        raise InvalidZoneTableError(
            "bloomfilter_item and bloomfilter_probability must be a row count and a probability", got=f"{metadata!r}"
        ) from error
    return rows_per_zone, fpp
