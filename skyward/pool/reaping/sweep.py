"""Sweeping of accounts: resources that carry this installation's tag, and belong to no pool in its journal.

The journal finds what this installation knows of. A sweep finds the rest by its tags: what a cloud created although it
reported an error, or what was left when a journal was lost. Resources without our tag are never touched.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from skyward.control.act.machines.guarded import GuardedProvider
from skyward.formatting import count_text, joined
from skyward.journal import LIVING, Claim, ImageRecords, Journal, owner_id
from skyward.market.requests import reason_of
from skyward.pool.account.clouds import usable_clouds
from skyward.process import background
from skyward.providers.protocol import Leftover, ProviderConfig

__all__ = ["Swept", "describe_swept", "sweep"]

_LIST_WITHIN = 120.0
_GONE_WITHIN = 120.0
_ASK_EVERY = 2.0
"""Seconds for a listing, for removed resources to disappear, and between questions about them."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Swept:
    """A resource that a sweep found.

    Attributes:
        provider: name of the provider.
        kind: type of the resource, such as "machine".
        id: the provider's id.
        pool: id of the pool that it was made for.
        region: where it is; "" if that does not matter.
        hourly_price: USD per hour; None if unknown.
        error: why it may still exist; "" if it is gone, or was only listed.

    Example:
        >>> [found.id for found in sky.sweep(dry_run=True) if found.kind == "machine"]
    """

    provider: str
    kind: str
    id: str
    pool: str
    region: str = ""
    hourly_price: float | None = None
    error: str = ""


def sweep(*, dry_run: bool = False) -> list[Swept]:
    """Remove what pools of this installation left at providers, and the journal does not know; return it.

    All providers with credentials are asked, in all regions that their settings allow; the settings of `skyward.toml`
    count. A provider that does not answer is logged as a warning.

    Args:
        dry_run: only list it.

    Raises:
        JournalError: the journal cannot be read, so nothing is known to be left.

    Example:
        >>> for found in sky.sweep():
        ...     print(found.provider, found.kind, found.id, found.error)
    """
    return background.run(_sweep_all(usable_clouds(), owner_id(), dry_run=dry_run)).result()


async def _sweep_all(configs: Sequence[ProviderConfig], owner: str, *, dry_run: bool) -> list[Swept]:
    swept = await asyncio.gather(*(_sweep(config, owner, dry_run=dry_run) for config in configs))
    return [each for found in swept for each in found]


async def _sweep(config: ProviderConfig, owner: str, *, dry_run: bool) -> list[Swept]:
    try:
        provider = GuardedProvider(config.create_provider(), config.name)
        async with asyncio.timeout(_LIST_WITHIN):
            listed = await provider.leftovers(owner)
    except Exception as error:  # providers raise anything; the next sweep asks again
        _logger.warning("What is left at provider %r is unknown: %s.", config.name, reason_of(error))
        return []
    # Only now: a pool is on record before it creates anything.
    known = await asyncio.to_thread(_known_pools, {each.pool for each in listed})
    left = [each for each in listed if each.pool not in known]
    errors = {} if dry_run else await _remove(provider, owner, left)
    return [
        Swept(config.name, each.kind, each.id, each.pool, each.region, each.hourly_price, errors.get(_key(each), ""))
        for each in left
    ]


def _known_pools(listed: Collection[str]) -> set[str]:
    """Return the ids of the pools that have machines, or may have some, and of those that built the recorded images.

    A pool whose warm machines are over is none of them. Images are kept on purpose. A journal that was damaged, and so
    removed, has no pools; those of the `listed` ones that have an owner are known by their key files.
    """
    with Journal() as journal:
        recorded = {entry.id for entry in journal.pools()}
        over = {pool for pool in recorded if _is_over(journal, pool, time.time())}
    owned = {pool for pool in listed if pool not in recorded and _is_owned(pool)}
    return (recorded - over) | owned | {each.pool for each in ImageRecords().all()}


def _is_owned(pool: str) -> bool:
    """Return whether an unrecorded pool has an owner that lives, or lived a moment ago."""
    if not pool or Path(pool).name != pool or not Claim.exists(pool):
        return False
    if (claim := Claim.take(pool)) is None:
        return Claim.exists(pool)
    try:
        return claim.silent < LIVING
    finally:
        claim.release()


def _is_over(journal: Journal, pool: str, now: float) -> bool:
    is_used = journal.warm.is_lending(pool) or any(each.until > now for each in journal.warm.of(pool))
    return journal.warm.was_closed(pool) and not is_used


def _key(leftover: Leftover) -> tuple[str, str, str]:
    return leftover.kind, leftover.id, leftover.region


async def _remove(provider: GuardedProvider, owner: str, left: Sequence[Leftover]) -> dict[tuple[str, str, str], str]:
    """Remove resources, machines first, until they are no longer listed; return why others may exist, by key."""
    until = time.monotonic() + _GONE_WITHIN
    errors: dict[tuple[str, str, str], str] = {}
    remaining = sorted(left, key=lambda each: each.kind != "machine")
    while remaining:
        errors = {}
        for each in remaining:
            try:
                await provider.remove(each)
            except Exception as error:  # such as a group that a machine uses, which is about to be gone
                errors[_key(each)] = reason_of(error)
        try:
            listed = {_key(each) for each in await provider.leftovers(owner)}
        except Exception as error:  # it is not known to be gone
            return {_key(each): reason_of(error) for each in remaining}
        remaining = [each for each in remaining if _key(each) in listed]
        if time.monotonic() > until:
            break
        if remaining:
            await asyncio.sleep(_ASK_EVERY)
    return {_key(each): errors.get(_key(each), "it still exists") for each in remaining}


def describe_swept(found: Iterable[Swept], *, dry_run: bool = False) -> list[str]:
    """Return a sentence about the resources of each provider and pool: those that are gone, and those that may not."""
    groups: dict[tuple[str, str], list[Swept]] = {}
    for each in found:
        groups.setdefault((each.provider, each.pool), []).append(each)
    sentences = []
    for (provider, pool), same in groups.items():
        whose = f"at {provider}, of pool {pool!r}, which is not in the journal"
        gone = [each for each in same if not each.error]
        if gone:
            done = "left" if dry_run else "removed"
            sentences.append(f"{_counted(gone)} {done} {whose}")
        sentences += [f"{each.kind} {each.id} may exist {whose}: {each.error}" for each in same if each.error]
    return sentences


def _counted(found: Sequence[Swept]) -> str:
    kinds = dict.fromkeys(each.kind for each in found)
    return joined([count_text(sum(each.kind == kind for each in found), kind) for kind in kinds])
