"""Parquet footers with other numbers in them, and files with other footers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import EllipsisType

from zonebloom.formats.parquet import thrift
from zonebloom.formats.parquet.thrift import Field

Edit = Callable[[Field | None], Field | None]
"""Of a field; None is one that is not there."""


def edited(written: bytes, path: Sequence[int | list[int] | EllipsisType], edit: Edit) -> bytes:
    """A struct of which the field at `path` is what `edit` makes of it.

    A number names a field; `...` means each struct of a list, and `[2]` its third.
    """
    place, *rest = path
    if not isinstance(place, int):
        wanted = place if isinstance(place, list) else range(1 << 20)
        structs = enumerate(thrift.written_structs(written))
        return thrift.structs([edited(each, rest, edit) if at in wanted else each for at, each in structs])[1]
    fields, _stop = thrift.written_fields(written, 0)
    old = fields.pop(place, None)
    new = (old[0], edited(old[1], rest, edit)) if rest else edit(old)
    return thrift.write_struct(dict(sorted((fields | ({place: new} if new else {})).items())))


def footer_of(path: Path) -> tuple[int, bytes]:
    """Where the footer begins, and the footer."""
    whole = path.read_bytes()
    length = int.from_bytes(whole[-8:-4], "little")
    return len(whole) - 8 - length, whole[-8 - length : -8]


def replace_footer(path: Path, edit: Callable[[bytes], bytes]) -> None:
    """Put the footer that `edit` makes of the file's own in its place."""
    start, footer = footer_of(path)
    footer = edit(footer)
    path.write_bytes(path.read_bytes()[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
