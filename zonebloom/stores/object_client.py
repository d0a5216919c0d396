"""`ObjectClient`: requests to one bucket of an object store: coalesced, concurrent, retried, counted, explained.

All requests to object stores are made here, through obstore: S3 and compatible stores, GCS, Azure.

Spec: specs/index-format.md#object-stores
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache, partial
from typing import Any, TypeVar

from zonebloom.ground.errors import StorageError
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.listing import KeyRun, listed_in_parts
from zonebloom.stores.locations import StorageOptions, Url
from zonebloom.stores.object_errors import UNREACHABLE, ChangedObjectError, explaining
from zonebloom.stores.options import check_credentials, connect, environment_of
from zonebloom.stores.ranges import PART_BYTES, coalesced, cut
from zonebloom.stores.store import Traffic

_T = TypeVar("_T")
Part = tuple[memoryview, Fingerprint]
"""Bytes of an object, and the fingerprint that came with them."""

_SMALL_BYTES = 3 << 20
_SMALL_AT_ONCE, _LARGE_AT_ONCE = 64, 16
"""Reads that are made at once, if none has more than 3 MiB, and otherwise: 16 parts of 8 MiB come within the timeout
over a slow network too."""
_SENT_AT_ONCE = 4
_KEYS_PER_PAGE = {"s3": 1000, "gcs": 1000, "azure": 5000}
_LISTS_FROM = ("s3", "gcs")
"""Stores that list from a name on; with others obstore lists everything and drops what comes before the name."""
_UNORDERED = "--x-s3"
"""The end of the names of S3's directory buckets, whose listings have no order."""
_KEYS_PER_PART, _KEYS_OF_PAGE, _KEYS_PER_CHUNK = 800, 950, 50
"""Known keys of a part of a listing. Keys of its page that are read at first: the next part's first key is among them,
unless the part has 150 new ones. Keys of a chunk: obstore asks for the next page when a chunk reaches beyond a page."""
_HASTY = {
    "max_retries": 2,
    "retry_timeout": timedelta(seconds=10),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=1), "base": 2},
}
"""Retries of the first request: a wrong endpoint is an error within seconds."""
_PATIENT = {
    "max_retries": 10,
    "retry_timeout": timedelta(seconds=120),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=10), "base": 2},
}
"""Retries of a store that has answered before: it waits for the end of throttling and of broken connections."""
_WEAK = "W/"
"""The beginning of a weak tag, which no condition matches."""
_CREATE_ATTEMPTS = _BODY_ATTEMPTS = 6
_BROKEN_OFF = re.compile(r"response body error|error decoding response body", re.IGNORECASE)
_TRY_AGAIN = re.compile(r"status code: (429|5\d\d)")
_OUT_OF_RANGE = re.compile(r"status code: 416")


class Version:
    """The version of an object that several requests read: a known one, or the one of the first answer.

    Parameters
    ----------
    expected
        Its fingerprint; only its size is known if there is neither a tag nor a time.
    """

    def __init__(self, expected: Fingerprint) -> None:
        self._expected = expected
        self._lock = threading.Lock()

    @property
    def etag(self) -> str | None:
        """Its tag, if it is known."""
        return self._expected.etag

    def check(self, answered: Fingerprint, key: str) -> None:
        """Raise a `ChangedObjectError` if an answer is of another version."""
        with self._lock:
            if (self._expected.mtime_ns, self.etag) == (0, None) and answered.size == self._expected.size:
                self._expected = answered
            if not _is_same(answered, self._expected):
                raise ChangedObjectError(key)


@dataclass(slots=True)
class _Bucket:
    """The clients of one bucket, shared by all users with the same options."""

    hasty: Any
    patient: Any
    is_reached: bool = False
    is_exclusive: bool = False
    """Whether it has refused a second object at the same key."""


@lru_cache(64)
def _bucket(root: Url, options: tuple[tuple[str, str], ...], _environment: Any, _process: int) -> _Bucket:
    check_credentials(root, dict(options))
    return _Bucket(connect(root, dict(options), _HASTY), connect(root, dict(options), _PATIENT))


