"""A JSON server for fakes of clouds, with faults on request."""

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self
from urllib.parse import parse_qs, urlsplit

__all__ = ["Answer", "FakeServer", "Fault", "Moment", "Request"]

type Moment = Literal["before", "after"]


@dataclass(frozen=True, slots=True)
class Request:
    """A request. `query` has the last value of each parameter, `body` the decoded JSON or form."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: JSON, text if `body` is a string, or nothing if it is None."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Fault:
    """A mistake of the next requests of a kind.

    Attributes:
        method, path: the requests that it concerns; `path` is a regular expression.
        answer: the answer in place of the right one; None to break the connection.
        after: True to carry out the request first, so that only its answer is wrong.
        times: number of requests.
        skip: number of such requests that are answered rightly before.
        when: returns whether the body of a request is concerned.
    """

    method: str
    path: str
    answer: Answer | None = None
    after: bool = False
    times: int = 1
    skip: int = 0
    when: Callable[[Any], bool] = lambda body: True

    def takes(self, request: Request) -> bool:
        """Return whether the fault concerns a request, and count it."""
        if request.method != self.method or not re.fullmatch(self.path, request.path) or self.times == 0:
            return False
        if not self.when(request.body):
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.times -= 1
        return True


class FakeServer:
    """Base of the fakes: a server on loopback, and on the address of a network of machines. Used with `with`.

    Subclasses answer requests in `handle`, one at a time.

    Attributes:
        requests: all requests so far.
        faults: mistakes to make.
        on_request: called "before" and "after" a request is carried out.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.on_request: Callable[[Moment], None] = lambda moment: None
        self._lock = threading.RLock()
        self._server = _Server((host, 0), _handler(self._answer))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def url(self) -> str:
        """Its address, without a slash at the end."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def handle(self, request: Request) -> Answer:
        """Carry out a request."""
        raise NotImplementedError

    def fail(self, method: str, path: str, answer: Answer | None = None, **choices: Any) -> None:
        """Make a mistake at the next such request; see `Fault`."""
        with self._lock:
            self.faults.append(Fault(method, path, answer, **choices))

    def _answer(self, request: Request) -> Answer | None:
        with self._lock:
            self.requests.append(request)
            self.on_request("before")
            fault = next((each for each in self.faults if each.takes(request)), None)
            if fault is None or fault.after:
                answer = self.handle(request)
            self.on_request("after")
            return answer if fault is None else fault.answer

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Hold back all answers."""
        with self._lock:
            yield


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 128  # a pool may connect for all its machines at once

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing: clients may disconnect."""


def _handler(answer: Callable[[Request], Answer | None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 5  # an idle connection must not keep the server from stopping

        def _respond(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            data = self.rfile.read(length)
            if len(data) < length:  # the client was killed while it sent the request
                self.close_connection = True
                return
            parts = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, parts.path, query, headers, _decoded(data, headers.get("content-type", "")))
            found = answer(request)
            self.close_connection = True
            if found is None:
                with suppress(OSError):
                    self.connection.shutdown(socket.SHUT_RDWR)
                return
            text = isinstance(found.body, str)
            body = b"" if found.body is None else found.body.encode() if text else json.dumps(found.body).encode()
            self.send_response(found.status)
            kind = {"content-type": "text/plain" if text else "application/json"}
            for name, value in {**kind, **found.headers, "connection": "close"}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _respond

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    return Handler


def _decoded(data: bytes, kind: str) -> Any:
    if not data:
        return None
    if kind.startswith("application/x-www-form-urlencoded"):
        return {name: values[-1] for name, values in parse_qs(data.decode()).items()}
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace")
