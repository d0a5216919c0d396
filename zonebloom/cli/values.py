"""Values in a file or on stdin: text, CSV, Arrow or Parquet, distinguished by their first bytes.

Text follows the library's rule for literals: a text that spells a value of the column's type is that value.
"""

from __future__ import annotations

import csv
import io
import re
import shlex
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa

from zonebloom.bloom.hashing import resolve_column
from zonebloom.cli.bytes_text import blob_of
from zonebloom.cli.options import read_input
from zonebloom.cli.output import read_table
from zonebloom.ground.arrow import is_bytes, is_text, type_name, unwrapped
from zonebloom.ground.errors import InvalidArgumentError
from zonebloom.predicates.coerce import fit_values
from zonebloom.predicates.coerce.texts import HEX_ID

_ARROW, _PARQUET = b"ARROW1\0\0", b"PAR1"
"""First bytes of Arrow files, and first and last bytes of Parquet files. A text may begin with either."""
_QUOTED = re.compile(r"""(["'])(.*)\1""", re.DOTALL)


def read_values(source: str, index: Any, column: str) -> pa.Array:
    """The values in the file `source`, or on stdin if `source` is `-`, for a column of the index's data set.

    `FILE:NAME` takes the column `NAME` of a file. By default it is the column of the same name, or the only column.

    Raises
    ------
    InvalidArgumentError
        The file cannot be read, or has no such column, or a line is not a value of the column's type.
    """
    wanted = unwrapped(resolve_column(index.view().schema, column).type, keeps_uuid=True)
    path, chosen = _chosen(source)
    try:
        data = read_input(path)
    except OSError as error:
        raise InvalidArgumentError(f"--values {path} cannot be read: {error.strerror}") from error
    if data.startswith(_ARROW) or data[:4] == data[-4:] == _PARQUET or path.endswith((".arrow", ".parquet")):
        table = read_table(path, data)
        is_only = chosen is None and table.num_columns == 1
        keys = table.column(0 if is_only else _place(table.column_names, chosen or column, path))
        return keys.combine_chunks()
    try:
        text = data.decode("utf-8-sig")  # a mark of the byte order is no part of the first value
    except UnicodeDecodeError as error:
        message = f"--values {path} is neither text of UTF-8 nor Arrow or Parquet: {error}"
        raise InvalidArgumentError(message) from error
    lines = _csv_values(text, chosen, column, wanted, path)
    return _typed(_lines(text) if lines is None else lines, wanted, path)


def _chosen(source: str) -> tuple[str, str | None]:
    """The file and the column's name in `source`; None if it names no column."""
    path, colon, name = source.rpartition(":")
    if not (colon and path and name) or Path(source).exists():
        return source, None
    return path, name


def _lines(text: str) -> list[tuple[int, str]]:
    """The numbered lines that are not empty, without blanks around them and without one pair of quotes."""
    numbered = enumerate(text.replace("\r\n", "\n").split("\n"), 1)  # splitlines() also cuts inside a value
    trimmed = [(number, line.strip(" \t\r")) for number, line in numbered]
    return [(number, _QUOTED.sub(r"\2", line) if _QUOTED.fullmatch(line) else line) for number, line in trimmed if line]


def _csv_values(
    text: str, chosen: str | None, column: str, wanted: pa.DataType, source: str
) -> list[tuple[int, str]] | None:
    """The values of a column of CSV with their line numbers; None if the text is not CSV with a header."""
    rows = csv.reader(io.StringIO(text, newline="\n"), strict=True)  # keeps line ends inside quotes
    try:
        header = next(rows, [])
    except csv.Error:
        header = []
    if chosen is None and column not in header and not source.endswith(".csv"):
        return None
    if chosen is None and len(header) == 1:
        place = 0
        _check_header(header[0], column, wanted, source)
    else:
        place = _place(header, chosen or column, source)
    values = []
    try:
        for row in rows:
            if row and len(row) != len(header):
                raise InvalidArgumentError(
                    f"line {rows.line_num} of {source} must have as many columns as the first, {len(header)}",
                    got=len(row),
                    do="put a value that has a comma in double quotes",
                )
            values += [(rows.line_num, row[place])] if row else []
    except csv.Error as error:
        raise InvalidArgumentError(f"line {rows.line_num} of {source} is not CSV: {error}") from error
    return values


