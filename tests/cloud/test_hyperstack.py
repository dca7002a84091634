"""`sky.Hyperstack()` against a fake of its API, which is checked by the models of the vendor's own client."""

import asyncio
import dataclasses
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import skyward as sky
from skyward.errors import (
    CredentialsError,
    NoCapacityError,
    ProvisioningError,
    QuotaError,
    RateLimitError,
    SkywardError,
    SpecError,
)
from skyward.providers import Cluster, Instance, Offer, SSHAccess, SweepableProvider
from skyward.providers.conformance import check_provider
from skyward_providers.hyperstack import catalogue, provider
from tests.cloud.in_loop import in_loop
from tests.cloud.kills import reaped_after_each_kill
from tests.cloud.without_pauses import hyperstack_at, source_of, without_pauses
from tests.fakes.hyperstack import KEY, FakeHyperstack
from tests.fakes.server import Answer, Request
from tests.fakes.vendor import run_vendor
from tests.fakes.vendor_models import VendorModels
from tests.identity import identity

MACHINES = "/core/virtual-machines"
TAGS = {"skyward-pool": "unit-1", "skyward-owner": "tests", "skyward-request": "unit-1-1"}


@pytest.fixture(scope="module")
def models() -> Iterator[VendorModels]:
    with VendorModels("hyperstack", "hyperstack_models.py") as process:
        yield process


@pytest.fixture
def cloud(models: VendorModels, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHyperstack]:
    without_pauses(monkeypatch)
    with FakeHyperstack(models) as fake:
        yield fake
    assert fake.wrong == []


@pytest.fixture
def settings(cloud: FakeHyperstack) -> sky.Hyperstack:
    return hyperstack_at(cloud.url)


@pytest.fixture
def hyperstack(settings: sky.Hyperstack) -> provider.HyperstackProvider:
    return provider.HyperstackProvider(settings)


def _sent(cloud: FakeHyperstack, method: str, path: str) -> list[Request]:
    return [each for each in cloud.requests if (each.method, each.path) == (method, path)]


async def _offers(hyperstack: provider.HyperstackProvider) -> dict[str, Offer]:
    return {offer.id: offer async for offer in hyperstack.offers()}


async def _prepared(
    hyperstack: provider.HyperstackProvider, folder: Path, offer: str = "n3-L40x1/CANADA-1", pool: str = "unit-1"
) -> Cluster:
    found = (await _offers(hyperstack))[offer]
    cluster = await hyperstack.prepare(sky.Spec(provider=sky.Local()), found, identity(pool, folder))
    return dataclasses.replace(cluster, tags={**TAGS, "skyward-pool": pool})


async def _running(hyperstack: provider.HyperstackProvider, cluster: Cluster, id: str) -> Instance:
    async with asyncio.timeout(20):
        while True:
            hyperstack._machines.forget()
            _, found = await hyperstack.get_instance(cluster, id)
            if found is not None and found.status != "provisioning":
                return found


async def _ended(hyperstack: provider.HyperstackProvider, cluster: Cluster) -> None:
    await hyperstack.terminate(cluster, [each.id for each in await hyperstack.find(cluster)])
    await hyperstack.teardown(cluster)


@in_loop
async def test_provider_conforms(cloud: FakeHyperstack, settings: sky.Hyperstack, tmp_path: Path) -> None:
    await check_provider(settings, tmp_path)
    assert cloud.left == []
    assert cloud.machines == {}


@pytest.mark.parametrize("prices_are_text", [False, True])
def test_offers_are_flavors_in_stock(
    cloud: FakeHyperstack, hyperstack: provider.HyperstackProvider, prices_are_text: bool
) -> None:
    cloud.prices_are_text = prices_are_text
    offers = asyncio.run(_offers(hyperstack))
    assert {id: offer.on_demand_price and round(offer.on_demand_price, 5) for id, offer in offers.items()} == {
        "n3-L40x1/CANADA-1": round(0.99 + 0.00672, 5),
        "n3-L40x1/NORWAY-1": round(0.99 + 0.00672, 5),
        "n3-H100x1/CANADA-1": round(1.9 + 0.00672, 5),
        "n1-cpu-small/CANADA-1": round(4 * 0.00417 + 4 * 0.00125 + 0.00672, 5),
        "n3-B900x1/CANADA-1": None,
    }, "with the account's discount and a public address; unknown if a part of it is"
    kind = offers["n3-H100x1/CANADA-1"].instance_type
    assert (kind.accelerator, kind.accelerator_count, kind.accelerator_memory_gb) == ("H100 80GB PCIe", 1, 80)
    assert (kind.vcpus, kind.memory_gb) == (28, 180)
    assert offers["n1-cpu-small/CANADA-1"].instance_type.accelerator is None


