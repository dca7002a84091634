"""`sky.Local` as a simulated cloud: prices, boot times, failures."""

import asyncio
import tempfile
import time
from pathlib import Path

import pytest

import skyward as sky
from skyward.errors import ProvisioningError, SpecError
from skyward.providers.protocol import Cluster, Instance, Provider
from skyward_providers.local import Local
from tests.identity import identity

pytestmark = pytest.mark.unit


def provisioned(settings: Local, count: int, pool: str = "unit") -> list[Instance]:
    """Request `count` machines, tear all of them down, and return those that were launched."""

    async def ask() -> list[Instance]:
        provider: Provider = settings.create_provider()
        (offer,) = [each async for each in provider.offers()]
        cluster: Cluster = await provider.prepare(sky.Spec(), offer, identity(pool))
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


def test_machines_have_the_simulated_price() -> None:
    assert [each.hourly_price for each in provisioned(Local(hourly_price=3.2), 2)] == [3.2, 3.2]
    assert [each.hourly_price for each in provisioned(Local(), 1)] == [0.0]


def test_launch_takes_the_boot_time() -> None:
    began = time.monotonic()
    provisioned(Local(boot_time=0.2), 1)
    assert time.monotonic() - began >= 0.2


def test_fraction_of_the_machines_fails_reproducibly_by_seed() -> None:
    came = len(provisioned(Local(fail_rate=0.5, seed=1), 100))
    assert 30 < came < 70
    assert len(provisioned(Local(fail_rate=0.5, seed=1), 100)) == came
    assert any(len(provisioned(Local(fail_rate=0.5, seed=seed), 100)) != came for seed in (2, 3, 4))


def test_launch_without_any_machine_reports_a_simulated_failure() -> None:
    with pytest.raises(ProvisioningError, match=r"^simulated failure \(fail_rate\)$"):
        provisioned(Local(fail_rate=1.0), 3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hourly_price": -1.0}, "hourly_price"),
        ({"boot_time": "soon"}, "boot_time"),
        ({"fail_rate": 1.5}, "fail_rate must be from 0 to 1, such as 0.2, but got 1.5."),
        ({"seed": -1}, "seed"),
        ({"outlives": "yes"}, "outlives must be True or False, but got 'yes'."),
    ],
)
def test_invalid_settings_of_local_nodes_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError) as refused:
        Local(**fields)  # type: ignore[arg-type]  # that is the point
    assert message in str(refused.value)


def test_outlives_is_refused_except_on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(SpecError, match="on Linux only: leave outlives=True out"):
        Local(outlives=True)


def test_pool_of_a_version_without_outlives_can_be_reaped() -> None:
    """The journal has its settings as that version wrote them."""
    old = Local.__new__(Local)
    for name in ("hourly_price", "boot_time", "fail_rate", "seed"):
        object.__setattr__(old, name, getattr(Local(), name))
    assert len(provisioned(old, 1)) == 1


def test_machine_without_a_worker_has_an_address_in_the_process_that_attaches() -> None:
    """Regression: it had none, so the worker that was started there could not join the cluster of its pool."""

    async def ask() -> None:
        settings = Local(outlives=True, hourly_price=2)
        first: Provider = settings.create_provider()
        (offer,) = [each async for each in first.offers()]
        cluster = await first.prepare(sky.Spec(), offer, identity("unit"))
        try:
            _, (machine,) = await first.provision(cluster, 1)
            _, found = await settings.create_provider().get_instance(cluster, machine.id)
            assert found is not None
            assert found.address
            assert (found.id, found.interface, found.hourly_price) == (machine.id, "lo", 2)
        finally:
            await first.teardown(cluster)

    asyncio.run(ask())
