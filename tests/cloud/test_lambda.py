"""`sky.Lambda()` against a fake of its API, which is validated by the models of a client that we did not write."""

import asyncio
import dataclasses
import json
import logging
import time
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
from skyward.providers import Cluster, Instance, Offer, SSHAccess, SweepableProvider, key_pair
from skyward.providers.conformance import check_provider
from skyward_providers.lambda_cloud import api, provider
from tests.cloud.in_loop import in_loop
from tests.cloud.kills import reaped_after_each_kill
from tests.cloud.without_pauses import lambda_at, source_of, without_pauses
from tests.fakes.lambda_cloud import KEY, FakeLambda
from tests.fakes.server import Answer, Request
from tests.fakes.vendor import run_vendor
from tests.fakes.vendor_models import VendorModels
from tests.identity import identity

LAUNCH = "/api/v1/instance-operations/launch"
TERMINATE = "/api/v1/instance-operations/terminate"
LIST = "/api/v1/instances"
TAGS = {"skyward-pool": "unit-1", "skyward-owner": "tests", "skyward-request": "unit-1-1"}


@pytest.fixture(scope="module")
def models() -> Iterator[VendorModels]:
    with VendorModels("lambda", "lambda_models.py") as process:
        yield process


@pytest.fixture
def cloud(models: VendorModels, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLambda]:
    without_pauses(monkeypatch)
    with FakeLambda(models) as fake:
        yield fake
    assert fake.wrong == []


@pytest.fixture
def settings(cloud: FakeLambda) -> sky.Lambda:
    return lambda_at(cloud.url)


@pytest.fixture
def lambda_(settings: sky.Lambda) -> provider.LambdaProvider:
    return provider.LambdaProvider(settings)


def _sent(cloud: FakeLambda, method: str, path: str) -> list[Request]:
    return [each for each in cloud.requests if (each.method, each.path) == (method, path)]


async def _offers(lambda_: provider.LambdaProvider) -> dict[str, Offer]:
    return {offer.id: offer async for offer in lambda_.offers()}


async def _prepared(
    lambda_: provider.LambdaProvider, folder: Path, offer: str = "gpu_1x_a10/us-west-1", **spec: Any
) -> Cluster:
    found = (await _offers(lambda_))[offer]
    cluster = await lambda_.prepare(sky.Spec(provider=sky.Local(), **spec), found, identity("unit-1", folder))
    return dataclasses.replace(cluster, tags=TAGS)


async def _running(lambda_: provider.LambdaProvider, cluster: Cluster, id: str) -> Instance:
    async with asyncio.timeout(20):
        while True:
            lambda_._instances.forget()
            _, found = await lambda_.get_instance(cluster, id)
            if found is not None and found.status == "running":
                return found


@in_loop
async def test_provider_conforms(cloud: FakeLambda, settings: sky.Lambda, tmp_path: Path) -> None:
    await check_provider(settings, tmp_path)
    assert cloud.left == []


@in_loop
async def test_offers_are_types_in_regions_that_have_some(lambda_: provider.LambdaProvider) -> None:
    offers = await _offers(lambda_)
    assert sorted(offers) == sorted(
        f"{name}/{region}"
        for name in ("gpu_1x_a10", "gpu_1x_gh200", "gpu_8x_a100_80gb_sxm4", "gpu_8x_h100_sxm5", "cpu_4x_general")
        for region in ("us-west-1", "us-east-1")
        if (name, region) != ("gpu_8x_h100_sxm5", "us-west-1")
    )
    a100 = offers["gpu_8x_a100_80gb_sxm4/us-east-1"]
    kind = a100.instance_type
    assert (a100.region, a100.hourly_price("on-demand"), a100.markets) == ("us-east-1", 14.32, ("on-demand",))
    assert (kind.vcpus, kind.memory_gb, kind.accelerator_count, kind.accelerator_memory_gb) == (240, 1800, 8, 80)
    assert [offers[f"{name}/us-east-1"].instance_type.architecture for name in ("gpu_1x_gh200", "gpu_1x_a10")] == [
        "arm64",
        "x86_64",
    ]
    cpu = offers["cpu_4x_general/us-east-1"].instance_type
    assert (cpu.accelerator, cpu.accelerator_count, cpu.accelerator_memory_gb) == (None, 0, None)


