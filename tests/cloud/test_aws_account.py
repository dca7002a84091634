"""AWS EC2: who may enter, what is left in an account, and what its credentials may do."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from moto.backends import get_backend
from moto.core import DEFAULT_ACCOUNT_ID

import skyward as sky
from skyward.providers import Leftover
from skyward_providers.aws_account import admission
from tests.cloud.aws_cases import SETTINGS, prepared
from tests.fakes.aws import FakeAWS
from tests.fakes.server import Answer, FakeServer, Request

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(300)]

ASKING = replace(SETTINGS, caller_cidr=None)


class AddressService(FakeServer):
    """Service that answers with the caller's public address."""

    address = "203.0.113.7\n"

    def handle(self, request: Request) -> Answer:
        """Return the address."""
        return Answer(200, self.address)


@pytest.fixture
def address_service() -> Iterator[AddressService]:
    with AddressService() as service:
        yield service


def ingress(group: str, region: str = "us-east-1") -> set[tuple[str, str | None, str]]:
    """Return who may enter: protocol, port and source."""
    (found,) = [
        each
        for of_vpc in get_backend("ec2")[DEFAULT_ACCOUNT_ID][region].groups.values()
        for each in of_vpc.values()
        if each.id == group
    ]
    rules = set()
    for rule in found.ingress_rules:
        source = rule.ip_range.get("CidrIp") or rule.ip_range.get("CidrIpv6") or rule.source_group.get("GroupId")
        rules.add((rule.ip_protocol, None if rule.from_port is None else str(rule.from_port), source))
    return rules


