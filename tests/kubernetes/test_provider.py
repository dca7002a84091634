"""`sky.Kubernetes` keeps the promises of a provider, on a real cluster."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward.errors import SkywardError
from skyward.providers import Cluster as PoolCluster
from skyward.providers import Instance
from skyward.providers.conformance import check_provider, check_refusal, conformance_identity
from skyward_providers.kubernetes.provider import KubernetesProvider
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.conftest import pods
from tests.waiting import wait_for

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(180)]


@pytest.fixture
def namespace(shared_cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own."""
    shared_cluster.kubectl("create", "namespace", "team")
    wait_for(lambda: shared_cluster.names("serviceaccounts", namespace="team", selector="") != [], "its account")
    yield "team"
    shared_cluster.kubectl("delete", "namespace", "team")


async def prepared(provider: Any, folder: Path, pool: str = "unit-1", **spec: Any) -> PoolCluster:
    """Return a pool's cluster, with the tags of a request."""
    offers = [offer async for offer in provider.offers()]
    identity = conformance_identity(pool, folder)
    cluster: PoolCluster = await provider.prepare(sky.Spec(**spec), offers[0], identity)
    return replace(cluster, tags={**identity.tags, "skyward-request": "request-1"})


async def until(provider: Any, cluster: PoolCluster, id: str, status: str) -> Instance:
    """Return a machine once it has a state."""
    async with asyncio.timeout(60):
        while True:
            _, instance = await provider.get_instance(cluster, id)
            if instance is not None and instance.status == status:
                found: Instance = instance
                return found
            await asyncio.sleep(0.2)


def test_conformance(cluster: Cluster, tmp_path: Path) -> None:
    asyncio.run(check_provider(pods(cluster), tmp_path))


