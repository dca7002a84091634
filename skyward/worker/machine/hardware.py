"""Hardware of a worker's machine that tasks can use."""

import os
from functools import cache
from pathlib import Path

from skyward.worker.machine import procfs
from skyward.worker.machine.cgroups import Limit, memory_limit

__all__ = ["free_memory", "gpus", "memory_gb", "vcpus"]


def vcpus() -> int:
    """Return the number of CPUs that this process may use: in a job of Slurm, at most those of the job."""
    present = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(present, _number("SLURM_CPUS_ON_NODE") or present)


def memory_gb() -> float:
    """Return the memory of the machine, of the container, or of the job of Slurm, in GiB."""
    total: float = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit, granted = _limit(), _granted_memory()
    if limit is not None:
        total = min(total, limit.most)
    return round(min(total, granted or total) / 2**30, 2)


def gpus() -> int:
    """Return the number of GPUs of the job of Slurm; 0 outside of one, where they are not counted."""
    return len([each for each in os.environ.get("SLURM_JOB_GPUS", "").split(",") if each])


def _granted_memory() -> int:
    """Return the bytes of memory of the job of Slurm; 0 outside of one, and for a job with all memory of its machine.

    Not every cluster enforces what it grants: without control groups, a job sees the whole machine.
    """
    cpus = _number("SLURM_CPUS_ON_NODE")
    if not cpus:  # this is no node of a job, though it may be the shell of one on a login node
        return 0
    return (_number("SLURM_MEM_PER_NODE") or _number("SLURM_MEM_PER_CPU") * cpus) << 20


def _number(variable: str) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else 0


def free_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Return the bytes of memory that this process can still have in its machine and container; None if not known."""
    try:
        free, limit = procfs.free_bytes(meminfo.read_text()), _limit()
        return free if limit is None else min(free, int(limit.most - limit.used() + limit.kept()))
    except (OSError, ValueError, KeyError):
        return None


@cache
def _limit() -> Limit | None:
    return memory_limit()
