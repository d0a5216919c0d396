"""What a user waits for in an object store: dependent rounds of requests, for one key, an absent one and a list.

`python -m bench.rounds`. A bucket of moto lies behind `S3Proxy`, which answers each request 0.1 s late and logs it.
Each subject runs in a process of its own. Its rows are compared with those that were written. With `--log` only
zonebloom is asked, and its requests are printed round by round; nothing is saved.
"""

from __future__ import annotations

import io
import logging
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness import Result, scratch, spread
from bench.s3_proxy import LoggedRequest, S3Proxy, rounds_of
from bench.s3_subjects import HTTPFS, Client, DuckDB, Lake, Lance, Polars, PyArrow, Subject, Zonebloom, build, httpfs_in
from tests.s3 import Bucket, S3Server

FILES, ROWS_PER_FILE = 60, 40_000
SMALL_FILES, MANY_SMALL_FILES, ROWS_PER_SMALL_FILE = 2500, 5000, 40
LATENCY = 0.1
REPEATS = 3
SPACING = 0x9E3779B97F
"""Between keys, so that they are large numbers as hashes are."""
NUM_KEYS = 40
KIB = 1024
ROWS, ABSENT = "rows of one key", "rows of an absent key"
RANGES_OF_LIST, ROWS_OF_LIST = f"row ranges of {NUM_KEYS} keys", f"rows of {NUM_KEYS} keys"
QUESTIONS = {
    ROWS: ("rows", 1),
    ABSENT: ("rows", 0),
    RANGES_OF_LIST: ("ranges", NUM_KEYS),
    ROWS_OF_LIST: ("rows", NUM_KEYS),
}
"""What is asked of an opened subject: the name of its method, and the number of keys; 0 for one that is absent."""
PYARROW = "pyarrow, data set"
S3_ROUND_MS = 40
"""Milliseconds in which S3 begins to answer a request, by published measurements."""
COSTS = ["rounds", "requests", "KiB", "s"]


