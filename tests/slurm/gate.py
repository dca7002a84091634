"""A gate that the commands of a client pass one at a time, before and after they are carried out."""

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from sys import executable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fakes.server import Moment

__all__ = ["Gate", "gate"]

_COMMANDS = ("sbatch", "scancel", "scontrol", "squeue")

_GATED = """#!{python} -IS
import os, socket, subprocess, sys
client = os.getppid()
with socket.socket(socket.AF_UNIX) as gate:
    gate.connect({address!r})
    gate.recv(1)
    if os.getppid() != client:  # it was killed
        sys.exit(1)
    status = subprocess.call([{command!r}, *sys.argv[1:]])
    gate.sendall(b"+")
    gate.recv(1)
sys.exit(status)
"""


class Gate:
    """The gate of a client. Commands of a client that was killed do nothing.

    Attributes:
        commands: folder with the commands, to put on the client's PATH.
        on_request: called before and after each command.
        passing: held while a command is carried out.
    """

    def __init__(self, commands: Path) -> None:
        self.commands = commands
        self.on_request: Callable[[Moment], None] = lambda moment: None
        self.passing = threading.Lock()


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = False


@contextmanager
def gate(folder: Path) -> Iterator[Gate]:
    """Yield a gate whose commands are in a folder."""
    one, address = Gate(folder), str(folder / "gate")

    class Passing(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with one.passing:
                one.on_request("before")
                self.request.sendall(b"+")
                if self.request.recv(1):
                    one.on_request("after")
                    self.request.sendall(b"+")

    folder.mkdir()
    for name in _COMMANDS:
        command = folder / name
        command.write_text(_GATED.format(python=executable, address=address, command=which(name)))
        command.chmod(0o755)
    with _Server(address, Passing) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        try:
            yield one
        finally:
            server.shutdown()
            serving.join()
