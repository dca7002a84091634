"""Flavors of machines at Hyperstack as offers, and the choice of an image."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from skyward.errors import SpecError
from skyward.providers import InstanceType, Offer

__all__ = ["choose_image", "offer_of"]

_ADDRESS = "PublicIP"
_CPU, _RAM = "vCPU (cpu-only-flavors)", "RAM (cpu-only-flavors)"
"""Names in the pricebook: of an address, of one CPU, and of one GB, each for an hour. A GPU has its own."""

_UNUSABLE = re.compile(r"spot|k8s|kubernetes", re.I)
"""Flavors that are not rented on demand to users: interruptible ones, whose end is not described, and nodes of
Kubernetes."""

_MEMORY = re.compile(r"-(\d+)G(?:-|$)")
_IMAGE = re.compile(r"Ubuntu Server (?P<system>[\d.]+) LTS(?: R(?P<driver>\d+) CUDA (?P<cuda>[\d.]+))?(?P<more>.*)")


def offer_of(flavor: Mapping[str, Any], prices: Mapping[str, float]) -> Offer | None:
    """Return a flavor as an offer; None if it is out of stock, or not for us."""
    name, region = flavor["name"], flavor["region_name"]
    labels = [each.get("label") or "" for each in flavor.get("labels") or ()]
    if not flavor.get("stock_available") or any(_UNUSABLE.search(each) for each in (name, *labels)):
        return None
    gpu, gpus = flavor.get("gpu") or None, flavor.get("gpu_count") or 0
    memory = _MEMORY.search(gpu or "")
    kind = InstanceType(
        name,
        flavor["cpu"],
        flavor["ram"],
        _accelerator(gpu) if gpu else None,
        gpus,
        accelerator_memory_gb=float(memory[1]) if memory else None,
    )
    return Offer(f"{name}/{region}", kind, on_demand_price=_price(flavor, prices), region=region)


def _price(flavor: Mapping[str, Any], prices: Mapping[str, float]) -> float | None:
    """Return the price of a machine with a public address in USD per hour; None if a part of it is unknown."""
    gpu = flavor.get("gpu")
    parts = {gpu: flavor.get("gpu_count") or 0} if gpu else {_CPU: flavor["cpu"], _RAM: flavor["ram"]}
    if not prices.keys() >= parts.keys():
        return None
    return sum(prices[part] * count for part, count in parts.items()) + prices.get(_ADDRESS, 0.0)


def _accelerator(gpu: str) -> str:
    """Return the name of a GPU as others spell it: "H100-80G-PCIe-NVLink" is an "H100 80GB PCIe"."""
    name = _MEMORY.sub(r" \1GB ", gpu).removesuffix("-NVLink").strip()
    return re.sub(r"RTX-PRO(\d+)(?:-SE)?", r"RTX PRO \1", name)


def choose_image(names: Iterable[str], flavor: Mapping[str, Any], region: str, wanted: str | None) -> str:
    """Return the image for a flavor: `wanted`, or the newest Ubuntu, with CUDA if the flavor has GPUs.

    Raises:
        SpecError: there is no such image.
    """
    restrictions = flavor.get("image_restrictions") or {}
    allowed = {each.get("image_name") for each in restrictions.get("compatible_images") or ()}
    if not (restrictions.get("has_image_restrictions") and restrictions.get("restriction_type") == "hard"):
        allowed = set()
    offered = [name for name in names if not allowed or name in allowed]
    if wanted is not None:
        if wanted not in offered:
            raise SpecError(
                f"Hyperstack has no image {wanted!r} for {flavor['name']} in {region}; "
                f"it has {', '.join(sorted(offered))}."
            )
        return wanted
    ranked = sorted((_rank(name, bool(flavor.get("gpu"))), name) for name in offered)
    if not ranked or not ranked[-1][0]:
        raise SpecError(
            f"Hyperstack has no image of Ubuntu for {flavor['name']} in {region}; "
            f"name one in `sky.Hyperstack(image=...)`: {', '.join(sorted(offered)) or 'there is none'}."
        )
    return ranked[-1][1]


def _rank(name: str, with_gpu: bool) -> tuple[float, ...]:
    """Return the rank of an image, to compare; empty if it cannot be used."""
    found = _IMAGE.fullmatch(name)
    if found is None or (found["cuda"] is not None) != with_gpu:
        return ()
    return (float(not found["more"]), *map(float, (found["system"], found["driver"] or 0)))
