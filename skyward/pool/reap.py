"""Giving back what processes have left behind: pools on record whose owner is gone."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from skyward.errors import NodeStartError, UsageError
from skyward.journal import Claim, ClusterEntry, Journal, PoolEntry, data_directory
from skyward.process import background
from skyward.providers.protocol import SSHAccess
from skyward.values.validation import shown

if TYPE_CHECKING:
    from skyward.control.act.nodes.offers import Offered

__all__ = ["Orphan", "Reaped", "orphans", "reap", "reap_pool", "told"]

SLACK = 660.0
"""Seconds beyond its lease after which a node has ended itself: what runs has 600 to finish."""

_REACH_WITHIN = 15.0


@dataclass(frozen=True, slots=True)
class Orphan:
    """A pool whose owner is gone.

    Attributes:
        id: unique; its name, and a number.
        host, pid: of the process that had it.
        silent: seconds since that was last seen.
        machines: that are on record; more may have been asked for.
        due: whether its lease is over, so that nobody can attach to it any more.
        seen: when its owner was last seen, in Unix time.
        lease: seconds that its nodes outlive that.
        per_hour: what the machines on record cost an hour, USD.
        attachable: whether there is a node on record that can be entered again.
        unreadable: why it is not known what is on record of it; empty where it is.
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


@dataclass(frozen=True, slots=True)
class Reaped:
    """What became of an orphan. `error`: why some of it may be left; it stays on record then."""

    orphan: Orphan
    error: str = ""


def told(found: Orphan | Reaped) -> str:
    """An orphan, or what became of it, in a sentence."""
    orphan = found if isinstance(found, Orphan) else found.orphan
    machines = f"{orphan.machines} machine{'' if orphan.machines == 1 else 's'}"
    if isinstance(found, Orphan):
        if orphan.unreadable:
            machines = f"what is on record of it cannot be read here ({orphan.unreadable})"
        owner = f"process {orphan.pid} on {orphan.host}, last seen {orphan.silent:.0f} s ago"
        return f"{orphan.name}: {machines}, of {owner}"
    if found.error:
        return f"{orphan.name}: {machines} may be left: {found.error}"
    return f"{orphan.name}: {machines} given back"


def orphans() -> list[Orphan]:
    """The pools on record whose owner is gone, the one opened first coming first.

    Raises:
        JournalError: the journal cannot be read.
    """
    with Journal() as journal:
        found = []
        for entry in journal.pools():
            if (claim := Claim.take(entry.id)) is not None:
                try:
                    found.append(_orphan(journal, entry, claim))
                finally:
                    claim.release()
        return found


def _orphan(journal: Journal, entry: PoolEntry, claim: Claim) -> Orphan:
    unreadable = ""
    try:
        machines = journal.machines(entry.id)
    except Exception as error:  # it was pickled where there were other packages
        machines, unreadable = [], str(error) or type(error).__name__
    return Orphan(
        entry.id,
        entry.name,
        entry.host,
        entry.pid,
        claim.silent,
        len(machines),
        due=claim.silent > entry.lease + SLACK,
        seen=claim.seen,
        lease=entry.lease,
        per_hour=sum(machine.instance.hourly_price for machine in machines),
        attachable=bool(entry.settings) and any(machine.worker for machine in machines),
        unreadable=unreadable,
    )


def reap(names: str | Sequence[str] = (), *, due: bool = False) -> list[Reaped]:
    """Give back all that is left of orphans, of those with one of `names` where they are given. What was done.

    Args:
        due: of those only that nobody can attach to any more.

    Raises:
        JournalError: the journal cannot be read.
    """
    names = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, Sequence) else (names,)
    if wrong := [name for name in names if not isinstance(name, str) or not name]:
        raise UsageError(f"Pools are reaped by their names, as in `sky.reap(['train'])`, but got {shown(wrong[0])}.")
    done = []
    with Journal() as journal:
        for entry in journal.pools():
            if names and entry.name not in names and entry.id not in names:
                continue
            if (claim := Claim.take(entry.id)) is None:
                continue
            try:
                orphan = _orphan(journal, entry, claim)
                if orphan.due or not due:
                    done.append(Reaped(orphan, reap_pool(journal, entry, claim)))
            finally:
                claim.release()
        _clear_keys({entry.id for entry in journal.pools()})
    return done


def reap_pool(journal: Journal, entry: PoolEntry, claim: Claim) -> str:
    """Give back all that is left of one pool that is ours; why some of it may be left, or nothing."""
    errors = []
    try:
        for cluster in journal.clusters(entry.id):
            try:
                background.run(_reap(cluster, entry.id)).result()
                journal.forget_cluster(cluster.number)
            except Exception as error:  # whatever a provider says: it is tried again later
                errors.append(str(error) or type(error).__name__)
        if not errors:
            journal.forget_pool(entry.id)
            claim.end()
    except Exception as error:
        errors.append(str(error) or type(error).__name__)
    finally:
        claim.release()
    return "; ".join(errors)


async def _reap(entry: ClusterEntry, pool: str) -> None:
    """Give back the machines of one place, those among them that nobody has heard of, and what they shared."""
    from skyward.link.ssh.worker import end_workers

    offered: Offered = entry.offered
    provider = offered.provider
    cluster = entry.cluster
    if cluster is None:  # it may have been prepared all the same; asked again, it is the same
        cluster = await provider.prepare(offered.spec, offered.offer, pool)
        cluster = replace(cluster, tags={"skyward-pool": pool})
    for machine in entry.machines:
        if isinstance(machine.instance.access, SSHAccess):
            with contextlib.suppress(NodeStartError):  # it is gone, or its worker ends with its lease
                await end_workers(machine.instance.access, pool, _REACH_WITHIN)
    known = [machine.instance.id for machine in entry.machines]
    unheard_of = [instance.id for instance in await provider.find(cluster)]
    await provider.terminate(cluster, list(dict.fromkeys((*known, *unheard_of))))
    await provider.teardown(cluster)


def _clear_keys(pools: set[str]) -> None:
    """Remove the keys of pools that did not even get on record."""
    for path in (data_directory() / "pools").iterdir():
        unknown = path.name not in pools and time.time() - path.stat().st_mtime > SLACK
        if unknown and (claim := Claim.take(path.name)) is not None:
            claim.end()
