"""Reaping of orphans: pools in the journal whose owner process is gone."""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from skyward.errors import NodeStartError, ProvisioningError, UsageError
from skyward.formatting import clock_text, count_text, joined, money_text
from skyward.journal import (
    LIVING,
    SELF_TERMINATION,
    Claim,
    ClusterEntry,
    Journal,
    JournalSeal,
    PoolEntry,
    WarmEntry,
    data_directory,
)
from skyward.pool.reaping.orphans import Orphan, is_of_the_original, is_over, orphan_of, reason_of
from skyward.process import background
from skyward.providers import Cluster, PoolIdentity, Provider, SSHAccess
from skyward.values.validation import shown

if TYPE_CHECKING:
    from skyward.control.act.machines.offers import SourceOffer

__all__ = [
    "Ending",
    "Reaped",
    "clear_finished",
    "describe_orphan",
    "end_due_warm",
    "forget",
    "reap",
    "reap_pool",
]

_REACH_WITHIN = 15.0
_ANSWER_WITHIN = 600.0
"""Seconds for a worker to be reached, and for a provider to terminate what belongs to one cluster."""

_VISIBLE_WITHIN = 60.0
_GONE_WITHIN = 180.0
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
"""Seconds for the machines of a request to be listed, and for terminated ones not to be; pauses between questions."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reaped:
    """Result of reaping an orphan.

    Attributes:
        orphan: the orphan.
        error: reason why machines may be left, in which case it stays in the journal; empty if all are terminated.
        terminated: number of machines that were terminated: the recorded ones, and those that its provider found.

    Example:
        >>> failed = [reaped.orphan.name for reaped in sky.reap() if reaped.error]
    """

    orphan: Orphan
    error: str = ""
    terminated: int = 0


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of machines: why some may be left, empty if none are, and the number of those terminated."""

    error: str = ""
    terminated: int = 0


def describe_orphan(found: Orphan | Reaped) -> str:
    """Return a sentence about an orphan, or about the result of reaping it."""
    orphan = found if isinstance(found, Orphan) else found.orphan
    machines = count_text(orphan.machines, "machine")
    if orphan.unanswered:
        machines += f" known, {count_text(orphan.unanswered, 'request')} unanswered"
    if isinstance(found, Orphan):
        if orphan.unreadable:
            machines = f"its records cannot be read here ({orphan.unreadable})"
        if orphan.warm_until:
            price = f", at {money_text(orphan.per_hour)} per hour" if orphan.per_hour else ""
            return f"{orphan.name}: {machines} kept warm until {clock_text(orphan.warm_until)}{price}"
        owner = f"process {orphan.pid} on {orphan.host}, last seen {orphan.silent:.0f} s ago"
        return f"{orphan.name}: {machines}, last owned by {owner}"
    if found.error and not orphan.requested:
        forget = f"`skyward reap --forget {orphan.name}` drops it from the journal"
        return f"{orphan.name}: no machines, but what they would share may be left: {found.error}; {forget}"
    if found.error:
        return f"{orphan.name}: {machines} may be left: {found.error}"
    return f"{orphan.name}: {count_text(found.terminated, 'machine')} terminated"


