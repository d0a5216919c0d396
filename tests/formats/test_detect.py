"""What is indexed: folders, files, lists and pyarrow Datasets; partitions as pyarrow infers them.

Oracle: `pyarrow.dataset` with `partitioning="hive"`.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

import zonebloom as zb
from tests.child import run_python
from tests.depth import at_depth
from zonebloom.engines import polars
from zonebloom.errors import DataFileError, InvalidArgumentError

NULL = "__HIVE_DEFAULT_PARTITION__"


def write_hive(root: Path, folders: list[str]) -> None:
    for number, folder in enumerate(folders):
        (root / folder).mkdir(parents=True, exist_ok=True)
        table = pa.table({"id": range(number * 3, number * 3 + 3)})
        pq.write_table(table, root / folder / f"part-{number}.parquet")


NUMERALS = ("0", "007", "-0", "+1", "1.0", "1e3", "", " 1", "٣", "2147483647", "2147483648", "-2147483648")
ZEROS = ("00000000012", "-0000000000003", "99999999999")
WORDS = ("São Paulo", "a b", "a/b", "50%", "x=y", "%41", "~", NULL, "null", "true", "2024-01-01", "'", "é")
FOLDER_TEXTS = st.integers(-(2**33), 2**33).map(str) | st.sampled_from([*NUMERALS, *ZEROS]) | st.sampled_from(WORDS)


@settings(max_examples=at_depth(50), deadline=None)
@given(
    texts=st.lists(FOLDER_TEXTS, min_size=1, max_size=5, unique=True).filter(lambda texts: texts != [NULL]),
    key=st.sampled_from(["k", "a b", "a=b", "é"]),
    several=st.booleans(),
)
def test_partition_columns_are_those_of_pyarrow(texts, key, several):
    """Names, types and values, whatever stands in the folders' names."""
    with TemporaryDirectory() as place:
        root = Path(place, "lake")  # the index lies beside it
        quoted = [text if text == NULL else quote(text, safe=" ~'") for text in texts]
        inner = itertools.cycle(["/m=3", "/m=x"] if several else [""])
        write_hive(root, [f"{quote(key)}={value}{folder}" for value, folder in zip(quoted, inner, strict=False)])
        theirs = pads.dataset(root, partitioning="hive")
        index = zb.build_index(root, "id", rows_per_zone=1)
        assert index.schema.field(key).type == theirs.schema.field(key).type
        expected = theirs.to_table().sort_by("id")
        assert index.to_table("id >= 0").sort_by("id").select(expected.column_names).equals(expected)
        for value in expected[key].unique().to_pylist():
            predicate = zb.IsNull(key) if value is None else zb.Equals(key, value)
            same = pc.is_null(expected[key]) if value is None else pc.equal(expected[key], value)
            result = index.search(predicate)
            assert result.kind == "exact"
            assert result.num_rows_kept == pc.sum(same).as_py()
            assert index.to_table(predicate).num_rows == pc.sum(same).as_py()


def test_partition_only_predicates_are_exact_and_read_nothing(tmp_path, monkeypatch):
    write_hive(tmp_path, [f"day={day}/city={city}" for day in (1, 2, 3) for city in ("a", NULL)])
    index = zb.build_index(tmp_path, "id", rows_per_zone=1)
    for text, files in (
        *(("day = 2", 2), ("day > 1 AND city = 'a'", 2), ("NOT (day IN (1, 2))", 2), ("city IS NULL OR day = 1", 4)),
        *(("city != 'a'", 0), ("day BETWEEN 2 AND 9", 4), ("city LIKE 'a%'", 3), ("day = 99999999999", 0)),
        ("day = 1.0", 2),
    ):
        result = index.search(text)
        assert (result.kind, result.kept.files, result.reasons) == ("exact", files, ()), text
        assert index.to_table(text).num_rows == 3 * files
    both = index.search("day = 2 AND id = 8")
    assert (both.kind, both.kept.rows) == ("at_most", 1)


