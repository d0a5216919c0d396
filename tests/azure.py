"""A stand-in for Azure on loopback: azurite, a program for Node, with every request noted.

`python -m tests.azure` installs azurite by npm into the environment of this Python; `make test-deep` runs it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Self
from uuid import uuid4

import pytest

__all__ = ["AzureServer", "Container"]

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own account: https://learn.microsoft.com/azure/storage/common/storage-connect-azurite."""
PACKAGE = "azurite@^3.35"
PROGRAM = Path(sys.prefix) / "node_modules/azurite/dist/src/blob/main.js"
MISSING = (
    "the tests of Azure need Node, npm and azurite, and fail without them: ask root for npm "
    "(Debian and Ubuntu: apt-get install npm), then python -m tests.azure"
)


def install() -> None:
    """Install azurite unless it is there."""
    if PROGRAM.exists():
        return
    if shutil.which("npm") is None:
        sys.exit(MISSING)
    options = ["--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    subprocess.run(["npm", "install", f"--prefix={sys.prefix}", *options, PACKAGE], check=True)


class AzureServer:
    """azurite as a child of this process; `requests` lists `METHOD path?query` as they are answered."""

    def __init__(self, folder: Path) -> None:
        node = shutil.which("node")
        if node is None or not PROGRAM.exists():
            pytest.fail(MISSING, pytrace=False)
        options = ["--blobHost=127.0.0.1", "--blobPort=0", "--skipApiVersionCheck", "--disableTelemetry"]
        self._process = subprocess.Popen(
            [node, PROGRAM, *options, f"--location={folder}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.requests: list[str] = []
        self._has_answered = threading.Condition()
        lines = iter(self._process.stdout)
        self.url = next(line.split()[-1] for line in lines if "successfully listens on" in line)
        self._thread = threading.Thread(target=self._note, args=(lines,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()
        self._process.stdout.close()

    def _note(self, lines: Iterator[str]) -> None:
        for line in lines:
            if '"' in line:  # of the log of accesses
                with self._has_answered:
                    self.requests.append(line.split('"')[1].removesuffix(" HTTP/1.1"))
                    self._has_answered.notify_all()

    def wait_for(self, num_requests: int, method: str) -> None:
        """Return when so many requests of `method` were answered, from the first on."""
        with self._has_answered:
            assert self._has_answered.wait_for(lambda: self.num_requests(method) >= num_requests, timeout=60)

    def num_requests(self, method: str) -> int:
        return sum(request.startswith(method) for request in self.requests)

    @contextmanager
    def recorded(self) -> Iterator[list[str]]:
        """The requests that come in during the block. Two of the server's own fence it: its log comes later."""
        first = self._fenced()
        during: list[str] = []
        yield during
        during += self.requests[first : self._fenced() - 1]

    def _fenced(self) -> int:
        """The number of requests in the log, when the newest is in it."""
        name = f"fence-{uuid4()}"
        self.create_container(name)
        with self._has_answered:
            assert self._has_answered.wait_for(lambda: any(name in line for line in self.requests), timeout=60)
            return len(self.requests)

    def create_container(self, name: str) -> Container:
        """By Azure's own protocol; obstore makes no containers."""
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06", "Content-Length": "0"}
        signed = [f"{header}:{headers[header]}" for header in ("x-ms-date", "x-ms-version")]
        text = "\n".join(["PUT", *[""] * 11, *signed, f"/{ACCOUNT}/{ACCOUNT}/{name}", "restype:container"])
        signature = hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}"
        url = f"{self.url}/{ACCOUNT}/{name}?restype=container"
        with urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers)) as answer:
            assert answer.status == 201
        return Container(self, name)


class Container:
    """One container of the server, empty at first."""

    def __init__(self, server: AzureServer, name: str) -> None:
        from obstore.store import AzureStore

        self.server = server
        self.name = name
        self.options = {
            "azure_storage_account_name": ACCOUNT,
            "azure_storage_account_key": KEY,
            "azure_storage_endpoint": f"{server.url}/{ACCOUNT}",
            "azure_allow_http": "true",
        }
        config = {key: value for key, value in self.options.items() if key != "azure_allow_http"}
        self._store = AzureStore(name, config=config, client_options={"allow_http": True})

    def url(self, key: str) -> str:
        return f"az://{self.name}/{key}"

    def put(self, key: str, data: bytes) -> None:
        self._store.put(key, data)

    def delete(self, key: str) -> None:
        self._store.delete(key)

    def keys(self, prefix: str = "") -> list[str]:
        keys = (meta["path"] for chunk in self._store.list() for meta in chunk)
        return sorted(key for key in keys if key.startswith(prefix))

    def upload(self, folder: Path, prefix: str) -> str:
        """Copy the files below `folder`, and give the URL of the copy."""
        for file in filter(Path.is_file, folder.rglob("*")):
            self.put(f"{prefix}/{file.relative_to(folder).as_posix()}", file.read_bytes())
        return self.url(prefix)


if __name__ == "__main__":
    install()
