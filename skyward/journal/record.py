"""The journal record of one pool that this process owns."""

import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Self

from skyward.journal.claim import Claim
from skyward.journal.entries import CostEntry, PoolEntry, SizeEntry, WorkerEntry
from skyward.journal.sealing import JournalSeal
from skyward.journal.store import Journal
from skyward.providers.protocol import Cluster, Instance

__all__ = ["PoolRecord"]


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
        self._journal.ask(number, token)
        return token

    def provisioned(self, number: int, token: str, cluster: Cluster, instances: Sequence[Instance]) -> None:
        """Record the machines that a request returned."""
        self._journal.provisioned(number, token, self._seal.pack(cluster), instances)

    def installed(self, number: int, instance: Instance, worker: WorkerEntry) -> None:
        """Record the worker of a machine."""
        self._journal.installed(number, instance, worker)

    def gone(self, number: int, instance: str) -> None:
        """Record that a machine was terminated."""
        self._journal.gone(number, instance)

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

    def renew(self) -> None:
        """Record a heartbeat of this process."""
        self._claim.renew()

    def derive(self, purpose: str) -> bytes:
        """Derive a secret of the pool for a purpose, deterministically."""
        return self._claim.derive(purpose)

    def end(self) -> None:
        """Delete the record: nothing is left of the pool. Idempotent; no effect after `leave`."""
        if self._over:
            return
        self._journal.forget_pool(self.id)
        self._over = True
        self._claim.end()
        self._journal.close()

    def leave(self) -> None:
        """Keep the record and give up ownership: other processes may attach to the pool, or reap it."""
        self._over = True
        self._claim.release()
        self._journal.close()


def _packed(groups: Mapping[str, object], options: object, claim: Claim) -> bytes:
    """Return groups and options, pickled; empty if something in them cannot be pickled."""
    try:
        return JournalSeal(claim.secrets_key).pack((dict(groups), options))
    except Exception:  # a user-defined policy may hold anything
        return b""


def _plain(name: str) -> str:
    """Return `name` with only the characters that file names and the tags of all clouds allow, up to 40."""
    return "".join(each if each.isascii() and (each.isalnum() or each in "-_") else "-" for each in name)[:40]
