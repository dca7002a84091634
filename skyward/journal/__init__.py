"""Journal of the machines of this user's pools: written before each request, and cleared after termination."""

from skyward.journal.claim import LIVING, SELF_TERMINATION, Claim
from skyward.journal.entries import (
    BillEntry,
    ClusterEntry,
    CostEntry,
    MachineEntry,
    PoolEntry,
    SizeEntry,
    SpecsEntry,
    UpdateEntry,
    WarmEntry,
    WorkerEntry,
    nodes_of,
)
from skyward.journal.images import BuiltImage, ImageRecord, ImageRecords
from skyward.journal.installation import data_directory, owner_id, this_installation
from skyward.journal.record import PoolRecord
from skyward.journal.sealing import JournalSeal
from skyward.journal.store import Journal

__all__ = [
    "LIVING",
    "SELF_TERMINATION",
    "BillEntry",
    "BuiltImage",
    "Claim",
    "ClusterEntry",
    "CostEntry",
    "ImageRecord",
    "ImageRecords",
    "Journal",
    "JournalSeal",
    "MachineEntry",
    "PoolEntry",
    "PoolRecord",
    "SizeEntry",
    "SpecsEntry",
    "UpdateEntry",
    "WarmEntry",
    "WorkerEntry",
    "data_directory",
    "nodes_of",
    "owner_id",
    "this_installation",
]
