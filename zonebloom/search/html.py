"""HTML of what people look at in a notebook and in a report: tables of texts and numbers, and bars of shares.

Plain elements without style of their own, so that a notebook shows them in its colours, light or dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from zonebloom.reasons import Reason, summed_up

if TYPE_CHECKING:
    from zonebloom.search.result import SearchResult


_NUMBER = "style='text-align:right;white-space:nowrap'"


class Share(NamedTuple):
    """A part of a whole, shown as numbers and as a bar."""

    part: int
    whole: int

    def __str__(self) -> str:
        return f"{self.part / self.whole:.4%}" if self.whole else "-"


def _cell(value: Any) -> str:
    """Numbers stand to the right, with separators of thousands."""
    if isinstance(value, Share):
        bar = f"<progress max='{max(value.whole, 1)}' value='{value.part}'></progress>"
        return f"<td {_NUMBER}>{value}</td><td>{bar}</td>"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"<td {_NUMBER}>{value:,}</td>"
    return f"<td style='text-align:left'>{escape(str(value))}</td>"


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table; a column of shares takes two, its name is that of the first."""
    names = "".join(f"<th scope='col' style='text-align:left'>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def facts(pairs: Mapping[str, Any]) -> str:
    """A table of names and values."""
    texts = {name: f"{one:,}" if isinstance(one, int) else str(one) for name, one in pairs.items()}
    rows = (
        f"<tr><th scope='row' style='text-align:left'>{escape(name)}</th>{_cell(text)}</tr>"
        for name, text in texts.items()
    )
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def paragraph(text: str) -> str:
    """A paragraph."""
    return f"<p>{escape(text)}</p>"


def headed(title: str, *parts: str) -> str:
    """Parts under a title in bold."""
    return f"<div><strong>{escape(title)}</strong>{''.join(parts)}</div>"


def listed(texts: Iterable[str]) -> str:
    """A list; nothing of an empty one."""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def reasons_list(reasons: Iterable[Reason]) -> str:
    """A line for each kind of reason."""
    return listed(summed_up(reasons))


def funnel(found: SearchResult) -> str:
    """What is kept of files, zones, rows and bytes."""
    kept, total = found.kept.to_dict(), found.total.to_dict()
    rows = [(name, kept[name], total[name], Share(kept[name], total[name])) for name in kept]
    return table(("", "kept", "of", "share", ""), rows)
