"""Processes of nodes, and collectives of them."""

import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Final, Self

import pytest

from skyward.task.instance import InstanceInfo
from skyward.task.on_node import Meeting, TaskInfo
from tests.train.member import Answer, Bind, Half, Run

__all__ = ["Member", "begin", "collective", "members"]

_PATIENCE: Final = 180.0
"""Seconds for an answer: importing a framework takes 25 s where other tests run too."""

_numbers = itertools.count(1)


class Member:
    """A process with the node's halves of plugins."""

    def __init__(self, halves: Sequence[Half], position: int) -> None:
        mine, its = socket.socketpair()
        with its:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.train.member", str(its.fileno())],
                pass_fds=[its.fileno()],
                env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
            )
        self._requests = Connection(mine.detach())
        self._requests.send((InstanceInfo(node=position, total_nodes=2), halves))

    def ready(self) -> Self:
        """Wait until its frameworks are imported."""
        assert self.read() == "ready"
        return self

    def bind(self, address: str) -> int:
        """Return the port of a socket that it has bound for the next collective."""
        self._requests.send(Bind(address))
        port: int = self.read()
        return port

    def begin(self, function: Callable[..., Any], arguments: tuple[Any, ...], task: TaskInfo) -> None:
        """Begin a task."""
        self._requests.send(Run(function, arguments, task))

    def read(self) -> Any:
        """Return its next answer."""
        if not self._requests.poll(_PATIENCE):
            pytest.fail(f"no answer in {_PATIENCE:g} s")
        return self._requests.recv()

    def run(self, function: Callable[..., Any], *arguments: Any) -> Answer:
        """Run a task outside of a collective."""
        self.begin(function, arguments, TaskInfo(task=next(_numbers)))
        answer: Answer = self.read()
        return answer

    def end(self) -> None:
        """Kill it."""
        self._requests.close()
        self.process.kill()
        self.process.wait()


@contextmanager
def members(*halves: Half, count: int = 2) -> Iterator[list[Member]]:
    """Have processes whose frameworks are imported."""
    made: list[Member] = []
    try:
        made.extend(Member(halves, position) for position in range(count))
        yield [each.ready() for each in made]
    finally:
        for each in made:
            each.end()


def collective(
    group: Sequence[Member], function: Callable[..., Any], *arguments: Any, local_count: int = 1
) -> list[Answer]:
    """Run a task in a collective of all processes of a group; return their answers."""
    begin(group, function, *arguments, local_count=local_count)
    return [each.read() for each in group]


def begin(
    group: Sequence[Member],
    function: Callable[..., Any],
    *arguments: Any,
    address: str = "127.0.0.1",
    local_count: int = 1,
    count: int | None = None,
    within: float = 60.0,
) -> None:
    """Begin a task in a collective; with `count`, one of which only the first members come."""
    number = next(_numbers)
    meeting = Meeting(address, group[0].bind(address))
    for position, each in enumerate(group):
        task = TaskInfo(
            task=number,
            position=position,
            count=count or len(group),
            local_position=position % local_count,
            local_count=local_count,
            meeting=meeting,
            generation=f"tests/{number}/0",
            within=within,
        )
        each.begin(function, arguments, task)
