"""A proxy in front of an object store that makes mistakes: busy, cut off, held, or of another version."""

import re
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import urlsplit

__all__ = ["FaultyProxy", "Mistake", "xml_error"]

_ON_THE_WAY = frozenset({"transfer-encoding", "connection", "content-length"})


def xml_error(code: str, more: str = "") -> bytes:
    """Return the body of an error of a store."""
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>text</Message>{more}</Error>'.encode()


@dataclass
class Mistake:
    """A mistake about requests of a kind.

    Attributes:
        method, path: the requests that it concerns; `path` is a regular expression.
        times: number of requests.
        status, body: the reply in place of the right one; none if `status` is 0.
        cut_after: bytes of the right reply after which the connection is cut.
        hold_after: bytes of the right reply after which it is held until `release` is set.
        etag: ETag in place of the right one.
        held: set once a reply is held.
        release: lets held replies go on.
    """

    method: str
    path: str = ""
    times: int = 1_000_000
    status: int = 0
    body: bytes = b""
    cut_after: int | None = None
    hold_after: int | None = None
    etag: str = ""
    held: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)


class FaultyProxy:
    """The proxy, in a `with` block.

    Attributes:
        url: its endpoint.
        mistakes: those to come.
        requests: those that have come: method, path with query, and headers by name in lower case.
    """

    def __init__(self, upstream: str) -> None:
        self.mistakes: list[Mistake] = []
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self._upstream = urlsplit(upstream).netloc
        self._lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

            def _relay(self) -> None:
                with suppress(OSError):
                    proxy._relay(self)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _relay

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.block_on_close = True
        self._server.daemon_threads = False
        self._sockets: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for mistake in self.mistakes:
            mistake.release.set()
        self._server.shutdown()
        with self._lock:
            for each in self._sockets:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join()

    def add(self, mistake: Mistake) -> Mistake:
        """Add a mistake, and return it."""
        with self._lock:
            self.mistakes.append(mistake)
        return mistake

    def count(self, method: str, path: str = "") -> int:
        """Return the number of requests of a kind."""
        with self._lock:
            return sum(each == method and re.search(path, where) is not None for each, where, _ in self.requests)

    def _relay(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("content-length") or 0)
        body = handler.rfile.read(length)
        if len(body) < length:  # the client is gone
            handler.close_connection = True
            return
        headers = {name.lower(): value for name, value in handler.headers.items()}
        with self._lock:
            self._sockets.add(handler.connection)
            self.requests.append((handler.command, handler.path, headers))
            mistake = next((each for each in self.mistakes if _concerns(each, handler)), None)
            if mistake is not None:
                mistake.times -= 1
        if mistake is not None and mistake.status:
            handler.send_response(mistake.status)
            handler.send_header("content-length", str(len(mistake.body)))
            handler.end_headers()
            if handler.command != "HEAD":
                handler.wfile.write(mistake.body)
            return
        connection = HTTPConnection(self._upstream, timeout=30)
        try:
            connection.request(handler.command, handler.path, body or None, headers)
            response = connection.getresponse()
            content = response.read()
            told = response.getheader("content-length") or "0"
            handler.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in _ON_THE_WAY:
                    wrong = mistake is not None and mistake.etag and name.lower() == "etag"
                    handler.send_header(name, mistake.etag if wrong and mistake is not None else value)
        finally:
            connection.close()
        handler.send_header("content-length", told if handler.command == "HEAD" else str(len(content)))
        handler.end_headers()
        if handler.command == "HEAD":
            return
        stop = None if mistake is None else mistake.cut_after if mistake.hold_after is None else mistake.hold_after
        if mistake is None or stop is None:
            handler.wfile.write(content)
            return
        handler.wfile.write(content[:stop])
        if mistake.hold_after is not None:
            mistake.held.set()
            mistake.release.wait(60)
            handler.wfile.write(content[stop:])
            return
        handler.close_connection = True
        handler.connection.shutdown(socket.SHUT_RDWR)


def _concerns(mistake: Mistake, handler: BaseHTTPRequestHandler) -> bool:
    is_of_kind = mistake.method in ("", handler.command) and re.search(mistake.path, handler.path) is not None
    return is_of_kind and mistake.times > 0
