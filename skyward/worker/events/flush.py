"""What a process of a node does last, so that nothing that was written there is lost with it."""

import atexit
import contextlib
import ctypes
import sys

__all__ = ["run_exit_functions"]


def run_exit_functions() -> None:
    """Run what tasks have registered with `atexit`, and write out what is still held back. For the main thread.

    A node ends without Python's own end, which would wait for the threads of tasks.
    """
    with contextlib.suppress(BaseException):  # one that exits, or was interrupted, is no reason to go back
        atexit._run_exitfuncs()
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)  # text that C code has printed, which a pipe does not get line by line
