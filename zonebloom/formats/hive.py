"""Hive partitions: `key=value` folders of a path as typed columns.

A column is int32 if each value is a decimal integer of 32 bits, else string. `__HIVE_DEFAULT_PARTITION__` is null.

Spec: specs/pruning.md#partition-columns
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from zonebloom.ground.errors import InvalidArgumentError

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"-?0*[0-9]{1,10}")

Partitions = str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]
"""`{"day": 3}`, `"day=3"`, `"year=2026/month=11"`, or several of them."""


def partition_values(path: str) -> dict[str, str | None]:
    """The `key=value` folders of a relative path, percent-decoded; null for the default partition.

    Of two folders with one key the first counts, as for pyarrow and DuckDB.

    >>> partition_values("day=3/city=S%C3%A3o/a%3Db=1=2/=4/x/day=7/part-0=5")
    {'day': '3', 'city': 'São', 'a=b': '1=2'}
    """
    values: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        key, separator, value = folder.partition("=")
        if separator and key:
            values.setdefault(unquote(key), None if value == NULL_FOLDER else unquote(value))
    return values


def is_int32(text: str) -> bool:
    """Whether a folder's value is an integer of 32 bits."""
    return _INTEGER.fullmatch(text) is not None and -(2**31) <= int(text) < 2**31


def with_keys(columns: Iterable[pa.Field], paths: Iterable[str]) -> tuple[pa.Schema, list[str]]:
    """The schema of files at `paths` that have `columns`, with their partition columns last; and the names of these.

    A key that is a column of the files is no partition column, unless the column is of the null type in each file.
    """
    columns = list(columns)
    fields = _infer_fields(paths, {column.name for column in columns if not pa.types.is_null(column.type)})
    names = [field.name for field in fields]
    return pa.schema([*(column for column in columns if column.name not in names), *fields]), names


def _infer_fields(paths: Iterable[str], taken: Collection[str]) -> list[pa.Field]:
    seen: dict[str, set[str]] = {}
    for path in paths:
        for key, value in partition_values(path).items():
            if key not in taken:
                seen.setdefault(key, set()).update([] if value is None else [value])
    return [
        pa.field(key, pa.int32() if values and all(map(is_int32, values)) else pa.string())
        for key, values in seen.items()
    ]


def typed(path: str, fields: Iterable[pa.Field]) -> dict[str, pa.Scalar] | None:
    """The partition values of `path` as scalars of the types of `fields`; None if a value does not convert.

    A key that the path does not have is null, as it is for pyarrow.
    """
    values = partition_values(path)
    scalars: dict[str, pa.Scalar] = {}
    for field in fields:
        text = values.get(field.name)
        if text is None:
            scalars[field.name] = pa.scalar(None, field.type)
        elif field.type == pa.int32():
            if not is_int32(text):
                return None
            scalars[field.name] = pa.scalar(int(text), pa.int32())
        else:
            scalars[field.name] = pa.scalar(text, field.type)
    return scalars


def wanted_partitions(partitions: Partitions, columns: Iterable[str]) -> list[dict[str, str | None]]:
    """A caller's partitions, with values as in names of folders.

    Raises
    ------
    InvalidArgumentError
        A partition has a wrong form, or a column that is not among the partition columns `columns`.

    >>> wanted_partitions([{"day": 3}, "day=4/city=S%C3%A3o", {"day": None}], ["day", "city"])
    [{'day': '3'}, {'day': '4', 'city': 'São'}, {'day': None}]
    """
    is_one = isinstance(partitions, (str, Mapping)) or not isinstance(partitions, Iterable)
    several = [partitions] if is_one else list(partitions)
    wanted: list[dict[str, str | None]] = []
    for partition in several:
        if isinstance(partition, str):
            values = partition_values(f"{partition.strip('/')}/")
        elif isinstance(partition, Mapping):
            values = {str(key): None if value is None else str(value) for key, value in partition.items()}
        else:
            raise InvalidArgumentError("a partition must be a dict or a text such as day=3", got=f"{partition!r}")
        strange = values.keys() - set(columns)
        if strange or not values:
            names = ", ".join(columns) or "none"
            raise InvalidArgumentError(f"partitions must be of the partition columns ({names})", got=f"{partition!r}")
        wanted.append(values)
    return wanted


def agrees(path: str, wanted: Sequence[Mapping[str, str | None]]) -> bool:
    """Whether the file at `path` is in one of the partitions `wanted`; integers are compared without leading zeros."""
    values = partition_values(path)
    return any(all(key in values and _is_same(values[key], part[key]) for key in part) for part in wanted)


def may_hold(folder: str, wanted: Sequence[Mapping[str, str | None]]) -> bool:
    """Whether files of the partitions `wanted` may be below `folder`, which ends with `/`."""
    values = partition_values(folder)
    return any(all(key not in values or _is_same(values[key], part[key]) for key in part) for part in wanted)


def _is_same(value: str | None, wanted: str | None) -> bool:
    if value is None or wanted is None:
        return value is wanted
    return value == wanted or (is_int32(value) and is_int32(wanted) and int(value) == int(wanted))
