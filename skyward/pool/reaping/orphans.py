"""Orphans: pools in the journal that have no owner any more."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from skyward.journal import (
    SELF_TERMINATION,
    Claim,
    ClusterEntry,
    Journal,
    PoolEntry,
    WarmEntry,
    data_directory,
    nodes_of,
    this_installation,
)
from skyward.pool.reaping.local_nodes import end_costs, has_ended
from skyward.providers.protocol import acts_on

__all__ = [
    "Orphan",
    "has_pools",
    "is_of_the_original",
    "is_over",
    "orphan_of",
    "orphans",
    "outlives",
    "reason_of",
    "refused_names",
    "update_goes_on",
]


@dataclass(frozen=True, slots=True)
class Orphan:
    """Pool without an owner: its process is gone, or has closed the pool and left machines.

    They were kept warm for other pools (`warm_until`), or could not be terminated.

    Attributes:
        id: unique id: its name and a number.
        name: its name, for `sky.attach` and `sky.reap`.
        host, pid: host and process id of its last owner.
        silent: seconds since the owner was last seen.
        machines: number of recorded machines; more may have been requested.
        due: True if its lease has expired, so that it can no longer be attached to, or the time of its warm machines.
        seen: Unix time at which its owner was last seen.
        lease: seconds that its nodes outlive their owner.
        per_hour: price of the recorded machines, USD per hour.
        attachable: True if it can be attached to: a node is on record, or an update was replacing all of them.
        unreadable: reason why its records cannot be read; empty if they can.
        warm_until: Unix time at which the last of its warm machines is terminated; 0 if it was not closed with any.
        unanswered: number of requests for machines of which no answer is recorded, and which may have launched some.
        requested: False if it never requested machines, so that nothing of it costs money.
        ended: True if its machines were processes on this computer, and all of them are gone.

    Example:
        >>> [orphan.name for orphan in sky.orphans() if orphan.attachable]
    """

    id: str
    name: str
    host: str
    pid: int
    silent: float
    machines: int
    due: bool
    seen: float = 0.0
    lease: float = 0.0
    per_hour: float = 0.0
    attachable: bool = True
    unreadable: str = ""
    warm_until: float = 0.0
    unanswered: int = 0
    requested: bool = True
    ended: bool = False


def has_pools() -> bool:
    """Return whether the journal lists any pool, or files of one are left, so that there may be something to reap.

    It loads nothing of the control plane.

    Raises:
        JournalError: the journal cannot be read.
    """
    with Journal() as journal:
        return bool(journal.pools()) or any((data_directory() / "pools").iterdir())


def orphans(name: str | None = None) -> list[Orphan]:
    """Return the pools in the journal that have no owner, oldest first; only those called `name`, if it is given.

    Raises:
        JournalError: the journal cannot be read.

    Example:
        >>> for orphan in sky.orphans():
        ...     print(orphan.name, orphan.host, orphan.machines)
    """
    with Journal() as journal:
        found = []
        for entry in journal.pools(name):
            if (claim := Claim.take(entry.id)) is not None:
                try:
                    found.append(orphan_of(journal, entry, claim))
                finally:
                    claim.release()
        return [orphan for orphan in found if orphan.machines or not orphan.warm_until]  # others have all of its own


def orphan_of(journal: Journal, entry: PoolEntry, claim: Claim) -> Orphan:
    """Return a claimed pool as an orphan. The costs of its machines that are known to be gone end."""
    if journal.warm.is_resting(entry.id):
        return _resting(journal, entry, claim)
    unreadable, size = "", journal.size(entry.id)
    try:
        machines = journal.machines(entry.id)
        goes_on = not nodes_of(machines, size) and update_goes_on(journal, entry, claim)
    except Exception as error:  # pickled in an environment with other packages
        machines, goes_on, unreadable = [], False, reason_of(error)
    end_costs(journal, entry, claim, machines)
    living = [each for each in machines if not has_ended(entry, each, owned=False)]
    costs = journal.costs(entry.id)  # some providers state no price with a machine
    recorded = costs.per_hour if living and costs is not None else 0.0
    return Orphan(
        entry.id,
        entry.name,
        entry.host,
        entry.pid,
        claim.silent,
        len(machines),
        due=claim.silent > entry.lease + SELF_TERMINATION,
        seen=claim.seen,
        lease=entry.lease,
        per_hour=sum(each.instance.hourly_price for each in living) or recorded,
        attachable=bool(entry.settings) and (goes_on or bool(nodes_of(living, size))),
        unreadable=unreadable,
        unanswered=journal.unanswered(entry.id),
        requested=journal.has_requested(entry.id),
        ended=bool(machines) and not living,
    )


def update_goes_on(journal: Journal, entry: PoolEntry, claim: Claim) -> bool:
    """Return whether an update that was replacing the nodes of a pool goes on in a process that attaches."""
    is_alive = claim.silent <= entry.lease + SELF_TERMINATION
    return is_alive and bool(journal.updates(entry.id)) and any(map(outlives, journal.clusters(entry.id)))


def outlives(cluster: ClusterEntry) -> bool:
    """Return whether the nodes of a cluster outlive the process that launched them, for their lease."""
    return "ttl" in acts_on(cluster.offered.config).fields


def _resting(journal: Journal, entry: PoolEntry, claim: Claim) -> Orphan:
    """Return a pool that was closed with warm machines."""
    warm, now = journal.warm.of(entry.id), time.time()
    return Orphan(
        entry.id,
        entry.name,
        entry.host,
        entry.pid,
        claim.silent,
        len(warm),
        due=any(is_over(each, now) for each in warm),
        seen=claim.seen,
        lease=entry.lease,
        per_hour=sum(each.per_hour for each in warm),
        attachable=False,
        warm_until=max((each.until for each in warm), default=now),
    )


def is_over(warm: WarmEntry, now: float) -> bool:
    """Return whether a warm machine is to be terminated: its time is over, or its pool died while it cleaned it."""
    return not warm.ready or warm.until <= now


def is_of_the_original(entry: PoolEntry) -> bool:
    """Return whether a pool was opened by the installation that this one is a copy of, which may still use it."""
    return entry.opened < this_installation().since


def refused_names(names: Sequence[str], found: Sequence[Orphan]) -> list[str]:
    """Return, for each of `names` that is not of a found orphan, a sentence that says why; otherwise nothing."""
    if not (missing := [name for name in names if not any(name in (each.name, each.id) for each in found)]):
        return []
    with Journal() as journal:
        entries = journal.pools()
    known = ", ".join(dict.fromkeys(entry.name for entry in entries))
    has = f"the journal has {known}" if known else "the journal has no pools"
    sentences = []
    for name in missing:
        owned = next((entry for entry in entries if name in (entry.name, entry.id)), None)
        sentences.append(
            f"no pool {name!r}; {has}."
            if owned is None
            else f"pool {name!r} is not orphaned: process {owned.pid} on {owned.host} owns it, so close it there."
        )
    return sentences


def reason_of(error: Exception) -> str:
    """Return why a step failed. The provider of a script is found only where its module can be imported."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return (
            f"module {error.name!r} of its records is not found here; add the folder that has it, or the environment "
            "that has it installed, to PYTHONPATH and run the command again"
        )
    return str(error) or type(error).__name__
