"""What the machine of a worker has for tasks."""

import os

__all__ = ["memory_gb", "vcpus"]


def vcpus() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_gb() -> float:
    """Memory of the machine, GiB."""
    return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
