"""Bad input: a clear error, or kept and said; never a wrong answer, never a bare exception.

Oracle: the rows as written.
"""

from __future__ import annotations

import os
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from zonebloom.errors import ColumnNotFoundError, DataFileError, InvalidArgumentError
from zonebloom.indexing import fill as building
from zonebloom.predicates.row_filter import to_expression


@pytest.fixture
def built(flat_lake):
    return flat_lake, zb.build_index(flat_lake.root, "user_id", rows_per_zone=100)


OPTIONS = {
    "storage_options": [5, {"aws_region": 1}],
    "progress": [5, None],
    "runner": [5],
    "fpp": [1],
    "kind": ["file"],
    "rows_per_zone": [0],
    "sizing": ["Exact"],
    "workers": [0],
    "commit_every": [0, 1.5, None],
}
"""What no build takes."""
REFUSED = {
    "no version .* is kept; versions: 1$": [1.0, True, "1", [1], np.float64(1), 2],
    "columns must be one or more names, got": [5, True, [1], [["user_id"]], [None]],
    "paths must be": [5, True, [5], [b"x"], [["part-0.parquet"]]],
    "column": [[], ["user_id", "user_id"], None, 5, [5], [None], {"user_id": 1}.values()],
    "must be of a ZoneTable and the name of a column": [
        (5, "user_id"),
        (pa.table({"x": [0]}), "user_id"),
        (None, None),
    ],
    **{f"{name} must be": values for name, values in OPTIONS.items()},
}
"""What is said, and of which arguments."""


@pytest.mark.parametrize("must", REFUSED)
def test_what_makes_no_sense_is_refused_before_anything_is_written(built, must, tmp_path):
    (lake, index), name = built, must.split()[0]
    root, other = lake.root, tmp_path / "other"
    build = partial(zb.build_index, root, index=other)
    calls = {
        "no": [index.restore, lambda given: zb.open_index(root, version=given)],
        "columns": [lambda given: index.to_table("user_id = 'x'", columns=given)],
        "paths": [lambda given: index.refresh(paths=given)],
        "column": [build],
        "must": [lambda given: zb.import_index(root, given[0], column=given[1], index=other)],
    }.get(name, [lambda given: build("note", **{name: given})])
    if name == "storage_options":
        doors = (zb.open_index, zb.open_lake, zb.parquet_blooms, zb.delete_index)
        calls += [lambda given, door=door: door(root, storage_options=given) for door in doors]
        calls.append(lambda given: zb.whatif(root, "note", storage_options=given))
    elif name in ("progress", "runner"):
        calls.append(lambda given: index.refresh("full", **{name: given}))
    for given in REFUSED[must]:
        for call in calls:
            with pytest.raises((InvalidArgumentError, ColumnNotFoundError), match=must):
                call(given)
    assert zb.open_index(root).columns == ["user_id"]
    assert not other.exists()


@pytest.mark.parametrize("name", ["\ud800", "user_id.\udfff"])
def test_a_name_that_is_no_text_is_a_column_that_there_is_not(built, name):
    """Parsers from seed 50016400: half of a surrogate pair in SQL raised a bare UnicodeEncodeError of Arrow."""
    lake, index = built
    for call in (
        lambda: index.search(f'"{name}" = 1'),
        lambda: index.to_table(zb.IsNull(name)),
        lambda: index.to_table("user_id = 'x'", columns=[name]),
        lambda: index.exists(name, ["x"]),
        lambda: index.locate(name, ["x"]),
        lambda: to_expression(zb.Equals(name, 1), index.schema),
        lambda: zb.build_index(lake.root, name),
    ):
        with pytest.raises(ColumnNotFoundError):
            call()


