"""Messages of other libraries, as zonebloom quotes them. Oracle: pyarrow 26."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from zonebloom.ground.errors import first_line


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        (lambda: pa.OSFile("no/a", "wb"), "Failed to open local file 'no/a': No such file or directory"),
        (lambda: pq.ParquetFile(pa.BufferReader(b"x" * 99)), "this is not a parquet file"),
        (lambda: open("no/a"), "[Errno 2] No such file or directory: 'no/a'"),  # noqa: PTH123, SIM115 - raises
    ],
)
def test_a_quoted_message_has_no_number_twice_and_no_period(fails, said):
    with pytest.raises((OSError, pa.ArrowInvalid)) as raised:
        fails()
    assert first_line(raised.value).endswith(said)
