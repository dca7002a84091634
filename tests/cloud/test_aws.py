"""AWS EC2: the provider against moto, behind a shim with what moto lacks."""

import asyncio
import base64
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward.providers import Offer, SSHAccess
from skyward.providers.conformance import check_provider
from tests.cloud.aws_cases import SETTINGS, offers_of, prepared
from tests.fakes.aws import FakeAWS
from tests.fakes.aws.catalogue import on_demand_price, spot_price
from tests.required import leave_out_for

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(300)]


@pytest.mark.parametrize("market", ["spot", "on-demand"])
def test_provider_passes_the_conformance_suite(aws: FakeAWS, tmp_path: Path, market: str) -> None:
    def choose(offers: Any) -> Offer:
        offer: Offer = offers[0]
        return offer if market == "spot" else replace(offer, spot_price=None)

    asyncio.run(check_provider(SETTINGS, tmp_path, machines=3, choose=choose))
    assert aws.left() == []
    fleets = [
        each.values["TargetCapacitySpecification"] for each in aws.asked("CreateFleet") if "DryRun" not in each.values
    ]
    assert {each["DefaultTargetCapacityType"] for each in fleets} == {market}


def test_offers_state_hardware_and_prices(aws: FakeAWS) -> None:
    offers = asyncio.run(offers_of())
    plain = offers["us-east-1/m7g.large"]
    assert (plain.instance_type.vcpus, plain.instance_type.memory_gb) == (2, 8)
    assert plain.instance_type.architecture == "arm64"
    assert plain.instance_type.accelerator is None
    assert plain.on_demand_price == on_demand_price("m7g.large")
    assert plain.spot_price == spot_price("m7g.large", "us-east-1a")
    gpus = {
        name: offers[f"us-east-1/{name}"].instance_type for name in ("g4dn.12xlarge", "p4d.24xlarge", "p4de.24xlarge")
    }
    found = {
        name: (kind.accelerator, kind.accelerator_count, kind.accelerator_memory_gb) for name, kind in gpus.items()
    }
    assert found == {
        "g4dn.12xlarge": ("T4", 4, 16),
        "p4d.24xlarge": ("A100", 8, 40),
        "p4de.24xlarge": ("A100", 8, 80),
    }
    assert not [name for name in offers if "metal" in name]
    assert len(json.dumps(dict(plain.specific))) < 500


def test_types_without_an_image_are_offered_with_an_image_of_the_user_only(aws: FakeAWS) -> None:
    """A share of a GPU needs a driver that no public image has."""
    named = asyncio.run(offers_of(replace(SETTINGS, ami="ami-12345678")))
    assert set(named) - set(asyncio.run(offers_of())) == {"us-east-1/g6f.xlarge", "us-east-1/inf2.xlarge"}
    share = named["us-east-1/g6f.xlarge"].instance_type
    assert (share.accelerator, share.accelerator_count, share.accelerator_memory_gb) == ("L4", 0.125, 24)


def test_offers_are_of_all_regions_of_the_settings(aws: FakeAWS) -> None:
    settings = replace(SETTINGS, regions=["eu-west-1", "us-west-2"], exclude_burstable=True)
    offers = asyncio.run(offers_of(settings))
    assert {offer.region for offer in offers.values()} == {"eu-west-1", "us-west-2"}
    assert not [offer for offer in offers.values() if offer.instance_type.name.startswith("t")]


def test_types_that_may_take_the_place_of_another_are_no_smaller_and_hardly_dearer(aws: FakeAWS) -> None:
    offers = asyncio.run(offers_of())
    for offer in offers.values():
        for name, price in offer.specific["types"].items():
            other = offers[f"us-east-1/{name}"]
            assert other.on_demand_price == price <= 1.2 * (offer.on_demand_price or 0)
            assert other.instance_type.vcpus >= offer.instance_type.vcpus
            assert other.instance_type.memory_gb >= offer.instance_type.memory_gb
            assert other.instance_type.accelerator == offer.instance_type.accelerator
            assert other.instance_type.architecture == offer.instance_type.architecture
    assert offers["us-east-1/c6i.large"].specific["types"]


