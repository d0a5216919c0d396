"""Keys that a caller gives for one column: a frame of them, or any collection.

Spec: specs/spark.md#keys
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zonebloom.errors import ColumnNotFoundError, InvalidArgumentError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["collected"]

_MAX_KEYS = 1_000_000


def collected(column: str, keys: Any) -> pa.Array:
    """The distinct keys, of a frame or of any collection, as an Arrow array without nulls.

    Raises
    ------
    ColumnNotFoundError
        A frame of several columns has none of that name.
    InvalidArgumentError
        There are more than a million.
    """
    if hasattr(keys, "toArrow"):
        names = keys.columns
        name = next((one for one in names if one.lower() == column.lower()), names[0] if len(names) == 1 else None)
        if name is None:
            raise ColumnNotFoundError.among(column, names, "the frame of keys")
        wanted = keys.select(f"`{name.replace('`', '``')}`").distinct().limit(_MAX_KEYS + 1)
        values = wanted.toArrow().column(0).combine_chunks().drop_null()
    else:
        from zonebloom.predicates import IsIn  # noqa: PLC0415 - takes any collection

        values = IsIn(column, keys).values
    if len(values) > _MAX_KEYS:
        message = f"keys must be at most {_MAX_KEYS:,}, got more"
        raise InvalidArgumentError(f"{message}; use prune_join, or filter_by_index")
    return values