def reap(names: str | Sequence[str] = (), *, due: bool = False, warm: bool = False) -> list[Reaped]:
    """Terminate the machines of orphans, and return the results.

    Warm machines are terminated once their time is over, or if their pool is named.

    Args:
        names: names of the pools to reap; empty for all. A name of no orphan is ignored: compare the results.
        due: reap only pools whose lease has expired, so that they can no longer be attached to.
        warm: terminate all warm machines now, too.

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
                if not names and is_of_the_original(entry):
                    if not due:
                        done.append(Reaped(orphan_of(journal, entry, claim), _of_the_original(entry)))
                elif (reaped := _reap_entry(journal, entry, claim, due=due, warm=warm or bool(names))) is not None:
                    done.append(reaped)
            except Exception as error:  # the others must not wait for it
                _logger.warning("Machines of pool %r may be left: %s.", entry.name, reason_of(error))
            finally:
                claim.release()
        _clear_finished(journal)
        _clear_keys({entry.id for entry in journal.pools()})
    return done


def _reap_entry(journal: Journal, entry: PoolEntry, claim: Claim, *, due: bool, warm: bool) -> Reaped | None:
    """Reap one claimed pool; return None if it is not to be reaped yet.

    Args:
        journal: the journal.
        entry, claim: the pool.
        due: reap it only if its lease has expired.
        warm: terminate all of its warm machines, and not only those whose time is over.
    """
    orphan = orphan_of(journal, entry, claim)
    if orphan.warm_until:
        if not orphan.machines or not (orphan.due or warm):
            return None
        ending = _end_warm(journal, entry, claim, everything=warm)
    elif due and not orphan.due:
        return None
    elif living := _living_elsewhere(entry, claim):
        ending = Ending(living)
    else:
        ending = reap_pool(journal, entry, claim)
    return Reaped(orphan, ending.error, ending.terminated)


def _of_the_original(entry: PoolEntry) -> str:
    """Return why a pool of the journal that this one was copied from is left alone."""
    return (
        f"{entry.host} opened it, from whose data directory this one was copied; close it there, or end it by "
        f"`skyward reap {entry.name}`"
    )


def _living_elsewhere(entry: PoolEntry, claim: Claim) -> str:
    """Return why the owner of a claimed pool may live; "" if it does not.

    Computers that share a data directory do not see each other's locks on every file system.
    """
    if entry.host == socket.gethostname() or claim.silent >= LIVING:
        return ""
    return (
        f"process {entry.pid} on {entry.host} was seen {claim.silent:.0f} s ago, and may live; close it there, or try "
        "again in a minute"
    )


def forget(names: Sequence[str]) -> list[str]:
    """Drop pools from the journal that never requested a machine, such as those whose provider cannot be asked.

    Return a sentence for each pool that was dropped, or was not because machines of it may exist.

    Raises:
        JournalError: the journal cannot be read.
    """
    said = []
    with Journal() as journal:
        for entry in journal.pools():
            if not {entry.name, entry.id} & {*names} or (claim := Claim.take(entry.id)) is None:
                continue
            try:
                if living := _living_elsewhere(entry, claim):
                    said.append(f"{entry.name}: not forgotten: {living}")
                elif journal.has_requested(entry.id):
                    said.append(
                        f"{entry.name}: not forgotten, since it requested machines; `skyward reap` terminates them"
                    )
                else:
                    journal.forget_pool(entry.id)
                    claim.end()
                    said.append(f"{entry.name}: forgotten; it never requested a machine")
            finally:
                claim.release()
    return said


def _end_warm(journal: Journal, entry: PoolEntry, claim: Claim, *, everything: bool) -> Ending:
    """Terminate warm machines of a claimed pool: all, or those whose time is over.

    With the last one that no other pool uses, the pool is removed.
    """
    warm, now = journal.warm.of(entry.id), time.time()
    ending = [each for each in warm if everything or is_over(each, now)]
    if len(ending) < len(warm) or journal.warm.is_lending(entry.id):
        return _end_some(journal, entry, claim, ending)
    return reap_pool(journal, entry, claim, warm)


def _end_some(journal: Journal, entry: PoolEntry, claim: Claim, ending: Sequence[WarmEntry]) -> Ending:
    """Terminate some of the warm machines of a claimed pool."""
    errors: list[str] = []
    terminated = 0
    try:
        for cluster in journal.clusters(entry.id, JournalSeal(claim.secrets_key)):
            here = [each for each in ending if each.cluster == cluster.number]
            try:
                existed = _answer(_terminate(cluster, [each.id for each in here])) if here else ()
                terminated += len(here)
                for each in here:
                    journal.warm.ended(each, _ended_at(each, existed))
            except Exception as error:  # any error of a provider: the next reap tries again
                errors.append(reason_of(error))
    except Exception as error:
        errors.append(reason_of(error))
    return Ending("; ".join(errors), terminated)


def _ended_at(warm: WarmEntry, existed: Collection[str]) -> float:
    """Return when a warm machine ended, which is terminated now: by itself at its deadline, unless it `existed`."""
    now = time.time()
    return now if warm.id in existed else min(now, warm.until)


async def _terminate(cluster: ClusterEntry, ids: Sequence[str]) -> frozenset[str]:
    """Terminate machines of a cluster; return those that existed."""
    assert cluster.cluster is not None
    return await _end_machines(cluster.offered.provider, cluster.cluster, ids, others=False)


async def _end_machines(
    provider: Provider, cluster: Cluster, ids: Sequence[str], *, others: bool = True, settled: float = 0.0
) -> frozenset[str]:
    """Terminate machines of a cluster until none of them is listed; return those that existed.

    Args:
        provider, cluster: the cluster.
        ids: known machines.
        others: terminate all others that are listed, too.
        settled: time of day after which no other can appear, of a request whose outcome is unknown.

    Raises:
        ProvisioningError: a machine still exists.
    """
    found = await provider.find(cluster)
    existed = {each.id for each in found if each.status != "exited"}
    ending = dict.fromkeys((*ids, *(each.id for each in found))) if others else dict.fromkeys(ids)
    until, pause = time.monotonic() + _GONE_WITHIN, _FIRST_PAUSE
    while True:
        if ending:
            await provider.terminate(cluster, [*ending])
        listed = [each.id for each in await provider.find(cluster) if each.status != "exited"]
        existed.update(listed)
        ending = dict.fromkeys(each for each in listed if others or each in ids)
        if not ending and time.time() >= settled:
            return frozenset(existed)
        if time.monotonic() > until:
            raise ProvisioningError(f"{joined(ending)} still exists {_GONE_WITHIN:.0f} s after it was terminated")
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _clear_finished(journal: Journal) -> None:
    """Remove pools that were kept for their warm machines, and have none any more that they or others use.

    Errors are logged: the next reap tries again.
    """
    failed: set[str] = set()
    while finished := set(journal.warm.finished()) - failed:  # one may have borrowed from another
        for entry in journal.pools():
            if entry.id not in finished:
                continue
            if is_of_the_original(entry):
                failed.add(entry.id)
                continue
            claim = Claim.take(entry.id)
            error = "it is in use" if claim is None else reap_pool(journal, entry, claim).error
            if error:
                failed.add(entry.id)
                _logger.warning("What the machines of pool %r shared may be left: %s.", entry.name, error)
        failed |= finished & set(journal.warm.finished())


def end_due_warm() -> None:
    """Terminate the warm machines whose time is over. Errors are logged: the next reap tries again."""
    with Journal() as journal:
        for entry in journal.pools():
            if is_of_the_original(entry) or not any(is_over(each, time.time()) for each in journal.warm.of(entry.id)):
                continue
            if (claim := Claim.take(entry.id)) is not None:
                try:
                    if journal.warm.is_resting(entry.id) and (
                        error := _end_warm(journal, entry, claim, everything=False).error
                    ):
                        _logger.warning("Machines of pool %r that were kept warm may be left: %s.", entry.name, error)
                finally:
                    claim.release()
        _clear_finished(journal)


def clear_finished() -> None:
    """Remove pools that were kept for their warm machines, and have none any more that they or others use."""
    with Journal() as journal:
        _clear_finished(journal)


def reap_pool(journal: Journal, entry: PoolEntry, claim: Claim, warm: Sequence[WarmEntry] = ()) -> Ending:
    """Terminate the machines of one claimed pool.

    Args:
        journal: the journal.
        entry, claim: the pool. The claim is released.
        warm: its machines that are warm, and so have no worker.
    """
    errors: list[str] = []
    terminated = 0
    try:
        for cluster in journal.clusters(entry.id, JournalSeal(claim.secrets_key)):
            try:
                existed = _answer(_reap(cluster, claim.identity, {each.id for each in warm}))
                known = {machine.instance.id for machine in cluster.machines}
                terminated += len(existed | known)
                _bill_found(journal, entry.id, cluster, existed - known)
                for each in warm:
                    if each.cluster == cluster.number:
                        journal.warm.ended(each, _ended_at(each, existed))
                journal.forget_cluster(cluster.number)
            except Exception as error:  # any error of a provider: the next reap tries again
                errors.append(reason_of(error))
        if not errors:
            journal.end_bills(entry.id, time.time())
            journal.forget_pool(entry.id)
            claim.end()
    except Exception as error:
        errors.append(reason_of(error))
    finally:
        claim.release()
    return Ending("; ".join(errors), terminated)


def _bill_found(journal: Journal, pool: str, cluster: ClusterEntry, found: Collection[str]) -> None:
    """Record what machines cost of which no answer is recorded, from the first such request on."""
    source = cluster.offered.source
    if cluster.requests and source.hourly_price:
        began = min(cluster.requests.values())
        journal.bill_found(pool, found, str(source), source.hourly_price, began, time.time())


def _answer[T](coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of calls of a provider: one that never answers must not keep other pools from being reaped.

    Raises:
        TimeoutError: it takes too long. The call is cancelled.
    """
    future = background.run(coroutine)
    try:
        return future.result(_ANSWER_WITHIN)
    except TimeoutError:
        if future.done():  # the provider itself has raised it
            raise
        future.cancel()
        raise TimeoutError(f"the provider does not answer within {_ANSWER_WITHIN:.0f} s") from None


