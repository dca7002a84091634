"""`sky.Local` as a stand-in for a cloud: prices, slow boots, failures."""

import asyncio
import tempfile
import time
from pathlib import Path

import pytest

import skyward as sky
from skyward.errors import ProvisioningError, SpecError
from skyward.providers.protocol import Cluster, Instance, Provider
from skyward_providers.local import Local

pytestmark = pytest.mark.unit


def provisioned(settings: Local, count: int, pool: str = "unit") -> list[Instance]:
    """The machines that come of `count` that are asked for; nothing of them stays."""

    async def ask() -> list[Instance]:
        provider: Provider = settings.create_provider()
        (offer,) = [each async for each in provider.offers()]
        cluster: Cluster = await provider.prepare(sky.Spec(), offer, pool)
        try:
            _, machines = await provider.provision(cluster, count)
            found = await provider.find(cluster)
            assert sorted(each.id for each in found) == sorted(each.id for each in machines)
            for machine in machines:
                assert (await provider.get_instance(cluster, machine.id))[1] == machine
            await provider.terminate(cluster, [each.id for each in machines] * 2)
            assert not await provider.find(cluster)
            return list(machines)
        finally:
            await provider.teardown(cluster)

    machines = asyncio.run(ask())
    assert not Path(tempfile.gettempdir(), f"skyward-{pool}").exists()
    return machines


def test_machines_have_the_price() -> None:
    assert [each.hourly_price for each in provisioned(Local(hourly_price=3.2), 2)] == [3.2, 3.2]
    assert [each.hourly_price for each in provisioned(Local(), 1)] == [0.0]


def test_machines_take_their_time() -> None:
    began = time.monotonic()
    provisioned(Local(boot_time=0.2), 1)
    assert time.monotonic() - began >= 0.2


def test_a_part_of_the_machines_does_not_come_the_same_for_the_same_seed() -> None:
    came = len(provisioned(Local(fail_rate=0.5, seed=1), 100))
    assert 30 < came < 70
    assert len(provisioned(Local(fail_rate=0.5, seed=1), 100)) == came
    assert any(len(provisioned(Local(fail_rate=0.5, seed=seed), 100)) != came for seed in (2, 3, 4))


def test_when_none_comes_it_says_that_it_was_told_to() -> None:
    with pytest.raises(ProvisioningError, match=r"^this machine was told to fail \(fail_rate\)$"):
        provisioned(Local(fail_rate=1.0), 3)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"hourly_price": -1.0}, "hourly_price"),
        ({"boot_time": "soon"}, "boot_time"),
        ({"fail_rate": 1.5}, "fail_rate must be from 0 to 1, such as 0.2, but got 1.5."),
        ({"seed": -1}, "seed"),
        ({"outlives": "yes"}, "outlives must be True or False, but got 'yes'."),
    ],
)
def test_what_is_no_such_number_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError) as refused:
        Local(**fields)  # type: ignore[arg-type]  # that is the point
    assert said in str(refused.value)


def test_nodes_that_outlive_their_client_are_on_linux_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(SpecError, match="on Linux only: leave outlives=True out"):
        Local(outlives=True)


def test_pools_of_a_version_without_outlives_can_be_reaped() -> None:
    """Their settings are in the journal, as that version wrote them."""
    old = Local.__new__(Local)
    for name in ("hourly_price", "boot_time", "fail_rate", "seed"):
        object.__setattr__(old, name, getattr(Local(), name))
    assert len(provisioned(old, 1)) == 1
