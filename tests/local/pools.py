"""Conditions and measurements of pools of real nodes."""

import psutil

import skyward as sky
from skyward.control.decide.collections import COPIES
from tests.waiting import wait_for

__all__ = ["blob_bytes_sent", "processes_in", "wait_for_cluster", "wait_for_copies", "wait_until_idle"]


@sky.function
def _count(name: str) -> int:
    return sky.counter(name).increment()


def wait_for_cluster(pool: sky.Compute) -> None:
    """Return when every node has joined the cluster, counted itself in the counter `joined`, and has its copies.

    The port of a node for blobs is open before.
    """
    _count("joined") @ pool
    wait_for_copies(pool)


def wait_for_copies(pool: sky.Compute) -> None:
    """Return when the values of the collections have all copies."""
    contents = pool._shared._backend._contents  # type: ignore[union-attr]  # nothing else waits for copies
    wait_for(lambda: contents.copies >= min(COPIES, len(pool.snapshot().nodes)), "copies of the collections")


def wait_until_idle(pool: sky.Compute) -> None:
    """Return when no task of the pool waits or runs; one that is being stopped runs until its node confirms it."""

    def is_idle() -> bool:
        now = pool.snapshot()  # one for both: a task may be sent between two
        return not now.queued and not now.running

    wait_for(is_idle, "the tasks to end")


def blob_bytes_sent(pool: sky.Compute) -> int:
    """Return the bytes of blobs that the client has sent to the current nodes."""
    return sum(node.sent for node in pool.snapshot().nodes)


def processes_in(directory: str, command: str = "") -> list[psutil.Process]:
    """Return the processes that run in a directory or below it, and whose command contains `command`."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd().startswith(directory) and command in " ".join(process.cmdline()):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found
