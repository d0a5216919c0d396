"""One Spark cluster for all tests of this folder, which run in one worker of xdist, as tests/conftest.py says.

`spark` is a classic session on a cluster of two executor processes, `connect` a Spark Connect session of the same
cluster. In a test that uses `connect`, `pyspark.sql.functions` make columns for Connect, so use one of the two there.
`any_spark` is each of them in turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.spark import cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def connect_port() -> int:
    """Where the cluster serves Spark Connect."""
    return cluster.free_port()


@pytest.fixture(scope="session")
def spark(connect_port: int) -> Iterator[SparkSession]:
    """A classic session."""
    with cluster.running(connect_port=connect_port) as session:
        yield session


@pytest.fixture
def connect(spark: SparkSession, connect_port: int) -> Iterator[SparkSession]:
    """A session of Spark Connect."""
    with cluster.connected(connect_port) as session:
        yield session


@pytest.fixture(params=["classic", "connect"])
def any_spark(request: pytest.FixtureRequest) -> SparkSession:
    """Each kind of session."""
    return request.getfixturevalue("spark" if request.param == "classic" else "connect")
