"""The page of a report: `page.html` filled with the tables and pictures of a `Content`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from string import Template

from zonebloom.errors import MissingDependencyError
from zonebloom.options import has_bloom
from zonebloom.reasons import counted, percent, summed_up
from zonebloom.rendering import Results, Share, Table, as_html, listed
from zonebloom.report.content import Content
from zonebloom.search.explain import Explanation

_LONGEST_CONDITION = 100
_LONGEST_TABLE = 50


def page(content: Content) -> str:
    """The page, as HTML that needs no other file.

    Raises
    ------
    MissingDependencyError
        Bokeh is not installed.
    """
    try:
        from bokeh.embed import components  # noqa: PLC0415 - an extra
        from bokeh.resources import Resources  # noqa: PLC0415 - as above
    except ImportError as error:
        raise MissingDependencyError(
            "Bokeh must be installed for a report", got="no such module", do='pip install "zonebloom[report]"'
        ) from error
    from zonebloom.report.charts import charts  # noqa: PLC0415 - as above

    script, drawn = components(charts(content))
    resources = Resources(mode="inline", components=["bokeh"])
    parts = {
        "title": escape(content.status.dataset),
        "bokeh": "\n".join(f"<script>{text}</script>" for text in resources.js_raw),
        "script": script,
        "made_at": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "headline": escape(_headline(content)),
        "status": as_html(content.status),
        "choice": _choice(content),
        "conditions": "".join(_conditions(content, drawn)),
        "columns": _columns(content),
        "versions": _versions(content),
        **{name: drawn[name] for name in ("map", "sizes", "filters", "ages", "history")},
    }
    template = Template(files("zonebloom.report").joinpath("page.html").read_text("utf-8"))
    return template.substitute(parts)


def _shortened(predicate: str) -> str:
    return predicate if len(predicate) <= _LONGEST_CONDITION else f"{predicate[: _LONGEST_CONDITION - 1]}…"


def _headline(content: Content) -> str:
    """How much the first condition skips; without a condition, how much the index covers."""
    if not content.searches:
        status = content.status
        num_indexed = status.num_files - status.num_new - status.num_changed
        return f"{num_indexed:,} of {counted(status.num_files, 'file')} indexed as they are"
    first = content.searches[0]
    kept, total = first.result.kept, first.result.total
    if not first.result.row_ranges:
        return f"{_shortened(first.predicate)}: {first.result.headline}"
    share = percent(total.rows - kept.rows, total.rows)
    return f"{_shortened(first.predicate)}: {share} of {counted(total.rows, 'row')} need not be read"


def _choice(content: Content) -> str:
    options = [
        f"<option value='{number}'>{number + 1}: {escape(_shortened(search.predicate))}</option>"
        for number, search in enumerate(content.searches)
    ]
    if not options:
        return ""
    return f"<label>Condition <select id='condition'>{''.join(options)}</select></label>"


def _conditions(content: Content, drawn: dict[str, str]) -> Iterator[str]:
    if not content.searches:
        return
    yield "<section><h2>What each condition reads</h2>"
    header = ("", "condition", "answer", "rows kept", "share", "", "expected", "seen")
    rows = [_row(number, search) for number, search in enumerate(content.searches, 1)]
    yield f"<div class='wide'>{Table(header, rows).html()}</div>"
    yield "<p class='note'>Expected and seen are zones without a match, of one key or a list of keys.</p>"
    yield "<h3 id='funnel'>From files to bytes: the condition of the map</h3>" + drawn["funnel"]
    told = [
        f"<h4>{number}: {escape(_shortened(search.predicate))}</h4>{listed(summed_up(search.result.reasons))}"
        for number, search in enumerate(content.searches, 1)
        if search.result.reasons
    ]
    if told:
        yield "<h3>Why not less</h3>" + "".join(told)
    yield "</section>"


def _row(number: int, explanation: Explanation) -> tuple[object, ...]:
    kept, total = explanation.result.kept, explanation.result.total
    false = explanation.false_zones
    expected, seen = (
        ("", "") if false is None else (float(f"{false.expected:.3g}"), "-" if false.seen is None else false.seen)
    )
    share = Share(kept.rows, total.rows)
    answer = explanation.result.kind if explanation.result.row_ranges else "certainly nowhere"
    return (number, _shortened(explanation.predicate), answer, kept.rows, share, expected, seen)


def _columns(content: Content) -> str:
    header = (
        "column",
        "type",
        "zones",
        "rows a zone",
        "fpp asked",
        "fpp measured",
        "bytes",
        "bytes a row",
        "of the data",
    )
    rows = [
        (
            entry.name,
            entry.column_type,
            entry.num_zones,
            entry.rows_per_zone,
            f"{entry.fpp:.3g}" if has_bloom(entry.kind) else "-",
            f"{fpps.mean():.3g}" if len(fpps) else "-",
            entry.index_bytes,
            f"{entry.index_bytes / max(content.status.num_rows, 1):.2f}",
            percent(entry.index_bytes, content.data_bytes),
        )
        for entry, fpps in content.columns
    ]
    return Table(header, rows).html()


def _versions(content: Content) -> str:
    shown = content.versions[-_LONGEST_TABLE:]
    left_out = len(content.versions) - len(shown)
    more = listed([f"{left_out:,} older versions are in the picture"]) if left_out else ""
    return Results(reversed(shown))._repr_html_() + more
