"""Values taken from many chunks, as where pyarrow would join more than 2 GiB of texts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from zonebloom.ground import arrow


@given(chunks=st.lists(st.lists(st.text(max_size=2) | st.none(), max_size=4), max_size=4), data=st.data())
def test_values_of_chunks_are_taken_as_of_one(chunks, data):
    column = pa.chunked_array(chunks, pa.string())
    places = sorted(data.draw(st.sets(st.integers(0, max(len(column) - 1, 0))))) if len(column) else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "_MOST_TEXT_BYTES", 0)
        taken = arrow.taken(column, np.array(places, np.int64))
    assert taken.to_pylist() == [column[place].as_py() for place in places]


def test_values_that_python_lacks_are_text_at_each_level():
    far = 2**40
    shown_far = pa.scalar(far, pa.timestamp("s")).cast(pa.string()).as_py()
    inner = pa.struct([("t", pa.timestamp("s"))])
    for kind, value, shown in (
        (inner, {"t": far}, {"t": shown_far}),
        (pa.list_(inner), [{"t": far}, None], [{"t": shown_far}, None]),
        (pa.map_(pa.string(), pa.timestamp("s")), [("k", far)], [("k", shown_far)]),
    ):
        assert arrow.python_value(pa.scalar(value, kind)) == shown
