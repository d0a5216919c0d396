"""The cluster of the tests is what it says: several processes, both kinds of session, and a Java from anywhere.

Oracle: PySpark 4.3.
"""

from __future__ import annotations

import os

import pyarrow as pa


def pids(batches):
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"pid": pa.array([os.getpid()], pa.int64())})


def test_tasks_run_in_other_processes_of_both_kinds_of_session(any_spark):
    found = {row.pid for row in any_spark.range(4, numPartitions=4).mapInArrow(pids, "pid long").collect()}
    assert found
    assert os.getpid() not in found


def test_a_connect_session_is_one(connect):
    from zonebloom.spark.session import is_connect

    assert is_connect(connect)
    assert not hasattr(connect, "_jsparkSession")
