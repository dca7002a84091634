"""Pools whose providers have offers: requested machines, and reports on the rest."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

import skyward as sky
from skyward.errors import ProvisioningError
from skyward.providers import Cluster, Instance, InstanceType, Offer, PoolIdentity, Provider
from skyward.specs import Spec
from tests.waiting import wait_for

ASKED: list[tuple[str, str, str]] = []
"""Provider, type and market of every request for machines."""

PREPARED: list[str] = []
"""The provider of every prepared source."""

LOST: list[int] = []
"""Numbers of the requests whose answers are lost, from 1 on."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Local nodes that are sold as offers. Markets in `sold_out` have none.

    `charged` and `charged_later` are the prices of machines once they are launched, and once they run.
    """

    name: str
    listed: tuple[Offer, ...] = ()
    sold_out: tuple[str, ...] = ()
    error: str = ""
    unprepared: str = ""
    charged: float = 0.0
    charged_later: float = 0.0

    def create_provider(self) -> Provider:
        return _Catalogue(self, sky.Local().create_provider())


class _Catalogue:
    def __init__(self, settings: Catalogue, local: Any) -> None:
        self._settings = settings
        self._local = local
        self.find = local.find
        self.terminate, self.teardown = local.terminate, local.teardown

    async def offers(self) -> AsyncIterator[Offer]:
        for offer in self._settings.listed:
            yield offer
        if self._settings.error:
            raise OSError(self._settings.error)

    async def prepare(self, spec: Spec, offer: Offer, pool: PoolIdentity) -> Cluster:
        PREPARED.append(self._settings.name)
        if self._settings.unprepared:
            raise ProvisioningError(self._settings.unprepared)
        prepared: Cluster = await self._local.prepare(spec, offer, pool)
        return prepared

    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        market = cluster.spec.allocation
        ASKED.append((self._settings.name, cluster.offer.instance_type.name, market))
        if market in self._settings.sold_out:
            raise sky.NoCapacityError("no capacity")
        found: tuple[Cluster, Sequence[Instance]] = await self._local.provision(cluster, count)
        if len(ASKED) in LOST:
            raise OSError("the connection broke")
        charged, later = self._settings.charged, self._settings.charged_later
        if charged or later:
            status: Any = "provisioning" if later else "running"
            found = found[0], [replace(each, hourly_price=charged, status=status) for each in found[1]]
        return found

    async def get_instance(self, cluster: Cluster, instance_id: str) -> tuple[Cluster, Instance | None]:
        cluster, found = await self._local.get_instance(cluster, instance_id)
        charged = self._settings.charged_later or self._settings.charged
        return cluster, replace(found, hourly_price=charged) if found is not None and charged else found


@pytest.fixture(autouse=True)
def _nothing_asked() -> None:
    ASKED.clear()
    PREPARED.clear()
    LOST.clear()


def offer(name: str, spot: float | None, on_demand: float | None, vcpus: float = 8, **details: Any) -> Offer:
    return Offer(name, InstanceType(name, vcpus, 32), spot, on_demand, **details)


@sky.function
def one() -> int:
    return 1


def test_spot_is_tried_first_and_on_demand_when_there_is_none() -> None:
    listed = (offer("dear", 3.0, 2.5), offer("cheap", 2.0, 5.0))
    with sky.Compute(provider=Catalogue("cloud", listed)) as pool:
        assert one() >> pool == 1
    assert ASKED == [("cloud", "cheap", "spot")]
    ASKED.clear()
    PREPARED.clear()
    with sky.Compute(provider=Catalogue("cloud", listed, sold_out=("spot",))) as pool:
        assert one() >> pool == 1
        assert pool.snapshot().nodes[0].hourly_price == 2.5
    assert [market for _, _, market in ASKED] == ["spot", "spot", "on-demand"]
    assert ASKED[-1] == ("cloud", "dear", "on-demand")


TWO = (offer("x1", None, 1.0), offer("x2", None, 20.0))


def test_offer_whose_answer_was_lost_is_asked_again_before_one_that_costs_more(
    capsys: pytest.CaptureFixture[str],
) -> None:
    LOST.extend([1, 2])
    with sky.Compute(provider=Catalogue("cloud", TWO), warn_above=5, provision_retry_delay=0.01) as pool:
        assert one() >> pool == 1
    assert [kind for _, kind, _ in ASKED] == ["x1"] * 3
    told = capsys.readouterr().err
    assert "x2" not in told
    assert "above the limit" not in told


def test_nodes_of_another_offer_than_announced_are_named_with_their_price(capsys: pytest.CaptureFixture[str]) -> None:
    LOST.extend([1, 2, 3])
    with sky.Compute(provider=Catalogue("cloud", TWO), warn_above=5, provision_retry_delay=0.01) as pool:
        assert one() >> pool == 1
    assert [kind for _, kind, _ in ASKED] == ["x1"] * 3 + ["x2"]
    told = " ".join(capsys.readouterr().err.split())
    assert "Nodes come from cloud x1 on-demand at $1.00 per hour each, the first of 2 offers that fit." in told
    change = (
        "nodes come from cloud x2 on-demand at $20.00 per hour each instead of cloud x1 on-demand at $1.00 per hour"
    )
    assert f"{change} each: provider 'cloud' raised OSError in provision(): the connection broke." in told
    assert told.count("may cost $20.00 per hour, which is above the limit of $5.00") == 1


def test_cheapest_of_several_providers_is_by_the_hour_and_a_failing_one_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    specs = [
        Spec(provider=Catalogue("hourly", (offer("h", None, 2.0),)), vcpus=4),
        Spec(provider=Catalogue("secondly", (offer("s", None, 0.001, billing_unit="second"),)), vcpus=4),
        Spec(provider=Catalogue("small", (offer("tiny", None, 0.01, vcpus=2),)), vcpus=4),
        Spec(provider=Catalogue("broken", (offer("b", None, 0.02),), error="401 Unauthorized"), vcpus=4),
    ]
    with sky.Compute(*specs) as pool:
        assert one() >> pool == 1
    assert ASKED == [("hourly", "h", "on-demand")]
    notice = "Provider 'broken' is left out, because it did not list its offers: 401 Unauthorized."
    assert notice in capsys.readouterr().err


def test_nothing_is_requested_if_nothing_matches() -> None:
    spec = Spec(provider=Catalogue("cloud", (offer("m", None, 9.0),)), max_hourly_cost=2)
    with pytest.raises(sky.NoOffersError, match="the nearest, m, costs 9 of at most 2 USD per hour"), sky.Compute(spec):
        pass
    assert ASKED == []


@pytest.mark.parametrize("when", ["charged", "charged_later"])
def test_machine_that_costs_more_than_the_spec_allows_is_not_used(
    when: str, capsys: pytest.CaptureFixture[str]
) -> None:
    charged: Any = {when: 2.5}
    risen = Catalogue("risen", (offer("m", None, 1.0),), **charged)
    specs = [Spec(provider=each, max_hourly_cost=2) for each in (risen, Catalogue("fair", (offer("m", None, 1.5),)))]
    with sky.Compute(*specs, name="limited") as pool:
        assert one() >> pool == 1
        assert [node.hourly_price for node in pool.snapshot().nodes if node.state == "active"] == [1.5]
        wait_for(lambda: pool.snapshot().provider == "fair", "the provider of the machine to be shown")
    assert [provider for provider, _, _ in ASKED] == ["risen", "fair"]
    assert "it costs $2.50 per hour instead of at most $2.00 (max_hourly_cost)" in capsys.readouterr().err
    bills = {each.kind: each.machines for each in sky.costs() if each.pool == "limited"}
    assert bills == {"risen m on-demand": 1, "fair m on-demand": 1}


def test_pool_of_which_every_machine_costs_too_much_is_not_opened() -> None:
    risen = Catalogue("risen", (offer("m", None, 1.0),), charged=2.5)
    with pytest.raises(ProvisioningError, match=r"it costs \$2.50 per hour instead of at most \$2.00"):
        sky.Compute(Spec(provider=risen, max_hourly_cost=2)).open()


@pytest.mark.parametrize("when", ["charged", "charged_later"])
def test_machines_that_cost_more_than_was_announced_are_told_and_billed_so(
    when: str, capsys: pytest.CaptureFixture[str]
) -> None:
    charged: Any = {when: 3600.0}
    risen = Catalogue("risen", (offer("m", None, 1.0),), **charged)
    with sky.Compute(provider=risen, name="risen", nodes=2, warn_above=5) as pool:
        assert sum(one() @ pool) == 2
        snapshot = pool.snapshot()
    assert snapshot.per_hour == 7200.0
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("nodes from risen m on-demand cost $3,600.00 per hour each instead of the listed $1.00.") == 1
    assert "may cost $7,200.00 per hour, which is above the limit of $5.00" in told
    assert sum(each.spent for each in sky.costs() if each.pool == "risen") > 2 * 0.1


def test_machines_whose_price_is_known_only_once_they_run_are_billed(capsys: pytest.CaptureFixture[str]) -> None:
    with sky.Compute(provider=Catalogue("late", (offer("m", None, None),), charged_later=3600.0), name="late") as pool:
        assert one() >> pool == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "nodes from late m on-demand cost $3,600.00 per hour each instead of an unknown price." in told
    (bill,) = [each for each in sky.costs() if each.pool == "late"]
    assert bill.spent == pytest.approx(bill.hours * 3600.0)
    assert bill.spent > 0


def test_budget_needs_a_known_price() -> None:
    unpriced = Catalogue("cloud", (offer("m", None, None),))
    with pytest.raises(sky.NoOffersError, match="budget excludes 1; .* has no known price"):
        sky.Compute(provider=unpriced, budget=5).__enter__()
    with sky.Compute(provider=unpriced) as pool:
        assert one() >> pool == 1
        with pytest.raises(sky.UsageError, match="may have nodes at cloud m on-demand, whose price is not known"):
            pool.set_budget(5)
        assert pool.snapshot().budget is None
        pool.set_budget(None)


def test_offer_that_cannot_be_prepared_is_named_and_the_next_one_is_used(
    capfd: pytest.CaptureFixture[str],
) -> None:
    broken = Spec(provider=Catalogue("cheap", (offer("m", None, 1.0),), unprepared="no quota"))
    with sky.Compute(broken, Spec(provider=Catalogue("dear", (offer("m", None, 2.0),)))) as pool:
        assert one() >> pool == 1
    assert ASKED == [("dear", "m", "on-demand")]
    assert "cheap m on-demand is tried last, because it could not be prepared: no quota." in (capfd.readouterr().err)
    with pytest.raises(ProvisioningError, match="no quota"):
        sky.Compute(broken).open()


def test_providers_of_one_name_with_different_settings_are_alternatives() -> None:
    full, free = (Catalogue("cloud", (offer("m", None, 1.0),), sold_out=sold) for sold in (("on-demand",), ()))
    with sky.Compute(Spec(provider=full), Spec(provider=free)) as pool:
        assert one() >> pool == 1
    assert len(ASKED) == 2


def test_provider_that_refuses_is_asked_once_for_all_its_offers() -> None:
    many = tuple(offer(f"m{number}", 0.1, 0.2) for number in range(20))
    broken = Catalogue("cheap", many, unprepared="no quota")
    with sky.Compute(Spec(provider=broken), Spec(provider=Catalogue("dear", (offer("m", None, 2.0),)))) as pool:
        assert one() >> pool == 1
    assert PREPARED == ["cheap", "dear"]
    assert ASKED == [("dear", "m", "on-demand")]


def test_alternatives_of_one_provider_share_its_preparation() -> None:
    provider = Catalogue(
        "cloud", tuple(offer(f"m{number}", None, 1.0 + number) for number in range(12)), ("on-demand",)
    )
    specs = Spec(provider=provider, vcpus=4), Spec(provider=provider, memory_gb=16)
    with pytest.raises(ProvisioningError, match="no capacity"):
        sky.Compute(*specs, max_provision_attempts=3, provision_retry_delay=5).open()
    assert [kind for _, kind, _ in ASKED[:3]] == ["m0", "m1", "m2"]