def test_a_partition_is_not_the_data_set_that_moved(tmp_path):
    """Its files have no values of the column, so their rows would be lost by it; folders further up have all."""
    write_hive(tmp_path / "lake", ["day=1/k=a", "day=2/k=b"])
    place = zb.build_index(tmp_path / "lake", "id", index=tmp_path / "_index").location
    day = tmp_path / "lake" / "day=1"
    for part in (day, day / "k=a", day / "k=a" / "part-0.parquet"):
        with pytest.raises(InvalidArgumentError, match="with the folders of its partition column day"):
            zb.open_index(place, dataset=part)
    for whole in (tmp_path, [day / "k=a" / "part-0.parquet"]):
        assert zb.open_index(place, dataset=whole).to_table("day = 1 AND id = 2")["k"].to_pylist() == ["a"]
    own = zb.build_index(day, "id")
    assert zb.open_index(own.location, dataset=day).to_table("id = 2")["k"].to_pylist() == ["a"]


def test_a_new_partition_that_is_no_int_is_kept(tmp_path):
    write_hive(tmp_path, ["day=1", "day=2"])
    index = zb.build_index(tmp_path, "id", rows_per_zone=1)
    write_hive(tmp_path, ["day=1", "day=2", "day=soon"])
    assert "day=soon/part-2.parquet" in index.search("day = 1").files
    assert index.search("day = 1").kind == "at_most"
    with pytest.raises(DataFileError, match=r"day=soon.* must fit day: int32"):
        index.to_table("day = 1")


@pytest.mark.parametrize("indexed", [["id"], ["id", "day"]])
def test_a_column_that_some_files_hold_and_of_others_a_folder_is_in_all(tmp_path, indexed):
    write_hive(tmp_path, ["day=2", f"day={NULL}"])
    (tmp_path / "day=1").mkdir()
    held = pa.table({"id": [100, 101], "day": pa.array([1, 1], pa.int32())})
    pq.write_table(held, tmp_path / "day=1" / "held.parquet")
    index = zb.build_index(tmp_path, indexed, rows_per_zone=1)
    whole = pads.dataset(tmp_path, partitioning="hive").to_table().sort_by("id").select(["id", "day"])
    assert index.to_table("id >= 0", columns=["id", "day"]).sort_by("id").to_pylist() == whole.to_pylist()
    for condition in ("day = 2", "day = 1", "day IS NULL", "day > 1", "day = 2 AND id = 1", "NOT day = 1"):
        expected = duckdb.from_arrow(whole).filter(condition).order("id").fetchall()
        rows = index.to_table(condition, columns=["id", "day"]).sort_by("id")
        assert [tuple(row.values()) for row in rows.to_pylist()] == expected, condition
    assert index.search("id = 1").kept.rows == 1
    assert "day" not in indexed or index.exists("day", [2, 1]).to_pylist() == [True, True]
    assert index.verify().is_sound


def test_a_folder_that_does_not_fit_the_column_of_other_files_is_an_error(tmp_path):
    write_hive(tmp_path, ["day=soon"])
    (tmp_path / "day=1").mkdir()
    pq.write_table(pa.table({"id": [100], "day": [1]}), tmp_path / "day=1" / "held.parquet")
    index = zb.build_index(tmp_path, ["id", "day"])
    with pytest.raises(DataFileError, match=r"day=soon .* must be of the type int64"):
        index.to_table("day = 1")


@pytest.mark.parametrize(
    ("numeral", "of_type"),
    [
        *(("1e-9999999", pa.decimal128(38, 38)), ("256", pa.decimal128(38, 38)), ("0xff", pa.int8())),
        *(("16777217", pa.float32()), ("1e999", pa.float64())),
    ],
)
def test_a_folder_that_pyarrow_reads_as_another_number_is_an_error(tmp_path, numeral, of_type):
    """It crashes on the first, and takes the others for 0.788…, -1, a close number and an infinite one."""
    write_hive(tmp_path, [f"day={numeral}", "day=0"])
    held = pa.table({"id": [100], "day": pa.nulls(1, of_type)})
    pq.write_table(held, tmp_path / "day=0" / "held.parquet")
    index = zb.build_index(tmp_path, "id")
    with pytest.raises(DataFileError, match=rf"day={numeral} .* must be of the type {re.escape(str(of_type))}"):
        index.to_table("id >= 0")


