"""Rendering of results: the same facts as text, as JSON for programs, and as HTML for notebooks and the report.

A result has a headline, facts (names and values), tables and notes. `as_text` and `as_html` show these. HTML elements
have no style, so a notebook shows them in its own colours, light or dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, NamedTuple, TypeVar

from zonebloom.ground.reasons import percent, wrapped

_NUMBER = "style='text-align:right;white-space:nowrap'"
_TEXT = "style='text-align:left'"
_BAR_CELLS = 20
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_ItemT = TypeVar("_ItemT", bound="Result")


class Share(NamedTuple):
    """A part of a whole, shown as a number and as a bar."""

    part: int
    whole: int

    def __str__(self) -> str:
        return percent(self.part, self.whole)

    @property
    def bar(self) -> str:
        """The share as a bar of characters; any part has at least one."""
        return "█" * -(-_BAR_CELLS * self.part // max(self.whole, 1))


class Whole(str):
    """A line that is never wrapped, such as a command to copy."""

    __slots__ = ()


class Table(NamedTuple):
    """Rows of numbers, texts and shares; a share takes two columns, and the header names both."""

    header: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def lines(self, *, is_rich: bool = False) -> Iterator[str]:
        """The table as aligned lines; numbers are right-aligned, and on a terminal shares have bars."""
        texts = [[text for cell in row for text in _cell_texts(cell, is_rich=is_rich)] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(self.header, *texts, strict=True)]
        for row in (self.header, *texts):
            cells = zip(row, widths, self._is_right(), strict=True)
            yield "  ".join(f"{cell:{'>' if right else '<'}{width}}" for cell, width, right in cells).rstrip()

    def html(self) -> str:
        """The table for a notebook."""
        styles = (_NUMBER if is_right else _TEXT for is_right in self._is_right())
        named = zip(self.header, styles, strict=True)
        names = "".join(f"<th scope='col' {style}>{_escaped(name)}</th>" for name, style in named)
        body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in self.rows)
        return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"

    def _is_right(self) -> list[bool]:
        """Whether each column is right-aligned."""
        is_right = [is_right for cell in self.rows[0] for is_right in _is_right(cell)] if self.rows else []
        return is_right + [False] * (len(self.header) - len(is_right))


class Result:
    """The result of a call: `to_dict()` for programs, `str()` for people, and a table in a notebook.

    A result is a dataclass. Its JSON has its fields. Its facts and tables are for people; by default they show the
    fields.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]
    _derived: tuple[str, ...] = ()
    """Properties that the JSON has besides the fields."""

    def to_dict(self) -> dict[str, Any]:
        """The result as an object for JSON."""
        names = (*self._derived, *self.__dataclass_fields__)
        return {name: plain(getattr(self, name)) for name in names}

    @property
    def headline(self) -> str:
        """The result in a sentence."""
        return type(self).__name__

    def facts(self) -> Iterator[tuple[str, Any]]:
        """Names and values, for people."""
        values = ((name, getattr(self, name)) for name in self.__dataclass_fields__)
        return ((label(name), value) for name, value in values if value != () and not _are_results(value))

    def tables(self) -> Iterator[Table]:
        """Tables of the result."""
        values = (getattr(self, name) for name in self.__dataclass_fields__)
        return (Results(value).table() for value in values if _are_results(value))

    def notes(self) -> Iterable[str]:
        """Sentences, such as reasons and damage."""
        return ()

    def __init_subclass__(cls) -> None:
        cls.__repr__ = Result.__repr__  # type: ignore[method-assign] # a dataclass keeps it, and makes none of its own

    def __str__(self) -> str:
        return as_text(self)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """For notebooks."""
        return as_html(self)


class Results(list[_ItemT]):
    """A list of results of one kind, shown as a table."""

    def table(self) -> Table:
        """A row for each result, a column for each field of its `repr`."""
        names = [name for name, field in self[0].__dataclass_fields__.items() if field.repr] if self else []
        return Table(list(map(label, names)), [[getattr(result, name) for name in names] for result in self])

    def __str__(self) -> str:
        return "\n".join(self.table().lines()) or "none"

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return self.table().html()


def label(name: str) -> str:
    """The name of a field, for people."""
    return name.removeprefix("num_").removeprefix("is_").replace("_", " ")