@in_loop
async def test_offers_of_one_region(settings: sky.Lambda) -> None:
    one = provider.LambdaProvider(dataclasses.replace(settings, region="us-west-1"))
    assert {offer.region for offer in (await _offers(one)).values()} == {"us-west-1"}


@in_loop
async def test_launched_machine_has_tags_keys_and_its_own_firewall(
    cloud: FakeLambda, lambda_: provider.LambdaProvider, tmp_path: Path
) -> None:
    cluster = await _prepared(lambda_, tmp_path)
    again = await _prepared(lambda_, tmp_path)
    assert again.specific == cluster.specific
    cluster, (first, second) = await lambda_.provision(cluster, 2)
    assert [each.status for each in (first, second)] == ["provisioning", "provisioning"]
    assert first.hourly_price == 0.75
    running = [await _running(lambda_, cluster, each.id) for each in (first, second)]

    tags = [{tag["key"]: tag["value"] for tag in each["tags"]} for each in cloud.instances.values()]
    assert [each.pop("skyward-number") for each in tags] == ["0", "1"]
    assert tags == [TAGS, TAGS]
    (key,), (ruleset,) = cloud.keys.values(), cloud.rulesets.values()
    assert key["name"] == ruleset["name"] == "sky-tests-unit-1"
    assert [rule["source_network"] for rule in ruleset["rules"]] == ["203.0.113.7/32"]
    assert sorted(ruleset["instance_ids"]) == sorted(each.id for each in (first, second))

    accesses = [each.access for each in running]
    assert all(isinstance(each, SSHAccess) for each in accesses)
    host_keys = [each.host_key for each in accesses if isinstance(each, SSHAccess)]
    assert len(set(host_keys)) == 2
    for machine, host_key in zip((first, second), host_keys, strict=True):
        config = json.loads(cloud.user_data[machine.id].removeprefix("#cloud-config\n"))
        assert config["ssh_keys"]["ed25519_public"] == host_key
        assert config["ssh_authorized_keys"] == [key["public_key"]]
        assert KEY not in cloud.user_data[machine.id]
    assert running[0].address.startswith("10.19.")
    assert cluster.notes
    await lambda_.terminate(cluster, [first.id, second.id])
    await lambda_.teardown(cluster)
    assert cloud.left == []


CLIENT = """
from lambda_ai_cloud_api_client import AuthenticatedClient, models
from lambda_ai_cloud_api_client.api.firewalls import firewall_rulesets_list
from lambda_ai_cloud_api_client.api.instances import (
    launch_instance, list_instance_types, list_instances, terminate_instance
)
from lambda_ai_cloud_api_client.api.ssh_keys import list_ssh_keys

client = AuthenticatedClient(base_url={url!r}, token={key!r}, raise_on_unexpected_status=True)
assert list_instance_types.sync(client=client).data["gpu_1x_a10"].instance_type.price_cents_per_hour == 75
(instance,) = list_instances.sync(client=client).data
assert instance.id == {id!r}
assert {{tag.key: tag.value for tag in instance.tags}} == {tags!r}
(key,) = list_ssh_keys.sync(client=client).data
assert instance.ssh_key_names == [key.name]
(ruleset,) = firewall_rulesets_list.sync(client=client).data
assert instance.firewall_rulesets == [models.FirewallRulesetEntry(ruleset.id)] and ruleset.instance_ids == [{id!r}]
request = models.InstanceLaunchRequest(models.PublicRegionCode.US_WEST_1, "gpu_8x_h100_sxm5", [key.name])
refused = launch_instance.sync(client=client, body=request)
assert isinstance(refused.error, models.ApiErrorInsufficientCapacity), refused
ended = terminate_instance.sync(client=client, body=models.InstanceTerminateRequest([{id!r}]))
assert [each.status for each in ended.data.terminated_instances] == ["terminating"]
stranger = AuthenticatedClient(base_url={url!r}, token="other")
assert isinstance(list_instances.sync(client=stranger), models.ListInstancesResponse401)
"""


