"""AWS EC2: refusals, lost answers, partial fleets, and what is not visible at once."""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward.control.act.nodes.launching import launchers_of
from skyward.journal import PoolRecord
from skyward.providers import Offer
from skyward.providers.conformance import check_refusal
from skyward.specs import Options
from skyward_providers.aws_account import launches, network
from tests.cloud.aws_cases import SETTINGS, offers_of, prepared
from tests.fakes.aws import FakeAWS
from tests.waiting import wait_for_async

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses before retries."""
    monkeypatch.setattr(launches, "_PAUSES", (0.01, 0.01, 0.01))
    monkeypatch.setattr(network, "_FIRST_PAUSE", 0.01)


def in_fleet(code: str) -> Callable[[FakeAWS], None]:
    def refuse(aws: FakeAWS) -> None:
        aws.shim.refusals["*", "*"] = code

    return refuse


def of_call(code: str, status: int = 400, message: str = "", times: int = -1) -> Callable[[FakeAWS], None]:
    return lambda aws: aws.shim.fail("CreateFleet", code, status=status, message=message, times=times)


ENCODED = "You are not authorized to perform this operation. Encoded authorization failure message: AbCdEf"

REFUSALS: dict[str, tuple[type[sky.SkywardError], Callable[[FakeAWS], None], str]] = {
    "no capacity": (sky.NoCapacityError, in_fleet("InsufficientInstanceCapacity"), "InsufficientInstanceCapacity"),
    "no capacity, 500": (sky.NoCapacityError, of_call("InsufficientInstanceCapacity", 500), "another type, region"),
    "price": (sky.NoCapacityError, in_fleet("SpotMaxPriceTooLow"), "SpotMaxPriceTooLow"),
    "not in the zone": (sky.NoCapacityError, in_fleet("InvalidFleetConfiguration"), "no capacity of c6i.large"),
    "quota": (sky.QuotaError, in_fleet("VcpuLimitExceeded"), "Service Quotas"),
    "spot quota": (sky.QuotaError, in_fleet("MaxSpotInstanceCountExceeded"), "MaxSpotInstanceCountExceeded"),
    "too fast": (sky.RateLimitError, of_call("RequestLimitExceeded", 503), "RequestLimitExceeded"),
    "too fast, in the fleet": (sky.RateLimitError, in_fleet("RequestLimitExceeded"), "no more requests"),
    "not allowed": (sky.CredentialsError, of_call("UnauthorizedOperation", 403, ENCODED), r"sky\.AWS\(\)\.policy"),
    "not allowed, in the fleet": (sky.CredentialsError, in_fleet("UnauthorizedOperation"), "CreateFleet"),
    "expired": (sky.CredentialsError, of_call("RequestExpired"), "refuses the credentials"),
    "invalid key": (sky.CredentialsError, of_call("AuthFailure", 401), "AuthFailure"),
    "no role": (
        sky.CredentialsError,
        in_fleet("AuthFailure.ServiceLinkedRoleCreationNotPermitted"),
        "iam:CreateServiceLinkedRole",
    ),
    "impossible": (sky.SpecError, of_call("InvalidAMIID.NotFound"), r"sky\.AWS\(ami=\.\.\.\)"),
    "something else": (sky.ProvisioningError, of_call("InvalidParameterCombination"), "AWS refused CreateFleet"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_are_told_apart(aws: FakeAWS, tmp_path: Path, case: str) -> None:
    expected, refuse, words = REFUSALS[case]

    def choose(offers: Sequence[Offer]) -> Offer:
        return replace(offers[0], spot_price=None)

    error = asyncio.run(check_refusal(SETTINGS, tmp_path, expected, lambda: refuse(aws), choose=choose))
    assert re.search(words, str(error)), str(error)
    assert "AbCdEf" not in str(error)
    assert aws.left() == []


def test_lack_of_capacity_is_not_retried(aws: FakeAWS, tmp_path: Path) -> None:
    """The SDK retries answers of 500, and this is one: 4 s would be lost for each offer."""
    aws.shim.fail("CreateFleet", "InsufficientInstanceCapacity", status=500, times=-1)

    async def main() -> None:
        provider = SETTINGS.create_provider()
        with pytest.raises(sky.NoCapacityError):
            await provider.provision(await prepared(provider, tmp_path), 1)

    asyncio.run(main())
    assert len(aws.asked("CreateFleet")) == 1


def test_quota_says_more_than_capacity(aws: FakeAWS, tmp_path: Path) -> None:
    aws.shim.refusals |= {("*", "*"): "InsufficientInstanceCapacity", ("c7i.large", "*"): "VcpuLimitExceeded"}

    async def main() -> None:
        provider = SETTINGS.create_provider()
        with pytest.raises(sky.QuotaError, match="VcpuLimitExceeded"):
            await provider.provision(await prepared(provider, tmp_path), 1)

    asyncio.run(main())


@pytest.mark.parametrize("status", [400, 503])
def test_launch_that_came_too_fast_is_repeated_with_its_token(aws: FakeAWS, tmp_path: Path, status: int) -> None:
    aws.shim.fail("CreateFleet", "RequestLimitExceeded", status=status, times=2)

    async def main() -> None:
        provider = SETTINGS.create_provider()
        _, launched = await provider.provision(await prepared(provider, tmp_path), 2)
        assert len(launched) == 2

    asyncio.run(main())
    assert [each.values["ClientToken"] for each in aws.asked("CreateFleet")] == ["unit-1-1"] * 3


def test_fleet_that_launched_nothing_for_a_passing_reason_is_repeated_with_another_token(
    aws: FakeAWS, tmp_path: Path
) -> None:
    """The answer to a token is repeated too."""
    aws.shim.refusals["*", "*"] = "RequestLimitExceeded"

    async def main() -> None:
        provider = SETTINGS.create_provider()
        launching = asyncio.ensure_future(provider.provision(await prepared(provider, tmp_path), 1))
        await wait_for_async(lambda: aws.asked("CreateFleet"), "the launch")
        aws.shim.refusals.clear()
        assert len((await launching)[1]) == 1

    asyncio.run(main())
    tokens = [each.values["ClientToken"] for each in aws.asked("CreateFleet")]
    assert tokens[0] == "unit-1-1"
    assert len(set(tokens)) == len(tokens) > 1
    assert len(aws.machines()) == 1


def test_fleet_of_fewer_machines_is_used(aws: FakeAWS, tmp_path: Path) -> None:
    aws.shim.capacity["c7i.large", "us-east-1b"] = 2

    async def main() -> None:
        provider = SETTINGS.create_provider()
        cluster = await prepared(provider, tmp_path)
        for kind in cluster.specific["prices"]:
            for zone in "abcdef":
                aws.shim.capacity.setdefault((kind, f"us-east-1{zone}"), 0)
        cluster, launched = await provider.provision(cluster, 3)
        assert len(launched) == 2
        assert {each.id for each in await provider.find(cluster)} == {each.id for each in launched}
        assert {each.hourly_price for each in launched} == {cluster.specific["prices"]["c7i.large"]}

    asyncio.run(main())


def test_lost_answer_is_asked_for_again(aws: FakeAWS, tmp_path: Path) -> None:
    aws.shim.lose_answer("CreateFleet", 2)
    aws.shim.lose_answer("CreateLaunchTemplateVersion")
    aws.shim.lose_answer("CreateLaunchTemplate")
    aws.shim.lose_answer("CreateSecurityGroup")

    async def main() -> None:
        provider = SETTINGS.create_provider()
        cluster, launched = await provider.provision(await prepared(provider, tmp_path), 2)
        assert {each.id for each in launched} == {each.id for each in aws.machines()}
        await provider.terminate(cluster, [each.id for each in launched])
        await provider.teardown(cluster)

    asyncio.run(main())
    assert aws.left() == []


@pytest.mark.parametrize("fault", ["closed", "reset", "InternalError", "Unavailable"])
def test_launch_without_an_answer_has_an_unknown_outcome(aws: FakeAWS, tmp_path: Path, fault: str) -> None:
    lost = fault in ("closed", "reset")
    if lost:
        aws.shim.lose_answer("CreateFleet", 10, reset=fault == "reset")
    else:
        aws.shim.fail("CreateFleet", fault, status=503, times=-1)

    async def main() -> None:
        provider = SETTINGS.create_provider()
        cluster = await prepared(provider, tmp_path)
        with pytest.raises(Exception) as raised:  # noqa: PT011 (any but Skyward's)
            await provider.provision(cluster, 2)
        assert not isinstance(raised.value, sky.SkywardError)
        found = await SETTINGS.create_provider().find(cluster)
        assert len(found) == (2 if lost else 0)
        assert {each.id for each in found} == {each.id for each in aws.machines()}

    asyncio.run(main())


@pytest.mark.parametrize("then", ["no network", "RequestLimitExceeded", "ExpiredToken"])
def test_launch_whose_answer_was_lost_may_have_launched_whatever_comes_then(
    aws: FakeAWS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    def fail() -> None:
        if then == "no network":
            monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        else:
            aws.shim.fail("CreateFleet", then, times=-1)

    async def main() -> None:
        provider = SETTINGS.create_provider()
        cluster = await prepared(provider, tmp_path)
        aws.shim.lose_answer("CreateFleet")
        aws.on_request = lambda moment: fail() if moment == "after" and aws.asked("CreateFleet") else None
        with pytest.raises(Exception) as raised:  # noqa: PT011 (any but Skyward's)
            await provider.provision(cluster, 1)
        assert not isinstance(raised.value, sky.SkywardError)
        assert len(aws.machines()) == 1

    try:
        asyncio.run(main())
    finally:
        aws.on_request = lambda moment: None


def test_lack_of_capacity_after_a_lost_answer_is_an_answer(aws: FakeAWS, tmp_path: Path) -> None:
    """AWS repeats its answer to a token that it carried out."""
    aws.shim.fail("CreateFleet", "InternalError", status=500)
    aws.shim.fail("CreateFleet", "InsufficientInstanceCapacity", status=500)

    async def main() -> None:
        provider = SETTINGS.create_provider()
        with pytest.raises(sky.NoCapacityError):
            await provider.provision(await prepared(provider, tmp_path), 1)

    asyncio.run(main())


def test_machines_of_a_lost_answer_are_found_although_they_are_not_visible_at_once(
    aws: FakeAWS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launches, "_LISTED_WITHIN", 2.0)
    aws.shim.lose_answer("CreateFleet", 10)
    aws.shim.hidden_for = 1

    async def main() -> None:
        provider = SETTINGS.create_provider()
        cluster = await prepared(provider, tmp_path)
        with pytest.raises(Exception, match="closed"):
            await provider.provision(cluster, 2)
        monkeypatch.setattr(launches, "_LISTED_WITHIN", 60.0)  # however long the launch took
        finding = asyncio.ensure_future(provider.find(cluster))
        await wait_for_async(lambda: aws.asked("DescribeInstances"), "the first listing")
        assert not finding.done()
        finding.cancel()
        monkeypatch.setattr(launches, "_LISTED_WITHIN", 0.0)
        assert len(await provider.find(cluster)) == 2

    asyncio.run(main())


@pytest.mark.parametrize("hidden_for", [0, 3])
def test_aborted_launch_leaves_no_machine(aws: FakeAWS, tmp_path: Path, hidden_for: int) -> None:
    aws.shim.hidden_for = hidden_for

    async def main() -> None:
        provider = SETTINGS.create_provider()
        launching = asyncio.ensure_future(provider.provision(await prepared(provider, tmp_path), 2))
        with aws.holding("CreateFleet"):
            await wait_for_async(lambda: aws.asked("CreateFleet"), "the launch")
            launching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await launching
        assert aws.machines() == []

    asyncio.run(main())


def test_machine_that_is_not_visible_yet_is_terminated_when_it_is(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> None:
        provider = SETTINGS.create_provider()
        cluster = await prepared(provider, tmp_path)
        aws.shim.hidden_for = 3
        cluster, (first,) = await provider.provision(cluster, 1)
        assert (await provider.get_instance(cluster, first.id))[1] is None
        assert len(aws.machines()) == 1
        await provider.terminate(cluster, [first.id, "i-0123456789abcdef0"])
        assert aws.machines() == []

    asyncio.run(main())


def test_machine_runs_once_it_is_visible_and_has_booted(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> None:
        aws.shim.hidden_for, aws.shim.pending_for = 2, 2
        provider = SETTINGS.create_provider()
        cluster, (launched,) = await provider.provision(await prepared(provider, tmp_path), 1)
        seen = []
        while "running" not in seen:
            provider = SETTINGS.create_provider()  # another process: without the last listing
            _, instance = await provider.get_instance(cluster, launched.id)
            seen.append(instance.status if instance else "invisible")
        assert list(dict.fromkeys(seen)) == ["invisible", "provisioning", "running"]

    asyncio.run(main())


def test_unknown_ids_do_not_keep_the_others_alive(aws: FakeAWS, tmp_path: Path) -> None:
    """One unknown id fails a whole call, and an empty list is an error."""

    async def main() -> None:
        provider = SETTINGS.create_provider()
        cluster, launched = await provider.provision(await prepared(provider, tmp_path), 2)
        ids = [each.id for each in launched]
        await provider.terminate(cluster, [])
        await provider.terminate(cluster, ["i-0123456789abcdef0", *ids, "i-0123456789abcdef1", "nonsense"])
        assert aws.machines() == []
        await SETTINGS.create_provider().terminate(cluster, ids)

    asyncio.run(main())


def test_unknown_ids_that_the_error_does_not_name_do_not_either(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> None:
        provider = SETTINGS.create_provider()
        cluster, launched = await provider.provision(await prepared(provider, tmp_path), 2)
        aws.shim.fail("TerminateInstances", "InvalidInstanceID.NotFound", message="Something does not exist")
        await provider.terminate(cluster, [each.id for each in launched])
        assert aws.machines() == []

    asyncio.run(main())


def test_group_is_deleted_once_its_last_machine_is_gone(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> None:
        provider = SETTINGS.create_provider()
        cluster, launched = await provider.provision(await prepared(provider, tmp_path), 1)
        await provider.terminate(cluster, [each.id for each in launched])
        aws.shim.held_for = 4
        await provider.teardown(cluster)
        assert len(aws.asked("DeleteSecurityGroup")) == 5
        await provider.teardown(cluster)

    asyncio.run(main())
    assert aws.left() == []


def test_image_whose_answer_was_lost_is_waited_for(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> None:
        provider: Any = SETTINGS.create_provider()
        cluster, (machine,) = await provider.provision(await prepared(provider, tmp_path), 1)
        aws.shim.lose_answer("CreateImage")
        aws.shim.answer_nothing("DescribeImages")
        image = await provider.make_image(cluster, machine.id, "skyward-1")
        assert await provider.find_images(cluster) == [image]
        await provider.delete_image(image)
        await provider.terminate(cluster, [machine.id])
        await provider.teardown(cluster)

    asyncio.run(main())
    assert aws.left() == []


def test_group_in_use_is_named(aws: FakeAWS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        provider = SETTINGS.create_provider()
        cluster, _ = await provider.provision(await prepared(provider, tmp_path), 1)
        monkeypatch.setattr(network.delete_group, "__defaults__", (0.05,))
        with pytest.raises(sky.ProvisioningError, match=r"Security group sg-\w+ in us-east-1 is still in use"):
            await provider.teardown(cluster)

    asyncio.run(main())


def test_group_stays_while_the_pool_has_machines_of_another_offer(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> None:
        provider = SETTINGS.create_provider()
        one, other = await prepared(provider, tmp_path), await prepared(provider, tmp_path, "g6.xlarge")
        assert one.specific["group"] == other.specific["group"]
        await provider.teardown(one)
        _, launched = await provider.provision(other, 1)
        await provider.terminate(other, [each.id for each in launched])
        await provider.teardown(other)

    asyncio.run(main())
    assert aws.left() == []


def test_offers_that_are_torn_down_at_once_leave_no_group(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> None:
        provider = SETTINGS.create_provider()
        clusters = [await prepared(provider, tmp_path, kind) for kind in ("c6i.large", "g6.xlarge")]
        await asyncio.gather(*map(provider.teardown, clusters))

    asyncio.run(main())
    assert aws.left() == []


@pytest.mark.parametrize("action", ["DescribeLaunchTemplates", "DescribeSecurityGroups"])
def test_what_is_not_listed_yet_is_removed(aws: FakeAWS, tmp_path: Path, action: str) -> None:
    async def main() -> None:
        provider = SETTINGS.create_provider()
        cluster = await prepared(provider, tmp_path)
        aws.shim.answer_nothing(action)
        await provider.teardown(cluster)

    asyncio.run(main())
    assert aws.left() == []


@pytest.mark.parametrize("action", ["AuthorizeSecurityGroupIngress", "CreateLaunchTemplate", "CreateSecurityGroup"])
def test_preparation_that_fails_leaves_nothing(aws: FakeAWS, tmp_path: Path, action: str) -> None:
    async def main() -> None:
        aws.shim.fail(action, "UnauthorizedOperation", status=403)
        with pytest.raises(sky.CredentialsError, match=f"does not allow {action}"):
            await prepared(SETTINGS.create_provider(), tmp_path)

    asyncio.run(main())
    assert aws.left() == []


def test_preparation_of_another_process_finds_what_is_there(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> None:
        first = await prepared(SETTINGS.create_provider(), tmp_path)
        second = await prepared(SETTINGS.create_provider(), tmp_path, disk_gb=50)  # another content of the template
        for key in ("group", "template"):
            assert first.specific[key] == second.specific[key]
        await SETTINGS.create_provider().teardown(second)

    asyncio.run(main())
    assert aws.left() == []


def test_group_of_somebody_else_is_neither_used_nor_deleted(
    aws: FakeAWS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "_VISIBLE_WITHIN", 0.05)

    async def main() -> None:
        provider: Any = SETTINGS.create_provider()
        cluster = await prepared(provider, tmp_path)
        await provider.teardown(cluster)
        values = {"GroupName": "skyward-unit-1", "Description": "Not ours", "VpcId": cluster.specific["vpc"]}
        await provider._account.call("ec2", "create_security_group", "us-east-1", **values)
        with pytest.raises(sky.ProvisioningError, match="'skyward-unit-1' in us-east-1 is not of this pool"):
            await prepared(provider, tmp_path)

    asyncio.run(main())
    assert len(aws.left()) == 1


def test_new_group_that_is_not_visible_yet_is_waited_for(aws: FakeAWS, tmp_path: Path) -> None:
    aws.shim.fail("AuthorizeSecurityGroupIngress", "InvalidGroup.NotFound", times=3)
    asyncio.run(prepared(SETTINGS.create_provider(), tmp_path))


def test_new_template_that_is_not_visible_yet_is_waited_for(aws: FakeAWS, tmp_path: Path) -> None:
    aws.shim.fail("CreateLaunchTemplateVersion", "InvalidLaunchTemplateId.NotFound", times=2)
    aws.shim.fail("CreateFleet", "InvalidLaunchTemplateId.VersionNotFound", times=2)

    async def main() -> None:
        provider = SETTINGS.create_provider()
        _, launched = await provider.provision(await prepared(provider, tmp_path), 1)
        assert len(launched) == 1

    asyncio.run(main())


def test_listing_that_came_too_fast_is_repeated(aws: FakeAWS, tmp_path: Path) -> None:
    """A machine was forgotten for that elsewhere, and leaked."""

    async def main() -> None:
        provider = SETTINGS.create_provider()
        cluster, launched = await provider.provision(await prepared(provider, tmp_path), 1)
        aws.shim.fail("DescribeInstances", "RequestLimitExceeded", status=503)
        assert [each.id for each in await provider.find(cluster)] == [each.id for each in launched]

    asyncio.run(main())


def test_account_without_a_default_network_says_how_to_get_one(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> None:
        provider: Any = SETTINGS.create_provider()
        subnets = await provider._account.all("ec2", "describe_subnets", "us-east-1", "Subnets")
        for each in subnets:
            await provider._account.call("ec2", "delete_subnet", "us-east-1", SubnetId=each["SubnetId"])
        with pytest.raises(sky.ProvisioningError, match="aws ec2 create-default-vpc --region us-east-1"):
            await prepared(provider, tmp_path)

    asyncio.run(main())


def test_region_that_cannot_be_used_is_left_for_another(
    aws: FakeAWS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path))
    settings = replace(SETTINGS, regions=["eu-west-1", "us-east-1"])
    spec = sky.Spec(provider=settings, vcpus=2, memory_gb=4, architecture="x86_64", allocation="on-demand")
    record = PoolRecord.new("unit", {"": (spec,)}, Options(), 1.0)
    launcher = launchers_of(record, {"": (spec,)}, Options())[""]

    async def main() -> None:
        provider: Any = settings.create_provider()
        for each in await provider._account.all("ec2", "describe_subnets", "eu-west-1", "Subnets"):
            await provider._account.call("ec2", "delete_subnet", "eu-west-1", SubnetId=each["SubnetId"])
        await launcher.prepare()
        (machine,) = await launcher.provision(launcher.sources[0], 1)
        assert (launcher.sources[0].zone, len(aws.machines("us-east-1"))) == ("us-east-1", 1)
        assert [each for each in launcher.notes if "create-default-vpc --region eu-west-1" in each]
        await launcher.terminate(machine)
        await launcher.teardown()

    asyncio.run(main())
    record.end()
    assert aws.left("eu-west-1") == aws.left() == []


def test_type_that_no_zone_has_is_no_capacity(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> None:
        provider: Any = SETTINGS.create_provider()
        subnets = await provider._account.all("ec2", "describe_subnets", "us-east-1", "Subnets")
        (old,) = [each["SubnetId"] for each in subnets if each["AvailabilityZone"] == "us-east-1e"]
        here = replace(SETTINGS, subnet_id=old)
        with pytest.raises(sky.NoCapacityError, match=r"none of the zones of these subnets"):
            await prepared(here.create_provider(), tmp_path, settings=here)

    asyncio.run(main())


def test_missing_credentials_are_named(aws: FakeAWS, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(sky.CredentialsError, match="aws configure"):
        asyncio.run(offers_of())


def test_missing_profile_is_named(aws: FakeAWS) -> None:
    with pytest.raises(sky.CredentialsError, match="ProfileNotFound"):
        asyncio.run(offers_of(replace(SETTINGS, profile="nobody")))


def test_region_that_cannot_be_reached_is_named(aws: FakeAWS, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("skyward_providers.aws_account.account._ATTEMPTS", 1)
    with pytest.raises(sky.ProvisioningError, match="AWS cannot be reached in us-east-1"):
        asyncio.run(offers_of())