def plain(value: Any) -> Any:
    """`value` converted to types of JSON: numbers, texts, lists and objects."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def text(value: Any) -> str:
    """`value` for people: thousands separators, three digits of a fraction, UTC to the second."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"  # noqa: PLR2004 - no 1.23e+03
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}Z"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {text(inner)}" for name, inner in value.items())
    if isinstance(value, (list, tuple)) and not isinstance(value, Share):
        return ", ".join(shortened(map(text, value), 8)) or "none"
    return str(value)


def shortened(items: Iterable[str], count: int) -> list[str]:
    """The first `count` of `items`, and how many more there are."""
    listed_items = list(items)
    more = len(listed_items) - count
    return listed_items if more <= 0 else [*listed_items[:count], f"and {more:,} more"]


def as_text(result: Result, *, is_rich: bool = False) -> str:
    """The result in lines of 80 columns; `is_rich` is for a terminal: a bold headline, and bars of shares."""
    bold, end = (_BOLD, _PLAIN) if is_rich else ("", "")
    facts_shown = list(result.facts())
    width = max((len(name) for name, _ in facts_shown), default=0)
    values = ((name, text(value)) for name, value in facts_shown)
    lines = ((f"  {name:<{width}}  {value}", " " in value) for name, value in values)
    facts_lines = (part for line, is_wrapped in lines for part in (wrapped([line]) if is_wrapped else [line]))
    rows = (f"  {line}" for shown in result.tables() for line in shown.lines(is_rich=is_rich))
    headline = (f"{bold}{line}{end}" for line in wrapped([result.headline]))
    notes = (
        line for note in result.notes() for line in ([note] if isinstance(note, Whole) else wrapped([f"  {note}"]))
    )
    return "\n".join([*headline, *facts_lines, *rows, *notes])


def as_html(result: Result) -> str:
    """The result for a notebook."""
    shown = dict(result.facts())
    tables = (table.html() for table in result.tables())
    return headed(result.headline, *([facts(shown)] if shown else []), *tables, listed(result.notes()))


def _is_right(cell: Any) -> tuple[bool, ...]:
    return (True, False) if isinstance(cell, Share) else (isinstance(cell, (int, float)),)


def _are_results(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and bool(value) and isinstance(value[0], Result)


def _cell_texts(cell: Any, *, is_rich: bool) -> tuple[str, ...]:
    return (text(cell), cell.bar if is_rich else "") if isinstance(cell, Share) else (text(cell),)


# --- HTML -------------------------------------------------------------------------------------------------------------


def _escaped(value: Any) -> str:
    from html import escape  # noqa: PLC0415 - a plain search shows no HTML

    return escape(str(value))


def _cell(value: Any) -> str:
    if isinstance(value, Share):
        bar = f"<progress max='{max(value.whole, 1)}' value='{value.part}'></progress>"
        return f"<td {_NUMBER}>{value}</td><td>{bar}</td>"
    style = _NUMBER if isinstance(value, (int, float)) and not isinstance(value, bool) else _TEXT
    return f"<td {style}>{_escaped(text(value))}</td>"


def facts(pairs: Mapping[str, Any]) -> str:
    """A table of names and values."""
    rows = (
        f"<tr><th scope='row' {_TEXT}>{_escaped(name)}</th>{_cell(text(value))}</tr>" for name, value in pairs.items()
    )
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def headed(title: str, *parts: str) -> str:
    """Parts under a title in bold."""
    return f"<div><strong>{_escaped(title)}</strong>{''.join(parts)}</div>"


def listed(texts: Iterable[str]) -> str:
    """A list; empty if there are no texts."""
    items = "".join(f"<li>{_escaped(item)}</li>" for item in texts)
    return f"<ul>{items}</ul>" if items else ""


# --- the funnel -------------------------------------------------------------------------------------------------------


def named_count(name: str) -> str:
    """The name of a count of `Counts`, for people: a scan reads pages, so it reads fewer bytes than row groups have."""
    return "bytes of row groups" if name == "bytes" else name


def funnel(kept: Mapping[str, int], total: Mapping[str, int]) -> Table:
    """Kept and total files, zones, rows and bytes, by name."""
    rows = [(named_count(name), kept[name], total[name], Share(kept[name], total[name])) for name in kept]
    return Table(("", "kept", "of", "share", ""), rows)
