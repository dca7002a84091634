"""The provider of Kubernetes."""

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any

from skyward.errors import CredentialsError, ProvisioningError, SkywardError
from skyward.providers import Check, Cluster, ExecAccess, Instance, Leftover, Offer, PoolIdentity
from skyward.specs import Spec
from skyward_providers.cloud import SharedListing, launch_each
from skyward_providers.kubernetes.kubectl import Kubectl, KubectlError, NoAnswerError
from skyward_providers.kubernetes.manifests import (
    CONTAINER,
    OWNER,
    POOL,
    label,
    owner_manifest,
    pod_manifest,
)
from skyward_providers.kubernetes.nodes import any_node, node_offers
from skyward_providers.kubernetes.settings import Kubernetes
from skyward_providers.kubernetes.states import PodState, state_of
from skyward_providers.kubernetes.waits import Waits

__all__ = ["KubernetesProvider"]

_MAX_AGE = 0.3
"""Seconds for which a listing of pods is used again."""

_SHELL = "command -v bash >/dev/null && exec bash; exec sh"
"""Interactive shell: bash if the image has it."""

_PERMISSIONS = {
    "may create pods": ("create", "pods", ""),
    "may read pods": ("get", "pods", ""),
    "may list pods": ("list", "pods", ""),
    "may watch pods": ("watch", "pods", ""),
    "may delete pods": ("delete", "pods", ""),
    "may run commands in pods": ("create", "pods", "exec"),
    "may create config maps": ("create", "configmaps", ""),
    "may read config maps": ("get", "configmaps", ""),
    "may list config maps": ("list", "configmaps", ""),
    "may watch config maps": ("watch", "configmaps", ""),
    "may delete config maps": ("delete", "configmaps", ""),
}
"""Permissions, each as verb, resource and subresource."""


