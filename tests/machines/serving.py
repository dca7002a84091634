"""File server on this host, on the machines' bridge, for machines without internet."""

import contextlib
import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.machines.machine import Network

__all__ = ["served", "served_at"]


class _Quiet(SimpleHTTPRequestHandler):
    """File server without a log."""

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    """Server that ignores clients which disconnect during a file."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing."""


@contextlib.contextmanager
def served(network: Network, folder: Path) -> Iterator[str]:
    """Serve a folder to the machines of a network, at the address that is yielded, which ends with "/"."""
    with served_at(network.address, folder) as address:
        yield address


@contextlib.contextmanager
def served_at(host: str, folder: Path) -> Iterator[str]:
    """Serve a folder at an address of this host."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with _Server((host, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://{host}:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
