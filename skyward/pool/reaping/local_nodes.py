"""Nodes that are processes on this computer, of which one can see whether they still run."""

import contextlib
import socket
import time
from collections.abc import Collection
from pathlib import Path

from skyward.errors import JournalError
from skyward.journal import Claim, CostEntry, Journal, MachineEntry, PoolEntry
from skyward.providers.protocol import ExecAccess, LocalAccess
from skyward.providers.recorded_process import recorded_process

__all__ = ["end_costs", "has_ended"]


def has_ended(entry: PoolEntry, machine: MachineEntry, *, owned: bool) -> bool:
    """Return whether a machine is known to be gone: it was a process here. `owned`: a process owns its pool.

    A machine elsewhere is not known to be gone.
    """
    match machine.instance.access:
        case LocalAccess():
            return not owned  # it ends with the process that started it
        case ExecAccess(is_local=True, directory=str(directory)):
            if entry.host != socket.gethostname() or (owned and machine.worker is None):  # it may be starting
                return False
            return all(recorded_process(file) is None for file in Path(directory).glob("nodes/*/pid"))
        case _:
            return False


def end_costs(journal: Journal, entry: PoolEntry, claim: Claim, machines: Collection[MachineEntry]) -> None:
    """Record the end of the costs of a claimed pool's machines that are gone: now, or the end of its lease before."""
    gone = {each.instance.id for each in machines if has_ended(entry, each, owned=False)}
    at = min(time.time(), claim.seen + entry.lease)
    bills = [each for each in journal.bills(0.0, entry.id) if each.ended is None and each.instance in gone]
    costs, all_gone = journal.costs(entry.id), len(gone) == len(machines)
    if not gone or not (bills or (all_gone and costs is not None and costs.per_hour)):
        return
    with contextlib.suppress(JournalError):  # a disk that is full: what asks for the pool answers all the same
        for bill in bills:
            journal.end_bill(entry.id, bill.machine, max(at, bill.at))
        if costs is not None:
            left = 0.0 if all_gone else max(0.0, costs.per_hour - sum(bill.per_hour for bill in bills))
            at = max(at, costs.at)
            journal.set_costs(entry.id, CostEntry(costs.until(at), left, at, costs.budget))
