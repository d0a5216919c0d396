"""Columns of files: names by field id, and values of partitions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zonebloom.formats.parquet.column_mapping import StoredName
from zonebloom.ground.arrow import from_values
from zonebloom.ground.errors import DataFileError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as LoggedFile
    from pyiceberg.table import Table


class Names:
    """Names by field id; for files without ids by the table's name mapping, if it has one."""

    def __init__(self, table: Table) -> None:
        schema = table.schema()
        self._full = {schema.find_field(name).field_id: name for name in schema.column_names}
        self._by_id = {field_id: schema.find_field(field_id).name for field_id in self._full}
        self._location = table.location()
        self._by_path: dict[tuple[str, ...], int] | None = None
        mapping = table.name_mapping()
        if mapping is not None:
            self._by_path = dict(_mapped(mapping, ()))

    def ids(self) -> dict[str, str]:
        """What each column is below its name: its field id, and where it is in files without ids."""
        places: dict[int, list[str]] = {field_id: [str(field_id)] for field_id in self._by_id}
        for path, field_id in sorted((self._by_path or {}).items()):
            places.get(field_id, []).append(json.dumps(path))
        return {name: " ".join(places[field_id]) for field_id, name in self._full.items()}

    def name_of(self, stored: StoredName) -> str | None:
        """The table's name of a stored column; None if the table has dropped the column."""
        name = self._by_id.get(stored.field_id) if stored.field_id is not None else None
        if stored.has_file_ids or (self._by_path is None and stored.field_id is not None):
            return name
        path = ".".join(stored.path)
        if self._by_path is None:
            raise DataFileError(
                f"files of {self._location} must have field ids, or the table a name mapping", got=f"none for {path}"
            )
        field_id = self._by_path.get(stored.path)
        mapped = None if field_id is None else self._by_id.get(field_id)
        if stored.field_id is not None and mapped != name:  # pyiceberg goes by names then, and Java by ids
            raise DataFileError(
                f"files of {self._location} must have field ids for all columns, or for none",
                got=f"an id of {name} for {path}, which is {mapped} by the name mapping, and none for others",
            )
        return mapped


def _mapped(fields: Iterable[Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    for field in fields:
        for name in field.names:
            if field.field_id is not None:
                yield (*path, name), field.field_id
            yield from _mapped(field.fields, (*path, name))


class Identities:
    """Partitions by a column's own value: the value excludes files, and is used for files without the column.

    If a file has the column, its own values count. Floating-point values exclude nothing: pyiceberg 0.12 reads a
    double in the log as a float, and writes one of both zeros for files with either. Nor does a value whose file has
    another number of nulls: pyiceberg's add_files takes it from bounds, which ignore nulls and may be missing.
    """

    def __init__(self, table: Table, arrow: pa.Schema) -> None:
        from pyiceberg.transforms import IdentityTransform  # noqa: PLC0415 - an extra

        schema = table.schema()
        top = {field.field_id: arrow.field(field.name) for field in schema.fields}
        self._places: dict[int, list[tuple[int, int, pa.Field]]] = {}
        for spec_id, spec in table.specs().items():
            own = [
                (place, part) for place, part in enumerate(spec.fields) if isinstance(part.transform, IdentityTransform)
            ]
            self._places[spec_id] = [
                (place, part.source_id, top[part.source_id]) for place, part in own if part.source_id in top
            ]
        self.columns: set[str] = {field.name for places in self._places.values() for _place, _id, field in places}

    def values(self, logged: LoggedFile) -> dict[str, pa.Scalar]:
        """The values in the log for a file."""
        return {
            field.name: _scalar(logged.partition[place], field.type)
            for place, _id, field in self._places.get(logged.spec_id or 0, [])
        }

    def unsure(self, logged: LoggedFile) -> frozenset[str]:
        """Columns of `values` with another number of nulls in the file."""
        num_nulls = logged.null_value_counts or {}
        return frozenset(
            field.name
            for place, field_id, field in self._places.get(logged.spec_id or 0, [])
            if num_nulls.get(field_id, 0) != (logged.record_count if logged.partition[place] is None else 0)
        )


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """A value of Iceberg, such as days or microseconds since 1970, as an Arrow scalar."""
    t = pa.types
    if value is None:
        return pa.scalar(None, kind)
    if t.is_float64(kind):
        return pa.scalar(f"{value}, which pyiceberg rounded to a float,")  # refused where the file has no value
    if t.is_date32(kind):
        return pa.scalar(value, pa.int32()).cast(kind)
    if isinstance(value, int) and (t.is_timestamp(kind) or t.is_time64(kind)):
        return pa.scalar(value, pa.int64()).cast(kind)
    return from_values([value], kind)[0]
