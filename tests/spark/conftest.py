"""Spark sessions: one for all tests of this folder.

`spark` is a classic session of two threads, whose Python workers are processes of their own and whose tasks are tried
again. It interprets queries. `connect` is a Spark Connect session of the same server. `any_spark` is one of the two,
chosen by the test's name, and in the deep suite the other. A test has the mark `deep` if the two differ in what it is
about, such as columns and texts of plans. In a test with a session of Spark Connect, `pyspark.sql.functions` make
columns for Connect, so use one kind there. Only `test_spark_delivery.py` starts a cluster, in the deep suite, for what
processes alone show; there Spark compiles its queries, as by default.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import zonebloom
from tests.depth import IS_DEEP
from tests.newer import has, need
from tests.spark import cluster
from tests.spark.odd_lake import write_odd_lake
from tests.spark.rows import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


HERE = Path(__file__).parent
_LEAVES_NONE_OPEN = tuple(map(int, version("pyspark").split(".")[:2])) >= (4, 3)
_OF_SOCKETS = ["ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"]
WARNINGS = [
    "ignore:a condition must compare indexed columns:RuntimeWarning",  # asked all over; one test is about the warning
    *([] if _LEAVES_NONE_OPEN else ["ignore:distutils:DeprecationWarning", *_OF_SOCKETS]),
]


@pytest.fixture(scope="session")
def connect_port() -> int | None:
    """Where the cluster serves Spark Connect, if PySpark has it."""
    return cluster.free_port() if has("spark_4") else None


@pytest.fixture(scope="session")
def spark(connect_port: int | None) -> Iterator[SparkSession]:
    """A classic session."""
    options = {**cluster.SHORT_LIVED, **cluster.INTERPRETED}
    with cluster.running("local[2,4]", connect_port=connect_port, options=options) as session:
        yield session


@pytest.fixture
def connect(spark: SparkSession, connect_port: int) -> Iterator[SparkSession]:
    """A session of Spark Connect."""
    need("spark_4")
    with cluster.connected(connect_port) as session:
        yield session


@pytest.fixture
def any_spark(request: pytest.FixtureRequest) -> SparkSession:
    """A session of either kind."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """No row is few enough for the driver."""
    monkeypatch.setattr("zonebloom.engines.spark.scan.choice.DRIVER_ROWS", -1)


@pytest.fixture
def small_lake(tmp_path: Path) -> Path:
    """Six files with 200 texts each, in four zones."""
    root = tmp_path / "small"
    for number in range(6):
        write(root / f"part-{number}.parquet", {"key": [f"k-{number}-{n}" for n in range(200)]}, row_group_size=64)
    zonebloom.build_index(root, ["key"], rows_per_zone=50)
    return root


@pytest.fixture
def numbered_lake(tmp_path: Path) -> Path:
    """Four files with 100 numbers each, and with the same texts in each file."""
    root = tmp_path / "numbered"
    for number in range(4):
        columns = {"x": range(100 * number, 100 * number + 100), "s": [f"s{i}" for i in range(100)]}
        write(root / f"{number}.parquet", columns, row_group_size=50)
    zonebloom.build_index(root, ["x", "s"], rows_per_zone=10)
    return root


@pytest.fixture(scope="session")
def odd_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_odd_lake(tmp_path_factory.mktemp("lakes") / "a lake %41 [x]*{d} ü")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give `any_spark` the kind of session that the test's name chooses, in the deep suite the other kind."""
    if "any_spark" in metafunc.fixturenames:
        kinds = ("spark", "connect") if has("spark_4") else ("spark",)
        number = zlib.crc32(metafunc.function.__name__.encode()) + IS_DEEP
        metafunc.parametrize("any_spark", [kinds[number % len(kinds)]], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.filterwarnings(*WARNINGS), append=False)
