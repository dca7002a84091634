"""Kubernetes: the provider against a fake of its API, through the real kubectl.

A real cluster is in tests/kubernetes.
"""

import asyncio
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward.errors import SkywardError
from skyward.providers import Cluster, Instance, Offer
from skyward.providers.conformance import check_provider, check_refusal, conformance_identity
from skyward_providers.kubernetes import waits
from tests.cloud.kills import reaped_after_each_kill
from tests.fakes.kubernetes import FakeKubernetes, kubeconfig, refusal, schemas
from tests.fakes.server import Answer
from tests.kubernetes.cluster import programs
from tests.required import leave_out_for

pytestmark = pytest.mark.cloud

POD = r"/api/v1/namespaces/team/pods"


def kubectls() -> list[str]:
    """Return the kubectl on PATH, and that of the real cluster, which is another version."""
    built = programs()
    return [*filter(None, (shutil.which("kubectl"), str(built / "kubectl") if built else None))] or ["kubectl"]


@pytest.fixture
def cluster() -> Iterator[FakeKubernetes]:
    """A cluster whose pods are data. At the end, no request broke a schema, and nothing is left."""
    missing = "" if shutil.which(kubectls()[0]) else "there is no `kubectl`"
    leave_out_for(
        missing or ("" if schemas() else "the schemas are not installed: run `make vendors`"), "SKYWARD_VENDORS"
    )
    with FakeKubernetes() as server:
        yield server
        assert server.wrong == []
        assert server.names("pods") + server.names("configmaps") == []


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder for what kubectl remembers of clusters, in place of the user's."""
    monkeypatch.setenv("HOME", str(tmp_path))


def config(cluster: FakeKubernetes, folder: Path, **settings: Any) -> sky.Kubernetes:
    given = {"kubeconfig": kubeconfig(cluster, folder), "binary": kubectls()[0], **settings}
    return sky.Kubernetes(**given)


async def listed(settings: sky.Kubernetes) -> list[Offer]:
    return [offer async for offer in settings.create_provider().offers()]


async def prepared(provider: Any, folder: Path, **spec: Any) -> Cluster:
    """Return a pool's cluster, with the tags of a request."""
    offers = [offer async for offer in provider.offers()]
    identity = conformance_identity("unit-1", folder)
    made: Cluster = await provider.prepare(sky.Spec(**spec), offers[0], identity)
    return replace(made, tags={**identity.tags, "skyward-request": "request-1"})


@pytest.mark.parametrize("binary", kubectls())
def test_provider_passes_the_conformance_suite(cluster: FakeKubernetes, tmp_path: Path, binary: str) -> None:
    asyncio.run(check_provider(config(cluster, tmp_path, binary=binary), tmp_path))


def test_every_field_of_the_settings_fits_the_schemas(cluster: FakeKubernetes, tmp_path: Path) -> None:
    settings = config(
        cluster,
        tmp_path,
        node_selector={"pool": "gpu"},
        tolerations=[{"key": "dedicated", "operator": "Equal", "value": "ml", "effect": "NoSchedule"}],
        service_account="trainer",
        image_pull_secrets=["registry"],
        time=3600,
    )

    async def launch() -> None:
        provider = settings.create_provider()
        made = await prepared(provider, tmp_path, accelerator="A100:2", vcpus=8, memory_gb=64, disk_gb=100)
        await provider.provision(made, 1)
        await provider.teardown(made)

    asyncio.run(launch())


