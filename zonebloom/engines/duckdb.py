"""DuckDB: an indexed data set as a view, as a relation of DuckDB's own reader, and joined with keys.

- `register`: a view. DuckDB hands its filters to the data set; best for few matching rows.
- `relation`: DuckDB reads the Parquet files itself, but only the row groups that may match; best for many.
- `semi_join`: the rows whose key is in a relation. DuckDB does not hand the keys of a join to a data set.

`relation` lets DuckDB interpret the condition: it runs the condition over a data set without rows, and takes the filter
that DuckDB hands to that data set. So texts, times and decimals in the condition have DuckDB's meaning.

Design: docs/design/engines.md#duckdb
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from zonebloom.bloom.hashing import leaf_paths, resolve_column
from zonebloom.bloom.selection import RowSelection
from zonebloom.formats import ParquetDataset
from zonebloom.ground.arrow import rowless
from zonebloom.index.doors import opened
from zonebloom.index.index import Index
from zonebloom.predicates import IsIn, Predicate
from zonebloom.predicates.coerce import fit_values
from zonebloom.predicates.row_filter import to_expression
from zonebloom.predicates.sql_writer import quoted, text_literal
from zonebloom.search.arrow_dataset import IndexedDataset, as_predicate
from zonebloom.search.query import Query
from zonebloom.search.tasks import tasks_of
from zonebloom.search.view import View

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

__all__ = ["register", "relation", "semi_join"]

_MAX_PARTS = 64
"""Files that are read by row groups. Each is a scan of its own, so further files are read whole."""
_GLOB = re.compile(r"[*?\[\]]")
_UNREAD_NAMES = {"filename", "file_index", "file_row_number", ""}
"""Names of columns that DuckDB adds to those of Parquet files, and the empty name, which it cannot quote."""
_FILES_ONLY = re.compile("halffloat|decimal256")
"""Arrow types that DuckDB reads from Parquet files only."""
_FLOATS = re.compile("FLOAT|DOUBLE")
_COARSE = re.compile(r"TIMESTAMP_M?S\b")
"""Types of an Arrow column that DuckDB has in microseconds from a Parquet file: no value differs."""
_Columns = tuple[dict[str, str], pa.Schema]
_KNOWN: WeakKeyDictionary[Any, WeakKeyDictionary[View, _Columns]] = WeakKeyDictionary()
"""By connection and listing, the answers of `_asked_columns`."""


def register(
    connection: DuckDBPyConnection,
    name: str,
    source: str | os.PathLike[str] | Index,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> IndexedDataset:
    """Register the indexed data set `source`, a path or an `Index`, in `connection` as view `name`.

    DuckDB hands over comparisons with constants, IN lists, IS NULL, AND and OR. It hands over no comparison of UUIDs
    and no IN list of decimals; `semi_join` takes both.

    Returns
    -------
    IndexedDataset
        The registered data set. Its `last_scan` has the counts of the last query: kept and total.

    Examples
    --------
    >>> import tempfile, pathlib, duckdb, pyarrow as pa, pyarrow.parquet as pq, zonebloom as zb
    >>> from zonebloom.engines.duckdb import register
    >>> lake = pathlib.Path(tempfile.mkdtemp(), "lake")
    >>> lake.mkdir()
    >>> pq.write_table(pa.table({"id": range(50_000)}), lake / "a.parquet")
    >>> index = zb.build_index(lake, "id")
    >>> connection = duckdb.connect()
    >>> events = register(connection, "events", index)
    >>> connection.sql("SELECT id FROM events WHERE id = 40000").fetchall()
    [(40000,)]
    >>> events.last_scan.kept.rows
    8192

    Design: docs/design/engines.md#duckdb
    """
    dataset = opened(source, storage_options).dataset()
    connection.register(name, dataset)
    return dataset


def relation(
    connection: DuckDBPyConnection,
    source: str | os.PathLike[str] | Index,
    where: str = "true",
    *,
    storage_options: Mapping[str, str] | None = None,
) -> DuckDBPyRelation:
    """The rows of the indexed data set `source` for which `where`, a condition in DuckDB's SQL, is true.

    DuckDB itself reads the row groups of the Parquet files that have candidate rows. `Index.dataset` reads tables,
    object stores, and names that DuckDB spells otherwise. This call lists the files and evaluates the condition for
    pruning. If files change later, or variables or tables of the condition, the relation may miss rows: make it again.

    Examples
    --------
    >>> import tempfile, pathlib, duckdb, pyarrow as pa, pyarrow.parquet as pq, zonebloom as zb
    >>> from zonebloom.engines.duckdb import relation
    >>> lake = pathlib.Path(tempfile.mkdtemp(), "lake")
    >>> lake.mkdir()
    >>> pq.write_table(pa.table({"id": range(50_000)}), lake / "a.parquet", row_group_size=10_000)
    >>> index = zb.build_index(lake, "id")
    >>> relation(duckdb.connect(), lake, "id IN (7, 40000)").aggregate("count(*)").fetchall()
    [(2,)]

    Design: docs/design/engines.md#relation
    """
    index = opened(source, storage_options)
    view = index.view()
    if not _is_native(view):
        return connection.from_arrow(index.dataset()).filter(where)
    types, comparable = _columns(connection, view)
    predicate = _handed_over(connection, comparable, where)
    return _read_natively(connection, view, types, _candidates(view, predicate)).filter(where)


def semi_join(
    connection: DuckDBPyConnection,
    source: str | os.PathLike[str] | Index,
    column: str,
    keys: DuckDBPyRelation,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> DuckDBPyRelation:
    """The rows of the indexed data set `source` whose `column` is among the values of the first column of `keys`.

    DuckDB casts each key to the type of `column`. Rows with a null key are in no result. This call reads the keys once;
    the rows are read as by `relation`.

    Examples
    --------
    >>> import tempfile, pathlib, duckdb, pyarrow as pa, pyarrow.parquet as pq, zonebloom as zb
    >>> from zonebloom.engines.duckdb import semi_join
    >>> lake = pathlib.Path(tempfile.mkdtemp(), "lake")
    >>> lake.mkdir()
    >>> pq.write_table(pa.table({"id": range(50_000)}), lake / "a.parquet")
    >>> index = zb.build_index(lake, "id")
    >>> connection = duckdb.connect()
    >>> wanted = connection.sql("SELECT * FROM (VALUES ('40000'), ('-1')) t(k)")
    >>> semi_join(connection, index, "id", wanted).fetchall()
    [(40000,)]

    Design: docs/design/engines.md#semi_join
    """
    index = opened(source, storage_options)
    view = index.view()
    field = resolve_column(view.schema, column)
    types, comparable = _columns(connection, view) if _is_native(view) else ({}, view.schema)
    columns = connection.sql(_without_rows(types)) if types else connection.from_arrow(rowless(view.schema))
    owns = dict(zip(view.schema.names, columns.columns, strict=True))  # of `k` and `K` DuckDB calls the second `K_1`
    name = quoted(owns[column]) if column in owns else ".".join(map(quoted, column.split(".")))
    kind = columns.select(name).types[0]
    passed = "VARCHAR" if str(kind) == "TIME WITH TIME ZONE" else kind  # Arrow has no zones of times
    cast = keys.select(f"{quoted(keys.columns[0])}::{kind}::{passed} AS key").filter("key IS NOT NULL").distinct()
    values = cast.to_arrow_table()
    wanted = IsIn(column, values["key"])
    is_exact = fit_values(wanted.values, field.type).reason is None and not _is_collated(connection)
    if types:
        is_exact = is_exact and column in {*comparable.names, *leaf_paths(comparable)}
        lake = _read_natively(connection, view, types, _candidates(view, wanted if is_exact else None))
    else:
        dataset = index.dataset()
        lake = connection.from_arrow(dataset.filter(to_expression(wanted, view.schema)) if is_exact else dataset)
    listed = connection.from_arrow(values).select(f"key::{kind} AS key")
    return lake.set_alias("lake").join(listed.set_alias("listed"), f"lake.{name} = listed.key", how="semi")


def _is_collated(connection: DuckDBPyConnection) -> bool:
    """Whether DuckDB may find texts equal that differ in their bytes."""
    (collation,) = connection.sql("SELECT current_setting('default_collation')").fetchall()
    return bool(collation[0])


class _Asked(pads.InMemoryDataset):  # type: ignore[misc]  # pyarrow has no types
    """A data set without rows that records the filter DuckDB hands to it."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(rowless(schema))
        self.given: pc.Expression | None = None

    def scanner(
        self,
        columns: Any = None,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
        **_reading: Any,
    ) -> pads.Scanner:
        self.given = filter
        return super().scanner(columns=columns)


