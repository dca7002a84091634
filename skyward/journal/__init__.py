"""What this user's pools have, or may have, on record: written before it is asked for, gone when it is given back."""

from skyward.journal.claim import Claim, data_directory
from skyward.journal.entries import ClusterEntry, MachineEntry, PoolEntry, WorkerEntry
from skyward.journal.record import PoolRecord
from skyward.journal.sealing import Seal
from skyward.journal.store import Journal

__all__ = [
    "Claim",
    "ClusterEntry",
    "Journal",
    "MachineEntry",
    "PoolEntry",
    "PoolRecord",
    "Seal",
    "WorkerEntry",
    "data_directory",
]
