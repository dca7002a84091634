"""AWS Fargate: the provider against moto, behind a shim with what moto lacks."""

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

import skyward as sky
from skyward.link.adapters.registry import GroupRequirements
from skyward.pool.reaping import sweep as sweeping
from skyward.providers import Offer, SSHAccess
from skyward.providers.conformance import check_provider, check_refusal, conformance_identity
from skyward.wire.protocol.adapter import Answer, StartWorkerGroup
from skyward.worker.machine.notices import STOP_NOTICE
from skyward_providers.adapter_groups import Groups
from skyward_providers.aws_account import launches, network
from skyward_providers.fargate import ecs_clusters, launching
from tests.cloud.fargate_cases import fargate_at, launched, offers_of, prepared
from tests.cloud.kills import reaped_after_each_kill
from tests.fakes.aws import FakeAWS
from tests.fakes.aws.catalogue import FARGATE, FARGATE_SPOT
from tests.fakes.aws.tasks import NO_CAPACITY
from tests.local.test_adapter_links import controller
from tests.local.test_adapters import TOKEN
from tests.waiting import wait_for_async

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses before retries."""
    monkeypatch.setattr(launches, "_PAUSES", (0.01, 0.01, 0.01))
    for module in (network, ecs_clusters):
        monkeypatch.setattr(module, "_FIRST_PAUSE", 0.01)


@pytest.mark.parametrize("market", ["spot", "on-demand"])
def test_provider_passes_the_conformance_suite(aws: FakeAWS, tmp_path: Path, market: str) -> None:
    def choose(offers: Sequence[Offer]) -> Offer:
        return offers[0] if market == "spot" else replace(offers[0], spot_price=None)

    asyncio.run(check_provider(fargate_at(aws), tmp_path, machines=3, choose=choose))
    assert aws.left() == []
    runs = [each.values for each in aws.asked("RunTask") if "networkConfiguration" in each.values]
    providers = [each.get("capacityProviderStrategy", [{}])[0].get("capacityProvider") for each in runs]
    assert set(providers) == ({"FARGATE_SPOT"} if market == "spot" else {None})
    assert {each.get("launchType") for each in runs} == ({None} if market == "spot" else {"FARGATE"})


def test_offers_are_the_sizes_of_fargate_at_their_prices(aws: FakeAWS) -> None:
    offers = asyncio.run(offers_of(fargate_at(aws, regions=["us-east-1", "eu-west-1", "sa-east-1"])))
    plain, arm = offers["us-east-1/x86_64/4/16"], offers["eu-west-1/arm64/0.5/1"]
    assert (plain.instance_type.vcpus, plain.instance_type.memory_gb) == (4, 16)
    assert plain.on_demand_price == pytest.approx(
        4 * FARGATE["Fargate-vCPU-Hours:perCPU"] + 16 * FARGATE["Fargate-GB-Hours"]
    )
    assert plain.spot_price == pytest.approx(4 * FARGATE_SPOT["vCPU-Hours"] + 16 * FARGATE_SPOT["GB-Hours"])
    assert arm.instance_type.architecture == "arm64"
    assert arm.spot_price == pytest.approx(0.5 * FARGATE_SPOT["ARM-vCPU-Hours"] + FARGATE_SPOT["ARM-GB-Hours"])
    assert offers["sa-east-1/x86_64/4/16"].markets == ("on-demand",)  # the file has no spot prices of that region
    assert not {"us-east-1/x86_64/8/18", "us-east-1/x86_64/1/9", "us-east-1/x86_64/16/24"} & offers.keys()
    assert {"us-east-1/x86_64/8/60", "us-east-1/x86_64/16/120"} <= offers.keys()


def test_spot_tasks_are_left_out_without_their_prices(aws: FakeAWS, caplog: pytest.LogCaptureFixture) -> None:
    offers = asyncio.run(offers_of(fargate_at(aws, spot_prices_url="http://127.0.0.1:9/prices.json")))
    assert {market for offer in offers.values() for market in offer.markets} == {"on-demand"}
    assert "spot tasks are left out" in caplog.text


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"vcpus": 2}, "2 vCPU, 4 GB"),
        ({"vcpus": 1, "memory_gb": 3}, "1 vCPU, 3 GB"),
        ({"memory_gb": 10}, "2 vCPU, 10 GB"),
        ({"vcpus": 8, "memory_gb": 17}, "8 vCPU, 20 GB"),
        ({"vcpus": 0.25}, "0.5 vCPU, 1 GB"),
    ],
)
def test_smallest_size_that_fits_is_taken(aws: FakeAWS, wanted: dict[str, Any], expected: str) -> None:
    (best, *_) = sky.offers(provider=fargate_at(aws), architecture="x86_64", allocation="on-demand", **wanted)
    assert best.type == expected


def test_accelerators_are_refused_in_one_sentence(aws: FakeAWS) -> None:
    with (
        pytest.raises(sky.NoOffersError) as raised,
        sky.Compute(provider=fargate_at(aws), accelerator="T4", logging=False),
    ):
        pass
    assert str(raised.value) == "Fargate has no accelerators; `sky.AWS()` launches machines that have them."


def test_definition_and_launch_have_what_a_task_must_have(aws: FakeAWS, tmp_path: Path) -> None:
    settings = fargate_at(aws, execution_role_arn="arn:aws:iam::1:role/pull", log_group="logs")

    async def main() -> sky.providers.Cluster:
        _, cluster, _ = await launched(settings, tmp_path, disk_gb=50.5, allocation="spot")
        return cluster

    cluster = asyncio.run(main())
    (made,) = [each.values for each in aws.asked("RegisterTaskDefinition")]
    (container,) = made["containerDefinitions"]
    assert (made["cpu"], made["memory"], made["networkMode"]) == ("2048", "8192", "awsvpc")
    assert made["ephemeralStorage"] == {"sizeInGiB": 51}
    assert made["executionRoleArn"].endswith("/pull")
    assert made["runtimePlatform"] == {"cpuArchitecture": "X86_64", "operatingSystemFamily": "LINUX"}
    assert container["stopTimeout"] == 120
    assert container["image"].endswith(f"python:{sky.Spec().image.resolved_python}-slim")
    assert container["logConfiguration"]["options"]["awslogs-region"] == "us-east-1"
    (run,) = [each.values for each in aws.asked("RunTask")]
    assert {each["key"]: each["value"] for each in run["tags"]} == dict(cluster.tags)
    network_of_task = run["networkConfiguration"]["awsvpcConfiguration"]
    assert network_of_task["securityGroups"] == [cluster.specific["group"]]
    assert network_of_task["assignPublicIp"] == "ENABLED"
    variables = {each["name"]: each["value"] for each in run["overrides"]["containerOverrides"][0]["environment"]}
    assert variables["SKYWARD_STOP_NOTICE"] == STOP_NOTICE == launching.STOP_NOTICE
    assert variables["SKYWARD_HOST_KEY"] not in container["command"][0]


def test_task_is_entered_at_its_public_address(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> None:
        aws.shim.tasks.hidden_for, aws.shim.tasks.pending_for = 2, 3
        provider, cluster, (task,) = await launched(fargate_at(aws), tmp_path)
        seen: list[str] = []
        instance: Any = None
        while "running" not in seen:
            other: Any = fargate_at(aws).create_provider()  # another process: without the last listing
            _, instance = await other.get_instance(cluster, task)
            seen.append(instance.status if instance else "invisible")
        assert list(dict.fromkeys(seen)) == ["invisible", "provisioning", "running"]
        assert isinstance(instance.access, SSHAccess)
        assert instance.access.host == instance.public_address
        assert instance.access.host.startswith("198.51.100.")
        assert instance.access.host_key is not None
        assert instance.address != instance.public_address
        assert (instance.hourly_price, instance.notices) == (cluster.offer.on_demand_price, "")
        await provider.terminate(cluster, [task, "0" * 32])
        assert (await provider.get_instance(cluster, task))[1] is None

    asyncio.run(main())


def test_task_that_is_not_visible_yet_is_stopped_when_it_is(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> None:
        aws.shim.tasks.hidden_for = 3
        provider, cluster, tasks = await launched(fargate_at(aws), tmp_path)
        assert len(aws.tasks()) == 1
        await provider.terminate(cluster, [*tasks, "0" * 32])
        assert aws.tasks() == []

    asyncio.run(main())


def answers(code: str, message: str = "", status: int = 400, times: int = -1) -> Callable[[FakeAWS], None]:
    return lambda aws: aws.shim.fail("RunTask", code, status=status, message=message, times=times)


def fails(reason: str) -> Callable[[FakeAWS], None]:
    return lambda aws: aws.shim.tasks.failures.update({"*": reason})


VCPUS = "You've reached the limit on the number of vCPUs you can run concurrently"
HIDDEN_THROTTLE = "Error retrieving security group: Request limit exceeded. (ErrorCode: RequestLimitExceeded)"

REFUSALS: dict[str, tuple[type[sky.SkywardError], Callable[[FakeAWS], None], str]] = {
    "no capacity": (sky.NoCapacityError, fails(NO_CAPACITY), "no capacity of 0.5 vCPU, 1 GB in us-east-1"),
    "no resource": (sky.NoCapacityError, fails("RESOURCE:FARGATE"), "no capacity"),
    "quota": (sky.QuotaError, fails(VCPUS), "Service Quotas"),
    "quota as too fast": (sky.QuotaError, answers("ThrottlingException", VCPUS), "limit on the number of vCPUs"),
    "quota as a mistake": (
        sky.QuotaError,
        answers("ClientException", "The CPU is above your limit"),
        "quota",
    ),
    "too fast": (sky.RateLimitError, answers("ThrottlingException", "Rate exceeded"), "us-east-1"),
    "too fast, hidden": (sky.RateLimitError, answers("InvalidParameterException", HIDDEN_THROTTLE), "no more launches"),
    "not allowed": (
        sky.CredentialsError,
        answers("AccessDeniedException", "not authorized to perform: ecs:RunTask"),
        r"sky\.Fargate\(\)\.policy",
    ),
    "blocked": (sky.CredentialsError, answers("BlockedException", "Your account was blocked"), "BlockedException"),
    "something else": (sky.ProvisioningError, answers("ClientException", "No."), r"AWS refused RunTask \(Client"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_are_told_apart(aws: FakeAWS, tmp_path: Path, case: str) -> None:
    expected, refuse, words = REFUSALS[case]

    def choose(offers: Sequence[Offer]) -> Offer:
        return replace(offers[0], spot_price=None)

    error = asyncio.run(check_refusal(fargate_at(aws), tmp_path, expected, lambda: refuse(aws), choose=choose))
    assert re.search(words, str(error)), str(error)
    assert aws.left() == []


def test_launch_that_came_too_fast_is_repeated_with_its_token(aws: FakeAWS, tmp_path: Path) -> None:
    aws.shim.fail("RunTask", "ThrottlingException", message="Rate exceeded", times=2)
    asyncio.run(launched(fargate_at(aws), tmp_path, 2))
    tokens = [each.values["clientToken"] for each in aws.asked("RunTask")]
    assert len(tokens) == 3
    assert len(set(tokens)) == 1


def test_many_tasks_are_launched_by_several_calls_and_some_may_be_missing(aws: FakeAWS, tmp_path: Path) -> None:
    aws.shim.tasks.capacity["FARGATE"] = 13

    async def main() -> None:
        provider, cluster, tasks = await launched(fargate_at(aws), tmp_path, 25)
        assert len(set(tasks)) == 13
        assert {each.id for each in await provider.find(cluster)} == set(tasks)

    asyncio.run(main())
    assert [each.values["count"] for each in aws.asked("RunTask")] == [10, 10]
    assert len({each.values["clientToken"] for each in aws.asked("RunTask")}) == 2


def test_lost_answers_launch_nothing_twice(aws: FakeAWS, tmp_path: Path) -> None:
    for action in ("CreateSecurityGroup", "CreateCluster", "RegisterTaskDefinition", "RunTask"):
        aws.shim.lose_answer(action, 2 if action == "RunTask" else 1)

    async def main() -> None:
        provider, cluster, tasks = await launched(fargate_at(aws), tmp_path, 2)
        assert {each.id for each in aws.tasks()} == set(tasks)
        for action in ("StopTask", "DeregisterTaskDefinition", "DeleteTaskDefinitions", "DeleteCluster"):
            aws.shim.lose_answer(action)
        await provider.terminate(cluster, tasks)
        await provider.teardown(cluster)

    asyncio.run(main())
    assert aws.left() == []


@pytest.mark.parametrize("fault", ["closed", "reset", "ServerException"])
def test_launch_without_an_answer_has_an_unknown_outcome(aws: FakeAWS, tmp_path: Path, fault: str) -> None:
    async def main() -> None:
        provider, cluster = await prepared(fargate_at(aws), tmp_path)
        lost = fault in ("closed", "reset")
        if lost:
            aws.shim.lose_answer("RunTask", 10, reset=fault == "reset")
        else:
            aws.shim.fail("RunTask", fault, status=500, times=-1)
        with pytest.raises(Exception) as raised:  # noqa: PT011 (any but Skyward's)
            await provider.provision(cluster, 2)
        assert not isinstance(raised.value, sky.SkywardError)
        other: Any = fargate_at(aws).create_provider()
        assert len(await other.find(cluster)) == (2 if lost else 0) == len(aws.tasks())

    asyncio.run(main())


@pytest.mark.parametrize("hidden_for", [0, 3])
def test_aborted_launch_leaves_no_task(aws: FakeAWS, tmp_path: Path, hidden_for: int) -> None:
    aws.shim.tasks.hidden_for = hidden_for

    async def main() -> None:
        provider, cluster = await prepared(fargate_at(aws), tmp_path)
        launching_now = asyncio.ensure_future(provider.provision(cluster, 2))
        with aws.holding("RunTask"):
            await wait_for_async(lambda: aws.asked("RunTask"), "the launch")
            launching_now.cancel()
        with pytest.raises(asyncio.CancelledError):
            await launching_now
        assert aws.tasks() == []

    asyncio.run(main())


@pytest.mark.parametrize(
    ("stop", "detail"),
    [
        (lambda shim, task: shim.fail_to_start(task, NO_CAPACITY), "AWS had no capacity to start it"),
        (
            lambda shim, task: shim.fail_to_start(task, "CannotPullContainerError: pull access denied."),
            "AWS could not start it: CannotPullContainerError: pull access denied",
        ),
    ],
)
def test_reason_of_a_task_that_ended_is_told(
    aws: FakeAWS, tmp_path: Path, stop: Callable[[Any, str], None], detail: str
) -> None:
    async def main() -> None:
        provider, cluster, (task,) = await launched(fargate_at(aws), tmp_path)
        stop(aws.shim.tasks, task)
        _, instance = await provider.get_instance(cluster, task)
        assert (instance.status, instance.detail) == ("exited", detail)
        assert await provider.find(cluster) == []

    asyncio.run(main())


def test_spot_task_runs_on_until_it_has_stopped(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> None:
        provider, cluster, (task,) = await launched(fargate_at(aws), tmp_path, allocation="spot")
        aws.shim.tasks.interrupt(task)
        _, instance = await provider.get_instance(cluster, task)
        assert (instance.status, instance.spot, instance.notices) == ("running", True, "container")
        assert instance.hourly_price == cluster.offer.spot_price
        aws.shim.tasks.has_ended = lambda id: True
        other: Any = fargate_at(aws).create_provider()
        _, instance = await other.get_instance(cluster, task)
        assert (instance.status, instance.detail) == ("exited", "AWS took the spot task back")

    try:
        asyncio.run(main())
    finally:
        aws.shim.tasks.has_ended = lambda id: False


def test_repeated_preparation_finds_the_definition(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> None:
        settings = fargate_at(aws)
        _, first = await prepared(settings, tmp_path)
        _, second = await prepared(settings, tmp_path)
        provider, third = await prepared(settings, tmp_path, disk_gb=50)
        assert first.specific["definition"] == second.specific["definition"] != third.specific["definition"]
        await provider.teardown(third)

    asyncio.run(main())
    assert len(aws.asked("RegisterTaskDefinition")) == 2
    assert aws.left() == []


def test_cluster_and_group_stay_while_the_pool_has_tasks_of_another_offer(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> None:
        settings = fargate_at(aws)
        provider, one = await prepared(settings, tmp_path)
        _, other = await prepared(settings, tmp_path, "arm64/1/2")
        _, neighbour = await prepared(settings, tmp_path, pool="unit-1-x", request="unit-1-x-1")
        await provider.teardown(one)
        _, tasks = await provider.provision(other, 1)
        aws.shim.tasks.stopping_for = 2
        await provider.terminate(other, [each.id for each in tasks])
        await provider.teardown(other)
        await provider.teardown(other)
        _, tasks = await provider.provision(neighbour, 1)
        assert len(tasks) == 1
        await provider.terminate(neighbour, [each.id for each in tasks])
        await provider.teardown(neighbour)

    asyncio.run(main())
    assert aws.left() == []


def test_cluster_with_a_running_task_is_named(aws: FakeAWS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ecs_clusters.delete_cluster, "__defaults__", (0.05,))

    async def main() -> None:
        provider, cluster, _ = await launched(fargate_at(aws), tmp_path)
        with pytest.raises(sky.ProvisioningError, match=r"ECS cluster 'skyward-\w+-unit-1' in us-east-1 still"):
            await provider.teardown(cluster)

    asyncio.run(main())


def test_cluster_of_the_user_is_used_and_kept(aws: FakeAWS, tmp_path: Path) -> None:
    settings = fargate_at(aws, cluster="mine")

    async def main() -> None:
        with pytest.raises(sky.SpecError, match="There is no ECS cluster 'mine' in us-east-1"):
            await prepared(settings, tmp_path)
        account: Any = settings.create_provider()
        await account._account.call("ecs", "create_cluster", "us-east-1", clusterName="mine")
        provider, cluster, tasks = await launched(settings, tmp_path)
        assert [each.kind for each in await provider.leftovers("conformance")] == [
            "machine", "task definition", "security group",
        ]  # fmt: skip  # one sentence
        spot = replace(cluster, spec=replace(cluster.spec, allocation="spot"), tags={"skyward-request": "2"})
        with pytest.raises(sky.SpecError, match="ECS cluster 'mine' has no spot tasks"):
            await provider.provision(spot, 1)
        await provider.terminate(cluster, tasks)
        await provider.teardown(cluster)

    asyncio.run(main())
    assert aws.left() == ["mine"]


def test_listings_that_lag_behind_leave_nothing(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> None:
        provider, cluster = await prepared(fargate_at(aws), tmp_path)
        aws.shim.tasks.lagging = 2
        aws.shim.answer_nothing("DescribeSecurityGroups")
        await provider.teardown(cluster)

    asyncio.run(main())
    assert aws.left() == []


@pytest.mark.parametrize("action", ["AuthorizeSecurityGroupIngress", "CreateCluster", "RegisterTaskDefinition"])
def test_preparation_that_fails_leaves_nothing(aws: FakeAWS, tmp_path: Path, action: str) -> None:
    async def main() -> None:
        aws.shim.fail(action, "AccessDeniedException")
        with pytest.raises(sky.CredentialsError, match=f"does not allow {action}"):
            await prepared(fargate_at(aws), tmp_path)

    asyncio.run(main())
    assert aws.left() == []


def test_first_cluster_of_an_account_waits_for_the_role_of_ecs(aws: FakeAWS, tmp_path: Path) -> None:
    message = "Unable to assume the service linked role. Please verify that the ECS service linked role exists."
    aws.shim.fail("CreateCluster", "InvalidParameterException", message=message, times=2)
    asyncio.run(prepared(fargate_at(aws), tmp_path))


def test_disk_that_is_too_large_is_refused(aws: FakeAWS, tmp_path: Path) -> None:
    with pytest.raises(sky.SpecError, match="at most 200 GB of disk"):
        asyncio.run(prepared(fargate_at(aws), tmp_path, disk_gb=300))
    assert aws.left() == []


def test_leftovers_of_all_regions_are_found_by_owner_and_removed(aws: FakeAWS, tmp_path: Path) -> None:
    settings = fargate_at(aws, regions=["us-east-1", "eu-west-1"])

    async def main() -> None:
        for region in settings.all_regions:
            await launched(settings, tmp_path, in_region=region, request=f"1-{region}")
        machines: Any = sky.AWS(regions=settings.regions).create_provider()
        assert await machines.leftovers("conformance") == []  # a group of tasks is none of machines
        other: Any = settings.create_provider()
        assert await other.leftovers("somebody") == []
        found = list(await other.leftovers("conformance"))
        kinds = ["machine", "task definition", "ECS cluster", "security group"]
        assert [(each.region, each.kind) for each in found] == [
            (region, kind) for region in settings.all_regions for kind in kinds
        ]
        assert {each.pool for each in found} == {"unit-1"}
        for leftover in (*found, *found):
            await other.remove(leftover)
        assert await other.leftovers("conformance") == []

    asyncio.run(main())
    assert aws.left("us-east-1") == aws.left("eu-west-1") == []


def test_permissions_are_checked_one_by_one(aws: FakeAWS) -> None:
    async def main() -> dict[str, str]:
        aws.shim.fail("RunTask", "AccessDeniedException")
        aws.shim.fail("GetProducts", "AccessDeniedException")
        provider: Any = fargate_at(aws).create_provider()
        return {each.what: each.problem for each in await provider.check()}

    found = asyncio.run(main())
    assert {what for what, problem in found.items() if problem} == {"may launch tasks", "may read prices"}
    assert "sky.Fargate().policy" in found["may launch tasks"]
    assert aws.left() == []


def test_policy_allows_every_call_that_is_made(aws: FakeAWS, tmp_path: Path) -> None:
    settings = fargate_at(aws, task_role_arn="arn:aws:iam::1:role/read")

    async def main() -> None:
        provider, cluster, tasks = await launched(settings, tmp_path)
        await prepared(settings, tmp_path)
        with pytest.raises(sky.SpecError, match="There is no ECS cluster 'mine'"):
            await prepared(replace(settings, cluster="mine"), tmp_path)
        await provider.get_instance(cluster, tasks[0])
        await provider.find(cluster)
        await provider.leftovers("conformance")
        await provider.terminate(cluster, tasks)
        await provider.teardown(cluster)
        await provider.check()

    asyncio.run(main())
    statements = json.loads(settings.policy)["Statement"]
    allowed = {action for each in statements for action in each["Action"]}
    implied = {"ecs:TagResource", "ec2:CreateTags", "iam:CreateServiceLinkedRole", "iam:PassRole"}
    assert allowed == {f"{each.service}:{each.action}" for each in aws.shim.requests} | implied
    assert statements[-1]["Resource"] == ["arn:aws:iam::1:role/read"]


def test_adapter_ends_a_task_that_no_listing_had(aws: FakeAWS, tmp_path: Path) -> None:
    """Its launch was not answered, and it was not visible at first."""

    async def main() -> None:
        settings = fargate_at(aws)
        offer = (await offers_of(settings))["us-east-1/x86_64/2/8"]
        spec, identity = sky.Spec(allocation="on-demand"), conformance_identity("unit-1", tmp_path)
        groups = Groups("fargate", identity, settings.create_provider(), spec, offer, -1, 1)
        aws.shim.lose_answer("RunTask", 10)
        aws.shim.answer_nothing("ListTasks", 2)
        answers: list[Answer] = []
        await groups.obey(StartWorkerGroup("1"), answers.append)
        assert [each.status for each in answers] == ["too_much"]
        assert len(aws.tasks()) == 1
        await groups.end()

    asyncio.run(main())
    assert aws.left() == []


@pytest.mark.parametrize("alive", [True, False])
def test_what_a_killed_adapter_left_is_swept(
    aws: FakeAWS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alive: bool
) -> None:
    aws.shim.tasks.pending_for = 1000
    settings = fargate_at(aws)
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(sweeping, "usable_clouds", lambda: [settings])
    monkeypatch.setattr(sweeping, "LIVING", 0.0)
    options = {"caller_cidr": settings.caller_cidr, "spot_prices_url": settings.spot_prices_url}
    words = [word for name, value in options.items() for word in ("--setting", f"{name}={value}")]

    async def main() -> None:
        async with controller() as (server, address):
            command = [sys.executable, "-m", "skyward_providers.adapter", "--connect", address, "--provider", "fargate"]
            environment = {**os.environ, "SKYWARD_ADAPTER_TOKEN": TOKEN}
            adapter = await asyncio.create_subprocess_exec(*command, *words, env=environment)
            start = None
            try:
                await server.adapters(None, 120)
                start = asyncio.create_task(server.start(GroupRequirements()))
                await wait_for_async(lambda: len(aws.tasks()) == 1, "the launch", within=120)
                if alive:
                    assert await asyncio.to_thread(sky.sweep) == []
                    assert len(aws.tasks()) == 1
                else:
                    (keeper,) = psutil.Process(adapter.pid).children()
                    keeper.kill()
                    await adapter.wait()
                    swept = await asyncio.to_thread(sky.sweep)
                    assert {each.kind for each in swept if not each.error} == {
                        "machine", "task definition", "ECS cluster", "security group",
                    }  # fmt: skip  # one set
            finally:
                if start is not None:
                    start.cancel()
                if adapter.returncode is None:
                    adapter.terminate()
                    await adapter.wait()

    asyncio.run(main())
    assert aws.left() == []


@pytest.mark.timeout(900)
def test_client_killed_at_any_request_leaves_nothing(
    aws: FakeAWS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that only list are left out."""
    source = f'sky.Fargate(caller_cidr="203.0.113.7", spot_prices_url="{aws.url}/fargate-spot-prices.json")'
    spec = 'vcpus=2, memory_gb=4, architecture="x86_64"'
    requests = reaped_after_each_kill(
        aws, source, aws.left, tmp_path, monkeypatch, spec=spec, variables=aws.environment
    )
    assert requests >= 10
