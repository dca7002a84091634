"""Sizes of tasks: the pairs of vCPUs and memory that Fargate has. Source: AWS, "Fargate task definition parameters"."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["DISK_AT_LEAST", "DISK_AT_MOST", "TaskSize", "sizes"]

DISK_AT_LEAST, DISK_AT_MOST = 20, 200
"""GiB: the disk that every task has, and the largest."""

_MEMORY: Final = {
    0.5: range(1, 5),
    1: range(2, 9),
    2: range(4, 17),
    4: range(8, 31),
    8: range(16, 61, 4),
    16: range(32, 121, 8),
}
"""GiB by vCPUs. Tasks with a quarter of a vCPU are left out: it takes minutes to set up a node."""


@dataclass(frozen=True, slots=True)
class TaskSize:
    """A size of tasks.

    Attributes:
        vcpus: virtual CPUs.
        memory_gb: memory, GiB.
    """

    vcpus: float
    memory_gb: int

    @property
    def units(self) -> tuple[str, str]:
        """CPU units and MiB, as ECS takes them."""
        return f"{self.vcpus * 1024:.0f}", f"{self.memory_gb * 1024}"


def sizes() -> Iterator[TaskSize]:
    """Yield the sizes that nodes may have, the smallest first."""
    for vcpus, memories in _MEMORY.items():
        for memory in memories:
            yield TaskSize(vcpus, memory)