def _handed_over(connection: DuckDBPyConnection, schema: pa.Schema, where: str) -> Predicate | None:
    """The filter that DuckDB hands to a data set of `schema`: true in all rows of `where`, and maybe in more."""
    import duckdb  # noqa: PLC0415 - an optional dependency

    asked = _Asked(schema)
    try:
        connection.from_arrow(asked).filter(where).fetchall()
    except duckdb.Error:  # a column that is not in `schema`; the read itself reports other mistakes
        return None
    return as_predicate(schema, asked.given)


# --- DuckDB's own reader ----------------------------------------------------------------------------------------------


def _is_native(view: View) -> bool:
    """Whether DuckDB's own reader gives the rows that a scan gives."""
    names = [name.lower() for name in view.schema.names]
    keys = {field.name for field in view.partition_fields}
    return (
        isinstance(view.dataset, ParquetDataset)  # files of tables have deleted rows and other names
        and bool(view.listing)
        and not view.dataset.is_remote  # DuckDB's own S3 client has other options
        and len(set(names)) == len(names)  # DuckDB takes `a` and `A` for one column
        and not _UNREAD_NAMES & set(names)  # such a column would hide DuckDB's, or cannot be named
        and not any(_GLOB.search(view.dataset.absolute(path)) for path in view.listing)  # DuckDB would list other files
        and all(view.dataset.path_values(path).keys() <= keys for path in view.listing)  # a folder is a file's column
        and all(view.dataset.partition_values(path, view.partition_fields) is not None for path in view.listing)
    )


