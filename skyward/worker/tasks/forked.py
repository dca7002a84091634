"""Processes that a task forks: they may compute, print and exit, but never report results for the task or its node.

A process made by `os.fork()` inherits the memory of its parent: the locks, the connection to the client, and the
interpreter's stack, on which the task is about to return its result. So in a forked process

- output goes to descriptors 1 and 2, which the parent reads;
- leaving the task, by a return, an exception, `sys.exit` or a `yield`, ends the process, as it would end a script;
- operations that only the parent can perform (inputs of the task, collections) raise an error.
"""

import os
import sys
import traceback
from typing import NoReturn

from skyward.errors import SkywardError
from skyward.wire.protocol.messages import Output, WorkerEvent

__all__ = ["ForkedProcessError", "is_forked", "leave", "leave_if_forked", "write"]

_HERE = os.path.dirname(__file__)
_forked = False


class ForkedProcessError(SkywardError, RuntimeError):
    """Raised where a process that a task has forked uses something that only the task itself has."""

    def __init__(self, what: str) -> None:
        super().__init__(f"A process that a task has forked cannot use {what}; use it in the task, and pass values on.")


def _mark_forked() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_mark_forked)


def is_forked() -> bool:
    """Return whether this process was forked from one that runs tasks."""
    return _forked


def leave(error: BaseException | None = None) -> NoReturn:
    """End a forked process that leaves its task, with the exit status that a script would have."""
    status = 0
    match error:
        case None | SystemExit(code=None):
            pass
        case SystemExit(code=int() as code):
            status = code & 0xFF
        case SystemExit(code=words):
            status = 1
            write(Output(0, "stderr", f"{words}\n"))
        case _:
            status = 1
            trace = error.__traceback__
            while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_HERE):
                trace = trace.tb_next
            write(Output(0, "stderr", "".join(traceback.format_exception(error.with_traceback(trace)))))
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(status)


def leave_if_forked(error: BaseException | None = None) -> None:
    """End this process if it was forked: it has reached a point where the task would send something to the client.

    Args:
        error: the exception that ended its part of the task.
    """
    if _forked:
        leave(error)


def write(event: WorkerEvent) -> None:
    """Write output of a forked process to its descriptors. Drop other events: only the task may send them."""
    if isinstance(event, Output):
        data = memoryview(event.text.encode("utf-8", "backslashreplace"))
        while data:
            data = data[os.write(1 if event.stream == "stdout" else 2, data) :]
