"""A process of a node, as the tests make it: the node's halves of plugins around what it is asked to run.

`python -m tests.train.member DESCRIPTOR` reads requests from a socket, and answers each.
"""

import importlib
import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any

from skyward.task.on_node import Meeting, OnNode, TaskInfo

__all__ = ["Answer", "Bind", "Half", "Run", "main"]

type Half = tuple[str, dict[str, Any]]
"""Path of the class of a node's half, and its settings."""


@dataclass(frozen=True, slots=True)
class Bind:
    """Request to bind a socket for the next collective at an address, which is answered by its port."""

    address: str


@dataclass(frozen=True, slots=True)
class Run:
    """Request to run a function as a task; one that is the first of a collective gets the socket."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    task: TaskInfo


@dataclass(frozen=True, slots=True)
class Answer:
    """Outcome of a task.

    Attributes:
        value: what it returned.
        error: type and text of what it raised; empty if nothing.
        follows_loss: True if one of the halves takes that for the loss of a peer.
        changed: names of environment variables that differ after the task.
    """

    value: Any = None
    error: str = ""
    follows_loss: bool = False
    changed: tuple[str, ...] = field(default=())


def main() -> None:
    """Answer requests until the other end is closed."""
    with Connection(int(sys.argv[1])) as requests:
        info, halves = requests.recv()
        made = [_half(path)(**settings) for path, settings in halves]
        for half in made:
            os.environ.update(half.environment(info, 0))
        with ExitStack() as process:
            for half in made:
                process.enter_context(half.around_process(info))
            requests.send("ready")
            _serve(requests, made)


def _half(path: str) -> type[Any]:
    module, _, name = path.partition(":")
    found: type[Any] = getattr(importlib.import_module(module), name)
    return found


def _serve(requests: Connection, halves: Sequence[OnNode]) -> None:
    listener: socket.socket | None = None
    while True:
        try:
            request = requests.recv()
        except EOFError:
            return
        match request:
            case Bind(address):
                listener = socket.socket()
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                listener.bind((address, 0))
                requests.send(listener.getsockname()[1])
            case Run():
                requests.send(_answer(request, halves, listener))
                listener = None


def _answer(request: Run, halves: Sequence[OnNode], listener: socket.socket | None) -> Answer:
    task = request.task
    if task.meeting is not None and listener is not None:
        task = replace(task, meeting=Meeting(task.meeting.address, task.meeting.port, listener))
    before = dict(os.environ)
    answer = Answer()
    try:
        with ExitStack() as contexts:
            for half in halves:
                contexts.enter_context(half.around_task(task))
            answer = Answer(request.function(*request.arguments))
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        answer = Answer(None, told, any(half.follows_loss(error) for half in halves))
    return replace(answer, changed=tuple(name for name, _ in {*before.items()} ^ {*os.environ.items()}))


if __name__ == "__main__":
    from tests.train.member import main as imported  # what is pickled names the module, not this script

    imported()
