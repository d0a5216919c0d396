"""What Azure has of its own, by azurite; `test_remote_lakes.py` has a life there, and `test_concurrency.py` a race."""

from __future__ import annotations

import os
import signal
from datetime import timedelta

import pytest

import zonebloom as zb
from tests.azure import Container
from tests.depth import deep_only
from tests.lives import assert_every_row_is_found, hundreds, lake_of
from zonebloom.errors import StorageError
from zonebloom.stores.open import open_store


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
