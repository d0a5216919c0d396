"""Lives of an index in Azure, by azurite: each answer is that of the same lake on local disk, and pyarrow's."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.azure import AzureServer, Container
from tests.conftest import make_rows
from tests.depth import deep_only
from tests.lives import assert_every_row_is_found, hundreds, lake_of
from zonebloom.errors import IndexNotFoundError, StorageError
from zonebloom.storage.manifest import list_versions
from zonebloom.stores.open import open_store


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with AzureServer(tmp_path_factory.mktemp("azurite")) as started:
        yield started


@pytest.fixture
def azure(server: AzureServer) -> Container:
    """An empty container of the test's own."""
    return server.create_container(f"box-{uuid4()}")


class Twin:
    """One lake twice: on local disk and in a container, each with an index beside it."""

    def __init__(self, root: Path, azure: Container) -> None:
        self.root, self.azure = root, azure
        self.url = azure.upload(root, "a b/lake ü=1%20")
        options = {"rows_per_zone": 64, "kind": "both"}
        self.indexes = [
            zb.build_index(root, ["user_id", "note"], **options),
            zb.build_index(self.url, ["user_id", "note"], **options, storage_options=azure.options),
        ]

    def write(self, name: str, table: pa.Table) -> None:
        pq.write_table(table, self.root / name, row_group_size=1024)
        self.azure.put(f"a b/lake ü=1%20/{name}", (self.root / name).read_bytes())

    def delete(self, name: str) -> None:
        (self.root / name).unlink()
        self.azure.delete(f"a b/lake ü=1%20/{name}")

    def assert_equal(self, num_reasons: int = 0) -> None:
        """All doors give what pyarrow gives, and both lakes the same, whoever has the index open."""
        table = ds.dataset(self.root, format="parquet", partitioning="hive").to_table()
        keys = [table["user_id"][row].as_py() for row in (0, table.num_rows // 2, -1)]
        here, there = self.indexes
        again = zb.open_index(self.url, storage_options=self.azure.options)
        assert answers(here, keys) == answers(there, keys) == answers(again, keys)
        for predicate, mask in (
            (zb.col("user_id") == keys[1], pc.equal(table["user_id"], keys[1])),
            (zb.IsIn("user_id", [*keys, "nobody"]), pc.is_in(table["user_id"], pa.array(keys))),
            (zb.IsNull("note"), pc.is_null(table["note"])),
            (zb.col("user_id") == "nobody", pc.equal(table["user_id"], "nobody")),
        ):
            assert str(again.to_table(predicate).to_pylist()) == str(table.filter(mask).to_pylist())
        result = again.search(zb.col("user_id") == keys[1])
        assert len(result.reasons) == num_reasons
        assert num_reasons or result.kept.zones <= 2 < result.total.zones
        assert again.exists("user_id", [*keys, "nobody"], exact=True).to_pylist() == [True] * 3 + [False]


def answers(index: zb.Index, keys: list[str]) -> list[object]:
    """Of the index itself: candidates, row ranges of keys, rows of keys, zones."""
    asked = [*keys, "nobody"]
    return [
        index.search(zb.IsIn("user_id", asked)).row_ranges,
        index.exists("user_id", asked),
        index.locate("user_id", asked),
        index.locate("user_id", asked, exact=True),
        index.files_for("user_id", keys),
        *(pa.Table.from_batches(index.zone_table(column).batches()) for column in index.columns),
    ]


@deep_only
def test_a_life_in_azure_is_as_on_local_disk(azure: Container, hive_lake):
    twin = Twin(hive_lake.root, azure)
    assert twin.indexes[1].location == azure.url("a b/.lake ü=1%20.zonebloom")
    twin.assert_equal()
    name = "day=2/part-2.parquet"
    for change in (
        lambda: twin.write("day=3/part-9.parquet", make_rows(800, seed=9)),
        lambda: twin.write(name, make_rows(3000, seed=10)),
        lambda: twin.delete(name),
    ):
        change()
        twin.assert_equal(num_reasons=1 if (twin.root / name).exists() else 0)
        here, there = [index.refresh() for index in twin.indexes]
        assert (here.num_files_added, here.num_files_dropped) == (there.num_files_added, there.num_files_dropped)
        twin.assert_equal()
    assert [len(index.versions()) for index in twin.indexes] == [4, 4]
    for index in twin.indexes:
        assert index.optimize() is not None
    twin.assert_equal()
    assert [index.restore(2) for index in twin.indexes] == [6, 6]
    assert [index.refresh().num_files_added for index in twin.indexes] == [0, 0]
    twin.assert_equal()
    num_objects = len(azure.keys())
    for index in twin.indexes:
        assert index.verify(sample=1.0).is_sound
        assert index.vacuum(older_than=timedelta(0)).versions == (1, 2, 3, 4, 5, 6)
        assert index.verify(sample=1.0).is_sound
    assert len(azure.keys()) < num_objects
    twin.assert_equal()
    zb.delete_index(twin.url, storage_options=azure.options)
    assert len(azure.keys()) == len(list(twin.root.rglob("*.parquet")))
    with pytest.raises(IndexNotFoundError):
        zb.open_index(twin.url, storage_options=azure.options)


@deep_only
def test_every_request_of_a_search_is_counted(azure: Container, flat_lake, figure):
    url = azure.upload(flat_lake.root, "lake")
    zb.build_index(url, "user_id", rows_per_zone=64, kind="both", storage_options=azure.options)
    key = flat_lake.table["user_id"][100].as_py()
    num_requests = []
    index = zb.open_index(url, storage_options=azure.options)
    for _ in range(2):
        before = index.traffic
        with azure.server.recorded() as requests:
            assert index.to_table(zb.col("user_id") == key).num_rows == 1
        assert (index.traffic - before).num_requests == len(requests)
        num_requests.append(len(requests))
    assert num_requests[1] <= num_requests[0] < 15
    figure(f"Azure: rows of a key by {num_requests[0]} requests, and by {num_requests[1]} again")


@deep_only
def test_processes_commit_at_once_and_none_is_lost(azure: Container, tmp_path, zygote):
    root, url = lake_of(tmp_path, *hundreds(3)), azure.url("index")
    zb.build_index(root, "k", rows_per_zone=10, kind="both", index=url, storage_options=azure.options)
    children = [
        zygote.fork("commit_often", root, number=number, commits=5, index=url, options=azure.options)
        for number in (1, 2, 3)
    ]
    assert [zygote.wait(child) for child in children] == [0, 0, 0]
    index = zb.open_index(url, storage_options=azure.options)
    assert list_versions(open_store(url, azure.options)) == list(range(1, 17))
    assert index.num_fragments == 3 + 15
    assert_every_row_is_found(root, index, is_fresh=True)


@deep_only
def test_a_killed_writer_leaves_an_index_that_answers(azure: Container, tmp_path, zygote):
    """Killed at its first write, at its second, up to its eighth; in between it commits. Then another goes on."""
    root, url = lake_of(tmp_path, *hundreds(3)), azure.url("index")
    zb.build_index(root, "k", rows_per_zone=10, kind="both", index=url, storage_options=azure.options)
    for number in range(1, 9):
        first = azure.server.num_requests("PUT")
        child = zygote.fork("commit_often", root, number=number, commits=100, index=url, options=azure.options)
        azure.server.wait_for(first + number, "PUT")
        os.kill(child, signal.SIGKILL)
        assert zygote.wait(child) == -signal.SIGKILL
        assert_every_row_is_found(root, zb.open_index(url, storage_options=azure.options))
    index = zb.open_index(url, storage_options=azure.options)
    index.refresh()
    index.vacuum(older_than=timedelta(0))
    assert_every_row_is_found(root, index, is_fresh=True)


@deep_only
def test_an_object_is_created_once_and_replaced_only_as_it_was_read(azure: Container):
    client = open_store(azure.url("x"), azure.options)._client
    assert client.create("x/one", b"first")
    assert not client.create("x/one", b"other")
    before = client.head("x/one")
    assert client.replace("x/one", b"second", before)
    assert not client.replace("x/one", b"third", before)
    assert client.get_whole("x/one") == b"second"


@deep_only
def test_a_refusal_and_a_missing_container_are_told(azure: Container):
    with pytest.raises(StorageError, match="access was refused; check the credentials"):
        zb.open_index(azure.url("lake"), storage_options=azure.options | {"azure_storage_account_key": "Zm9v"})
    with pytest.raises(StorageError, match="bucket az://nowhere must exist"):
        zb.build_index("az://nowhere/lake", "k", storage_options=azure.options)