def test_files_at_several_depths(tmp_path):
    write_hive(tmp_path, ["day=1", "day=1/hour=2", "plain/day=3", ""])
    index = zb.build_index(tmp_path, "id", rows_per_zone=1)
    theirs = pads.dataset(tmp_path, partitioning="hive").to_table().sort_by("id")
    assert index.to_table("id IS NOT NULL").sort_by("id").select(theirs.column_names).equals(theirs)
    assert index.to_table("day IS NULL")["id"].to_pylist() == [9, 10, 11]


def test_odd_names_of_files(tmp_path):
    names = ["a b.parquet", "é.parquet", "no-ending", "x=1", "%20.parquet", "'q\".parquet", "new\nline.parquet", "*"]
    for number, name in enumerate(names):
        pq.write_table(pa.table({"id": [number]}), tmp_path / name)
    index = zb.build_index(tmp_path, "id", rows_per_zone=1)
    for number, name in enumerate(names):
        assert index.search(zb.Equals("id", number)).files == [name]
        assert index.to_table(zb.Equals("id", number))["id"].to_pylist() == [number]


def test_what_is_no_file_is_skipped_and_said(tmp_path):
    """In a child of limited time: to open a FIFO blocks."""
    lake = tmp_path / "lake"
    (lake / "part").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), lake / "a.parquet")
    program = """
import os, socket, sys, pytest, zonebloom as zb
from zonebloom.errors import DataFileError
lake = sys.argv[1]
os.chdir(lake)  # names of sockets are short
index = zb.build_index(lake, "id")
os.mkfifo("fifo.parquet")
os.mkfifo("part/fifo.parquet")
socket.socket(socket.AF_UNIX).bind("socket")
for name, target in (("device", "/dev/zero"), ("dangling", "nowhere"), ("self", "self"), ("through", "a.parquet/x")):
    os.symlink(target, name)
index = zb.build_index(lake, "id", index="_other")
for ask in (
    index.refresh, index.verify, index.status, lambda: index.refresh("full"), lambda: zb.whatif(lake, "id"),
    lambda: index.refresh(paths=["part", "fifo.parquet"]), lambda: zb.build_index(["a.parquet"], "id", index="_list"),
):
    ask()
assert index.search("id = 2").files == ["a.parquet"]
assert index.to_table("id = 2").num_rows == 1 and index.exists("id", [2], exact=True).to_pylist() == [True]
with pytest.raises(DataFileError, match="is neither a folder nor a file"):
    zb.build_index("fifo.parquet", "id")
with pytest.raises(DataFileError, match="must be a regular file, got a FIFO"):
    index.data.open("fifo.parquet")
"""
    output = run_python(program, lake, seconds=100)
    kinds = {"fifo.parquet": "a FIFO", "part/fifo.parquet": "a FIFO", "socket": "a socket", "device": "a device"}
    for name, kind in (kinds | dict.fromkeys(("dangling", "self", "through"), "a link to nothing")).items():
        assert f"{lake / name}, {kind}; it is skipped" in output.stderr


def test_links_are_followed_but_one_to_a_folder_around_it_is_skipped_and_said(tmp_path):
    lake, other = tmp_path / "lake", tmp_path / "other"
    (lake / "part").mkdir(parents=True)
    other.mkdir()
    for number, folder in enumerate((lake, lake / "part", other)):
        pq.write_table(pa.table({"id": [number]}), folder / "a.parquet")
    (lake / "loop").symlink_to(lake)
    (lake / "part" / "up").symlink_to("..")
    (lake / "aside").symlink_to(other)
    (other / "back").symlink_to(lake)
    (lake / "linked.parquet").symlink_to(other / "a.parquet")
    with pytest.warns(RuntimeWarning, match="a link to a folder around it; it is skipped") as warned:
        index = zb.build_index(lake, "id", rows_per_zone=1)
    said = {str(warning.message).split("got ")[1].split(",")[0] for warning in warned}
    assert said == {str(lake / path) for path in ("loop", "part/up", "aside/back")}
    with pytest.warns(RuntimeWarning, match="is skipped"):
        assert index.to_table("id IN (0, 1, 2)")["id"].to_pylist() == [0, 2, 2, 1]
    with pytest.warns(RuntimeWarning, match="is skipped"):
        index.refresh(paths=["loop/part", "part"])
    with pytest.warns(RuntimeWarning, match="is skipped"):
        assert sorted(index.view().files) == ["a.parquet", "aside/a.parquet", "linked.parquet", "part/a.parquet"]


