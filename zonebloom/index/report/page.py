"""The page of a report: `page.html` filled with the tables of a `Content`, and with the numbers that its map draws."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from string import Template

import numpy as np

from zonebloom.ground.reasons import counted, percent
from zonebloom.ground.rendering import Results, Share, Table, as_html, listed
from zonebloom.index.report.content import Content, FileState, KeptRanges
from zonebloom.search.explain import Explanation
from zonebloom.storage.options import has_bloom

_LONGEST_CONDITION = 100
_LONGEST_TABLE = 50


def page(content: Content) -> str:
    """The page, as HTML that needs no other file."""
    parts = {
        "title": escape(content.status.dataset),
        "made_at": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "headlines": "".join(_headlines(content)),
        "choice": _choice(content),
        "conditions": "".join(_conditions(content)),
        "columns": _columns(content),
        "coverage": _coverage(content),
        "status": as_html(content.status),
        "versions": _versions(content),
        "data": _drawing(content),
    }
    template = Template(files("zonebloom.index.report").joinpath("page.html").read_text("utf-8"))
    return template.substitute(parts)


def _shortened(predicate: str) -> str:
    return predicate if len(predicate) <= _LONGEST_CONDITION else f"{predicate[: _LONGEST_CONDITION - 1]}…"


def _headlines(content: Content) -> Iterator[str]:
    """How much each condition skips; without a condition, how much the index covers."""
    if not content.searches:
        status = content.status
        num_indexed = status.num_files - status.num_new - status.num_changed
        yield f"<p class='headline'>{num_indexed:,} of {counted(status.num_files, 'file')} indexed as they are</p>"
    for number, search in enumerate(content.searches):
        kept, total = search.result.kept, search.result.total
        skipped = f"{percent(total.rows - kept.rows, total.rows)} of {counted(total.rows, 'row')} need not be read"
        headline = skipped if search.result.row_ranges else search.result.headline
        said = f"{escape(headline)}<br><code>{escape(_shortened(search.predicate))}</code>"
        yield f"<p class='headline' data-condition='{number}'>{said}</p>"


def _choice(content: Content) -> str:
    options = [
        f"<option value='{number}'>{number + 1}: {escape(_shortened(search.predicate))}</option>"
        for number, search in enumerate(content.searches)
    ]
    return f"<label>Condition <select id='condition'>{''.join(options)}</select></label>" if options else ""


def _conditions(content: Content) -> Iterator[str]:
    """A table of all conditions if there are several, and the explanation of each; the page shows the chosen one."""
    if not content.searches:
        return
    yield "<section><h2>What each condition reads</h2>"
    if len(content.searches) > 1:
        rows = [_row(number, search) for number, search in enumerate(content.searches, 1)]
        yield f"<div class='wide'>{Table(('', 'condition', 'answer', 'rows kept', 'share', ''), rows).html()}</div>"
    for number, search in enumerate(content.searches):
        yield f"<div class='wide' data-condition='{number}'>{as_html(search)}</div>"
    yield "</section>"


def _row(number: int, search: Explanation) -> tuple[object, ...]:
    kept, total = search.result.kept, search.result.total
    answer = search.result.kind if search.result.row_ranges else "certainly nowhere"
    return (number, _shortened(search.predicate), answer, kept.rows, Share(kept.rows, total.rows))


def _columns(content: Content) -> str:
    header = ("column", "type", "kind", "zones", "rows a zone", "fpp asked", "fpp measured", "bytes", "bytes a row")
    rows = [
        (
            entry.name,
            entry.column_type,
            entry.kind,
            entry.num_zones,
            entry.rows_per_zone,
            f"{entry.fpp:.3g}" if has_bloom(entry.kind) else "-",
            f"{fpps.mean():.3g} ({fpps.min():.2g} to {fpps.max():.2g})" if len(fpps) else "-",
            entry.index_bytes,
            entry.index_bytes / max(content.status.num_rows, 1),
            Share(entry.index_bytes, content.data_bytes),
        )
        for entry, fpps in content.columns
    ]
    return Table((*header, "of the data", ""), rows).html()


def _coverage(content: Content) -> str:
    """The files by their state, and when they were written."""
    drawn = content.files
    states = np.array(drawn.states, dtype=object)
    rows = []
    for state in FileState:
        is_state = states == state
        if is_state.any():
            num_rows, times = int(drawn.num_rows[is_state].sum()), drawn.written_at[is_state]
            first, last = (datetime.fromtimestamp(at / 1e3, UTC) for at in (times.min(), times.max()))
            rows.append((state, int(is_state.sum()), num_rows, Share(num_rows, int(drawn.num_rows.sum())), first, last))
    header = ("", "files", "rows", "share", "", "first written", "last written")
    return Table(header, rows).html() if rows else ""


def _versions(content: Content) -> str:
    shown = content.versions[-_LONGEST_TABLE:]
    left_out = len(content.versions) - len(shown)
    return Results(reversed(shown))._repr_html_() + (listed([f"{left_out:,} older versions"]) if left_out else "")


def _drawing(content: Content) -> str:
    """What the map draws, as JSON that ends no script; a range follows the last one by differences, which are short."""
    document = {
        "rows_per_zone": content.rows_per_zone,
        "paths": content.files.paths,
        "rows": content.files.num_rows.tolist(),
        "states": list(content.files.states),
        "kept": [_differences(ranges) for ranges in content.kept],
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _differences(ranges: KeptRanges) -> list[list[int]]:
    """Files and starts, each less the one before; and numbers of rows."""
    follows = (np.diff(values, prepend=0).tolist() for values in (ranges.files, ranges.starts))
    return [*follows, (ranges.stops - ranges.starts).tolist()]