def test_vendors_client_sees_and_ends_our_instances(
    cloud: FakeLambda, lambda_: provider.LambdaProvider, tmp_path: Path
) -> None:
    async def launched() -> tuple[Cluster, str]:
        cluster, (machine,) = await lambda_.provision(await _prepared(lambda_, tmp_path), 1)
        return cluster, machine.id

    cluster, id = asyncio.run(launched())
    tags = {**TAGS, "skyward-number": "0"}
    run_vendor("lambda", CLIENT.format(url=cloud.url, key=KEY, id=id, tags=tags), {}, tmp_path)
    assert asyncio.run(lambda_.find(cluster)) == []


@pytest.mark.parametrize(
    ("status", "code", "error", "text"),
    [
        (400, "instance-operations/launch/insufficient-capacity", NoCapacityError, "no such instance now"),
        (400, "global/quota-exceeded", QuotaError, "quota at Lambda is used up"),
        (401, "global/invalid-api-key", CredentialsError, "LAMBDA_API_KEY"),
        (403, "global/account-inactive", CredentialsError, "payment method"),
        (403, "global/invalid-address", CredentialsError, "billing address"),
        (403, "global/forbidden", CredentialsError, "check that it is valid and may do this"),
        (400, "provider/internal-unavailable", NoCapacityError, "data center"),
        (404, "global/object-does-not-exist", ProvisioningError, "global/object-does-not-exist"),
        (400, "global/invalid-parameters", ProvisioningError, "global/invalid-parameters"),
    ],
)
@in_loop
async def test_refused_launch_is_told_apart_by_its_code(
    cloud: FakeLambda,
    lambda_: provider.LambdaProvider,
    tmp_path: Path,
    status: int,
    code: str,
    error: type[SkywardError],
    text: str,
) -> None:
    cluster = await _prepared(lambda_, tmp_path)
    cloud.fail("POST", LAUNCH, Answer(status, {"error": {"code": code, "message": "Something."}}))
    with pytest.raises(error, match=text) as raised:
        await lambda_.provision(cluster, 3)
    assert type(raised.value) is error or error is ProvisioningError
    assert KEY not in str(raised.value)
    assert len(_sent(cloud, "POST", LAUNCH)) == 1, "the others of the request would be refused too"
    await lambda_.teardown(cluster)
    assert cloud.left == []


@in_loop
async def test_launch_returns_what_there_is(
    cloud: FakeLambda, lambda_: provider.LambdaProvider, tmp_path: Path
) -> None:
    cluster = await _prepared(lambda_, tmp_path)
    cloud.stock["gpu_1x_a10", "us-west-1"] = 2
    _, launched = await lambda_.provision(cluster, 4)
    assert len(launched) == 2
    cloud.stock["gpu_1x_a10", "us-west-1"] = 5
    _, repeated = await lambda_.provision(cluster, 4)
    assert len(repeated) == 4, "a repeated request adds only those that are missing"
    assert {each.id for each in launched} < {each.id for each in repeated}
    assert len(cloud.instances) == 4


@pytest.mark.parametrize("reply", [None, Answer(500, {"error": {"code": "global/internal-error", "message": "Oh."}})])
@pytest.mark.parametrize("polls_to_appear", [0, 3])
@in_loop
async def test_launch_with_lost_answer_is_found_by_its_tags(
    cloud: FakeLambda,
    lambda_: provider.LambdaProvider,
    tmp_path: Path,
    reply: Answer | None,
    polls_to_appear: int,
) -> None:
    cluster = await _prepared(lambda_, tmp_path)
    cloud.polls_to_appear = polls_to_appear
    cloud.fail("POST", LAUNCH, reply, after=True)
    _, launched = await lambda_.provision(cluster, 2)
    assert sorted(each.id for each in launched) == sorted(cloud.instances)
    assert len(launched) == 2