def test_sources_of_each_kind(flat_lake, tmp_path):
    file = flat_lake.root / flat_lake.files[0]
    sources = [
        *((source, 8001) for source in (flat_lake.root, str(flat_lake.root), pads.dataset(flat_lake.root))),
        *((source, 5000) for source in (file, [file], pads.dataset([file]))),
        ((str(file), flat_lake.root / flat_lake.files[1]), 8000),
    ]
    for number, (source, rows) in enumerate(sources):
        index = zb.build_index(source, "user_id", index=tmp_path / str(number))
        assert index.num_rows == rows
        assert zb.open_index(tmp_path / str(number)).to_table("amount IS NULL OR amount IS NOT NULL").num_rows == rows


def test_a_hive_lake_keeps_its_partition_columns_however_it_is_named(hive_lake, tmp_path):
    """Also where it comes as a pyarrow Dataset or a list of files, all of one partition."""
    source = pads.dataset(hive_lake.root, partitioning="hive")
    files = [hive_lake.root / path for path in hive_lake.files]
    for number, (location, rows) in enumerate([(source, 3000), (files, 3000), (files[2:4], 3000), (files[:2], 0)]):
        index = zb.build_index(location, "user_id", index=tmp_path / str(number))
        assert index.schema.names == source.schema.names
        assert index.to_table("day = 2").num_rows == rows
        assert index.to_table("day = 2").schema == source.schema


TABLE = pa.table({"a": [1]})


@pytest.mark.parametrize("source", [None, 5, [], {}, b"x", TABLE, pads.dataset(TABLE), [5], object()])
def test_what_is_no_data_set_is_refused(source):
    got = re.escape(f"{source}") if isinstance(source, list) else type(source).__name__
    with pytest.raises(InvalidArgumentError, match=f"a data set must be .* at least one path, .*, got {got}$"):
        zb.build_index(source, "c", index="unused")
    assert not Path("unused").exists()


def test_a_source_that_is_more_or_less_than_its_files_is_refused(tmp_path):
    pq.write_table(pa.table({"id": range(10)}), tmp_path / "a.parquet", row_group_size=5)
    path, dataset = tmp_path / "a.parquet", pads.dataset(tmp_path / "a.parquet")
    pq.write_to_dataset(pa.table({"id": [1], "year": [2020]}), tmp_path / "by", partitioning=["year"])
    for day in ("1", "NUL"):
        (tmp_path / f"hive/day={day}").mkdir(parents=True)
        shutil.copy(tmp_path / "a.parquet", tmp_path / f"hive/day={day}")
    other = pads.HivePartitioning(pa.schema([("day", pa.string())]), null_fallback="NUL")
    (tmp_path / "both/id=7").mkdir(parents=True)
    shutil.copy(tmp_path / "a.parquet", tmp_path / "both/id=7")
    shutil.copytree(tmp_path / "hive/day=1", tmp_path / "days/day=1")
    of_text = pads.partitioning(pa.schema([("day", pa.string())]), flavor="hive")
    in_ms = pads.ParquetFileFormat(read_options=pads.ParquetReadOptions(coerce_int96_timestamp_unit="ms"))
    groups = [fragment.subset(row_group_ids=[1]) for fragment in dataset.get_fragments()]
    ours = zb.build_index(path, "id", index=tmp_path / "own").dataset()
    (tmp_path / "a.csv").write_text("id\n1\n")
    for source, problem in (
        *((twice, "list each file once") for twice in ([path, path], [path, str(path)], pads.dataset([path, path]))),
        (["s3://bucket/a.parquet"] * 2, "list each file once"),
        (pads.dataset(tmp_path / "a.csv", format="csv"), "of Parquet files, got csv"),
        *((whole.filter(pc.field("id") > 5), "no filter") for whole in (dataset, ours)),
        (pads.FileSystemDataset(groups, dataset.schema, dataset.format), "of whole files"),
        (pads.dataset(tmp_path / "by", partitioning=["year"]), "no partitions but those of key=value .*, got year"),
        (pads.dataset(tmp_path / "hive", partitioning=other), "key=value folders, got day = None .*day=NUL"),
        (
            pads.dataset(tmp_path / "both", partitioning=pads.partitioning(dataset.schema, flavor="hive")),
            "in its files or in its partitions, got id in both",
        ),
        (pads.dataset(path, schema=pa.schema([("id", pa.int32())])), "got id: int32, where they have int64"),
        (pads.dataset(path, schema=pa.schema([("x", pa.int32())])), "got x: int32, where they have none"),
        (pads.dataset(path, schema=pa.schema([])), "got one without id"),
        (pads.dataset(tmp_path / "days", partitioning=of_text), "got day: string, where they have int32"),
        (pads.dataset(path, format=in_ms), "times of INT96 as they are, got in ms"),
    ):
        with pytest.raises(InvalidArgumentError, match=problem):
            zb.build_index(source, "id", index=tmp_path / "index")
    assert zb.build_index(ours, "id", index=tmp_path / "index").to_table("id >= 0").num_rows == 10
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    with pytest.warns(RuntimeWarning, match="always read whole"):
        zb.build_index(pads.dataset([path, tmp_path / "b.parquet"], schema=dataset.schema), "id", index=tmp_path / "2")


