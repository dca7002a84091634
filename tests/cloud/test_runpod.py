"""RunPod: the provider against its API, and the fake against the official SDK."""

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

import skyward as sky
from skyward.journal import Journal
from skyward.pool.account.offers import notes_on, survey_offers
from skyward.pool.quotes import quote
from skyward.providers import Cluster, Offer, SweepableProvider
from skyward.providers.conformance import check_provider, check_refusal, conformance_identity
from skyward.providers.crashes import check_crashes
from skyward_providers.cloud import rest
from tests.cloud.conftest import settings
from tests.cloud.kills import reaped_after_each_kill
from tests.fakes.runpod import KEY, NO_CAPACITY, FakeRunPod
from tests.fakes.server import Answer
from tests.fakes.vendor import run_vendor

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(300)]


def cheapest_spot(offers: Sequence[Offer]) -> Offer:
    return min((each for each in offers if each.spot_price), key=lambda each: each.spot_price or 0)


def test_provider_passes_the_conformance_suite(runpod: FakeRunPod, tmp_path: Path) -> None:
    asyncio.run(check_provider(settings(runpod), tmp_path))
    assert runpod.pods == {}


def test_interruptible_pods_pass_the_conformance_suite(runpod: FakeRunPod, tmp_path: Path) -> None:
    asyncio.run(check_provider(settings(runpod), tmp_path, choose=cheapest_spot))
    assert all(each.body["interruptible"] for each in runpod.requests if each.method == "POST" and "pods" in each.path)


def test_clients_that_crash_leave_nothing(runpod: FakeRunPod, tmp_path: Path) -> None:
    steps = asyncio.run(check_crashes(settings(runpod), tmp_path, kills=12, left=lambda: runpod.pods))
    assert steps > 12


def test_offers_are_for_one_pod_and_its_gpus(runpod: FakeRunPod) -> None:
    async def main() -> dict[str, Offer]:
        config = replace(settings(runpod), cloud_type="any")
        return {offer.id: offer async for offer in config.create_provider().offers()}

    offers = asyncio.run(main())
    four = offers["SECURE/NVIDIA A100 80GB PCIe/4"]
    assert four.on_demand_price == pytest.approx(4 * 1.64)
    assert four.spot_price == pytest.approx(4 * 0.82)
    assert four.instance_type.accelerator_count == 4
    assert offers["SECURE/NVIDIA A100-SXM4-80GB/1"].spot_price is None
    assert "COMMUNITY/NVIDIA A100-SXM4-80GB/1" not in offers
    assert offers["COMMUNITY/NVIDIA GeForce RTX 4090/1"].on_demand_price == pytest.approx(0.34)
    assert offers["CPU/cpu3c-2-4/8"].instance_type.memory_gb == 16


def test_gpus_out_of_stock_are_not_offered(runpod: FakeRunPod) -> None:
    runpod.out_of_stock.add("NVIDIA A100 80GB PCIe")

    async def main() -> list[str]:
        return [offer.id async for offer in settings(runpod).create_provider().offers()]

    assert not [each for each in asyncio.run(main()) if "PCIe" in each]


