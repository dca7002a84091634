"""The variable that hands a worker its secrets as it starts, and its removal, so that no child and no task finds it."""

import contextlib
import os

__all__ = ["PASS_VARIABLE", "take"]

PASS_VARIABLE = "SKYWARD_PASS"
"""The variable by which a worker gets its `wire.trust.Pass` as it starts."""


def take(name: str) -> str:
    """Remove a variable from the environment and return it; on Linux, also from what `/proc/PID/environ` shows.

    Raises:
        KeyError: there is none.
    """
    value = os.environ.pop(name)
    with contextlib.suppress(OSError, ValueError, IndexError):  # another system; it is gone for children all the same
        _erase(f"{name}={value}".encode())
    return value


def _erase(entry: bytes) -> None:
    """Overwrite an entry of the environment that this process was started with. Nothing refers to it any more."""
    with open("/proc/self/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    start, end = int(fields[47]), int(fields[48])  # env_start and env_end, fields 50 and 51 of proc(5)
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(start)
        at = memory.read(end - start).index(entry)
        memory.seek(start + at)
        memory.write(bytes(len(entry)))
