"""Results as Python has them: their length, going through them, what a notebook shows, and letting go of files.

Oracle: the row ranges of the result itself.
"""

from __future__ import annotations

import html.parser
from collections.abc import Callable

import pytest

import zonebloom as zb
from tests.conftest import Lake, Outcome


@pytest.fixture
def index(flat_lake: Lake) -> zb.Index:
    return zb.build_index(flat_lake.root, "user_id", rows_per_zone=100, workers=1)


def test_a_result_is_gone_through_by_path_and_rows(index: zb.Index, flat_lake: Lake) -> None:
    result = index.search(column="user_id", values=flat_lake.table["user_id"].slice(4000, 2500))
    listed = [(path, start, stop) for path, start, stop in result]
    rows = result.to_arrow().to_pylist()
    assert len(result) == len(listed) == len(rows) > 1
    assert listed == [(row["path"], row["start"], row["stop"]) for row in rows]
    assert not index.search("user_id = 'nobody'")
    assert result


def test_an_index_lets_go_of_its_files_and_opens_them_again(flat_lake: Lake) -> None:
    zb.build_index(flat_lake.root, "user_id", rows_per_zone=100)
    key = flat_lake.table["user_id"][5].as_py()
    with zb.open_index(flat_lake.root) as index:
        before = index.search(f"user_id = '{key}'").row_ranges
    assert index.search(f"user_id = '{key}'").row_ranges == before


class Tags(html.parser.HTMLParser):
    """All that is open must be closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, _attrs: object) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "


def test_what_a_notebook_shows_is_sound_html_with_the_numbers(index: zb.Index, flat_lake: Lake) -> None:
    where = "user_id = '<b>&' OR note = 'x'"
    result = index.search(where)
    shown = [
        *((index, "8,001"), (result, "OR_WITH_UNINDEXED_BRANCH"), (result.row_ranges, "8,001 rows in 3 row ranges")),
        *((index.explain(where), where), (index.status(), "3 of 3 (100%)"), (index.versions(), "build")),
        *((index.verify(), "sound in the 1 of 3 files that were read"), (index.refresh(), "files kept")),
        (zb.build_index(flat_lake.root, "note", kind="locator", commit_every=1).optimize(), "optimized 1 column"),
        (index.vacuum(dry_run=True), "would remove 0 versions"),
        (zb.whatif(flat_lake.root, "user_id"), "1000 absent"),
        (zb.delete_index(flat_lake.root, dry_run=True), "would remove"),
    ]
    documents = [answer for answer, _ in shown if hasattr(answer, "to_dict")]
    assert all(repr(answer) == str(answer) and "\n" in repr(answer) for answer in documents)
    for shown_result, expected in shown:
        tags = Tags()
        tags.feed(shown_result._repr_html_())
        tags.close()
        assert tags.open == []
        assert expected in tags.text
    assert "style='text-align:right;white-space:nowrap'>kept</th>" in result._repr_html_(), "as the numbers below it"
    assert repr(result.reasons[0]).startswith("COLUMN_NOT_INDEXED (note): column note has no filters")


@pytest.mark.parametrize("name", ["file", "stdin"])
def test_a_condition_is_read_from_a_file_or_stdin(
    index: zb.Index, flat_lake: Lake, name: str, run: Callable[..., Outcome]
) -> None:
    key = flat_lake.table["user_id"][5].as_py()
    condition = f"user_id IN ('{key}',\n 'nobody')\n"
    where = flat_lake.root.parent / "where.sql"
    where.write_text(condition)
    given = f"@{where}" if name == "file" else "@-"
    done = run("scan", flat_lake.root, "--where", given, "--columns", "user_id", stdin=condition.encode())
    assert done == (0, f"user_id\n{key}\n", "")
