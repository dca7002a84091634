"""Offers of Google Cloud: the machine types of a region, with the GPUs that are part of them or attached to them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from skyward.providers import InstanceType, Offer
from skyward_providers.gcp.prices import PriceList

__all__ = ["region_offers"]

_GONE: Final = ("OBSOLETE", "DELETED")
_TPUS: Final = ("ct", "tpu")

_ATTACHED: Final[Mapping[str, Mapping[int, tuple[int, float]]]] = {
    "nvidia-tesla-t4": {1: (48, 312), 2: (48, 312), 4: (96, 624)},
    "nvidia-tesla-p4": {1: (24, 156), 2: (48, 312), 4: (96, 624)},
    "nvidia-tesla-v100": {1: (12, 78), 2: (24, 156), 4: (48, 312), 8: (96, 624)},
    "nvidia-tesla-p100": {1: (16, 104), 2: (32, 208), 4: (64, 208)},
}
"""GPUs that N1 machines can have: for each number of them, the most vCPUs and GiB of memory beside them.

Source: cloud.google.com/compute/docs/gpus, "N1 machine series".
"""

_MEMORY: Final = {
    "nvidia-tesla-t4": 16.0,
    "nvidia-tesla-p4": 8.0,
    "nvidia-tesla-v100": 16.0,
    "nvidia-tesla-p100": 16.0,
    "nvidia-tesla-a100": 40.0,
    "nvidia-a100-80gb": 80.0,
    "nvidia-l4": 24.0,
}
"""Memory of accelerators in GB where it is not the only one of their model."""


def region_offers(
    region: str,
    machines: Mapping[str, Sequence[Mapping[str, Any]]],
    accelerators: Mapping[str, Sequence[Mapping[str, Any]]],
    prices: PriceList,
) -> Iterator[Offer]:
    """Yield the offers of a region.

    Args:
        machines: the machine types of each of its zones.
        accelerators: the accelerators that each of its zones can attach.
        prices: the price list.
    """
    kinds: dict[str, Mapping[str, Any]] = {}
    zones: dict[str, list[str]] = {}
    for zone, listed in sorted(machines.items()):
        for kind in listed:
            name = kind["name"]
            if (kind.get("deprecated") or {}).get("state") not in _GONE and not name.startswith(_TPUS):
                kinds.setdefault(name, kind)
                zones.setdefault(name, []).append(zone)
    for name, kind in kinds.items():
        yield _offer(region, kind, zones[name], prices)
        if name.startswith("n1-") and not kind.get("isSharedCpu"):
            for model, most in _ATTACHED.items():
                having = {
                    each["zone"].rpartition("/")[2]: each.get("maximumCardsPerInstance", 0)
                    for listed in accelerators.values()
                    for each in listed
                    if each["name"] == model
                }
                for count, (vcpus, memory) in most.items():
                    where = [zone for zone in zones[name] if having.get(zone, 0) >= count]
                    if where and kind["guestCpus"] <= vcpus and kind["memoryMb"] / 1024 <= memory:
                        yield _offer(region, kind, where, prices, (model, count))


def _offer(
    region: str,
    kind: Mapping[str, Any],
    zones: Sequence[str],
    prices: PriceList,
    attached: tuple[str, int] | None = None,
) -> Offer:
    name = kind["name"]
    parts = kind.get("accelerators") or ()
    model, count = attached or (
        (parts[0]["guestAcceleratorType"], parts[0]["guestAcceleratorCount"]) if parts else (None, 0)
    )
    architecture: Literal["x86_64", "arm64"] = "arm64" if kind.get("architecture") == "ARM64" else "x86_64"
    specific: dict[str, Any] = {"machine_type": name, "zones": list(zones), "gpus": count, "model": model or ""}
    if attached:
        specific["attached"] = True
    return Offer(
        f"{region}/{name}{f'+{count}x{model}' if attached else ''}",
        InstanceType(
            f"{name} +{count} {model}" if attached else name,
            kind["guestCpus"],
            kind["memoryMb"] / 1024,
            model.replace("-mega", "") if model else None,
            count,
            architecture,
            _MEMORY.get(model or ""),
        ),
        spot_price=prices.of(region, "spot", kind, attached),
        on_demand_price=prices.of(region, "on-demand", kind, attached),
        region=region,
        specific=specific,
    )
