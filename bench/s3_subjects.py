"""Readers of a lake in a bucket: zonebloom, pyarrow, Polars, DuckDB and Lance, each in a process of its own.

A subject is opened with a `Lake`. Its `rows` gives the rows of keys as dictionaries.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import zonebloom as zb

__all__ = [
    "HTTPFS",
    "Client",
    "DuckDB",
    "Lake",
    "Lance",
    "Polars",
    "PyArrow",
    "Subject",
    "Zonebloom",
    "build",
    "httpfs_in",
]

HTTPFS = "duckdb-extension-httpfs==1.5.5"
"""A wheel of DuckDB's extension, which DuckDB's own wheel does not have; it installs the DuckDB that loads it."""


@dataclass(frozen=True)
class Lake:
    """The files of a lake in a bucket."""

    bucket: str
    name: str
    """Prefix of the files."""
    options: Mapping[str, str]
    """`storage_options` with the endpoint; Polars and Lance take the same names."""
    index: str | None = None
    """URL of the index, if it is not beside the lake."""

    @property
    def url(self) -> str:
        """Of the folder."""
        return f"s3://{self.bucket}/{self.name}"


def build(lake: Lake, kind: str) -> None:
    """Build an index of a kind, in a process of its own: the server has the other core."""
    process = _SPAWNING.Process(target=_build, args=(lake, kind))
    process.start()
    process.join()
    assert process.exitcode == 0


def _build(lake: Lake, kind: str) -> None:
    zb.build_index(lake.url, "key", index=lake.index, storage_options=lake.options, kind=kind)


class Zonebloom:
    """The index of a lake."""

    def __init__(self, lake: Lake) -> None:
        self.index = zb.open_index(lake.index or lake.url, storage_options=lake.options)

    def rows(self, keys: Sequence[int]) -> list[dict[str, Any]]:
        """The rows of keys."""
        return self.index.to_table(**self._condition(keys)).to_pylist()

    def ranges(self, keys: Sequence[int]) -> list[tuple[str, int, int]]:
        """The row ranges that may hold keys."""
        return list(self.index.search(**self._condition(keys)))

    def _condition(self, keys: Sequence[int]) -> dict[str, Any]:
        return {"predicate": f"key = {keys[0]}"} if len(keys) == 1 else {"column": "key", "values": keys}


class PyArrow:
    """pyarrow's data set, whose files are found once."""

    def __init__(self, lake: Lake) -> None:
        import pyarrow.dataset as ds
        import pyarrow.fs

        bucket = pyarrow.fs.S3FileSystem(
            access_key=lake.options["aws_access_key_id"],
            secret_key=lake.options["aws_secret_access_key"],
            region=lake.options["aws_region"],
            endpoint_override=lake.options["aws_endpoint"],
        )
        self.dataset = ds.dataset(f"{lake.bucket}/{lake.name}", filesystem=bucket, format="parquet")
        self.key = ds.field("key")

    def rows(self, keys: Sequence[int]) -> list[dict[str, Any]]:
        """The rows of keys."""
        return self.dataset.to_table(filter=self.key.isin(keys)).to_pylist()


class Polars:
    """A lazy frame over the files."""

    def __init__(self, lake: Lake) -> None:
        import polars as pl

        self.frame = pl.scan_parquet(f"{lake.url}/*.parquet", storage_options=dict(lake.options))
        self.key = pl.col("key")

    def rows(self, keys: Sequence[int]) -> list[dict[str, Any]]:
        """The rows of keys."""
        return self.frame.filter(self.key.is_in(keys)).collect().to_dicts()


class DuckDB:
    """A connection with `httpfs`, which keeps blocks that it read in memory."""

    def __init__(self, lake: Lake) -> None:
        import duckdb

        [extension] = Path(str(files("duckdb_extension_httpfs"))).rglob("httpfs.duckdb_extension")
        access = {
            "KEY_ID": lake.options["aws_access_key_id"],
            "SECRET": lake.options["aws_secret_access_key"],
            "REGION": lake.options["aws_region"],
            "ENDPOINT": lake.options["aws_endpoint"].removeprefix("http://"),
            "URL_STYLE": "path",
        }
        secret = ", ".join(f"{name} '{value}'" for name, value in access.items())
        self.connection = duckdb.connect()
        self.connection.execute(f"LOAD '{extension}'; CREATE SECRET (TYPE s3, USE_SSL false, {secret})")
        self.files = f"{lake.url}/*.parquet"

    def rows(self, keys: Sequence[int]) -> list[dict[str, Any]]:
        """The rows of keys."""
        query = f"SELECT * FROM read_parquet('{self.files}') WHERE key IN ({', '.join(map(str, keys))})"
        return self.connection.execute(query).to_arrow_table().to_pylist()


class Lance:
    """The rows of the lake as a Lance table, with an index of Lance's own."""

    def __init__(self, lake: Lake) -> None:
        import lance

        self.dataset = lance.dataset(f"{lake.url}.lance", storage_options=dict(lake.options))

    def rows(self, keys: Sequence[int]) -> list[dict[str, Any]]:
        """The rows of keys."""
        return self.dataset.to_table(filter=f"key IN ({', '.join(map(str, keys))})").to_pylist()


def httpfs_in(folder: Path) -> Path | None:
    """`folder` with DuckDB and its `httpfs`; None if they cannot be installed."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), HTTPFS]
    return folder if subprocess.run(command, check=False, capture_output=True).returncode == 0 else None


# --- processes --------------------------------------------------------------------------------------------------------

_SPAWNING = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Subject:
    """A reader of a lake."""

    name: str
    opener: Callable[[Lake], Any]
    lake: Lake
    modules: Path | None = None
    """Folder of Python modules that its process finds before all others."""

    @contextmanager
    def client(self) -> Iterator[Client]:
        """A new process for it."""
        client = Client(self)
        try:
            yield client
        finally:
            client.close()


class Client:
    """A process that opens a subject with the first question, and times each question."""

    def __init__(self, subject: Subject) -> None:
        self._pipe, other = _SPAWNING.Pipe()
        self._process = _SPAWNING.Process(target=_serve, args=(other, subject), daemon=True)
        self._process.start()
        other.close()

    def ask(self, method: str, keys: Sequence[int]) -> tuple[float, Any]:
        """Seconds and the answer of a method of the subject; the first seconds include the opening."""
        self._pipe.send((method, keys))
        seconds, answer = self._pipe.recv()
        return seconds, answer

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join()


def _serve(pipe: Any, subject: Subject) -> None:
    if subject.modules is not None:
        sys.path.insert(0, str(subject.modules))
    opened = None
    while True:
        try:
            method, keys = pipe.recv()
        except EOFError:
            return
        began = time.perf_counter()
        opened = opened or subject.opener(subject.lake)
        answer = getattr(opened, method)(keys)
        pipe.send((time.perf_counter() - began, answer))
