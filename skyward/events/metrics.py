"""Resource usage of a node."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["GPUMetrics", "NodeMetrics"]


@dataclass(frozen=True, slots=True)
class GPUMetrics:
    """One GPU of a machine, with the usage of all processes.

    Attributes:
        name: name from its driver.
        busy: utilization, 0 to 1.
        memory, memory_total: bytes.

    Example:
        >>> for history in pool.metrics().values():
        ...     print([gpu.busy for gpu in history[-1].gpus] if history else "not measured yet")
    """

    name: str
    busy: float
    memory: int
    memory_total: int


@dataclass(frozen=True, slots=True)
class NodeMetrics:
    """Usage of a node over the seconds before `at`. None for what its system does not report.

    With the scope "machine", everything that runs there counts, within the limits of its container, if any. Nodes that
    share a machine, as those of `sky.Local` do, have the scope "processes": CPU, memory, `read` and `written` are those
    of the worker and its descendants, and network usage is None. GPUs and disk are always the machine's.

    Attributes:
        scope: the processes that count, see above.
        cpu, cpus: cores in use, and cores available.
        memory, memory_total: bytes in use, and bytes available.
        disk_free, disk_total: bytes of the file system that tasks work on.
        read, written: bytes a second, from and to disks.
        received, sent: bytes a second, over the network.
        gpus: its GPUs.
        at: when it arrived at the client, in Unix time.

    Example:
        >>> for history in pool.metrics(node=0).values():
        ...     print([usage.cpu / usage.cpus for usage in history])
    """

    scope: Literal["machine", "processes"]
    cpu: float
    cpus: float
    memory: int | None = None
    memory_total: int | None = None
    disk_free: int | None = None
    disk_total: int | None = None
    read: float | None = None
    written: float | None = None
    received: float | None = None
    sent: float | None = None
    gpus: tuple[GPUMetrics, ...] = ()
    at: float = 0.0
