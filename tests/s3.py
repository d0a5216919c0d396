"""A stand-in for S3 on loopback: moto's server, with every request counted, and faults that a test asks for.

moto 5 honours `If-None-Match` and `If-Match`. Children of a test reach the server by its URL too.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
from moto.core import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import make_server

__all__ = ["Bucket", "Request", "S3Server"]

KEYS = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "aws_region": "us-east-1"}


@dataclass(frozen=True)
class Request:
    """What came in over the network."""

    method: str
    path: str
    query: str
    num_bytes: int
    """Of the answer's body."""


Fault = Callable[[str, str, str], str | None]
"""From method, path and query: None, `refuse` (503, nothing done), `deny` (403), `lose` (done, and no answer), `break`
(done, and half of the answer)."""


class S3Server:
    """moto in a thread; `requests` lists what came in, `fault` makes it misbehave."""

    def __init__(self) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=None)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self._lock = threading.Lock()
        self._conditional = threading.Lock()
        """moto looks and writes in two steps: two writers that create an object at once may both get a success."""
        self.requests: list[Request] = []
        self.fault: Fault | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def options(self) -> dict[str, str]:
        """`storage_options` for it."""
        return {**KEYS, "aws_endpoint": self.url, "aws_allow_http": "true"}

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def client(self) -> Any:
        """Amazon's own client."""
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            region_name="us-east-1",
        )

    def bucket(self, name: str) -> Bucket:
        self.client().create_bucket(Bucket=name)
        return Bucket(self, name)

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        method, path, query = environ["REQUEST_METHOD"], environ["PATH_INFO"], environ["QUERY_STRING"]
        fault = self.fault(method, path, query) if self.fault else None
        if fault in ("refuse", "deny"):
            self._note(method, path, query, 0)
            code = {"refuse": "SlowDown", "deny": "AccessDenied"}[fault]
            status = {"refuse": "503 Slow Down", "deny": "403 Forbidden"}[fault]
            start_response(status, [("Content-Type", "application/xml")])
            return [f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()]
        is_conditional = {"HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"} & environ.keys()
        with self._conditional if is_conditional else nullcontext():
            body = b"".join(self._app(environ, start_response))
        self._note(method, path, query, len(body))
        if fault == "lose":
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return _half_of(body, environ["werkzeug.socket"]) if fault == "break" else [body]

    def _note(self, method: str, path: str, query: str, num_bytes: int) -> None:
        with self._lock:
            self.requests.append(Request(method, path, query, num_bytes))

    @contextmanager
    def recorded(self) -> Iterator[list[Request]]:
        """The requests that come in during the block."""
        first = len(self.requests)
        actual: list[Request] = []
        yield actual
        actual += self.requests[first:]

    @contextmanager
    def misbehaving(self, fault: Fault) -> Iterator[None]:
        self.fault = fault
        try:
            yield
        finally:
            self.fault = None

    @contextmanager
    def failing(self, *faults: str, at: str = "") -> Iterator[list[str]]:
        """The first requests fail so whose method, path and query match `at`; gives the faults that are left."""
        left = list(faults)

        def fault(method: str, path: str, query: str) -> str | None:
            return left.pop(0) if left and re.search(at, f"{method} {path}?{query}") else None

        with self.misbehaving(fault):
            yield left


def _half_of(body: bytes, connection: socket.socket) -> Iterator[bytes]:
    yield body[: len(body) // 2]
    connection.shutdown(socket.SHUT_RDWR)


@dataclass
class Bucket:
    """One bucket of the server, empty at first."""

    server: S3Server
    name: str
    client: Any = field(init=False)

    def __post_init__(self) -> None:
        self.client = self.server.client()

    @property
    def options(self) -> dict[str, str]:
        return self.server.options

    def url(self, key: str = "") -> str:
        return f"s3://{self.name}/{key}" if key else f"s3://{self.name}"

    def put(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=key, Body=data)

    def put_at_once(self, key: str, data: bytes) -> None:
        """As `put`, but straight into moto's memory: for thousands of objects."""
        put_object = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(self.name, key, data)
        assert put_object.etag  # moto computes it at the first question, and two threads at once get a wrong one

    def get(self, key: str) -> bytes:
        return self.client.get_object(Bucket=self.name, Key=key)["Body"].read()

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=key)

    def keys(self, prefix: str = "") -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        return [row["Key"] for page in pages for row in page.get("Contents", [])]

    def unfinished(self) -> list[str]:
        """Keys of uploads that were neither completed nor aborted."""
        return [row["Key"] for row in self.client.list_multipart_uploads(Bucket=self.name).get("Uploads", [])]

    def upload(self, folder: Path, prefix: str) -> str:
        """Copy the files below `folder`, and give the URL of the copy."""
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                self.put(f"{prefix}/{file.relative_to(folder).as_posix()}", file.read_bytes())
        return self.url(prefix)