def test_files_of_a_table_are_refused_as_a_folder_in_it_is(tmp_path):
    deltalake.write_deltalake(tmp_path / "table", pa.table({"id": range(10), "day": [1, 2] * 5}), partition_by=["day"])
    deltalake.DeltaTable(tmp_path / "table").delete("id >= 5")
    files = sorted((tmp_path / "table").rglob("*.parquet"))
    folder = pads.dataset(tmp_path / "table", exclude_invalid_files=True)
    for source in (files, files[0], str(files[0]), folder, files[0].parent):
        for take in (lambda source: zb.build_index(source, "id", index=tmp_path / "i"), zb.open_lake):
            with pytest.raises(InvalidArgumentError, match="must be a whole table"):
                take(source)
    links = [tmp_path / "part", tmp_path / "file.parquet", tmp_path / "lake" / "part"]
    (tmp_path / "lake").mkdir()
    for link, place in zip(links, [files[0].parent, files[0], files[0].parent], strict=True):
        link.symlink_to(place)
    for source in (*links[:2], [links[1]], tmp_path / "lake", tmp_path / "part" / files[0].name):
        with pytest.raises(InvalidArgumentError, match="must be a whole table"):
            zb.open_lake(source)
    assert zb.parquet_bloom(files[0], 0, "id") is None  # of a file, whatever its rows are
    assert zb.parquet_blooms(files).num_rows == 0


def test_dots_behind_a_link_lead_where_the_system_goes(tmp_path):
    for folder in ("there/x", "x", "there/in"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "there" / "in")
    for folder in ("there/x", "x"):
        pq.write_table(pa.table({"folder": [folder]}), tmp_path / folder / "a.parquet")
    path = f"{tmp_path}/link/../x"
    assert zb.open_lake(path).to_table("true")["folder"].to_pylist() == ["there/x"]
    assert zb.build_index(path, "folder").location == str(tmp_path / "there" / "_x.zonebloom")
    assert zb.open_index(f"{tmp_path}/./there/in/..//x").to_table("folder = 'there/x'").num_rows == 1


def test_a_folder_that_became_a_part_of_a_table_is_refused(tmp_path):
    """As by CONVERT TO DELTA."""
    rows = pa.table({"id": range(10), "day": pa.array([1, 2] * 5, pa.int32())})
    flavor = pads.partitioning(pa.schema([("day", pa.int32())]), flavor="hive")
    pads.write_dataset(rows, tmp_path / "t", format="parquet", partitioning=flavor)
    index = zb.build_index(tmp_path / "t" / "day=1", "id")
    day = deltalake.Schema([deltalake.Field("day", "integer")])
    deltalake.convert_to_deltalake(tmp_path / "t", partition_by=day, partition_strategy="hive")
    for use in (index.refresh, lambda: index.to_table("id = 2"), lambda: zb.erase(index, "id", [2])):
        with pytest.raises(InvalidArgumentError, match=r"must be a whole table, got .*day=1, a part of the table"):
            use()
    assert deltalake.DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 10


