"""What each way to build costs in bytes and in false zones; draws `docs/pictures/choose.svg` from it.

Bytes and false zones are those of `whatif`, which builds a lake of 128 zones whole, in each way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import zonebloom as zb
from bench.harness import Result, scratch

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "choose.svg"
NUM_FILES, ZONES_A_FILE, ROWS_PER_ZONE = 4, 32, 8192
ROWS_OF_A_KEY = {"key": 1, "trace": 5}
"""How many rows in a row have one value, by column."""
WAYS = {
    "--kind locator": (None, 0.00057),
    "the default": ("power_of_two", 0.00057),
    "--sizing exact": ("exact", 0.00057),
    "--sizing adaptive": ("adaptive", 0.00057),
    "--sizing adaptive --fpp 0.01": ("adaptive", 0.01),
}
MANY = 1000
COLUMNS = ["way", "bytes a row", "bytes a row, 5 rows of a key", "false zones of an absent key, %"]
COLUMNS += [f"of {MANY} absent keys, %"]


def main() -> None:
    """Measure, print, save and draw."""
    about = (
        f"Ways to build a column of int64: {NUM_FILES * ZONES_A_FILE} zones of {ROWS_PER_ZONE} rows, built by `whatif`."
    )
    result = Result("choose", about)
    with scratch() as folder:
        write_lake(folder)
        rows = [[way, *costs(folder, sizing, fpp)] for way, (sizing, fpp) in WAYS.items()]
    result.table("Bytes and false zones", COLUMNS, rows, "False zones: the share of zones that are read for nothing.")
    result.save()
    PICTURE.write_text(drawing(rows), encoding="utf-8")


def write_lake(folder: Path) -> None:
    """Random keys, and keys that each are in rows after one another."""
    random = np.random.default_rng(5)
    num_rows = ZONES_A_FILE * ROWS_PER_ZONE
    for number in range(NUM_FILES):
        keys = {
            name: np.repeat(random.integers(-(2**63), 2**63, num_rows // count + 1, np.int64), count)[:num_rows]
            for name, count in ROWS_OF_A_KEY.items()
        }
        pq.write_table(pa.table(keys), folder / f"{number}.parquet")


def costs(folder: Path, sizing: str | None, fpp: float) -> Iterator[float]:
    """The numbers of a row: bytes a row of each column, false zones of one and of many absent keys of the first."""
    forecasts = [zb.whatif(folder, name, fpp=fpp) for name in ROWS_OF_A_KEY]
    options = [next(way for way in forecast.options if way.sizing == sizing) for forecast in forecasts]
    yield from (option.index_bytes / forecasts[0].num_rows for option in options)
    yield from (100 * kept / forecasts[0].num_zones for kept in (options[0].absent_kept, options[0].many_absent_kept))


STYLE = """\
text { fill: #33404a } .faint { fill: #66757f }
.one { fill: #f9b265; stroke: #c96a00 } .five { fill: #dbe9ee; stroke: #8fb0ba }
@media (prefers-color-scheme: dark) {
text { fill: #dfe7ec } .faint { fill: #93a4ae }
.one { fill: #d9771a; stroke: #ffb25c } .five { fill: #1d3640; stroke: #46707e }
}"""
LEFT, SCALE, TOP, HEIGHT = 218, 62, 62, 44


def drawing(rows: Sequence[Sequence[Any]]) -> str:
    """The rows of the table as SVG: two bars of bytes for each way, and its false zones."""
    height = TOP + HEIGHT * len(rows)
    label = "Bytes a row and false zones of five ways to build"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" font-family="system-ui, sans-serif"'
    lines = [f'{head} font-size="14" role="img" aria-label="{label}">', "<style>", STYLE, "</style>"]
    lines += [_text(LEFT, 20, "bytes a row", "font-weight='bold'")]
    lines += [_text(560, 20, "zones read for nothing", "font-weight='bold'")]
    lines += [f'<rect class="one" x="{LEFT}" y="31" width="12" height="12"/>', _text(LEFT + 18, 42, "each row a key")]
    lines += [f'<rect class="five" x="{LEFT + 146}" y="31" width="12" height="12"/>']
    lines += [_text(LEFT + 164, 42, "5 rows of a key"), _text(560, 42, "1 absent key"), _text(672, 42, f"{MANY} keys")]
    for number, (way, single, five, false, many_false) in enumerate(rows):
        top = TOP + HEIGHT * number
        lines.append(_text(4, top + 20, way))
        for kind, num_bytes, y in (("one", single, top), ("five", five, top + 16)):
            lines.append(f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{SCALE * num_bytes:.0f}" height="14"/>')
            lines.append(_text(LEFT + 6 + round(SCALE * num_bytes), y + 12, f"{num_bytes:.2f}", "class='faint'"))
        lines += [_text(560, top + 20, _percent(false)), _text(672, top + 20, _percent(many_false))]
    return "\n".join([*lines, "</svg>", ""])


def _text(x: int, y: int, text: str, attributes: str = "") -> str:
    return f'<text x="{x}" y="{y}" {attributes}>{text}</text>'.replace("'", '"').replace(" >", ">")


def _percent(share: float) -> str:
    return "almost none" if share < 1e-3 else f"{share:.2g} %" if share < 10 else f"{share:.0f} %"


if __name__ == "__main__":
    main()