def test_policy_has_all_permissions_that_a_provider_needs(
    shared_cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """Nodes are not listed then: there is one offer, for any of them."""
    config = pods(shared_cluster, namespace=namespace, context="user")
    shared_cluster.kubectl("apply", "-f", "-", given=config.policy)
    shared_cluster.kubectl("create", "rolebinding", "skyward", "-n", namespace, "--role=skyward", "--user=user")
    asyncio.run(check_provider(config, tmp_path))
    (offer,) = asyncio.run(listed(config))
    assert offer.open_ended


async def listed(config: sky.Kubernetes) -> list[Any]:
    return [offer async for offer in config.create_provider().offers()]


def test_missing_permission_is_named(shared_cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    config = pods(shared_cluster, namespace=namespace, context="user")
    with pytest.raises(sky.CredentialsError) as caught:
        asyncio.run(listed(config))
    assert str(caught.value) == (
        "'user' may not list pods in namespace 'team': ask for a role with this permission; "
        "`sky.Kubernetes().policy` is the smallest one."
    )
    checks = asyncio.run(KubernetesProvider(config).check())
    assert all("no permission in namespace 'team'" in each.problem for each in checks)


def test_exceeded_quota_is_a_quota_error(shared_cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    def refuse() -> None:
        quota = {"metadata": {"name": "few", "namespace": namespace}, "spec": {"hard": {"pods": "0"}}}
        shared_cluster.apply({"apiVersion": "v1", "kind": "ResourceQuota", **quota})
        wait_for(lambda: shared_cluster.get("resourcequota", "few", "-n", namespace).get("status"), "the quota")

    config = pods(shared_cluster, namespace=namespace)
    error = asyncio.run(check_refusal(config, tmp_path, sky.QuotaError, refuse))
    assert "Namespace 'team' has no quota left (few, requested: pods=1, used: pods=0, limited: pods=0)" in str(error)


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"namespace": "nowhere"}, sky.SpecError, "There is no namespace 'nowhere': create it with `kubectl create"),
        ({"pod_template": {"dnsPolicy": "Never"}}, sky.SpecError, "The cluster refuses the pod: The Pod"),
        ({"pod_template": {"priorty": 1}}, sky.SpecError, 'unknown field "priorty"'),
        ({"service_account": "nobody"}, sky.SpecError, 'serviceaccount "nobody" not found'),
        ({"context": "other"}, sky.CredentialsError, "kubectl has no context 'other'"),
    ],
)
def test_wrong_settings_are_named(
    cluster: Cluster, tmp_path: Path, settings: dict[str, Any], kind: type[SkywardError], message: str
) -> None:
    async def launch() -> None:
        provider = pods(cluster, **settings).create_provider()
        made = None
        try:
            made = await prepared(provider, tmp_path)
            await provider.provision(made, 1)
        finally:
            if made is not None:
                await provider.teardown(made)

    with pytest.raises(kind) as caught:
        asyncio.run(launch())
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ("x", "The cluster of context 'x' cannot be reached"),
        ("", "The cluster of context 'x' does not accept the login"),
    ],
)
def test_cluster_that_cannot_be_used_is_named(cluster: Cluster, tmp_path: Path, token: str, message: str) -> None:
    """There is none at its address; or kubectl would ask for a name and a password."""
    words = json.loads(cluster.kubeconfig.read_text())
    words["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1" if token else cluster.server
    words |= {"users": [{"name": "x", "user": {"token": token}}], "current-context": "x"}
    words["contexts"] = [{"name": "x", "context": {"cluster": "tests", "user": "x"}}]
    (tmp_path / "config").write_text(json.dumps(words))
    with pytest.raises(sky.ProvisioningError) as caught:
        asyncio.run(listed(pods(cluster, kubeconfig=str(tmp_path / "config"))))
    assert message in str(caught.value)


def test_repeated_request_returns_the_same_pods(cluster: Cluster, tmp_path: Path) -> None:
    async def launch() -> None:
        provider, other = pods(cluster).create_provider(), pods(cluster).create_provider()
        made = await prepared(provider, tmp_path)
        try:
            _, first = await provider.provision(made, 1)
            _, second = await other.provision(made, 2)
            assert {each.id for each in first} < {each.id for each in second}
            assert len(cluster.names("pods")) == 2
        finally:
            await provider.teardown(made)

    asyncio.run(launch())


def test_objects_of_others_are_not_used(cluster: Cluster, tmp_path: Path) -> None:
    cluster.kubectl("create", "configmap", "skyward-unit-1")
    try:
        with pytest.raises(sky.ProvisioningError, match="ConfigMap 'skyward-unit-1' .* is not of this pool"):
            asyncio.run(prepared(pods(cluster).create_provider(), tmp_path))
    finally:
        cluster.kubectl("delete", "configmap", "skyward-unit-1")


def test_config_map_owns_the_pods_and_is_made_again(cluster: Cluster, tmp_path: Path) -> None:
    async def launch() -> None:
        provider = pods(cluster).create_provider()
        made = await prepared(provider, tmp_path)
        try:
            _, (pod,) = await provider.provision(made, 1)
            await until(provider, made, pod.id, "running")
            cluster.kubectl("delete", "configmap", "skyward-unit-1")
            await until(provider, made, pod.id, "exited")
            again = replace(made, tags={**made.tags, "skyward-request": "request-2"})
            _, (pod,) = await provider.provision(again, 1)
            await until(provider, again, pod.id, "running")
        finally:
            await provider.teardown(made)

    asyncio.run(launch())


def test_pods_have_the_resources_and_labels_of_the_spec(cluster: Cluster, tmp_path: Path) -> None:
    async def launch() -> dict[str, Any]:
        provider = pods(cluster, time=3600, tolerations=[{"key": "a", "operator": "Exists"}]).create_provider()
        made = await prepared(provider, tmp_path, vcpus=0.25, memory_gb=0.5, disk_gb=1, architecture="x86_64")
        try:
            _, (pod,) = await provider.provision(made, 1)
            return dict(cluster.get("pod", pod.id))
        finally:
            await provider.teardown(made)

    pod = asyncio.run(launch())
    assert pod["metadata"]["labels"] == {
        "skyward-pool": "unit-1",
        "skyward-owner": "conformance",
        "skyward-request": "request-1",
    }
    (container,) = pod["spec"]["containers"]
    amounts = {"cpu": "250m", "memory": "512Mi", "ephemeral-storage": "1Gi"}
    assert container["resources"] == {"requests": amounts, "limits": amounts}
    assert pod["spec"]["activeDeadlineSeconds"] == 3600
    assert pod["spec"]["nodeSelector"] == {"kubernetes.io/arch": "amd64"}
    assert pod["spec"]["automountServiceAccountToken"] is False
    (shm,) = [each for each in pod["spec"]["volumes"] if each["name"] == "shm"]
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "256Mi"}
