"""Checks that every provider passes: its operations do what `skyward.providers.Provider` promises.

A provider of another package imports and runs them too, against its cloud or a fake of it (docs/extend/providers.md).
They are coroutines that raise `AssertionError`, with what was expected of which operation.
"""

import asyncio
import hmac
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from skyward.errors import SkywardError
from skyward.providers.identity import PoolIdentity
from skyward.providers.protocol import (
    PROVIDER_FIELDS,
    CheckableProvider,
    Cluster,
    ImageBuildingProvider,
    Instance,
    Leftover,
    Offer,
    Provider,
    ProviderConfig,
    SSHAccess,
    SweepableProvider,
    acts_on,
)
from skyward.specs import Spec

__all__ = ["OWNER", "check_provider", "check_refusal", "conformance_identity"]

OWNER = "conformance"
_POOL = f"Unit_1-{'long-' * 6}own-0123456789"
_NEIGHBOUR = "unit-2"
_LONGEST = 600
"""Owner of the machines, ids of their pools, the first as long as one may be, and characters of the longest message."""


def conformance_identity(pool: str, folder: Path) -> PoolIdentity:
    """Return the identity of a pool, always the same. Its key file goes to `folder`."""

    def derive(purpose: str) -> bytes:
        return hmac.digest(pool.encode(), purpose.encode(), "sha256")

    return PoolIdentity(pool, OWNER, folder / f"{pool}.key", derive)


async def check_provider(
    config: ProviderConfig,
    folder: Path,
    *,
    machines: int = 2,
    spec: Spec | None = None,
    choose: Callable[[Sequence[Offer]], Offer] = lambda offers: offers[0],
    boot_within: float = 60.0,
) -> None:
    """Launch and terminate `machines` machines with a provider, with each operation repeated by a second process.

    Args:
        folder: a temporary folder for key files.
        spec: the machines to launch; its provider is replaced by `config`.
        choose: returns the offer to launch from. Its first market is used.
        boot_within: seconds for the machines to run.

    Raises:
        AssertionError: the provider breaks a promise.
    """
    provider, other = config.create_provider(), config.create_provider()
    offers = [offer async for offer in provider.offers()]
    _check_offers(config, offers)
    offer = choose(offers)
    spec = replace(spec or Spec(), provider=config, allocation=offer.markets[0])
    pool, neighbour = conformance_identity(_POOL, folder), conformance_identity(_NEIGHBOUR, folder)
    cluster, again = await provider.prepare(spec, offer, pool), await other.prepare(spec, offer, pool)
    same = (cluster.pool, cluster.spec, cluster.offer) == (again.pool, again.spec, again.offer)
    assert same, "prepare() returns another cluster when it is repeated"
    beside = await provider.prepare(spec, offer, neighbour)
    cluster = replace(cluster, tags={**pool.tags, "skyward-request": "request-1"})
    beside = replace(beside, tags={**neighbour.tags, "skyward-request": "request-2"})
    try:
        assert list(await provider.find(cluster)) == [], "find() returns machines before any was launched"
        cluster, launched = await provider.provision(cluster, machines)
        ids = [each.id for each in launched]
        assert ids, "provision() returns no machine"
        assert len(set(ids)) == len(ids) <= machines, "provision() returns a machine twice, or too many"
        cluster = await _check_boot(provider, cluster, ids, boot_within)
        beside, others = await provider.provision(beside, 1)
        assert await _ids(other, cluster) == sorted(ids), "find() of another process returns other machines"
        await _check_leftovers(provider, [*ids, *(each.id for each in others)])
        if isinstance(provider, ImageBuildingProvider):
            assert isinstance(other, ImageBuildingProvider)
            scopes = [await each.image_scope(spec, offer) for each in (provider, other)]
            assert scopes[0] == scopes[1] != "", "image_scope() differs between processes, or is empty"
            await _check_images(provider, other, cluster, beside, ids[0])
        await provider.terminate(cluster, ids[:1])
        assert await _ids(provider, cluster) == sorted(ids[1:]), "a terminated machine exists, or another does not"
        await other.terminate(cluster, ids)
        assert await _ids(provider, cluster) == [], "machines exist after terminate()"
        _, gone = await other.get_instance(cluster, ids[-1])
        assert gone is None or gone.status == "exited", "get_instance() returns a terminated machine as existing"
        assert await _ids(provider, beside) == [each.id for each in others], "machines of another pool are gone"
    finally:
        for one in (cluster, beside):
            await provider.terminate(one, [each.id for each in await provider.find(one)])
            await provider.teardown(one)
            await other.teardown(one)
    if isinstance(provider, SweepableProvider):
        left = await provider.leftovers(OWNER)
        assert not left, f"resources are left after teardown(): {[(each.kind, each.id) for each in left]}"
    if isinstance(provider, CheckableProvider):
        problems = [check.problem for check in await provider.check() if check.problem]
        assert not problems, f"check() reports problems of a working account: {problems}"


def _check_offers(config: ProviderConfig, offers: Sequence[Offer]) -> None:
    assert offers, "offers() yields nothing"
    assert len({offer.id for offer in offers}) == len(offers), "two offers have the same id"
    assert acts_on(config).fields <= PROVIDER_FIELDS, "acts_on names fields that are not of PROVIDER_FIELDS"
    for offer in offers:
        for market in offer.markets:
            price = offer.hourly_price(market)
            assert price is None or price >= 0, f"offer {offer.id} has a negative price"


