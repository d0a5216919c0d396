"""Rounds of requests where a lake is large, or a table: long listings, large row groups, Delta and Iceberg.

`python -m bench.large_lakes`. As `bench.rounds`, behind `S3Proxy`. A server of this file lists 100 000 names, which
moto cannot hold. With `--log` the requests are printed round by round, and nothing is saved.
"""

from __future__ import annotations

import logging
import sys
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

import zonebloom as zb
from bench.harness import Result, scratch
from bench.rounds import ABSENT, COSTS, KIB, LATENCY, REPEATS, ROWS, ROWS_PER_FILE, Asker, Store, Truth
from bench.s3_proxy import S3Proxy, Server, rounds_of
from bench.s3_subjects import Lake, Subject, Zonebloom, build
from tests.s3 import KEYS, S3Server
from tests.tables import s3_properties
from zonebloom.stores.open import open_store

NUM_NAMES, NAMES_PER_PAGE = 100_000, 1000
LISTING_LATENCY = 2.0
"""Seconds in which a listing is answered: all requests must begin before the first answer, in threads of Python."""
LARGE_FILES, ROWS_PER_LARGE_FILE = 3, 500_000
PLACES = np.array([0, ROWS_PER_LARGE_FILE, ROWS_PER_LARGE_FILE + 100_000])
"""Rows that a run reads: one to open the index, and two of another file."""
WHEN = ("first key of its file", "another key of this file")
TABLE_FILES = 10
ICEBERG = "namespace.table"


