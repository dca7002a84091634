"""Flush of a node's process before it exits, so that no output is lost."""

import atexit
import contextlib
import ctypes
import sys

__all__ = ["run_exit_functions"]


def run_exit_functions() -> None:
    """Run the `atexit` functions of tasks, and flush the standard streams. For the main thread.

    A node exits without Python's finalization, which would wait for the threads of tasks.
    """
    with contextlib.suppress(BaseException):  # an interrupt meanwhile; `atexit` prints the errors of the functions
        atexit._run_exitfuncs()
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)  # output of C code, which is not line-buffered in a pipe