@pytest.mark.parametrize(
    ("gpu", "known"),
    [
        ("H100-80G-PCIe-NVLink", sky.accelerators.H100()),
        ("A100-80G-SXM4", sky.accelerators.A100()),
        ("H200-141G-SXM5", sky.accelerators.H200()),
        ("RTX-A6000", sky.accelerators.RTX_A6000()),
        ("RTX-PRO6000-SE", sky.accelerators.RTX_PRO_6000()),
        ("L40", sky.accelerators.L40()),
    ],
)
def test_gpus_are_known_by_their_names(gpu: str, known: sky.accelerators.Accelerator) -> None:
    from skyward.accelerators import describe

    assert describe(catalogue._accelerator(gpu)).model == describe(known.name).model


def test_offers_of_one_region(cloud: FakeHyperstack, settings: sky.Hyperstack) -> None:
    one = provider.HyperstackProvider(dataclasses.replace(settings, region="NORWAY-1"))
    assert list(asyncio.run(_offers(one))) == ["n3-L40x1/NORWAY-1"]


@in_loop
async def test_launched_machine_has_labels_keys_and_rules(
    cloud: FakeHyperstack, hyperstack: provider.HyperstackProvider, tmp_path: Path
) -> None:
    cluster = await _prepared(hyperstack, tmp_path)
    again = await _prepared(hyperstack, tmp_path)
    assert again.specific == cluster.specific
    cluster, launched = await hyperstack.provision(cluster, 2)
    assert [each.status for each in launched] == ["provisioning", "provisioning"]
    running = [await _running(hyperstack, cluster, each.id) for each in launched]
    (environment,), (key,) = cloud.environments.values(), cloud.keys.values()
    assert environment["region"] == "CANADA-1"
    assert environment["name"].startswith("sky-tests-")
    assert key["environment"]["name"] == environment["name"]
    host_keys = []
    for each in running:
        machine = cloud.machines[int(each.id)]
        assert machine["labels"] == [f"{name}={value}" for name, value in TAGS.items()]
        rules = [
            (rule["protocol"], rule["remote_ip_prefix"], rule["port_range_max"]) for rule in machine["security_rules"]
        ]
        assert rules == [("tcp", "203.0.113.7/32", 22), ("tcp", "10.0.0.0/24", 65535), ("udp", "10.0.0.0/24", 65535)]
        assert machine["image"]["name"] == "Ubuntu Server 24.04 LTS R570 CUDA 12.8"
        assert isinstance(each.access, SSHAccess)
        assert (each.access.host, each.access.port) == (machine["floating_ip"], 22)
        assert each.address == machine["fixed_ip"]
        config = json.loads(cloud.user_data[int(each.id)].removeprefix("#cloud-config\n"))
        assert config["ssh_keys"]["ed25519_public"] == each.access.host_key
        assert config["ssh_authorized_keys"] == [key["public_key"]]
        assert KEY not in cloud.user_data[int(each.id)]
        host_keys.append(each.access.host_key)
    assert len(set(host_keys)) == 2
    assert cluster.notes
    await _ended(hyperstack, cluster)
    assert cloud.left == []


