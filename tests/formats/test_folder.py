"""A folder of Parquet files on this machine and in an object store: one data set, so one test for both."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from zonebloom.errors import DataFileError, InvalidArgumentError
from zonebloom.formats import ParquetDataset, open_dataset

FILES = ("a.parquet", "day=1/a.parquet", "day=1/hour=2/b.parquet", "day=2/a.parquet", "plain/day=3/c.parquet")
HIDDEN = ("_SUCCESS", ".hidden/a.parquet", "_zonebloom/versions/1.json", "day=1/.a.parquet.crc", "day=1/_tmp/a.parquet")


def parquet(num_rows: int) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"k": range(num_rows)}), sink)
    return sink.getvalue().to_pybytes()


@dataclass(frozen=True)
class Place:
    """A folder `lake`, here or there, with `FILES` and `HIDDEN`, and a file beside it."""

    location: str
    options: Mapping[str, str]
    put: Callable[[str, bytes], object]

    def dataset(self) -> ParquetDataset:
        snapshot = open_dataset(self.location, self.options).pin()
        assert isinstance(snapshot, ParquetDataset)
        return snapshot


@pytest.fixture(params=["local", "s3"])
def lake(request, tmp_path) -> Place:
    if request.param == "local":

        def put(path: str, data: bytes) -> None:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(data)

        place = Place(str(tmp_path / "lake"), {}, put)
    else:
        s3 = request.getfixturevalue("s3")
        place = Place(s3.url("lake"), s3.options, s3.put)
    for number, path in enumerate((*FILES, *HIDDEN)):
        place.put(f"lake/{path}", parquet(number + 1))
    place.put("lakeside/a.parquet", parquet(1))
    return place


def test_all_files_that_no_name_hides_are_listed(lake):
    assert list(lake.dataset().list()) == sorted(FILES)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        *((["."], FILES), (["day=1"], FILES[1:3]), (["day=2", "day=1/hour=2"], FILES[2:4]), (["day"], ())),
        (["day=1/a.parquet", "none", "day=1/none.parquet"], FILES[1:2]),
        (["_zonebloom", "day=1/_tmp/a.parquet"], ()),
        *(([{"day": "1"}], FILES[1:3]), ([{"hour": "2"}], FILES[2:3]), ([{"day": "7"}], ())),
        ([{"day": "1", "hour": "2"}, {"day": "3"}], (FILES[2], FILES[4])),
    ],
    ids=str,
)
def test_a_part_is_listed_by_paths_or_by_partitions(lake, asked, expected):
    whole = lake.dataset().list()
    list_part = "list_under" if isinstance(asked[0], str) else "list_partitions"
    for dataset in (lake.dataset(), ParquetDataset(lake.dataset().store, "files", FILES)):
        assert getattr(dataset, list_part)(asked) == {path: whole[path] for path in expected}


@pytest.mark.parametrize(
    ("given", "expected"), [("day=1", "day=1"), ("day=1/x/../y", "day=1/y"), (".", "."), ("{}", "."), ("{}/b/c", "b/c")]
)
def test_paths_are_relative_to_the_folder(lake, given, expected):
    assert lake.dataset().relative(given.format(lake.location)) == expected


@pytest.mark.parametrize("given", ["..", "../x", "day=1/../../x", "{}side/a.parquet"])
def test_paths_outside_the_folder_are_refused(lake, given):
    with pytest.raises(InvalidArgumentError, match="must lie in the data set"):
        lake.dataset().relative(given.format(lake.location))


def test_an_index_inside_the_folder_must_be_hidden(lake):
    dataset = lake.dataset()
    for place in ("{}", "{}/index", "{}/day=1/index"):
        with pytest.raises(InvalidArgumentError, match="begins with _"):
            dataset.check_index(place.format(lake.location))
    for place in ("{}/.i/x", "{}/day=1/_i", "{}side", "s3://elsewhere/index", "/elsewhere"):
        dataset.check_index(place.format(lake.location))


def test_a_folder_can_be_sent_to_other_processes(lake):
    dataset = lake.dataset()
    other = pickle.loads(pickle.dumps(dataset))
    assert other.list() == dataset.list()
    with other.open(FILES[1]) as file:
        assert file.num_rows == 2


def test_a_file_that_was_overwritten_since_it_was_listed_is_never_taken_for_that(lake):
    dataset = lake.dataset()
    listed = dataset.list()[FILES[1]]
    with dataset.open(FILES[1], listed) as file:
        assert (file.fingerprint, file.num_rows) == (listed, 2)
    lake.put(f"lake/{FILES[1]}", parquet(999))
    try:
        with dataset.open(FILES[1], listed) as file:
            file.read_rows(0, [0], [2], ["k"])
            assert file.fingerprint != listed
    except DataFileError as error:
        assert "must not change while it is read" in str(error)  # noqa: PT017 - one of the two must hold
    with dataset.open(FILES[1]) as file:
        assert file.num_rows == 999


def test_a_column_of_nulls_alone_leaves_the_null_folder_readable(tmp_path):
    (tmp_path / "k=__HIVE_DEFAULT_PARTITION__").mkdir()
    pq.write_table(pa.table({"k": pa.nulls(1), "v": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"v": [2]}), tmp_path / "k=__HIVE_DEFAULT_PARTITION__/b.parquet")
    assert zb.build_index(tmp_path, "v").to_table("v > 0").to_pylist() == [{"k": None, "v": 1}, {"k": None, "v": 2}]


@pytest.mark.parametrize("new", [pa.table({"v": [2]}), pa.table({"v": [2], "k": pa.nulls(1)})])
def test_a_column_of_nulls_alone_has_the_values_of_its_folders(tmp_path, new):
    for key, table in (("a", pa.table({"v": [1], "k": pa.nulls(1)})), ("b", new)):
        (tmp_path / f"k={key}").mkdir()
        pq.write_table(table, tmp_path / f"k={key}/a.parquet")
    index = zb.build_index(tmp_path, "v")
    rows = pads.dataset(tmp_path, partitioning="hive").to_table().select(["v", "k"]).to_pylist()
    assert index.to_table("v > 0").to_pylist() == zb.open_lake(tmp_path).to_table("v > 0").to_pylist() == rows
    assert index.search("k = 'b'").files == ["k=b/a.parquet"]
    pq.write_table(pa.table({"v": [3], "k": ["c"]}), tmp_path / "k=b/b.parquet")
    index.refresh()
    assert index.to_table("k = 'c'").to_pylist() == [{"v": 3, "k": "c"}]
