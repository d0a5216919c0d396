"""The index and the data in object stores, against moto's server (5.2) on loopback, which counts the requests.

Expected rows come from pyarrow over the local files that were uploaded; expected objects from Amazon's own client.
"""

from __future__ import annotations

import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest

from tests.s3 import KEYS, Bucket
from zonebloom.errors import DataFileError, InvalidArgumentError, StorageError
from zonebloom.stores import object as object_store, object_client, options as object_options
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.local import LocalStore
from zonebloom.stores.locations import absolute
from zonebloom.stores.open import open_store

# --- locations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "location"),
    [
        *(("s3://bucket", "s3://bucket"), ("s3a://bucket/a/b/", "s3://bucket/a/b"), ("file:///a%20b/c", "/a b/c")),
        *(("S3://bucket/A b/%20", "s3://bucket/A b/%20"), ("gcs://bucket/x", "gs://bucket/x"), ("file:/a", "/a")),
        *(("azure://box/x", "az://box/x"), ("file://localhost/a", "/a"), ("/a/../b", "/b")),
        ("abfss://box@acc.dfs.core.windows.net/x", "abfss://box@acc.dfs.core.windows.net/x"),
    ],
)
def test_a_location_has_one_form(text, location):
    assert absolute(text) == location


@pytest.mark.parametrize("text", ["ftp://x/y", "s3://", "s3:///x", "s3://b//x", "s3://b/../x", "s3://b/a/./x", "a\0b"])
def test_a_location_that_no_object_can_have_is_refused(text):
    with pytest.raises(InvalidArgumentError):
        absolute(text)


def test_a_local_location_is_a_local_store(tmp_path):
    store = open_store(f"file://{tmp_path}")
    assert (type(store), store.location) == (LocalStore, str(tmp_path))
    assert isinstance(open_store(tmp_path), LocalStore)


# --- the store --------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(s3: Bucket):
    return open_store(s3.url("x"), s3.options)


