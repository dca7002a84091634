"""Watching the connections at the engine's ports goes on whatever fails meanwhile."""

import os
import socket
import subprocess
import sys

import pytest

from skyward.worker.runtime import connection_limit
from skyward.worker.runtime.connection_limit import ConnectionLimit

pytestmark = pytest.mark.unit

NO_DESCRIPTOR = """
import os, resource, threading, time
from skyward.worker import connection_limit

class Clock:
    looks = 0
    monotonic = staticmethod(time.monotonic)

    def sleep(self, seconds):
        time.sleep(0.001)
        self.looks += 1

clock = connection_limit.clock = Clock()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
connection_limit.ConnectionLimit(lambda: ("127.0.0.1:1",)).start()
(watching,) = (each for each in threading.enumerate() if each.name == "skyward-connections")
try:
    while True:
        os.dup(0)
except OSError:
    pass
before = clock.looks
while watching.is_alive() and clock.looks < before + 5:
    time.sleep(0.001)
print(watching.is_alive(), flush=True)
os._exit(0)
"""


def test_connections_are_watched_after_no_descriptor_was_free() -> None:
    done = subprocess.run([sys.executable, "-c", NO_DESCRIPTOR], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "True\n", done.stderr


def test_connection_reset_while_it_is_looked_at_does_not_end_the_look(monkeypatch: pytest.MonkeyPatch) -> None:
    resets = iter((True, False, False))

    def taken(_: socket.socket) -> int:
        if next(resets):
            raise OSError("Transport endpoint is not connected")
        return 0

    monkeypatch.setattr(connection_limit, "_taken", taken)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        both = [(socket.create_connection((host, port)), listener.accept()[0]) for _ in range(3)]
        try:
            before = len(os.listdir("/dev/fd"))
            assert ConnectionLimit(lambda: (f"{host}:{port}",), most=1).thin(0.0) == 1
            assert len(os.listdir("/dev/fd")) == before
        finally:
            for each in (one for pair in both for one in pair):
                each.close()


def test_look_that_fails_leaves_no_descriptor_open(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter((0, MemoryError()))

    def taken(_: socket.socket) -> int:
        said = next(looks)
        if isinstance(said, BaseException):
            raise said
        return said

    monkeypatch.setattr(connection_limit, "_taken", taken)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        both = [(socket.create_connection((host, port)), listener.accept()[0]) for _ in range(2)]
        try:
            before = len(os.listdir("/dev/fd"))
            with pytest.raises(MemoryError):
                ConnectionLimit(lambda: (f"{host}:{port}",)).thin(0.0)
            assert len(os.listdir("/dev/fd")) == before
        finally:
            for each in (one for pair in both for one in pair):
                each.close()
