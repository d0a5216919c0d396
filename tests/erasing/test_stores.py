"""Rows erased from files in an object store: moto's S3, by conditional puts."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

import zonebloom as zb
from tests.lives import hundreds, lake_of
from tests.s3 import Bucket
from zonebloom.stores.open import open_store
from zonebloom.types import Erasure


def lake_in(s3: Bucket, folder) -> str:
    """A lake of three files with the keys 0 to 299, and its index."""
    url = s3.upload(lake_of(folder, *hundreds(3)), "lake")
    zb.build_index(url, "k", rows_per_zone=10, storage_options=s3.options)
    return url


def keys_in(s3: Bucket) -> list[int]:
    names = [key for key in s3.keys("lake/") if key.endswith(".parquet")]
    return [key for name in names for key in pq.read_table(pa.BufferReader(s3.get(name)))["k"].to_pylist()]


def erase(s3: Bucket, url: str, values, **options) -> Erasure:
    return zb.erase(url, "k", values, storage_options=s3.options, **options)


def test_objects_are_replaced_and_side_files_removed(s3, tmp_path):
    url = lake_in(s3, tmp_path)
    s3.put("lake/_metadata", b"old")
    own = {"Metadata": {"owner": "team"}, "ContentType": "application/vnd.apache.parquet", "CacheControl": "no-cache"}
    s3.client.put_object(Bucket=s3.name, Key="lake/f0.parquet", Body=s3.get("lake/f0.parquet"), **own)
    done = erase(s3, url, [7, 250], record=tmp_path / "r.json")
    assert (done.num_rows_erased, done.num_rows_left, done.removed) == (2, 0, ("_metadata",))
    assert keys_in(s3) == [key for key in range(300) if key not in (7, 250)]
    heads = [s3.client.head_object(Bucket=s3.name, Key=f"lake/{file.path}") for file in done.files]
    assert [file.tag_after for file in done.files] == [head["ETag"].strip('"') for head in heads]
    kept = s3.client.head_object(Bucket=s3.name, Key="lake/f0.parquet")
    assert {name: kept[name] for name in own} == own
    assert zb.open_index(url, storage_options=s3.options).status().is_fresh
    assert not s3.unfinished()


def test_an_object_that_changes_before_the_put_is_not_overwritten(s3, tmp_path):
    """Another writer puts between the comparison and the put: the condition fails, and its object is searched."""
    url = lake_in(s3, tmp_path)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"k": [7, 1000], "s": ["", ""]}), sink)
    others = [sink.getvalue().to_pybytes()]

    def beaten(method, path, _query):
        if method == "PUT" and path.endswith("f0.parquet") and others:
            s3.put_at_once("lake/f0.parquet", others.pop())

    with s3.server.misbehaving(beaten):
        done = erase(s3, url, [7])
    assert not others
    assert (done.num_rows_erased, done.num_rows_left) == (1, 0)
    assert keys_in(s3) == [1000, *range(100, 300)]


def test_a_put_whose_answer_is_lost_is_counted_once(s3, tmp_path):
    url = lake_in(s3, tmp_path)
    with s3.server.failing("lose", at=r"PUT .*f0\.parquet\?") as left:
        done = erase(s3, url, [7], record=tmp_path / "r.json")
    assert not left
    assert (done.num_rows_erased, done.num_rows_left, len(done.files)) == (1, 0, 1)
    assert keys_in(s3) == [key for key in range(300) if key != 7]


def test_a_bucket_that_retains_versions_is_told(s3, tmp_path):
    s3.client.put_bucket_versioning(Bucket=s3.name, VersioningConfiguration={"Status": "Enabled"})
    url = lake_in(s3, tmp_path)
    assert [holder.partition(": ")[0] for holder in erase(s3, url, [7]).still_held] == [f"{url}/f0.parquet"]
    assert not open_store(url, s3.options).retains_old("gone.parquet")