def _columns(connection: DuckDBPyConnection, view: View) -> _Columns:
    """What `_asked_columns` gives; a connection is asked once for a listing, as it opens each file."""
    of_views = _KNOWN.setdefault(connection, WeakKeyDictionary())
    if view not in of_views:
        of_views[view] = _asked_columns(connection, view)
    return of_views[view]


def _asked_columns(connection: DuckDBPyConnection, view: View) -> _Columns:
    """DuckDB's type of each column over all files, and the columns that it has in the same type from Arrow.

    A condition on any other column excludes nothing: on Parquet's intervals, on times with a zone, on INT96, and on
    columns that have two types in two files.
    """
    columns = pa.schema([field for field in view.plain_schema if not _FILES_ONLY.search(str(field.type))])
    of_arrow = connection.from_arrow(rowless(columns)).types if columns else []
    kinds = dict(zip(columns.names, map(str, of_arrow), strict=True))
    given = connection.sql(_select(connection, view, view.listing))
    held = {name.lower(): str(kind) for name, kind in zip(given.columns, given.types, strict=True)}
    types = {name: held.get(name.lower()) or kinds.get(name, '"NULL"') for name in view.schema.names}
    is_same = {name: _COARSE.sub("TIMESTAMP", kind) == types[name] for name, kind in kinds.items()}
    return types, pa.schema([field for field in columns if is_same[field.name]])


def _candidates(view: View, predicate: Predicate | None) -> RowSelection:
    """The rows that may match. DuckDB cuts times of INT96, so a condition on these keeps all rows."""
    asked = set() if predicate is None else predicate.columns()
    is_fine = any("[ns" in str(view.column_type(name)) for name in asked)
    cut = view.int96_columns if is_fine else frozenset()
    if predicate is None or any(f"{column}.".startswith(f"{name}.") for column in asked for name in cut):
        return view.universe
    return Query(view, predicate, own_filters=False).result.row_ranges