@lru_cache(2)
def _pool(_process: int, num_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(num_threads, thread_name_prefix="zonebloom-get")


def _pool_for(num_bytes: int) -> ThreadPoolExecutor:
    """The threads for reads of at most `num_bytes` each."""
    return _pool(os.getpid(), _SMALL_AT_ONCE if num_bytes <= _SMALL_BYTES else _LARGE_AT_ONCE)


class NewObjectFile:
    """An object that is being written; it appears as a whole, or not at all."""

    def __init__(self, client: ObjectClient, key: str, writer: Any) -> None:
        self._client = client
        self._key = key
        self._writer = writer
        self.num_bytes: int = 0

    def write(self, data: Any) -> None:
        """Append `data`, which is sent in parts of 8 MiB."""
        view = memoryview(data).cast("B")
        with explaining(self._client.url, "write", self._key):
            self._writer.write(bytes(view))  # a copy: obstore sends it later, and the caller uses its memory again
        self.num_bytes += len(view)

    write_large = write

    def flush(self) -> None:
        """Do nothing: a part is sent when it is full."""


class ObjectClient:
    """Requests to the bucket of one URL; `traffic` counts each request once, with its retries.

    Raises
    ------
    StorageError
        From every method, if the store cannot be reached or refuses; the message says what to do. A missing object
        is a `FileNotFoundError`.
    """

    def __init__(self, url: Url, options: StorageOptions | None = None) -> None:
        self.url = url
        self._options = dict(options or {})
        self.traffic: Traffic = Traffic()
        self._lock = threading.Lock()

    # --- reading ------------------------------------------------------------------------------------------------------

    def head(self, key: str) -> Fingerprint:
        """The fingerprint of the object at `key`."""
        return _fingerprint(self._request("read", key, lambda store: store.head(key)))

    def get(self, key: str, start: int, length: int, expected: Version | None = None) -> Part:
        """Bytes `[start, start + length)` of the object at `key`, fewer at its end, and the object's fingerprint.

        Raises
        ------
        ChangedObjectError
            The object is no longer the version `expected`. A store that ignores the condition gives the present one,
            so fingerprints are compared too; times only without a tag.
        """
        options: dict[str, Any] = {"range": (start, start + length)}
        etag = expected.etag if expected else None
        if etag is not None and not etag.startswith(_WEAK):
            options["if_match"] = f'"{etag}"'

        def fetched(store: Any) -> Part:
            try:
                result = store.get(key, options=options)
            except Exception as error:
                if _OUT_OF_RANGE.search(str(error)):  # past the end
                    return memoryview(b""), _fingerprint(store.head(key))
                raise
            return memoryview(result.bytes()).cast("B"), _fingerprint(result.meta)

        data, fingerprint = self._request("read", key, fetched)
        self._count(num_bytes=len(data))
        if expected:
            expected.check(fingerprint, key)
        return data, fingerprint

    def get_whole(self, key: str) -> bytes:
        """All bytes of the object at `key`."""
        data: bytes = self._request("read", key, lambda store: bytes(store.get(key).bytes()))
        self._count(num_bytes=len(data))
        return data

    def get_parts(self, key: str, parts: Sequence[tuple[int, int]], expected: Version | None = None) -> list[Part]:
        """One `get` for each `(offset, length)`, in parallel."""
        if len(parts) <= 1:
            return [self.get(key, offset, length, expected) for offset, length in parts]
        pool = _pool_for(max(length for _, length in parts))
        return list(pool.map(lambda part: self.get(key, part[0], part[1], expected), parts))

    def start(self, key: str, start: int, length: int, expected: Version | None = None) -> Future[Part]:
        """`get` in another thread."""
        return _pool_for(length).submit(self.get, key, start, length, expected)

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]], expected: Version | None = None) -> list[bytes]:
        """The bytes of each `(offset, length)`, fewer at the end of the object.

        Ranges less than 256 KiB apart are fetched by one request; the requests are made in parallel.
        """
        parts = coalesced(ranges)
        fetched = self.get_parts(key, parts, expected)
        pieces = [(start, data) for (start, _), (data, _) in zip(parts, fetched, strict=True)]
        return [cut(pieces, offset, length) for offset, length in ranges]

    def list_all(self, prefix: str, known_names: Iterable[str] = ()) -> list[tuple[str, Fingerprint]]:
        """The keys of all objects below the folder `prefix`, in order, each with its fingerprint.

        With `known_names`, keys that are probably there, a long listing is read in parts, all at once.

        Cost: a request for each 1000 keys (5000 on Azure).
        """
        can_list_from = self.url.provider in _LISTS_FROM and not self.url.bucket.endswith(_UNORDERED)
        names = sorted(filter(str.isprintable, known_names if can_list_from else ()))  # obstore refuses others
        return sorted(listed_in_parts(names[_KEYS_PER_PART::_KEYS_PER_PART], partial(self._run, prefix)).items())

    def _run(self, prefix: str, start: str | None, ends: frozenset[str] | None) -> KeyRun:
        def ask(store: Any) -> KeyRun:
            keys: dict[str, Fingerprint] = {}
            for chunk in store.list(prefix or None, offset=start, chunk_size=_KEYS_PER_CHUNK):
                entries = dict(_entries(chunk, prefix))
                keys |= entries
                if len(keys) >= _KEYS_OF_PAGE if ends is None else not ends.isdisjoint(entries):
                    return KeyRun(keys, is_last=False)
            return KeyRun(keys, is_last=True)

        run = self._request("list", prefix, ask, pages=0)
        self._count(max(1, -(-len(run.keys) // _KEYS_PER_PAGE[self.url.provider])))
        return run

    def list_folder(self, prefix: str) -> tuple[list[tuple[str, Fingerprint]], list[str]]:
        """The keys and fingerprints of the objects in the folder `prefix` itself, and the names of the folders in it.

        Cost: a request for each 1000 of them (5000 on Azure).
        """
        listing = self._request("list", prefix, lambda store: store.list_with_delimiter(prefix or None), pages=0)
        objects, folders = listing["objects"], listing["common_prefixes"]
        self._count(max(1, -(-(len(objects) + len(folders)) // _KEYS_PER_PAGE[self.url.provider])))
        return sorted(_entries(objects, prefix)), sorted(
            str(prefix_below).rsplit("/", 1)[-1] for prefix_below in folders
        )

    # --- writing ------------------------------------------------------------------------------------------------------

    def create(self, key: str, data: bytes) -> bool:
        """Write `data` at `key` if nothing is there; False, and nothing written, if something else is.

        After a lost answer the object at `key` is compared with `data`, which is different for each writer.

        Raises
        ------
        StorageError
            The store has no conditional writes, so commits could overwrite each other.
        """
        for attempt in range(_CREATE_ATTEMPTS):
            try:
                self._put_if_absent(key, data)
            except FileExistsError:
                with contextlib.suppress(FileNotFoundError):
                    return self.get_whole(key) == data
                time.sleep(0.05 * 2**attempt)  # two writers met, and the store refused both
                continue
            except StorageError:
                with contextlib.suppress(StorageError, FileNotFoundError):
                    return self.get_whole(key) == data
                raise
            self._check_exclusive(key, data)
            return True
        raise StorageError(
            f"one of {_CREATE_ATTEMPTS} attempts must create {self.url.root}/{key}",
            got="conflicts",
            do="run again when fewer writers are busy",
        )

    def replace(self, key: str, data: Any, expected: Fingerprint) -> bool:
        """Write `data` at `key` if the object there is still `expected`; False, and nothing written, if it is not.

        Content type and metadata stay. After a lost answer the object at `key` is compared with `data`.
        """

        def put(store: Any) -> bool:
            present = store.get(key, options={"head": True})
            condition = {name: present.meta[name] for name in ("e_tag", "version") if present.meta[name]}
            if not _is_same(_fingerprint(present.meta), expected):
                return False
            store.put(key, data, mode=condition, attributes=present.attributes, use_multipart=False)
            return True

        try:
            is_replaced = self._request("write", key, put, pages=2)
        except (ChangedObjectError, FileNotFoundError, StorageError) as error:
            if not self._has(key, data):
                if isinstance(error, StorageError):
                    raise
                return False
            is_replaced = True
        self._count(0, bytes_written=len(data) * is_replaced)
        return is_replaced

    def _has(self, key: str, data: Any) -> bool:
        """Whether the object at `key` has the bytes `data`."""
        offsets = range(0, len(data), PART_BYTES)
        with contextlib.suppress(FileNotFoundError, StorageError):
            is_as_long = self.head(key).size == len(data)
            return is_as_long and all(self.get(key, at, PART_BYTES)[0] == data[at : at + PART_BYTES] for at in offsets)
        return False

    def has_version(self, key: str) -> bool:
        """Whether the store gives the object at `key` a version; GCS gives one to each object."""
        return self.url.provider != "gcs" and bool(self._request("read", key, lambda store: store.head(key)["version"]))

    def _put_if_absent(self, key: str, data: bytes) -> None:
        self._request("write", key, lambda store: store.put(key, data, mode="create", use_multipart=False))
        self._count(0, bytes_written=len(data))

    def _check_exclusive(self, key: str, data: bytes) -> None:
        """Write the same again, once a process: the store must refuse it."""
        bucket = self._connected()
        if bucket.is_exclusive:
            return
        try:
            self._put_if_absent(key, data)
        except FileExistsError:
            bucket.is_exclusive = True
            return
        except StorageError:
            return  # the next create asks again
        raise StorageError(
            f"{self.url.root} must refuse to overwrite (If-None-Match)",
            got="an object that was written twice",
            do="keep the index in a store with conditional writes, or on a local disk",
        )

    @contextlib.contextmanager
    def writing(self, key: str) -> Iterator[NewObjectFile]:
        """A new object at `key`, sent in parts while it is written; nothing stays there if the block raises."""
        store = self._connected().patient
        import obstore  # noqa: PLC0415 - an optional dependency, which `_connected` has checked

        with explaining(self.url, "write", key):
            writer = obstore.open_writer(store, key, buffer_size=PART_BYTES, max_concurrency=_SENT_AT_ONCE)
        file = NewObjectFile(self, key, writer)
        try:
            yield file
        except BaseException:
            with contextlib.suppress(Exception):  # the caller's error is raised
                writer.__exit__(*sys.exc_info())  # aborts the upload
            raise
        try:
            with explaining(self.url, "write", key):
                writer.close()
        except (StorageError, FileNotFoundError) as error:  # the second if the upload was completed already
            size = None
            with contextlib.suppress(FileNotFoundError, StorageError):
                size = self.head(key).size
            if size != file.num_bytes:  # if equal, only the answer was lost: the key is unique
                raise error if isinstance(error, StorageError) else StorageError(f"cannot write {error}") from error
        self._count(1 if file.num_bytes < PART_BYTES else 2 - -file.num_bytes // PART_BYTES)
        self._count(0, bytes_written=file.num_bytes)

    def delete(self, key: str) -> None:
        """Remove the object at `key` if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self._request("delete", key, lambda store: store.delete(key))

    # --- requests -----------------------------------------------------------------------------------------------------

    def _connected(self) -> _Bucket:
        root = Url(self.url.scheme, self.url.bucket, "")
        environment = tuple(sorted(environment_of(root.provider).items()))
        return _bucket(root, tuple(sorted(self._options.items())), environment, os.getpid())

    def _request(self, verb: str, key: str, ask: Callable[[Any], _T], pages: int = 1) -> _T:
        bucket = self._connected()
        self._count(pages)
        with explaining(self.url, verb, key):
            if bucket.is_reached:
                return _whole(ask, bucket.patient)
            try:
                result = _whole(ask, bucket.hasty)
            except Exception as error:
                bucket.is_reached = not UNREACHABLE.search(str(error))
                if not _TRY_AGAIN.search(str(error)):
                    raise
                return _whole(ask, bucket.patient)
            bucket.is_reached = True
            return result

    def _count(self, num_requests: int = 0, *, num_bytes: int = 0, bytes_written: int = 0) -> None:
        with self._lock:
            self.traffic.num_requests += num_requests
            self.traffic.bytes_read += num_bytes
            self.traffic.bytes_written += bytes_written


def _whole(ask: Callable[[Any], _T], store: Any) -> _T:
    """The result of `ask`, with retries after broken bodies, which obstore does not retry.

    A retried `create` finds its own object.
    """
    for attempt in range(_BODY_ATTEMPTS):
        try:
            return ask(store)
        except Exception as error:
            if not _BROKEN_OFF.search(str(error)):
                raise
            time.sleep(0.1 * 2**attempt)
    return ask(store)


def _entries(objects: Iterable[Mapping[str, Any]], prefix: str) -> Iterator[tuple[str, Fingerprint]]:
    """Keys and fingerprints, without the object `prefix/` that marks the folder: obstore takes the slash away."""
    return ((str(meta["path"]), _fingerprint(meta)) for meta in objects if str(meta["path"]) != prefix)


def _is_same(fingerprint: Fingerprint, expected: Fingerprint) -> bool:
    """Whether both are of one version; times only count without a tag."""
    compared = slice(None, None, 2 if expected.etag else 1)
    return fingerprint[compared] == expected[compared]


def _fingerprint(meta: Mapping[str, Any]) -> Fingerprint:
    """With whole seconds, since listings and reads may round the time differently, and without quotes of the tag.

    Listings of some stores have no tag, reads always have one.
    """
    etag = meta["e_tag"]
    if etag is not None and not etag.startswith(_WEAK):
        etag = etag.strip('"')
    return Fingerprint(int(meta["size"]), int(meta["last_modified"].timestamp()) * 1_000_000_000, etag or None)