async def _check_boot(provider: Provider, cluster: Cluster, ids: Sequence[str], within: float) -> Cluster:
    """Ask for each machine until it runs; return the cluster as the provider returned it last."""
    until, pause = time.monotonic() + within, 0.02
    for id in ids:
        while True:
            cluster, instance = await provider.get_instance(cluster, id)
            assert instance is None or instance.id == id, "get_instance() returns another machine"
            assert instance is None or instance.status != "exited", (
                f"machine {id} ended: {instance and instance.detail}"
            )
            if instance is not None and instance.status == "running" and instance.access is not None:
                _check_instance(instance)
                break
            assert time.monotonic() < until, f"machine {id} does not run after {within:g} s: {instance}"
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 1.0)
    return cluster


def _check_instance(instance: Instance) -> None:
    assert instance.access is not None
    assert instance.address or isinstance(instance.access, SSHAccess), "a running machine has no address"
    assert instance.hourly_price >= 0, "a machine has a negative price"


async def _check_leftovers(provider: Provider, ids: Sequence[str]) -> None:
    if not isinstance(provider, SweepableProvider):
        return
    found: Sequence[Leftover] = await provider.leftovers(OWNER)
    listed = {each.id for each in found if each.kind == "machine"}
    assert set(ids) <= listed, f"leftovers() does not list the machines {sorted(set(ids) - listed)}"
    pools = {each.pool for each in found}
    assert _POOL in pools, "leftovers() does not tell the pool of what it lists"
    unknown = pools - {_POOL, _NEIGHBOUR}
    assert not unknown, f"leftovers() tells pools that do not exist, so that a sweep would remove it: {unknown}"
    assert not await provider.leftovers("somebody-else"), "leftovers() lists what belongs to another owner"


class _Builder(Provider, ImageBuildingProvider, Protocol):
    """A provider that makes images."""


async def _check_images(provider: _Builder, other: _Builder, cluster: Cluster, beside: Cluster, machine: str) -> None:
    """Make an image of a machine, launch another from it, and delete both."""
    image = await provider.make_image(cluster, machine, "skyward-conformance-1")
    try:
        assert image.size_gb >= 0, "make_image() returns an image of a negative size"
        assert json.loads(json.dumps(dict(image.specific))) == dict(image.specific), "JSON cannot hold its data"
        assert await other.image_exists(image), "image_exists() does not know a new image"
        found = [each.id for each in await other.find_images(cluster)]
        assert found == [image.id], f"find_images() returns {found} after one image was made"
        assert not await other.find_images(beside), "find_images() returns the images of another pool"
        again = replace(cluster, machine_image=image, tags={**cluster.tags, "skyward-request": "request-3"})
        _, launched = await provider.provision(again, 1)
        assert len(launched) == 1, "provision() launches no machine from an image"
        await provider.terminate(again, [each.id for each in launched])
    finally:
        await other.delete_image(image)
    await provider.delete_image(image)
    assert not await provider.image_exists(image), "an image exists after delete_image()"
    assert not await provider.find_images(cluster), "find_images() returns an image that was deleted"


async def _ids(provider: Provider, cluster: Cluster) -> list[str]:
    return sorted(each.id for each in await provider.find(cluster))


async def check_refusal(
    config: ProviderConfig,
    folder: Path,
    expected: type[SkywardError],
    refuse: Callable[[], Awaitable[None] | None],
    *,
    choose: Callable[[Sequence[Offer]], Offer] = lambda offers: offers[0],
) -> SkywardError:
    """Check that `provision` raises `expected` after `refuse` made the cloud refuse launches; return the error.

    Raises:
        AssertionError: it raises another error, or leaves a machine, or its message is more than a sentence or two.
    """
    provider = config.create_provider()
    offer = choose([offer async for offer in provider.offers()])
    spec = Spec(provider=config, allocation=offer.markets[0])
    pool = conformance_identity("unit-3", folder)
    cluster = replace(
        await provider.prepare(spec, offer, pool), tags={**pool.tags, "skyward-request": f"request-{expected.__name__}"}
    )
    try:
        if (waiting := refuse()) is not None:
            await waiting
        refusal = await _refusal(provider, cluster)
        assert refusal is not None, f"provision() succeeds, although the cloud refuses with {expected.__name__}"
        assert type(refusal) is expected, f"provision() raises {type(refusal).__name__}: {refusal}"
        assert "\n" not in str(refusal).strip(), f"the message is more than a sentence: {refusal}"
        assert len(str(refusal)) < _LONGEST, f"the message is too long: {refusal}"
        assert list(await provider.find(cluster)) == [], "a machine exists after a refused launch"
        return refusal
    finally:
        await provider.terminate(cluster, [each.id for each in await provider.find(cluster)])
        await provider.teardown(cluster)


async def _refusal(provider: Provider, cluster: Cluster) -> SkywardError | None:
    try:
        await provider.provision(cluster, 1)
    except SkywardError as error:
        return error
    return None