def main() -> None:
    """Fill the bucket, build, ask and save."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    is_log = "--log" in sys.argv
    about = (
        f"A bucket of moto on loopback behind a proxy that answers each request {LATENCY:g} s late. Bytes cost "
        "no time. A round is a set of requests that were under way at one moment. A user waits for rounds one by one. "
        f"Medians of {REPEATS} runs, each with keys of its own. Rows are compared with those that were written. "
        "Other processes used the cores: read the rounds, not the seconds."
    )
    result = Result("rounds", about, packages=["moto", "obstore", "pylance", "polars"])
    with ExitStack() as stack:
        server = S3Server()
        stack.callback(server.close)
        proxy = stack.enter_context(S3Proxy(server.url, LATENCY))
        modules = None if is_log else httpfs_in(stack.enter_context(scratch()))
        store = Store(server.bucket("lakes-of-the-bench"), proxy, modules, is_log)
        few_files(result, store)
        small_files(result, store)
    if not is_log:
        result.save()


@dataclass(frozen=True)
class Store:
    """A bucket behind its proxy, and those who are asked about it."""

    bucket: Bucket
    proxy: S3Proxy
    modules: Path | None
    """Folder of the DuckDB that has `httpfs`; None if there is none."""
    is_log: bool
    """Whether requests are printed, and peers left out."""

    def indexed(self, name: str, kind: str, index: str | None = None) -> Lake:
        """The lake `name` as clients see it, after an index was built without the proxy."""
        build(Lake(self.bucket.name, name, self.bucket.options, index), kind)
        return Lake(self.bucket.name, name, self.bucket.options | {"aws_endpoint": self.proxy.url}, index)

    def peers(self, lake: Lake) -> list[Subject]:
        """All subjects but zonebloom."""
        if self.is_log:
            return []
        duckdb = [] if self.modules is None else [Subject("DuckDB 1.5.5, httpfs", DuckDB, lake, self.modules)]
        return [
            Subject(PYARROW, PyArrow, lake),
            Subject("Polars, scan_parquet", Polars, lake),
            *duckdb,
            Subject("Lance, its own bloom filters", Lance, lake),
        ]

    def note(self, text: str) -> str:
        """`text`, and a sentence about DuckDB if it is not among the peers."""
        return text if self.modules is not None else f"{text} DuckDB is left out: {HTTPFS} could not be installed."


# --- tables -----------------------------------------------------------------------------------------------------------


def few_files(result: Result, store: Store) -> None:
    """A new process, and an open index, over large files."""
    truth = Truth.of(FILES, ROWS_PER_FILE)
    for name in ("locator", "filters"):
        truth.fill(store.bucket, name)
    truth.fill_lance(store.bucket, "locator")
    lake = store.indexed("locator", "locator")
    locator = Subject("zonebloom, locator", Zonebloom, lake)
    filters = Subject("zonebloom, zone filters", Zonebloom, store.indexed("filters", "bloom"))
    elsewhere = store.indexed("locator", "locator", index=store.bucket.url("indexes/locator"))
    by_url = Subject("zonebloom, locator, opened by the URL of the index", Zonebloom, elsewhere)
    peers = store.peers(lake)
    asker = Asker(store, truth)

    cold = [[subject.name, *asker.cold(subject)] for subject in (locator, by_url, filters, *peers)]
    title = f"A new process reads the rows of one key, {FILES} files of {ROWS_PER_FILE:,} rows"
    note = "From opening to rows; imports are not timed. Lance has the same rows in a table of its own."
    result.table(title, ["", *COSTS], cold, store.note(note))
    result.target("a new process opens the index and reads the rows of one key", cold[0][1], 4, "rounds")
    result.headline += headline(cold)

    without_ranges = [question for question in QUESTIONS if question != RANGES_OF_LIST]
    asked = [(subject, list(QUESTIONS)) for subject in (locator, filters)]
    asked += [(subject, without_ranges) for subject in peers]
    costs = {subject.name: asker.opened(subject, questions) for subject, questions in asked}
    rows = [[question, name, *of[question]] for question in QUESTIONS for name, of in costs.items() if question in of]
    note = (
        "The same process read another key before. zonebloom and DuckDB list the files at each question; pyarrow and "
        "Lance read those that they opened. Lance keeps its whole index in memory, DuckDB all that it read."
    )
    result.table("The index is open", ["", "", *COSTS], rows, store.note(note))
    for question, limit in ((ROWS, 2), (ABSENT, 1), (RANGES_OF_LIST, 1)):
        result.target(f"{question}, index open", costs[locator.name][question][0], limit, "rounds")


def small_files(result: Result, store: Store) -> None:
    """An absent key where the listing takes several pages."""
    rows = []
    for name, num_files in (("small", SMALL_FILES), ("many", MANY_SMALL_FILES)):
        truth = Truth.of(num_files, ROWS_PER_SMALL_FILE)
        truth.fill(store.bucket, name)
        lake = store.indexed(name, "locator")
        opened = Asker(store, truth).opened(Subject("zonebloom, locator", Zonebloom, lake), [ABSENT])
        rows.append([num_files, "zonebloom, locator, the index is open", *opened[ABSENT]])
        if num_files == SMALL_FILES:
            truth.fill_lance(store.bucket, name)
            once = Asker(store, truth, repeats=1)
            peers = [peer for peer in store.peers(lake) if peer.opener in (PyArrow, Lance)]
            rows += [[num_files, f"{peer.name}, a new process", *once.cold(peer, ABSENT)] for peer in peers]
    note = (
        f"Files have {ROWS_PER_SMALL_FILE} rows; a listing has 1000 names a page. Peers ran once. Polars and DuckDB, "
        "which read each file too, are not asked."
    )
    result.table("An absent key among small files", ["files", "", *COSTS], rows, note)
    for num_files, _, rounds, *_ in (rows[0], rows[-1]):
        result.target(f"{ABSENT}, {num_files:,} files", rounds, 1, "rounds")


def headline(cold: Sequence[Sequence[Any]]) -> list[list[str]]:
    """A row for the README from the rows of the first table; none without pyarrow."""
    place = f"a new process, one key, {FILES} files in an object store of {S3_ROUND_MS} ms"
    ours = f"{cold[0][1]} rounds, {_waiting(cold[0][1])} ms"
    peers = [row[1] for row in cold if row[0] == PYARROW]
    return [[place, ours, f"pyarrow {peer} rounds, {_waiting(peer)} ms"] for peer in peers]


def _waiting(rounds: float) -> str:
    return f"{rounds * S3_ROUND_MS:,.0f}"


# --- data -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Truth:
    """The rows of a lake; each key is in one row."""

    table: pa.Table
    rows_per_file: int
    absent: list[int]
    """Keys between those of the lake: no statistics exclude them."""

    @classmethod
    def of(cls, num_files: int, rows_per_file: int) -> Truth:
        """Rows with keys in random order."""
        num_rows = num_files * rows_per_file
        random = np.random.default_rng(num_files)
        keys, absent = np.split(random.permutation(np.arange(2 * num_rows) * SPACING), 2)
        texts = [f"event {number:016x}" for number in random.integers(0, 2**62, num_rows).tolist()]
        table = pa.table({"key": keys, "amount": random.random(num_rows), "text": texts})
        return cls(table, rows_per_file, absent.tolist())

    def rows(self, places: Sequence[int]) -> list[dict[str, Any]]:
        """The rows with these numbers."""
        return self.table.take(pa.array(places, pa.int64())).to_pylist()

    def is_among(self, place: int, ranges: Sequence[tuple[str, int, int]]) -> bool:
        """Whether a row is in one of the ranges of a search."""
        file, row = divmod(place, self.rows_per_file)
        return any(path.endswith(_name(file)) and start <= row < stop for path, start, stop in ranges)

    def files(self) -> Iterator[pa.Table]:
        """The rows of each file."""
        for first in range(0, self.table.num_rows, self.rows_per_file):
            yield self.table.slice(first, self.rows_per_file)

    def fill(self, bucket: Bucket, name: str, **options: Any) -> None:
        """Write the Parquet files."""
        for number, rows in enumerate(self.files()):
            sink = io.BytesIO()
            pq.write_table(rows, sink, **options)
            bucket.put_at_once(f"{name}/{_name(number)}", sink.getvalue())

    def fill_lance(self, bucket: Bucket, name: str) -> None:
        """Write a Lance table with as many fragments, and Lance's own index of it."""
        import lance
        from lance.indices import IndexConfig

        with scratch() as folder:
            data = lance.write_dataset(self.table, folder, mode="overwrite", max_rows_per_file=self.rows_per_file)
            parameters = {"number_of_items": 8192, "probability": 0.00057}
            data.create_scalar_index("key", IndexConfig(index_type="bloomfilter", parameters=parameters))
            for file in folder.rglob("*"):
                if file.is_file():
                    bucket.put_at_once(f"{name}.lance/{file.relative_to(folder).as_posix()}", file.read_bytes())


