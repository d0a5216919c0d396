"""The report: what it says, and that a real browser draws it, light and dark, by mouse or keyboard, with no error.

Oracles: Chromium, and the lake that the test writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.browser import Browser, Page
from tests.conftest import Lake, Outcome
from zonebloom.errors import InvalidArgumentError, StorageError
from zonebloom.index.report.content import Content, FileState

NUM_KEPT = "kept().files.length"
KEPT_COLOUR = (213, 94, 0)
CTRL = 2
"""Of the DevTools protocol."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


def write_lake(root: Path, *, num_files: int, num_zones: int, rows_per_zone: int) -> zb.Index:
    """Files of ids that count on, `num_zones` zones in all."""
    root.mkdir()
    rows = num_zones * rows_per_zone // num_files
    for number in range(num_files):
        ids = pa.array(range(number * rows, (number + 1) * rows))
        pq.write_table(pa.table({"id": ids, "kind": pa.array([number] * rows)}), root / f"part-{number}.parquet")
    return zb.build_index(root, "id", rows_per_zone=rows_per_zone)


@pytest.mark.parametrize("num_zones", [10, 100_000])
def test_a_browser_draws_it_with_no_error_and_no_network(browser: Browser, tmp_path: Path, num_zones: int) -> None:
    index = write_lake(tmp_path / "lake", num_files=2, num_zones=num_zones, rows_per_zone=2)
    many = zb.col("id").isin(range(0, num_zones, 4))  # every other zone of the first file: the most ranges it can have
    index.report(tmp_path / "report.html", ["id = 5", many, "kind = 1"])
    page = browser.open(tmp_path / "report.html")
    for theme in ("light", "dark"):
        page.wait_for(f"document.documentElement.dataset.theme === '{theme}'")
        assert num_pixels(page, KEPT_COLOUR) >= 10, "one zone of all is seen"
        bar, line = (f"getComputedStyle(document.querySelector('{name}'))" for name in ("progress", "td"))
        assert page.evaluate(f"{bar}.backgroundColor === {line}.borderBottomColor"), "not white on black"
        page.evaluate("document.getElementById('theme').click()")
    assert page.evaluate(NUM_KEPT) == len(index.search("id = 5").row_ranges)
    choose(page, 1)
    assert page.evaluate(NUM_KEPT) == len(index.search(many).row_ranges)
    assert page.console == []
    assert page.requests == []
    assert (tmp_path / "report.html").stat().st_size < 500_000, "small enough for a mail, with all that draws it"


def num_pixels(page: Page, colour: tuple[int, int, int]) -> int:
    """Pixels of the map that have the colour, as the browser shows it."""
    box = page.evaluate("JSON.parse(JSON.stringify(document.getElementById('map').getBoundingClientRect()))")
    clip = {name: box[name] for name in ("x", "y", "width", "height")} | {"scale": 1}
    shot = page.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
    return page.evaluate(f"""(async () => {{
        const image = new Image();
        image.src = "data:image/png;base64,{shot}";
        await image.decode();
        const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
        canvas.drawImage(image, 0, 0);
        const pixels = canvas.getImageData(0, 0, image.width, image.height).data;
        let found = 0;
        for (let i = 0; i < pixels.length; i += 4)
            found += [{", ".join(map(str, colour))}].every((value, part) => Math.abs(pixels[i + part] - value) < 40);
        return found;
    }})()""")


def choose(page: Page, number: int) -> None:
    """Take a condition in the list, as a key press does."""
    page.evaluate("document.getElementById('condition').focus()")
    for _ in range(number):
        page.press("ArrowDown")
    page.wait_for(f"document.getElementById('condition').value === '{number}'")