def _without_rows(types: Mapping[str, str]) -> str:
    """A table without rows of columns of `types`."""
    return f"SELECT {', '.join(f'NULL::{kind} AS {quoted(name)}' for name, kind in types.items())} WHERE false"


def _read_natively(
    connection: DuckDBPyConnection, view: View, types: Mapping[str, str], rows: RowSelection
) -> DuckDBPyRelation:
    """The row groups that have some of `rows`, all columns, as DuckDB reads them, in `types`."""
    ranges: dict[str, list[str]] = {}
    whole: list[str] = []
    for path, tasks in itertools.groupby(tasks_of(view, rows), key=lambda task: task.file.path):
        groups = list(tasks)
        sizes = groups[0].file.row_group_rows
        if len(groups) == sum(size > 0 for size in sizes):
            whole.append(path)
            continue
        ends = list(itertools.accumulate(sizes))
        spans = [(ends[task.group] - sizes[task.group], ends[task.group] - 1) for task in groups]
        ranges[path] = [f"file_row_number BETWEEN {first} AND {last}" for first, last in spans]
    while len(ranges) > _MAX_PARTS:
        whole.append(ranges.popitem()[0])
    parts = [_select(connection, view, whole)] if whole else []
    parts += [f"{_select(connection, view, [path])} WHERE {' OR '.join(tests)}" for path, tests in ranges.items()]
    if any(_has_other_bytes(connection, part, types) for part in parts):
        parts = [_select(connection, view, view.listing)]
    parts.append(_without_rows(types))
    columns = ", ".join(f"{_with_nan(name, kind)}::{kind} AS {quoted(name)}" for name, kind in types.items())
    return connection.sql(" UNION ALL BY NAME ".join(parts)).project(columns)


def _with_nan(name: str, kind: str) -> str:
    """A column; one of floats without its bounds: they leave out NaN, and DuckDB 2.0 would exclude such rows."""
    column = quoted(name)
    return f"CASE WHEN {column} IS NULL THEN NULL ELSE {column} END" if _FLOATS.search(kind) else column


def _has_other_bytes(connection: DuckDBPyConnection, part: str, types: Mapping[str, str]) -> bool:
    """Whether a part has another type in a column of bytes: DuckDB's cast of texts to bytes decodes their escapes.

    Its reader does not, if it reads the part together with files that have bytes.
    """
    if not any("BLOB" in kind for kind in types.values()):
        return False
    read = connection.sql(part)
    held = {name.lower(): str(kind) for name, kind in zip(read.columns, read.types, strict=True)}
    return any("BLOB" in kind and held.get(name.lower(), kind) != kind for name, kind in types.items())


def _select(connection: DuckDBPyConnection, view: View, paths: Iterable[str]) -> str:
    """All columns of the files, with the view's partition values because DuckDB decodes some folders otherwise."""
    chosen, fields, columns = list(paths), view.partition_fields, ["*"]
    if fields:
        rows = [view.dataset.partition_values(path, fields) or {} for path in chosen]
        types = connection.from_arrow(rowless(pa.schema(fields))).types
        keys = ", ".join(text_literal(field.name.lower()) for field in fields)
        columns = [f"COLUMNS(lambda name: lower(name) NOT IN ({keys}))"]
        for field, kind in zip(fields, types, strict=True):
            values = [row[field.name].as_py() for row in rows]
            literals = ", ".join("NULL" if value is None else text_literal(str(value)) for value in values)
            columns.append(f"([{literals}]::{kind}[])[file_index::BIGINT + 1] AS {quoted(field.name)}")
    files = ", ".join(text_literal(view.dataset.absolute(path)) for path in chosen)
    source = f"read_parquet([{files}], union_by_name = true, hive_partitioning = false)"
    return f"SELECT {', '.join(columns)} FROM {source}"  # noqa: S608 - texts and names are quoted
