"""The objects that a pool has in its cluster: a ConfigMap, which owns all of its pods, and the pods."""

import hashlib
import math
import re
from collections.abc import Mapping
from typing import Any

from skyward.providers import Cluster, Offer
from skyward.specs import Spec
from skyward_providers.cloud import first_process
from skyward_providers.kubernetes.settings import Kubernetes, thawed

__all__ = ["CONTAINER", "OWNER", "POOL", "label", "owner_manifest", "owner_name", "pod_manifest", "pod_name"]

POOL, OWNER, _REQUEST = "skyward-pool", "skyward-owner", "skyward-request"

CONTAINER = "node"
"""Name of a pod's container."""

_STARTING = 600
_IDLE = 30
"""Seconds that a pod waits for its client, and for which it stays without a session and a worker."""

_STOP_WITHIN = 2
"""Seconds between the request to stop a pod and the end of its processes."""

_FIRST_PROCESS = first_process(_STARTING, _IDLE)

_ANNOTATIONS = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
    "sidecar.istio.io/inject": "false",
    "linkerd.io/inject": "disabled",
}
"""Requests to programs of the cluster: not to move the pod, and not to add containers, which would outlive ours."""

_ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


def label(value: str) -> str:
    """Return a tag as the value of a label: itself if it is a valid one."""
    if _LABEL.fullmatch(value):
        return value
    kept = re.sub(r"[^A-Za-z0-9_.-]+", "-", value)[:40].strip("-_.")
    return f"{kept}-{_digest(value)}".lstrip("-")


def owner_name(settings: Kubernetes, pool: str) -> str:
    """Return the name of a pool's ConfigMap, which is the beginning of its pods' names too."""
    kept = re.sub(r"[^a-z0-9]+", "-", pool.lower())[-24:].strip("-")  # its end is unique
    return "-".join(filter(None, (settings.pod_prefix, kept)))


def pod_name(settings: Kubernetes, cluster: Cluster, number: int) -> str:
    """Return the name of a request's pod of that number: the same if the request is repeated."""
    return f"{owner_name(settings, cluster.pool)}-{_digest(cluster.tags.get(_REQUEST, ''))}-{number}"


def owner_manifest(settings: Kubernetes, cluster: Cluster) -> dict[str, Any]:
    """Return the ConfigMap of a pool. The cluster deletes the pool's pods when it is deleted."""
    labels = {POOL: label(cluster.pool), OWNER: label(cluster.specific["owner"])}
    metadata = {"name": owner_name(settings, cluster.pool), "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def pod_manifest(settings: Kubernetes, cluster: Cluster, number: int, owner: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod, which `owner` owns: the pool's ConfigMap, as the cluster has it."""
    tags = {POOL: cluster.pool, OWNER: cluster.specific["owner"], **cluster.tags}
    metadata = {
        "name": pod_name(settings, cluster, number),
        "labels": {name: label(value) for name, value in tags.items()},
        "annotations": _ANNOTATIONS,
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
            }
        ],
    }
    spec = _merged(_pod_spec(settings, cluster), thawed(settings.pod_template))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _pod_spec(settings: Kubernetes, cluster: Cluster) -> dict[str, Any]:
    spec, offer = cluster.spec, cluster.offer
    amounts = _amounts(settings, spec)
    container = {
        "name": CONTAINER,
        "image": cluster.specific["image"],
        "command": ["sh", "-c", _FIRST_PROCESS],
        "resources": {"requests": amounts, "limits": amounts},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    # Docker's 64 MB are too few for loaders of data. The memory in use counts as that of the container.
    shm: dict[str, Any] = {"medium": "Memory"}
    if spec.memory_gb is not None:
        shm["sizeLimit"] = f"{math.ceil(spec.memory_gb * 512)}Mi"
    made: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _STOP_WITHIN,
        "containers": [container],
        "volumes": [{"name": "shm", "emptyDir": shm}],
    }
    if selector := _selector(settings, spec, offer):
        made["nodeSelector"] = selector
    tolerations = thawed(settings.tolerations)
    if spec.accelerator is not None:  # as some clusters taint their nodes with GPUs
        tolerations.append({"key": settings.gpu_resource, "operator": "Exists", "effect": "NoSchedule"})
    if tolerations:
        made["tolerations"] = tolerations
    if settings.service_account is not None:
        made["serviceAccountName"] = settings.service_account
    if settings.image_pull_secrets:
        made["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    if settings.time is not None:
        made["activeDeadlineSeconds"] = math.ceil(settings.time)
    return made


def _amounts(settings: Kubernetes, spec: Spec) -> dict[str, str]:
    """Return the resources of a pod."""
    amounts: dict[str, str] = {}
    if spec.vcpus is not None:
        amounts["cpu"] = f"{math.ceil(spec.vcpus * 1000)}m"
    if spec.memory_gb is not None:
        amounts["memory"] = f"{math.ceil(spec.memory_gb * 1024)}Mi"
    if spec.disk_gb is not None:
        amounts["ephemeral-storage"] = f"{math.ceil(spec.disk_gb * 1024)}Mi"
    if spec.accelerator is not None:
        amounts[settings.gpu_resource] = f"{math.ceil(spec.accelerator.count)}"  # whole devices only
    return amounts


def _selector(settings: Kubernetes, spec: Spec, offer: Offer) -> dict[str, str]:
    selector: dict[str, str] = dict(settings.node_selector)
    if spec.architecture is not None:
        selector["kubernetes.io/arch"] = _ARCHITECTURES[spec.architecture]
    if spec.accelerator is not None:
        selector |= offer.specific.get("selector", {})
    return selector


def _merged(made: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return `made` with the fields of `given`."""
    result = dict(made)
    for name, value in given.items():
        ours = made.get(name)
        if name == "containers" and ours and value:
            result[name] = [_merged(ours[0], value[0]), *value[1:]]
        elif isinstance(ours, dict) and isinstance(value, dict):
            result[name] = _merged(ours, value)
        elif isinstance(ours, list) and isinstance(value, list):
            result[name] = [*ours, *value]
        else:
            result[name] = value
    return result


def _digest(value: str) -> str:
    return hashlib.blake2b(value.encode(), digest_size=5).hexdigest()
