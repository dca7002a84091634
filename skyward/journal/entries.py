"""What the journal says, as values."""

from dataclasses import dataclass, field
from typing import Any

from skyward.providers.protocol import Cluster, Instance

__all__ = ["ClusterEntry", "MachineEntry", "PoolEntry", "WorkerEntry"]


@dataclass(frozen=True, slots=True)
class PoolEntry:
    """A pool.

    Attributes:
        id: unique; its name, and a number.
        host, pid: of the process that opened it, or attached to it last.
        opened: seconds since the epoch.
        lease: seconds that its nodes outlive their client.
        settings: its groups and options, pickled; empty where they could not be.
    """

    id: str
    name: str
    host: str
    pid: int
    opened: float
    lease: float
    settings: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class WorkerEntry:
    """A worker that can be entered again.

    Attributes:
        rank: of its node.
        purpose: what the key of its node is derived for.
        address, bulk: `host:port`s that it listens on, on its machine.
        directory: its own, there, as the link to it names it.
    """

    rank: int
    purpose: str
    address: str
    bulk: str
    directory: str


@dataclass(frozen=True, slots=True)
class MachineEntry:
    """A machine; with the worker on it, once that is up."""

    instance: Instance
    worker: WorkerEntry | None = None


@dataclass(frozen=True, slots=True)
class ClusterEntry:
    """What one pool has at one place of one group.

    Attributes:
        number: its own.
        offered: the place, the spec and the offer, and the provider's settings.
        cluster: what was prepared; None where that may have failed.
        requests: tokens of requests for machines whose outcome is not known.
    """

    number: int
    group: str
    offered: Any
    cluster: Cluster | None = None
    requests: tuple[str, ...] = ()
    machines: tuple[MachineEntry, ...] = ()