def test_no_link_to_a_file_of_a_table_is_erased_from(tmp_path):
    deltalake.write_deltalake(tmp_path / "table", pa.table({"id": range(10)}))
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "a.parquet").symlink_to(next((tmp_path / "table").glob("*.parquet")))
    zb.build_index(tmp_path / "lake", "id")
    with pytest.raises(InvalidArgumentError, match=r"must be a whole table, got .*a.parquet, a part of the table"):
        zb.erase(tmp_path / "lake", "id", [2])
    assert deltalake.DeltaTable(tmp_path / "table").to_pyarrow_table().num_rows == 10


@pytest.mark.parametrize("as_list", [False, True])
def test_a_part_of_a_table_in_a_store_is_neither_indexed_nor_erased_from(s3, as_list):
    options, url = s3.options, s3.url("lake/t")
    rows = pa.table({"id": range(10), "day": [1, 2] * 5})
    pq.write_table(rows.select(["id"]), (path := BytesIO()))
    s3.put("lake/t/day=1/a.parquet", path.getvalue())
    source = [f"{url}/day=1/a.parquet"] if as_list else f"{url}/day=1"
    index = zb.build_index(source, "id", index=s3.url("index"), storage_options=options)
    deltalake.write_deltalake(url, rows, partition_by=["day"], storage_options=options)
    for use in (
        lambda: zb.build_index(source, "id", index=s3.url("other"), storage_options=options),
        lambda: zb.erase(index, "id", [2]),
    ):
        with pytest.raises(
            InvalidArgumentError, match=r"must be a whole table, got .*, a part of the table s3://.*/lake/t;"
        ):
            use()
    assert deltalake.DeltaTable(url, storage_options=options).to_pyarrow_table().num_rows == 10


@pytest.mark.parametrize("path", ["", "a\0b", "a\ud800", b"lake", 5], ids=repr)
def test_what_is_no_path_is_refused(tmp_path, monkeypatch, path):
    """An empty path is not the folder in which a program happens to run."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"c": [1]}), "a.parquet")
    message = r"a path must be a text without NUL .* not empty, got"
    with pytest.raises(InvalidArgumentError, match=message):
        zb.build_index("a.parquet", "c", index=path)
    with pytest.raises(InvalidArgumentError, match=message if isinstance(path, str) else "must be named by a path"):
        zb.open_index(path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_a_table_in_place_of_the_path_of_an_index_is_told_where_it_goes(tmp_path):
    deltalake.write_deltalake(tmp_path / "t", pa.table({"c": [1]}))
    table = deltalake.DeltaTable(tmp_path / "t")
    zb.build_index(table, "c")
    for take in (zb.open_index, zb.delete_index, polars.scan):
        with pytest.raises(InvalidArgumentError, match=r"got a DeltaTable; .* open_index\(path, dataset=table\)"):
            take(table)


def test_missing_paths(tmp_path):
    for source, problem in (
        *((tmp_path / "nowhere", "does not exist"), (tmp_path, "at least one file")),
        ([tmp_path / "gone.parquet"], r"must be a file, got .*gone"),
    ):
        with pytest.raises(DataFileError, match=problem):
            zb.build_index(source, "c", index=tmp_path / "_i")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mtime_ns", [-(10**18), 0, 2**63 - 1, 2**63, 10**19])
def test_files_of_any_time_are_indexed_and_seen_to_change(tmp_path, mtime_ns):
    """Nanoseconds from the year 2262 on do not fit 64 bits; a file with a broken clock must not stop a search."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": range(100)}), path)
    os.utime(path, ns=(mtime_ns, mtime_ns))
    index = zb.build_index(tmp_path, "k", rows_per_zone=10)
    assert index.search("k = 5", strict=True).kept.rows == 10
    pq.write_table(pa.table({"k": range(100, 200)}), path)
    os.utime(path, ns=(mtime_ns + 1, mtime_ns + 1))
    assert index.to_table("k = 105").num_rows == 1
