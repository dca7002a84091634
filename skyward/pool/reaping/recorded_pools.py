"""The pools of this user as the journal has them: owned by living processes, left, or closed with warm machines.

No provider is asked, and nothing is changed, but for the end of the costs of nodes that are gone. The owner of a pool
holds a lock as long as it lives, and the time of its latest heartbeat is known, so that the answer is not an old one.
"""

import time
from dataclasses import dataclass, field

from skyward.formatting import joined
from skyward.journal import SELF_TERMINATION, Claim, Journal, JournalSeal, MachineEntry, PoolEntry, nodes_of
from skyward.pool.reaping.local_nodes import has_ended
from skyward.pool.reaping.orphans import orphan_of
from skyward.providers.protocol import Access, LocalAccess

__all__ = ["RecordedMachine", "RecordedPool", "recorded_pools"]


@dataclass(frozen=True, slots=True)
class RecordedMachine:
    """A recorded machine.

    Attributes:
        id: the provider's id.
        rank: rank of its node; None until its worker runs.
        place: provider, type, region and market, as text; "" if the record cannot be read.
        address: its address.
        access: access to it.
        directory: the worker's directory, as the link names it; "" until it runs.
        per_hour: USD per hour, as its provider states it.
        ended: True if it was a process on this computer, and is gone.
    """

    id: str
    rank: int | None
    place: str
    address: str
    access: Access | None = field(repr=False)
    directory: str = field(default="", repr=False)
    per_hour: float = 0.0
    ended: bool = False


@dataclass(frozen=True, slots=True)
class RecordedPool:
    """A recorded pool.

    Attributes:
        id: unique id: its name and a number.
        owner: the process that owns it, as text; empty if that is gone.
        pid, host: the process that owns it, or did last.
        opened: Unix time.
        silent: seconds since its owner was last seen.
        lease: seconds that its nodes outlive their owner.
        machines: its machines, by rank.
        per_hour, spent: USD per hour now, and USD until now.
        budget: USD in total; None for no limit.
        attachable: True if another process can attach to it.
        left_idle: True if its owner has left it without unfinished tasks.
        warm_until: Unix time at which the last of its warm machines ends, if it was closed with any; else 0.
        unanswered: number of requests for machines of which no answer is recorded.
        unreadable: reason why its records cannot be read; empty if they can.
    """

    id: str
    name: str
    owner: str
    pid: int
    host: str
    opened: float
    silent: float
    lease: float
    machines: tuple[RecordedMachine, ...]
    per_hour: float
    spent: float
    budget: float | None
    attachable: bool
    left_idle: bool
    warm_until: float
    unanswered: int
    unreadable: str = ""

    @property
    def ended(self) -> bool:
        """True if its machines were processes on this computer, and all of them are gone."""
        return bool(self.machines) and all(each.ended for each in self.machines)

    @property
    def lease_left(self) -> float | None:
        """Seconds until its nodes end by themselves; None while its owner lives, which renews their lease."""
        if self.owner:
            return None
        return 0.0 if self.ended else max(0.0, self.lease - self.silent)

    @property
    def state(self) -> str:
        """State of the pool in a word: owned, left, expired, ended or warm."""
        if self.owner:
            return "owned"
        if self.warm_until:
            return "warm"
        if self.ended:
            return "ended"
        return "left" if self.silent <= self.lease + SELF_TERMINATION else "expired"

    @property
    def places(self) -> str:
        """The places of its machines, as text."""
        return joined(dict.fromkeys(each.place for each in self.machines if each.place), most=2)


def recorded_pools(name: str | None = None) -> list[RecordedPool]:
    """Return the pools of this user in the journal, oldest first; only those called `name`, if it is given.

    Raises:
        JournalError: the journal cannot be read.
    """
    with Journal() as journal:
        found = [_recorded(journal, entry) for entry in journal.pools(name)]
    return [pool for pool in found if pool.machines or not pool.warm_until]  # others have all of its own


def _recorded(journal: Journal, entry: PoolEntry) -> RecordedPool:
    owner, silent, left_idle, warm_until, attachable, unreadable = "", 0.0, False, 0.0, False, ""
    claim = Claim.take(entry.id)
    if claim is None:
        owner = f"process {entry.pid} on {entry.host}"
        key = Claim.read_secrets_key(entry.id)
    else:
        try:
            orphan = orphan_of(journal, entry, claim)
            silent, left_idle, key = claim.silent, claim.left_idle, claim.secrets_key
            warm_until, attachable, unreadable = orphan.warm_until, orphan.attachable, orphan.unreadable
        finally:
            claim.release()
    machines = _machines(journal, entry, key, owned=bool(owner))
    costs = journal.costs(entry.id)
    bills = journal.bills(0.0, entry.id)
    now = time.time()
    per_hour = sum(bill.per_hour for bill in bills if bill.ended is None)
    spent = sum(bill.until(now) for bill in bills)
    if not bills and costs is not None:
        per_hour, spent = costs.per_hour, costs.until(now)
    return RecordedPool(
        entry.id,
        entry.name,
        owner,
        entry.pid,
        entry.host,
        entry.opened,
        silent,
        entry.lease,
        machines,
        per_hour,
        spent,
        None if costs is None else costs.budget,
        attachable,
        left_idle,
        warm_until,
        journal.unanswered(entry.id),
        unreadable,
    )


def _machines(journal: Journal, entry: PoolEntry, key: bytes | None, *, owned: bool) -> tuple[RecordedMachine, ...]:
    """Return the machines of a pool, those that are nodes by rank."""
    try:
        clusters = [] if key is None else journal.clusters(entry.id, JournalSeal(key))
        places = {each.instance.id: str(cluster.offered.source) for cluster in clusters for each in cluster.machines}
        entries = journal.machines(entry.id)
    except Exception:  # pickled in an environment with other packages: `unreadable` says so
        return ()
    nodes = {each.instance.id for each in nodes_of(entries, journal.size(entry.id))}
    found = [
        _machine(
            each,
            places.get(each.instance.id, ""),
            is_node=each.instance.id in nodes,
            ended=has_ended(entry, each, owned=owned),
        )
        for each in entries
    ]
    return tuple(sorted(found, key=lambda each: (each.rank is None, each.rank or 0)))


def _machine(entry: MachineEntry, place: str, *, is_node: bool, ended: bool) -> RecordedMachine:
    instance, worker = entry.instance, entry.worker
    local = isinstance(instance.access, LocalAccess)
    return RecordedMachine(
        instance.id,
        worker.rank if worker is not None and is_node else None,
        place,
        "this computer" if local else instance.public_address or instance.address,
        instance.access,
        worker.directory if worker is not None else "",
        instance.hourly_price,
        ended,
    )
