"""Prices of machine types: the sum of the SKUs of their cores, memory, GPUs and local disks.

Google publishes no price of a machine type, only SKUs with a text for people. A text that is not recognized prices
nothing, so that a sum is exact or unknown. Source of the texts: cloud.google.com/skus.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from skyward.providers import Market

__all__ = ["PriceList"]

type _Part = Literal["core", "ram", "gpu", "ssd"]

_CORE_OR_RAM = re.compile(
    r"(?P<family>[A-Z]\d[A-Z]?) (?:Predefined |AMD |Arm )?Instance (?P<part>Core|Ram) running in .+"
    r"|Compute optimized (?P<c2>Core|Ram) running in .+"
)
_GPU = re.compile(r"(?P<model>Nvidia .+?) GPU(?: attached to (?:Spot )?Preemptible VMs)? running in .+")
_SSD = re.compile(r"SSD backed Local Storage(?: attached to (?:Spot )?Preemptible VMs)?(?: (?:running )?in .+)?")
_SPOT = re.compile(r"(?:Spot )?Preemptible ")

_MARKETS: Final[Mapping[str, Market]] = {"OnDemand": "on-demand", "Preemptible": "spot"}
_UNITS: Final[Mapping[_Part, str]] = {"core": "h", "ram": "GiBy.h", "gpu": "h", "ssd": "GiBy.mo"}

_HOURS_OF_MONTH = 730.0
_PARTITION_GIB = 375.0
"""Size of a local disk, in GiB; the Z series has larger ones."""

_SHARED: Final = {"e2-micro": 0.25, "e2-small": 0.5, "e2-medium": 1.0}
"""Cores that are billed of machine types with a share of two."""


class PriceList:
    """Prices by region."""

    def __init__(self, skus: Iterable[Mapping[str, Any]]) -> None:
        self._prices: dict[tuple[str, Market, _Part, str], float | None] = {}
        for sku in skus:
            market = _MARKETS.get(sku.get("category", {}).get("usageType", ""))
            known = _known(str(sku.get("description", "")))
            if market is None or known is None:
                continue
            price = _hourly(sku, known[0])
            for region in sku.get("serviceRegions") or ():
                key = (region, market, *known)
                # Two SKUs with one text and different prices are not to be told apart.
                self._prices[key] = price if self._prices.get(key, price) == price else None

    def of(
        self, region: str, market: Market, machine: Mapping[str, Any], attached: tuple[str, int] | None = None
    ) -> float | None:
        """Return the price of a machine in USD per hour; None if a part of it is unknown.

        Args:
            machine: the machine type, as the API describes it.
            attached: model and number of the accelerators that are not part of the type.
        """
        name = machine["name"]
        family = name.partition("-")[0]
        if machine.get("isSharedCpu") and name not in _SHARED:
            return None
        parts: list[tuple[float, _Part, str]] = [
            (_SHARED.get(name, machine["guestCpus"]), "core", family),
            (machine["memoryMb"] / 1024, "ram", family),
        ]
        gpus = [
            (each["guestAcceleratorType"], each["guestAcceleratorCount"]) for each in machine.get("accelerators") or ()
        ]
        parts += [(count, "gpu", _model(model)) for model, count in (*gpus, *([attached] if attached else ()))]
        if partitions := (machine.get("bundledLocalSsds") or {}).get("partitionCount"):
            if family.startswith("z"):
                return None
            parts.append((partitions * _PARTITION_GIB, "ssd", ""))
        total = 0.0
        for amount, part, what in parts:
            price = self._prices.get((region, market, part, what))
            if price is None:
                return None
            total += amount * price
        return round(total, 9)


def _known(text: str) -> tuple[_Part, str] | None:
    """Return what a SKU prices: the part, and the family or model it is of; None if that is not recognized."""
    if found := _CORE_OR_RAM.fullmatch(_SPOT.sub("", text, count=1) if text.startswith(("Spot", "Preempt")) else text):
        part: _Part = "core" if "Core" in (found["part"], found["c2"]) else "ram"
        return part, (found["family"] or "c2").lower()
    if found := _GPU.fullmatch(text):
        return "gpu", _model(found["model"])
    return ("ssd", "") if _SSD.fullmatch(text) else None


def _model(name: str) -> str:
    """Return a model of a GPU in one spelling: "Nvidia Tesla T4" and "nvidia-tesla-t4" are "nvidia-t4"."""
    return "-".join(word for word in re.split(r"[\s-]+", name.lower()) if word != "tesla")


def _hourly(sku: Mapping[str, Any], part: _Part) -> float | None:
    """Return the price of a SKU that is in force, in USD per unit and hour; None if it has another unit."""
    infos = sku.get("pricingInfo") or ()
    if not infos:
        return None
    expression = infos[-1].get("pricingExpression") or {}
    tiers = expression.get("tieredRates") or ()
    if expression.get("usageUnit") != _UNITS[part] or not tiers:
        return None
    money = tiers[-1].get("unitPrice") or {}
    if money.get("currencyCode", "USD") != "USD":
        return None
    price = int(money.get("units") or 0) + (money.get("nanos") or 0) / 1e9
    return price / _HOURS_OF_MONTH if part == "ssd" else price
