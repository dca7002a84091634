"""Offers of a cluster: the kinds of its nodes, where the user may list them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from skyward.providers import InstanceType, Offer
from skyward_providers.kubernetes.settings import Kubernetes

__all__ = ["any_node", "node_offers"]

_SUFFIXES = {"m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15} | {
    f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTP", 1)
}
_QUANTITY = re.compile(r"([0-9.]+(?:[eE][0-9]+)?)([A-Za-z]*)")

_PRODUCTS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "k8s.amazonaws.com/accelerator",
)
"""Labels with the model of a node's GPUs, of NVIDIA's and AMD's operators, and of clouds."""

_SHARED = re.compile(r"-SHARED$")
"""End of the model of a GPU that several pods share."""


def any_node(settings: Kubernetes) -> Offer:
    """Return the offer of a cluster whose nodes are unknown, or do not exist yet."""
    kind = InstanceType("any node", 0, 0, "")
    return Offer("any", kind, on_demand_price=settings.hourly_price, open_ended=True)


def node_offers(settings: Kubernetes, nodes: Sequence[Mapping[str, Any]]) -> Iterator[Offer]:
    """Yield an offer for each kind of node that pods may run on.

    If the settings select nodes, and there are none, yield one for any node: the cluster may add such nodes.
    """
    usable = [node for node in nodes if _selected(settings, node)]
    kinds = {each.id: each for each in (_offer(settings, node) for node in usable if _usable(settings, node))}
    yield from kinds.values()
    if settings.node_selector and not usable:
        yield any_node(settings)


def _selected(settings: Kubernetes, node: Mapping[str, Any]) -> bool:
    labels = node["metadata"].get("labels", {})
    return all(labels.get(name) == value for name, value in settings.node_selector.items())


def _usable(settings: Kubernetes, node: Mapping[str, Any]) -> bool:
    """Return whether pods may be placed on a node: it is ready, and has no taint that they do not tolerate."""
    spec = node.get("spec", {})
    ready = any(
        each["type"] == "Ready" and each["status"] == "True" for each in node.get("status", {}).get("conditions", ())
    )
    taints = [each for each in spec.get("taints", ()) if each.get("effect") != "PreferNoSchedule"]
    return ready and not spec.get("unschedulable") and all(_tolerated(settings, each) for each in taints)


def _tolerated(settings: Kubernetes, taint: Mapping[str, Any]) -> bool:
    if taint["key"] == settings.gpu_resource:
        return True
    for each in settings.tolerations:
        key, exists = each.get("key"), each.get("operator", "Equal") == "Exists"
        same = key == taint["key"] or (key is None and exists)
        value = exists or each.get("value", "") == taint.get("value", "")
        if same and value and each.get("effect") in (None, "", taint["effect"]):
            return True
    return False


def _offer(settings: Kubernetes, node: Mapping[str, Any]) -> Offer:
    labels, amounts = node["metadata"].get("labels", {}), node["status"]["allocatable"]
    cpus = round(_amount(amounts.get("cpu", "0")), 2)
    memory = round(_amount(amounts.get("memory", "0")) / 2**30, 1)
    gpus = int(_amount(amounts.get(settings.gpu_resource, "0")))
    product = next((name for name in _PRODUCTS if labels.get(name)), "")
    architecture: Literal["x86_64", "arm64"] = "arm64" if labels.get("kubernetes.io/arch") == "arm64" else "x86_64"
    model = _SHARED.sub("", labels.get(product, "")) if gpus else None
    name = labels.get("node.kubernetes.io/instance-type") or f"{cpus:g} CPU, {memory:g} GB"
    if gpus and name == f"{cpus:g} CPU, {memory:g} GB":
        name = f"{name}, {gpus} {model or 'GPU'}"
    kind = InstanceType(name, cpus, memory, model, gpus, architecture, _gpu_memory(labels) if gpus else None)
    return Offer(
        f"{name}/{cpus:g}/{memory:g}/{gpus}/{model or ''}/{architecture}",
        kind,
        on_demand_price=settings.hourly_price,
        region=labels.get("topology.kubernetes.io/region", ""),
        specific={"selector": {product: labels[product]}} if gpus and product else {},
    )


def _gpu_memory(labels: Mapping[str, str]) -> float | None:
    """Return the memory of a GPU in GB, which NVIDIA's operator writes in MiB."""
    value = labels.get("nvidia.com/gpu.memory", "")
    return round(int(value) / 1024, 1) if value.isdigit() else None


def _amount(quantity: str) -> float:
    """Return a quantity of Kubernetes, such as "3920m" or "16Gi", as a number."""
    found = _QUANTITY.fullmatch(quantity)
    return float(found[1]) * _SUFFIXES.get(found[2], 1.0) if found else 0.0
