"""Whole lakes in object stores: build, search, scan, refresh, upkeep, damage, races, against moto's server on loopback.

Expected rows come from pyarrow over the local files that were uploaded.
"""

from __future__ import annotations

import io
import itertools
import random
import threading
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
import s3fs

import zonebloom as zb
from tests.azure import Container
from tests.conftest import Lake, make_rows
from tests.depth import IS_DEEP, at_depth, some
from tests.s3 import Bucket, Request
from zonebloom.errors import DataFileError, IndexNotFoundError, InvalidArgumentError, StorageError
from zonebloom.formats.lru_cache import LruCache
from zonebloom.formats.parquet import footer as footers
from zonebloom.search import scan, tasks
from zonebloom.stores import object_file
from zonebloom.stores.object_client import ObjectClient
from zonebloom.stores.store import ROUND_BYTES


def beside(url: str) -> str:
    """Where the index of a folder is if nobody says; a name with = would be a partition, had it no dot."""
    folder, _, name = url.rpartition("/")
    return f"{folder}/{'.' if '=' in name else '_'}{name}.zonebloom"


def key_of(lake: Lake, row: int) -> str:
    return lake.table["user_id"][row].as_py()


def rows_with(table: pa.Table, keys: list[str]) -> pa.Table:
    return table.filter(pc.is_in(table["user_id"], pa.array(keys)))


def assert_same(actual: pa.Table, expected: pa.Table) -> None:
    """Compared as text, in which NaN is itself."""
    assert actual.schema == expected.schema
    assert str(actual.to_pylist()) == str(expected.to_pylist())


def assert_finds(index: zb.Index, table: pa.Table, keys: list[str]) -> None:
    """Every key's rows, alone and together, and nothing for a key that is nowhere."""
    for key in keys:
        assert_same(index.to_table(zb.col("user_id") == key), rows_with(table, [key]))
    assert_same(index.to_table(zb.col("user_id").isin([*keys, "nobody"])), rows_with(table, keys))
    assert index.to_table(zb.col("user_id") == "nobody").num_rows == 0
    assert index.exists("user_id", [*keys, "nobody"], exact=True).to_pylist() == [True] * len(keys) + [False]


def parquet(table: pa.Table, row_group_size: int = 2048, **options) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=row_group_size, **options)
    return sink.getvalue()


def reopened(s3: Bucket | Container) -> zb.Index:
    """The index of the folder `lake`, opened anew."""
    return zb.open_index(s3.url("lake"), storage_options=s3.options)


def indexed(s3: Bucket | Container, lake: Lake, columns: str | list[str] = "user_id", **options) -> zb.Index:
    """The index of a lake that is uploaded as the folder `lake`."""
    options = {"rows_per_zone": 64, **options, "storage_options": s3.options}
    zb.build_index(s3.upload(lake.root, "lake"), columns, **options)
    return reopened(s3)


def located(s3: Bucket, data: bytes, rows_per_zone: int) -> zb.Index:
    """The locator of `k` of one file, `lake/one.parquet`; no footer of it is known."""
    s3.put("lake/one.parquet", data)
    options = {"rows_per_zone": rows_per_zone, "kind": "locator", "storage_options": s3.options}
    zb.build_index(s3.url("lake"), "k", **options)
    footers._KEPT.clear()
    return reopened(s3)


