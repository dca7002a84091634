"""A plugin of the tests: members of a broadcast meet over sockets, without any framework."""

import importlib
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from skyward.specs.plugin import Plugin, Requires
from skyward.task.instance import InstanceInfo
from skyward.task.on_node import Meeting, OnNode, TaskInfo

__all__ = ["Ring", "RingOnNode", "exchange"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring(Plugin):
    """Let the members of a broadcast exchange values: `exchange(value)`.

    Attributes:
        procs_per_node, restarts, meeting_timeout: as those of `Requires`.
        fails: name of a hook that raises; empty for none.
        once: True to replace each process after a collective.
        together: False to let members of a broadcast run by themselves, on threads too.
    """

    name = "ring"
    on_node = "tests.local.ring_plugin:RingOnNode"

    procs_per_node: int = 1
    restarts: int = 0
    fails: str = ""
    once: bool = False
    together: bool = True
    meeting_timeout: float = 60.0

    def requires(self) -> Requires:
        """Require processes that work together."""
        return Requires(
            executor="process" if self.together else None,
            together=self.together,
            procs_per_node=self.procs_per_node,
            restarts=self.restarts,
            meeting_timeout=self.meeting_timeout,
        )

    def settings(self) -> Mapping[str, Any]:
        """Tell which hook fails."""
        return {"fails": self.fails, "once": self.once}


class RingOnNode(OnNode):
    """Connects the first member with each other one."""

    def __init__(self, fails: str, once: bool) -> None:
        self._fails = fails
        self.once = once  # type: ignore[misc]  # a setting here

    def _fail(self, hook: str) -> None:
        if self._fails == hook:
            raise ValueError(f"no {hook} today")
        if self._fails == f"abort {hook}":
            os.abort()
        if self._fails == f"import for {hook}":
            importlib.import_module("ring_framework")

    def environment(self, node: InstanceInfo, worker: int) -> Mapping[str, str]:
        """Name the process."""
        self._fail("environment")
        return {"RING_PROCESS": f"{node.node}.{worker}", "RING_FIXED": "plugin"}

    @contextmanager
    def around_process(self, node: InstanceInfo) -> Iterator[None]:
        """Say when the process starts and ends."""
        self._fail("process")
        os.environ["RING_STARTED"] = str(os.getpid())
        try:
            yield
        finally:
            print("the ring is left", flush=True)

    @contextmanager
    def around_task(self, task: TaskInfo) -> Iterator[None]:
        """Connect the members."""
        self._fail("task")
        members = _connected(task)
        _rings.append((task, members))
        try:
            yield
        finally:
            _rings.pop()
            for member in members:
                member.close()
        self._fail("end of a task")

    def follows_loss(self, error: BaseException) -> bool:
        """Return whether a connection was closed at the other end."""
        return isinstance(error, ConnectionError | EOFError)


_rings: list[tuple[TaskInfo, list[socket.socket]]] = []


def _connected(task: TaskInfo) -> list[socket.socket]:
    if task.meeting is None:
        return []
    if task.position:
        connected = _connect(task.meeting)
        connected.sendall(json.dumps([task.generation, task.position]).encode() + b"\n")
        return [connected]
    listener = task.meeting.listener
    assert listener is not None
    found: dict[int, socket.socket] = {}
    with listener:
        listener.listen(task.count)
        while len(found) < task.count - 1:
            connected, _ = listener.accept()
            generation, position = json.loads(_line(connected))
            assert generation == task.generation, "a stranger"
            found[position] = connected
    return [found[position] for position in sorted(found)]


def _connect(meeting: Meeting) -> socket.socket:
    """Return a connection to the first member, which may not listen yet."""
    while True:
        try:
            return socket.create_connection((meeting.address, meeting.port))
        except ConnectionRefusedError:
            time.sleep(0.01)


def _line(connected: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        if not (more := connected.recv(1)):
            raise EOFError("Connection closed by peer")
        line += more
    return line


def exchange(value: object) -> list[Any]:
    """Return the values of all members, in the order of their positions. Waits for all of them."""
    task, members = _rings[-1]
    if task.position:
        members[0].sendall(json.dumps(value).encode() + b"\n")
        found: list[Any] = json.loads(_line(members[0]))
        return found
    values = [value, *(json.loads(_line(member)) for member in members)]
    for member in members:
        member.sendall(json.dumps(values).encode() + b"\n")
    return values


def current() -> TaskInfo:
    """Return the running task, as the plugin sees it."""
    return _rings[-1][0]