def test_template_has_what_a_machine_must_have(aws: FakeAWS, tmp_path: Path) -> None:
    """Moto's machines of a fleet have little of their template, so it is checked itself."""

    async def main() -> sky.providers.Cluster:
        provider = SETTINGS.create_provider()
        cluster = await prepared(provider, tmp_path, disk_gb=150.5)
        await provider.provision(cluster, 1)
        return cluster

    cluster = asyncio.run(main())
    data = aws.template_data()
    assert data["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert data["MetadataOptions"]["HttpTokens"] == "required"
    assert data["MetadataOptions"]["InstanceMetadataTags"] == "enabled"
    (disk,) = data["BlockDeviceMappings"]
    assert (disk["DeviceName"], str(disk["Ebs"]["VolumeSize"]), disk["Ebs"]["VolumeType"]) == (
        "/dev/sda1",
        "151",
        "gp3",
    )
    assert str(disk["Ebs"]["DeleteOnTermination"]).lower() == "true"
    (interface,) = data["NetworkInterfaces"]
    assert interface["Groups"] == [cluster.specific["group"]]
    assert str(interface["DeleteOnTermination"]).lower() == "true"
    assert "KeyName" not in data
    expected = {**cluster.tags, "Name": "skyward-unit-1"}
    tags = {
        each["ResourceType"]: {tag["Key"]: tag["Value"] for tag in each["Tags"]} for each in data["TagSpecifications"]
    }
    assert tags == dict.fromkeys(("instance", "volume", "network-interface"), expected)


def test_fleet_covers_types_and_zones(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> None:
        provider = SETTINGS.create_provider()
        await provider.provision(await prepared(provider, tmp_path), 2)

    asyncio.run(main())
    (request,) = aws.asked("CreateFleet")
    assert request.values["ClientToken"] == "unit-1-1"
    assert request.values["TargetCapacitySpecification"] == {
        "TotalTargetCapacity": "2",
        "DefaultTargetCapacityType": "on-demand",
    }
    assert request.values["OnDemandOptions"] == {"AllocationStrategy": "lowest-price"}
    (config,) = request.values["LaunchTemplateConfigs"]
    kinds = {each["InstanceType"] for each in config["Overrides"]}
    assert kinds == {"c6i.large", "c7i.large", "m6i.large", "m7i-flex.large", "m7i.large"}
    assert len({each["SubnetId"] for each in config["Overrides"]}) >= 5
    assert {each.instance_type for each in aws.machines()} == {"c6i.large"}


def test_machines_are_as_the_template_says(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> list[sky.providers.Instance | None]:
        provider = SETTINGS.create_provider()
        cluster = await prepared(provider, tmp_path)
        cluster, launched = await provider.provision(cluster, 2)
        assert [each.status for each in launched] == ["provisioning", "provisioning"]
        return [(await provider.get_instance(cluster, each.id))[1] for each in launched]

    found = asyncio.run(main())
    for machine, instance in zip(aws.machines(), found, strict=True):
        assert machine.metadata_options.http_tokens == "required"
        assert machine.instance_initiated_shutdown_behavior == "terminate"
        assert machine.key_name is None
        assert instance is not None
        access = instance.access
        assert isinstance(access, SSHAccess)
        assert (access.host, access.user) == (machine.public_ip, "root")
        assert instance.address == machine.private_ip
        assert instance.hourly_price == on_demand_price("c6i.large")
        assert instance.notices == ""
        config = user_data(machine)
        assert access.host_key == config["ssh_keys"]["ed25519_public"]
        assert access.client_keys == (str(tmp_path / "unit-1.key"),)
        public = subprocess.run(
            ["ssh-keygen", "-yf", access.client_keys[0]], capture_output=True, text=True, check=True
        )
        assert public.stdout.split()[:2] == config["ssh_authorized_keys"][0].split()[:2]
        assert "shutdown -h now" in config["write_files"][0]["content"]


def user_data(machine: Any) -> dict[str, Any]:
    text = base64.b64decode(machine.user_data).decode()
    assert text.startswith("#cloud-config\n")
    config: dict[str, Any] = json.loads(text.partition("\n")[2])
    return config


def test_each_request_has_a_host_key_of_its_own(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> set[str | None]:
        provider = SETTINGS.create_provider()
        first = await prepared(provider, tmp_path)
        second = replace(first, tags={**first.tags, "skyward-request": "unit-1-2"})
        keys = set()
        for cluster in (first, second):
            cluster, (launched,) = await provider.provision(cluster, 1)
            _, instance = await provider.get_instance(cluster, launched.id)
            assert instance is not None
            assert isinstance(instance.access, SSHAccess)
            keys.add(instance.access.host_key)
        return keys

    assert len(asyncio.run(main())) == 2


def test_cloud_init_accepts_the_user_data(aws: FakeAWS, tmp_path: Path) -> None:
    leave_out_for("" if shutil.which("cloud-init") else "cloud-init is not installed", "SKYWARD_CLOUD_INIT")

    async def main() -> None:
        provider = SETTINGS.create_provider()
        await provider.provision(await prepared(provider, tmp_path), 1)

    asyncio.run(main())
    (machine,) = aws.machines()
    file = tmp_path / "user-data"
    file.write_bytes(base64.b64decode(machine.user_data))
    assert len(file.read_bytes()) < 16 * 1024
    checked = subprocess.run(["cloud-init", "schema", "--config-file", str(file)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_spot_machines_have_the_price_of_their_zone_and_learn_of_their_end(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> None:
        provider = SETTINGS.create_provider()
        cluster = await prepared(provider, tmp_path, allocation="spot", max_hourly_cost=0.05)
        for kind in cluster.specific["prices"]:
            aws.shim.refusals[kind, "us-east-1a"] = "InsufficientInstanceCapacity"
        cluster, (launched,) = await provider.provision(cluster, 1)
        _, instance = await provider.get_instance(cluster, launched.id)
        assert instance is not None
        assert instance.spot
        assert instance.notices == "ec2"
        assert launched.hourly_price == instance.hourly_price == spot_price("c6i.large", "us-east-1b")
        aws.shim.interrupt("us-east-1", instance.id)
        assert list(await provider.find(cluster)) == []
        _, ended = await provider.get_instance(cluster, instance.id)
        assert ended is not None
        assert (ended.status, ended.detail) == ("exited", "AWS took the spot machine back")

    asyncio.run(main())
    (request,) = aws.asked("CreateFleet")
    assert request.values["SpotOptions"] == {
        "AllocationStrategy": "price-capacity-optimized",
        "InstanceInterruptionBehavior": "terminate",
    }
    overrides = request.values["LaunchTemplateConfigs"][0]["Overrides"]
    assert {float(each["MaxPrice"]) for each in overrides} == {0.05}
    assert {each["InstanceType"] for each in overrides} >= {"c6i.large", "c7i.large"}


def test_price_of_a_spot_machine_follows_the_market(
    aws: FakeAWS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skyward_providers.aws.provider._PRICES_FOR", 0.0)

    async def main() -> None:
        provider = SETTINGS.create_provider()
        cluster, (launched,) = await provider.provision(await prepared(provider, tmp_path, allocation="spot"), 1)
        prices = [launched.hourly_price]
        for factor in (1.0, 3.0):
            aws.shim.spot_factor = factor
            _, instance = await provider.get_instance(cluster, launched.id)
            assert instance is not None
            prices.append(instance.hourly_price)
        assert prices == pytest.approx([prices[0], prices[0], 3 * prices[0]], rel=1e-3)
        aws.shim.fail("DescribeSpotPriceHistory", "UnauthorizedOperation", status=403)
        _, instance = await provider.get_instance(cluster, launched.id)
        assert instance is not None

    asyncio.run(main())


def test_places_that_cost_more_than_allowed_are_left_out(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> None:
        provider = SETTINGS.create_provider()
        most = on_demand_price("c7i.large")
        cluster = await prepared(provider, tmp_path, max_hourly_cost=most)
        await provider.provision(cluster, 1)
        (config,) = aws.asked("CreateFleet")[-1].values["LaunchTemplateConfigs"]
        assert {each["InstanceType"] for each in config["Overrides"]} == {"c6i.large", "c7i.large"}
        dear = await prepared(provider, tmp_path, max_hourly_cost=0.01)
        with pytest.raises(sky.NoCapacityError, match="for no price that is allowed now"):
            await provider.provision(dear, 1)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("kind", "parameter", "disk"),
    [
        ("c6i.large", "/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/", 100),
        ("m7g.large", "/canonical/ubuntu/server/24.04/stable/current/arm64/hvm/ebs-gp3/", 100),
        ("g6.xlarge", "/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/", 120),
    ],
)
def test_image_is_the_newest_for_the_hardware(
    aws: FakeAWS, tmp_path: Path, kind: str, parameter: str, disk: int
) -> None:
    async def main() -> None:
        await prepared(SETTINGS.create_provider(), tmp_path, kind)

    asyncio.run(main())
    assert parameter in aws.asked("GetParameter")[-1].values["Name"]
    assert int(aws.template_data()["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"]) == disk


def test_image_of_the_user_is_checked(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> None:
        missing = replace(SETTINGS, ami="ami-00000000000000000")
        with pytest.raises(sky.SpecError, match=r"ami=\.\.\."):
            await prepared(missing.create_provider(), tmp_path, settings=missing)
        await prepared(SETTINGS.create_provider(), tmp_path)
        own = replace(SETTINGS, ami=aws.template_data()["ImageId"], username="ec2-user")
        with pytest.raises(sky.SpecError, match="is for x86_64, but m7g.large is arm64"):
            await prepared(own.create_provider(), tmp_path, "m7g.large", settings=own)
        cluster = await prepared(own.create_provider(), tmp_path, "c7i.large", settings=own)
        assert cluster.specific["user"] == "ec2-user"

    asyncio.run(main())


def test_machines_run_in_the_subnet_of_the_settings(aws: FakeAWS, tmp_path: Path) -> None:
    async def main() -> None:
        subnet = (await prepared(SETTINGS.create_provider(), tmp_path)).specific["places"][0][1]
        settings = replace(SETTINGS, subnet_id=subnet, public_address=False)
        provider = settings.create_provider()
        cluster = await prepared(provider, tmp_path, "m7i.large", settings=settings)
        cluster, (launched,) = await provider.provision(cluster, 1)
        _, instance = await provider.get_instance(cluster, launched.id)
        (machine,) = aws.machines()
        assert machine.subnet_id == subnet
        assert instance is not None
        assert isinstance(instance.access, SSHAccess)
        assert instance.access.host == machine.private_ip

    asyncio.run(main())


def test_volumes_are_the_only_field_without_effect() -> None:
    assert "volumes" not in SETTINGS.acts_on.fields
    assert {"region", "ttl", "disk_gb", "image.apt"} <= SETTINGS.acts_on.fields
