"""A server that answers as an SSH server does in its first line, for machines that are data only."""

import re
import socketserver
import threading
from typing import Any, Self

__all__ = ["BannerServer"]


class BannerServer:
    """A server on loopback. Used with `with`.

    Attributes:
        marks: words that it announces itself by.
    """

    def __init__(self) -> None:
        self.marks: list[str] = []
        banner = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(" ".join(("SSH-2.0-OpenSSH_9.6", *banner.marks)).encode() + b"\r\n")

        self._server = socketserver.TCPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def port(self) -> int:
        """Its port."""
        return int(self._server.server_address[1])

    def set_up(self, script: str) -> None:
        """Announce what a start script sets, as if it had run."""
        found = re.search(r"VersionAddendum (skyward-\w+)", script)
        assert found is not None, "the start script sets no mark"
        self.marks.append(found[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
