"""What a build waits for, so that a later write shows."""

from __future__ import annotations

import os
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from zonebloom import building

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("age", "fraction", "expected"),
    [
        pytest.param(0, 1, 0.02, id="just written"),
        pytest.param(-3600, 1, 0.02, id="by a clock that is ahead"),
        pytest.param(30, 1, 0.02, id="by a clock that is behind"),
        pytest.param(3, 0, 2.0, id="in whole seconds"),
        pytest.param(3600, 0, 0.0, id="long ago"),
    ],
)
def test_a_build_reads_a_young_file_once_its_time_has_passed(tmp_path, monkeypatch, age, fraction, expected):
    for name in ("a", "b", "c"):
        pq.write_table(pa.table({"k": [1, 2]}), tmp_path / f"{name}.parquet")
        when = (time.time_ns() // SECOND - age) * SECOND + fraction
        os.utime(tmp_path / f"{name}.parquet", ns=(when, when))
    now, slept = [1000.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(building.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(building.time, "sleep", sleep)
    zb.build_index(tmp_path, "k", workers=1)
    assert sum(slept) == pytest.approx(expected), "once, not once a file"
