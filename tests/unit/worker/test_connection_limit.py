"""The watch over connections at the engine's ports survives failures."""

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
from skyward.worker.runtime import connection_limit

class Clock:
    checks = 0
    monotonic = staticmethod(time.monotonic)

    def sleep(self, seconds):
        time.sleep(0.001)
        self.checks += 1

clock = connection_limit.clock = Clock()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
connection_limit.ConnectionLimit(lambda: ("127.0.0.1:1",)).start()
(watcher,) = (each for each in threading.enumerate() if each.name == "skyward-connections")
try:
    while True:
        os.dup(0)
except OSError:
    pass
before = clock.checks
while watcher.is_alive() and clock.checks < before + 5:
    time.sleep(0.001)
print(watcher.is_alive(), flush=True)
os._exit(0)
"""


def test_watch_continues_after_a_shortage_of_descriptors() -> None:
    done = subprocess.run([sys.executable, "-c", NO_DESCRIPTOR], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "True\n", done.stderr


def test_connection_reset_during_a_check_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    resets = iter((True, False, False))

    def bytes_acked(_: socket.socket) -> int:
        if next(resets):
            raise OSError("Transport endpoint is not connected")
        return 0

    monkeypatch.setattr(connection_limit, "_bytes_acked", bytes_acked)
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


def test_failed_check_leaves_no_descriptor_open(monkeypatch: pytest.MonkeyPatch) -> None:
    results = iter((0, MemoryError()))

    def bytes_acked(_: socket.socket) -> int:
        result = next(results)
        if isinstance(result, BaseException):
            raise result
        return result

    monkeypatch.setattr(connection_limit, "_bytes_acked", bytes_acked)
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
