"""Journal of the machines of this user's pools: written before each request, and cleared after termination."""

from skyward.journal.claim import SELF_TERMINATION, Claim, data_directory
from skyward.journal.entries import ClusterEntry, CostEntry, MachineEntry, PoolEntry, SizeEntry, WorkerEntry
from skyward.journal.record import PoolRecord
from skyward.journal.sealing import JournalSeal
from skyward.journal.store import Journal

__all__ = [
    "SELF_TERMINATION",
    "Claim",
    "ClusterEntry",
    "CostEntry",
    "Journal",
    "JournalSeal",
    "MachineEntry",
    "PoolEntry",
    "PoolRecord",
    "SizeEntry",
    "WorkerEntry",
    "data_directory",
]
