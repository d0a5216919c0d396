"""Polars: an indexed data set as a LazyFrame. A collect reads only the rows that may match.

Polars hands over the whole predicate. The parts that the index can evaluate prune; an `is_in` may have any length.
Polars applies its own filter to the rows that were read. So the answer has Polars' semantics, also if they differ from
pyarrow's (NaN equals NaN).

Only Polars' public functions decompose an expression: `meta.pop` gives its operands, and `meta.eq` checks that an
operation on these operands is the same expression.

Design: docs/design/engines.md#polars
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa

from zonebloom.bloom.hashing import dotted, leaf_paths, resolve_column
from zonebloom.formats.folder import ParquetDataset
from zonebloom.ground.arrow import rowless, with_leaves
from zonebloom.ground.errors import DataFileError, MissingDependencyError, UnsupportedTypeError, first_line
from zonebloom.index.doors import opened
from zonebloom.index.index import Index
from zonebloom.predicates import And, IsIn, IsNull, Or, Predicate
from zonebloom.predicates.coerce import fit_values
from zonebloom.search.query import Query

if TYPE_CHECKING:
    import polars as pl

__all__ = ["scan"]

_MAX_DEPTH = 200
"""Levels of an expression that are examined; deeper parts prune nothing."""
_END = "zonebloom: is this the end"
"""Name of a column that is true in a row after the last one only."""
_PANICS = re.compile(r"decimal256|fixed_size_binary\[12\]")
"""Types at which Polars' own reader may panic: Parquet's intervals, and decimals of 256 bits in lists and structs."""
_FOLDERS = 16
"""Most partitions that Polars reads by one plan: a plan takes time by the square of their number."""


def scan(source: str | os.PathLike[str] | Index, *, storage_options: Mapping[str, str] | None = None) -> pl.LazyFrame:
    """The rows of the indexed data set `source`, a path or an `Index`. Each collect lists its files anew.

    Zones that cannot match the filter are not read; all that match are. Partition columns are among the columns.

    Raises
    ------
    IndexNotFoundError
        There is no index at the path.
    MissingDependencyError
        Polars is not installed.

    Examples
    --------
    >>> import tempfile, pathlib, polars as pl, zonebloom as zb
    >>> from zonebloom.engines.polars import scan
    >>> lake = pathlib.Path(tempfile.mkdtemp(), "lake")
    >>> lake.mkdir()
    >>> pl.DataFrame({"id": range(50_000)}).write_parquet(lake / "a.parquet")
    >>> index = zb.build_index(lake, "id")
    >>> scan(lake).filter(pl.col("id").is_in([7, 40_000])).collect()["id"].to_list()
    [7, 40000]

    Design: docs/design/engines.md#polars
    """
    try:
        from polars import exceptions, selectors  # noqa: PLC0415 - an optional dependency
        from polars.io.plugins import register_io_source  # noqa: PLC0415
    except ImportError as error:
        raise MissingDependencyError(
            "Polars must be installed", got="no such module", do='pip install "zonebloom[polars]"'
        ) from error
    index = opened(source, storage_options)
    dataset = index.dataset()

    def read(
        names: list[str] | None, predicate: pl.Expr | None, num_rows: int | None, _batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        # the limit counts rows before the filter
        wanted = None if predicate is None or num_rows is not None else necessary(predicate, dataset.schema)
        query = dataset.search(wanted)
        plain = None if num_rows is not None else _read_by_polars(query, schema)
        num_given = 0
        with suppress(OSError, exceptions.PolarsError):  # our own reader goes on, decodes more, or says what is wrong
            for part in plain or ():
                rows = part if predicate is None else part.filter(predicate)
                for frame in _batches(rows.select(selectors.by_name(*names or schema))):
                    num_given += frame.height
                    yield frame
            if plain is not None:
                return
        for batch in dataset.read_kept(query, wanted, names, num_rows):
            frame = _frame(batch) if predicate is None else _frame(batch).filter(predicate)
            yield frame[num_given:]
            num_given = max(num_given - frame.height, 0)

    schema = _frame(rowless(dataset.schema)).schema
    return register_io_source(read, schema=schema, explain_name=f"zonebloom {index.data.location}")


def _frame(rows: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    import polars as pl  # noqa: PLC0415 - an optional dependency

    try:
        fields = [field.with_type(with_leaves(field.type, _in_128_bits)) for field in rows.schema]
        frame = pl.from_arrow(rows if fields == list(rows.schema) else rows.cast(pa.schema(fields)))
    except (pl.exceptions.PanicException, pl.exceptions.PolarsError, ValueError) as error:
        raise UnsupportedTypeError(
            "columns must be of types that Polars has", got=first_line(error), do="read the index with to_table"
        ) from error
    assert isinstance(frame, pl.DataFrame)
    frame.columns = rows.schema.names  # Polars names a column without a name by its place
    return frame


def _batches(rows: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """The rows in order, and an error after a panic, at which Polars 2.1 just ends: a marked row must come last."""
    import polars as pl  # noqa: PLC0415 - an optional dependency

    is_end = False
    marked = [rows.with_columns(pl.lit(False).alias(_END)), pl.LazyFrame({_END: [True]})]
    for frame in pl.concat(marked, how="diagonal").collect_batches(maintain_order=True):
        is_end = frame[_END].any()
        yield frame.drop(_END).head(frame.height - is_end)
    if not is_end:
        raise pl.exceptions.ComputeError("Polars must give all rows")


def _in_128_bits(leaf: pa.DataType) -> pa.DataType:
    """`leaf`; for a decimal of 256 bits that of 128, as Polars has it from a file. More than 38 digits are an error."""
    return pa.decimal128(leaf.precision, leaf.scale) if pa.types.is_decimal256(leaf) else leaf


def _read_by_polars(query: Query, schema: pl.Schema) -> list[pl.LazyFrame] | None:
    """All rows by Polars' own reader, which decodes several times as fast; None where some are excluded or differ.

    Each file must have the columns of `schema` in its types, except those of its folders, and no INT96 in nanoseconds:
    Polars 2.1 takes 9999-12-31 for the last of them, a day of 2262.
    """
    import polars as pl  # noqa: PLC0415 - an optional dependency

    view, fields = query.view, query.view.partition_fields
    dataset, names = view.dataset, {field.name for field in fields}
    is_whole = query.result.row_ranges.num_rows == view.universe.num_rows
    if not is_whole or dataset.is_remote or not isinstance(dataset, ParquetDataset):  # a table has deleted rows
        return None
    of_folders = _frame(rowless(pa.schema(fields))).schema
    if _PANICS.search(str(view.schema.types)) or any(schema.get(name) != kind for name, kind in of_folders.items()):
        return None
    in_files = {name: kind for name, kind in schema.items() if name not in names}
    parts: list[pl.LazyFrame] = []
    for values, group in groupby(sorted(view.listing), lambda path: dataset.partition_values(path, fields)):
        paths = list(group)
        files = [dataset.absolute(path) for path in paths]
        try:
            if values is None or any(pl.read_parquet_schema(file) != in_files for file in files) or view.int96_columns:
                return None
        except (OSError, DataFileError, pl.exceptions.PolarsError, pl.exceptions.PanicException):  # our reader tells
            return None
        literals = [pl.lit(value.as_py(), schema[name]).alias(name) for name, value in values.items()]
        parts.append(pl.scan_parquet(files, glob=False, hive_partitioning=False).with_columns(literals))
    return [pl.concat(parts[first : first + _FOLDERS]) for first in range(0, len(parts), _FOLDERS)] or None


def necessary(expression: pl.Expr, schema: pa.Schema, depth: int = _MAX_DEPTH) -> Predicate | None:
    """A predicate that is true in every row of a table of `schema` in which `expression` is; None if none is known.

    `expression` is as Polars hands it over, with its casts: it compares times in the coarser of two units.
    """
    operands = expression.meta.pop()[::-1] if depth else []
    if len(operands) == 1 and expression.meta.eq(operands[0].is_null()):
        name = _column(operands[0], schema)
        return None if name is None else IsNull(name)
    if len(operands) != 2:  # noqa: PLR2004 - binary
        return None
    left, right = operands
    joint = And if expression.meta.eq(left & right) else Or if expression.meta.eq(left | right) else None
    if joint is None:
        return _comparison(expression, left, right, schema)
    sides = [necessary(side, schema, depth - 1) for side in operands]
    necessary_sides = [side for side in sides if side is not None]
    return joint(necessary_sides) if necessary_sides and (joint is And or len(necessary_sides) == len(sides)) else None


def _comparison(expression: pl.Expr, left: pl.Expr, right: pl.Expr, schema: pa.Schema) -> Predicate | None:
    """The predicate of an equality of a column and a literal, or of an `is_in`; None for any other expression."""
    import polars as pl  # noqa: PLC0415 - an optional dependency

    column, literal = (left, right) if right.meta.is_literal(allow_aliasing=True) else (right, left)
    name = _column(column, schema)
    if name is None or not literal.meta.is_literal(allow_aliasing=True):
        return None
    values = pl.select(literal).to_series()
    is_list = isinstance(values.dtype, pl.List | pl.Array)
    if is_list:
        values = values.explode(empty_as_null=False)
    if values.dtype.is_nested():
        return None
    try:
        leaf = IsIn(name, values.to_arrow(compat_level=pl.CompatLevel.oldest()))
    except pa.ArrowInvalid:  # integers of 128 bits, which Arrow does not have
        return None
    if fit_values(leaf.values, resolve_column(schema, name).type).reason is not None:
        return None
    matches_null = expression.meta.eq(left.is_in(right, nulls_equal=True))
    if is_list and (matches_null or expression.meta.eq(left.is_in(right))):
        return Or((leaf, IsNull(name))) if matches_null and values.null_count() else leaf
    is_equality = expression.meta.eq(left == right) or expression.meta.eq(left.eq_missing(right))
    return leaf if is_equality and not is_list and len(values) == 1 and not values.null_count() else None


def _column(expression: pl.Expr, schema: pa.Schema) -> str | None:
    """The name of a column, or the dotted path of a struct's field; None if it is neither or ambiguous."""
    path: list[str] = []
    while not expression.meta.is_column():
        inner = expression.meta.pop()
        field = expression.meta.output_name(raise_if_undetermined=False)
        if len(inner) != 1 or field is None or not expression.meta.eq(inner[0].struct.field(field)):
            return None
        path.append(field)
        expression = inner[0]
    name = dotted([*path, expression.meta.output_name()][::-1])
    return name if name in schema.names or name in leaf_paths(schema) else None
