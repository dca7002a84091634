"""Entries of the journal, as values."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from skyward.providers.protocol import Cluster, Instance

__all__ = [
    "BillEntry",
    "ClusterEntry",
    "CostEntry",
    "MachineEntry",
    "PoolEntry",
    "SizeEntry",
    "SpecsEntry",
    "UpdateEntry",
    "WarmEntry",
    "WorkerEntry",
    "nodes_of",
]


@dataclass(frozen=True, slots=True)
class PoolEntry:
    """A recorded pool.

    Attributes:
        id: unique id: its name and a random number.
        name: name of the pool.
        host, pid: host name and id of the process that opened it, or attached to it last.
        opened: time of opening, in seconds since the epoch.
        lease: lease of its nodes, in seconds.
        settings: its groups and options, pickled; empty if they cannot be pickled.
    """

    id: str
    name: str
    host: str
    pid: int
    opened: float
    lease: float
    settings: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class CostEntry:
    """The costs of a pool at one time.

    Attributes:
        spent: USD until then.
        per_hour: USD an hour from then on.
        at: that time, in seconds since the epoch.
        budget: USD in total; None for no limit.
    """

    spent: float
    per_hour: float
    at: float
    budget: float | None = None

    def until(self, now: float) -> float:
        """Return the USD spent until `now`, in seconds since the epoch."""
        return self.spent + self.per_hour * max(0.0, now - self.at) / 3600


@dataclass(frozen=True, slots=True)
class BillEntry:
    """The bill of one machine. Times are in seconds since the epoch.

    Attributes:
        pool, machine: id of its pool, and its number there. A process that attaches to the pool gives it another one.
        instance: the provider's id of the machine.
        name: name of the pool.
        kind: its source as text: provider, type, zone and market.
        began, ended: times of allocation and termination; `ended` is None while it exists.
        at: when `spent` was true.
        spent, per_hour: USD until then, and USD per hour from then on.
    """

    pool: str
    machine: int
    instance: str
    name: str
    kind: str
    began: float
    ended: float | None
    at: float
    spent: float
    per_hour: float

    def until(self, now: float) -> float:
        """Return the USD that it cost until `now`."""
        return self.spent + (0.0 if self.ended is not None else self.per_hour * max(0.0, now - self.at) / 3600)


@dataclass(frozen=True, slots=True)
class SizeEntry:
    """The size of a pool, for a process that attaches to it.

    Attributes:
        bounds: minimum and maximum number of nodes, by group.
        desired: desired number of nodes, by group.
        draining: ids of the machines whose nodes drain.
        leaving: ids of the machines that are terminated, and are no nodes any more.
    """

    bounds: Mapping[str, tuple[int, int]]
    desired: Mapping[str, int]
    draining: frozenset[str] = frozenset()
    leaving: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SpecsEntry:
    """Specs that a group has or had, in a pool that was updated.

    Attributes:
        group: name of the group.
        first: position of the first of them.
        specs: the specs, pickled; empty if they cannot be pickled.
    """

    group: str
    first: int
    specs: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class UpdateEntry:
    """The update of a group that is under way, or that ended because no node of the present specs could be launched.

    Attributes:
        group: name of the group.
        before: position of the first of the specs from which its nodes were launched before.
        fell_back: True if they are launched from those again.
    """

    group: str
    before: int
    fell_back: bool


@dataclass(frozen=True, slots=True)
class WorkerEntry:
    """A worker that another process can attach to.

    Attributes:
        rank: rank of its node.
        purpose: purpose that the key of its node is derived for.
        address, bulk: the `host:port`s that it listens on, on its machine.
        directory: its directory on its machine, as the link names it.
    """

    rank: int
    purpose: str
    address: str
    bulk: str
    directory: str


@dataclass(frozen=True, slots=True)
class MachineEntry:
    """A recorded machine, with its worker once that is up."""

    instance: Instance
    worker: WorkerEntry | None = None


@dataclass(frozen=True, slots=True)
class ClusterEntry:
    """The resources of one pool at one machine source of one group.

    Attributes:
        number: number of the entry.
        group: name of the group.
        offered: the source, the spec, the offer, and the provider's settings.
        cluster: the prepared cluster; None if its preparation may have failed.
        requests: times of the requests for machines whose outcome is unknown, in seconds since the epoch, by token.
        machines: recorded machines.
        lender: number of the entry of another pool that prepared the cluster, whose machines this pool took over; None
            for a cluster of its own.
    """

    number: int
    group: str
    offered: Any
    cluster: Cluster | None = None
    requests: Mapping[str, float] = field(default_factory=dict)
    machines: tuple[MachineEntry, ...] = ()
    lender: int | None = None


@dataclass(frozen=True, slots=True)
class WarmEntry:
    """A machine that is kept warm after its pool.

    Attributes:
        pool, machine: id of the pool that keeps it, and its number there.
        cluster: number of its cluster entry.
        id: the provider's id.
        per_hour: USD per hour.
        until: its deadline, in seconds since the epoch.
        ready: True once nothing of its pool is left on it.
    """

    pool: str
    cluster: int
    id: str
    machine: int
    per_hour: float
    until: float
    ready: bool = False


def nodes_of(machines: Iterable[MachineEntry], size: SizeEntry | None) -> list[MachineEntry]:
    """Return the machines that are nodes: they have a worker, and their pool, of this recorded size, keeps them."""
    leaving = frozenset[str]() if size is None else size.leaving
    return [each for each in machines if each.worker is not None and each.instance.id not in leaving]