def _name(file: int) -> str:
    return f"part-{file:05}.parquet"


# --- questions --------------------------------------------------------------------------------------------------------


class Asker:
    """Asks subjects, counts what the proxy saw, and compares each answer with the truth."""

    def __init__(self, store: Store, truth: Truth, repeats: int = REPEATS, places: Sequence[int] | None = None) -> None:
        self._store = store
        self._truth = truth
        self._repeats = repeats
        shuffled = np.random.default_rng(5).permutation(truth.table.num_rows).tolist()
        self._places = iter(shuffled if places is None else places)
        self._absent = iter(truth.absent)

    def cold(self, subject: Subject, question: str = ROWS) -> list[Any]:
        """The costs where a new process opens the subject and answers the question."""

        def ask() -> tuple[float, list[LoggedRequest]]:
            with subject.client() as client:
                return self._ask(client, *QUESTIONS[question])

        return self._costs(f"{subject.name}, a new process: {question}", ask)

    def opened(self, subject: Subject, questions: Sequence[str]) -> dict[str, list[Any]]:
        """The costs of each question where the process read the rows of a key before."""
        with subject.client() as client:
            self._ask(client, *QUESTIONS[ROWS])
            return {
                question: self._costs(
                    f"{subject.name}: {question}", lambda question=question: self._ask(client, *QUESTIONS[question])
                )
                for question in questions
            }

    def in_turn(self, subject: Subject, num_keys: int) -> list[list[Any]]:
        """The costs of the first, second, … key that a process reads after the one with which it opened the index."""
        runs = []
        for _ in range(self._repeats):
            with subject.client() as client:
                self._ask(client, *QUESTIONS[ROWS])
                runs.append([self._ask(client, *QUESTIONS[ROWS]) for _ in range(num_keys)])
        answers = [iter(of_key) for of_key in zip(*runs, strict=True)]
        return [self._costs(f"{subject.name}, key {n}", partial(next, of_key)) for n, of_key in enumerate(answers, 1)]

    def _ask(self, client: Client, method: str, num_keys: int) -> tuple[float, list[LoggedRequest]]:
        """Seconds and requests for keys that no question named before."""
        places = [next(self._places) for _ in range(num_keys)]
        expected = sorted(self._truth.rows(places), key=itemgetter("key"))
        keys = [row["key"] for row in expected] or [next(self._absent)]
        with self._store.proxy.recorded() as requests:
            seconds, answer = client.ask(method, keys)
        if method == "rows":
            assert sorted(answer, key=itemgetter("key")) == expected, (answer, expected)
        else:
            assert all(self._truth.is_among(place, answer) for place in places)
            assert sum(stop - start for _, start, stop in answer) < self._truth.table.num_rows / 2
        return seconds, requests

    def _costs(self, name: str, ask: Callable[[], tuple[float, list[LoggedRequest]]]) -> list[Any]:
        """Rounds, requests, KiB and seconds."""
        seconds, logs = zip(*(ask() for _ in range(self._repeats)), strict=True)
        if self._store.is_log:
            _print_log(name, logs[-1])
        for log, of_run in zip(logs, seconds, strict=True):
            assert len(rounds_of(log)) * LATENCY <= of_run
        rounds = statistics.median_high(len(rounds_of(log)) for log in logs)
        num_requests = statistics.median_high(map(len, logs))
        num_bytes = statistics.median(sum(request.num_bytes for request in log) for log in logs)
        return [rounds, num_requests, num_bytes / KIB, spread(seconds)]


def _print_log(name: str, log: Sequence[LoggedRequest]) -> None:
    print(f"\n{name}")
    for number, requests in enumerate(rounds_of(log), 1):
        for request in requests:
            print(f"{number:4} {request.start - log[0].start:7.3f} s {request.num_bytes:10,} B  {request.what}")


if __name__ == "__main__":
    main()
