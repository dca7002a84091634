"""Checks that every provider passes: its operations do what `skyward.providers.Provider` promises."""

import dataclasses

import skyward as sky
from skyward.providers import PROVIDER_FIELDS, Cluster, Instance, Offer, ProviderConfig, SSHAccess
from skyward.providers.protocol import acts_on

__all__ = ["check_provider"]

TAGS = {"skyward-pool": "unit-1", "skyward-request": "unit-1-1"}


async def check_provider(config: ProviderConfig, *, machines: int = 2) -> None:
    """Launch and terminate `machines` machines with a provider, with each operation repeated by a second process.

    Raises:
        AssertionError: the provider breaks a promise.
    """
    provider, other = config.create_provider(), config.create_provider()
    offers: list[Offer] = [offer async for offer in provider.offers()]
    assert offers
    assert len({offer.id for offer in offers}) == len(offers)
    assert acts_on(config).fields <= PROVIDER_FIELDS
    spec = sky.Spec(provider=config)
    cluster = await provider.prepare(spec, offers[0], "unit-1")
    again = await other.prepare(spec, offers[0], "unit-1")
    assert (cluster.pool, cluster.spec, cluster.offer) == (again.pool, spec, offers[0])
    cluster = dataclasses.replace(cluster, tags=TAGS)
    try:
        assert list(await provider.find(cluster)) == []
        cluster, launched = await provider.provision(cluster, machines)
        ids = [each.id for each in launched]
        assert 0 < len(set(ids)) == len(ids) <= machines
        for each in launched:
            _check_instance(each, await provider.get_instance(cluster, each.id))
        assert sorted(each.id for each in await other.find(cluster)) == sorted(ids)
        await provider.terminate(cluster, ids[:1])
        assert sorted(each.id for each in await provider.find(cluster)) == sorted(ids[1:])
        await other.terminate(cluster, ids)
        assert list(await provider.find(cluster)) == []
        assert (await other.get_instance(cluster, ids[-1]))[1] is None
    finally:
        await provider.teardown(cluster)
        await other.teardown(cluster)


def _check_instance(launched: Instance, found: tuple[Cluster, Instance | None]) -> None:
    _, instance = found
    assert instance is not None
    assert instance.id == launched.id
    if instance.status == "running":
        assert instance.access is not None
        assert instance.address or isinstance(instance.access, SSHAccess)
