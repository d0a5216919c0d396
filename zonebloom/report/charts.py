"""The pictures of a report, by Bokeh: the map of files and zones, bars, and points.

Colours are those of Okabe and Ito, which people with any colour vision tell apart, on light and on dark. `page.html`
gives text and lines the colours of the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from bokeh.models import (
    AdaptiveTicker,
    BasicTicker,
    ColumnDataSource,
    CustomJSHover,
    CustomJSTickFormatter,
    FactorRange,
    HoverTool,
    LinearColorMapper,
    NoOverlap,
    NumeralTickFormatter,
    PanTool,
    Range1d,
    ResetTool,
    Span,
    WheelZoomTool,
)
from bokeh.plotting import figure

from zonebloom.reasons import percent
from zonebloom.rendering import named_count
from zonebloom.report.content import Content, FileState, KeptRanges, MapFiles

_KEPT, _READ_WHOLE = "#d55e00", "#cc79a7"
_OF_STATE = {
    FileState.INDEXED: "#0072b2",
    FileState.NEW: "#009e73",
    FileState.CHANGED: "#cc79a7",
    FileState.UNREADABLE: "#7f7f7f",
}
_LINE_PX, _LEAST_PX, _MOST_PX = 22, 160, 560
"""Height of a file on the map if there is room, and of the map, in pixels."""
_BAR_HEIGHT = 0.8
"""Height of a file's bar on the map; a file's line has a height of 1."""
_BAR_PX = 30
_KEPT_PX = 2
"""Width of the line around a kept range: a browser draws one of 1 pixel in two columns, both pale."""
_PERCENTS = [0, 25, 50, 75, 100]
_NUM_BINS = 30
_MS_OF_HOUR = 3_600_000.0


def charts(content: Content) -> Mapping[str, Any]:
    """The pictures by name. In each picture, the parts of the conditions are named `condition-0`, `condition-1`, …."""
    drawn: dict[str, Any] = {"map": _map(content)}
    if content.searches:
        drawn["funnel"] = _funnel(content)
    drawn["sizes"] = _sizes(content)
    drawn["filters"] = _filters(content)
    drawn["ages"] = _ages(content)
    drawn["history"] = _history(content)
    return drawn


def _figure(height: int, **options: Any) -> Any:
    """A figure as wide as the page, with only those tools that a keyboard can use."""
    chart = figure(height=height, sizing_mode="stretch_width", toolbar_location=None, **{"tools": [], **options})
    chart.background_fill_color = chart.border_fill_color = chart.outline_line_color = None
    return chart


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def _share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} ({percent(part, whole)})"


# --- the map ----------------------------------------------------------------------------------------------------------


def _map(content: Content) -> Any:
    """Files below one another, their rows to the right, lines between zones where there is room, kept ranges above all.

    A kept range has a line around it, so that one zone of a hundred thousand is seen.
    """
    files = content.files
    longest = max([1, *files.num_rows.tolist()])
    margin = longest / 200  # else the axis hides the first zone
    wheel = WheelZoomTool(modifiers="ctrl")  # alone it scrolls the page
    chart = _figure(
        min(_MOST_PX, max(_LEAST_PX, 70 + _LINE_PX * len(files.paths))),
        name="map",
        tools=[wheel, PanTool(), ResetTool()],
        active_scroll=wheel,
        x_range=Range1d(-margin, longest + margin, bounds="auto"),
        y_range=Range1d(max(len(files.paths), 1) - 0.5, -0.5, bounds="auto"),
        x_axis_label="row in the file",
    )
    chart.xaxis.formatter = NumeralTickFormatter(format="0,0")
    chart.xaxis.ticker = AdaptiveTicker(base=2, mantissas=[1], min_interval=content.rows_per_zone, num_minor_ticks=0)
    chart.xaxis.major_label_policy = NoOverlap()
    chart.yaxis.ticker = BasicTicker(min_interval=1, desired_num_ticks=20, num_minor_ticks=0)
    chart.ygrid.visible = False
    lines = _draw_files(chart, files)
    for number, ranges in enumerate(content.kept):
        _draw_kept(chart, ranges, lines, name=f"condition-{number}", visible=number == 0)
    return chart


def _draw_files(chart: Any, files: MapFiles) -> ColumnDataSource:
    """A pale bar for each file, and its name at the axis."""
    lines = ColumnDataSource(
        {
            "y": np.arange(len(files.paths), dtype=np.int32),
            "right": files.num_rows,
            "path": files.paths,
            "state": [str(state) for state in files.states],
            "color": [_OF_STATE[state] for state in files.states],
        }
    )
    look = {"color": "color", "alpha": 0.35, "line_width": 0, "level": "image"}
    bars = chart.hbar("y", height=_BAR_HEIGHT, left=0, right="right", source=lines, **look)
    tips = [("file", "@path"), ("", "@state, @right{0,0} rows")]
    chart.add_tools(HoverTool(renderers=[bars], tooltips=tips, point_policy="follow_mouse"))
    name = "const path = lines.data.path[tick] ?? ''; return path.length > 30 ? '…' + path.slice(-29) : path"
    chart.yaxis.formatter = CustomJSTickFormatter(args={"lines": lines}, code=name)
    return lines


def _draw_kept(chart: Any, ranges: KeptRanges, lines: ColumnDataSource, **shown: Any) -> None:
    """A bar for each range: numbers only, because there may be a hundred thousand ranges."""
    source = ColumnDataSource(
        {
            "file": ranges.files.astype(np.int32),
            "start": ranges.starts,
            "stop": ranges.stops,
            "is_indexed": ranges.is_indexed.astype(np.uint8),
        }
    )
    colour = {"field": "is_indexed", "transform": LinearColorMapper([_READ_WHOLE, _KEPT], low=0, high=1)}
    look = {"fill_color": colour, "line_color": colour, "line_width": _KEPT_PX}
    bars = chart.hbar("file", height=_BAR_HEIGHT, left="start", right="stop", source=source, **look, **shown)
    formatters = {
        "@file": CustomJSHover(args={"lines": lines}, code="return lines.data.path[value]"),
        "@is_indexed": CustomJSHover(code="return value ? 'kept' : 'read whole: not indexed'"),
    }
    tips = [("file", "@file{custom}"), ("rows", "@start{0,0} to @stop{0,0}"), ("", "@is_indexed{custom}")]
    chart.add_tools(HoverTool(renderers=[bars], tooltips=tips, formatters=formatters, point_policy="follow_mouse"))


# --- bars -------------------------------------------------------------------------------------------------------------


def _bars(names: Sequence[str], values: Sequence[float], texts: Sequence[str], label: str) -> Any:
    chart = _bar_figure(names, max([0.0, *values]), label)
    _draw_bars(chart, names, values, texts)
    return chart


def _bar_figure(names: Sequence[str], greatest: float, label: str) -> Any:
    chart = _figure(70 + _BAR_PX * max(len(names), 1), y_range=FactorRange(*reversed(names)), x_axis_label=label)
    chart.x_range = Range1d(0, (greatest or 1) * 1.6)  # room for the text behind the longest bar
    chart.ygrid.visible = False
    return chart


def _draw_bars(chart: Any, names: Sequence[str], values: Sequence[float], texts: Sequence[str], **shown: Any) -> None:
    source = ColumnDataSource({"name": list(names), "value": list(values), "text": list(texts)})
    chart.hbar("name", right="value", height=0.6, color=_KEPT, source=source, **shown)
    chart.text(
        "value", "name", "text", source=source, x_offset=6, text_baseline="middle", text_font_size="12px", **shown
    )


def _funnel(content: Content) -> Any:
    names = [named_count(name) for name in ("files", "zones", "rows", "bytes")]
    chart = _bar_figure(names, 100, "% kept")
    for number, search in enumerate(content.searches):
        kept, total = search.result.kept.to_dict(), search.result.total.to_dict()
        pairs = list(zip(kept.values(), total.values(), strict=True))
        shown = {"name": f"condition-{number}", "visible": number == 0}
        _draw_bars(chart, names, [_percent(*pair) for pair in pairs], [_share(*pair) for pair in pairs], **shown)
    chart.xaxis.ticker = _PERCENTS
    return chart


def _sizes(content: Content) -> Any:
    sizes = {"data files": content.data_bytes}
    sizes |= {column.entry.name: column.entry.index_bytes for column in content.columns}
    texts = [f"{size / 1e6:,.2f} MB ({percent(size, content.data_bytes)})" for size in sizes.values()]
    return _bars(
        list(sizes), [size / 1e6 for size in sizes.values()], texts, "megabytes: data, and the index of each column"
    )


# --- points -----------------------------------------------------------------------------------------------------------


def _filters(content: Content) -> Any:
    """For each column a line from the least to the greatest measured fpp, the mean, and what was asked for."""
    measured = [column for column in content.columns if len(column.fpps)]
    names = [column.entry.name for column in measured]
    least = 1e-12  # a filter without a value passes nothing, and a logarithm has no zero
    values = [np.maximum(column.fpps, least) for column in measured]
    asked = [column.entry.fpp for column in measured]
    shown = [1e-4, 1e-2, *asked, *np.concatenate([[], *values]).tolist()]
    chart = _figure(
        110 + _BAR_PX * max(len(names), 1),
        x_range=Range1d(min(shown) / 2, max(shown) * 2),
        y_range=FactorRange(*reversed(names)),
        x_axis_type="log",
        x_axis_label="false positive probability of a zone",
    )
    chart.segment(
        [fpp.min() for fpp in values], names, [fpp.max() for fpp in values], names, line_width=3, color="#0072b2"
    )
    chart.scatter(
        [fpp.mean() for fpp in values],
        names,
        size=10,
        color="#0072b2",
        legend_label="measured: mean, least to greatest",
    )
    chart.scatter(
        asked,
        names,
        size=14,
        marker="x",
        line_width=3,
        color=_KEPT,
        legend_label="asked for",
    )
    chart.add_layout(chart.legend[0], "above")
    chart.legend.orientation = "horizontal"
    return chart


def _ages(content: Content) -> Any:
    """Rows by the time at which their file was written, in the colour of its state; a line where the index was made."""
    files = content.files
    committed = content.status.committed_at.timestamp() * 1e3
    low = min([committed, *files.written_at.tolist()]) - _MS_OF_HOUR
    high = max([committed, *files.written_at.tolist()]) + _MS_OF_HOUR
    edges = np.linspace(low, high, _NUM_BINS + 1)
    num_rows = np.histogram(files.written_at, edges, weights=files.num_rows)[0]
    chart = _figure(
        220, x_axis_type="datetime", x_axis_label="when files were written, and the index (line)", y_axis_label="rows"
    )
    bottom = np.zeros(_NUM_BINS)
    states = np.array([str(state) for state in files.states])
    for state in FileState:
        if state in states:
            mine = states == state
            top = bottom + np.histogram(files.written_at[mine], edges, weights=files.num_rows[mine])[0]
            chart.quad(edges[:-1], edges[1:], top, bottom, color=_OF_STATE[state], legend_label=str(state))
            bottom = top
    chart.add_layout(Span(location=committed, dimension="height", line_color=_KEPT, line_width=2, line_dash="dashed"))
    chart.yaxis.formatter = NumeralTickFormatter(format="0,0")
    chart.x_range, chart.y_range = Range1d(low, high), Range1d(0, max(1.0, 1.1 * float(num_rows.max())))
    if chart.legend:
        chart.add_layout(chart.legend[0], "above")
        chart.legend.orientation = "horizontal"
    return chart


def _history(content: Content) -> Any:
    times = [version.committed_at.timestamp() * 1e3 for version in content.versions]
    chart = _figure(
        220, x_axis_type="datetime", x_axis_label="when versions were committed", y_axis_label="MB of the index"
    )
    chart.x_range = Range1d(min(times, default=0) - _MS_OF_HOUR, max(times, default=0) + _MS_OF_HOUR)
    chart.y_range = Range1d(0, 1.1 * max([1e-6, *(version.index_bytes / 1e6 for version in content.versions)]))
    source = ColumnDataSource(
        {
            "at": times,
            "size": [version.index_bytes / 1e6 for version in content.versions],
            "number": [version.number for version in content.versions],
            "operation": [version.operation for version in content.versions],
            "files": [version.num_files for version in content.versions],
        }
    )
    chart.step("at", "size", source=source, mode="after", line_width=2, color="#0072b2")
    points = chart.scatter("at", "size", source=source, size=9, color="#0072b2")
    tips = [("version", "@number"), ("", "@operation"), ("files", "@files{0,0}"), ("MB", "@size{0,0.00}")]
    chart.add_tools(HoverTool(renderers=[points], tooltips=tips))
    return chart
