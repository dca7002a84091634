"""The environment variable that passes secrets to a starting worker, and its removal before tasks can read it."""

import contextlib
import os

__all__ = ["PASS_VARIABLE", "take"]

PASS_VARIABLE = "SKYWARD_PASS"
"""Environment variable with the worker's `wire.transport.trust.Pass`."""


def take(name: str) -> str:
    """Remove a variable from the environment and return it; on Linux, also from `/proc/PID/environ`.

    Raises:
        KeyError: the variable is not set.
    """
    value = os.environ.pop(name)
    with contextlib.suppress(OSError, ValueError, IndexError):  # not Linux; children do not inherit it in any case
        _erase(f"{name}={value}".encode())
    return value


def _erase(entry: bytes) -> None:
    """Overwrite an entry in this process's initial environment block, which is no longer used."""
    with open("/proc/self/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    start, end = int(fields[47]), int(fields[48])  # env_start and env_end, fields 50 and 51 of proc(5)
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(start)
        at = memory.read(end - start).index(entry)
        memory.seek(start + at)
        memory.write(bytes(len(entry)))
