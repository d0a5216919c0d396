"""What commands print, and the files that they read and write."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zonebloom import errors
from zonebloom.cli.blobs import text_of
from zonebloom.cli.options import is_json
from zonebloom.reasons import counted, summed_up

if TYPE_CHECKING:
    import pyarrow as pa

    from zonebloom.reasons import Reason


def say(document: Any, *lines: str, err: bool = False) -> None:
    """`document` as JSON on stdout, or `lines` for people, as `--format` asks; `err` says these on stderr."""
    if is_json():
        print_json(document)
        return
    for line in lines:
        click.echo(line, err=err)


def print_json(document: Any, *, indent: int | None = 2) -> None:
    """`document` on stdout; what is no number becomes null."""
    try:
        text = json.dumps(document, indent=indent, ensure_ascii=False, default=_shown, allow_nan=False)
    except ValueError:  # JSON has no NaN and no infinity
        text = json.dumps(_without_nan(document), indent=indent, ensure_ascii=False, default=_shown)
    click.echo(text)


def print_list(rows: Iterable[Any]) -> None:
    """A JSON array on stdout, one element a line."""
    shown = [json.dumps(_without_nan(row), ensure_ascii=False, default=_shown) for row in rows]
    click.echo("[\n" + ",\n".join(shown) + "\n]" if shown else "[]")


def print_aligned(rows: Sequence[Sequence[str]]) -> None:
    """Columns that line up; numbers are the caller's texts."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def print_reasons(reasons: Iterable[Reason]) -> None:
    """A line on stderr for each kind of reason."""
    from zonebloom.cli.root import as_command  # noqa: PLC0415 - the root has no need of what prints

    for line in summed_up(reasons):
        click.echo(as_command(line), err=True)


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
    """The columns of `Index.info()`, and on stderr how many files were skipped for their names."""
    for column in found["columns"]:
        click.echo(
            f"  {column['name']} {column['type']}: {counted(column['num_zones'], 'zone')} "
            f"of {counted(column['rows_per_zone'], 'row')}\n"
            f"    fpp {column['fpp']}, {column['sizing']}; {column['index_bytes']:,} bytes "
            f"({column['bytes_per_row']:.2f} a row) in {_kinds(column['kinds'])}"
        )
        for level in column["levels"]:
            click.echo(
                f"    level {level['name']}: {counted(level['num_filters'], 'filter')} "
                f"of {counted(level['num_values'], 'value')}\n"
                f"      fpp {level['fpp']:.2g}, {level['index_bytes']:,} bytes"
            )
    if found["num_skipped_files"]:
        skipped = counted(found["num_skipped_files"], "Parquet file")
        click.echo(f"{skipped} skipped (names that begin with _ or .)", err=True)


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
    """The rows of `batch`; times that Python has none of, in nanoseconds or after the year 9999, as text."""
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
    except (ValueError, OverflowError):
        from zonebloom.arrow import python_value  # noqa: PLC0415 - rarely needed

        names = batch.schema.names
        rows = [{name: python_value(batch[name][i]) for name in names} for i in range(batch.num_rows)]
    return rows


def write_table(rows: pa.RecordBatchReader | pa.Table, path: Path) -> int:
    """Write `rows` as the file that the ending of `path` names, whole or not at all; how many they are."""
    import pyarrow as pa  # noqa: PLC0415 - `--help` must not load Arrow
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    part = path.with_name(f".{path.name}.part")
    batches = rows.to_batches() if isinstance(rows, pa.Table) else rows
    num_rows = 0
    try:
        with contextlib.ExitStack() as opened:
            if path.suffix == ".parquet":
                plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
                writer = opened.enter_context(pq.ParquetWriter(part, rows.schema, **plain))
            else:
                sink = opened.enter_context(pa.OSFile(str(part), "wb"))
                writer = opened.enter_context(pa.ipc.new_file(sink, rows.schema))
            for batch in batches:
                writer.write_batch(batch)
                num_rows += batch.num_rows
        part.replace(path)
    except OSError as error:
        raise errors.StorageError(f"cannot write {path}: {error}") from error
    finally:
        part.unlink(missing_ok=True)
    return num_rows


def read_table(path: str, data: bytes) -> pa.Table:
    """The table in `data`, which is a file of Arrow or Parquet."""
    import pyarrow as pa  # noqa: PLC0415 - `--help` must not load Arrow
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    source = pa.BufferReader(data)
    try:
        if data.startswith(b"PAR1"):
            return pq.ParquetFile(source).read()
        return pa.ipc.open_file(source).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise errors.DataFileError(f"{path} must be an Arrow or Parquet file, got: {error}") from error
