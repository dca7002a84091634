"""Processes that were recorded in a file by their number and their start, since numbers are reused."""

import contextlib
from pathlib import Path

__all__ = ["recorded_process"]

_STATE, _STARTED = 0, 19
"""Places in /proc/PID/stat, after the name of the program."""


def recorded_process(file: Path, *, zombies: bool = False) -> int | None:
    """Return the number of a recorded process that still runs on this computer; None elsewhere than on Linux.

    Args:
        file: has its number, the id of the boot, and its start in clock ticks since then, as the script that starts
            workers writes it (`skyward.link.ssh.worker`).
        zombies: whether to return one that has ended, but was not waited for: others of its group may run.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended, or is starting
        number, started = file.read_text().strip().split(" ", 1)
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        fields = Path(f"/proc/{int(number)}/stat").read_text().rpartition(")")[2].split()
        if started == f"{boot} {fields[_STARTED]}" and (zombies or fields[_STATE] != "Z"):
            return int(number)
    return None
