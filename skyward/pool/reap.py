"""Reaping of orphans: pools in the journal whose owner process is gone."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from skyward.errors import NodeStartError, UsageError
from skyward.journal import SELF_TERMINATION, Claim, ClusterEntry, Journal, PoolEntry, data_directory
from skyward.process import background
from skyward.providers.protocol import SSHAccess
from skyward.values.validation import shown

if TYPE_CHECKING:
    from skyward.control.act.nodes.offers import SourceOffer

__all__ = ["Orphan", "Reaped", "describe_orphan", "orphans", "reap", "reap_pool", "refused_names"]

_REACH_WITHIN = 15.0


@dataclass(frozen=True, slots=True)
class Orphan:
    """Pool without an owner: its process is gone, or has closed the pool and could not terminate all its machines.

    Attributes:
        id: unique id: its name and a number.
        host, pid: host and process id of its last owner.
        silent: seconds since the owner was last seen.
        machines: number of recorded machines; more may have been requested.
        due: True if its lease has expired, so that it can no longer be attached to.
        seen: Unix time at which its owner was last seen.
        lease: seconds that its nodes outlive their owner.
        per_hour: price of the recorded machines, USD per hour.
        attachable: True if at least one recorded node can be attached to.
        unreadable: reason why its records cannot be read; empty if they can.

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


@dataclass(frozen=True, slots=True)
class Reaped:
    """Result of reaping an orphan.

    Attributes:
        orphan: the orphan.
        error: reason why machines may be left, in which case it stays in the journal; empty if all are terminated.

    Example:
        >>> failed = [reaped.orphan.name for reaped in sky.reap() if reaped.error]
    """

    orphan: Orphan
    error: str = ""


def describe_orphan(found: Orphan | Reaped) -> str:
    """Return a sentence about an orphan, or about the result of reaping it."""
    orphan = found if isinstance(found, Orphan) else found.orphan
    machines = f"{orphan.machines} machine{'' if orphan.machines == 1 else 's'}"
    if isinstance(found, Orphan):
        if orphan.unreadable:
            machines = f"its records cannot be read here ({orphan.unreadable})"
        owner = f"process {orphan.pid} on {orphan.host}, last seen {orphan.silent:.0f} s ago"
        return f"{orphan.name}: {machines}, last owned by {owner}"
    if found.error:
        return f"{orphan.name}: {machines} may be left: {found.error}"
    return f"{orphan.name}: {machines} terminated"


def orphans() -> list[Orphan]:
    """Return the pools in the journal that have no owner, oldest first.

    Raises:
        JournalError: the journal cannot be read.

    Example:
        >>> for orphan in sky.orphans():
        ...     print(orphan.name, orphan.host, orphan.machines)
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
    except Exception as error:  # pickled in an environment with other packages
        machines, unreadable = [], _reason(error)
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
        per_hour=sum(machine.instance.hourly_price for machine in machines),
        attachable=bool(entry.settings) and any(machine.worker for machine in machines),
        unreadable=unreadable,
    )


def reap(names: str | Sequence[str] = (), *, due: bool = False) -> list[Reaped]:
    """Terminate the machines of orphans, and return the results.

    Args:
        names: names of the pools to reap; empty for all. A name of no orphan is ignored: compare the results.
        due: reap only pools whose lease has expired, so that they can no longer be attached to.

    Raises:
        JournalError: the journal cannot be read.

    Example:
        >>> for reaped in sky.reap():
        ...     print(reaped.orphan.name, reaped.error)
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
    """Terminate the machines of one claimed pool; return why some may be left, or an empty string."""
    errors = []
    try:
        for cluster in journal.clusters(entry.id):
            try:
                background.run(_reap(cluster, entry.id)).result()
                journal.forget_cluster(cluster.number)
            except Exception as error:  # any error of a provider: the next reap tries again
                errors.append(_reason(error))
        if not errors:
            journal.forget_pool(entry.id)
            claim.end()
    except Exception as error:
        errors.append(_reason(error))
    finally:
        claim.release()
    return "; ".join(errors)


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


def _reason(error: Exception) -> str:
    """Return why a step failed. The provider of a script is found only where its module can be imported."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return (
            f"module {error.name!r} of its records is not found here; add the folder that has it, or the environment "
            "that has it installed, to PYTHONPATH and run the command again"
        )
    return str(error) or type(error).__name__


async def _reap(entry: ClusterEntry, pool: str) -> None:
    """Terminate the machines of one cluster, including unrecorded ones, and its shared resources."""
    from skyward.link.ssh.worker import end_workers

    offered: SourceOffer = entry.offered
    provider = offered.provider
    cluster = entry.cluster
    if cluster is None:  # it may have been prepared; `prepare` is idempotent
        cluster = await provider.prepare(offered.spec, offered.offer, pool)
        cluster = replace(cluster, tags={"skyward-pool": pool})
    for machine in entry.machines:
        if isinstance(machine.instance.access, SSHAccess):
            with contextlib.suppress(NodeStartError):  # it is gone, or its worker ends with its lease
                await end_workers(machine.instance.access, pool, _REACH_WITHIN)
    known = [machine.instance.id for machine in entry.machines]
    unrecorded = [instance.id for instance in await provider.find(cluster)]
    await provider.terminate(cluster, list(dict.fromkeys((*known, *unrecorded))))
    await provider.teardown(cluster)


def _clear_keys(pools: set[str]) -> None:
    """Remove the keys of pools that were never recorded."""
    for path in (data_directory() / "pools").iterdir():
        unknown = path.name not in pools and time.time() - path.stat().st_mtime > SELF_TERMINATION
        if unknown and (claim := Claim.take(path.name)) is not None:
            claim.end()
