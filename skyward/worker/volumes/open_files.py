"""The files that the processes of this machine have open for writing."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["open_for_writing"]


def open_for_writing(roots: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield each file below one of the roots that a process writes to, by its path there, and the process in words."""
    folders = [str(root) for root in roots]
    for process in _numbers(Path("/proc")):
        for entry in _numbers(process / "fd"):
            with contextlib.suppress(OSError, ValueError):
                path = os.readlink(entry)
                root = next((each for each in folders if path.startswith(f"{each}/")), None)
                if root is None:
                    continue
                flags = (process / "fdinfo" / entry.name).read_text().splitlines()[1].split()[1]
                if int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
                    name = (process / "comm").read_text().strip()
                    yield path[len(root) + 1 :], f"open in process {process.name}, {name}"


def _numbers(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from [each for each in folder.iterdir() if each.name.isdecimal()]
