"""Small Parquet lakes: every fixture writes with pyarrow, so that nothing of zonebloom is needed to trust it.

`make_lake` writes one of any shape; `flat_lake`, `hive_lake` and `single_file` are those that most tests want. A lake
belongs to its test alone: build in it, break it.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import settings

from tests import runs
from tests.depth import IS_DEEP, at_depth, deeper_names
from tests.newer import NEEDS

if TYPE_CHECKING:
    from tests.azure import AzureServer, Container
    from tests.iceberg_log import RacingCatalog
    from tests.s3 import Bucket, S3Server
    from tests.zygote import Zygote

# No test measures time. Each run has the same examples, so that what fails is what the change broke; a seed has others.
settings.register_profile("depth", deadline=None, max_examples=at_depth(100, 25), derandomize=True)
settings.register_profile("seed", settings.get_profile("depth"), derandomize=False)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("depth" if config.getoption("--hypothesis-seed") is None else "seed")


NUM_DEVICES = 500

collect_ignore = [] if find_spec("daft") else ["engines/test_daft_and_ray.py"]
"""`make test-daft` runs it, in an environment of its own."""


def index_of(root: Path) -> Path:
    """Where the index of a folder, or of one file, is if nobody says."""
    return root.with_name(f"_{root.name}.zonebloom")


def flip(path: Path, position: int | None = None, bit: int = 0) -> None:
    """One other bit in a file, by default in the byte in its middle."""
    position = path.stat().st_size // 2 if position is None else position
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))


@dataclass(frozen=True)
class Lake:
    """A folder of Parquet files, and what is in it."""

    root: Path
    files: tuple[str, ...]
    """Paths relative to `root`, in order."""
    table: pa.Table
    """All rows, in order of path and row, partition columns last."""
    row_group_size: int

    def expected(self, mask: Sequence[bool] | np.ndarray | pa.Array) -> pa.Table:
        """The rows where `mask` is true."""
        return self.table.filter(pa.array(mask, pa.bool_()))

    def append(self, name: str, table: pa.Table) -> Lake:
        """The lake with one more file, which must come last in order of path."""
        assert not self.files or name > self.files[-1]
        pq.write_table(table, self.root / name, row_group_size=self.row_group_size)
        return replace(self, files=(*self.files, name), table=pa.concat_tables([self.table, table]))


@cache
def make_rows(num_rows: int, seed: int = 0) -> pa.Table:
    """Events with unsorted keys.

    `user_id` string, a UUID, unique; `device_id` int64 over its whole range, each of 500 devices many times; `trace`
    binary(16), unique; `note` string, a tenth null, and some empty; `amount` float64 with nulls, NaN and both zeros.
    """
    random = np.random.default_rng([seed, num_rows])
    devices = np.random.default_rng(7).integers(-(2**63), 2**63, NUM_DEVICES)
    keys = [random.bytes(16) for _ in range(num_rows)]
    texts = [key.hex() for key in keys]
    notes = random.integers(0, 50, num_rows)
    amounts = np.round(random.normal(0, 100, num_rows), 2)
    if num_rows >= 4:
        amounts[:3] = np.nan, 0.0, -0.0
    return pa.table(
        {
            "user_id": pa.array(
                [f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}" for text in texts], pa.string()
            ),
            "device_id": pa.array(devices[random.integers(0, NUM_DEVICES, num_rows)], pa.int64()),
            "trace": pa.array(keys, pa.binary(16)),
            "note": pa.array(["" if n == 1 else f"note {n}" for n in notes], pa.string(), mask=notes < 5),
            "amount": pa.array(amounts, pa.float64(), mask=random.random(num_rows) < 0.05, from_pandas=False),
        }
    )


MakeLake = Callable[..., Lake]


@pytest.fixture
def make_lake(tmp_path: Path) -> MakeLake:
    """`make_lake(rows_per_file, *, partition_by_day, row_group_size, name, seed)` writes a lake and describes it."""

    def make(
        rows_per_file: Sequence[int] = (5000, 3000, 1),
        *,
        partition_by_day: bool = False,
        row_group_size: int = 2048,
        name: str = "lake",
        seed: int = 0,
    ) -> Lake:
        root = tmp_path / name
        root.mkdir()
        files, tables = [], []
        for number, num_rows in enumerate(rows_per_file):
            table = make_rows(num_rows, seed=seed + number)
            path = f"day={number // 2 + 1}/part-{number}.parquet" if partition_by_day else f"part-{number}.parquet"
            (root / path).parent.mkdir(exist_ok=True)
            pq.write_table(table, root / path, row_group_size=row_group_size)
            if partition_by_day:
                table = table.append_column("day", pa.array([number // 2 + 1] * num_rows, pa.int32()))
            files.append(path)
            tables.append(table)
        assert files == sorted(files)
        return Lake(root, tuple(files), pa.concat_tables(tables), row_group_size)

    return make


@pytest.fixture
def flat_lake(make_lake: MakeLake) -> Lake:
    """Three files in one folder: of three row groups, of two, and of a single row."""
    return make_lake()


@pytest.fixture
def hive_lake(make_lake: MakeLake) -> Lake:
    """Five files under day=1, day=2 and day=3, one of them without rows."""
    return make_lake((2500, 1000, 3000, 0, 700), partition_by_day=True, row_group_size=1024)


@pytest.fixture
def single_file(make_lake: MakeLake) -> Lake:
    """One file of four row groups."""
    return make_lake((4000,), row_group_size=1000)


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """A process that has loaded everything, and forks the children of tests."""
    from tests.zygote import Zygote

    with Zygote() as started:
        yield started


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A stand-in for S3 on loopback, one for all tests of a process."""
    from tests.s3 import S3Server

    server = S3Server()
    yield server
    server.close()