class KubernetesProvider:
    """Creates and deletes pods."""

    def __init__(self, settings: Kubernetes) -> None:
        self._settings = settings
        self._listings: dict[tuple[Kubectl, str], SharedListing[Mapping[str, Any]]] = {}
        self._waits = Waits(settings.schedule_timeout)

    async def offers(self) -> AsyncIterator[Offer]:
        """Yield the kinds of the cluster's nodes; if the user may not list them, one offer for any node."""
        kubectl = await Kubectl.find(self._settings)
        try:
            nodes = (await kubectl.get("nodes"))["items"]
        except CredentialsError:
            await kubectl.get("pods", f"--selector={POOL}=none")  # the login is accepted, and pods may be listed
            yield any_node(self._settings)
            return
        for offer in node_offers(self._settings, nodes):
            yield offer

    async def prepare(self, spec: Spec, offer: Offer, pool: PoolIdentity) -> Cluster:
        """Create the ConfigMap that owns the pods of the pool."""
        kubectl = await Kubectl.find(self._settings)
        image = self._settings.image.replace("{python}", spec.image.resolved_python)
        specific = {**kubectl.specific, "image": image, "owner": pool.owner}
        cluster = Cluster(pool.id, pool.id, spec, offer, specific, _notes(self._settings, spec, offer))
        await self._owner(kubectl, cluster)
        return cluster

    async def _owner(self, kubectl: Kubectl, cluster: Cluster) -> Mapping[str, Any]:
        """Return the ConfigMap of a pool; create it if there is none, or if somebody has deleted it."""
        manifest = owner_manifest(self._settings, cluster)
        name: str = manifest["metadata"]["name"]
        found: Mapping[str, Any] | None = await kubectl.get("configmap", name, "--ignore-not-found")
        if found is None:
            try:
                found = await kubectl.create(manifest)
            except KubectlError as error:
                if error.reason != "AlreadyExists":
                    raise
                found = await kubectl.get("configmap", name)
        return _ours(found, manifest, kubectl.namespace)

    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        """Create pods. A repeated request finds its pods by their names, and creates those that are missing."""
        kubectl = self._kubectl(cluster)
        owner = await self._owner(kubectl, cluster)

        async def create(number: int) -> Instance:
            return _instance(self._settings, kubectl, await self._create(kubectl, cluster, number, owner))

        async def undo(pods: Sequence[str]) -> None:
            await self.terminate(cluster, pods)

        try:
            return cluster, await launch_each(count, create, undo)
        finally:
            self._listing(kubectl, cluster.pool).forget()

    async def _create(
        self, kubectl: Kubectl, cluster: Cluster, number: int, owner: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Create a pod, or return the one that an earlier attempt of the same request has created.

        Raises:
            ConnectionError: the answer was lost, so the pod may have been created.
        """
        manifest = pod_manifest(self._settings, cluster, number, owner)
        try:
            # The server drops unknown fields silently. Ours are known, the user's may be wrong.
            created: Mapping[str, Any] = await kubectl.create(manifest, validate=bool(self._settings.pod_template))
            return created
        except KubectlError as error:
            if error.reason != "AlreadyExists":
                raise
        except NoAnswerError as error:
            raise ConnectionError(str(error)) from error
        return _ours(await kubectl.get("pod", manifest["metadata"]["name"]), manifest, kubectl.namespace)

    async def get_instance(self, cluster: Cluster, instance_id: str) -> tuple[Cluster, Instance | None]:
        """Return the current state of a pod."""
        kubectl = self._kubectl(cluster)
        pod = (await self._listing(kubectl, cluster.pool).get()).get(instance_id)
        if pod is None:
            return cluster, None
        state = await self._waits.judge(kubectl, pod)
        return cluster, _instance(self._settings, kubectl, pod, state)

    async def find(self, cluster: Cluster) -> Sequence[Instance]:
        """Return the pods with the pool's label, including those that have ended."""
        kubectl = self._kubectl(cluster)
        pods = await _pods(kubectl, cluster.pool)
        return [_instance(self._settings, kubectl, pod) for pod in pods.values()]

    async def terminate(self, cluster: Cluster, instance_ids: Sequence[str]) -> None:
        """Delete pods, and wait until they are gone, with their processes."""
        if instance_ids:
            kubectl = self._kubectl(cluster)
            await kubectl.delete("pods", *instance_ids)
            self._listing(kubectl, cluster.pool).forget()

    async def teardown(self, cluster: Cluster) -> None:
        """Delete the ConfigMap of the pool, and with it what is left of its pods."""
        await self._kubectl(cluster).delete("configmaps,pods", f"--selector={POOL}={label(cluster.pool)}")

    async def leftovers(self, owner: str) -> Sequence[Leftover]:
        """Return the pods and the ConfigMaps of this owner in the namespace of the settings."""
        kubectl = await Kubectl.find(self._settings)
        found = (await kubectl.get("pods,configmaps", f"--selector={OWNER}={label(owner)}"))["items"]
        return [
            Leftover(
                "machine" if each["kind"] == "Pod" else "config map",
                each["metadata"]["name"],
                each["metadata"]["labels"].get(POOL, ""),
                kubectl.namespace,
                self._settings.hourly_price if each["kind"] == "Pod" else 0.0,
                {**kubectl.specific, "owner": owner},
            )
            for each in found
        ]

    async def remove(self, leftover: Leftover) -> None:
        """Delete a pod or a ConfigMap, if it still has the label of its owner."""
        kubectl = Kubectl.of(self._settings, leftover.specific)
        selectors = (
            f"--selector={OWNER}={label(leftover.specific['owner'])}",
            f"--field-selector=metadata.name={leftover.id}",
        )
        await kubectl.delete("pods" if leftover.kind == "machine" else "configmaps", *selectors)

    async def check(self) -> Sequence[Check]:
        """Ask the cluster for each permission."""
        try:
            kubectl = await Kubectl.find(self._settings)
            answers = await kubectl.may(tuple(_PERMISSIONS.values()))
        except SkywardError as error:
            return [Check("may log in", str(error))]
        role = f"apply the role of `sky.Kubernetes(namespace={kubectl.namespace!r}).policy`, and bind it to your user"
        return [
            Check(what, "" if allowed else f"no permission in namespace {kubectl.namespace!r}: {role}")
            for what, allowed in zip(_PERMISSIONS, answers, strict=True)
        ]

    def _kubectl(self, cluster: Cluster) -> Kubectl:
        return Kubectl.of(self._settings, cluster.specific)

    def _listing(self, kubectl: Kubectl, pool: str) -> SharedListing[Mapping[str, Any]]:
        if (kubectl, pool) not in self._listings:
            self._listings[kubectl, pool] = SharedListing(partial(_pods, kubectl, pool), _MAX_AGE)
        return self._listings[kubectl, pool]


async def _pods(kubectl: Kubectl, pool: str) -> Mapping[str, Any]:
    """Return the pods of a pool, by name."""
    found = (await kubectl.get("pods", f"--selector={POOL}={label(pool)}"))["items"]
    return {pod["metadata"]["name"]: pod for pod in found}


def _instance(
    settings: Kubernetes, kubectl: Kubectl, pod: Mapping[str, Any], state: PodState | None = None
) -> Instance:
    name, state = pod["metadata"]["name"], state or state_of(pod)
    entered = (name, "--container", CONTAINER)
    access = ExecAccess(
        (*kubectl.words, "exec", "--stdin", *entered, "--"),
        f"pod {name}",
        grace=settings.grace,
        python=settings.python,
        terminal=(*kubectl.words, "exec", "-it", *entered, "--", "sh", "-c", _SHELL),
    )
    return Instance(
        name,
        state.status,
        access if state.status == "running" else None,
        address=pod.get("status", {}).get("podIP", ""),
        interface="eth0",
        hourly_price=settings.hourly_price,
        detail=state.detail,
    )


def _ours(found: Mapping[str, Any], manifest: Mapping[str, Any], namespace: str) -> Mapping[str, Any]:
    """Return an object of that name if it has the labels of the manifest.

    Raises:
        ProvisioningError: it has not, so it belongs to somebody else.
    """
    labels, wanted = found["metadata"].get("labels", {}), manifest["metadata"]["labels"]
    if any(labels.get(name) != value for name, value in wanted.items()):
        raise ProvisioningError(
            f"{manifest['kind']} {manifest['metadata']['name']!r} in namespace {namespace!r} is not of this pool; give "
            "another prefix with `sky.Kubernetes(pod_prefix=...)`."
        )
    return found


def _notes(settings: Kubernetes, spec: Spec, offer: Offer) -> tuple[str, ...]:
    if spec.accelerator is None or "selector" in offer.specific:
        return ()
    return (
        f"The cluster does not say which models its GPUs are: pods get any {settings.gpu_resource!r}, unless "
        "`sky.Kubernetes(node_selector=...)` selects nodes.",
    )
