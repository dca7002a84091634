"""A real kernel, driven as by a front end."""

import queue
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from jupyter_client.manager import KernelManager

__all__ = ["Cell", "Kernel", "plain_kernel", "started"]

LIMIT = 30.0
"""Timeout of a cell in seconds."""

PREPARE = "%load_ext skyward\n%config SkyMagics.footer = False\n%config SkyMagics.interrupt_grace = 20"
"""First cell of a kernel."""


@dataclass
class Cell:
    """The outputs of a cell.

    Attributes:
        outputs: its messages, in the order of arrival.
    """

    outputs: list[dict[str, Any]] = field(default_factory=list)

    def text(self, stream: str = "stdout") -> str:
        """Return the text that it wrote to a stream."""
        return "".join(out["text"] for out in self.outputs if out["type"] == "stream" and out["name"] == stream)

    @property
    def data(self) -> list[str]:
        """The plain text of its displays and its result."""
        kinds = ("display_data", "execute_result")
        return [out["data"]["text/plain"] for out in self.outputs if out["type"] in kinds]

    @property
    def types(self) -> list[str]:
        """The types of its messages."""
        return [out["type"] for out in self.outputs]

    @property
    def error(self) -> tuple[str, list[str]]:
        """The name of its error, and the shown lines."""
        (error,) = (out for out in self.outputs if out["type"] == "error")
        return error["ename"], error["traceback"]


class Kernel:
    """A running kernel."""

    def __init__(self, manager: Any, client: Any) -> None:
        self._manager = manager
        self._client = client
        self.cells: dict[str, Cell] = {}
        self.displays: dict[str, str] = {}
        """The plain text that each display shows by its identifier, whichever cell updated it."""

    def __call__(
        self, source: str, *, interrupt_when: Callable[[Cell], object] | Iterable[Callable[[Cell], object]] = ()
    ) -> Cell:
        """Run a cell to its end; interrupt it when `interrupt_when` is true, or each of several in turn."""
        started = time.monotonic()
        # An error must not abort the next cell, which may arrive before the kernel has emptied its queue.
        request = self._client.execute(source, stop_on_error=False)
        cell = self.cells[request] = Cell()
        conditions = [interrupt_when] if callable(interrupt_when) else list(interrupt_when)
        while True:
            assert time.monotonic() - started < LIMIT, f"after {LIMIT} s: {cell}"
            if conditions and conditions[0](cell):
                del conditions[0]
                self._manager.interrupt_kernel()
            if self._next(request) == "idle":
                break
        return cell

    def answering(self, source: str, *answers: str) -> str:
        """Run a cell that asks for input, as a debugger does; return its text and answer its questions."""
        left, written = list(answers), list[str]()

        def take(message: Any) -> None:
            written.append(message["content"].get("text", ""))

        def answer(message: Any) -> None:
            line = left.pop(0)
            written.append(f"{message['content']['prompt']}{line}\n")
            self._client.input(line)

        self._client.execute_interactive(
            source, timeout=LIMIT, allow_stdin=True, stop_on_error=False, output_hook=take, stdin_hook=answer
        )
        assert not left
        return "".join(written)

    def complete(self, word: str) -> None:
        """Ask for completions of a word, as a front end does between cells."""
        self._client.complete(word, reply=True, timeout=LIMIT)

    def listen(self) -> None:
        """Take one message that arrives between cells, if there is any."""
        self._next("")

    def kill_and_restart(self) -> None:
        """Kill the process with SIGKILL and start it again with the extension loaded."""
        self._manager.restart_kernel(now=True)
        self._client.wait_for_ready(timeout=LIMIT)
        self(PREPARE)

    def _next(self, request: str) -> str:
        """Take one message and file it under its cell; return "idle" if it ends `request`."""
        try:
            message = self._client.get_iopub_msg(timeout=0.02)
        except queue.Empty:
            return ""
        parent, kind, content = message["parent_header"].get("msg_id"), message["msg_type"], message["content"]
        if kind == "status":
            return str(content["execution_state"]) if parent == request else ""
        if display := content.get("transient", {}).get("display_id"):
            self.displays[display] = content["data"].get("text/plain", "")
        if kind != "execute_input" and parent in self.cells:
            self.cells[parent].outputs.append({"type": kind, **content})
        return ""


@contextmanager
def started() -> Iterator[Kernel]:
    """A kernel with the extension loaded; it is shut down without remains."""
    with plain_kernel() as (manager, client):
        kernel = Kernel(manager, client)
        kernel(PREPARE)
        yield kernel


@contextmanager
def plain_kernel() -> Iterator[tuple[Any, Any]]:
    """The manager and a client of a kernel, which is shut down without remains."""
    manager: Any = KernelManager()
    manager.start_kernel()
    client = manager.blocking_client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=LIMIT)
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
        client.context.destroy()
        manager.context.destroy()
