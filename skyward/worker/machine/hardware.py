"""Hardware of a worker's machine that tasks can use."""

import os
from functools import cache
from pathlib import Path

from skyward.worker.machine import procfs
from skyward.worker.machine.cgroups import Limit, memory_limit

__all__ = ["free_memory", "memory_gb", "vcpus"]


def vcpus() -> int:
    """Return the number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_gb() -> float:
    """Return the memory of the machine, or of the container, in GiB."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _limit()
    return round(min(total, total if limit is None else limit.most) / 2**30, 1)


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
