"""A life of an index in Azure, by azurite; expected rows come from pyarrow over the local files that were uploaded."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

import zonebloom as zb
from tests.azure import AzureServer, Container
from tests.conftest import Lake, make_rows
from tests.depth import deep_only
from tests.whole.test_remote_lakes import assert_finds, some_keys
from zonebloom.errors import IndexNotFoundError, StorageError
from zonebloom.stores.open import open_store


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with AzureServer(tmp_path_factory.mktemp("azurite")) as started:
        yield started


@pytest.fixture
def azure(server: AzureServer) -> Container:
    """An empty container of the test's own."""
    return server.create_container(f"box-{uuid4()}")


NAME = "a b/lake ü=1%20"


@deep_only
def test_a_life_in_azure_is_as_on_local_disk(azure: Container, flat_lake: Lake):
    options = {"storage_options": azure.options}
    lake, url = flat_lake, azure.upload(flat_lake.root, NAME)
    index = zb.build_index(url, ["user_id", "note"], rows_per_zone=64, kind="both", **options)
    assert index.location == azure.url("a b/.lake ü=1%20.zonebloom")

    def append() -> None:
        nonlocal lake
        lake = lake.append("part-9.parquet", make_rows(800, seed=9))
        azure.put(f"{NAME}/part-9.parquet", (lake.root / "part-9.parquet").read_bytes())

    upkeep = (index.refresh, index.optimize, lambda: index.restore(1), index.refresh)
    for step in (lambda: None, append, *upkeep, lambda: index.vacuum(older_than=timedelta(0))):
        step()
        for opened in (index, zb.open_index(url, **options)):
            assert_finds(opened, lake.table, some_keys(lake))
    result = index.search(zb.col("user_id") == some_keys(lake)[-1], strict=True)
    assert result.kept.zones <= 2 < result.total.zones
    assert index.verify(sample=1.0).is_sound
    assert [version.number for version in index.versions()] == [index.version]
    zb.delete_index(url, **options)
    assert len(azure.keys()) == len(lake.files)
    with pytest.raises(IndexNotFoundError):
        zb.open_index(url, **options)


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
