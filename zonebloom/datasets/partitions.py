"""Hive partitions: `key=value` folders of a path as typed columns.

The types follow pyarrow's inference: int32 where every value is one, else string; `__HIVE_DEFAULT_PARTITION__` is null.

Spec: specs/pruning.md#partition-columns
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote

import pyarrow as pa

__all__ = ["infer_fields", "partition_values", "typed"]

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"-?0*[0-9]{1,10}")


def partition_values(path: str) -> dict[str, str | None]:
    """The `key=value` folders of a relative path, percent-decoded; null for the default partition.

    >>> partition_values("day=3/city=S%C3%A3o/part-0.parquet")
    {'day': '3', 'city': 'São'}
    """
    values: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        key, separator, value = folder.partition("=")
        if separator and key:
            values[unquote(key)] = None if value == NULL_FOLDER else unquote(value)
    return values


def _is_int32(text: str) -> bool:
    return _INTEGER.fullmatch(text) is not None and -(2**31) <= int(text) < 2**31


def infer_fields(paths: Iterable[str], columns: Iterable[str]) -> list[pa.Field]:
    """Partition fields of the files at `paths`; a key that the files have as a column is none."""
    taken = set(columns)
    seen: dict[str, set[str]] = {}
    for path in paths:
        for key, value in partition_values(path).items():
            if key not in taken:
                seen.setdefault(key, set()).update([] if value is None else [value])
    return [
        pa.field(key, pa.int32() if values and all(map(_is_int32, values)) else pa.string())
        for key, values in seen.items()
    ]


def typed(path: str, fields: Iterable[pa.Field]) -> dict[str, pa.Scalar] | None:
    """The partition values of `path` as scalars of the types of `fields`; None where a value does not fit its type.

    A key that the path does not have is null, as it is for pyarrow.
    """
    values = partition_values(path)
    found: dict[str, pa.Scalar] = {}
    for field in fields:
        text = values.get(field.name)
        if text is None:
            found[field.name] = pa.scalar(None, field.type)
        elif field.type == pa.int32():
            if not _is_int32(text):
                return None
            found[field.name] = pa.scalar(int(text), pa.int32())
        else:
            found[field.name] = pa.scalar(text, field.type)
    return found