CLIENT = """
import hyperstack

def api(kind, key={key!r}):
    return kind(hyperstack.ApiClient(hyperstack.Configuration(host={url!r}, api_key={{"apiKey": key}})))

(machine,) = api(hyperstack.VirtualMachineApi).list_vms().instances
assert machine.id == {id!r} and machine.labels == {labels!r}, machine
(environment,) = api(hyperstack.EnvironmentApi).list_environments().environments
(key,) = api(hyperstack.KeypairApi).list_key_pairs().keypairs
assert machine.environment.name == key.environment.name == environment.name
assert machine.keypair.name == key.name
assert api(hyperstack.FlavorApi).list_flavors(region="CANADA-1").data[0].flavors[0].name == "n3-L40x1"
assert api(hyperstack.PricebookApi).get_pricebook()[0].value == 0.99
payload = hyperstack.CreateInstancesPayload(
    name="another", environment_name=environment.name, flavor_name="n3-L40x1", key_name=key.name, count=1,
    image_name="Ubuntu Server 24.04 LTS", assign_floating_ip=True,
)
(another,) = api(hyperstack.VirtualMachineApi).create_vms(payload).instances
assert another.port_randomization, "the default"
while api(hyperstack.VirtualMachineApi).get_vm(another.id).instance.status != "ACTIVE":
    pass
for id in (machine.id, another.id):
    assert api(hyperstack.VirtualMachineApi).delete_vm(id).status
try:
    api(hyperstack.VirtualMachineApi, "other").list_vms()
except hyperstack.exceptions.UnauthorizedException:
    pass
else:
    raise AssertionError("a wrong key is accepted")
"""


def test_vendors_client_sees_and_deletes_our_machines(
    cloud: FakeHyperstack, hyperstack: provider.HyperstackProvider, tmp_path: Path
) -> None:
    async def launched() -> tuple[Cluster, str]:
        cluster, (machine,) = await hyperstack.provision(await _prepared(hyperstack, tmp_path), 1)
        await _running(hyperstack, cluster, machine.id)
        return cluster, machine.id

    cluster, id = asyncio.run(launched())
    labels = [f"{name}={value}" for name, value in TAGS.items()]
    run_vendor("hyperstack", CLIENT.format(url=cloud.url, key=KEY, id=int(id), labels=labels), {}, tmp_path)
    assert asyncio.run(hyperstack.find(cluster)) == []


def _refusal(status: int, message: str, reason: str = "bad_request") -> Answer:
    return Answer(status, {"status": False, "message": message, "error_reason": reason})


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (_refusal(400, "There are not enough GPUs in stock"), NoCapacityError, "no such machine now"),
        (_refusal(400, "Your quota for this flavor is used up"), QuotaError, "ask its support for more"),
        (_refusal(400, "Insufficient balance to create the resource"), CredentialsError, "add credit at"),
        (Answer(402, {"message": "Payment required"}), CredentialsError, "add credit at"),
        (_refusal(401, "Unauthorized", "unauthorized"), CredentialsError, "check that it is valid"),
        (_refusal(403, "Forbidden", "forbidden"), CredentialsError, "check that it is valid"),
        (_refusal(404, "Environment not found", "not_found"), ProvisioningError, "not_found"),
        (_refusal(400, "Malformed"), ProvisioningError, "bad_request, Malformed"),
    ],
)
@in_loop
async def test_refused_machine_is_told_apart(
    cloud: FakeHyperstack,
    hyperstack: provider.HyperstackProvider,
    tmp_path: Path,
    answer: Answer,
    error: type[SkywardError],
    text: str,
) -> None:
    cluster = await _prepared(hyperstack, tmp_path)
    cloud.fail("POST", MACHINES, answer)
    with pytest.raises(error, match=text) as raised:
        await hyperstack.provision(cluster, 1)
    assert type(raised.value) is error or error is ProvisioningError
    assert KEY not in str(raised.value)
    await _ended(hyperstack, cluster)
    assert cloud.left == []


@pytest.mark.parametrize(
    ("stock", "most", "error", "text"),
    [
        (0, 100, NoCapacityError, "Hyperstack has no n3-L40x1 in CANADA-1 now"),
        (9, 0, QuotaError, "may have 0 machines, and the pool's has them"),
    ],
)
@in_loop
async def test_refusal_without_a_telling_text_is_explained_by_stock_and_quota(
    cloud: FakeHyperstack,
    hyperstack: provider.HyperstackProvider,
    tmp_path: Path,
    stock: int,
    most: int,
    error: type[SkywardError],
    text: str,
) -> None:
    cluster = await _prepared(hyperstack, tmp_path)
    cloud.stock["n3-L40x1", "CANADA-1"], cloud.most = stock, most
    cloud.says_out_of_stock = "The request cannot be served."
    with pytest.raises(error, match=text):
        await hyperstack.provision(cluster, 1)


