"""The settings of Kubernetes."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skyward.errors import SpecError
from skyward.providers import SETUP_FIELDS, ActsOn, CredentialSource, Provider
from skyward.values import limits
from skyward.values.validation import FrozenMap, listed, number, of_type, seconds, shown, strings

__all__ = ["SERVICE_ACCOUNT", "Kubernetes", "thawed"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Folder in a pod with the token and the namespace of its service account, which kubectl finds by itself."""

_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?")

_POLICY = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: skyward
  namespace: {namespace}
rules:
- apiGroups: [""]
  resources: [pods]
  verbs: [create, get, list, watch, delete]
- apiGroups: [""]
  resources: [pods/exec]
  verbs: [create, get]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create, get, list, watch, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [list]
"""


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """Pods of a Kubernetes cluster.

    Everything goes through the command `kubectl`, with its own configuration and login. `vcpus`, `memory_gb`, `disk_gb`
    and `accelerator` of the spec are requests and limits of each pod.

    Attributes:
        namespace: the namespace of the pods; None for that of the context.
        image: image of the pods; "{python}" is replaced by the version of Python. It needs `sh`, `grep` and `sleep`.
        context: context of the kubeconfig; None for the current one.
        kubeconfig: path of the kubeconfig; None for that of `KUBECONFIG`, or `~/.kube/config`.
        binary: path or name of `kubectl`.
        node_selector: labels of the cluster's nodes that pods may run on.
        tolerations: tolerations of the pods, as in their manifests.
        gpu_resource: the resource that is a GPU.
        service_account: service account of the pods. Its token is not mounted.
        image_pull_secrets: names of secrets with the logins of registries.
        time: seconds after which the cluster ends a pod, in any case; None for no limit.
        schedule_timeout: seconds that a pod may wait for a place in the cluster, before it counts as no capacity; None
            to wait as long as the pool does, for example for new nodes.
        pod_template: further fields of the pods' `spec`. Mappings are merged, lists are appended; the first of its
            containers is merged into the pod's.
        pod_prefix: prefix of the pods' names.
        hourly_price: price to assume for each pod, in USD per hour.
        grace: seconds that a pod may be unreachable before it is replaced and its tasks are retried.
        python: an interpreter in the image with the packages that a node needs; None to set one up.

    Example:
        with sky.Compute(provider=sky.Kubernetes(namespace="research"), accelerator="A100", nodes=4) as pool:
            train(0.1) >> pool

    Raises:
        SpecError: a value is not allowed.
    """

    namespace: str | None = None
    image: str = "python:{python}-slim"
    context: str | None = None
    kubeconfig: str | None = None
    binary: str = "kubectl"
    node_selector: Mapping[str, str] = field(default_factory=FrozenMap)
    tolerations: Sequence[Mapping[str, Any]] = ()
    gpu_resource: str = "nvidia.com/gpu"
    service_account: str | None = None
    image_pull_secrets: Sequence[str] = ()
    time: float | None = None
    schedule_timeout: float | None = None
    pod_template: Mapping[str, Any] = field(default_factory=FrozenMap)
    pod_prefix: str = "skyward"
    hourly_price: float = 0.0
    grace: float = 30.0
    python: str | None = None

    def __post_init__(self) -> None:
        for name in ("namespace", "context", "kubeconfig", "service_account", "python"):
            if (value := getattr(self, name)) is not None:
                _word(name, value)
        for name in ("image", "binary", "gpu_resource"):
            _word(name, getattr(self, name))
        if not isinstance(self.pod_prefix, str) or not _PREFIX.fullmatch(self.pod_prefix):
            raise SpecError(
                "pod_prefix must be up to 20 lowercase letters, digits and '-', the first and the last a letter or "
                f"digit, but got {shown(self.pod_prefix)}."
            )
        object.__setattr__(self, "node_selector", _labels(self.node_selector))
        taints = listed(self.tolerations, "tolerations", "{'key': 'gpu', 'operator': 'Exists'}", Mapping)
        for each in taints:
            of_type(each, "tolerations", Mapping, "tolerations=[{'key': 'gpu', 'operator': 'Exists'}]")
        object.__setattr__(self, "tolerations", tuple(_frozen("tolerations", each) for each in taints))
        of_type(self.pod_template, "pod_template", Mapping, "pod_template={'priorityClassName': 'batch'}")
        object.__setattr__(self, "pod_template", _frozen("pod_template", self.pod_template))
        pulls = strings(self.image_pull_secrets, "image_pull_secrets", "['registry']")
        object.__setattr__(self, "image_pull_secrets", pulls)
        seconds(self.time, "time", optional=True, least=60)
        seconds(self.schedule_timeout, "schedule_timeout", optional=True)
        number(self.hourly_price, "hourly_price", zero=True, most=limits.USD)
        seconds(self.grace, "grace")

    @property
    def name(self) -> str:
        """Name of the provider, as `--provider` takes it."""
        return "kubernetes"

    @property
    def offers_ttl(self) -> float:
        """Seconds for which its offers hold: they are listed whenever they are needed."""
        return 0.0

    @property
    def boot_timeout(self) -> float:
        """Seconds that a pod may take to run: the cluster may have to add a node, and to pull a large image."""
        return 900.0

    @property
    def acts_on(self) -> ActsOn:
        """The fields of a spec that have an effect. With `python`, there is nothing to set up."""
        fields = {"vcpus", "memory_gb", "disk_gb", "accelerator", "architecture", "ttl"}
        if self.python is None:
            fields |= SETUP_FIELDS
        elif "{python}" in self.image:
            fields.add("image.python")
        return ActsOn(frozenset(fields), "Pods run on the nodes of their cluster")

    @property
    def only_by_name(self) -> bool:
        """True: a cell without a provider rents machines, and does not take a place on somebody's cluster."""
        return True

    def credentials(self) -> CredentialSource:
        """Look for a kubeconfig, or the service account of the pod that this process runs in."""
        how = "log in to the cluster so that `kubectl get pods` works, or give `sky.Kubernetes(kubeconfig=...)`"
        if self.kubeconfig is not None:
            file = Path(self.kubeconfig).expanduser()
            return CredentialSource(str(file) if file.exists() else "", how)
        if value := os.environ.get("KUBECONFIG"):
            exist = any(Path(each).exists() for each in value.split(os.pathsep) if each)
            return CredentialSource("environment variable KUBECONFIG" * exist, how)
        if (file := Path("~/.kube/config").expanduser()).exists():
            return CredentialSource(str(file), how)
        return CredentialSource(str(SERVICE_ACCOUNT) if (SERVICE_ACCOUNT / "token").exists() else "", how)

    @property
    def policy(self) -> str:
        """The least permissions, as a role to apply, and to bind to the user."""
        return _POLICY.format(namespace=self.namespace or "default")

    def create_provider(self) -> Provider:
        """Create the provider."""
        from skyward_providers.kubernetes.provider import KubernetesProvider  # circular: loaded when a pool opens

        return KubernetesProvider(self)


