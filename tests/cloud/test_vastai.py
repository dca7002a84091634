"""Vast.ai: the provider against its API, and the fake against the vendor's client."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

import skyward as sky
from skyward.accelerators import describe, from_name
from skyward.providers import Cluster, Offer, SSHAccess
from skyward.providers.conformance import check_provider, check_refusal, conformance_identity
from skyward.specs import Allocation
from skyward_providers.vastai.machine import gpu_of
from skyward_providers.vastai.provider import VastAIProvider
from tests.cloud.kills import reaped_after_each_kill
from tests.fakes.openapi import description
from tests.fakes.server import Answer
from tests.fakes.ssh_banner import BannerServer
from tests.fakes.vastai import KEY, NO_CAPACITY, FakeVastAI, amend, offer, unpacked
from tests.fakes.vendor import run_vendor

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(300)]

ASK = r"/api/v0/asks/\d+/"


@pytest.fixture
def banner() -> Iterator[BannerServer]:
    """The SSH server of instances that are data."""
    with BannerServer() as server:
        yield server


@pytest.fixture
def vastai(banner: BannerServer) -> Iterator[FakeVastAI]:
    """Vast.ai, whose instances are data, with a few offers."""
    with FakeVastAI(description("vastai-openapi.yaml", amend)) as cloud:

        def address(instance: Mapping[str, Any]) -> tuple[str, int]:
            banner.set_up(unpacked(instance["onstart"]))
            return "127.0.0.1", banner.port

        cloud.address = address
        cloud.add(*(offer(7001 + each, price=0.4 + each / 100) for each in range(4)))
        yield cloud
        assert cloud.wrong == []


def settings(cloud: FakeVastAI) -> sky.VastAI:
    return sky.VastAI(api_key=KEY, endpoint=cloud.url)


def on_demand(offers: Sequence[Offer]) -> Offer:
    found = min(offers, key=lambda each: each.on_demand_price or 0)
    return replace(found, spot_price=None)


async def listed(config: sky.VastAI) -> dict[str, Offer]:
    return {each.id: each async for each in config.create_provider().offers()}


async def prepared(
    cloud: FakeVastAI, tmp_path: Path, id: int = 7001, allocation: Allocation = "on-demand", **spec: Any
) -> Cluster:
    offers = await listed(settings(cloud))
    pool = conformance_identity("unit-1", tmp_path)
    found = sky.Spec(provider=settings(cloud), allocation=allocation, **spec)
    cluster = await settings(cloud).create_provider().prepare(found, offers[str(id)], pool)
    return replace(cluster, tags={**pool.tags, "skyward-request": "request-1"})


def asked(cloud: FakeVastAI) -> list[int]:
    """Return the offers that were asked for, in order."""
    return [int(each.path.split("/")[-2]) for each in cloud.requests if each.method == "PUT" and "asks" in each.path]


def test_provider_passes_the_conformance_suite(vastai: FakeVastAI, tmp_path: Path) -> None:
    asyncio.run(check_provider(settings(vastai), tmp_path, choose=on_demand))
    assert vastai.instances == {}
    assert vastai.keys == {}


def test_bids_pass_the_conformance_suite(vastai: FakeVastAI, tmp_path: Path) -> None:
    asyncio.run(check_provider(settings(vastai), tmp_path))
    rents = [each.body for each in vastai.requests if "asks" in each.path]
    assert rents
    assert all(each["price"] >= 0.2 * 1.2 and each["cancel_unavail"] for each in rents)
    assert vastai.instances == {}


def test_offers_have_both_markets_and_the_part_of_the_machine(vastai: FakeVastAI) -> None:
    vastai.add(
        offer(7100, "A100 SXM4", 4, 4.0, gpu_frac=0.5, cpu_ram=524_288, cpu_cores_effective=60.0),
        offer(7101, reliability2=0.8),
        offer(7102, verification="unverified"),
        offer(7103, cuda_max_good=11.8),
        offer(7104, geolocation="Texas, US"),
        offer(7105, disk_space=20.0),
    )
    offers = asyncio.run(listed(settings(vastai)))
    assert {"7101", "7102", "7103", "7105"}.isdisjoint(offers)
    large = offers["7100"]
    disk = 0.15 * 100 / 720
    assert large.on_demand_price == pytest.approx(4.0 + disk)
    assert large.spot_price == pytest.approx(2.0 * 1.2 + disk)
    kind = large.instance_type
    assert (kind.accelerator, kind.accelerator_count, kind.accelerator_memory_gb) == ("A100 SXM4", 4, 80)
    assert (kind.vcpus, kind.memory_gb) == (60, 256)
    assert (large.region, offers["7104"].region) == ("SE", "US")
    american = asyncio.run(listed(replace(settings(vastai), geolocation=["us"], verified_only=False)))
    assert set(american) == {"7104"}


@pytest.mark.parametrize(
    ("listed_as", "usual"),
    [
        ("RTX 4080S", "RTX_4080_Super"), ("RTX 4070S Ti", "RTX_4070_Ti_Super"), ("GTX 1660 S", "GTX_1660_Super"),
        ("Q RTX 8000", "Quadro_RTX_8000"), ("RTX PRO 6000 WS", "RTX_PRO_6000"), ("RTX 4090", "RTX_4090"),
        ("A100 SXM4", "A100"), ("L40S", "L40S"), ("RTX 6000Ada", "RTX_6000_Ada"), ("H100 NVL", "H100"),
    ],
)  # fmt: skip  # one name a line is long
def test_gpus_have_their_usual_names(listed_as: str, usual: str) -> None:
    assert describe(gpu_of(listed_as)).model == from_name(usual).name


def test_provider_keeps_to_the_intervals_of_the_api(vastai: FakeVastAI, tmp_path: Path) -> None:
    vastai.intervals = {
        r"PUT /api/v0/asks/\d+": 0.6, "POST /api/v0/bundles": 0.4, "GET /api/v1/instances": 0.2,
        r"DELETE /api/v0/instances/\d+": 0.4,
    }  # fmt: skip  # a table
    asyncio.run(check_provider(settings(vastai), tmp_path, choose=on_demand))
    assert vastai.instances == {}


REFUSALS = {
    "taken": (sky.NoCapacityError, NO_CAPACITY),
    "bid more": (sky.NoCapacityError, Answer(400, {"error": "invalid_price", "msg": "error 400/3511: bid too low"})),
    "no credit": (sky.CredentialsError, Answer(400, {"error": "invalid_args", "msg": "Your account lacks credit"})),
    "bad key": (
        sky.CredentialsError,
        Answer(401, {"success": False, "error": "auth_error", "msg": "Invalid user key"}),
    ),
    "too fast": (sky.RateLimitError, Answer(429, "API requests too frequent: endpoint threshold=120.0")),
    "bad request": (sky.ProvisioningError, Answer(400, {"error": "invalid_args", "msg": "Invalid args: image"})),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_are_told_apart(vastai: FakeVastAI, tmp_path: Path, case: str) -> None:
    expected, answer = REFUSALS[case]
    if expected is sky.ProvisioningError:

        async def main() -> sky.ProvisioningError:
            cluster = await prepared(vastai, tmp_path)
            vastai.fail("PUT", ASK, answer, times=-1)
            with pytest.raises(sky.ProvisioningError) as raised:
                await settings(vastai).create_provider().provision(cluster, 1)
            return raised.value

        error: sky.SkywardError = asyncio.run(main())
        assert "Invalid args: image" in str(error)
    else:
        refuse = lambda: vastai.fail("PUT", ASK, answer, times=-1)  # noqa: E731  # one call
        error = asyncio.run(check_refusal(settings(vastai), tmp_path, expected, refuse))
    assert KEY not in str(error)
    if isinstance(error, sky.RateLimitError):
        assert error.retry_after == 120
    assert vastai.instances == {}


def test_search_quota_is_not_retried(vastai: FakeVastAI) -> None:
    quota = Answer(429, {"error": "search_quota_exceeded", "msg": "Daily search quota exceeded"})
    vastai.fail("POST", "/api/v0/bundles/", quota, times=-1)
    with pytest.raises(sky.RateLimitError, match="no more searches today"):
        asyncio.run(listed(settings(vastai)))
    assert len(vastai.requests) <= 2


def test_wait_between_requests_is_read_from_the_answer(vastai: FakeVastAI, tmp_path: Path) -> None:
    vastai.intervals = {r"PUT /api/v0/asks/\d+": 0.7}

    async def main() -> int:
        cluster = await prepared(vastai, tmp_path)
        _, machines = await settings(vastai).create_provider().provision(cluster, 3)
        return len(machines)

    assert asyncio.run(main()) == 3
    assert len(asked(vastai)) <= 6


def test_bad_key_of_a_search_is_a_credentials_error(vastai: FakeVastAI) -> None:
    with pytest.raises(sky.CredentialsError, match="does not know the API key") as raised:
        asyncio.run(listed(replace(settings(vastai), api_key="another-key")))
    assert "another-key" not in str(raised.value)


def test_taken_offer_is_replaced_by_a_similar_one(vastai: FakeVastAI, tmp_path: Path) -> None:
    async def main() -> list[float]:
        cluster = await prepared(vastai, tmp_path)
        vastai.offers[7001]["rented"] = True
        _, machines = await settings(vastai).create_provider().provision(cluster, 2)
        return [each.hourly_price for each in machines]

    prices = asyncio.run(main())
    assert asked(vastai) == [7001, 7002, 7003]
    assert prices == pytest.approx([0.41 + 0.15 * 100 / 720, 0.42 + 0.15 * 100 / 720])


def test_similar_machines_fit_the_spec_and_cost_little_more(vastai: FakeVastAI, tmp_path: Path) -> None:
    vastai.offers.clear()
    vastai.add(
        offer(7001),
        offer(7002, price=0.41, cpu_ram=16_384),
        offer(7003, price=0.42, cpu_cores_effective=2.0),
        offer(7004, price=0.43, disk_space=150.0),
        offer(7005, price=0.44, cpu_arch="arm64"),
        offer(7006, price=0.45, count=2),
        offer(7007, price=0.70),
        offer(7008, price=0.46),
    )

    async def main() -> int:
        cluster = await prepared(vastai, tmp_path, vcpus=4, memory_gb=32, disk_gb=200)
        _, machines = await settings(vastai).create_provider().provision(cluster, 4)
        return len(machines)

    assert asyncio.run(main()) == 2
    assert asked(vastai) == [7001, 7008]


def test_larger_disk_counts_in_the_price_and_excludes_the_offers_own_machine(
    vastai: FakeVastAI, tmp_path: Path
) -> None:
    vastai.offers.clear()
    vastai.add(offer(7001, disk_space=150.0), offer(7002, price=0.41))

    async def main(**spec: Any) -> list[float]:
        cluster = await prepared(vastai, tmp_path, disk_gb=400, **spec)
        _, machines = await settings(vastai).create_provider().provision(cluster, 1)
        return [each.hourly_price for each in machines]

    with pytest.raises(sky.NoCapacityError, match="at this price"):
        asyncio.run(main(max_hourly_cost=0.45))  # enough for a disk of 100 GB
    assert asyncio.run(main()) == pytest.approx([0.41 + 0.15 * 400 / 720])
    assert asked(vastai) == [7002]


def test_offers_that_lack_fields_are_left_out(vastai: FakeVastAI) -> None:
    vastai.offers.clear()
    vastai.add(offer(7001), offer(7002, gpu_ram=None), offer(7003, min_bid=0), offer(7004, machine_id=None))
    found = asyncio.run(listed(settings(vastai)))
    assert set(found) == {"7001", "7003"}
    assert found["7003"].markets == ("on-demand",)


def test_no_similar_offer_is_no_capacity(vastai: FakeVastAI, tmp_path: Path) -> None:
    async def main() -> None:
        cluster = await prepared(vastai, tmp_path)
        for each in vastai.offers.values():
            each["rented"] = True
        await settings(vastai).create_provider().provision(cluster, 2)

    with pytest.raises(sky.NoCapacityError, match="RTX 4090 x1"):
        asyncio.run(main())


def test_bid_follows_the_market(vastai: FakeVastAI, tmp_path: Path) -> None:
    vastai.offers.clear()
    vastai.add(offer(7001))

    async def main() -> None:
        cluster = await prepared(vastai, tmp_path, allocation="spot")
        vastai.offers[7001]["min_bid"] = 0.26
        await settings(vastai).create_provider().provision(cluster, 1)

    asyncio.run(main())
    assert [each.body["price"] for each in vastai.requests if "asks" in each.path] == [0.24, 0.312]


@pytest.mark.parametrize("hidden", [0, 2])
def test_lost_answer_does_not_rent_twice(
    vastai: FakeVastAI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: int
) -> None:
    monkeypatch.setattr(VastAIProvider, "poll", 0.02)
    vastai.hidden_listings = hidden

    async def main() -> tuple[list[str], list[str]]:
        cluster, provider = await prepared(vastai, tmp_path), settings(vastai).create_provider()
        vastai.fail("PUT", ASK, after=True)
        cluster, machines = await provider.provision(cluster, 2)
        while len(await provider.find(cluster)) < 2:  # not listed yet
            pass
        _, again = await settings(vastai).create_provider().provision(cluster, 2)
        return sorted(each.id for each in machines), sorted(each.id for each in again)

    machines, again = asyncio.run(main())
    assert machines == again == sorted(map(str, vastai.instances))
    assert asked(vastai) == [7001, 7002]


@pytest.mark.parametrize("answer", [None, Answer(502, "bad gateway")])
def test_lost_request_is_an_unknown_outcome(
    vastai: FakeVastAI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer | None
) -> None:
    monkeypatch.setattr(VastAIProvider, "settle", 0.1)
    monkeypatch.setattr(VastAIProvider, "poll", 0.02)

    async def main() -> None:
        cluster = await prepared(vastai, tmp_path)
        vastai.fail("PUT", ASK, answer)
        await settings(vastai).create_provider().provision(cluster, 1)

    with pytest.raises(Exception) as raised:  # noqa: PT011  # any but Skyward's own
        asyncio.run(main())
    assert not isinstance(raised.value, sky.SkywardError)
    assert asked(vastai) == [7001]


def test_lost_answer_and_refused_listing_is_an_unknown_outcome(vastai: FakeVastAI, tmp_path: Path) -> None:
    async def main() -> None:
        cluster = await prepared(vastai, tmp_path)
        vastai.fail("PUT", ASK, after=True)
        vastai.fail("GET", "/api/v1/instances/", Answer(401, {"error": "auth_error"}), skip=1, times=-1)
        await settings(vastai).create_provider().provision(cluster, 1)

    with pytest.raises(Exception) as raised:  # noqa: PT011  # any but Skyward's own
        asyncio.run(main())
    assert not isinstance(raised.value, sky.SkywardError)
    assert len(vastai.instances) == 1


def test_machine_runs_once_its_start_script_has_run(vastai: FakeVastAI, banner: BannerServer, tmp_path: Path) -> None:
    async def main() -> None:
        cluster, provider = await prepared(vastai, tmp_path), settings(vastai).create_provider()
        cluster, machines = await provider.provision(cluster, 1)
        id = machines[0].id
        ready, vastai.address = vastai.address, lambda instance: ("127.0.0.1", banner.port)
        while "SSH" not in (found := (await provider.find(cluster))[0]).detail:
            pass
        assert found.status == "provisioning"
        ready(vastai.instances[int(id)])
        _, running = await provider.get_instance(cluster, id)
        assert running is not None
        assert running.status == "running"
        assert isinstance(running.access, SSHAccess)
        assert running.access.host_key is not None
        assert (running.access.host, running.access.port, running.access.user) == ("127.0.0.1", banner.port, "root")

    asyncio.run(main())
    [instance] = vastai.instances.values()
    script = unpacked(instance["onstart"])
    assert "CONTAINER_API_KEY" in script
    assert KEY not in script


def test_machine_without_a_port_of_its_own_is_reached_through_the_proxy(vastai: FakeVastAI, tmp_path: Path) -> None:
    vastai.offers[7001]["direct_port_count"] = vastai.offers[7002]["direct_port_count"] = 0

    async def main(config: sky.VastAI, id: int) -> str:
        cluster, provider = await prepared(vastai, tmp_path, id), config.create_provider()
        cluster, machines = await provider.provision(cluster, 1)
        while (found := (await provider.find(cluster))[0]).status == "provisioning" and "loading" in found.detail:
            pass
        await provider.terminate(cluster, [machines[0].id])
        return found.detail or found.status

    assert asyncio.run(main(settings(vastai), 7001)) == "running"
    assert asyncio.run(main(replace(settings(vastai), require_direct_port=True), 7002)) == "it has no address yet"
    assert "7002" not in asyncio.run(listed(replace(settings(vastai), require_direct_port=True)))


def test_outbid_machine_has_ended_and_is_still_listed(vastai: FakeVastAI, tmp_path: Path) -> None:
    async def main() -> None:
        cluster, provider = await prepared(vastai, tmp_path, allocation="spot"), settings(vastai).create_provider()
        cluster, machines = await provider.provision(cluster, 1)
        vastai.outbid(int(machines[0].id))
        [found] = await provider.find(cluster)
        assert (found.status, found.spot) == ("exited", True)
        assert found.detail == "another renter has bid more for it"
        await provider.terminate(cluster, [found.id])

    asyncio.run(main())
    assert vastai.instances == {}


def test_many_instances_are_listed_page_by_page(vastai: FakeVastAI, tmp_path: Path) -> None:
    vastai.add(*(offer(8000 + each) for each in range(30)))

    async def main() -> list[int]:
        cluster, provider = await prepared(vastai, tmp_path), settings(vastai).create_provider()
        cluster, machines = await provider.provision(cluster, 30)
        found = await provider.find(cluster)
        await provider.terminate(cluster, [*(each.id for each in machines), "4242"])
        return [len(machines), len(found)]

    assert asyncio.run(main()) == [30, 30]
    assert vastai.instances == {}
    assert len([each for each in vastai.requests if each.method == "DELETE"]) == 1


def test_terminate_survives_failures(vastai: FakeVastAI, tmp_path: Path) -> None:
    async def main() -> None:
        cluster, provider = await prepared(vastai, tmp_path), settings(vastai).create_provider()
        cluster, machines = await provider.provision(cluster, 2)
        vastai.fail("DELETE", "/api/v0/instances/", Answer(400, {"error": "invalid_args", "msg": "no"}))
        vastai.fail("DELETE", r"/api/v0/instances/\d+/", Answer(502, "bad gateway"))
        vastai.fail("DELETE", r"/api/v0/instances/\d+/", after=True)
        await provider.terminate(cluster, [each.id for each in machines])
        await provider.terminate(cluster, [each.id for each in machines])

    asyncio.run(main())
    assert vastai.instances == {}


def test_refusal_in_an_answer_of_success_is_no_deletion(vastai: FakeVastAI, tmp_path: Path) -> None:
    refused = Answer(200, {"success": False, "msg": "Instance is busy."})

    async def main() -> None:
        cluster, provider = await prepared(vastai, tmp_path), settings(vastai).create_provider()
        cluster, machines = await provider.provision(cluster, 1)
        vastai.fail("DELETE", r"/api/v0/instances/\d+/", refused)
        with pytest.raises(
            sky.ProvisioningError, match=r"did not destroy instance 1001 \(Instance is busy\); try again"
        ):
            await provider.terminate(cluster, [machines[0].id])
        vastai.fail("DELETE", r"/api/v0/instances/\d+/", refused, after=True)
        await provider.terminate(cluster, [machines[0].id])  # it was destroyed nevertheless

    asyncio.run(main())
    assert vastai.instances == {}


def test_answer_without_instances_is_not_taken_for_none(vastai: FakeVastAI, tmp_path: Path) -> None:
    async def main() -> None:
        cluster, provider = await prepared(vastai, tmp_path), settings(vastai).create_provider()
        cluster, machines = await provider.provision(cluster, 1)
        vastai.fail("GET", "/api/v1/instances/", Answer(200, {"success": False, "msg": "try later"}), times=2)
        with pytest.raises(sky.ProvisioningError, match=r"did not list the instances \(try later\)"):
            await provider.find(cluster)
        with pytest.raises(sky.ProvisioningError, match="did not list"):
            await provider.get_instance(cluster, machines[0].id)
        await provider.terminate(cluster, [each.id for each in await provider.find(cluster)])

    asyncio.run(main())
    assert vastai.instances == {}


def test_unavailable_service_is_an_unknown_outcome(
    vastai: FakeVastAI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VastAIProvider, "settle", 0.2)
    monkeypatch.setattr(VastAIProvider, "poll", 0.05)

    async def main() -> None:
        cluster, provider = await prepared(vastai, tmp_path), settings(vastai).create_provider()
        vastai.fail("PUT", ASK, Answer(503, {"msg": "The service is not available."}), times=-1)
        with pytest.raises(httpx.HTTPStatusError):
            await provider.provision(cluster, 1)

    asyncio.run(main())


def test_key_is_found_in_its_usual_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("VAST_API_KEY", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert sky.VastAI().credentials().found == ""
    assert "VAST_API_KEY" in sky.VastAI().credentials().how
    (tmp_path / ".vast_api_key").write_text("legacy\n")
    assert sky.VastAI().credentials().found.endswith(".vast_api_key")
    (tmp_path / ".config" / "vastai").mkdir(parents=True)
    (tmp_path / ".config" / "vastai" / "vast_api_key").write_text("from-file\n")
    assert sky.VastAI().credentials().found.endswith(".config/vastai/vast_api_key")
    monkeypatch.setenv("VAST_API_KEY", "from-env")
    assert sky.VastAI().credentials().found == "environment variable VAST_API_KEY"
    assert "given" not in repr(sky.VastAI(api_key="given"))


def test_checks_name_a_bad_key_and_an_empty_account(vastai: FakeVastAI) -> None:
    async def problems(key: str) -> list[str]:
        provider = replace(settings(vastai), api_key=key).create_provider()
        assert isinstance(provider, VastAIProvider)
        return [each.problem for each in await provider.check()]

    assert asyncio.run(problems(KEY)) == ["", ""]
    assert all("does not know the API key" in each for each in asyncio.run(problems("another-key")))
    vastai.fail("GET", "/api/v0/users/current/", Answer(200, {"id": 7, "balance": 0.0}))
    assert asyncio.run(problems(KEY)) == ["Vast.ai rents nothing without credit; add some.", ""]


@pytest.mark.parametrize(
    "values",
    [
        {"api_key": " "}, {"min_reliability": 2}, {"bid_multiplier": 0.5}, {"geolocation": ["Sweden"]},
        {"verified_only": "yes"}, {"disk_gb": 0}, {"min_inet_down": -1},
    ],
)  # fmt: skip  # one value a line is long
def test_wrong_settings_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(sky.SpecError):
        sky.VastAI(**values)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.timeout(900)
def test_client_killed_at_any_request_leaves_nothing(
    vastai: FakeVastAI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = f"sky.VastAI(api_key={KEY!r}, endpoint={vastai.url!r})"
    requests = reaped_after_each_kill(vastai, source, lambda: vastai.instances, tmp_path, monkeypatch)
    assert requests >= 7


CLIENT = """
import json
from vastai import VastAI
client = VastAI({key!r}, server_url={url!r}, retry=1)
offers = client.search_offers(query="gpu_name=RTX_4090 num_gpus=1 reliability>0.9", order="dph_total")
[instance] = client.show_instances()
rent = client.create_instance({free}, image="ubuntu", disk=20, label="by-hand", ssh=True, direct=True)
names = sorted(each["label"] for each in client.show_instances())
client.destroy_instance(rent["new_contract"])
client.destroy_instance(instance["id"])
gone = client.show_instance(instance["id"])
print(json.dumps([[each["id"] for each in offers], instance["label"], instance["image_runtype"], names, gone]))
"""


def test_vendors_client_sees_and_ends_our_machines(vastai: FakeVastAI, tmp_path: Path) -> None:
    async def main() -> str:
        cluster = await prepared(vastai, tmp_path)
        _, machines = await settings(vastai).create_provider().provision(cluster, 1)
        return machines[0].id

    asyncio.run(main())
    script = CLIENT.format(key=KEY, url=vastai.url, free=7002)
    offers, label, runtype, labels, gone = json.loads(run_vendor("vastai", script, {}, tmp_path).splitlines()[-1])
    assert offers == [7002, 7003, 7004]
    assert label.startswith("skyward-pool=unit-1 skyward-owner=conformance skyward-request=request-1")
    assert runtype == "ssh_direc ssh_proxy"
    assert labels == ["by-hand", label]
    assert gone is None
    assert vastai.instances == {}
