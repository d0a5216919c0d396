"""The demo runs, prunes, tells the truth about it, and leaves nothing behind."""

from __future__ import annotations

import math
import tempfile

import pytest

from zonebloom.cli.demo import run_demo
from zonebloom.errors import InvalidArgumentError
from zonebloom.index.doors import open_index

ROWS, FILES, ROWS_PER_ZONE = 50_000, 3, 8192


def test_the_demo_prunes_and_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    report = run_demo(ROWS, FILES)
    present, absent, device, some, everything = report.searches
    zones = sum(math.ceil((ROWS * (n + 1) // FILES - ROWS * n // FILES) / ROWS_PER_ZONE) for n in range(FILES))
    for search in report.searches:
        assert (search.total.files, search.total.zones, search.total.rows) == (FILES, zones, ROWS)
        assert search.kept.zones == pytest.approx(search.kept.rows / ROWS_PER_ZONE, abs=FILES)
        assert (search.kept.zones > 0) == (search.kept.rows > 0)
    assert (present.num_matches, device.num_matches, some.num_matches, absent.num_matches) == (1, 1, 10, 0)
    assert 1 <= present.kept.zones <= 2
    assert 1 <= device.kept.zones <= 2
    assert absent.kept.rows <= ROWS_PER_ZONE
    assert everything.kept == everything.total
    assert "user_id = … present" in str(report)
    assert list(tmp_path.iterdir()) == []


def test_a_lake_of_one_row_has_a_demo():
    report = run_demo(1, 1)
    assert report.searches[0].num_matches == 1


@pytest.mark.parametrize(("rows", "files"), [(10, 0), (3, 4), (0, 0), (-1, 1)])
def test_a_lake_needs_a_row_for_each_file(rows, files):
    with pytest.raises(InvalidArgumentError, match=r"--files .* is not from 1|--rows .* is less than 1"):
        run_demo(rows, files)


def test_a_demo_that_is_kept_can_be_searched(tmp_path, capsys):
    run_demo(2000, 2, keep=tmp_path / "kept")
    assert f"its index {tmp_path / 'kept' / '_events.zonebloom'}" in capsys.readouterr().err
    assert open_index(tmp_path / "kept" / "events").to_table("event IS NOT NULL").num_rows == 2000
    with pytest.raises(InvalidArgumentError, match="must be a new folder"):
        run_demo(2000, 2, keep=tmp_path / "kept")