def thawed(value: Any) -> Any:
    """Return a frozen value of the settings as JSON has it: dicts and lists."""
    if isinstance(value, Mapping):
        return {key: thawed(item) for key, item in value.items()}
    return [thawed(item) for item in value] if isinstance(value, tuple) else value


def _frozen(name: str, value: Any) -> Any:
    """Return a value of a manifest as immutable mappings and tuples.

    Raises:
        SpecError: it cannot be written as JSON.
    """
    try:
        return _freeze(json.loads(json.dumps(thawed(value))))
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"{name} must have only dicts, lists, texts and numbers, as a manifest has ({error})."
        ) from None


def _freeze(value: Any) -> Any:
    if isinstance(value, dict):
        return FrozenMap({key: _freeze(item) for key, item in value.items()})
    return tuple(_freeze(item) for item in value) if isinstance(value, list) else value


def _labels(value: object) -> FrozenMap[str, str]:
    of_type(value, "node_selector", Mapping, "node_selector={'pool': 'gpu'}")
    assert isinstance(value, Mapping)
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, str):
            raise SpecError(f"node_selector must set labels to texts, but it has {shown({key: item})}.")
    return FrozenMap(value)


def _word(name: str, value: object) -> None:
    of_type(value, name, str, f"{name}='...'")
    if not value or str(value).startswith("-"):
        raise SpecError(f"{name} must not be empty, nor begin with '-', but got {shown(value)}.")