@in_loop
async def test_machine_that_fails_to_build_says_so_and_is_deleted(
    cloud: FakeHyperstack, hyperstack: provider.HyperstackProvider, tmp_path: Path
) -> None:
    cluster = await _prepared(hyperstack, tmp_path)
    cloud.stock["n3-L40x1", "CANADA-1"], cloud.says_out_of_stock = 0, None
    _, (launched,) = await hyperstack.provision(cluster, 1)
    failed = await _running(hyperstack, cluster, launched.id)
    assert (failed.status, failed.detail) == ("exited", "Hyperstack reports it as ERROR")
    assert [each.id for each in await hyperstack.find(cluster)] == [launched.id]
    await _ended(hyperstack, cluster)
    assert cloud.left == []


@in_loop
async def test_launch_returns_what_there_is(
    cloud: FakeHyperstack, hyperstack: provider.HyperstackProvider, tmp_path: Path
) -> None:
    cluster = await _prepared(hyperstack, tmp_path)
    cloud.stock["n3-L40x1", "CANADA-1"] = 2
    _, launched = await hyperstack.provision(cluster, 4)
    assert len(launched) == 2
    cloud.stock["n3-L40x1", "CANADA-1"] = 5
    _, repeated = await hyperstack.provision(cluster, 4)
    assert len(repeated) == len(cloud.machines) == 4, "a repeated request adds only those that are missing"
    assert {each.id for each in launched} < {each.id for each in repeated}


@pytest.mark.parametrize("reply", [None, Answer(500, {"message": "Internal Server Error"})])
@pytest.mark.parametrize("polls_to_appear", [0, 3])
@in_loop
async def test_launch_with_lost_answer_is_found_by_its_name(
    cloud: FakeHyperstack,
    hyperstack: provider.HyperstackProvider,
    tmp_path: Path,
    reply: Answer | None,
    polls_to_appear: int,
) -> None:
    cluster = await _prepared(hyperstack, tmp_path)
    cloud.polls_to_appear = polls_to_appear
    cloud.fail("POST", MACHINES, reply, after=True)
    _, launched = await hyperstack.provision(cluster, 2)
    assert sorted(each.id for each in launched) == sorted(map(str, cloud.machines))
    assert len(launched) == 2