def test_every_truncation_of_a_data_file_is_kept_and_said(built):
    lake, index = built
    path = lake.root / lake.files[1]
    data = path.read_bytes()
    user = lake.table["user_id"][0].as_py()
    for length in [0, 1, 3, 4, 11, 12, *range(100, len(data), len(data) // 25), len(data) - 1]:
        path.write_bytes(data[:length])
        result = index.search(zb.Equals("user_id", user))
        assert lake.files[1] in result.files
        assert {"FILE_CHANGED", "FILE_UNREADABLE"} == {str(reason.code) for reason in result.reasons}
        with pytest.raises(DataFileError, match=r"part-1\.parquet must be a whole Parquet file"):
            index.to_table(zb.Equals("user_id", user))


def of_rows(num_rows):
    """A field of that many rows in a footer: its type, and twice the number in groups of 7 bits."""
    twice, written = 2 * num_rows, b"\x16"
    while twice > 127:
        written += bytes([twice & 127 | 128])
        twice >>= 7
    return written + bytes([twice])


def claim(path, claims):
    """Change numbers of rows in the footer of `path`: `(old, new, which of those that are the same)`."""
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for old, new, number in claims:
        at = start
        for _ in range(number + 1):
            at = data.index(of_rows(old), at + 1)
        assert len(of_rows(old)) == len(of_rows(new))
        data = data[:at] + of_rows(new) + data[at + len(of_rows(old)) :]
    path.write_bytes(data)


@pytest.mark.parametrize(
    "claims",
    [
        pytest.param([(3000, 2500, 0)], id="the file has fewer rows than its row groups"),
        pytest.param([(1000, 1100, 1)], id="a row group has more rows than the file"),
        pytest.param([(3000, 3100, 0), (1000, 1100, 1)], id="the first row group holds fewer rows than it says"),
        pytest.param([(3000, 3100, 0), (1000, 1100, 5)], id="the last row group holds fewer rows than it says"),
    ],
)
@pytest.mark.parametrize("share", [1 << 20, 1200], ids=["whole", "in units"])
def test_a_footer_that_counts_wrong_is_kept_and_said(tmp_path, monkeypatch, claims, share):
    monkeypatch.setattr(building, "_MIN_UNIT_ROWS", share)
    for name in ("good", "wrong"):
        plain = {"use_dictionary": False, "compression": "none", "row_group_size": 1000}
        pq.write_table(pa.table({"x": np.arange(3000)}), tmp_path / f"{name}.parquet", **plain)
    claim(tmp_path / "wrong.parquet", claims)
    assert pq.read_table(tmp_path / "wrong.parquet").num_rows == 3000  # pyarrow does not care
    with pytest.warns(RuntimeWarning, match=r"wrong\.parquet must hold"):
        index = zb.build_index(tmp_path, "x", rows_per_zone=100, workers=1)
    for value in (0, 999, 1000, 1500, 2700, 2999):
        result = index.search(zb.Equals("x", value))
        assert "wrong.parquet" in result.files
        assert result.row_ranges.num_rows >= 3000 + 100
        assert zb.ReasonCode.FILE_NOT_INDEXED in {reason.code for reason in result.reasons}


def test_a_file_replaced_by_a_folder(built):
    lake, index = built
    path = lake.root / lake.files[0]
    path.unlink()
    path.mkdir()
    assert index.search("user_id = 'nobody'").num_rows_kept == 0
    pq.write_table(lake.table.slice(0, 3), path / "inner.parquet")
    assert index.search("user_id = 'nobody'").files == [f"{lake.files[0]}/inner.parquet"]


def test_a_page_that_does_not_decode_during_the_build(flat_lake):
    """The footer is whole, a page is not: the file is left out, the others are indexed."""
    path = flat_lake.root / flat_lake.files[1]
    data = bytearray(path.read_bytes())
    data[4:5000] = bytes(4996)
    path.write_bytes(data)
    with pytest.warns(RuntimeWarning, match=r"part-1\.parquet must decode as Parquet"):
        index = zb.build_index(flat_lake.root, "user_id", rows_per_zone=100)
    assert index.num_fragments == 2
    result = index.search("user_id = 'nobody'")
    assert result.files == [flat_lake.files[1]]
    assert index.verify(sample=1.0).is_sound


@pytest.mark.parametrize("name", [b"bad-\xff.parquet", "😀".encode() + b"\xff.parquet"])
def test_a_name_that_is_not_utf8(tmp_path, name):
    """File systems allow any bytes: an error that says so, or the file is read."""
    raw = os.fsencode(tmp_path / "") + b"/" + name
    pq.write_table(pa.table({"c": [1, 2]}), tmp_path / "a.parquet")
    os.rename(tmp_path / "a.parquet", raw)  # noqa: PTH104 - bytes
    pq.write_table(pa.table({"c": [3]}), tmp_path / "good.parquet")
    with pytest.raises(DataFileError, match="UTF-8"):
        zb.build_index(tmp_path, "c", rows_per_zone=1)
