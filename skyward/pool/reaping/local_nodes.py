"""Nodes that are processes on this computer, of which one can see whether they still run."""

import contextlib
import socket
from pathlib import Path

from skyward.journal import MachineEntry, PoolEntry
from skyward.providers.protocol import ExecAccess, LocalAccess

__all__ = ["has_ended"]

_SHARES_FILES = "SKYWARD_SHARED_FILES=1"
"""Word in the command that enters a machine which is a process on this computer."""


def has_ended(entry: PoolEntry, machine: MachineEntry, *, owned: bool) -> bool:
    """Return whether a machine is known to be gone: it was a process here. `owned`: a process owns its pool.

    A machine elsewhere is not known to be gone.
    """
    match machine.instance.access:
        case LocalAccess():
            return not owned  # it ends with the process that started it
        case ExecAccess(command=command, directory=str(directory)) if _SHARES_FILES in command:
            if entry.host != socket.gethostname() or (owned and machine.worker is None):  # it may be starting
                return False
            return not any(map(_runs, Path(directory).glob("nodes/*/pid")))
        case _:
            return False


def _runs(file: Path) -> bool:
    """Return whether the process of a file with its number and its start time runs."""
    with contextlib.suppress(OSError, ValueError):
        number, started = file.read_text().strip().split(" ", 1)
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        since = Path(f"/proc/{int(number)}/stat").read_text().rpartition(")")[2].split()
        return since[0] != "Z" and started == f"{boot} {since[19]}"
    return False
