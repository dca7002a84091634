"""Verda: the provider against its API, and the fake against the vendor's client."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

import skyward as sky
from skyward.providers import Cluster, Leftover, Offer, SSHAccess
from skyward.providers.conformance import check_provider, check_refusal, conformance_identity
from skyward.specs import Allocation
from skyward_providers.verda.machine import choose_image, pool_named, shared_name, volume_name
from skyward_providers.verda.provider import VerdaProvider
from tests.cloud.kills import reaped_after_each_kill
from tests.fakes.server import Answer
from tests.fakes.ssh_banner import BannerServer
from tests.fakes.vendor import run_vendor
from tests.fakes.verda import CLIENT, NO_CAPACITY, SECRET, FakeVerda, instance_type, refusal

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(300)]

NOTHING: dict[str, list[str]] = {"instances": [], "volumes": [], "keys": [], "scripts": []}
H100 = "FIN-01/1H100.80S.32V"


@pytest.fixture
def banner() -> Iterator[BannerServer]:
    """The SSH server of machines that are data."""
    with BannerServer() as server:
        yield server


@pytest.fixture
def verda(banner: BannerServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeVerda]:
    """Verda, whose machines are data, with a few types in stock."""
    with FakeVerda() as cloud:

        def address(instance: Mapping[str, Any]) -> str:
            banner.set_up(cloud.scripts[instance["startup_script_id"]]["script"])
            return "127.0.0.1"

        monkeypatch.setattr(VerdaProvider, "port", banner.port)
        monkeypatch.setattr(VerdaProvider, "poll", 0.02)
        cloud.address = address
        cloud.add(instance_type("1H100.80S.32V", 2.29, 0.80, "H100 SXM5"), on_demand=4, spot=4)
        cloud.add(instance_type("CPU.4V.16G", 0.0279, 0.0098), location="FIN-03", on_demand=4)
        yield cloud
        assert cloud.wrong == []


def settings(cloud: FakeVerda) -> sky.Verda:
    return sky.Verda(client_id=CLIENT, client_secret=SECRET, endpoint=f"{cloud.url}/v1")


def on_demand(offers: Sequence[Offer]) -> Offer:
    return replace(next(each for each in offers if each.id == H100), spot_price=None)


async def prepared(cloud: FakeVerda, tmp_path: Path, allocation: Allocation = "on-demand") -> Cluster:
    provider = settings(cloud).create_provider()
    offers = {each.id: each async for each in provider.offers()}
    pool = conformance_identity("unit-1", tmp_path)
    spec = sky.Spec(provider=settings(cloud), allocation=allocation)
    cluster = await provider.prepare(spec, offers[H100], pool)
    return replace(cluster, tags={**pool.tags, "skyward-request": "request-1"})


def test_provider_passes_the_conformance_suite(verda: FakeVerda, tmp_path: Path) -> None:
    asyncio.run(check_provider(settings(verda), tmp_path, choose=on_demand))
    assert verda.billed == NOTHING


def test_spot_machines_pass_the_conformance_suite(verda: FakeVerda, tmp_path: Path) -> None:
    asyncio.run(check_provider(settings(verda), tmp_path))
    rents = [each.body for each in verda.requests if (each.method, each.path) == ("POST", "/v1/instances")]
    assert rents
    assert all(each["is_spot"] and each["os_volume"]["on_spot_discontinue"] == "delete_permanently" for each in rents)
    assert verda.billed == NOTHING


def test_offers_are_what_is_in_stock_in_each_market(verda: FakeVerda) -> None:
    async def main(config: sky.Verda) -> dict[str, Offer]:
        return {each.id: each async for each in config.create_provider().offers()}

    verda.stock["1H100.80S.32V", "ICE-01", True] = 1
    offers = asyncio.run(main(settings(verda)))
    assert set(offers) == {H100, "ICE-01/1H100.80S.32V", "FIN-03/CPU.4V.16G"}
    assert (offers[H100].on_demand_price, offers[H100].spot_price) == (2.29, 0.80)
    assert offers["ICE-01/1H100.80S.32V"].markets == ("spot",)
    kind = offers[H100].instance_type
    assert (kind.accelerator, kind.accelerator_count, kind.accelerator_memory_gb) == ("H100 SXM5", 1, 80)
    assert (kind.vcpus, kind.memory_gb, offers[H100].region) == (32, 192, "FIN-01")
    assert offers["FIN-03/CPU.4V.16G"].instance_type.accelerator is None
    assert set(asyncio.run(main(replace(settings(verda), region="FIN-03")))) == {"FIN-03/CPU.4V.16G"}


REFUSALS = {
    "no capacity": (sky.NoCapacityError, NO_CAPACITY),
    "no funds": (sky.CredentialsError, refusal(402, "insufficient_funds", "Not enough funds")),
    "bad token": (sky.CredentialsError, refusal(401, "unauthorized_request", "Access token is invalid")),
    "not allowed": (sky.CredentialsError, refusal(403, "forbidden_action", "You may not deploy")),
    "quota": (sky.QuotaError, refusal(403, "forbidden_action", "Instance limit reached")),
    "too fast": (sky.RateLimitError, Answer(429, {"message": "Too many requests"}, {"retry-after": "120"})),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_are_told_apart(verda: FakeVerda, tmp_path: Path, case: str) -> None:
    expected, answer = REFUSALS[case]
    refuse = lambda: verda.fail("POST", "/v1/instances", answer, times=-1)  # noqa: E731  # one call
    error = asyncio.run(check_refusal(settings(verda), tmp_path, expected, refuse))
    assert SECRET not in str(error)
    if isinstance(error, sky.RateLimitError):
        assert error.retry_after == 120
    assert verda.billed == NOTHING


def test_no_capacity_is_not_retried(verda: FakeVerda, tmp_path: Path) -> None:
    verda.stock["1H100.80S.32V", "FIN-01", False] = 1

    async def main() -> int:
        cluster, provider = await prepared(verda, tmp_path), settings(verda).create_provider()
        _, machines = await provider.provision(cluster, 3)
        return len(machines)

    assert asyncio.run(main()) == 1
    assert len([each for each in verda.requests if (each.method, each.path) == ("POST", "/v1/instances")]) == 3


def test_tokens_are_renewed(verda: FakeVerda, tmp_path: Path) -> None:
    def grants() -> list[str]:
        return [each.body["grant_type"] for each in verda.requests if each.path.endswith("/token")]

    async def main() -> None:
        cluster, provider = await prepared(verda, tmp_path), settings(verda).create_provider()
        await provider.find(cluster)
        before = len(grants())
        verda.expire_tokens()
        await provider.find(cluster)
        assert grants()[before:] == ["refresh_token"]
        verda.expire_tokens(refresh=True)
        cluster, _ = await provider.provision(cluster, 2)
        assert grants()[before:] == ["refresh_token", "refresh_token", "client_credentials"]
        verda.token_life = 0
        verda.expire_tokens()
        await provider.find(cluster)
        await provider.find(cluster)
        assert grants()[before + 3 :] == ["refresh_token", "refresh_token"]

    asyncio.run(main())
    assert len(verda.billed["instances"]) == 2


def test_wrong_secret_is_one_sentence(verda: FakeVerda) -> None:
    async def main() -> None:
        provider = replace(settings(verda), client_secret="another-secret").create_provider()
        _ = [each async for each in provider.offers()]

    with pytest.raises(sky.CredentialsError, match="refuses the client id and secret") as raised:
        asyncio.run(main())
    assert "another-secret" not in str(raised.value)


@pytest.mark.parametrize("answer", [None, Answer(500, {"code": "server_error", "message": "Internal error"})])
def test_lost_answer_does_not_rent_twice(verda: FakeVerda, tmp_path: Path, answer: Answer | None) -> None:
    async def main() -> tuple[list[str], list[str]]:
        cluster, provider = await prepared(verda, tmp_path), settings(verda).create_provider()
        verda.fail("POST", "/v1/instances", answer, after=True)
        cluster, machines = await provider.provision(cluster, 2)
        _, again = await settings(verda).create_provider().provision(cluster, 2)
        return sorted(each.id for each in machines), sorted(each.id for each in again)

    machines, again = asyncio.run(main())
    assert machines == again == sorted(verda.instances)
    assert len(machines) == 2


def test_lost_request_is_an_unknown_outcome(verda: FakeVerda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VerdaProvider, "settle", 0.1)

    async def main() -> None:
        cluster = await prepared(verda, tmp_path)
        verda.fail("POST", "/v1/instances")
        await settings(verda).create_provider().provision(cluster, 1)

    with pytest.raises(Exception) as raised:  # noqa: PT011  # any but Skyward's own
        asyncio.run(main())
    assert not isinstance(raised.value, sky.SkywardError)


def test_unavailable_service_is_an_unknown_outcome(
    verda: FakeVerda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VerdaProvider, "settle", 0.2)

    async def main() -> None:
        cluster = await prepared(verda, tmp_path)
        down = refusal(503, "service_unavailable", "The service is not available")
        verda.fail("POST", "/v1/instances", down, times=-1)
        await settings(verda).create_provider().provision(cluster, 1)

    with pytest.raises(httpx.HTTPStatusError):
        asyncio.run(main())


def test_refused_script_leaves_no_key(verda: FakeVerda, tmp_path: Path) -> None:
    async def main() -> None:
        refused = refusal(400, "invalid_request", "The script is wrong")
        verda.fail("POST", "/v1/scripts", refused, times=2)
        with pytest.raises(sky.ProvisioningError, match="The script is wrong"):
            await prepared(verda, tmp_path)
        assert verda.billed == NOTHING
        verda.fail("DELETE", "/v1/sshkeys/.*", refusal(403, "forbidden_action", "You may not"))
        with pytest.raises(RuntimeError, match="could not be deleted"):
            await prepared(verda, tmp_path)
        await settings(verda).create_provider().teardown(await prepared(verda, tmp_path))
        assert verda.billed == NOTHING

    asyncio.run(main())


def test_resources_of_others_may_lack_fields(verda: FakeVerda, tmp_path: Path) -> None:
    async def main() -> None:
        cluster, provider = await prepared(verda, tmp_path), settings(verda).create_provider()
        verda.fail(
            "GET", "/v1/instances", Answer(200, [{"id": "1", "status": "running", "description": None}]), times=2
        )
        verda.fail("GET", "/v1/volumes", Answer(200, [{"id": "2", "name": None, "status": "detached"}]), times=2)
        _, machines = await provider.provision(cluster, 1)
        assert isinstance(provider, VerdaProvider)
        assert {each.kind for each in await provider.leftovers("conformance")} == {"SSH key", "startup script"}
        await provider.terminate(cluster, [each.id for each in machines])
        await provider.teardown(cluster)

    asyncio.run(main())


@pytest.mark.parametrize("lost", ["/v1/sshkeys", "/v1/scripts"])
def test_lost_answer_of_prepare_leaves_nothing(verda: FakeVerda, tmp_path: Path, lost: str) -> None:
    async def main() -> list[Leftover]:
        verda.fail("POST", lost, after=True)
        with pytest.raises(Exception) as raised:  # noqa: PT011  # any but Skyward's own
            await prepared(verda, tmp_path)
        assert not isinstance(raised.value, sky.SkywardError)
        cluster, provider = await prepared(verda, tmp_path), settings(verda).create_provider()
        assert isinstance(provider, VerdaProvider)
        left = list(await provider.leftovers("conformance"))
        await provider.teardown(cluster)
        return left

    assert sorted(each.kind for each in asyncio.run(main())) == ["SSH key", "startup script"]
    assert verda.billed == NOTHING


@pytest.mark.parametrize("forbidden", [400, 403])
def test_machine_deleted_before_its_disk_is_known_leaves_no_disk(
    verda: FakeVerda, tmp_path: Path, forbidden: int
) -> None:
    async def main() -> None:
        cluster, provider = await prepared(verda, tmp_path), settings(verda).create_provider()
        cluster, machines = await provider.provision(cluster, 1)
        instance = verda.instances[machines[0].id]
        instance["disk"], disk = "not-known-yet", instance["disk"]
        await provider.terminate(cluster, [machines[0].id])
        verda.volumes[disk]["status"] = "detached"
        assert verda.billed["volumes"]
        assert isinstance(provider, VerdaProvider)
        left = await provider.leftovers("conformance")
        assert [each.pool for each in left if each.kind == "disk"] == ["unit-1"]
        refused = refusal(forbidden, "forbidden_action", "Can't delete an attached volume")
        verda.fail("DELETE", "/v1/volumes/.*", refused, times=2)
        await provider.teardown(cluster)

    asyncio.run(main())
    assert verda.billed == NOTHING


@pytest.mark.parametrize("forbidden", [400, 403])
def test_deleting_what_is_gone_is_no_error(verda: FakeVerda, tmp_path: Path, forbidden: int) -> None:
    verda.forbidden = forbidden

    async def main() -> None:
        cluster, provider = await prepared(verda, tmp_path, "spot"), settings(verda).create_provider()
        cluster, machines = await provider.provision(cluster, 2)
        await provider.find(cluster)
        verda.evict(machines[0].id)
        assert [each.id for each in await provider.find(cluster)] == [machines[1].id]
        await provider.terminate(cluster, [*(each.id for each in machines), "9f1c"])
        await provider.terminate(cluster, [each.id for each in machines])
        await provider.teardown(cluster)

    asyncio.run(main())
    assert verda.billed == NOTHING


def test_refused_deletion_is_an_error(verda: FakeVerda, tmp_path: Path) -> None:
    async def main() -> None:
        cluster, provider = await prepared(verda, tmp_path), settings(verda).create_provider()
        cluster, machines = await provider.provision(cluster, 1)
        verda.fail("PUT", "/v1/instances", refusal(400, "forbidden_action", "Instance is locked"))
        await provider.terminate(cluster, [machines[0].id])

    with pytest.raises(sky.ProvisioningError, match="Instance is locked"):
        asyncio.run(main())


@pytest.mark.parametrize("status", ["no_capacity", "error", "offline"])
def test_machine_that_ended_says_why(verda: FakeVerda, tmp_path: Path, status: str) -> None:
    async def main() -> None:
        cluster, provider = await prepared(verda, tmp_path), settings(verda).create_provider()
        cluster, machines = await provider.provision(cluster, 1)
        verda.instances[machines[0].id]["status"] = status
        _, found = await provider.get_instance(cluster, machines[0].id)
        assert found is not None
        assert (found.status, found.detail) == ("exited", f"Verda reports that it is {status}")

    asyncio.run(main())


def test_machine_runs_once_its_startup_script_has_run(verda: FakeVerda, banner: BannerServer, tmp_path: Path) -> None:
    async def main() -> None:
        cluster, provider = await prepared(verda, tmp_path), settings(verda).create_provider()
        assert [note for note in cluster.notes if "cannot end their own billing" in note]
        cluster, machines = await provider.provision(cluster, 1)
        id, ready = machines[0].id, verda.address
        verda.address = lambda instance: "127.0.0.1"
        while "SSH" not in (found := (await provider.find(cluster))[0]).detail:
            pass
        assert found.status == "provisioning"
        ready(verda.instances[id])
        _, running = await provider.get_instance(cluster, id)
        assert running is not None
        assert running.status == "running"
        assert isinstance(running.access, SSHAccess)
        assert running.access.host_key is not None
        assert (running.access.host, running.access.port, running.access.user) == ("127.0.0.1", banner.port, "root")

    asyncio.run(main())


def test_resources_of_others_are_left_alone(verda: FakeVerda, tmp_path: Path) -> None:
    async def main() -> None:
        cluster, provider = await prepared(verda, tmp_path), settings(verda).create_provider()
        for name in ("skyward-unit-1-b-conformance", "skyward-unit-1-somebody", "my key"):
            verda.keys[name] = {"id": name, "name": name, "key": "ssh-ed25519 AAAA"}
        await provider.teardown(cluster)

    asyncio.run(main())
    assert verda.billed["keys"] == ["skyward-unit-1-b-conformance", "skyward-unit-1-somebody", "my key"]
    assert pool_named(shared_name("a-b", "owner"), "owner") == "a-b"
    assert pool_named(volume_name("a-b", "owner", "host"), "owner") == "a-b"
    assert pool_named(volume_name("a-b", "owner", "host"), "wner") is None


def test_image_is_the_newest_that_fits() -> None:
    images = [
        "ubuntu-22.04-cuda-12.8-open", "ubuntu-24.04-cuda-12.8-open-docker", "ubuntu-24.04-cuda-12.8-open",
        "ubuntu-24.04-cuda-9.2", "ubuntu-24.04", "ubuntu-22.04", "debian-12",
    ]  # fmt: skip  # one image a line is long
    assert choose_image(images, None, with_gpu=True) == "ubuntu-24.04-cuda-12.8-open"
    assert choose_image(images, "9.2", with_gpu=True) == "ubuntu-24.04-cuda-9.2"
    assert choose_image(images, None, with_gpu=False) == "ubuntu-24.04"
    with pytest.raises(sky.SpecError, match="no image of Ubuntu with CUDA 13.0"):
        choose_image(images, "13.0", with_gpu=True)


def test_credentials_are_found_in_their_usual_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("VERDA_CLIENT_ID", "VERDA_CLIENT_SECRET", "VERDA_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert sky.Verda().credentials().found == ""
    assert "VERDA_CLIENT_SECRET" in sky.Verda().credentials().how
    (tmp_path / ".verda").mkdir()
    words = "[default]\nverda_client_id = a\nverda_client_secret = b%c\n"
    (tmp_path / ".verda" / "credentials").write_text(words)
    assert sky.Verda().credentials().found.endswith(".verda/credentials")
    monkeypatch.setenv("VERDA_CLIENT_ID", "a")
    monkeypatch.setenv("VERDA_CLIENT_SECRET", "b")
    assert sky.Verda().credentials().found == "environment variables VERDA_CLIENT_ID and VERDA_CLIENT_SECRET"
    assert "given" not in repr(sky.Verda(client_id="a", client_secret="given"))


def test_missing_credentials_are_one_sentence(
    verda: FakeVerda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("VERDA_CLIENT_ID", "VERDA_CLIENT_SECRET", "VERDA_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name, raising=False)

    async def main() -> None:
        _ = [each async for each in sky.Verda(endpoint=f"{verda.url}/v1").create_provider().offers()]

    with pytest.raises(sky.CredentialsError, match="Verda needs credentials: set VERDA_CLIENT_ID"):
        asyncio.run(main())


@pytest.mark.parametrize(
    "values", [{"client_id": "a"}, {"cuda": "twelve"}, {"cuda": "12.8", "image": "ubuntu-24.04"}, {"disk_gb": 0}]
)
def test_wrong_settings_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(sky.SpecError):
        sky.Verda(**values)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.timeout(900)
def test_client_killed_at_any_request_leaves_nothing(
    verda: FakeVerda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = f"sky.Verda(client_id={CLIENT!r}, client_secret={SECRET!r}, endpoint={verda.url + '/v1'!r})"

    def left() -> list[str]:
        return [name for names in verda.billed.values() for name in names]

    requests = reaped_after_each_kill(verda, source, left, tmp_path, monkeypatch, spec="accelerator='H100'")
    assert requests >= 12


VENDOR = """
import json
from verda import VerdaClient
from verda.exceptions import APIException
client = VerdaClient({id!r}, {secret!r}, base_url={url!r})
[instance] = client.instances.get()
disks = [each.name for each in client.volumes.get()]
[key], [script] = client.ssh_keys.get(), client.startup_scripts.get()
stock = client.instances.is_available("1H100.80S.32V", is_spot=True, location_code="FIN-01")
client.instances.action(instance.id, "delete", volume_ids=[instance.os_volume_id], delete_permanently=True)
try:
    client.instances.action(instance.id, "delete")
except APIException as error:
    code = error.code
found = [instance.hostname, instance.description, instance.is_spot, disks, key.name, script.name, stock, code]
print(json.dumps(found))
"""


def test_vendors_client_sees_and_ends_our_machines(verda: FakeVerda, tmp_path: Path) -> None:
    async def main() -> Cluster:
        cluster = await prepared(verda, tmp_path, "spot")
        cluster, machines = await settings(verda).create_provider().provision(cluster, 1)
        assert len(machines) == 1
        return cluster

    cluster = asyncio.run(main())
    script = VENDOR.format(id=CLIENT, secret=SECRET, url=f"{verda.url}/v1")
    found = json.loads(run_vendor("verda", script, {}, tmp_path))
    hostname, description, is_spot, disks, key, startup, stock, code = found
    assert hostname.startswith("sky-unit-1-")
    assert description == "skyward unit-1 conformance request-1"
    assert is_spot
    assert disks == [volume_name("unit-1", "conformance", hostname)]
    assert (key, startup) == (shared_name("unit-1", "conformance"),) * 2
    assert stock
    assert code == "forbidden_action"
    asyncio.run(settings(verda).create_provider().teardown(cluster))
    assert verda.billed == NOTHING