def some_keys(lake: Lake) -> list[str]:
    return [key_of(lake, row) for row in (0, lake.table.num_rows // 2, lake.table.num_rows - 1)]


# --- places -----------------------------------------------------------------------------------------------------------


def test_all_places_of_an_index_are_asked_at_once(s3: Bucket, flat_lake: Lake):
    indexed(s3, flat_lake)
    all_asked = threading.Barrier(3)

    def fault(_method: str, _path: str, query: str) -> None:
        if "versions" in query:
            all_asked.wait(20)

    with s3.server.misbehaving(fault), s3.server.recorded() as requests:
        assert reopened(s3).columns == ["user_id"]
    assert not all_asked.broken
    assert len(requests) == 4  # and one for the version


@pytest.fixture(params=["s3", "azure"] if IS_DEEP else ["s3"])
def store(request) -> Bucket | Container:
    """An empty bucket of S3, or container of Azure."""
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize(("partition_by_day", "kind"), some([(True, "both"), (False, "bloom")], 2))
def test_a_remote_lake_lives_as_a_local_one(store, make_lake, partition_by_day, kind):
    lake = make_lake((900, 500, 1000, 0, 300), partition_by_day=partition_by_day, row_group_size=256)
    name, columns, options = "a b/lake ü=1%20", ["user_id", "note"], {"rows_per_zone": 64, "kind": kind}
    url, path = store.upload(lake.root, name), lake.files[2]
    here = zb.build_index(lake.root, columns, **options)
    there = zb.build_index(url, columns, **options, storage_options=store.options)
    assert there.location == there.root == beside(url)
    assert zb.open_index(beside(url), storage_options=store.options).version == 1

    def assert_equal(num_reasons: int = 0) -> None:
        table = ds.dataset(lake.root, format="parquet", partitioning="hive").to_table()
        keys = [table["user_id"][row].as_py() for row in (0, table.num_rows // 2, -1)]
        for index in (there, zb.open_index(url, storage_options=store.options)):
            assert_finds(index, table, keys)
            assert_same(index.to_table("note IS NULL"), table.filter(pc.is_null(table["note"])))
            located, located_here = (each.locate("user_id", [*keys, "nobody"]) for each in (index, here))
            assert located.drop_columns("fingerprint") == located_here.drop_columns("fingerprint")
            assert index.files_for("user_id", keys) == here.files_for("user_id", keys)
            ours, result = (asked.search(zb.col("user_id") == keys[1]) for asked in (here, index))
            assert (result.row_ranges, len(result.reasons)) == (ours.row_ranges, num_reasons)
            assert num_reasons or result.kept.zones <= 2 < result.total.zones
            assert num_reasons or index.search("note IS NULL AND user_id = 'nobody'").kept.rows == 0
            if partition_by_day:
                assert index.to_table("day = 2").num_rows == table.filter(pc.field("day") == 2).num_rows
        for column in columns:
            assert there.zone_table(column).to_arrow().equals(here.zone_table(column).to_arrow())

    assert_equal()
    for number, changed in enumerate((path.replace("part-2", "part-9"), path, path)):
        if number < 2:
            pq.write_table(make_rows(500, seed=9 + number), lake.root / changed, row_group_size=256)
            store.put(f"{name}/{changed}", (lake.root / changed).read_bytes())
        else:
            (lake.root / changed).unlink()
            store.delete(f"{name}/{changed}")
        assert_equal(num_reasons=int(number < 2))
        done = there.refresh()
        assert done == here.refresh()
        assert (done.num_files_added, done.num_files_dropped) == [(1, 0), (1, 1), (0, 1)][number]
        assert_equal()
    assert there.verify(sample=1.0).is_sound
    zb.delete_index(url, storage_options=store.options)
    assert len(store.keys()) == len(list(lake.root.rglob("*.parquet")))
    with pytest.raises(IndexNotFoundError):
        zb.open_index(url, storage_options=store.options)


def test_one_file_and_a_list_of_files(s3: Bucket, flat_lake: Lake):
    url = s3.upload(flat_lake.root, "a b")
    of_file = zb.build_index(f"{url}/part-0.parquet", "user_id", storage_options=s3.options)
    assert of_file.location == f"{url}/_part-0.parquet.zonebloom"
    opened = zb.open_index(f"{url}/part-0.parquet", storage_options=s3.options)
    assert_finds(opened, flat_lake.table[:5000], some_keys(flat_lake)[:1])
    files = [f"{url}/part-2.parquet", f"{url}/part-0.parquet"]
    several = zb.build_index(files, "user_id", index=s3.url("index"), storage_options=s3.options)
    table = pa.concat_tables([flat_lake.table[:5000], flat_lake.table[8000:]])
    assert_finds(several, table, [key_of(flat_lake, 17), key_of(flat_lake, 8000)])
    for error, told, more, index in (
        (DataFileError, "each path of a list must be a file", [f"{url}/none.parquet"], s3.url("i")),
        (InvalidArgumentError, "all be local or all be URLs", [flat_lake.root / "part-0.parquet"], s3.url("i")),
        (InvalidArgumentError, "index must name a folder", [], None),
    ):
        with pytest.raises(error, match=told):
            zb.build_index([*files, *more], "user_id", index=index, storage_options=s3.options)


def test_lakes_that_others_write(s3: Bucket):
    """By s3fs and by pyarrow's own file system; markers of folders and hidden names are no data."""
    table = make_rows(3000).append_column("day", pa.array(np.arange(3000) % 3, pa.int32()))
    theirs = s3fs.S3FileSystem(key="key", secret="secret", endpoint_url=s3.server.url)
    partitioning = ds.partitioning(pa.schema([("day", pa.int32())]), flavor="hive")
    ds.write_dataset(table, f"{s3.name}/lake", filesystem=theirs, format="parquet", partitioning=partitioning)
    for marker in ("lake/", "lake/day=0/", "lake/day=7_$folder$"):
        s3.put(marker, b"")
    s3.put("lake/", b"a folder")
    s3.put("lake/_SUCCESS", b"x")
    s3.put("lake/day=0/.hidden", b"x")
    index = zb.build_index(s3.url("lake"), "user_id", rows_per_zone=64, storage_options=s3.options)
    assert index.num_fragments == 3
    ours = pyarrow.fs.S3FileSystem(access_key="key", secret_key="secret", endpoint_override=s3.server.url)
    whole = ds.dataset(
        f"{s3.name}/lake", filesystem=ours, format="parquet", partitioning=partitioning, exclude_invalid_files=True
    )
    key = table["user_id"][1234].as_py()
    assert_same(index.to_table(zb.col("user_id") == key), whole.to_table(filter=pc.field("user_id") == key))
    with pytest.raises(InvalidArgumentError, match="give the URL of the folder"):
        zb.build_index(whole, "user_id", index=s3.url("i"), storage_options=s3.options)


def test_no_secret_is_written(s3: Bucket, flat_lake: Lake):
    url = s3.upload(flat_lake.root, "lake")
    zb.build_index(url, "user_id", storage_options={**s3.options, "aws_secret_access_key": "TOP-SECRET"})
    for key in s3.keys("_lake.zonebloom"):
        assert b"TOP-SECRET" not in s3.get(key)
        assert s3.server.url.encode() not in s3.get(key)


# --- a lake that moves on ---------------------------------------------------------------------------------------------


ASKING = {
    "search": lambda index, key: index.search(zb.col("user_id") == key).num_rows_kept,
    "to_table": lambda index, key: index.to_table(f"user_id = '{key}'").num_rows,
    "search of two columns": lambda index, key: index.search(f"user_id = '{key}' OR device_id = -1").num_rows_kept,
    "a list": lambda index, key: index.search(column="user_id", values=[key]).num_rows_kept,
    "exists": lambda index, key: sum(index.exists("user_id", [key]).to_pylist()),
    "locate": lambda index, key: len(index.locate("user_id", [key])),
    "locate, exact": lambda index, key: index.locate("user_id", [key], exact=True)["path"].is_valid().to_pylist()[0],
    "files_for": lambda index, key: len(index.files_for("user_id", [key])),
}


@pytest.mark.parametrize("ask", ASKING.values(), ids=ASKING)
def test_the_data_is_listed_while_the_index_is_asked(s3: Bucket, flat_lake: Lake, ask):
    """The listing waits for a request to a segment: one after the other they would never end."""
    index = indexed(s3, flat_lake, ["user_id", "device_id"], kind="locator")
    for key in [*some_keys(flat_lake), "nobody"]:
        is_asked, waits = threading.Event(), []

        def fault(_method: str, path: str, query: str, is_asked=is_asked, waits=waits) -> None:
            if "/columns/" in path:
                is_asked.set()
            elif "list-type" in query:
                waits.append(is_asked.wait(20))

        with s3.server.misbehaving(fault):
            answer = ask(index, key)
        assert waits == [True]
        assert bool(answer) == (key != "nobody")


def test_a_refresh_of_a_part_lists_only_that(s3: Bucket, hive_lake: Lake):
    index = indexed(s3, hive_lake)
    for day in (1, 2):
        s3.put(f"lake/day={day}/new.parquet", parquet(make_rows(100, seed=day)))
    for scope in ({"paths": ["day=1"]}, {"paths": [s3.url("lake/day=1/new.parquet")]}, {"partitions": "day=2"}):
        with s3.server.recorded() as requests:
            done = index.refresh(**scope)
        assert done.num_files_added == (0 if "new" in str(scope) else 1)
        prefixes = [request.query.rpartition("prefix=")[2] for request in requests if "prefix=" in request.query]
        listed = [prefix for prefix in prefixes if "zonebloom" not in prefix]
        assert listed
        assert not any(entry in ("lake%2F", "lake%2Fday%3D3%2F") and "delimiter" not in entry for entry in listed[1:])
    assert index.search("user_id = 'x'", strict=True).kept.rows == 0


def test_a_file_that_changes_during_a_scan_is_never_mixed(s3: Bucket):
    """Overwritten by one as long, before the first request or a later one: an error, or the rows of one version."""
    keys = np.random.default_rng(4).integers(0, 2**62, 400_000)
    old, new = (
        parquet(pa.table({"k": values}), len(keys), write_page_index=True, use_dictionary=False, compression="none")
        for values in (keys, np.full(len(keys), keys[5]))
    )
    assert len(old) == len(new) > ROUND_BYTES
    located(s3, old, 1000)
    outcomes = set()
    for number in range(4):
        s3.put("lake/one.parquet", old)
        footers._KEPT.clear()
        index, reads = reopened(s3), itertools.count()

        def overwrite(method, path, _query, number=number, reads=reads):
            if method == "GET" and path.endswith("one.parquet") and next(reads) == number:
                s3.put_at_once("lake/one.parquet", new)

        with s3.server.misbehaving(overwrite):
            try:
                outcomes.add(index.to_table(zb.col("k") == int(keys[5])).num_rows)
            except DataFileError as error:
                assert "must not change while it is read" in str(error)  # noqa: PT017 - or it reads one version
                outcomes.add("noticed")
    assert outcomes == {1, "noticed"}


# --- upkeep -----------------------------------------------------------------------------------------------------------


def test_upkeep_of_a_remote_index(store, make_lake):
    lake = make_lake((3000, 3000))
    index = indexed(store, lake, rows_per_zone=8, optimize=False)
    assert index.indexed_columns()[0].segments.keys() == {"zones"}
    index.optimize()
    assert index.indexed_columns()[0].segments.keys() >= {"slices"}
    assert_finds(index, lake.table, some_keys(lake))
    assert index.exists("user_id", lake.table["user_id"]).true_count == 6000  # more hashes than are probed one by one
    assert index.restore(1) == 3
    assert_finds(index, lake.table, some_keys(lake))
    assert [version.number for version in index.versions()] == [1, 2, 3]
    assert index.vacuum(older_than=timedelta(days=1)).files == ()
    done = index.vacuum(older_than=timedelta(0))
    assert done.versions == (1, 2)
    assert_finds(reopened(store), lake.table, some_keys(lake))
    assert len(store.keys("_lake.zonebloom/columns/")) == 2
    assert index.verify(sample=1.0).is_sound


def test_small_columns_are_sliced_where_reads_are_dear(s3: Bucket, make_lake):
    lake = make_lake((3000, 3000))
    index = indexed(s3, lake, rows_per_zone=8)
    assert index.indexed_columns()[0].segments.keys() >= {"slices"}
    assert index.verify(sample=1.0).is_sound
    assert_finds(index, lake.table, some_keys(lake))
    local = zb.build_index(lake.root, "user_id", rows_per_zone=8)
    assert local.indexed_columns()[0].segments.keys() == {"zones"}
    assert index.zone_table("user_id").to_arrow().equals(local.zone_table("user_id").to_arrow())


# --- writers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", some(["slices", "bloom", "locator"], 2))
def test_faults_of_a_store_change_no_answer(s3: Bucket, make_lake, layout):
    """Of the requests to index and data a tenth is slow, and a tenth is refused, unanswered or half answered."""
    lake = make_lake((3000, 2000, 0, 3000), row_group_size=500)
    chance, index = random.Random(5), indexed(s3, lake, kind="bloom" if layout == "slices" else layout)
    if layout == "slices":
        index.optimize()
    struck: Counter[str] = Counter()

    def fault(_method: str, _path: str, _query: str) -> str | None:
        kind = chance.choice([*[None] * 16, "slow", "slow", "refuse", "lose", "break"])
        struck.update([kind] if kind else [])
        time.sleep(0.05 if kind == "slow" else 0)
        return None if kind == "slow" else kind

    with s3.server.misbehaving(fault):
        for _ in range(at_depth(12, 2)):
            opened, keys = reopened(s3), some_keys(lake)
            assert_finds(opened, lake.table, keys)
            by_engine = opened.dataset().to_table(filter=pc.field("user_id").isin(keys))  # as engines ask
            assert_same(by_engine, rows_with(lake.table, keys))
    assert set(struck) == {"slow", "refuse", "lose", "break"}


@pytest.mark.parametrize("folder", ["versions", "ids", "fragments", "columns"])
def test_a_write_whose_answer_is_lost_counts_once(s3: Bucket, flat_lake: Lake, folder):
    lost = []

    def lose_first(method, path, query):
        if method == "PUT" and f"/_lake.zonebloom/{folder}/" in path and path not in lost:
            lost.append(path)
            return "lose"
        return None

    with s3.server.misbehaving(lose_first):
        index = indexed(s3, flat_lake)
    assert lost
    assert index.version == 1
    assert_finds(index, flat_lake.table, some_keys(flat_lake))
    assert index.search("user_id = 'x'", strict=True).kept.rows == 0


@pytest.mark.parametrize("folder", ["versions", "columns"])
def test_nothing_is_committed_where_a_write_is_refused(s3: Bucket, flat_lake: Lake, folder):
    with (
        s3.server.misbehaving(
            lambda method, path, _query: "deny" if method == "PUT" and f"/_lake.zonebloom/{folder}/" in path else None
        ),
        pytest.raises(StorageError, match="access was refused"),
    ):
        indexed(s3, flat_lake)
    assert {key.split("/")[2] for key in s3.keys("_lake.zonebloom")} <= {"ids"}
    assert s3.unfinished() == []
    with pytest.raises(IndexNotFoundError):
        reopened(s3)
    assert_finds(indexed(s3, flat_lake), flat_lake.table, some_keys(flat_lake))


# --- damage and outages -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "folder"), some(itertools.product(["missing", "short", "changed"], ["columns", "fragments"]), 3)
)
def test_damage_keeps_rows_and_is_repaired(s3: Bucket, flat_lake: Lake, damage, folder):
    indexed(s3, flat_lake)
    for key in s3.keys(f"_lake.zonebloom/{folder}/"):
        data = s3.get(key)
        s3.delete(key)
        if damage != "missing":
            s3.put(key, data[:-1] if damage == "short" else bytes(len(data)))
    index = reopened(s3)
    with pytest.warns(RuntimeWarning, match="rows that it describes are read whole"):
        assert_finds(index, flat_lake.table, some_keys(flat_lake))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert index.refresh().num_files_added == 3
    assert index.search("user_id = 'x'", strict=True).kept.rows == 0


def test_a_store_that_cannot_be_reached_is_an_error_not_damage(s3: Bucket, make_lake):
    lake = make_lake((2000, 2000))
    index = indexed(s3, lake, rows_per_zone=8)
    for _ in range(2):
        with (
            s3.server.misbehaving(lambda _method, path, _query: "deny" if path.endswith(".slices.arrow") else None),
            pytest.raises(StorageError, match="access was refused"),
        ):
            index.search(zb.col("user_id") == key_of(lake, 0))
        assert index.search(zb.col("user_id") == key_of(lake, 0)).kept.zones == 1


@pytest.mark.parametrize("key", ["a//b.parquet", "./a.parquet", "../a.parquet", "a\tb.parquet"])
def test_a_key_that_cannot_be_listed_is_told(s3: Bucket, flat_lake: Lake, key):
    url = s3.upload(flat_lake.root, "lake")
    s3.put(f"lake/{key}", b"")
    with pytest.raises(StorageError, match=r"each key must have no empty part.*rename or remove it"):
        zb.build_index(url, "user_id", storage_options=s3.options)


# --- requests ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wide_lake(s3_server):
    """250 files with 8192 zones of 32 rows, optimized: the url, the bucket, the keys of each file."""
    bucket = s3_server.bucket("wide-lake")
    random = np.random.default_rng(3)
    keys = [random.integers(0, 2**62, 32 * (33 if number < 192 else 32)) for number in range(250)]
    with ThreadPoolExecutor(2) as pool:
        files = pool.map(lambda mine: parquet(pa.table({"k": mine, "v": np.arange(len(mine))}), 64), keys)
        for number, data in enumerate(files):
            bucket.put_at_once(f"lake/part-{number:04}.parquet", data)
    zb.build_index(bucket.url("lake"), "k", rows_per_zone=32, storage_options=bucket.options)
    return bucket, keys


def test_a_cold_search_takes_few_requests_and_a_second_one_fewer(wide_lake):
    bucket, keys = wide_lake
    with bucket.server.recorded() as cold:
        index = reopened(bucket)
        result = index.search(zb.col("k") == int(keys[7][33]))
    assert (result.total.files, result.total.zones, result.kept.files) == (250, 8192, 1)
    assert len(cold) <= 12
    assert sum(request.num_bytes for request in cold) <= 1_000_000
    places = [request for request in cold if "versions" in request.query]
    assert len(places) == 3
    assert index.traffic.num_requests == len(cold) - 2  # two places have no index
    listed = sum(request.num_bytes for request in cold if "list-type" in request.query)
    assert index.traffic.bytes_read == sum(request.num_bytes for request in cold) - listed
    for key in (int(keys[200][5]), 1, 2):
        before = index.traffic
        with bucket.server.recorded() as second:
            index.search(zb.col("k") == key)
        assert len(second) <= 4
        assert (index.traffic - before).num_requests == len(second)
    with bucket.server.recorded() as together:
        index.search(zb.col("k").isin([int(mine[0]) for mine in keys[:100]]))
    assert len(together) <= 6


def num_requests(requests: list[Request], ending: str) -> int:
    return sum(request.path.endswith(ending) for request in requests)


def test_a_key_is_one_request_of_a_locator_and_one_of_its_file(s3: Bucket, make_lake):
    lake = make_lake((3000,) * 9, row_group_size=10_000)
    index = indexed(s3, lake, kind="both")

    def counted(ask) -> tuple[object, list[int]]:
        """What is answered, and the requests of locators, of filters and of data files."""
        with s3.server.recorded() as requests:
            answer = ask()
        return answer, [num_requests(requests, ending) for ending in (".locator", ".arrow", ".parquet")]

    assert index.to_table("user_id = 'nobody'").num_rows == 0
    for row in (5, 14_000, 26_999):
        is_it = zb.col("user_id") == key_of(lake, row)
        assert counted(lambda is_it=is_it: index.to_table(is_it).num_rows) == (1, [1, 0, 1])
    assert counted(lambda: index.to_table("user_id = 'no one'").num_rows) == (0, [1, 0, 0])
    keys = [key_of(lake, row) for row in range(10, 27_000, 3000)]
    num_rows, (*_, of_files) = counted(lambda: index.to_table(column="user_id", values=keys).num_rows)
    assert (num_rows, of_files) == (9, 9)
    located, (*_, of_files) = counted(lambda: index.locate("user_id", keys, exact=True))
    assert (located["row"].to_pylist(), of_files <= 9) == ([10] * 9, True)


def test_a_query_of_an_engine_lists_the_data_once(s3: Bucket, flat_lake: Lake):
    index = indexed(s3, flat_lake, kind="locator")
    with s3.server.recorded() as requests:
        dataset = index.dataset()
    assert not requests
    with s3.server.recorded() as requests:
        assert dataset.to_table(filter=pc.field("user_id") == key_of(flat_lake, 5)).num_rows == 1
    assert sum("prefix=lake%2F" in request.query for request in requests) == 1


@pytest.mark.parametrize("writer", ["pyarrow", "pyarrow with page indexes", "polars"])
@pytest.mark.parametrize("is_right", [True, False])
def test_a_row_group_is_fetched_with_the_footer_where_it_is_expected(s3: Bucket, monkeypatch, writer, is_right):
    """Pages of Polars are some bytes further than their sizes say; a wrong place costs a request, and no row."""
    num_rows = 200_000
    random = np.random.default_rng(4)
    columns = {"k": random.integers(0, 2**62, num_rows), "v": random.random(num_rows), "n": np.arange(num_rows)}
    table, sink = pa.table(columns), io.BytesIO()
    if writer == "polars":
        pl.from_arrow(table).write_parquet(sink, row_group_size=20_000)
    else:
        pq.write_table(table, sink, row_group_size=20_000, write_page_index="index" in writer)
    assert len(sink.getvalue()) > ROUND_BYTES
    index = located(s3, sink.getvalue(), 2000)
    if not is_right:
        monkeypatch.setattr(tasks, "_PAGES_START", 1 << 20)
    counts = []
    for row in (0, 99_999, 185_000):
        monkeypatch.setattr(footers, "_KEPT", LruCache(0, lambda _: 0))
        key = columns["k"][row]
        with s3.server.recorded() as requests:
            assert_same(index.to_table(zb.col("k") == int(key)), table.slice(row, 1))
        counts.append(num_requests(requests, ".parquet"))
    assert max(counts) <= 2 if is_right else max(counts) > 2


@pytest.fixture
def rounds_of_files(monkeypatch) -> list[str]:
    """The keys of data files, once for each round of requests to them: what is started at once, or waited for."""
    rounds: list[str] = []
    fetched_ahead, get_ranges = object_file._Ahead.__init__, ObjectClient.get_ranges

    def start(ahead, client, key, *parts):
        rounds.append(key)
        fetched_ahead(ahead, client, key, *parts)

    def wait(client, key, *parts):
        if key.endswith(".parquet"):
            rounds.append(key)
        return get_ranges(client, key, *parts)

    monkeypatch.setattr(object_file._Ahead, "__init__", start)
    monkeypatch.setattr(ObjectClient, "get_ranges", wait)
    return rounds


@pytest.mark.parametrize("page_bytes", [1 << 10, 1 << 20])
def test_rows_of_a_large_row_group_take_a_round_for_its_end_and_one_for_its_pages(
    s3: Bucket, rounds_of_files, page_bytes
):
    """Small pages have page indexes that 64 KiB do not hold; large pages have more than 2 MiB in all."""
    num_rows, random = 40_000, np.random.default_rng(4)
    columns = {"k": random.integers(0, 2**62, num_rows)}
    columns |= {name: [f"{number:0100d}" for number in random.integers(0, 2**62, num_rows)] for name in "abc"}
    table, plain = pa.table(columns), {"use_dictionary": False, "compression": "none", "write_statistics": ["k"]}
    pages = {"write_batch_size": page_bytes >> 7, "data_page_size": page_bytes, "write_page_index": True}
    data = parquet(table, num_rows // 2, **plain, **pages)
    group = pq.read_metadata(io.BytesIO(data)).row_group(0)
    assert sum(group.column(leaf).total_compressed_size for leaf in range(4)) > 2 * ROUND_BYTES
    index = located(s3, data, 100)
    for row, num_rounds in ((3, 2), (39_990, 1), (12_345, 1)):
        rounds_of_files.clear()
        with s3.server.recorded() as requests:
            assert_same(index.to_table(zb.col("k") == int(columns["k"][row])), table.slice(row, 1))
        assert rounds_of_files == ["lake/one.parquet"] * num_rounds
        assert sum(request.num_bytes for request in requests) < len(data) / 2


def test_rows_that_never_match_are_read_by_their_condition_alone(s3: Bucket, make_lake, monkeypatch):
    lake = make_lake((3000,) * 9, row_group_size=10_000)
    index = indexed(s3, lake, kind="locator")
    plan, num_bytes = scan._Scan, []
    for credit in (64 << 20, 300_000):
        monkeypatch.setattr(scan, "_Scan", partial(plan, credit=credit))
        monkeypatch.setattr(footers, "_KEPT", LruCache(0, lambda _: 0))
        with s3.server.recorded() as requests:
            assert index.to_table("note = 'nowhere' AND amount > -1e300").num_rows == 0
        num_bytes.append(sum(request.num_bytes for request in requests if request.path.endswith(".parquet")))
    assert num_bytes[1] < num_bytes[0]


def test_explain_shows_the_requests(wide_lake, capsys):
    bucket, _ = wide_lake
    index = reopened(bucket)
    index.search("k = 1")
    with bucket.server.recorded() as requests:
        explanation = index.explain("k = 1")
    with bucket.server.recorded() as again:
        index.explain("k = 1")
    num_requests = explanation.to_dict()["requests"]
    assert num_requests <= len(requests) <= num_requests + 2, "some bits of filters, once for an opened index"
    assert num_requests == len(again) <= 4
    assert f"{num_requests} requests to object stores, {explanation.to_dict()['bytes_read']:,} bytes" in str(
        explanation
    )
    assert 0 < explanation.to_dict()["bytes_read"] < 500_000


# --- the command ----------------------------------------------------------------------------------------------------


def test_the_command_takes_urls_and_options(s3: Bucket, flat_lake: Lake, run):
    url = s3.upload(flat_lake.root, "lake")
    options = [part for name, value in s3.options.items() for part in ("--storage-option", f"{name}={value}")]
    built = run("build", url, "-c", "user_id", "--format", "json", *options)
    assert built.code == 0, built.err
    assert built.document["index"] == beside(url)
    question = ("-w", f"user_id = '{key_of(flat_lake, 5)}'", "--format", "json", *options)
    explained = run("explain", url, *question).document
    assert explained["requests"] > 0
    assert explained["kept"]["files"] == 1
    assert run("scan", url, *question).document["user_id"] == key_of(flat_lake, 5)
    refused = run("search", url, "-w", "user_id = 'x'", *options, "--storage-option", "nothing")
    assert (refused.code, refused.out) == (2, "")
    missing = run("search", "s3://no-such-bucket/lake", "-w", "user_id = 'x'", *options)
    assert (missing.code, missing.err.count("\n")) == (1, 1)
    assert run("delete", url, "--yes", *options).code == 0
    assert s3.keys("_lake.zonebloom") == []