def _check_header(name: str, column: str, wanted: pa.DataType, source: str) -> None:
    """Refuse a first line that is a value. If any line could be a value, report that the first is read as a header."""
    if name == column:
        return
    if is_text(wanted) or is_bytes(wanted):
        message = f"the first line of {source}, {name!r:.80}, is taken for a header"
        warnings.warn(f"{message}; name it {column}, or end the name of the file in .txt", RuntimeWarning, stacklevel=2)
    elif fit_values([name], wanted).reason is None:
        raise InvalidArgumentError(
            f"{source} has no header: its first line is the value {name!r:.80}", do="end the name of the file in .txt"
        )


def typed_value(text: str, wanted: pa.DataType, name: str) -> pa.Array:
    """The value of type `wanted` that `text` spells, as an array; `name` is the column in errors."""
    try:
        values = pa.array([blob_of(text)], wanted) if is_bytes(wanted) else fit_values([text], wanted).values
    except ValueError as error:
        raise InvalidArgumentError(f"{name} {text!r:.80} is no {type_name(wanted)}: {error}") from error
    if not len(values):
        raise InvalidArgumentError(f"{name} {text!r:.80} is no {type_name(wanted)}")
    return values


def _place(names: list[str], column: str, source: str) -> int:
    """The position of `column` among the columns of a file."""
    if names.count(column) > 1:
        raise InvalidArgumentError(f"{source} has the column {column} twice", do="rename one")
    if column in names:
        return names.index(column)
    shown = ", ".join(names) or "none"
    raise InvalidArgumentError(
        f"no column {column} in {source}, but {shown}",
        do=f"choose one by --values {source}:{(names[0] if names else 'NAME')}",
    )


def _typed(lines: list[tuple[int, str]], wanted: pa.DataType, source: str) -> pa.Array:
    """The lines as values of type `wanted`. An empty line is null if the type has no empty value."""
    if is_text(wanted):
        return pa.array([line for _, line in lines], pa.string())
    if is_bytes(wanted):
        if not pa.types.is_fixed_size_binary(wanted):
            _warn_of_hex(lines, source)
        return pa.array([_blob(line, wanted, number, source) for number, line in lines], pa.binary())
    texts = pa.array([line.strip(" \t") or None for _, line in lines], pa.string())
    if fit_values(texts, wanted).reason is not None:
        for (number, line), text in zip(lines, texts, strict=True):
            if fit_values([text], wanted).reason is not None:
                raise InvalidArgumentError(f"line {number} of {source}, {line!r:.80}, is no {type_name(wanted)}")
    return texts


def _warn_of_hex(lines: list[tuple[int, str]], source: str) -> None:
    """Warn if lines may spell bytes: for a column of bytes of any length, hex digits are read as text."""
    first = next((number for number, line in lines if re.match(HEX_ID, line)), None)
    if first is not None:
        message = f"hex digits are read as text, as in line {first} of {source}"
        do = f"bytes are written \\xC3\\x9D…, as sed 's/../\\\\x&/g' {shlex.quote(source)} does"
        warnings.warn(f"{message}; {do}", RuntimeWarning, stacklevel=2)


def _blob(line: str, wanted: pa.DataType, number: int, source: str) -> bytes | None:
    """The bytes of a line. For a column of n bytes, 2 n hex digits are read as bytes."""
    width = wanted.byte_width if pa.types.is_fixed_size_binary(wanted) else None
    if width and re.fullmatch(f"[0-9A-Fa-f]{{{2 * width}}}", line):
        return bytes.fromhex(line)
    try:
        value = blob_of(line)
    except ValueError as error:
        raise InvalidArgumentError(f"line {number} of {source}, {line!r:.80}, is not bytes as text: {error}") from error
    if width is None or len(value) == width:
        return value
    if not line:
        return None
    raise InvalidArgumentError(
        f"line {number} of {source}, {line!r:.80}, has {len(value)} bytes",
        do=f"write {width} bytes, or {2 * width} hex digits",
    )
