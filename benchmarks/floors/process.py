"""A process that serves a floor: prints the address that it listens on, and ends with its input."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Self

__all__ = ["Served"]


class Served:
    """A running `python -m benchmarks.floors.<module>`, for a `with` block; `address` is what it printed.

    Args:
        inside: prefix of a command that runs it on another machine; empty for this one.
    """

    def __init__(self, module: str, inside: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [*inside, sys.executable, "-m", f"benchmarks.floors.{module}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        if not self.address:
            raise RuntimeError(f"the floor {module} did not start")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
