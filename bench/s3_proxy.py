"""`S3Proxy`: a proxy on loopback that answers late, as S3 does, and logs each request; `rounds_of` counts the log.

The latency begins with the request and includes the time of the store behind, which is in the same machine. Connections
stay open. What a client waits for is then the latency of each round, and what the client itself computes.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit

__all__ = ["LoggedRequest", "S3Proxy", "Server", "rounds_of"]

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "server", "date"}


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """A request and its answer."""

    method: str
    path: str
    """Bucket and key, decoded; the bucket alone for a listing."""
    prefix: str | None
    """Prefix of a listing; None for other requests."""
    range: str
    """The header `Range`; empty where all bytes were asked for."""
    start: float
    """Seconds at which it was received."""
    end: float
    """Seconds just before the answer was sent: a request that depends on the answer starts later."""
    num_bytes: int
    """Of the answer's body."""

    @property
    def what(self) -> str:
        """What it asked for, on one line."""
        return f"{self.method} {self.path} {self.range}" if self.prefix is None else f"LIST {self.path} {self.prefix}"


def rounds_of(requests: Sequence[LoggedRequest]) -> list[list[LoggedRequest]]:
    """`requests` in the fewest rounds whose requests were all under way at one moment, in order.

    A request opens a new round if it started after an answer to a request of the round before. The number of rounds is
    thus the length of the longest chain of requests each of which started after the answer to the one before: no
    dependency can hide, and requests at once count once. A client that has too few connections at once waits for
    rounds too.

    >>> def request(start, end): return LoggedRequest("GET", "a", None, "", start, end, 0)
    >>> [len(found) for found in rounds_of([request(0, 3), request(1, 2), request(2.5, 4), request(2.6, 5)])]
    [2, 2]
    """
    rounds: list[list[LoggedRequest]] = []
    first_answer = float("-inf")
    for request in sorted(requests, key=lambda request: request.start):
        if request.start > first_answer:
            rounds.append([])
            first_answer = float("inf")
        rounds[-1].append(request)
        first_answer = min(first_answer, request.end)
    return rounds


class Server(ThreadingHTTPServer):
    """A server of many connections that begin at one moment: others wait a second to try again."""

    daemon_threads = True
    request_queue_size = 256


class S3Proxy:
    """A proxy before the store at `http://<host>:<port>`; a context manager."""

    def __init__(self, store: str, latency: float) -> None:
        self._requests: list[LoggedRequest] = []
        self._server = Server(("127.0.0.1", 0), _handler(store, latency, self._requests))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Its endpoint."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @contextmanager
    def recorded(self) -> Iterator[list[LoggedRequest]]:
        """The requests that are answered during the block."""
        first = len(self._requests)
        requests: list[LoggedRequest] = []
        yield requests
        requests += self._requests[first:]


def _handler(store: str, latency: float, requests: list[LoggedRequest]) -> type[BaseHTTPRequestHandler]:
    address = urlsplit(store).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = 1 << 16

        def setup(self) -> None:
            super().setup()
            self._store = http.client.HTTPConnection(address)

        def finish(self) -> None:
            self._store.close()
            super().finish()

        def answer(self) -> None:
            start = time.monotonic()
            self._store.request(self.command, self.path, headers=dict(self.headers))
            answer = self._store.getresponse()
            body = answer.read()
            time.sleep(max(0.0, start + latency - time.monotonic()))
            place, query = urlsplit(self.path), parse_qs(urlsplit(self.path).query)
            prefix = unquote(query.get("prefix", [""])[0]) if "list-type" in query else None
            key, span = unquote(place.path), self.headers.get("Range", "")
            self.send_response_only(answer.status, answer.reason)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP_BY_HOP:
                    self.send_header(name, value)
            size = answer.getheader("Content-Length") if self.command == "HEAD" else len(body)
            self.send_header("Content-Length", str(size))
            self.end_headers()
            requests.append(LoggedRequest(self.command, key, prefix, span, start, time.monotonic(), len(body)))
            self.wfile.write(body)

        do_GET = do_HEAD = answer  # noqa: N815 - the names that the server calls

    return Handler