@pytest.mark.parametrize("carried_out", [True, False])
@in_loop
async def test_launch_of_unknown_outcome_is_no_error_of_skyward(
    cloud: FakeLambda,
    lambda_: provider.LambdaProvider,
    tmp_path: Path,
    carried_out: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(provider, "LOOK_FOR", 0.1)
    cluster = await _prepared(lambda_, tmp_path)
    cloud.polls_to_appear = 10_000
    cloud.fail("POST", LAUNCH, None, after=carried_out)
    with pytest.raises(Exception) as raised:  # noqa: PT011  # any but Skyward's
        await lambda_.provision(cluster, 1)
    assert not isinstance(raised.value, SkywardError)
    assert len(_sent(cloud, "POST", LAUNCH)) == 1, "it is not repeated blindly"
    cloud.polls_to_appear = 0
    await lambda_.terminate(cluster, [each.id for each in await lambda_.find(cluster)])
    await lambda_.teardown(cluster)
    assert cloud.left == []


@in_loop
async def test_launch_stays_unknown_if_instances_cannot_be_listed(
    cloud: FakeLambda, lambda_: provider.LambdaProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of Skyward would say that nothing was launched, and nobody would look for the instance."""
    monkeypatch.setattr(provider, "LOOK_FOR", 0.1)
    cluster = await _prepared(lambda_, tmp_path)
    cloud.fail("POST", LAUNCH, None, after=True)
    cloud.fail("GET", LIST, Answer(429, {}, {"Retry-After": "3600"}), times=1000, skip=1)
    with pytest.raises(httpx.HTTPError):
        await lambda_.provision(cluster, 2)
    assert len(cloud.instances) == 1, "no further one was launched"
    cloud.faults.clear()
    assert [each.id for each in await lambda_.find(cluster)] == list(cloud.instances)


@in_loop
async def test_refused_listing_after_a_launch_loses_no_machine(
    cloud: FakeLambda, lambda_: provider.LambdaProvider, tmp_path: Path
) -> None:
    cluster = await _prepared(lambda_, tmp_path)
    cloud.fail("GET", LIST, Answer(429, {}), times=3, skip=1)
    _, (launched,) = await lambda_.provision(cluster, 1)
    assert (await _running(lambda_, cluster, launched.id)).id == launched.id
    cloud.fail("POST", LAUNCH, None, after=True)
    cloud.fail("GET", LIST, Answer(429, {}, {"Retry-After": "0"}), times=3, skip=1)
    _, found = await lambda_.provision(dataclasses.replace(cluster, tags={**TAGS, "skyward-request": "two"}), 1)
    assert {launched.id, *(each.id for each in found)} == set(cloud.instances)


@in_loop
async def test_too_many_requests_are_repeated_then_reported(
    cloud: FakeLambda, lambda_: provider.LambdaProvider, tmp_path: Path
) -> None:
    cluster = await _prepared(lambda_, tmp_path)
    cloud.fail("POST", LAUNCH, Answer(429, {}, {"Retry-After": "0"}), times=2)
    _, launched = await lambda_.provision(cluster, 1)
    assert len(launched) == len(cloud.instances) == 1
    cloud.fail("POST", LAUNCH, Answer(429, {}, {"Retry-After": "3600"}))
    with pytest.raises(RateLimitError) as raised:
        await lambda_.provision(dataclasses.replace(cluster, tags={**TAGS, "skyward-request": "two"}), 1)
    assert raised.value.retry_after == 3600


@in_loop
async def test_requests_keep_the_pace_of_the_account(
    cloud: FakeLambda, settings: sky.Lambda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two pools share the pace."""
    one, two = provider.LambdaProvider(settings), provider.LambdaProvider(settings)
    clusters = [await _prepared(each, tmp_path) for each in (one, two)]
    clusters[1] = dataclasses.replace(clusters[1], tags={**TAGS, "skyward-request": "two"})
    monkeypatch.setattr(api, "REQUEST_EVERY", 0.02)
    monkeypatch.setattr(api, "LAUNCH_EVERY", 0.1)
    sent, began = len(cloud.requests), time.monotonic()
    launched = await asyncio.gather(one.provision(clusters[0], 2), two.provision(clusters[1], 2))
    assert time.monotonic() - began >= 3 * 0.1
    machines = [each.id for _, made in launched for each in made]
    assert len(machines) == 4
    before = len(_sent(cloud, "GET", LIST))
    await asyncio.gather(*(one.get_instance(clusters[0], each) for each in machines * 25))
    assert len(_sent(cloud, "GET", LIST)) - before == 1, "a hundred questions are one request"
    for _ in range(20):
        await two.check()
    assert time.monotonic() - began >= (len(cloud.requests) - sent - 1) * 0.02


@in_loop
async def test_statuses(cloud: FakeLambda, lambda_: provider.LambdaProvider, tmp_path: Path) -> None:
    cluster = await _prepared(lambda_, tmp_path)
    cloud.without_ip = True
    _, (launched,) = await lambda_.provision(cluster, 1)
    states = []
    for status in ("booting", "active", "unhealthy", "terminating"):
        cloud.end(launched.id, status)
        lambda_._instances.forget()
        _, found = await lambda_.get_instance(cluster, launched.id)
        states.append(found and (found.status, found.detail))
    assert states == [
        ("provisioning", "it has no public address yet"),
        ("provisioning", "it has no public address yet"),
        ("exited", "Lambda reports it as unhealthy"),
        None,
    ]
    cloud.end(launched.id, "unhealthy")
    assert [each.id for each in await lambda_.find(cluster)] == [launched.id], "it is billed, and has to be terminated"


@in_loop
async def test_terminating_a_machine_that_is_gone_ends_the_others(
    cloud: FakeLambda, lambda_: provider.LambdaProvider, tmp_path: Path
) -> None:
    cluster = await _prepared(lambda_, tmp_path)
    _, launched = await lambda_.provision(cluster, 3)
    cloud.end(launched[1].id, "terminated")
    await lambda_.terminate(cluster, [each.id for each in launched])
    await lambda_.terminate(cluster, [each.id for each in launched])
    assert await lambda_.find(cluster) == []
    await lambda_.teardown(cluster)
    await lambda_.teardown(cluster)
    assert cloud.left == []


@in_loop
async def test_ruleset_in_use_is_deleted_later(
    cloud: FakeLambda, lambda_: provider.LambdaProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await _prepared(lambda_, tmp_path)
    _, (launched,) = await lambda_.provision(cluster, 1)
    cloud.polls_to_go = 10_000
    await lambda_.terminate(cluster, [launched.id])
    monkeypatch.setattr(provider, "RELEASED_WITHIN", 0.05)
    with pytest.raises(ProvisioningError, match="still in use at Lambda; it costs nothing"):
        await lambda_.teardown(cluster)
    assert cloud.left == ["sky-tests-unit-1"]
    cloud.polls_to_go = 0
    (left,) = await lambda_.leftovers("tests")
    assert (left.kind, left.pool, left.region) == ("firewall ruleset", "unit-1", "us-west-1")
    await lambda_.remove(left)
    assert cloud.left == []


@pytest.mark.parametrize("reply", [Answer(400, {"error": {"code": "global/quota-exceeded", "message": "Full."}}), None])
@in_loop
async def test_failed_prepare_leaves_nothing_or_says_so(
    cloud: FakeLambda, lambda_: provider.LambdaProvider, tmp_path: Path, reply: Answer | None
) -> None:
    cloud.fail("POST", "/api/v1/firewall-rulesets", reply, after=reply is None)
    with pytest.raises(Exception) as raised:  # noqa: PT011  # told apart below
        await _prepared(lambda_, tmp_path)
    if isinstance(raised.value, SkywardError):
        assert cloud.left == []
    else:
        cluster = await _prepared(lambda_, tmp_path)
        await lambda_.teardown(cluster)
        assert cloud.left == [], "it was found by its name"


@in_loop
async def test_failed_fallback_leaves_the_key_of_the_pool(
    cloud: FakeLambda, lambda_: provider.LambdaProvider, tmp_path: Path
) -> None:
    """Machines of the pool in another region are launched with it."""
    cluster = await _prepared(lambda_, tmp_path)
    full = Answer(400, {"error": {"code": "global/quota-exceeded", "message": "Full."}})
    cloud.fail("POST", "/api/v1/firewall-rulesets", full)
    with pytest.raises(QuotaError):
        await _prepared(lambda_, tmp_path, "gpu_1x_a10/us-east-1")
    _, launched = await lambda_.provision(cluster, 1)
    assert len(launched) == 1


@in_loop
async def test_sweep_removes_what_is_ours_only(
    cloud: FakeLambda, lambda_: provider.LambdaProvider, settings: sky.Lambda, tmp_path: Path
) -> None:
    cluster = await _prepared(lambda_, tmp_path)
    await lambda_.provision(cluster, 2)
    await lambda_._api.add_key("somebody", "ssh-ed25519 AAAA")
    other = {**TAGS, "skyward-owner": "somebody", "skyward-pool": "theirs", "skyward-request": "theirs-1"}
    await lambda_.provision(dataclasses.replace(cluster, tags=other), 1)
    fresh = settings.create_provider()
    assert isinstance(fresh, SweepableProvider)
    found = await fresh.leftovers("tests")
    assert [(each.kind, each.pool, each.hourly_price) for each in found] == [
        ("machine", "unit-1", 0.75),
        ("machine", "unit-1", 0.75),
        ("SSH key", "unit-1", None),
        ("firewall ruleset", "unit-1", None),
    ]
    for each in found[:3]:
        await fresh.remove(each)
        await fresh.remove(each)
    assert cloud.left == ["skyward-unit-1", "somebody", "sky-tests-unit-1"], "the other's machine uses our ruleset"


@pytest.mark.timeout(900)  # a hundred clients, on a busy machine
def test_client_killed_at_any_request_leaves_nothing(
    cloud: FakeLambda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of("lambda_at", cloud.url)
    requests = reaped_after_each_kill(cloud, source, lambda: cloud.left, tmp_path, monkeypatch)
    assert requests >= 12


@in_loop
async def test_secrets_of_instances_go_nowhere(
    cloud: FakeLambda, lambda_: provider.LambdaProvider, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    cluster = await _prepared(lambda_, tmp_path)
    _, (launched,) = await lambda_.provision(cluster, 1)
    running = await _running(lambda_, cluster, launched.id)
    token = cloud.instances[launched.id]["jupyter_token"]
    for text in (caplog.text, repr(running), repr(await lambda_._instances.get()), repr(cluster)):
        assert token not in text
    assert KEY not in caplog.text + repr(cluster) + repr(lambda_._settings)
    assert identity("unit-1").host_key_seed not in repr(cluster)


@in_loop
async def test_checks_name_the_problem(cloud: FakeLambda, settings: sky.Lambda) -> None:
    lambda_ = provider.LambdaProvider(settings)
    assert [(each.what, each.problem) for each in await lambda_.check()] == [
        ("may list instances", ""),
        ("may list offers", ""),
    ]
    stranger = provider.LambdaProvider(dataclasses.replace(settings, api_key="wrong"))
    problems = [each.problem for each in await stranger.check()]
    assert all(each.startswith("Lambda refuses the API key; create one at") for each in problems)
    assert not any("wrong" in each for each in problems)


@in_loop
async def test_credentials(settings: sky.Lambda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAMBDA_API_KEY", raising=False)
    bare = sky.Lambda(endpoint=settings.endpoint)
    assert bare.credentials().found == ""
    with pytest.raises(CredentialsError, match="set LAMBDA_API_KEY, or give `sky.Lambda"):
        await _offers(provider.LambdaProvider(bare))
    monkeypatch.setenv("LAMBDA_API_KEY", KEY)
    assert bare.credentials().found == "environment variable LAMBDA_API_KEY"
    assert await _offers(provider.LambdaProvider(bare))
    assert settings.credentials().found == "the settings"
    assert KEY not in repr(settings)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"api_key": " "}, "api_key must not be empty"),
        ({"region": 5}, "region"),
        ({"caller_cidr": "everywhere"}, "caller_cidr must be IPv4 addresses"),
        ({"caller_cidr": "2001:db8::/64"}, "caller_cidr must be IPv4 addresses"),
        ({"request_timeout": 0}, "request_timeout"),
    ],
)
def test_wrong_settings(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        sky.Lambda(**wrong)


def test_host_key_of_each_machine_is_its_own() -> None:
    keys = {key_pair("seed", provider._purpose("request", number)).public for number in ("0", "1")}
    assert len(keys) == 2