QUOTA = 'pods "x" is forbidden: exceeded quota: compute, requested: pods=1, used: pods=4, limited: pods=4'
RULE = 'admission webhook "policy.example.com" denied the request: images come from registry.example.com'
REFUSALS: Mapping[str, tuple[Answer, type[SkywardError], str]] = {
    "quota": (
        refusal(403, "Forbidden", QUOTA),
        sky.QuotaError,
        "Namespace 'team' has no quota left (compute, requested: pods=1, used: pods=4, limited: pods=4); ask for less, "
        "or wait until others have finished.",
    ),
    "permission": (
        refusal(
            403,
            "Forbidden",
            'pods is forbidden: User "me" cannot create resource "pods" in API group "" in the namespace "team"',
        ),
        sky.CredentialsError,
        "'me' may not create pods in namespace 'team': ask for a role with this permission; "
        "`sky.Kubernetes().policy` is the smallest one.",
    ),
    "login": (refusal(401, "Unauthorized", "Unauthorized"), sky.CredentialsError, "does not accept the login"),
    "invalid": (refusal(422, "Invalid", 'Pod "x" is invalid: spec: wrong'), sky.SpecError, "refuses the pod"),
    "rule": (
        refusal(400, "BadRequest", RULE),
        sky.SpecError,
        "The cluster's rule 'policy.example.com' refuses the pod",
    ),
    "security": (
        refusal(403, "Forbidden", 'pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot'),
        sky.SpecError,
        'The cluster does not allow the pod: violates PodSecurity "restricted:latest": runAsNonRoot',
    ),
    "busy": (refusal(429, "TooManyRequests", "too many requests"), sky.RateLimitError, "no more requests for a while"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_are_told_apart(cluster: FakeKubernetes, tmp_path: Path, name: str) -> None:
    answer, kind, message = REFUSALS[name]

    def refuse() -> None:
        cluster.fail("POST", POD, answer, times=20)

    error = asyncio.run(check_refusal(config(cluster, tmp_path), tmp_path, kind, refuse))
    assert message in str(error)


@pytest.mark.parametrize("answer", [None, refusal(500, "InternalError", "etcdserver: request timed out")])
def test_lost_answer_is_an_unknown_outcome(cluster: FakeKubernetes, tmp_path: Path, answer: Answer | None) -> None:
    """The pod exists, and is found by its label, or by a repetition of the request."""

    async def launch() -> None:
        provider = config(cluster, tmp_path).create_provider()
        made = await prepared(provider, tmp_path)
        cluster.fail("POST", POD, answer, after=True)
        with pytest.raises(ConnectionError, match="did not answer"):
            await provider.provision(made, 1)
        (found,) = await provider.find(made)
        _, (again,) = await provider.provision(made, 1)
        assert again.id == found.id
        await provider.teardown(made)

    asyncio.run(launch())


def test_cluster_that_does_not_answer_in_time_is_named(
    cluster: FakeKubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from skyward_providers.kubernetes import kubectl

    monkeypatch.setattr(kubectl, "_WITHIN", 1.0)
    with cluster.frozen(), pytest.raises(sky.ProvisioningError, match="did not end within 1 s"):
        asyncio.run(listed(config(cluster, tmp_path)))


def test_rejected_login_is_named(cluster: FakeKubernetes, tmp_path: Path) -> None:
    settings = config(cluster, tmp_path)
    kubeconfig(cluster, tmp_path, token="old")
    with pytest.raises(sky.CredentialsError, match="The cluster of context 'fake' does not accept the login"):
        asyncio.run(listed(settings))
    (check,) = asyncio.run(settings.create_provider().check())  # type: ignore[attr-defined]  # of this provider
    assert "does not accept the login" in check.problem


def test_missing_permissions_are_checked(cluster: FakeKubernetes, tmp_path: Path) -> None:
    cluster.denied = {"create/pods/exec", "delete/configmaps", "get/pods", "watch/configmaps"}
    checks = asyncio.run(config(cluster, tmp_path).create_provider().check())  # type: ignore[attr-defined]  # as above
    assert [each.what for each in checks if each.problem] == [
        "may read pods",
        "may run commands in pods",
        "may watch config maps",
        "may delete config maps",
    ]


def test_users_who_may_not_list_nodes_get_any_node(cluster: FakeKubernetes, tmp_path: Path) -> None:
    cluster.denied = {"nodes"}
    (offer,) = asyncio.run(listed(config(cluster, tmp_path, hourly_price=0.5)))
    assert offer.open_ended
    assert offer.hourly_price("on-demand") == 0.5


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    container = {"name": "node", "state": {"waiting": {"reason": reason, "message": message}}}
    return {"phase": "Pending", "containerStatuses": [container]}


def terminated(code: int, reason: str) -> dict[str, Any]:
    container = {"name": "node", "state": {"terminated": {"exitCode": code, "reason": reason}}}
    return {"phase": "Failed", "containerStatuses": [container]}


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient cpu.",
}
STATES: Mapping[str, tuple[dict[str, Any], str, str]] = {
    "no place": (
        {"phase": "Pending", "conditions": [UNSCHEDULABLE]},
        "provisioning",
        "no node of the cluster has room for it (Unschedulable: 0/3 nodes are available: 3 Insufficient cpu)",
    ),
    "starts": (waiting("ContainerCreating"), "provisioning", ""),
    "image": (waiting("ImagePullBackOff", "Back-off pulling"), "provisioning", "ImagePullBackOff: Back-off pulling"),
    "config": (waiting("CreateContainerConfigError", "no secret"), "exited", "CreateContainerConfigError: no secret"),
    "memory": (terminated(137, "OOMKilled"), "exited", "its first process ended with 137 (OOMKilled)"),
    "evicted": (
        {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
        "exited",
        "Evicted: The node was low on resource: memory",
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_state_of_a_pod_has_its_reason(cluster: FakeKubernetes, tmp_path: Path, name: str) -> None:
    status, expected, detail = STATES[name]
    instance = asyncio.run(seen(cluster, tmp_path, lambda pod: status))
    assert (instance.status, instance.detail) == (expected, detail)
    assert instance.access is None


async def seen(
    cluster: FakeKubernetes, folder: Path, status: Callable[[Mapping[str, Any]], Mapping[str, Any]], **settings: Any
) -> Instance:
    """Launch a pod, and return it with that status."""
    provider = config(cluster, folder, **settings).create_provider()
    made = await prepared(provider, folder)
    _, (pod,) = await provider.provision(made, 1)
    cluster.status = status
    found = None
    async with asyncio.timeout(30):
        while found is None or (found.status != "exited" and settings):
            _, found = await provider.get_instance(made, pod.id)
            await asyncio.sleep(0.1)
    await provider.teardown(made)
    return found


def test_pod_without_a_place_is_given_up(cluster: FakeKubernetes, tmp_path: Path) -> None:
    status = {"phase": "Pending", "conditions": [UNSCHEDULABLE]}
    instance = asyncio.run(seen(cluster, tmp_path, lambda pod: status, schedule_timeout=0.5))
    assert instance.detail.endswith("Insufficient cpu); gave up after 0.5 s")


def test_image_that_cannot_be_pulled_is_given_up(
    cluster: FakeKubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "_RETRIED_FOR", 0.5)
    status = waiting("ErrImagePull", "not found")
    instance = asyncio.run(seen(cluster, tmp_path, lambda pod: status, grace=1))
    assert instance.detail == "ErrImagePull: not found; gave up after 0.5 s"


def test_leftovers_of_others_are_not_removed(cluster: FakeKubernetes, tmp_path: Path) -> None:
    async def launch() -> None:
        provider: Any = config(cluster, tmp_path).create_provider()
        made = await prepared(provider, tmp_path)
        await provider.provision(made, 1)
        found = await provider.leftovers("conformance")
        assert sorted(each.kind for each in found) == ["config map", "machine"]
        for each in found:
            await provider.remove(replace(each, specific={**each.specific, "owner": "somebody-else"}))
        assert len(await provider.leftovers("conformance")) == 2
        for each in found:
            await provider.remove(each)
        assert await provider.leftovers("conformance") == []

    asyncio.run(launch())


@pytest.mark.timeout(900)
def test_client_killed_at_any_request_leaves_nothing(
    cluster: FakeKubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kubectl goes on, and may create a pod after the reap: the cluster deletes it, because its owner is gone."""
    given = {"kubeconfig": kubeconfig(cluster, tmp_path), "binary": kubectls()[-1]}

    def left() -> list[str]:
        return cluster.names("pods") + cluster.names("configmaps")

    requests = reaped_after_each_kill(cluster, f"sky.Kubernetes(**{given!r})", left, tmp_path / "data", monkeypatch)
    assert requests >= 8