REFUSALS = {
    "no capacity": (sky.NoCapacityError, NO_CAPACITY),
    "no credit": (sky.CredentialsError, Answer(400, {"error": "Your account balance is too low"})),
    "bad key": (sky.CredentialsError, Answer(401, {"error": "invalid API key"})),
    "no resources": (
        sky.NoCapacityError,
        Answer(
            500, {"error": "create pod: This machine does not have the resources to deploy your pod.", "status": 500}
        ),
    ),
    "quota": (sky.QuotaError, Answer(400, {"error": "You have reached the maximum number of pods"})),
    "too fast": (sky.RateLimitError, Answer(429, {"error": "slow down"}, {"retry-after": "120"})),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_are_told_apart(runpod: FakeRunPod, tmp_path: Path, case: str) -> None:
    expected, answer = REFUSALS[case]
    error = asyncio.run(
        check_refusal(settings(runpod), tmp_path, expected, lambda: runpod.fail("POST", "/v1/pods", answer, times=-1))
    )
    assert KEY not in str(error)
    if isinstance(error, sky.RateLimitError):
        assert error.retry_after == 120


async def prepared(runpod: FakeRunPod, tmp_path: Path) -> Cluster:
    provider = settings(runpod).create_provider()
    offers = [offer async for offer in provider.offers()]
    pool = conformance_identity("unit-1", tmp_path)
    cluster = await provider.prepare(sky.Spec(), offers[0], pool)
    return replace(cluster, tags={**pool.tags, "skyward-request": "request-1"})


def test_lost_answer_is_an_unknown_outcome_and_the_pod_is_found(runpod: FakeRunPod, tmp_path: Path) -> None:
    async def main() -> None:
        cluster, provider = await prepared(runpod, tmp_path), settings(runpod).create_provider()
        runpod.fail("POST", "/v1/pods", after=True)
        with pytest.raises(Exception) as raised:  # noqa: PT011  # any but Skyward's own
            await provider.provision(cluster, 1)
        assert not isinstance(raised.value, sky.SkywardError)
        assert len(runpod.pods) == 1
        _, machines = await provider.provision(cluster, 1)  # repeated: takes over the one that was created
        assert [each.id for each in machines] == list(runpod.pods)
        await provider.terminate(cluster, [each.id for each in await provider.find(cluster)])

    asyncio.run(main())
    assert runpod.pods == {}


def test_text_of_a_proxy_is_no_refusal_of_runpod(runpod: FakeRunPod, tmp_path: Path) -> None:
    async def main() -> None:
        cluster, provider = await prepared(runpod, tmp_path), settings(runpod).create_provider()
        late = Answer(504, {"error": "The load balancer got no answer in time."})
        runpod.fail("POST", "/v1/pods", late, after=True)
        with pytest.raises(httpx.HTTPStatusError):  # the pod may exist
            await provider.provision(cluster, 1)
        await provider.terminate(cluster, [each.id for each in await provider.find(cluster)])

    asyncio.run(main())
    assert runpod.pods == {}


def test_page_of_the_network_is_no_answer(runpod: FakeRunPod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Answer(200, "<html>Log in to the network</html>", {"content-type": "text/html; charset=utf-8"})

    async def main() -> None:
        cluster, provider = await prepared(runpod, tmp_path), settings(runpod).create_provider()
        runpod.fail("POST", "/v1/pods", page)
        with pytest.raises(httpx.DecodingError):  # a pod may have been created
            await provider.provision(cluster, 1)
        _, machines = await provider.provision(cluster, 1)
        runpod.fail("DELETE", "/v1/pods/.*", page)
        runpod.fail("GET", "/v1/pods", page)
        await provider.terminate(cluster, [machines[0].id])
        assert await provider.find(cluster) == []
        monkeypatch.setattr(rest, "_FIRST_PAUSE", 1000.0)  # longer than it tries
        runpod.fail("GET", "/v1/pods", page)
        with pytest.raises(sky.ProvisioningError, match=r"RunPod cannot be reached \(a page of HTML"):
            await provider.find(cluster)

    asyncio.run(main())
    assert runpod.pods == {}


def test_pods_of_others_may_lack_fields(runpod: FakeRunPod, tmp_path: Path) -> None:
    async def main() -> None:
        cluster, provider = await prepared(runpod, tmp_path), settings(runpod).create_provider()
        other = {"id": "other", "name": "mine", "desiredStatus": "EXITED", "env": None}
        ours = {"id": "ours", "desiredStatus": "RUNNING", "costPerHr": "0.74"}
        tags = {"SKYWARD_OWNER_TAG": "conformance", "SKYWARD_POOL_TAG": "lost-1"}
        runpod.fail("GET", "/v1/pods", Answer(200, [other, {**ours, "env": tags}]), times=3)
        assert await provider.find(cluster) == []
        assert isinstance(provider, SweepableProvider)
        (left,) = await provider.leftovers("conformance")
        assert (left.id, left.pool, left.hourly_price) == ("ours", "lost-1", 0.74)
        _, machines = await provider.provision(cluster, 1)
        await provider.terminate(cluster, [machines[0].id])

    asyncio.run(main())
    assert runpod.pods == {}


def test_unknown_spot_prices_are_logged(runpod: FakeRunPod, caplog: pytest.LogCaptureFixture) -> None:
    runpod.fail("POST", "/graphql", Answer(403, {"error": "no permission"}), times=-1)

    async def main() -> list[Offer]:
        return [offer async for offer in settings(runpod).create_provider().offers()]

    assert not any(each.spot_price for each in asyncio.run(main()))
    assert "prices of RunPod's interruptible pods are unknown" in caplog.text


def test_partial_stock_gives_fewer_machines(runpod: FakeRunPod, tmp_path: Path) -> None:
    async def main() -> int:
        cluster, provider = await prepared(runpod, tmp_path), settings(runpod).create_provider()
        runpod.fail("POST", "/v1/pods", NO_CAPACITY, skip=2, times=-1)
        _, machines = await provider.provision(cluster, 4)
        return len(machines)

    assert asyncio.run(main()) == 2


def test_requests_that_may_be_repeated_survive_a_short_failure(runpod: FakeRunPod, tmp_path: Path) -> None:
    async def main() -> None:
        cluster, provider = await prepared(runpod, tmp_path), settings(runpod).create_provider()
        cluster, machines = await provider.provision(cluster, 1)
        runpod.fail("DELETE", "/v1/pods/.*", Answer(502, "bad gateway"))
        runpod.fail("DELETE", "/v1/pods/.*", after=True)
        await provider.terminate(cluster, [machines[0].id])

    asyncio.run(main())
    assert runpod.pods == {}


def test_key_is_found_in_its_usual_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RUNPOD_API_KEY", raising=False)
    assert sky.RunPod().credentials().found == ""
    assert "RUNPOD_API_KEY" in sky.RunPod().credentials().how
    (tmp_path / ".runpod").mkdir()
    (tmp_path / ".runpod" / "config.toml").write_text('[default]\napi_key = "from-file"\n')
    assert sky.RunPod().credentials().found.endswith("config.toml")
    monkeypatch.setenv("RUNPOD_API_KEY", "from-env")
    assert sky.RunPod().credentials().found == "environment variable RUNPOD_API_KEY"
    assert "given" not in repr(sky.RunPod(api_key="given"))


def test_missing_key_is_one_sentence(runpod: FakeRunPod, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RUNPOD_API_KEY", raising=False)

    async def main() -> None:
        provider = sky.RunPod(endpoint=runpod.url).create_provider()
        with pytest.raises(sky.CredentialsError, match="RunPod needs an API key: set RUNPOD_API_KEY"):
            _ = [offer async for offer in provider.offers()]

    asyncio.run(main())


@pytest.mark.timeout(900)
def test_client_killed_at_any_request_leaves_nothing(
    runpod: FakeRunPod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = f"sky.RunPod(api_key={KEY!r}, endpoint={runpod.url!r})"
    requests = reaped_after_each_kill(runpod, source, lambda: runpod.pods, tmp_path, monkeypatch)
    assert requests >= 7


SDK = """
import runpod
runpod.api_key = {key!r}
pods = runpod.get_pods()
assert [pod["id"] for pod in pods] == [{pod!r}], pods
assert {{gpu["id"] for gpu in runpod.get_gpus()}} >= {{"NVIDIA A100 80GB PCIe"}}
runpod.terminate_pod({pod!r})
assert runpod.get_pods() == []
"""


def test_official_sdk_sees_and_ends_our_pods(runpod: FakeRunPod, tmp_path: Path) -> None:
    async def main() -> str:
        cluster, provider = await prepared(runpod, tmp_path), settings(runpod).create_provider()
        _, machines = await provider.provision(cluster, 1)
        return machines[0].id

    script = SDK.format(key=KEY, pod=asyncio.run(main()))
    run_vendor("runpod", script, {"RUNPOD_API_BASE_URL": runpod.url}, tmp_path)
    assert runpod.pods == {}


def test_stored_offers_hide_no_missing_key(
    runpod: FakeRunPod, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("RUNPOD_API_KEY", KEY)
    config = sky.RunPod(endpoint=runpod.url)
    assert sky.offers(provider=config, accelerator="RTX_4090")
    monkeypatch.delenv("RUNPOD_API_KEY")
    needed = "RunPod needs an API key: set RUNPOD_API_KEY, or give `sky.RunPod"
    pool = sky.Compute(provider=config, accelerator="RTX_4090")
    with pytest.raises(sky.CredentialsError, match=needed):
        quote(pool)
    with pytest.raises(sky.CredentialsError, match=needed):
        pool.open()
    assert "may be left" not in capsys.readouterr().err
    with Journal() as journal:
        assert journal.pools() == []
    found = survey_offers((), {"provider": config, "accelerator": "RTX_4090"})
    assert needed in notes_on(found)[0]
    assert not any(each.is_current for each in found.offers)


@pytest.mark.timeout(60)  # of two minutes for an API that was reached before
def test_api_that_was_never_reached_is_given_up_soon_with_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "_UNREACHABLE_AFTER", 0.5)
    with socket.socket() as taken:  # bound, and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        config = sky.RunPod(api_key=KEY, endpoint=f"http://127.0.0.1:{taken.getsockname()[1]}")

        async def main() -> None:
            _ = [offer async for offer in config.create_provider().offers()]

        with pytest.raises(sky.ProvisioningError, match=r"RunPod cannot be reached \(Connection refused\); check"):
            asyncio.run(main())


def test_refused_key_leaves_no_unanswered_request(runpod: FakeRunPod, caplog: pytest.LogCaptureFixture) -> None:
    """A refusal is an answer: there is no machine to look for, with a key that is refused again."""
    for method in ("GET", "POST"):
        runpod.fail(method, "/v1/pods", Answer(401, {"error": "invalid API key"}), times=-1)
    pool = sky.Compute(provider=settings(runpod), accelerator="RTX_4090", name="refused", logging=False)
    with pytest.raises(sky.SkywardError, match="RunPod refuses the API key"):
        pool.open()
    assert not [each.message for each in caplog.records if each.levelname == "ERROR"]
    (orphan,) = sky.orphans("refused")
    assert (orphan.machines, orphan.unanswered) == (0, 0)
    runpod.faults.clear()
    sky.reap("refused")
    assert sky.orphans("refused") == []