def main() -> None:
    """Fill, build, ask and save."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    is_log = "--log" in sys.argv
    about = (
        f"Behind a proxy that answers each request {LATENCY:g} s late, and those of the listing "
        f"{LISTING_LATENCY:g} s late. Medians of {REPEATS} runs. Read the rounds, not the seconds."
    )
    result = Result("large_lakes", about, packages=["moto", "obstore", "deltalake", "pyiceberg"])
    listing(result)
    with ExitStack() as stack:
        server = S3Server()
        stack.callback(server.close)
        proxy = stack.enter_context(S3Proxy(server.url, LATENCY))
        store = Store(server.bucket("large-lakes-of-the-bench"), proxy, None, is_log)
        large_row_groups(result, store)
        tables(result, store, stack.enter_context(scratch()))
    if not is_log:
        result.save()


# --- listing ----------------------------------------------------------------------------------------------------------


def listing(result: Result) -> None:
    """All names of a folder where most of them are known."""
    names = [f"lake/day={number % 31:02}/part-{number:06}.parquet" for number in range(NUM_NAMES)]
    old = [name for number, name in enumerate(names) if number % 100]
    hints = {"all": names, "99 of 100": old, "all but the last 1,000": sorted(names)[:-1000]}
    rows = []
    with lister(sorted(names)) as url, S3Proxy(url, LISTING_LATENCY) as proxy:
        for label, paths in hints.items():
            store = open_store("s3://bucket", {**KEYS, "aws_endpoint": proxy.url, "aws_allow_http": "true"})
            with proxy.recorded() as requests:
                files = store.files("lake", paths)
            assert list(files) == sorted(names)
            num_bytes = sum(request.num_bytes for request in requests)
            rows.append([label, len(rounds_of(requests)), len(requests), num_bytes / KIB])
    title = f"A listing of {NUM_NAMES:,} files"
    note = f"A page has {NAMES_PER_PAGE:,} names: one after the other they are {NUM_NAMES // NAMES_PER_PAGE} rounds."
    result.table(title, ["known names", "rounds", "requests", "KiB"], rows, note)
    result.target(f"listing of {NUM_NAMES:,} files, all known", rows[0][1], 1, "rounds")
    result.target(f"listing of {NUM_NAMES:,} files, all known", rows[0][2], 130, "requests")


@contextmanager
def lister(names: Sequence[str]) -> Iterator[str]:
    """The URL of a server whose bucket has objects of these names, in order; it can do nothing but list them."""
    entries = [
        f"<Contents><Key>{name}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;{number}&quot;"
        "</ETag><Size>1000</Size><StorageClass>STANDARD</StorageClass></Contents>"
        for number, name in enumerate(names)
    ]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            first = bisect_right(names, query.get("continuation-token") or query.get("start-after", ""))
            stop = min(first + NAMES_PER_PAGE, len(names))
            is_last = stop == len(names)
            token = "" if is_last else f"<NextContinuationToken>{names[stop - 1]}</NextContinuationToken>"
            head = f"<IsTruncated>{str(not is_last).lower()}</IsTruncated>{token}"
            text = f"<ListBucketResult>{head}{''.join(entries[first:stop])}</ListBucketResult>".encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# --- large row groups -------------------------------------------------------------------------------------------------


def large_row_groups(result: Result, store: Store) -> None:
    """A key in a file that the process has not read, and others in the same file."""
    truth = Truth.of(LARGE_FILES, ROWS_PER_LARGE_FILE)
    rows = []
    for label, has_pages in (("with page indexes", True), ("without", False)):
        name = f"large-{has_pages}".lower()
        truth.fill(store.bucket, name, write_page_index=has_pages)
        subject = Subject(f"zonebloom, locator, {label}", Zonebloom, store.indexed(name, "locator"))
        asker = Asker(store, truth, places=[place for run in range(REPEATS) for place in PLACES + run])
        rows += [[label, when, *costs] for when, costs in zip(WHEN, asker.in_turn(subject, len(WHEN)), strict=True)]
    note = "The index is open. Each file has one row group of about 20 MiB. pyarrow writes page indexes if asked."
    result.table(f"Rows of one key, {LARGE_FILES} files of {ROWS_PER_LARGE_FILE:,} rows", ["", "", *COSTS], rows, note)
    result.target("rows of one key in a large row group, first key of its file", rows[0][2], 3, "rounds")
    result.target("rows of one key in a large row group, another key of this file", rows[1][2], 2, "rounds")


# --- tables -----------------------------------------------------------------------------------------------------------


class IcebergZonebloom(Zonebloom):
    """The index of an Iceberg table; the lake's name is the table's metadata file."""

    def __init__(self, lake: Lake) -> None:
        self.index = zb.open_index(lake.index, dataset=iceberg_table(lake), storage_options=lake.options)


def iceberg_table(lake: Lake) -> Any:
    """The table at its metadata file, without a catalog."""
    from pyiceberg.table import StaticTable

    names = {"s3.endpoint": "aws_endpoint", "s3.access-key-id": "aws_access_key_id"}
    names |= {"s3.secret-access-key": "aws_secret_access_key", "s3.region": "aws_region"}
    return StaticTable.from_metadata(lake.url, {name: lake.options[option] for name, option in names.items()})


def tables(result: Result, store: Store, folder: Path) -> None:
    """Delta and Iceberg, whose logs other libraries read."""
    from deltalake import write_deltalake
    from pyiceberg.catalog.sql import SqlCatalog

    truth, bucket = Truth.of(TABLE_FILES, ROWS_PER_FILE), store.bucket
    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", **s3_properties(bucket))
    catalog.create_namespace(ICEBERG.split(".", maxsplit=1)[0])
    table = catalog.create_table(ICEBERG, truth.table.schema)
    for part in truth.files():
        write_deltalake(bucket.url("delta"), part, mode="append", storage_options=bucket.options)
        table.append(part)
    through = bucket.options | {"aws_endpoint": store.proxy.url}
    build(Lake(bucket.name, "delta", bucket.options), "locator")
    delta = Subject("Delta", Zonebloom, Lake(bucket.name, "delta", through))
    metadata, index = table.metadata_location.removeprefix(f"s3://{bucket.name}/"), bucket.url("indexes/iceberg")
    zb.build_index(table, "key", index=index, storage_options=bucket.options, kind="locator")
    iceberg = Subject("Iceberg, by its metadata file", IcebergZonebloom, Lake(bucket.name, metadata, through, index))
    rows = []
    for subject in (delta, iceberg):
        asker = Asker(store, truth)
        rows.append([subject.name, f"a new process: {ROWS}", *asker.cold(subject)])
        rows += [[subject.name, question, *costs] for question, costs in asker.opened(subject, [ROWS, ABSENT]).items()]
    note = "deltalake and pyiceberg read the logs. An Iceberg version that its metadata file gives is not read again."
    title = f"Tables of {TABLE_FILES} files of {ROWS_PER_FILE:,} rows, each a commit"
    result.table(title, ["", "", *COSTS], rows, note)
    for _, question, rounds, *_ in rows[1:3]:
        result.target(f"{question}, Delta, index open", rounds, 1 if question == ABSENT else 2, "rounds")


if __name__ == "__main__":
    main()