def test_only_this_computer_and_the_pool_may_enter(
    aws: FakeAWS, tmp_path: Path, address_service: AddressService, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(ASKING, caller_address_url=address_service.url)

    async def main() -> None:
        provider = settings.create_provider()
        cluster = await prepared(provider, tmp_path, settings=settings)
        group = cluster.specific["group"]
        assert ingress(group) == {("tcp", "22", "203.0.113.7/32"), ("-1", None, group)}
        await provider.provision(cluster, 1)
        assert len(address_service.requests) == 1
        address_service.address = "198.51.100.9"  # a laptop that moved
        monkeypatch.setattr(admission, "_MOVED_AFTER", 0.0)
        cluster, (launched,) = await provider.provision(
            replace(cluster, tags={**cluster.tags, "skyward-request": "2"}), 1
        )
        assert ("tcp", "22", "198.51.100.9/32") in ingress(group)
        address_service.address = "2001:db8::1"
        await settings.create_provider().get_instance(cluster, launched.id)  # attached from another network
        assert ("tcp", "22", "2001:db8::1/128") in ingress(group)

    asyncio.run(main())


def test_machine_is_shown_although_the_address_service_is_down(
    aws: FakeAWS, tmp_path: Path, address_service: AddressService, caplog: pytest.LogCaptureFixture
) -> None:
    settings = replace(ASKING, caller_address_url=address_service.url)

    async def main() -> None:
        provider = settings.create_provider()
        cluster, (launched,) = await provider.provision(await prepared(provider, tmp_path, settings=settings), 1)
        address_service.address = "<html>"
        _, instance = await settings.create_provider().get_instance(cluster, launched.id)
        assert instance is not None
        assert instance.status == "running"

    asyncio.run(main())
    assert "may be unreachable" in caplog.text


def test_unknown_address_prepares_nothing(aws: FakeAWS, tmp_path: Path, address_service: AddressService) -> None:
    address_service.address = "<html>"
    settings = replace(ASKING, caller_address_url=address_service.url)
    with pytest.raises(sky.ProvisioningError, match="give it in the settings of the provider"):
        asyncio.run(prepared(settings.create_provider(), tmp_path, settings=settings))
    assert aws.left() == []


def test_group_of_the_settings_is_neither_changed_nor_deleted(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> None:
        other: Any = SETTINGS.create_provider()
        vpc = (await prepared(other, tmp_path, pool="unit-2")).specific["vpc"]
        values = {"GroupName": "mine", "Description": "Mine", "VpcId": vpc}
        group = (await other._account.call("ec2", "create_security_group", "us-east-1", **values))["GroupId"]
        settings = replace(SETTINGS, security_group_id=group)
        provider = settings.create_provider()
        cluster = await prepared(provider, tmp_path, settings=settings)
        cluster, launched = await provider.provision(cluster, 1)
        assert [each.id for each in aws.machines()[0].security_groups] == [group]
        await provider.terminate(cluster, [each.id for each in launched])
        await provider.teardown(cluster)
        assert ingress(group) == set()
        assert group in aws.left()

    asyncio.run(main())


def test_leftovers_of_all_regions_are_found_by_owner_and_removed(aws: FakeAWS, tmp_path: Path) -> None:
    settings = replace(SETTINGS, regions=["us-east-1", "eu-west-1"])
    volumes = {"AvailabilityZone": "eu-west-1a", "Size": 1}

    async def main() -> None:
        provider: Any = settings.create_provider()
        for region in settings.all_regions:
            cluster = await prepared(provider, tmp_path, settings=settings, in_region=region, request=f"1-{region}")
            await provider.provision(cluster, 1)
        tags = [{"Key": "skyward-owner", "Value": "conformance"}, {"Key": "skyward-pool", "Value": "unit-1"}]
        tagged = {"TagSpecifications": [{"ResourceType": "volume", "Tags": tags}]}
        await provider._account.call("ec2", "create_volume", "eu-west-1", **volumes, **tagged)
        await provider._account.call("ec2", "create_volume", "eu-west-1", **volumes)  # somebody else's
        assert await provider.leftovers("somebody") == []
        other: Any = settings.create_provider()
        found = list(await other.leftovers("conformance"))
        kinds = {region: [each.kind for each in found if each.region == region] for region in settings.all_regions}
        assert kinds == {
            "us-east-1": ["machine", "launch template", "security group"],
            "eu-west-1": ["machine", "launch template", "disk", "security group"],
        }
        assert {each.pool for each in found} == {"unit-1"}
        for leftover in found:
            await other.remove(leftover)
        for leftover in found:
            await other.remove(leftover)
        assert await other.leftovers("conformance") == []

    asyncio.run(main())
    assert aws.left("us-east-1") == aws.left("eu-west-1") == []
    backend = get_backend("ec2")[DEFAULT_ACCOUNT_ID]["eu-west-1"]
    assert [volume.size for volume in backend.volumes.values() if not volume.get_tags()] == [1]


def test_permissions_are_checked_one_by_one(aws: FakeAWS) -> None:
    async def main() -> dict[str, str]:
        aws.shim.fail("CreateFleet", "UnauthorizedOperation", status=403)
        aws.shim.fail("GetProducts", "AccessDeniedException")
        provider: Any = SETTINGS.create_provider()
        return {each.what: each.problem for each in await provider.check()}

    found = asyncio.run(main())
    assert {what for what, problem in found.items() if problem} == {"may launch fleets", "may read prices"}
    assert "sky.AWS().policy" in found["may launch fleets"]
    assert aws.left() == []


def test_invalid_credentials_are_the_only_problem(aws: FakeAWS) -> None:
    async def main() -> list[Any]:
        aws.shim.fail("GetCallerIdentity", "InvalidClientTokenId", status=403)
        provider: Any = SETTINGS.create_provider()
        return list(await provider.check())

    (only,) = asyncio.run(main())
    assert "refuses the credentials (InvalidClientTokenId" in only.problem


def test_policy_allows_every_call_that_is_made(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> None:
        provider: Any = SETTINGS.create_provider()
        async for _ in provider.offers():
            pass
        cluster = await prepared(provider, tmp_path)
        cluster, launched = await provider.provision(cluster, 1)
        await provider.get_instance(cluster, launched[0].id)
        await provider.leftovers("conformance")
        await provider.image_scope(cluster.spec, cluster.offer)
        image = await provider.make_image(cluster, launched[0].id, "skyward-1")
        assert await provider.find_images(cluster) == [image]
        await provider.delete_image(image)
        await provider.remove(Leftover("disk", "vol-0123456789abcdef0", "unit-1", "us-east-1"))
        await provider.terminate(cluster, [launched[0].id])
        await provider.teardown(cluster)
        await provider.check()

    asyncio.run(main())
    statements = json.loads(SETTINGS.policy)["Statement"]
    allowed = {action for each in statements for action in each["Action"]}
    implied = {"ec2:CreateTags", "iam:CreateServiceLinkedRole"}  # AWS checks them for what the calls cause
    assert allowed == {f"{each.service}:{each.action}" for each in aws.shim.requests} | implied


def test_check_tags_what_the_policy_wants_tagged(aws: FakeAWS) -> None:
    """A launch whose disk has no tag would be refused, although the policy allows those that are made."""

    async def main() -> None:
        provider: Any = SETTINGS.create_provider()
        await provider.check()

    asyncio.run(main())
    (asked,) = aws.asked("RunInstances")
    (wanted,) = [
        {arn.rpartition(":")[2].partition("/")[0] for arn in each["Resource"]}
        for each in json.loads(SETTINGS.policy)["Statement"]
        if each["Sid"] == "CreateTagged"
    ]
    tagged = {each["ResourceType"] for each in asked.values["TagSpecification"]}
    assert tagged == wanted - {"fleet", "launch-template", "security-group"}  # which it does not create


def test_role_of_the_instance_profile_may_be_given() -> None:
    settings = replace(SETTINGS, instance_profile_arn="arn:aws:iam::123456789012:instance-profile/team/reader")
    given = json.loads(settings.policy)["Statement"][-1]
    assert (given["Action"], given["Resource"]) == (["iam:PassRole"], ["arn:aws:iam::123456789012:role/team/reader"])
    assert given["Condition"] == {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}
    assert "iam:PassRole" not in SETTINGS.policy
