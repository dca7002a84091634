"""`sky.GCP` against a fake of Google Cloud, which Google's own client drives as well."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward.providers import Cluster, Instance, Offer, SSHAccess
from skyward.providers.conformance import check_provider, check_refusal, conformance_identity
from skyward_providers.gcp.api import ComputeApi
from skyward_providers.gcp.naming import pool_tag, rule_names
from skyward_providers.gcp.permissions import PERMISSIONS
from skyward_providers.gcp.provider import GcpProvider
from tests.cloud.kills import reaped_after_each_kill
from tests.fakes.gcp import PROJECT, Failure, FakeGoogleCloud, refusal
from tests.fakes.server import Answer
from tests.fakes.vendor import run_vendor
from tests.required import leave_out_for

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(300)]

HERE = "198.51.100.7/32"
INSTANCES = r"/compute/v1/projects/[^/]+/zones/[^/]+/instances"
SOLD_OUT = "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"


@pytest.fixture
def cloud() -> Iterator[FakeGoogleCloud]:
    with FakeGoogleCloud() as fake:
        yield fake
        assert fake.wrong == []


@pytest.fixture
def settings(cloud: FakeGoogleCloud, tmp_path: Path) -> sky.GCP:
    file = tmp_path / "key.json"
    file.write_text(json.dumps(cloud.service_account))
    return sky.GCP(credentials_file=str(file), caller_cidr=HERE, endpoint=cloud.url)


async def all_offers(settings: sky.GCP) -> dict[str, Offer]:
    return {offer.id: offer async for offer in settings.create_provider().offers()}


def chosen(id: str) -> Any:
    """Return a function that chooses the offer with that id."""

    def choose(offers: Sequence[Offer]) -> Offer:
        return next(offer for offer in offers if offer.id == id)

    return choose


@asynccontextmanager
async def prepared(
    settings: sky.GCP, folder: Path, offer: str = "us-central1/e2-standard-4", **fields: Any
) -> AsyncIterator[tuple[GcpProvider, Cluster]]:
    """Enter with a provider and a cluster that was prepared; at the end, check that a teardown leaves nothing."""
    provider, pool = GcpProvider(settings), conformance_identity("Pool_1", folder)
    spec = sky.Spec(provider=settings, **{"allocation": "on-demand", **fields})
    cluster = await provider.prepare(spec, (await all_offers(settings))[offer], pool)
    cluster = replace(cluster, tags={**pool.tags, "skyward-request": "Pool_1-1"})
    yield provider, cluster
    await provider.terminate(cluster, [each.id for each in await provider.find(cluster)])
    await provider.teardown(cluster)
    assert await provider.leftovers(pool.owner) == []


async def until(provider: GcpProvider, cluster: Cluster, id: str, status: str) -> Instance:
    async with asyncio.timeout(20):
        while True:
            _, found = await provider.get_instance(cluster, id)
            if found is not None and found.status == status:
                return found
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "offer", ["us-central1/e2-standard-4", "us-central1/g2-standard-4", "us-central1/n1-standard-4+1xnvidia-tesla-t4"]
)
def test_provider_passes_the_conformance_suite(
    cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path, offer: str
) -> None:
    cloud.page = 3  # lists have several pages
    asyncio.run(check_provider(settings, tmp_path, choose=chosen(offer)))
    assert not cloud.machines
    assert not cloud.firewalls
    assert not cloud.images


def test_prices_are_those_that_google_publishes(settings: sky.GCP) -> None:
    offers = asyncio.run(all_offers(settings))
    published = {
        "e2-small": 0.016751,
        "e2-standard-4": 0.134012,
        "n1-standard-4": 0.189999,
        "n2-standard-4": 0.194236,
        "c2-standard-4": 0.20872,
        "g2-standard-4": 0.706832,
        "a2-highgpu-1g": 3.673385,
        "a2-ultragpu-1g": 5.0688,
        "n1-standard-4+1xnvidia-tesla-t4": 0.539999,
    }
    sold = {name: offers[f"us-central1/{name}"].on_demand_price for name in published}
    assert sold == pytest.approx(published, abs=1e-4)
    assert offers["us-central1/g2-standard-4"].spot_price == pytest.approx(0.361, abs=1e-3)
    assert offers["us-central1/a4-highgpu-8g"].on_demand_price is None  # no SKU of its cores
    assert offers["us-central1/a4-highgpu-8g"].markets == ("on-demand",)


def test_offers_state_hardware(settings: sky.GCP) -> None:
    offers = asyncio.run(all_offers(settings))
    assert "us-central1/m3-ultramem-32" not in offers  # obsolete
    assert not [id for id in offers if "vws" in id or id.startswith("europe")]
    four = offers["us-central1/n1-standard-16+4xnvidia-tesla-t4"]
    assert (four.instance_type.accelerator, four.instance_type.accelerator_count) == ("nvidia-tesla-t4", 4)
    assert four.specific["zones"] == ["us-central1-a", "us-central1-b", "us-central1-f"]
    assert "us-central1/n1-standard-96+1xnvidia-tesla-t4" not in offers  # more vCPUs than one T4 may have
    assert offers["us-central1/t2a-standard-2"].instance_type.architecture == "arm64"
    eight = offers["us-central1/a3-highgpu-8g"].instance_type
    assert (eight.accelerator, eight.accelerator_count, eight.memory_gb) == ("nvidia-h100-80gb", 8, 1872)
    everywhere = asyncio.run(all_offers(replace(settings, regions=())))
    assert everywhere["europe-west4/e2-standard-4"].region == "europe-west4"
    assert json.loads(json.dumps({id: dict(offer.specific) for id, offer in offers.items()}))


def test_offers_without_the_price_list_have_no_price(cloud: FakeGoogleCloud, settings: sky.GCP) -> None:
    disabled = refusal(403, "accessNotConfigured", "Cloud Billing API has not been used", detail="SERVICE_DISABLED")
    cloud.fail("GET", "/v1/services/.*", disabled)
    offers = asyncio.run(all_offers(settings))
    assert {offer.on_demand_price for offer in offers.values()} == {None}


def failing(cloud: FakeGoogleCloud, code: str, status: int = 400, **more: Any) -> Any:
    """Return a function that lets every launch be accepted and fail then."""
    return lambda: cloud.failures.append(
        Failure(code, "The zone does not have it. Try later.", status, times=9, **more)
    )


QUOTA = [{"quotaInfo": {"metricName": "compute.googleapis.com/gpus", "limitName": "NVIDIA-L4-GPUS-per-project-region",
                        "limit": 1.0, "dimensions": {"region": "us-central1"}}}]  # fmt: skip  # one object

OPERATIONS = {
    "no capacity": (sky.NoCapacityError, "ZONE_RESOURCE_POOL_EXHAUSTED", 503, []),
    "no capacity, with details": (sky.NoCapacityError, SOLD_OUT, 400, []),
    "no capacity, told by the status": (sky.NoCapacityError, "INTERNAL", 503, []),
    "quota": (sky.QuotaError, "QUOTA_EXCEEDED", 403, QUOTA),
    "not allowed": (sky.CredentialsError, "PERMISSIONS_ERROR", 403, []),
    "too fast": (sky.RateLimitError, "RATE_LIMIT_EXCEEDED", 400, []),
    "never possible": (sky.SpecError, "INVALID_USAGE", 400, []),
    "anything else": (sky.ProvisioningError, "INTERNAL_ERROR", 500, []),
}


@pytest.mark.parametrize("stays", [False, True])
@pytest.mark.parametrize("case", OPERATIONS)
def test_operations_that_fail_are_told_apart(
    cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path, case: str, stays: bool
) -> None:
    expected, code, status, details = OPERATIONS[case]
    refuse = failing(cloud, code, status, details=details, stays=stays)
    error = asyncio.run(check_refusal(settings, tmp_path, expected, refuse))
    if case == "quota":
        assert "quota NVIDIA-L4-GPUS-per-project-region = 1 in us-central1" in str(error)


REQUESTS = {
    "quota": (
        sky.QuotaError,
        refusal(403, "quotaExceeded", "Quota 'CPUS' exceeded.  Limit: 24.0 in region us-central1."),
    ),
    "not allowed": (
        sky.CredentialsError,
        refusal(
            403, "forbidden", "Required 'compute.instances.create' permission for 'projects/p/zones/z/instances/i'"
        ),
    ),
    "disabled": (
        sky.CredentialsError,
        refusal(403, "accessNotConfigured", "Compute Engine API has not been used", detail="SERVICE_DISABLED"),
    ),
    "unpaid": (sky.CredentialsError, refusal(403, "forbidden", "Billing is off", detail="BILLING_DISABLED")),
    "bad token": (sky.CredentialsError, refusal(401, "authError", "Invalid Credentials")),
    "too fast": (sky.RateLimitError, refusal(429, "rateLimitExceeded", "Slow down", retry_after="120")),
    "no such image": (
        sky.SpecError,
        refusal(404, "notFound", "The resource 'projects/p/global/images/x' was not found"),
    ),
    "policy": (
        sky.SpecError,
        refusal(412, "conditionNotMet", "Constraint constraints/compute.vmExternalIpAccess violated for project 1"),
    ),
    "not supported": (sky.SpecError, refusal(400, "invalid", "[a, b] features are not compatible")),
    "no capacity": (sky.NoCapacityError, refusal(503, "ZONE_RESOURCE_POOL_EXHAUSTED", "There is none")),
}


@pytest.mark.parametrize("case", REQUESTS)
def test_refused_requests_are_told_apart(cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path, case: str) -> None:
    expected, answer = REQUESTS[case]
    error = asyncio.run(
        check_refusal(settings, tmp_path, expected, lambda: cloud.fail("POST", INSTANCES, answer, times=-1))
    )
    assert not any(token in str(error) for token in cloud.tokens)
    if case == "not allowed":
        assert "'compute.instances.create'" in str(error)
    if case == "policy":
        assert "exempt the project" in str(error)
    if case == "no such image":
        assert "check `image`" in str(error)
    if isinstance(error, sky.RateLimitError):
        assert error.retry_after == 120


def test_refused_requests_for_a_while_are_repeated(cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path) -> None:
    async def main() -> None:
        async with prepared(settings, tmp_path) as (provider, cluster):
            cloud.fail("POST", INSTANCES, refusal(403, "rateLimitExceeded", "Rate Limit Exceeded"))
            _, machines = await provider.provision(cluster, 1)
            assert len(machines) == 1

    asyncio.run(main())


def test_other_zones_are_tried_those_first_that_google_names(
    cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path
) -> None:
    named = [{"errorInfo": {"reason": "resource_availability", "metadatas": {"zonesAvailable": "us-central1-f"}}}]
    cloud.failures.append(Failure(SOLD_OUT, zone="us-central1-a", times=9, details=named))

    async def main() -> None:
        async with prepared(settings, tmp_path) as (provider, cluster):
            cluster, machines = await provider.provision(cluster, 2)
            assert {each.id.partition("/")[0] for each in machines} == {"us-central1-f"}
            assert cluster.specific["zones"][0] == "us-central1-f"  # later machines go beside these

    asyncio.run(main())


def test_some_of_several_machines_are_launched(cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path) -> None:
    async def main() -> None:
        async with prepared(settings, tmp_path) as (provider, cluster):
            cloud.fail("POST", INSTANCES, refusal(403, "quotaExceeded", "Quota 'CPUS' exceeded."), skip=2, times=-1)
            _, machines = await provider.provision(cluster, 4)
            assert len(machines) == 2

    asyncio.run(main())


def test_zero_quota_of_gpus_is_told_before_a_launch(cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path) -> None:
    cloud.quotas = {"NVIDIA_L4_GPUS": (8, 8), "PREEMPTIBLE_NVIDIA_L4_GPUS": (8, 0)}
    g2 = chosen("us-central1/g2-standard-4")
    spot = asyncio.run(
        check_refusal(
            settings, tmp_path, sky.QuotaError, lambda: None, choose=lambda all: replace(g2(all), spot_price=None)
        )
    )
    assert "quota NVIDIA_L4_GPUS" in str(spot)
    assert not cloud.sent("compute.instances.insert")
    asyncio.run(check_provider(settings, tmp_path, choose=g2))  # spot machines have a quota of their own


@pytest.mark.parametrize("lost", [None, Answer(500, {"error": {"code": 500, "message": "Internal"}})])
def test_lost_answer_to_a_launch_makes_one_machine(
    cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path, lost: Answer | None
) -> None:
    async def main() -> None:
        async with prepared(settings, tmp_path) as (provider, cluster):
            cloud.fail("POST", INSTANCES, lost, after=True, times=2)
            _, machines = await provider.provision(cluster, 1)
            assert [f"{zone}/{name}" for zone, name in cloud.machines] == [each.id for each in machines]

    asyncio.run(main())
    sent = cloud.sent("compute.instances.insert")
    assert len({call.query["requestId"] for call in sent}) == 1
    assert len(sent) == 3


def test_launch_whose_answers_are_all_lost_is_an_unknown_outcome(
    cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path
) -> None:
    async def main() -> None:
        async with prepared(settings, tmp_path) as (provider, cluster):
            cloud.fail("POST", INSTANCES, after=True, times=3)
            with pytest.raises(Exception) as raised:  # noqa: PT011  # any but Skyward's own
                await provider.provision(cluster, 1)
            assert not isinstance(raised.value, sky.SkywardError)
            (found,) = await GcpProvider(settings).find(cluster)
            _, machines = await GcpProvider(settings).provision(cluster, 1)  # repeated: takes over the one that exists
            assert [each.id for each in machines] == [found.id]

    asyncio.run(main())


def test_error_after_a_lost_answer_is_an_unknown_outcome(
    cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path
) -> None:
    async def main() -> None:
        async with prepared(settings, tmp_path) as (provider, cluster):
            cloud.fail("POST", INSTANCES, after=True)
            cloud.fail("POST", INSTANCES, refusal(401, "authError", "Invalid Credentials"))
            with pytest.raises(Exception) as raised:  # noqa: PT011  # any but Skyward's own
                await provider.provision(cluster, 1)
            assert not isinstance(raised.value, sky.SkywardError)
            assert len(await provider.find(cluster)) == 1

    asyncio.run(main())


def test_error_after_a_launch_was_accepted_is_an_unknown_outcome(
    cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path
) -> None:
    async def main() -> None:
        async with prepared(settings, tmp_path) as (provider, cluster):
            cloud.fail("GET", ".*/zones/.*/operations.*", refusal(401, "authError", "Invalid Credentials"))
            with pytest.raises(Exception) as raised:  # noqa: PT011  # any but Skyward's own
                await provider.provision(cluster, 1)
            assert not isinstance(raised.value, sky.SkywardError)
            assert len(await provider.find(cluster)) == 1

    asyncio.run(main())


def test_machine_that_is_not_visible_yet_is_no_machine(
    cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path
) -> None:
    async def main() -> None:
        cloud.hidden = 3
        async with prepared(settings, tmp_path) as (provider, cluster):
            _, (machine,) = await provider.provision(cluster, 1)
            assert (await provider.get_instance(cluster, machine.id))[1] is None
            await until(provider, cluster, machine.id, "running")

    asyncio.run(main())


def test_request_of_a_spot_machine_with_gpus(cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path) -> None:
    cloud.history = {"us-central1-a": (0.21, 0.4), "us-central1-b": (0.19, 0.1)}
    limited = replace(settings, max_run_duration=3600, disk_gb=80)

    async def main() -> Instance:
        offer = "us-central1/n1-standard-4+1xnvidia-tesla-t4"
        async with prepared(limited, tmp_path, offer, allocation="spot") as (provider, cluster):
            assert cluster.notes == ()
            _, (machine,) = await provider.provision(cluster, 1)
            found = await until(provider, cluster, machine.id, "running")
            assert cluster.specific["zones"] == ["us-central1-b", "us-central1-a", "us-central1-f"]
            return found

    machine = asyncio.run(main())
    (call,) = cloud.sent("compute.instances.insert")
    body = call.body
    assert body["scheduling"] == {
        "automaticRestart": False,
        "provisioningModel": "SPOT",
        "onHostMaintenance": "TERMINATE",
        "instanceTerminationAction": "DELETE",
        "maxRunDuration": {"seconds": "3600"},
    }
    assert body["guestAccelerators"][0]["acceleratorCount"] == 1
    assert body["serviceAccounts"] == []  # no rights in the project
    assert body["disks"][0]["autoDelete"]
    assert body["disks"][0]["initializeParams"]["diskSizeGb"] == "80"
    metadata = {item["key"]: item["value"] for item in body["metadata"]["items"]}
    assert metadata["block-project-ssh-keys"] == "TRUE"
    assert metadata["ssh-keys"].startswith("ubuntu:ssh-ed25519 ")
    assert metadata["user-data"].startswith("#cloud-config\n")
    assert isinstance(machine.access, SSHAccess)
    assert machine.access.host_key in json.loads(metadata["user-data"].partition("\n")[2])["ssh_keys"]["ed25519_public"]
    assert (machine.spot, machine.notices, machine.hourly_price) == (True, "gcp", 0.19)


def test_user_data_is_what_cloud_init_takes(cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path) -> None:
    leave_out_for("" if shutil.which("cloud-init") else "cloud-init is not installed", "SKYWARD_CLOUD_INIT")

    async def main() -> str:
        async with prepared(settings, tmp_path) as (provider, cluster):
            await provider.provision(cluster, 1)
            ((_, machine),) = cloud.machines.items()
            metadata = {item["key"]: item["value"] for item in machine.resource["metadata"]["items"]}
            return str(metadata["user-data"])

    text = asyncio.run(main())
    file = tmp_path / "user-data"
    file.write_text(text)
    checked = subprocess.run(["cloud-init", "schema", "--config-file", str(file)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    written = {each["path"]: each["content"] for each in json.loads(text.partition("\n")[2])["write_files"]}
    assert "set_host_keys = false" in written["/etc/default/instance_configs.cfg"]  # Google's agent keeps our host key
    assert "poweroff" in written["/usr/local/sbin/skyward-watchdog"]


def test_firewall_lets_only_the_caller_and_the_pool_in(
    cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path
) -> None:
    async def main() -> None:
        async with prepared(settings, tmp_path) as (provider, cluster):
            await provider.provision(cluster, 1)
            name = pool_tag("Pool_1")
            rules = {rule.rpartition("-")[2]: each for rule, each in cloud.firewalls.items()}
            assert rules["ssh"]["sourceRanges"] == [HERE]
            assert rules["ssh"]["allowed"] == [{"IPProtocol": "tcp", "ports": ["22"]}]
            assert rules["nodes"]["sourceTags"] == [name]
            assert rules["closed"]["denied"] == [{"IPProtocol": "all"}]
            assert rules["ssh"]["priority"] < rules["closed"]["priority"] < 65534
            assert {tuple(rule["targetTags"]) for rule in rules.values()} == {(name,)}
            ((_, machine),) = cloud.machines.items()
            assert machine.resource["tags"]["items"] == [name]
            moved = GcpProvider(replace(settings, caller_cidr="192.0.2.9/32"))
            await moved.prepare(cluster.spec, cluster.offer, conformance_identity("Pool_1", tmp_path))
            assert cloud.firewalls[rule_names("Pool_1", "default")[0]]["sourceRanges"] == ["192.0.2.9/32"]

    asyncio.run(main())


def test_failed_firewall_rule_ends_the_machines(cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path) -> None:
    cloud.rules_fail = True

    async def main() -> None:
        async with prepared(settings, tmp_path) as (provider, cluster):
            with pytest.raises(sky.QuotaError, match="FIREWALLS"):
                await provider.provision(cluster, 2)
            assert not cloud.machines

    asyncio.run(main())


@pytest.mark.parametrize("restarted", [False, True])
def test_firewall_rules_that_are_still_being_made_are_removed(
    cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path, restarted: bool
) -> None:
    async def main() -> None:
        async with prepared(settings, tmp_path) as (provider, cluster):
            await (GcpProvider(settings) if restarted else provider).teardown(cluster)
            assert not cloud.firewalls

    asyncio.run(main())


def test_machine_that_is_deleted_by_two_is_deleted(cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path) -> None:
    async def main() -> None:
        async with prepared(settings, tmp_path) as (provider, cluster):
            _, (machine,) = await provider.provision(cluster, 1)
            cloud.steps = 5
            await asyncio.gather(*(each.terminate(cluster, [machine.id]) for each in (provider, GcpProvider(settings))))
            assert len(cloud.sent("compute.instances.delete")) == 2
            assert not cloud.machines

    asyncio.run(main())


@pytest.mark.parametrize("lost", [False, True])
def test_refused_firewall_rule_leaves_no_other(
    cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path, lost: bool
) -> None:
    answer = None if lost else refusal(403, "quotaExceeded", "Quota 'FIREWALLS' exceeded.")
    cloud.fail("POST", ".*/firewalls", answer, times=3, when=lambda rule: rule["name"].endswith("-ssh"))

    async def main() -> None:
        with pytest.raises(Exception) as raised:  # noqa: PT011  # Skyward's or not, as the case is
            async with prepared(settings, tmp_path):
                pass
        assert isinstance(raised.value, sky.SkywardError) is not lost

    asyncio.run(main())
    assert lost or not cloud.firewalls


def test_stopped_machines_are_found_and_removed(cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path) -> None:
    async def main() -> None:
        async with prepared(settings, tmp_path) as (provider, cluster):
            assert "`skyward reap`" in cluster.notes[0]
            _, (machine,) = await provider.provision(cluster, 1)
            await until(provider, cluster, machine.id, "running")
            cloud.power_off(machine.id.partition("/")[2])
            found = await until(provider, cluster, machine.id, "exited")
            assert found.detail == "it was stopped"
            assert [each.id for each in await provider.find(cluster)] == [machine.id]  # its disk is paid
            left = await GcpProvider(settings).leftovers("conformance")
            assert {(each.kind, each.pool) for each in left} == {("machine", "Pool_1"), ("firewall rule", "Pool_1")}
            for each in left:
                await GcpProvider(settings).remove(each)
            assert not cloud.machines
            assert not cloud.firewalls

    asyncio.run(main())


def test_spot_machine_that_is_taken_back_ends(cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path) -> None:
    async def main() -> None:
        async with prepared(settings, tmp_path, allocation="spot") as (provider, cluster):
            _, (machine,) = await provider.provision(cluster, 1)
            await until(provider, cluster, machine.id, "running")
            cloud.preempt(machine.id.partition("/")[2])
            assert "took the spot machine back" in (await until(provider, cluster, machine.id, "exited")).detail

    asyncio.run(main())


def test_os_login_by_policy_is_an_error_before_ssh_fails(
    cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path
) -> None:
    cloud.os_login = True

    async def main() -> None:
        async with prepared(settings, tmp_path) as (provider, cluster):
            _, (machine,) = await provider.provision(cluster, 1)
            found = await until(provider, cluster, machine.id, "exited")
            assert "constraints/compute.requireOsLogin" in found.detail

    asyncio.run(main())


def test_machines_and_rules_of_others_are_left_alone(cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path) -> None:
    async def main() -> None:
        async with prepared(settings, tmp_path) as (provider, cluster):
            await provider.provision(cluster, 1)
            ((_, machine),) = cloud.machines.items()
            machine.resource["description"] = "skyward-owner=somebody skyward-pool=Pool_1"
            machine.resource["labels"]["skyward-owner"] = "conformance"
            for rule in cloud.firewalls.values():
                rule["description"] = "made by hand"
            assert await provider.leftovers("conformance") == []
            with pytest.raises(sky.ProvisioningError, match="is not Skyward's"):
                await provider.prepare(cluster.spec, cluster.offer, conformance_identity("Pool_1", tmp_path))
            machine.resource["description"] = "skyward-owner=conformance skyward-pool=Pool_1"

    asyncio.run(main())


def test_check_names_missing_permissions(cloud: FakeGoogleCloud, settings: sky.GCP) -> None:
    cloud.granted = set(PERMISSIONS) - {"compute.instances.create"}

    async def main() -> list[str]:
        return [check.problem for check in await GcpProvider(settings).check()]

    problems = asyncio.run(main())
    assert "it lacks compute.instances.create;" in problems[0]
    assert problems[1:] == ["", ""]


def test_policy_is_a_role_with_the_checked_permissions(settings: sky.GCP) -> None:
    lines = [line for line in settings.policy.splitlines() if not line.startswith("#")]
    assert lines[0] == "title: Skyward"
    assert [line.removeprefix("- ") for line in lines if line.startswith("- ")] == list(PERMISSIONS)
    assert "- iam.serviceAccounts.actAs" in replace(settings, service_account="a@b.iam.gserviceaccount.com").policy


def test_credentials_are_found_in_their_usual_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    assert sky.GCP().credentials().found == ""
    assert "gcloud auth application-default login" in sky.GCP().credentials().how
    folder = tmp_path / ".config" / "gcloud"
    folder.mkdir(parents=True)
    (folder / "application_default_credentials.json").write_text("{}")
    assert sky.GCP().credentials().found.endswith("application_default_credentials.json")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/key.json")
    assert sky.GCP().credentials().found == "environment variable GOOGLE_APPLICATION_CREDENTIALS"
    assert sky.GCP(credentials_file="/other.json").credentials().found == "the settings"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be used (FileNotFoundError)"),
        ("{", "cannot be used (JSONDecodeError)"),
        ('{"type": "service_account", "private_key": "secret"}', "cannot be used"),
        ('{"type": "external_account", "token": "secret"}', "cannot be used (ValueError)"),
    ],
)
def test_bad_credentials_are_one_sentence(settings: sky.GCP, tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "bad.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(sky.CredentialsError) as raised:
        asyncio.run(all_offers(replace(settings, credentials_file=str(file))))
    assert message in str(raised.value)
    assert "secret" not in str(raised.value)


def test_refused_key_is_a_credentials_error(cloud: FakeGoogleCloud, settings: sky.GCP) -> None:
    cloud.fail("POST", "/token", Answer(400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}))
    with pytest.raises(
        sky.CredentialsError, match="Google refuses the credentials .invalid_grant: Invalid JWT Signature"
    ):
        asyncio.run(all_offers(settings))


def test_project_is_that_of_the_settings_the_environment_or_the_key(
    settings: sky.GCP, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def project(given: str | None) -> str:
        api = ComputeApi(replace(settings, project=given))
        first = await api.project()
        await api.headers()  # loading the credentials changes nothing
        assert await api.project() == first
        return first

    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "of-the-environment")
    assert asyncio.run(project("of-the-settings")) == "of-the-settings"
    assert asyncio.run(project(None)) == "of-the-environment"
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT")
    assert asyncio.run(project(None)) == PROJECT


def test_credentials_of_a_user_have_the_project_of_gcloud(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    user = {"type": "authorized_user", "client_id": "1", "client_secret": "2", "refresh_token": "3"}
    (tmp_path / "application_default_credentials.json").write_text(json.dumps(user))

    async def project() -> str:
        return await ComputeApi(sky.GCP()).project()

    with pytest.raises(sky.CredentialsError, match="Google Cloud needs a project: set GOOGLE_CLOUD_PROJECT"):
        asyncio.run(project())
    (tmp_path / "configurations").mkdir()
    (tmp_path / "configurations" / "config_work").write_text("[core]\nproject = of-gcloud\n")
    (tmp_path / "active_config").write_text("work\n")
    assert asyncio.run(project()) == "of-gcloud"


@pytest.mark.timeout(900)
def test_clients_killed_at_each_request_leave_nothing(
    cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.steps = 0
    source = (
        f"sky.GCP(credentials_file={settings.credentials_file!r}, caller_cidr={HERE!r}, endpoint={cloud.url!r}, "
        "zones=['us-central1-a'])"
    )
    requests = reaped_after_each_kill(
        cloud, source, lambda: [*cloud.machines, *cloud.firewalls], tmp_path / "data", monkeypatch
    )
    assert requests >= 15


CLIENT = """
from google.auth.credentials import AnonymousCredentials
from google.oauth2 import service_account
from googleapiclient import discovery
from googleapiclient.errors import HttpError

