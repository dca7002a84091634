"""The journal record of one pool that this process owns."""

import os
import secrets
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from skyward.journal.claim import Claim
from skyward.journal.entries import (
    BillEntry,
    ClusterEntry,
    CostEntry,
    PoolEntry,
    SizeEntry,
    SpecsEntry,
    UpdateEntry,
    WarmEntry,
    WorkerEntry,
)
from skyward.journal.installation import this_installation
from skyward.journal.sealing import JournalSeal
from skyward.journal.store import Journal
from skyward.providers import Cluster, Instance, PoolIdentity

__all__ = ["PoolRecord"]

_ATTEMPTS = 5
_PAUSE = 0.02
"""Number of attempts to claim a resting pool, and seconds between them: others claim it for an instant only."""


class PoolRecord:
    """The journal record of a pool.

    Attributes:
        id: unique id of the pool, which tags its machines.
    """

    def __init__(self, id: str, journal: Journal, claim: Claim) -> None:
        self.id = id
        self._journal = journal
        self._claim = claim
        self._seal = JournalSeal(claim.secrets_key)
        self._is_idle = claim.left_idle
        self._over = False

    @classmethod
    def new(cls, name: str, groups: Mapping[str, object], options: object, lease: float) -> Self:
        """Create the record of a pool that is about to be opened.

        Raises:
            JournalError: the journal cannot be written.
        """
        id = f"{_plain(name)}-{secrets.token_hex(5)}"
        journal = Journal()
        claim = Claim.new(id)
        journal.add_pool(
            PoolEntry(id, name, socket.gethostname(), os.getpid(), time.time(), lease, _packed(groups, options, claim))
        )
        return cls(id, journal, claim)

    @classmethod
    def taken_over(cls, id: str, journal: Journal, claim: Claim) -> Self:
        """Return the record of a pool that another process opened, and make this process its owner."""
        journal.hand_over(id, socket.gethostname(), os.getpid())
        journal.warm.give_up_all(id)
        claim.renew()
        return cls(id, journal, claim)

    # Transitions, each written before and after it happens.

    def preparing(self, group: str, offered: object) -> int:
        """Record that a cluster is about to be prepared. Return the number of its entry."""
        return self._journal.add_cluster(self.id, group, self._seal.pack(offered))

    def prepared(self, number: int, cluster: Cluster) -> None:
        """Record that the cluster was prepared."""
        self._journal.prepared(number, self._seal.pack(cluster))

    def asking(self, number: int) -> str:
        """Record that machines are about to be requested. Return a unique token of the request."""
        token = secrets.token_hex(8)
        self._journal.ask(number, token, time.time())
        return token

    def provisioned(self, number: int, token: str, cluster: Cluster, instances: Sequence[Instance]) -> None:
        """Record the machines that a request returned."""
        self._journal.provisioned(number, token, self._seal.pack(cluster), instances)

    def installed(self, number: int, instance: Instance, worker: WorkerEntry) -> None:
        """Record the worker of a machine."""
        self._journal.installed(number, instance, worker)

    def gone(self, number: int, instance: str) -> None:
        """Record that a machine was terminated."""
        self._journal.gone(number, instance, time.time())

    def torn_down(self, number: int) -> None:
        """Record that a cluster was torn down, with all its machines."""
        self._journal.forget_cluster(number)

    def set_costs(self, spent: float, per_hour: float, budget: float | None) -> None:
        """Record the costs so far, USD, the price per hour from now on, and the budget."""
        self._journal.set_costs(self.id, CostEntry(spent, per_hour, time.time(), budget))

    def set_budget(self, budget: float) -> None:
        """Record another budget, USD in total."""
        costs = self.costs() or CostEntry(0.0, 0.0, 0.0)
        now = time.time()
        self._journal.set_costs(self.id, CostEntry(costs.until(now), costs.per_hour, now, budget))

    def costs(self) -> CostEntry | None:
        """Return the recorded costs, of all processes that owned the pool; None if it has had none."""
        return self._journal.costs(self.id)

    def bill(self, machine: int, instance: str, kind: str, per_hour: float) -> None:
        """Record that a machine costs USD per hour from now on; a free one has no bill.

        Args:
            machine: its number.
            instance: the provider's id of it.
            kind: its source, as text.
            per_hour: its price, USD.
        """
        if per_hour:
            self._journal.bill(self.id, machine, instance, kind, per_hour, time.time())

    def set_price(self, machine: int, per_hour: float) -> None:
        """Record another price of a machine."""
        self._journal.set_price(self.id, machine, per_hour, time.time())

    def bill_found(self, instances: Collection[str], kind: str, per_hour: float, began: float) -> None:
        """Record what machines cost until now that no request had returned; free ones have no bill."""
        if per_hour:
            self._journal.bill_found(self.id, instances, kind, per_hour, began, time.time())

    def end_bill(self, machine: int) -> None:
        """Record that a machine costs nothing any more."""
        self._journal.end_bill(self.id, machine, time.time())

    def bills(self) -> list[BillEntry]:
        """Return the bills of the pool's machines, of all processes that owned it, the oldest first."""
        return self._journal.bills(0.0, self.id)

    # Warm machines.

    def keep_warm(self, cluster: int, instance: str, machine: int, per_hour: float, until: float) -> None:
        """Record that a machine is to be kept warm until a time, before the pool lets go of it."""
        self._journal.warm.keep(WarmEntry(self.id, cluster, instance, machine, per_hour, until), time.time())

    def warm_is_ready(self, cluster: int, instance: str) -> None:
        """Record that nothing of this pool is left on a warm machine."""
        self._journal.warm.set_ready(cluster, instance)

    def give_up_warm(self, cluster: int, instance: str) -> None:
        """Record that a machine is not kept warm, after all."""
        self._journal.warm.give_up(cluster, instance)

    def take_warm(
        self, group: str, count: int, now: float, lasting: float, adapted: Callable[[ClusterEntry], object | None]
    ) -> Iterator[tuple[ClusterEntry, PoolEntry]]:
        """Take over up to `count` warm machines of other pools; yield their entries, now of this pool, and that pool.

        Args:
            group: group of their nodes.
            count: number of wanted machines.
            now: time of day.
            lasting: the machines are kept until that time of day, at least.
            adapted: returns the source of the machines of an entry as this pool uses it; None if they do not fit.
        """
        since = this_installation().since  # older machines are of the original, if this journal is a copy
        names = {entry.id: entry for entry in self._journal.pools() if entry.opened >= since}
        for pool in self._journal.warm.available(lasting):
            if count > 0 and pool in names and (claim := _claimed(pool)) is not None:
                try:
                    for entry in self._taken_from(pool, claim, group, count, now, lasting, adapted):
                        count -= len(entry.machines)
                        yield entry, names[pool]
                finally:
                    claim.release()

    def _taken_from(
        self,
        pool: str,
        claim: Claim,
        group: str,
        count: int,
        now: float,
        lasting: float,
        adapted: Callable[[ClusterEntry], object | None],
    ) -> Iterator[ClusterEntry]:
        warm = self._journal.warm.of(pool)
        for entry in self._journal.clusters(pool, JournalSeal(claim.secrets_key)):
            ready = [each.id for each in warm if each.cluster == entry.number and each.ready and each.until > lasting]
            offered: Any = adapted(entry) if ready and count > 0 else None
            if offered is None:
                continue
            resources = self._seal.pack(offered), self._seal.pack(entry.cluster)
            number, taken = self._journal.warm.take(
                self.id, group, entry.number, resources, ready[:count], now, lasting
            )
            count -= len(taken)
            if taken:
                machines = tuple(each for each in entry.machines if each.instance.id in taken)
                yield replace(entry, number=number, group=group, offered=offered, machines=machines)

    @property
    def is_borrowing(self) -> bool:
        """True if this pool took machines of others over."""
        return self._journal.warm.is_borrowing(self.id)

    def rest(self) -> None:
        """Give up ownership of a pool that has warm machines only. Idempotent."""
        if not self._over:
            self._journal.warm.set_resting(self.id)
            self._journal.end_bills(self.id, time.time())
            self.leave()

    @property
    def unsent(self) -> int:
        """Number of tasks that no node has, which a process that attaches to the pool cannot recover."""
        return self._claim.unsent

    @unsent.setter
    def unsent(self, number: int) -> None:
        self._claim.unsent = number

    def set_size(self, size: SizeEntry) -> None:
        """Record the size of the pool."""
        self._journal.set_size(self.id, size)

    def set_specs(self, group: str, first: int, specs: object) -> None:
        """Record the specs that a group has from now on. `first`: position of the first of them."""
        self._journal.set_specs(self.id, SpecsEntry(group, first, _sealed(specs, self._seal)))

    def set_updates(self, updates: Iterable[UpdateEntry]) -> None:
        """Record the updates of the pool's groups, in place of those recorded before."""
        self._journal.set_updates(self.id, updates)

    def updates(self) -> list[UpdateEntry]:
        """Return the recorded updates of the pool's groups."""
        return self._journal.updates(self.id)

    def size(self) -> SizeEntry | None:
        """Return the recorded size; None if it has not changed since the pool was opened."""
        return self._journal.size(self.id)

    def took(self, provider: str, image: str) -> Mapping[str, list[float]]:
        """Return the durations of the phases of the latest starts of any pool, in seconds."""
        return self._journal.took(provider, image)

    def add_phase_seconds(self, provider: str, image: str, seconds: Mapping[str, float], keep: int) -> None:
        """Record the durations of the phases of a node's start; the last `keep` of each phase are kept."""
        self._journal.add_phase_seconds(provider, image, seconds, keep)

    # Ownership.

    @property
    def identity(self) -> PoolIdentity:
        """Identity of the pool at providers."""
        return self._claim.identity

    def renew(self) -> None:
        """Record a heartbeat of this process."""
        self._claim.renew()

    @property
    def is_idle(self) -> bool:
        """True if this process, and those before it, leave no task that is unfinished, should they end now."""
        return self._is_idle

    @is_idle.setter
    def is_idle(self, is_idle: bool) -> None:
        if is_idle != self._is_idle:
            self._is_idle = self._claim.left_idle = is_idle

    def set_lease(self, seconds: float) -> None:
        """Record another lease of the nodes."""
        self._journal.set_lease(self.id, seconds)

    def derive(self, purpose: str) -> bytes:
        """Derive a secret of the pool for a purpose, deterministically."""
        return self._claim.derive(purpose)

    def end(self) -> None:
        """Delete the record: nothing is left of the pool. Idempotent; no effect after `leave`."""
        if self._over:
            return
        self._journal.end_bills(self.id, time.time())
        self._journal.forget_pool(self.id)
        self._over = True
        self._claim.end()
        self._journal.close()

    def leave(self) -> None:
        """Keep the record and give up ownership: other processes may attach to the pool, or reap it."""
        self._over = True
        self._claim.release()
        self._journal.close()


def _claimed(pool: str) -> Claim | None:
    """Claim a resting pool; None if another process reaps it, or takes machines of it."""
    for attempt in range(_ATTEMPTS):
        time.sleep(_PAUSE if attempt else 0.0)
        if (claim := Claim.take(pool)) is not None:
            return claim
    return None


def _packed(groups: Mapping[str, object], options: object, claim: Claim) -> bytes:
    """Return groups and options, pickled; empty if something in them cannot be pickled."""
    return _sealed((dict(groups), options), JournalSeal(claim.secrets_key))


def _sealed(value: object, seal: JournalSeal) -> bytes:
    """Return a value, pickled; empty if something in it cannot be pickled."""
    try:
        return seal.pack(value)
    except Exception:  # a user-defined policy or provider may hold anything
        return b""


def _plain(name: str) -> str:
    """Return `name` with only the characters that file names and the tags of all clouds allow, up to 40.

    Some tags, such as the labels of Kubernetes, begin with a letter or digit only.
    """
    plain = "".join(each if each.isascii() and (each.isalnum() or each in "-_") else "-" for each in name)
    return plain.lstrip("-_")[:40] or "pool"