NAMES = ["plain.arrow", "a b/ü%20%2E+?#&=.arrow", "columns/%2E%2e/x=1/雪.json", "~[]{}^|'\"<>!*()"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("folder", ["", "index", "a b/ü=1"])
def test_an_object_of_any_name_comes_back(s3: Bucket, name, folder):
    store = open_store(s3.url(folder), s3.options)
    with store.writing(name) as file:
        file.write(b"hello ")
        file.write(memoryview(b"world"))
    assert s3.get(f"{folder}/{name}".lstrip("/")) == b"hello world"
    assert store.read(name) == b"hello world"
    assert store.size(name) == 11
    assert store.read_ranges(name, [(6, 5), (0, 2), (3, 0), (9, 9), (50, 5)]) == [b"world", b"he", b"", b"ld", b""]
    assert store.read_ranges(name, [(20_000_000, 5)]) == [b""]
    assert list(store.files("")) == [name]
    assert store.list(name.rpartition("/")[0]) == [name.rpartition("/")[2]]
    store.delete(name)
    store.delete(name)
    assert s3.keys() == []
    with pytest.raises(FileNotFoundError):
        store.read(name)
    with pytest.raises(FileNotFoundError):
        open_store(s3.url(folder), s3.options).size(name)


def test_near_ranges_come_in_one_request_and_far_ones_at_once(s3: Bucket, store):
    data = np.random.default_rng(1).bytes(20 << 20)
    s3.put("x/one", data)
    ranges = [(0, 10), (250_000, 10), (10 << 20, 100), (0, 100), ((20 << 20) - 7, 7)]
    with s3.server.recorded() as requests:
        pieces = store.read_ranges("one", ranges)
    assert pieces == [data[at : at + length] for at, length in ranges]
    assert len(requests) == 3
    assert store.traffic.num_requests == 3
    assert store.traffic.bytes_read == sum(request.num_bytes for request in requests) == 250_010 + 100 + 7
    assert store.read_ranges("one", [(1, 19 << 20)]) == [data[1 : (19 << 20) + 1]]


def test_what_will_be_needed_is_fetched_ahead_once(s3: Bucket):
    store = open_store(s3.url(), s3.options)
    data = np.random.default_rng(1).bytes((1 << 20) + 17)
    s3.put("one", data)
    with s3.server.recorded() as requests:
        store.will_need("one", [(5000, 100), (5050, 100), (1 << 20, 100)])
        pieces = store.read_ranges("one", [(5020, 60), (5150, 0), ((1 << 20) + 10, 90)])
        assert pieces == [data[5020:5080], b"", data[(1 << 20) + 10 :]]
    assert len(requests) == store.traffic.num_requests == 2
    for wanted in ([(5020, 60)], [(4999, 2)], [(5000, 10), (7000, 10)]):  # none of them was to be expected
        before = store.traffic.num_requests
        store.will_need("one", [(5000, 10)])
        assert store.read_ranges("one", wanted) == [data[at : at + length] for at, length in wanted]
        [ahead] = store._ahead["one"].values()
        ahead.result()
        assert store.traffic.num_requests == before + 2
    store.will_need("none", [(0, 10)])
    with pytest.raises(FileNotFoundError):
        store.read_ranges("none", [(0, 5)])
    for number in range(100):
        store.will_need(f"many/{number}", [(0, 1)])
    assert len(store._ahead) <= 64


def test_what_another_thread_will_need_is_not_taken_for_ones_own(s3: Bucket, monkeypatch):
    store = open_store(s3.url(), s3.options)
    data = np.random.default_rng(1).bytes(1 << 20)
    s3.put("one", data)
    covers = object_store._covers

    def covers_and_others_begin(*ranges):
        is_covered = covers(*ranges)
        store.will_need("one", [(900_000, 10)])
        return is_covered

    monkeypatch.setattr(object_store, "_covers", covers_and_others_begin)
    store.will_need("one", [(5000, 100)])
    assert store.read_ranges("one", [(5000, 100)]) == [data[5000:5100]]


def test_a_mapping_fetches_what_is_needed_once(s3: Bucket):
    store = open_store(s3.url(), s3.options)
    data = np.random.default_rng(1).bytes((12 << 20) + 17)
    s3.put("one", data)
    mapping = store.mapping("one", len(data))
    with s3.server.recorded() as requests:
        mapping.need([(5000, 10), (11 << 20, 5)])
        mapping.need([(5001, 3)])
        mapping.need([(len(data) - 3, 3)])
    assert sum(request.num_bytes for request in requests) < 20_000
    buffer = mapping.buffer
    mapping.release()
    assert buffer[5000:5010].to_pybytes() == data[5000:5010]
    assert buffer[11 << 20 : (11 << 20) + 5].to_pybytes() == data[11 << 20 : (11 << 20) + 5]
    assert buffer[-3:].to_pybytes() == data[-3:]
    assert bytes(store.mapping("one").buffer) == data


def test_a_long_listing_takes_one_request_a_part_all_at_once(s3: Bucket):
    keys = [f"day={number % 7}/part-{number:05}.parquet" for number in range(2600)]
    for key in keys[5:]:
        s3.put_at_once(f"lake/{key}", b"x")
    new = ["a", "day=3/part-00000", "day=3/part-99999", "zzz"]
    for key in [*(f"lake/{key}" for key in new), "lak", "lake", "lake-0", "lakf"]:
        s3.put_at_once(key, b"y")
    store = open_store(s3.url("lake"), s3.options)
    all_asked = threading.Barrier(4)

    def fault(_method: str, _path: str, _query: str) -> None:
        all_asked.wait(20)

    refused = [f"z\u200b{number}" for number in range(900)]  # by obstore, so the listing is not cut at such a name
    with s3.server.recorded() as requests, s3.server.misbehaving(fault):
        paths = store.files("", [*keys, *refused])
    assert not all_asked.broken
    assert list(paths) == sorted([*keys[5:], *new])
    assert len(requests) == store.traffic.num_requests == 4
    with s3.server.recorded() as requests:
        assert store.files("") == paths
    assert len(requests) == 3
    assert store.files("day=3", keys) == store.files("day=3") != {}


def test_a_large_object_is_sent_in_parts_and_appears_whole(s3: Bucket, store):
    data = np.random.default_rng(1).bytes(19 << 20)
    with s3.server.recorded() as requests, store.writing("one") as file:
        for at in range(0, len(data), 3 << 20):
            file.write_large(data[at : at + (3 << 20)])
        file.flush()
        assert s3.keys() == []
    assert s3.get("x/one") == data
    assert store.traffic.num_requests == sum(request.method != "GET" for request in requests) == 5
    assert store.traffic.bytes_written == len(data)


def test_a_writer_may_use_its_memory_again(s3: Bucket):
    buffer = np.zeros(1 << 20, np.uint8)
    with open_store(s3.url("x"), s3.options).writing("one") as file:
        for number in range(20):
            buffer[:] = number
            file.write(buffer)
    assert s3.get("x/one") == np.repeat(np.arange(20, dtype=np.uint8), 1 << 20).tobytes()


@pytest.mark.parametrize(
    ("step", "fault"),
    [("uploads=", "lose"), ("uploads=", "refuse")]
    + [(step, fault) for step in ("partNumber=2", "POST .*uploadId=") for fault in ("lose", "break", "refuse")],
)
def test_a_large_object_survives_bad_connections(s3: Bucket, store, step, fault):
    assert store.list("") == []
    data = np.random.default_rng(1).bytes(19 << 20)
    with s3.server.failing(fault, at=step) as left, store.writing("one") as file:
        file.write(data)
    assert not left
    assert s3.get("x/one") == data


@pytest.mark.parametrize("num_bytes", [10, 19 << 20])
def test_nothing_stays_of_an_object_whose_writer_fails(s3: Bucket, num_bytes):
    with suppress(KeyError), open_store(s3.url("x"), s3.options).writing("one") as file:
        file.write(bytes(num_bytes))
        raise KeyError
    assert s3.keys() == s3.unfinished() == []


def test_a_store_can_be_sent_to_other_processes(s3: Bucket, tmp_path):
    store = pickle.loads(pickle.dumps(open_store(s3.url("x"), s3.options)))
    assert store.create("one", b"1")
    assert s3.get("x/one") == b"1"
    local = open_store(str(tmp_path))
    assert local.create("one", b"1")
    assert local.read_ranges("one", [(0, 1)]) == [b"1"]
    assert pickle.loads(pickle.dumps(local)).read_ranges("one", [(0, 1)]) == [b"1"]


# --- creating ---------------------------------------------------------------------------------------------------------


def test_of_many_creators_one_wins(s3: Bucket):
    stores = [open_store(s3.url("x"), s3.options) for _ in range(16)]
    barrier = threading.Barrier(16)

    def create(number):
        barrier.wait()
        return stores[number].create("one", b"%d" % number)

    with ThreadPoolExecutor(16) as pool:
        won = list(pool.map(create, range(16)))
    assert sum(won) == 1
    assert s3.get("x/one") == b"%d" % won.index(True)


def test_a_create_whose_answer_was_lost_is_known_to_be_ours(s3: Bucket, store):
    for data, is_ours in ((b"mine", True), (b"other", False)):
        with s3.server.failing("lose", at="PUT"):
            assert store.create("one", data) == is_ours
    assert s3.get("x/one") == b"mine"


def test_throttling_and_broken_connections_pass(s3: Bucket, store):
    data = np.random.default_rng(1).bytes(10 << 20)
    s3.put("x/one", data)
    for read, expected in (
        (lambda: store.read("one"), data),
        (lambda: store.read_ranges("one", [(0, 10 << 20)]), [data]),
        (lambda: bytes(store.mapping("one").buffer), data),
        (lambda: store.list(""), ["one"]),
    ):
        for faults in (("refuse", "lose"), ("break", "break")):
            with s3.server.failing(*faults, at="GET") as left:
                assert read() == expected
            assert not left
    with s3.server.failing("refuse", "refuse", "lose"):
        assert store.create("two", b"mine")
    with s3.server.failing("refuse", "lose"), store.writing("three") as file:
        file.write(b"3")
    assert (s3.get("x/two"), s3.get("x/three")) == (b"mine", b"3")


def test_a_store_that_overwrites_is_refused(s3: Bucket, monkeypatch):
    object_client._bucket.cache_clear()
    answer = s3.server._app

    def forgetful(environ, start_response):
        environ.pop("HTTP_IF_NONE_MATCH", None)
        return answer(environ, start_response)

    monkeypatch.setattr(s3.server, "_app", forgetful)
    with pytest.raises(StorageError, match="must refuse to overwrite"):
        open_store(s3.url("x"), s3.options).create("one", b"mine")


# --- errors -----------------------------------------------------------------------------------------------------------

OPERATIONS = {
    "list": lambda store: store.list("versions"),
    "files": lambda store: store.files(""),
    "read": lambda store: store.read("one"),
    "ranges": lambda store: store.read_ranges("one", [(0, 1)]),
    "size": lambda store: store.size("one"),
    "create": lambda store: store.create("one", b"1"),
    "delete": lambda store: store.delete("one"),
}


@pytest.mark.parametrize("operation", [operation for operation in OPERATIONS if operation not in ("size", "delete")])
def test_a_missing_bucket_is_told(s3: Bucket, operation):
    store = open_store("s3://no-such-bucket/x", s3.options)
    with pytest.raises(StorageError, match="bucket s3://no-such-bucket must exist"):
        OPERATIONS[operation](store)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_refused_access_is_told(s3: Bucket, store, operation):
    message = "access was refused; check the credentials"
    with s3.server.misbehaving(lambda *_: "deny"), pytest.raises(StorageError, match=message):
        OPERATIONS[operation](store)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_missing_credentials_are_told_at_once(s3: Bucket, operation, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    options = {name: value for name, value in s3.options.items() if "key" not in name}
    with pytest.raises(StorageError, match=r"credentials must be given .* give aws_access_key_id"):
        OPERATIONS[operation](open_store(s3.url("x"), options))


BOX = "abfss://box@account.dfs.core.windows.net/x"
KEY = {"azure_storage_account_key": "Zm9v"}
NOBODY = "http://127.0.0.1:9"
AMAZON = KEYS | {"aws_endpoint": NOBODY}


ALLOWED = {"allow_http": "true"}
OF_AZURE = AMAZON | KEY | {"azure_storage_endpoint": NOBODY, "azure_allow_http": "true"}
OF_GOOGLE = AMAZON | {"google_skip_signature": "true", "google_proxy_url": NOBODY}


@pytest.mark.parametrize(
    ("url", "options", "kind", "message"),
    [
        ("s3://bucket/x", AMAZON, StorageError, "give allow_http=true in storage_options"),
        (BOX, KEY | {"endpoint": NOBODY}, StorageError, "give allow_http=true in storage_options"),
        ("s3://bucket/x", AMAZON | ALLOWED, StorageError, "no answer; check the endpoint"),
        (BOX, OF_AZURE, StorageError, "no answer; check the endpoint"),  # each takes its own of the options
        ("gs://bucket/x", OF_GOOGLE, StorageError, "no answer; check the endpoint"),
        ("az://box/x", KEY, InvalidArgumentError, r"storage_options must fit az://box, .*Account must be specified"),
    ],
)
def test_what_is_missing_for_an_answer_is_told(url, options, kind, message):
    with pytest.raises(kind, match=message):
        open_store(url, options).list("versions")


@pytest.mark.parametrize(
    "options",
    [{**KEYS, "aws_nonsense": "1"}, {**KEYS, "aws_region": 7}, "aws_region=x", {"aws_access_key_id": "alone"}],
)
def test_options_that_do_not_fit_are_refused(s3: Bucket, options):
    with pytest.raises(InvalidArgumentError, match="storage_options must"):
        open_store(s3.url("x"), options).list("")


OF_DELTALAKE = {
    **dict.fromkeys(("max_retries", "OBJECT_STORE_CONCURRENCY_LIMIT"), "3"),
    **dict.fromkeys(("retry_timeout", "backoff_config.init_backoff", "AWS_S3_POOL_IDLE_TIMEOUT_SECONDS"), "10s"),
    **dict.fromkeys(("aws_s3_allow_unsafe_rename", "allow_unsafe_rename"), "true"),
    **dict.fromkeys(("AWS_S3_LOCKING_PROVIDER", "DELTA_DYNAMO_TABLE_NAME", "AWS_REGION_DYNAMODB"), "dynamodb"),
}


def test_options_of_deltalake_alone_are_left_out(s3: Bucket):
    s3.put("x/one", b"1")
    assert open_store(s3.url("x"), s3.options | OF_DELTALAKE).read("one") == b"1"


def test_options_come_from_the_environment_too(s3: Bucket, monkeypatch):
    for name, value in s3.options.items():
        monkeypatch.setenv(name.upper(), value)
    s3.put("x/one", b"1")
    assert open_store(s3.url("x")).read("one") == b"1"
    assert open_store(s3.url("x"), {"AWS_REGION": "us-east-1", "azure_storage_account_name": "n"}).read("one") == b"1"


def test_every_store_says_what_credentials_it_needs(monkeypatch):
    monkeypatch.setattr(object_options, "_METADATA_SERVICE", ("127.0.0.1", 9))
    monkeypatch.setenv("HOME", "/nowhere")
    for name in list(os.environ):
        if name.startswith(("GOOGLE_", "AZURE_", "AWS_")):
            monkeypatch.delenv(name)
    wanted = {"s3": "aws_access_key_id", "gs": "google_service_account", "az": "azure_storage_account_key"}
    for scheme, option in wanted.items():
        with pytest.raises(StorageError, match=f"credentials must be given .*{option}"):
            open_store(f"{scheme}://bucket/x").list("versions")


def test_no_error_shows_a_secret(s3: Bucket):
    options = {**s3.options, "aws_secret_access_key": "TOP-SECRET", "aws_session_token": "TOP-SECRET"}
    nonsense = {**options, "aws_nonsense": "TOP-SECRET"}
    for faults, given, kind in (
        (["deny"], options, StorageError),
        ([], options, FileNotFoundError),
        ([], nonsense, InvalidArgumentError),
    ):
        with s3.server.failing(*faults), pytest.raises(kind) as told:
            open_store(s3.url("x"), given).read("one")
        assert "TOP-SECRET" not in str(told.value)


def test_a_file_of_which_only_the_size_is_known_is_the_version_of_its_first_answer(s3: Bucket):
    store = open_store(s3.url(), s3.options)
    s3.put("a", b"first")
    with s3.server.recorded() as requests:
        file = store.open("a", Fingerprint(5, 0))
        assert not requests
    assert file.read_ranges([(0, 3)]) == [b"fir"]
    s3.put("a", b"other")
    with pytest.raises(DataFileError, match="must not change"):
        file.read_ranges([(0, 3)])
    s3.put("a", b"longer")
    with pytest.raises(DataFileError, match="must not change"):
        store.open("a", Fingerprint(5, 0)).read_ranges([(0, 3)])
