"""Values in a file or on stdin: text, CSV, Arrow, Parquet; told apart by what they begin with.

Text is compared by the library's one rule for literals: what spells a value of the column's type is that value.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zonebloom.cli.blobs import blob_of
from zonebloom.cli.output import read_table
from zonebloom.errors import InvalidArgumentError

if TYPE_CHECKING:
    import pyarrow as pa

_TABLES = (b"PAR1", b"ARROW1")


def read_values(source: str, index: Any, column: str) -> pa.Array:
    """The values in the file `source`, or on stdin where it is `-`, for a column of the index's data set.

    Raises
    ------
    InvalidArgumentError
        The file cannot be read, or has no such column, or a line is no value of the column's type.
    """
    from zonebloom.bloom.hashing import resolve_column  # noqa: PLC0415 - `--help` must not load Arrow

    wanted = resolve_column(index.view().schema, column).type
    try:
        data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise InvalidArgumentError(f"--values must be a readable file, got {source}: {error.strerror}") from error
    if data.startswith(_TABLES) or source.endswith((".arrow", ".parquet")):
        return _column_of(read_table(source, data), column, source)
    try:
        text = data.decode("utf-8-sig")  # a mark of the byte order is no part of the first value
    except UnicodeDecodeError as error:
        message = f"--values must be text of UTF-8, CSV, Arrow or Parquet, got {source}: {error}"
        raise InvalidArgumentError(message) from error
    lines = _csv_lines(text, column, source)
    if lines is None:  # splitlines() also cuts at characters inside a value
        lines = list(enumerate(text.replace("\r\n", "\n").split("\n"), 1))
    return _typed([(number, line) for number, line in lines if line], wanted, source)


def _csv_lines(text: str, column: str, source: str) -> list[tuple[int, str]] | None:
    """The values of `column`, with their line numbers; None where the text is no CSV with a header that has it."""
    import csv  # noqa: PLC0415 - a search of one key does without

    rows = csv.reader(io.StringIO(text, newline="\n"))  # which keeps line ends inside quotes
    try:
        header = next(rows, [])
    except csv.Error:
        header = []
    if column not in header and not source.endswith(".csv"):
        return None
    place = _place(header, column, source)
    try:
        return [(rows.line_num, row[place]) for row in rows if len(row) > place]
    except csv.Error as error:
        raise InvalidArgumentError(f"--values must be CSV, got line {rows.line_num} of {source}: {error}") from error


def typed_value(text: str, wanted: pa.DataType, name: str) -> pa.Array:
    """The value of type `wanted` that `text` stands for, as an array; `name` says in an error whose it is."""
    import pyarrow as pa  # noqa: PLC0415 - `--help` must not load Arrow

    from zonebloom.arrow import is_text, type_name  # noqa: PLC0415 - as above

    try:
        if _is_blob(wanted):
            return pa.array([blob_of(text)], wanted)
        array = pa.array([text], pa.string())
        return array if is_text(wanted) else array.cast(wanted)
    except (ValueError, pa.ArrowNotImplementedError) as error:
        raise InvalidArgumentError(f"{name} must be of the type {type_name(wanted)}, got: {error}") from error


def _column_of(table: pa.Table, column: str, source: str) -> pa.Array:
    found = table.column(_place(table.column_names, column, source) if table.num_columns != 1 else 0)
    return found.combine_chunks()


def _place(names: Sequence[str], column: str, source: str) -> int:
    """Where `column` is among the columns of a file."""
    if column in names:
        return list(names).index(column)
    shown = ", ".join(names) or "none"
    raise InvalidArgumentError(f"--values must have a column {column}, got {source} with {shown}; rename one")


def _typed(lines: list[tuple[int, str]], wanted: pa.DataType, source: str) -> pa.Array:
    """The lines as values for a column of the type `wanted`."""
    import pyarrow as pa  # noqa: PLC0415 - `--help` must not load Arrow

    from zonebloom.arrow import is_text, type_name  # noqa: PLC0415 - as above
    from zonebloom.predicates.coerce import fit_values  # noqa: PLC0415 - as above

    if is_text(wanted):
        return pa.array([line for _, line in lines], pa.string())
    if _is_blob(wanted):
        return pa.array([_blob(line, number, source) for number, line in lines], pa.binary())
    plain = [(number, line.strip(" \t\"'")) for number, line in lines]
    texts = pa.array([line for _, line in plain], pa.string())
    if fit_values(texts, wanted).reason is not None:
        for number, line in plain:
            if fit_values([line], wanted).reason is not None:
                message = f"each value must be of the type {type_name(wanted)}, got {line!r:.80}"
                raise InvalidArgumentError(f"{message} in line {number} of {source}")
    return texts


def _blob(line: str, number: int, source: str) -> bytes:
    try:
        return blob_of(line)
    except ValueError as error:
        raise InvalidArgumentError(
            f"line {number} of {source} must be bytes as text, got {line!r:.80}: {error}"
        ) from error


def _is_blob(column_type: pa.DataType) -> bool:
    import pyarrow as pa  # noqa: PLC0415 - `--help` must not load Arrow

    is_kind = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    return any(check(column_type) for check in is_kind)