async def _reap(entry: ClusterEntry, pool: PoolIdentity, warm: Collection[str]) -> frozenset[str]:
    """Terminate the machines of one cluster, including unrecorded ones, its shared resources, and unfinished images.

    Return the ids of the machines that existed.
    """
    from skyward.control.act.machines.guarded import GuardedProvider
    from skyward.control.act.nodes.image_building import delete_unrecorded
    from skyward.link.ssh.worker import end_workers

    offered: SourceOffer = entry.offered
    provider = offered.provider
    cluster = entry.cluster
    if cluster is not None:
        await provider.find(cluster)  # before workers end: a provider that refuses, as without a key, loses no work
    else:  # it may have been prepared; `prepare` is idempotent
        cluster = await provider.prepare(offered.spec, offered.offer, pool)
        cluster = replace(cluster, tags=pool.tags)
    for machine in entry.machines:
        if isinstance(machine.instance.access, SSHAccess) and machine.instance.id not in warm:
            with contextlib.suppress(NodeStartError):  # it is gone, or its worker ends with its lease
                await end_workers(machine.instance.access, pool.id, _REACH_WITHIN)
    known = [machine.instance.id for machine in entry.machines]
    if entry.lender is not None:  # the other machines of the cluster, and what they share, are not of this pool
        return await _terminate(entry, known)
    existed = await _end_machines(provider, cluster, known, settled=_settled(entry))
    if isinstance(provider, GuardedProvider):
        await delete_unrecorded(provider, await provider.find_images(cluster))
    await provider.teardown(cluster)
    return existed


def _settled(entry: ClusterEntry) -> float:
    """Return the time of day after which no machine of an unanswered request can appear; 0 if that costs nothing.

    A cloud may still carry out the request of a client that was killed, and lists the machine a moment later.
    """
    offered: SourceOffer = entry.offered
    if not entry.requests or (offered.priced and not offered.source.hourly_price):
        return 0.0
    return max(entry.requests.values()) + _VISIBLE_WITHIN


def _clear_keys(pools: set[str]) -> None:
    """Remove the keys of pools that were never recorded."""
    for path in (data_directory() / "pools").iterdir():
        with contextlib.suppress(FileNotFoundError):  # another process has just removed it
            unknown = path.name not in pools and time.time() - path.stat().st_mtime > SELF_TERMINATION
            if unknown and (claim := Claim.take(path.name)) is not None:
                claim.end()
