"""What a search costs in an object store: requests and bytes, against a full scan by pyarrow of the same bucket.

The bucket is moto's on loopback, where every request is counted and answered 20 ms late, about as soon as S3 answers.

    python -m bench.stores [--rows-per-zone 1024]
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq

import zonebloom as zb
from bench.harness import Result, spread
from tests.s3 import Bucket, S3Server

NUM_FILES, NUM_ZONES = 1000, 8192
LATENCY = 0.02
REPEATS = 5
KIB = 1024
MS = 1e3


def main() -> None:
    """Fill a bucket, build, then ask: cold, again, the rows, and what no index can help with."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows-per-zone", type=int, default=1024)
    rows_per_zone = parser.parse_args().rows_per_zone
    about = (
        f"{NUM_FILES:,} files, {NUM_ZONES:,} zones of {rows_per_zone:,} rows in a bucket of moto's server on loopback, "
        f"which answers {LATENCY * MS:.0f} ms late. Requests and bytes are counted at the server, listings included."
    )
    result = Result("stores", about, packages=["moto", "obstore"])
    server = S3Server()
    try:
        _ask(result, server.bucket("lake-of-the-bench"), rows_per_zone)
    finally:
        server.close()
    result.save()


def _fill(bucket: Bucket, rows_per_zone: int) -> tuple[str, int]:
    """The URL of a lake whose zones do not straddle files, and a key that it has."""
    random = np.random.default_rng(11)
    key = 0
    for number in range(NUM_FILES):
        num_zones = NUM_ZONES // NUM_FILES + (number < NUM_ZONES % NUM_FILES)
        keys = random.integers(-(2**62), 2**62, num_zones * rows_per_zone)
        key = int(keys[7])
        table = pa.table({"key": keys, "amount": random.random(len(keys))})
        sink = io.BytesIO()
        pq.write_table(table, sink, row_group_size=2 * rows_per_zone)
        bucket.put_at_once(f"lake/part-{number:05}.parquet", sink.getvalue())
    return bucket.url("lake"), key


def _ask(result: Result, bucket: Bucket, rows_per_zone: int) -> None:
    url, key = _fill(bucket, rows_per_zone)
    options = bucket.options
    index = zb.build_index(url, "key", rows_per_zone=rows_per_zone, storage_options=options)
    absent = 2**62 + 1
    files = pyarrow.fs.S3FileSystem(
        access_key=options["aws_access_key_id"],
        secret_key=options["aws_secret_access_key"],
        endpoint_override=bucket.server.url,
    )

    def cold() -> Any:
        return zb.open_index(url, storage_options=options).search(zb.col("key") == key)

    def full_scan(condition: Any) -> pa.Table:
        dataset = ds.dataset(f"{bucket.name}/lake", filesystem=files, format="parquet", ignore_prefixes=["_", "."])
        return dataset.to_table(filter=condition)

    few = 2**62 - 2**62 // 1000
    cases: dict[str, Callable[[], Any]] = {
        "zonebloom: open the index and search one key": cold,
        "zonebloom: search one key again": lambda: index.search(zb.col("key") == key),
        "zonebloom: search one that is nowhere": lambda: index.search(zb.col("key") == absent),
        "zonebloom: the rows of one key": lambda: index.to_table(zb.col("key") == key),
        "pyarrow: the rows of one key": lambda: full_scan(ds.field("key") == key),
        "zonebloom: a range over random keys (not for us)": lambda: index.to_table(f"key > {few}"),
        "pyarrow: a range over random keys": lambda: full_scan(ds.field("key") > few),
    }
    assert index.to_table(zb.col("key") == key).equals(full_scan(ds.field("key") == key))
    assert index.to_table(f"key > {few}").num_rows == full_scan(ds.field("key") > few).num_rows
    index.search("key = 1")
    rows, requests, num_bytes = [], {}, {}
    for name, case in cases.items():
        requests[name], num_bytes[name], seconds = _measured(bucket, case, repeats=1 if "range" in name else REPEATS)
        rows.append([name, requests[name], num_bytes[name] / KIB, spread([spent * MS for spent in seconds])])
    note = "The index was optimized by the build. pyarrow lists, reads every footer and the columns of every file."
    result.table("One key", ["question", "requests", "KiB", "ms"], rows, note)
    first, second, nowhere, scanned, full, *_ = cases
    result.target("cold open and Equals over 8192 zones", requests[first], 12, "requests")
    result.target("cold open and Equals over 8192 zones", num_bytes[first] / 1e6, 1.0, "MB")
    result.target("a second Equals", max(requests[second], requests[nowhere]), 4, "requests")
    result.headline.append(
        [
            f"one key in {NUM_FILES:,} files of an object store: the rows themselves",
            f"{requests[scanned]:,} requests, {num_bytes[scanned] / KIB:,.0f} KiB",
            f"pyarrow without an index {requests[full]:,} requests, {num_bytes[full] / KIB:,.0f} KiB",
        ]
    )


def _measured(bucket: Bucket, case: Callable[[], Any], repeats: int) -> tuple[int, int, list[float]]:
    """Requests and bytes of one run, and the seconds of each."""
    seconds = []
    with bucket.server.misbehaving(lambda *_: time.sleep(LATENCY)):
        for _ in range(repeats):
            with bucket.server.recorded() as requests:
                started = time.perf_counter()
                case()
                seconds.append(time.perf_counter() - started)
    return len(requests), sum(request.num_bytes for request in requests), seconds


if __name__ == "__main__":
    main()