@in_loop
async def test_launch_stays_unknown_if_machines_cannot_be_listed(
    cloud: FakeHyperstack, hyperstack: provider.HyperstackProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of Skyward would say that nothing was launched, and nobody would look for the machine."""
    monkeypatch.setattr(provider, "LOOK_FOR", 0.1)
    cluster = await _prepared(hyperstack, tmp_path)
    cloud.fail("POST", MACHINES, None, after=True)
    cloud.fail("GET", MACHINES, Answer(429, {}, {"Retry-After": "3600"}), times=1000, skip=1)
    with pytest.raises(httpx.HTTPError):
        await hyperstack.provision(cluster, 1)
    assert len(_sent(cloud, "POST", MACHINES)) == 1, "it is not repeated blindly"
    cloud.faults.clear()
    await _ended(hyperstack, cluster)
    assert cloud.left == []


@in_loop
async def test_machine_that_exists_already_is_found_by_its_name(
    cloud: FakeHyperstack, hyperstack: provider.HyperstackProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated request creates no second machine, even if the first one is not listed yet."""
    cluster = await _prepared(hyperstack, tmp_path)
    cloud.polls_to_appear = 3
    for _ in range(2):
        _, (launched,) = await hyperstack.provision(cluster, 1)
        assert [int(launched.id)] == list(cloud.machines)
    cloud.polls_to_appear = 10_000
    monkeypatch.setattr(provider, "LOOK_FOR", 0.1)
    with pytest.raises(RuntimeError, match="exists at Hyperstack, but is not listed"):
        await hyperstack.provision(cluster, 1)


@in_loop
async def test_refused_listing_after_a_launch_loses_no_machine(
    cloud: FakeHyperstack, hyperstack: provider.HyperstackProvider, tmp_path: Path
) -> None:
    cluster = await _prepared(hyperstack, tmp_path)
    cloud.fail("GET", MACHINES, Answer(429, {}), times=3, skip=1)
    _, (launched,) = await hyperstack.provision(cluster, 1)
    assert (await _running(hyperstack, cluster, launched.id)).status == "running"


@in_loop
async def test_too_many_requests_are_repeated_then_reported(
    cloud: FakeHyperstack, hyperstack: provider.HyperstackProvider, tmp_path: Path
) -> None:
    cluster = await _prepared(hyperstack, tmp_path)
    cloud.fail("POST", MACHINES, Answer(429, {}), times=2)
    _, launched = await hyperstack.provision(cluster, 1)
    assert len(launched) == len(cloud.machines) == 1
    cloud.fail("POST", MACHINES, Answer(429, {}, {"Retry-After": "3600"}))
    with pytest.raises(RateLimitError) as raised:
        await hyperstack.provision(dataclasses.replace(cluster, tags={**TAGS, "skyward-request": "two"}), 1)
    assert raised.value.retry_after == 3600


@in_loop
async def test_hundred_machines_are_listed_in_pages_at_once(
    cloud: FakeHyperstack, hyperstack: provider.HyperstackProvider, tmp_path: Path
) -> None:
    cloud.stock["n3-L40x1", "CANADA-1"] = cloud.most = 1000
    cloud.polls_to_boot = 0
    cluster = await _prepared(hyperstack, tmp_path)
    _, launched = await hyperstack.provision(cluster, 101)
    assert len(launched) == len(await hyperstack.find(cluster)) == 101
    before = len(_sent(cloud, "GET", MACHINES))
    await asyncio.gather(*(hyperstack.get_instance(cluster, each.id) for each in launched))
    assert len(_sent(cloud, "GET", MACHINES)) - before == 0, "the pages of find() are new enough"
    await _ended(hyperstack, cluster)
    assert cloud.left == []


@in_loop
async def test_statuses(cloud: FakeHyperstack, hyperstack: provider.HyperstackProvider, tmp_path: Path) -> None:
    cluster = await _prepared(hyperstack, tmp_path)
    _, (launched,) = await hyperstack.provision(cluster, 1)
    await _running(hyperstack, cluster, launched.id)
    states = []
    for status in ("REBOOTING", "SHUTOFF", "HIBERNATED", "ERROR", "DELETING"):
        cloud.machines[int(launched.id)]["status"] = status
        hyperstack._machines.forget()
        _, found = await hyperstack.get_instance(cluster, launched.id)
        states.append(found and (found.status, found.detail))
    assert states == [
        ("provisioning", "it is REBOOTING, without a public address yet"),
        ("exited", "Hyperstack reports it as SHUTOFF, which is billed"),
        ("exited", "Hyperstack reports it as HIBERNATED, which is billed"),
        ("exited", "Hyperstack reports it as ERROR"),
        None,
    ]


@in_loop
async def test_random_port_is_read_from_the_answer(
    cloud: FakeHyperstack, hyperstack: provider.HyperstackProvider, tmp_path: Path
) -> None:
    cloud.randomizes = True
    cluster = await _prepared(hyperstack, tmp_path)
    _, (launched,) = await hyperstack.provision(cluster, 1)
    assert not _sent(cloud, "POST", MACHINES)[0].body["enable_port_randomization"], "it was not requested"
    running = await _running(hyperstack, cluster, launched.id)
    assert isinstance(running.access, SSHAccess)
    assert running.access.port == 20_000 + int(launched.id) % 1000
    cloud.machines[int(launched.id)]["security_rules"] = []
    hyperstack._machines.forget()
    _, unknown = await hyperstack.get_instance(cluster, launched.id)
    assert unknown is not None
    assert (unknown.status, unknown.access) == ("exited", None)
    assert "does not tell which one is for SSH" in unknown.detail


@in_loop
async def test_machine_that_is_being_created_is_deleted_afterwards(
    cloud: FakeHyperstack, hyperstack: provider.HyperstackProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await _prepared(hyperstack, tmp_path)
    _, launched = await hyperstack.provision(cluster, 2)
    await hyperstack.terminate(cluster, [*(each.id for each in launched), "999999"])
    await hyperstack.terminate(cluster, [each.id for each in launched])
    assert await hyperstack.find(cluster) == []
    cloud.polls_to_boot = 10_000
    _, (stuck,) = await hyperstack.provision(dataclasses.replace(cluster, tags={**TAGS, "skyward-request": "two"}), 1)
    monkeypatch.setattr(provider, "DELETED_WITHIN", 0.05)
    with pytest.raises(
        ProvisioningError, match=f"does not delete machine {stuck.id} .*being created and cannot be deleted yet"
    ):
        await hyperstack.terminate(cluster, [stuck.id])
    with pytest.raises(ProvisioningError, match=f"still has machine {stuck.id}; terminate it first"):
        await hyperstack.teardown(cluster)


@in_loop
async def test_name_of_a_pool_decides_nothing(
    cloud: FakeHyperstack, hyperstack: provider.HyperstackProvider, tmp_path: Path
) -> None:
    """Texts of refusals contain names: of a machine that cannot be deleted yet, or is not created."""
    cluster = await _prepared(hyperstack, tmp_path, pool="stock-balance-quota")
    _, (launched,) = await hyperstack.provision(cluster, 1)
    await hyperstack.terminate(cluster, [launched.id])
    assert await hyperstack.find(cluster) == []
    name = provider._machine_name(cluster, 0)
    cloud.fail("POST", MACHINES, _refusal(400, f"Machine {name} has a wrong image"))
    with pytest.raises(ProvisioningError, match="has a wrong image") as raised:
        await hyperstack.provision(cluster, 1)
    assert not isinstance(raised.value, NoCapacityError | QuotaError | CredentialsError)


@in_loop
async def test_volumes_in_the_environment_are_deleted(
    cloud: FakeHyperstack, hyperstack: provider.HyperstackProvider, tmp_path: Path
) -> None:
    cluster = await _prepared(hyperstack, tmp_path)
    cloud.add_volume(cluster.specific["environment"])
    await hyperstack.teardown(cluster)
    await hyperstack.teardown(cluster)
    assert cloud.left == []


@in_loop
async def test_answer_without_rows_is_not_taken_for_none(
    cloud: FakeHyperstack, hyperstack: provider.HyperstackProvider, tmp_path: Path
) -> None:
    cluster = await _prepared(hyperstack, tmp_path)
    _, (machine,) = await hyperstack.provision(cluster, 1)
    refused = Answer(200, {"status": False, "message": "Try later."})
    cloud.fail("GET", MACHINES, refused, times=2)
    with pytest.raises(ProvisioningError, match=r"did not list the instances \(Try later\)"):
        await hyperstack.find(cluster)
    hyperstack._machines.forget()
    with pytest.raises(ProvisioningError, match="did not list"):
        await hyperstack.get_instance(cluster, machine.id)
    await _running(hyperstack, cluster, machine.id)
    await hyperstack.terminate(cluster, [machine.id])
    for path in ("environments", "keypairs", "volumes"):
        cloud.fail("GET", f"/core/{path}", refused)
        with pytest.raises(ProvisioningError, match="did not list"):
            await hyperstack.teardown(cluster)
    await _ended(hyperstack, cluster)
    assert cloud.left == []


@in_loop
async def test_images_of_all_pages_are_listed(
    cloud: FakeHyperstack, hyperstack: provider.HyperstackProvider, tmp_path: Path
) -> None:
    cloud.images_of_page = 1
    cluster = await _prepared(hyperstack, tmp_path)
    assert cluster.specific["image"] == "Ubuntu Server 24.04 LTS R570 CUDA 12.8"
    await hyperstack.teardown(cluster)


@pytest.mark.parametrize("path", ["/core/environments", "/core/keypairs"])
@pytest.mark.parametrize("reply", [_refusal(400, "The quota is used up"), None])
@in_loop
async def test_failed_prepare_leaves_nothing_or_says_so(
    cloud: FakeHyperstack, hyperstack: provider.HyperstackProvider, tmp_path: Path, path: str, reply: Answer | None
) -> None:
    cloud.fail("POST", path, reply, after=reply is None)
    with pytest.raises(Exception) as raised:  # noqa: PT011  # told apart below
        await _prepared(hyperstack, tmp_path)
    if isinstance(raised.value, SkywardError):
        assert cloud.left == []
    else:
        await hyperstack.teardown(await _prepared(hyperstack, tmp_path))
        assert cloud.left == [], "it was found by its name"


@in_loop
async def test_pool_has_an_environment_in_each_region(
    cloud: FakeHyperstack, hyperstack: provider.HyperstackProvider, tmp_path: Path
) -> None:
    one = await _prepared(hyperstack, tmp_path)
    two = await _prepared(hyperstack, tmp_path, "n3-L40x1/NORWAY-1")
    assert sorted(each["region"] for each in cloud.environments.values()) == ["CANADA-1", "NORWAY-1"]
    two = dataclasses.replace(two, tags={**TAGS, "skyward-request": "two"})
    for cluster in (one, two):
        assert len((await hyperstack.provision(cluster, 1))[1]) == 1
    await hyperstack.terminate(one, [each.id for each in await hyperstack.find(one)])
    await hyperstack.teardown(one)
    assert [each["region"] for each in cloud.environments.values()] == ["NORWAY-1"]
    await hyperstack.teardown(two)
    assert cloud.left == []


@pytest.mark.parametrize("pool", ["unit-1", f"{'a' * 40}-0123456789"])
@in_loop
async def test_sweep_removes_what_is_ours_only(
    cloud: FakeHyperstack,
    hyperstack: provider.HyperstackProvider,
    settings: sky.Hyperstack,
    tmp_path: Path,
    pool: str,
) -> None:
    cluster = await _prepared(hyperstack, tmp_path, pool=pool)
    await hyperstack.provision(cluster, 2)
    await hyperstack._api.add_environment("sky-somebody-else", "NORWAY-1")
    theirs = {**TAGS, "skyward-owner": "somebody", "skyward-pool": "theirs", "skyward-request": "theirs-1"}
    await hyperstack.provision(dataclasses.replace(cluster, tags=theirs), 1)
    fresh = settings.create_provider()
    assert isinstance(fresh, SweepableProvider)
    found = await fresh.leftovers("tests")
    assert [(each.kind, each.pool, each.region) for each in found] == [
        ("machine", pool, "CANADA-1"),
        ("machine", pool, "CANADA-1"),
        ("environment", pool, "CANADA-1"),
    ]
    for each in found[:2]:
        await fresh.remove(each)
        await fresh.remove(each)
    with pytest.raises(ProvisioningError, match="still has machine"):
        await fresh.remove(found[2])
    (machine,) = [id for id, each in cloud.machines.items() if "skyward-owner=somebody" in each["labels"]]
    await _running(hyperstack, cluster, str(machine))
    await hyperstack.terminate(cluster, [str(machine)])
    await fresh.remove(found[2])
    await fresh.remove(found[2])
    assert cloud.left == ["sky-somebody-else"]


@pytest.mark.timeout(900)  # a hundred clients, on a busy machine
def test_client_killed_at_any_request_leaves_nothing(
    cloud: FakeHyperstack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of("hyperstack_at", cloud.url)
    requests = reaped_after_each_kill(cloud, source, lambda: cloud.left, tmp_path, monkeypatch)
    assert requests >= 15


@pytest.mark.parametrize(("pool", "listed"), [("unit-1", ["unit-1"]), (f"{'a' * 40}-0123456789", [])])
@in_loop
async def test_environment_that_is_being_prepared_is_not_taken_for_that_of_another_pool(
    cloud: FakeHyperstack, hyperstack: provider.HyperstackProvider, tmp_path: Path, pool: str, listed: list[str]
) -> None:
    """A sweep removes what belongs to no pool in the journal, so an id that is cut must not be listed."""
    cloud.fail("POST", "/core/keypairs", None)
    with pytest.raises(httpx.HTTPError):
        await _prepared(hyperstack, tmp_path, pool=pool)
    assert [each.pool for each in await hyperstack.leftovers("tests")] == listed
    await hyperstack.teardown(await _prepared(hyperstack, tmp_path, pool=pool))
    assert cloud.left == []


@in_loop
async def test_secrets_go_nowhere(
    cloud: FakeHyperstack, hyperstack: provider.HyperstackProvider, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    cluster = await _prepared(hyperstack, tmp_path)
    _, (launched,) = await hyperstack.provision(cluster, 1)
    running = await _running(hyperstack, cluster, launched.id)
    text = caplog.text + repr(cluster) + repr(hyperstack._settings) + repr(running)
    assert KEY not in text
    assert identity("unit-1").host_key_seed not in text


@pytest.mark.parametrize(
    ("given", "with_gpu", "restricted", "chosen"),
    [
        (None, True, (), "Ubuntu Server 24.04 LTS R570 CUDA 12.8"),
        (None, False, (), "Ubuntu Server 24.04 LTS"),
        (None, True, ("Ubuntu Server 22.04 LTS R535 CUDA 12.2",), "Ubuntu Server 22.04 LTS R535 CUDA 12.2"),
        ("Windows Server 2022", True, (), "Windows Server 2022"),
        ("Nothing", True, (), "Hyperstack has no image 'Nothing' for f in r; it has Ubuntu Server 22.04"),
        (None, True, ("Windows Server 2022",), "has no image of Ubuntu for f in r; name one in"),
    ],
)
def test_choice_of_the_image(given: str | None, with_gpu: bool, restricted: tuple[str, ...], chosen: str) -> None:
    names = [
        "Ubuntu Server 24.04 LTS",
        "Ubuntu Server 22.04 LTS R535 CUDA 12.2",
        "Ubuntu Server 24.04 LTS R570 CUDA 12.8",
        "Ubuntu Server 24.04 LTS R570 CUDA 12.8 with Docker",
        "Windows Server 2022",
    ]
    flavor: dict[str, Any] = {"name": "f", "gpu": "L40" if with_gpu else ""}
    if restricted:
        images = [{"image_name": name} for name in restricted]
        flavor["image_restrictions"] = {
            "has_image_restrictions": True,
            "restriction_type": "hard",
            "compatible_images": images,
        }
    if chosen in names:
        assert catalogue.choose_image(names, flavor, "r", given) == chosen
    else:
        with pytest.raises(SpecError, match=chosen):
            catalogue.choose_image(names, flavor, "r", given)


@in_loop
async def test_checks_name_the_problem(cloud: FakeHyperstack, settings: sky.Hyperstack) -> None:
    checks = await provider.HyperstackProvider(settings).check()
    assert [(each.what, each.problem) for each in checks] == [
        ("may list machines", ""),
        ("may list environments", ""),
        ("may list offers", ""),
    ]
    stranger = provider.HyperstackProvider(dataclasses.replace(settings, api_key="wrong"))
    problems = [each.problem for each in await stranger.check()]
    assert all(each.startswith("Hyperstack refuses the API key (401") for each in problems)
    assert not any("wrong" in each for each in problems)


@in_loop
async def test_credentials(settings: sky.Hyperstack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYPERSTACK_API_KEY", raising=False)
    bare = sky.Hyperstack(endpoint=settings.endpoint)
    assert bare.credentials().found == ""
    with pytest.raises(CredentialsError, match="set HYPERSTACK_API_KEY, or give `sky.Hyperstack"):
        await _offers(provider.HyperstackProvider(bare))
    monkeypatch.setenv("HYPERSTACK_API_KEY", KEY)
    assert bare.credentials().found == "environment variable HYPERSTACK_API_KEY"
    assert await _offers(provider.HyperstackProvider(bare))
    assert settings.credentials().found == "the settings"
    assert KEY not in repr(settings)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"api_key": " "}, "api_key must not be empty"),
        ({"region": 5}, "region"),
        ({"caller_cidr": "everywhere"}, "caller_cidr must be IPv4 addresses"),
        ({"request_timeout": 0}, "request_timeout"),
    ],
)
def test_wrong_settings(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        sky.Hyperstack(**wrong)