def test_the_map_is_moved_by_keys(browser: Browser, tmp_path: Path) -> None:
    index = write_lake(tmp_path / "lake", num_files=4, num_zones=400, rows_per_zone=10)
    index.report(tmp_path / "report.html", "id = 2345")
    page = browser.open(tmp_path / "report.html", dark=True)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 19, 24)"

    def span() -> list[float]:
        return page.evaluate("[...view.x, view.y[1]]")

    assert span() == [0, 1000, 4]
    for _ in range(30):  # by the keyboard alone
        page.press("Tab")
        if page.evaluate("document.activeElement.id === 'map'"):
            break
    page.press("+")
    assert span() == [250, 750, 4], "each file has a line of its own, so all stay"
    page.press("ArrowRight")
    assert span()[:2] == [375, 875]
    page.press("n")
    assert page.evaluate("document.getElementById('place').textContent") == "1 of 1: part-2.parquet, rows 340 to 350"
    low, high, _ = span()
    assert (low, high) == (265, 425)
    point(page, "mouseMoved")
    assert page.evaluate("document.getElementById('place').textContent").endswith(": kept")
    page.press("0")
    assert span() == [0, 1000, 4]
    for modifiers, is_zoomed in ((0, False), (CTRL, True)):
        point(page, "mouseWheel", deltaX=0, deltaY=-60, modifiers=modifiers)
        page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert (span() != [0, 1000, 4]) == is_zoomed
    assert page.console == []


def point(page: Page, event: str, **options: float) -> None:
    """An event of the mouse on file 2 of 4 of the map, in the middle of its rows."""
    rectangle = "document.getElementById('map').getBoundingClientRect().toJSON()"
    box = page.evaluate(f"JSON.parse(JSON.stringify({{...{rectangle}, ...size()}}))")
    x = box["x"] + (box["left"] + box["width"]) / 2
    page.call("Input.dispatchMouseEvent", type=event, x=x, y=box["y"] + box["height"] * 0.6, **options)


def test_numbers_are_those_of_the_index(flat_lake: Lake) -> None:
    index = zb.build_index(flat_lake.root, ["user_id", "device_id"], rows_per_zone=100)
    pq.write_table(flat_lake.table.slice(0, 7), flat_lake.root / "new.parquet")
    pq.write_table(flat_lake.table.slice(0, 9), flat_lake.root / flat_lake.files[0])
    (flat_lake.root / "zz.parquet").write_bytes(b"PAR1")
    key = flat_lake.table["user_id"][6000].as_py()
    content = Content.of(index.view(), [index.explain(f"user_id = '{key}'")])
    files = dict(zip(content.files.paths, zip(content.files.states, content.files.num_rows, strict=True), strict=True))
    assert files["new.parquet"] == (FileState.NEW, 7)
    assert files[flat_lake.files[0]] == (FileState.CHANGED, 9)
    assert files[flat_lake.files[1]] == (FileState.INDEXED, 3000)
    assert files["zz.parquet"] == (FileState.UNREADABLE, 0)
    (kept,) = content.kept
    paths = [content.files.paths[number] for number in kept.files.tolist()]
    drawn = set(zip(paths, kept.starts.tolist(), kept.stops.tolist(), strict=True))
    assert {(flat_lake.files[1], 1000, 1100), ("new.parquet", 0, 7)} <= drawn
    assert [column.entry.name for column in content.columns] == ["user_id", "device_id"]
    assert all(0 < fpps.mean() < 0.01 for _, fpps in content.columns)
    assert [version.number for version in content.versions] == [1]


def test_a_locator_has_a_measured_fpp_and_files_of_each_state_a_line(flat_lake: Lake, tmp_path: Path) -> None:
    index = zb.build_index(flat_lake.root, "user_id", rows_per_zone=100, kind="locator")
    pq.write_table(flat_lake.table.slice(0, 7), flat_lake.root / "new.parquet")
    index.report(tmp_path / "report.html")
    (column,) = Content.of(index.view(), []).columns
    assert 0 < column.fpps.mean() < 1e-3
    text = (tmp_path / "report.html").read_text("utf-8")
    assert re.search(r">new</td><td [^>]*>1</td><td [^>]*>7</td>", text)
    assert "3 of 4 files indexed as they are" in text


def test_a_file_that_goes_after_the_search_is_not_on_the_map(flat_lake: Lake) -> None:
    """`report` ended in a KeyError."""
    index = zb.build_index(flat_lake.root, "user_id", rows_per_zone=100)
    search = index.explain("amount > -1e9")
    (flat_lake.root / flat_lake.files[0]).unlink()
    content = Content.of(index.view(), [search])
    assert set(content.kept[0].files.tolist()) == set(range(len(content.files.paths)))


