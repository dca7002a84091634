"""What machines without a way out fetch, served to them by this host, on their own bridge."""

import contextlib
import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.machines.machine import Network

__all__ = ["served"]


class _Quiet(SimpleHTTPRequestHandler):
    """Serves files, and says nothing of it."""

    def log_message(self, format: str, *args: object) -> None:
        """Not a word."""


class _Server(ThreadingHTTPServer):
    """Lets a client hang up when it has seen enough of a file."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Not a word."""


@contextlib.contextmanager
def served(network: Network, folder: Path) -> Iterator[str]:
    """The address at which the machines of a network find the files of a folder; it ends with "/"."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with _Server((network.address, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://{network.address}:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
