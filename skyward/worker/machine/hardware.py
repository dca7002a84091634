"""What the machine of a worker has for tasks."""

import os
from functools import cache
from pathlib import Path

from skyward.worker.machine import procfs
from skyward.worker.machine.cgroups import Limit, memory_limit

__all__ = ["free_memory", "memory_gb", "vcpus"]


def vcpus() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_gb() -> float:
    """Memory that the machine, or the container, has, GiB."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _limit()
    return round(min(total, total if limit is None else limit.most) / 2**30, 1)


def free_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes that this process can still have, of the machine and of its container; None where that is not known."""
    try:
        free, limit = procfs.free_bytes(meminfo.read_text()), _limit()
        return free if limit is None else min(free, int(limit.most - limit.used() + limit.kept()))
    except (OSError, ValueError, KeyError):
        return None


@cache
def _limit() -> Limit | None:
    return memory_limit()