def test_a_phone_shows_it_without_scrolling_sideways(browser: Browser, tmp_path: Path) -> None:
    index = write_lake(tmp_path / "lake", num_files=2, num_zones=40, rows_per_zone=8192)
    index.report(tmp_path / "report.html", [zb.col("id").isin(range(200)), "id = 5", "id = -1"])
    page = browser.open(tmp_path / "report.html")
    page.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=2, mobile=True)
    page.wait_for("document.documentElement.scrollWidth <= 390")
    headline = page.evaluate("document.querySelector('.headline').textContent")
    assert headline.startswith("97.5% of 327,680 rows need not be read")
    assert "certainly nowhere" in page.evaluate("document.body.innerText")


def test_an_empty_lake_has_a_report_too(browser: Browser, tmp_path: Path) -> None:
    index = write_lake(tmp_path / "lake", num_files=1, num_zones=1, rows_per_zone=5)
    (tmp_path / "lake" / "part-0.parquet").unlink()
    index.report(tmp_path / "report.html", "id = 1")
    assert browser.open(tmp_path / "report.html").console == []


def test_what_a_lake_says_is_text_in_the_page(tmp_path: Path) -> None:
    """Names of files and columns, and conditions, are no markup and end no script."""
    name = "<img src=x onerror=alert(1)>"
    (tmp_path / "l&ke").mkdir()
    pq.write_table(pa.table({name: ["</script><b>"]}), tmp_path / "l&ke" / f"{name}.parquet")
    index = zb.build_index(tmp_path / "l&ke", name)
    index.report(tmp_path / "report.html", zb.col(name) == "</script><b>")
    text = (tmp_path / "report.html").read_text("utf-8")
    plain = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert plain.count("<script") == plain.count("</script") == plain.count("<img") == plain.count("<b>") == 0
    assert "l&amp;ke" in plain
    assert "&lt;img src=x onerror=alert(1)&gt;" in plain


# --- where it is written ----------------------------------------------------------------------------------------------


def test_a_path_that_cannot_be_written_is_named(flat_lake: Lake, tmp_path: Path) -> None:
    index = zb.build_index(flat_lake.root, "user_id")
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(StorageError, match=f"cannot write {tmp_path}/folder.html: "):
        index.report(tmp_path / "folder.html", overwrite=True)
    with pytest.raises(InvalidArgumentError, match=f"in a folder that exists, got {tmp_path}/none/report.html; make"):
        index.report(tmp_path / "none/report.html")


def test_it_replaces_nothing_and_lies_in_no_data_set(flat_lake: Lake, tmp_path: Path) -> None:
    index = zb.build_index(flat_lake.root, "user_id")
    with pytest.raises(InvalidArgumentError, match="is in the data set"):
        index.report(flat_lake.root / "report.html")
    with pytest.raises(InvalidArgumentError, match=r"end in \.html"):
        index.report(tmp_path / "report.txt")
    (tmp_path / "report.html").write_text("mine")
    with pytest.raises(InvalidArgumentError, match="overwrite=True"):
        index.report(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == "mine"


def test_the_command_writes_it(flat_lake: Lake, tmp_path: Path, run: Callable[..., Outcome]) -> None:
    zb.build_index(flat_lake.root, "user_id")
    output = tmp_path / "report.html"
    (tmp_path / "where.sql").write_text("user_id = 'y'\n")
    wanted = ("-w", "user_id = 'x'", "-w", f"@{tmp_path / 'where.sql'}")
    output.write_text("an older one")
    assert run("report", flat_lake.root, "-o", output)[0] == 2
    code, out, err = run("report", flat_lake.root, "-o", output, "--overwrite", *wanted)
    assert (code, out) == (0, "")
    assert f"wrote {output}" in err
    text = output.read_text("utf-8")
    assert "1: user_id = &#x27;x&#x27;" in text
    assert "2: user_id = &#x27;y&#x27;" in text
