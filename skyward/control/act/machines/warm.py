"""Warm machines of one group: those that its closing pool keeps for later pools, and those that it takes over."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from skyward.control.act.machines.offers import SourceOffer, provider_config
from skyward.control.decide.machines.sources import MachineSource
from skyward.control.decide.machines.warm import is_worth_taking, needs_same_machines
from skyward.errors import NodeStartError
from skyward.formatting import clock_text, money_text
from skyward.journal import ClusterEntry
from skyward.link.ssh.handover import clean_machine
from skyward.providers.protocol import Cluster, Instance, ProviderConfig, SSHAccess, acts_on
from skyward.specs import Spec

__all__ = ["LASTS_FOR", "adapted", "can_be_kept", "entered", "is_kept", "keep_warm", "taken_notice", "warm_notice"]

LASTS_FOR = 30.0
"""Seconds before its deadline from which a warm machine is not taken over any more."""

_logger = logging.getLogger(__name__)


def is_kept(spec: Spec, config: ProviderConfig) -> bool:
    """Return whether machines of a spec are to be kept warm, at a provider that allows it."""
    return spec.warm > 0 and "warm" in acts_on(config).fields


def can_be_kept(offered: SourceOffer, instance: Instance) -> bool:
    """Return whether a machine can be kept warm: it is rented, and entered by SSH."""
    rented = isinstance(instance.access, SSHAccess) and not instance.access.lent
    return rented and is_kept(offered.spec, offered.config)


async def keep_warm(instance: Instance, seconds: float) -> bool:
    """Remove what its pool left on a machine that is kept warm for so long; return False if that failed."""
    assert isinstance(instance.access, SSHAccess)
    try:
        await clean_machine(instance.access, seconds)
    except NodeStartError as error:
        _logger.warning("machine %s is not kept warm, but terminated: %s", instance.id, error)
        return False
    return True


def warm_notice(name: str, count: int, until: float, per_hour: float) -> str:
    """Return a notice about the machines of a pool that are kept warm.

    Args:
        name: name of the pool.
        count: number of machines.
        until: the latest deadline, in seconds since the epoch.
        per_hour: USD per hour of all of them.
    """
    machines, them = ("1 machine is", "it") if count == 1 else (f"{count} machines are", "them")
    price = f", at {money_text(per_hour)} per hour" if per_hour else ""
    return (
        f"Pool {name!r}: {machines} kept warm until {clock_text(until)}{price}. A pool with the same needs takes "
        f"{them} over; `skyward reap {name}` terminates {them} now."
    )


def adapted(
    entry: ClusterEntry, specs: Sequence[Spec], wanted: MachineSource, *, priced: bool, first: int = 0
) -> SourceOffer | None:
    """Return the source of the warm machines of an entry as another pool uses it; None if they do not fit.

    Args:
        entry: cluster entry of the pool that keeps them.
        specs: specs of the group that needs machines.
        wanted: the source that would be asked for them.
        priced: whether their price has to be known.
        first: position of the first of the specs.
    """
    found: SourceOffer = entry.offered
    if entry.cluster is None or (priced and not found.priced):
        return None
    configs = [provider_config(spec) for spec in specs]
    for spec, config in zip(specs, configs, strict=True):
        fits = config == found.config and needs_same_machines(spec, found.spec)
        if fits and is_worth_taking(spec, wanted, found.source, found.source.hourly_price):
            position = first + configs.index(config)
            lender = entry.lender or entry.number
            source = replace(found.source, position=position, group=wanted.group, lender=lender)
            return replace(found, source=source, spec=replace(spec, allocation=found.spec.allocation))
    return None


def taken_notice(instance: Instance, pool: str, source: MachineSource, instead: MachineSource) -> str:
    """Return a notice about a machine that was taken over from a pool, instead of one that was to be launched."""
    price = money_text(instance.hourly_price or source.hourly_price)
    return (
        f"Machine {instance.id}, which pool {pool!r} kept warm, is taken over instead of launching one: it is "
        f"{source}, at {price} per hour{'' if str(source) == str(instead) else f', where {instead} was to be asked'}."
    )


async def entered(offered: SourceOffer, cluster: Cluster, instance: Instance) -> Instance:
    """Return a machine that was taken over, once it is known to run and to have nothing of other pools.

    Raises:
        NodeStartError: it cannot be used.
    """
    _, found = await offered.provider.get_instance(cluster, instance.id)
    if found is None or found.status != "running" or not isinstance(found.access, SSHAccess):
        raise NodeStartError("it is gone" if found is None or found.status == "exited" else "it cannot be entered")
    await clean_machine(found.access)
    return replace(found, hourly_price=found.hourly_price or instance.hourly_price or offered.source.hourly_price)