key = service_account.Credentials.from_service_account_file({key!r}, scopes=["https://www.googleapis.com/auth/compute"])
api = discovery.build("compute", "v1", credentials=key, static_discovery=True,
                      client_options={{"api_endpoint": {url!r} + "/compute/v1/"}})
zone = {{"project": {project!r}, "zone": {zone!r}}}
machine = api.instances().get(instance={name!r}, **zone).execute()
assert machine["labels"]["skyward-request"], machine
wanted = 'labels.skyward-pool = "' + machine["labels"]["skyward-pool"] + '"'
listed = api.instances().aggregatedList(project={project!r}, filter=wanted).execute()
assert [each["name"] for each in listed["items"]["zones/" + {zone!r}]["instances"]] == [{name!r}]
try:
    api.instances().insert(body={{"name": "x", "scheduling": {{"maxRunDuration": 600}}}}, **zone).execute()
except HttpError as error:
    assert error.status_code == 400 and "maxRunDuration" in str(error), error
else:
    raise AssertionError("a wrong body is accepted")
operation = api.instances().delete(instance={name!r}, **zone).execute()
while operation["status"] != "DONE":
    operation = api.zoneOperations().wait(operation=operation["name"], **zone).execute()
rules = api.firewalls().list(project={project!r}).execute()["items"]
assert len(rules) == 3, rules
for rule in rules:
    api.firewalls().delete(project={project!r}, firewall=rule["name"]).execute()
"""


def test_official_client_sees_and_ends_our_machines(cloud: FakeGoogleCloud, settings: sky.GCP, tmp_path: Path) -> None:
    async def main() -> None:
        async with prepared(settings, tmp_path) as (provider, cluster):
            _, (machine,) = await provider.provision(cluster, 1)
            zone, _, name = machine.id.partition("/")
            script = CLIENT.format(key=settings.credentials_file, url=cloud.url, project=PROJECT, zone=zone, name=name)
            await asyncio.to_thread(run_vendor, "google", script, {}, tmp_path)
            assert await provider.find(cluster) == []

    asyncio.run(main())