@pytest.fixture
def s3(s3_server: S3Server) -> Bucket:
    """An empty bucket of its own: `s3.url("lake")`, `s3.options`."""
    return s3_server.bucket(f"bucket-{uuid4()}")


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """A stand-in for Azure on loopback, as `s3_server`."""
    from tests.azure import AzureServer

    with AzureServer(tmp_path_factory.mktemp("azurite")) as started:
        yield started


@pytest.fixture
def azure(azure_server: AzureServer) -> Container:
    """An empty container of its own."""
    return azure_server.create_container(f"box-{uuid4()}")


class Outcome(NamedTuple):
    """What the command printed, and its exit status."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """What it printed as JSON."""
        return json.loads(self.out, parse_constant=refuse_constant)


def refuse_constant(name: str) -> None:
    raise ValueError(f"JSON has no {name}")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """`run("search", path, ..., stdin=b"")`: the command in this process, as from a shell; None closes stdin."""
    from zonebloom import cli

    def command(*arguments: object, stdin: bytes | None = b"") -> Outcome:
        monkeypatch.setattr(sys, "argv", ["zonebloom", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", None if stdin is None else io.TextIOWrapper(io.BytesIO(stdin)))
        code = cli.run()
        outcome = Outcome(code, *capsys.readouterr())
        assert "Traceback" not in outcome.err
        return outcome

    return command


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`meanwhile(owner, name, other)`: `other` happens just before, or after, the next call (`when` says which)."""

    def arrange(
        owner: object,
        name: str,
        other: Callable[[], object],
        *,
        is_after: bool = False,
        when: Any = lambda *_, **__: True,
    ) -> None:
        whole = getattr(owner, name)

        def called(*arguments: Any, **options: Any) -> Any:
            if not when(*arguments, **options):
                return whole(*arguments, **options)
            monkeypatch.setattr(owner, name, whole)
            answer = whole(*arguments, **options) if is_after else other()
            return (other(), answer)[1] if is_after else whole(*arguments, **options)

        monkeypatch.setattr(owner, name, called)

    return arrange


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[RacingCatalog]:
    """A catalog of Iceberg tables, with the namespace `db`."""
    from tests.iceberg_log import RacingCatalog

    warehouse = (tmp_path / "warehouse").as_uri()
    racing_catalog = RacingCatalog("here", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=warehouse)
    racing_catalog.create_namespace("db")
    yield racing_catalog
    racing_catalog.close()


def pytest_report_header() -> list[str]:
    """What the tests need and the libraries do not have yet."""
    return [f"left out: {need}" for need in NEEDS.values() if not need.is_met]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In the deep suite mark what goes deeper, before `-m` chooses."""
    for item in items if IS_DEEP else ():
        if isinstance(item, pytest.Function) and item.function.__name__ in deeper_names(item.path):
            item.add_marker("deep")


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """`figure(text)` has a result in figures printed at the end of the run, whichever worker ran the test."""
    return lambda text: record_property("figure", text)


_SPARK, _REMOTE = "tests/spark/", "tests/whole/test_remote_lakes.py"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """A module goes to one worker, and all of Spark: a second JVM takes 20 s of CPU to warm up.

    In the deep suite tests take long, so each is sent alone, but for Spark's and those that share a server.

    With pytest 9.2, xdist 3.8 does not see its own mark `xdist_group`.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(_SPARK):
                return _SPARK
            return nodeid if IS_DEEP and not nodeid.startswith(_REMOTE) else nodeid.partition("::")[0]

    return Scheduler(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures of all tests that passed, and keep the run for docs/compatibility.md if it is to be kept."""
    if not hasattr(terminalreporter.config, "workerinput"):  # a worker of xdist has run a part
        runs.finished({outcome: len(reports) for outcome, reports in terminalreporter.stats.items()})
    passed = [report for report in terminalreporter.stats.get("passed", []) if report.when == "call"]
    figures = [str(value) for report in passed for name, value in report.user_properties if name == "figure"]
    if figures:
        terminalreporter.section("figures")
        for line in sorted(figures):
            terminalreporter.line(line)
