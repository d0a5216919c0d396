"""What commands print, and the files that they read and write."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zonebloom import errors
from zonebloom.cli.blobs import blob_of, text_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "print_csv",
    "print_info",
    "print_json",
    "printable",
    "python_rows",
    "read_table",
    "read_values",
    "typed_values",
    "write_table",
]


def print_json(document: Any, *, indent: int | None = 2) -> None:
    """`document` on stdout; what is no number becomes null."""
    try:
        text = json.dumps(document, indent=indent, ensure_ascii=False, default=_shown, allow_nan=False)
    except ValueError:  # JSON has no NaN and no infinity
        text = json.dumps(_without_nan(document), indent=indent, ensure_ascii=False, default=_shown)
    click.echo(text)


def _shown(value: Any) -> str:
    """What JSON has no form of, as text."""
    return text_of(value) if isinstance(value, bytes) else str(value)


def _without_nan(value: Any) -> Any:
    """`value` with null for each float that is not finite, as JavaScript has it."""
    if isinstance(value, dict):
        return {key: _without_nan(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_info(found: dict[str, Any]) -> None:
    """The columns of `Index.info()`."""
    for column in found["columns"]:
        click.echo(
            f"  {column['name']} {column['type']}: {column['num_zones']:,} zones of {column['rows_per_zone']:,} rows, "
            f"fpp {column['fpp']}, {column['sizing']}, {column['index_bytes']:,} bytes "
            f"({column['bytes_per_row']:.2f} a row) in {_kinds(column['kinds'])}"
        )
        for level in column["levels"]:
            click.echo(
                f"    level {level['name']}: {level['num_filters']:,} filters of {level['num_values']:,} values, "
                f"fpp {level['fpp']:.2g}, {level['index_bytes']:,} bytes"
            )


def _kinds(kinds: dict[str, int]) -> str:
    parts = [f"{count} {kind.rstrip('s')} segment{'s' if count > 1 else ''}" for kind, count in kinds.items()]
    return " and ".join(parts) or "no segments"


def print_csv(reader: pa.RecordBatchReader) -> None:
    """All rows on stdout."""
    import csv  # noqa: PLC0415 - only here

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(reader.schema.names)
    for batch in reader:
        writer.writerows([printable(value) for value in row.values()] for row in python_rows(batch))


def printable(value: Any) -> Any:
    """`value`, as Python has it, with bytes as the text of them, inside lists and structs too."""
    if isinstance(value, bytes):
        return text_of(value)
    if isinstance(value, dict):
        return {key: printable(one) for key, one in value.items()}
    if type(value) in (list, tuple):  # intervals are tuples too, with names
        return type(value)(map(printable, value))
    return value


def python_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of `batch`; times in nanoseconds, which Python has none of, as text."""
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
    except ValueError:
        from zonebloom.arrow import python_value  # noqa: PLC0415 - rarely needed

        names = batch.schema.names
        rows = [{name: python_value(batch[name][i]) for name in names} for i in range(batch.num_rows)]
    return rows


def read_values(path: Path, index: Any, column: str) -> pa.Array:
    """The values of a file: lines, or the first column of a table."""
    if path.suffix in (".arrow", ".parquet"):
        table = read_table(path)
        if not table.num_columns:
            raise errors.InvalidArgumentError(f"--values must have a column, got {path}, which has none")
        return table.column(0).combine_chunks()
    try:
        text = path.read_text(encoding="utf-8-sig")  # a mark of the byte order is no part of the first value
        lines = text.split("\n")  # splitlines() also cuts at characters inside a value
    except (OSError, UnicodeDecodeError) as error:
        raise errors.InvalidArgumentError(f"--values must be a readable file of UTF-8, got {path}: {error}") from error
    wanted = index.column_type(column)
    return typed_values([line for line in lines if line], wanted, f"each line of {path}")


def typed_values(texts: list[str], wanted: pa.DataType, name: str) -> pa.Array:
    """The values of type `wanted` that `texts` stand for; `name` says in an error whose they are."""
    import pyarrow as pa  # noqa: PLC0415 - `--help` must not load Arrow

    try:
        if _is_blob(wanted):
            return pa.array([blob_of(text) for text in texts], wanted)
        array = pa.array(texts, pa.string())
        return array if pa.types.is_string(wanted) or pa.types.is_large_string(wanted) else array.cast(wanted)
    except (ValueError, pa.ArrowNotImplementedError) as error:
        raise errors.InvalidArgumentError(f"{name} must be a {wanted}, got: {error}") from error


def _is_blob(column_type: pa.DataType) -> bool:
    import pyarrow as pa  # noqa: PLC0415 - `--help` must not load Arrow

    is_kind = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    return any(check(column_type) for check in is_kind)


def write_table(table: pa.Table, path: Path) -> None:
    """`table` as the file that the ending of `path` names."""
    import pyarrow as pa  # noqa: PLC0415 - `--help` must not load Arrow
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    if path.suffix not in (".arrow", ".parquet"):
        raise errors.InvalidArgumentError(f"--output must end in .arrow or .parquet, got {path}")
    try:
        if path.suffix == ".parquet":
            pq.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)
        else:
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
    except OSError as error:
        raise errors.StorageError(f"cannot write {path}: {error}") from error


def read_table(path: Path) -> pa.Table:
    """The table in a file of Arrow or Parquet."""
    import pyarrow as pa  # noqa: PLC0415 - `--help` must not load Arrow
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    try:
        if path.suffix == ".parquet":
            return pq.ParquetFile(path).read()
        with pa.OSFile(str(path), "rb") as source:
            return pa.ipc.open_file(source).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise errors.DataFileError(f"{path} must be an Arrow or Parquet file, got: {error}") from error
