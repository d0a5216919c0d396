"""The output of commands, and the files that they read and write."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from zonebloom.cli.bytes_text import text_of
from zonebloom.cli.options import is_json
from zonebloom.ground.errors import DataFileError, first_line
from zonebloom.ground.rendering import as_text
from zonebloom.stores.output_file import written_whole

if TYPE_CHECKING:
    import pyarrow as pa

    from zonebloom.ground.rendering import Result
    from zonebloom.index.index import Index


def show(result: Result) -> None:
    """Print a result on stdout in the format of `--format`."""
    say(result.to_dict(), shown(result))


def shown(result: Result) -> str:
    """The text of a result; on a terminal with bold type and bars."""
    return as_text(result, is_rich=sys.stdout.isatty() and not os.environ.get("NO_COLOR"))


def say(document: Any, *lines: str, err: bool = False) -> None:
    """Print `document` as JSON, or `lines` for people, by `--format`. With `err` the lines are printed on stderr."""
    if is_json():
        print_json(document)
        return
    for line in lines:
        click.echo(line, err=err)


def say_done(index: Index, started: float, document: Mapping[str, Any], *lines: str) -> None:
    """As `say`, for work on an index: the JSON is a line for a log, with time, seconds since `started`, and index."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    seconds = round(time.perf_counter() - started, 3)
    say({"at": now, "seconds": seconds, "index": index.location, **document}, *lines)


def print_json(document: Any) -> None:
    """Print `document` on stdout in one line; NaN and infinities become null."""
    try:
        text = json.dumps(document, ensure_ascii=False, default=_shown, allow_nan=False)
    except ValueError:  # JSON has no NaN and no infinity
        text = json.dumps(_without_nan(document), ensure_ascii=False, default=_shown)
    click.echo(text)


def print_list(rows: Iterable[Any]) -> None:
    """Print a JSON array on stdout, one element a line."""
    shown = [json.dumps(_without_nan(row), ensure_ascii=False, default=_shown) for row in rows]
    click.echo("[\n" + ",\n".join(shown) + "\n]" if shown else "[]")


def _shown(value: Any) -> str:
    """The text of a value that JSON cannot represent."""
    return str(printable(value))


def _without_nan(value: Any) -> Any:
    """`value` with null for each float that is not finite, like in JavaScript."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_csv(reader: pa.RecordBatchReader, stream: TextIO) -> int:
    """Write all rows; return their number."""
    import csv  # noqa: PLC0415 - only here

    plain = csv.writer(stream, lineterminator="\n")
    quoted = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_ALL)

    def write(row: Iterable[Any]) -> None:
        values = list(map(printable, row))
        has_return = any(type(value) is str and "\r" in value for value in values)  # before Python 3.13 not quoted
        (quoted if has_return else plain).writerow(values)

    write(reader.schema.names)
    num_rows = 0
    for batch in reader:
        num_rows += batch.num_rows
        for row in python_rows(batch):
            write(row.values())
    return num_rows


def printable(value: Any) -> Any:
    """The Python value `value` with bytes as text, inside lists and structs too.

    A time before standard time has an offset with seconds in its zone, which ISO 8601 does not have. It is in UTC.
    """
    if isinstance(value, bytes):
        return text_of(value)
    if isinstance(value, datetime) and (value.utcoffset() or timedelta()).seconds % 60:
        return value.astimezone(UTC)
    if isinstance(value, dict):
        return {key: printable(item) for key, item in value.items()}
    if type(value) in (list, tuple):  # intervals are tuples too, with names
        return type(value)(map(printable, value))
    return value


def python_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of `batch`. Times that Python cannot represent (nanoseconds, or after the year 9999) are text."""
    import pyarrow as pa  # noqa: PLC0415 - `--help` must not load Arrow

    from zonebloom.ground.arrow import python_value, with_leaves  # noqa: PLC0415 - as above

    def without_cuts(leaf: pa.DataType) -> pa.DataType:
        return pa.string() if pa.types.is_time(leaf) else leaf  # pyarrow 26 cuts nanoseconds, and takes 24:00 for 00:00

    kinds = [field.with_type(with_leaves(field.type, without_cuts)) for field in batch.schema]
    if kinds != list(batch.schema):
        batch = batch.cast(pa.schema(kinds))
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
    except (ValueError, OverflowError):
        names = batch.schema.names
        rows = [{name: python_value(batch[name][i]) for name in names} for i in range(batch.num_rows)]
    return rows


def write_table(rows: pa.RecordBatchReader | pa.Table, path: Path) -> int:
    """Write `rows` to `path`, whole or not at all, in the format of its ending; return their number."""
    reader = rows if hasattr(rows, "read_next_batch") else rows.to_reader()
    with written_whole(path) as staged:
        if path.suffix != ".csv":
            return _write_binary(reader, staged, path.suffix)
        with staged.open("w", encoding="utf-8", newline="") as stream:
            return write_csv(reader, stream)


def _write_binary(reader: pa.RecordBatchReader, path: Path, ending: str) -> int:
    import pyarrow as pa  # noqa: PLC0415 - `--help` must not load Arrow
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    from zonebloom.ground.arrow import schema_without_views  # noqa: PLC0415 - as above

    num_rows, schema = 0, reader.schema
    with contextlib.ExitStack() as opened:
        if ending == ".parquet":
            plain_types = schema_without_views(schema)  # pyarrow 26 writes no views within structs
            schema = plain_types.with_metadata(schema.metadata)
            plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
            writer = opened.enter_context(pq.ParquetWriter(path, schema, **plain))
        else:
            plain_fields = [field.with_type(_without_dictionaries(field.type)) for field in schema]
            schema = pa.schema(plain_fields, schema.metadata)
            sink = opened.enter_context(pa.OSFile(str(path), "wb"))
            writer = opened.enter_context(pa.ipc.new_file(sink, schema))
        for batch in reader:
            writer.write_batch(batch if batch.schema == schema else batch.cast(schema))
            num_rows += batch.num_rows
    return num_rows


def _without_dictionaries(of: pa.DataType) -> pa.DataType:
    """The type of the same values: an Arrow file has one dictionary for all batches."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    from zonebloom.ground.arrow import with_inner  # noqa: PLC0415 - as above

    if pa.types.is_dictionary(of):
        return _without_dictionaries(of.value_type)
    if not pa.types.is_nested(of):
        return of
    inner = (of.field(number) for number in range(of.num_fields))
    return with_inner(of, [field.with_type(_without_dictionaries(field.type)) for field in inner])


def read_table(path: str, data: bytes) -> pa.Table:
    """The table in `data`, the bytes of an Arrow or Parquet file."""
    import pyarrow as pa  # noqa: PLC0415 - `--help` must not load Arrow
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    source = pa.BufferReader(data)
    try:
        if data.startswith(b"PAR1"):
            return pq.ParquetFile(source).read()
        return pa.ipc.open_file(source).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise DataFileError(f"{path} must be an Arrow or Parquet file", got=first_line(error)) from error
