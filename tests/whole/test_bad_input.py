"""Bad input: a clear error, or kept and said; never a wrong answer, never a bare exception.

Oracle: the rows as written.
"""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.conftest import index_of
from zonebloom.errors import ColumnNotFoundError, DataFileError, InvalidArgumentError
from zonebloom.indexing import fill as building
from zonebloom.predicates.row_filter import to_expression


@pytest.fixture
def built(flat_lake):
    return flat_lake, zb.build_index(flat_lake.root, "user_id", rows_per_zone=100)


@pytest.mark.parametrize("version", [1.0, True, "1", [1], np.float64(1), 2])
def test_version(built, version):
    lake, index = built
    for call in (index.restore, lambda version: zb.open_index(lake.root, version=version)):
        with pytest.raises(InvalidArgumentError, match=r"no version .* is kept; versions: 1$"):
            call(version)


@pytest.mark.parametrize(
    ("options", "must"),
    [
        ({"storage_options": 5}, "storage_options must be a dict"),
        ({"storage_options": {"aws_region": 1}}, "storage_options must be texts"),
        ({"progress": 5}, "progress must be True, False or a function"),
        ({"progress": None}, "progress must be True, False or a function"),
        ({"runner": 5}, "runner must be a Runner"),
    ],
)
def test_options_of_the_doors(built, options, must):
    lake, index = built
    calls = [lambda: zb.build_index(lake.root, "note", **options)]
    if "storage_options" in options:
        of_path = (zb.open_index, zb.open_lake, zb.parquet_blooms, zb.delete_index)
        calls += [lambda door=door: door(lake.root, **options) for door in of_path]
        calls.append(lambda: zb.whatif(lake.root, "note", **options))
    else:
        calls.append(lambda: index.refresh("full", **options))
    for call in calls:
        with pytest.raises(InvalidArgumentError, match=must):
            call()
    assert zb.open_index(lake.root).columns == ["user_id"]


@pytest.mark.parametrize("columns", [5, True, [1], [["user_id"]], [None]])
def test_columns_of_a_scan(built, columns):
    with pytest.raises(InvalidArgumentError, match="columns must be one or more names, got"):
        built[1].to_table("user_id = 'x'", columns=columns)


def test_an_import_of_something_else(built, tmp_path):
    lake, index = built
    for zones, column in ((5, "user_id"), (index.zone_table("user_id").to_arrow(), "user_id"), (None, None)):
        with pytest.raises(InvalidArgumentError, match="must be of a ZoneTable and the name of a column"):
            zb.import_index(lake.root, zones, column=column, index=tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("paths", [5, True, [5], [b"x"], [["part-0.parquet"]]])
def test_paths(built, paths):
    with pytest.raises(InvalidArgumentError, match="paths must be"):
        built[1].refresh(paths=paths)


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


@pytest.mark.parametrize("columns", [[], ["user_id", "user_id"], None, 5, [5], [None], {"user_id": 1}.values()])
def test_columns(flat_lake, columns):
    with pytest.raises((InvalidArgumentError, ColumnNotFoundError), match="column"):
        zb.build_index(flat_lake.root, columns)
    assert not index_of(flat_lake.root).exists()


@pytest.mark.parametrize(
    "options",
    [
        *({"fpp": 1}, {"rows_per_zone": 0}, {"sizing": "Exact"}, {"kind": "file"}, {"workers": 0}),
        *({"commit_every": value} for value in (0, 1.5, None)),
    ],
    ids=str,
)
def test_parameters_that_make_no_sense_are_refused_before_anything_is_written(flat_lake, options):
    with pytest.raises(InvalidArgumentError, match=f"{next(iter(options))} must be"):
        zb.build_index(flat_lake.root, "user_id", **options)
    assert not index_of(flat_lake.root).exists()


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


def test_a_data_set_that_is_gone_is_an_error(built, tmp_path):
    lake, index = built
    index.root.rename(tmp_path / "index")
    lake.root.rename(tmp_path / "elsewhere")
    with pytest.raises(DataFileError, match="must be a readable folder"):
        index.search("user_id = 'x'")


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
