"""A catalogue for the fake of Google Cloud: a few machine types of each kind, with the prices of `us-central1`.

Figures: cloud.google.com/compute/all-pricing, as of 2026; the texts of SKUs are those of the Cloud Billing catalogue.
"""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["ACCELERATORS", "IMAGES", "MACHINES", "REGIONS", "ZONES", "skus"]

ZONES: Mapping[str, str] = {
    "us-central1-a": "us-central1",
    "us-central1-b": "us-central1",
    "us-central1-f": "us-central1",
    "europe-west4-a": "europe-west4",
}
"""Zones, each with its region."""

REGIONS = tuple(dict.fromkeys(ZONES.values()))

_EVERYWHERE = tuple(ZONES)


def _gpus(model: str, count: int, ssds: int = 0) -> dict[str, Any]:
    """Return what a machine type says about its GPUs and local disks."""
    disks = {"bundledLocalSsds": {"defaultInterface": "NVME", "partitionCount": ssds}} if ssds else {}
    return {"accelerators": [{"guestAcceleratorType": model, "guestAcceleratorCount": count}], **disks}


_TYPES: tuple[tuple[str, int, float, tuple[str, ...], dict[str, Any]], ...] = (
    ("e2-small", 2, 2, _EVERYWHERE, {"isSharedCpu": True}),
    ("e2-standard-4", 4, 16, _EVERYWHERE, {}),
    ("n1-standard-1", 1, 3.75, _EVERYWHERE, {}),
    ("n1-standard-4", 4, 15, _EVERYWHERE, {}),
    ("n1-standard-16", 16, 60, _EVERYWHERE, {}),
    ("n1-standard-96", 96, 360, _EVERYWHERE, {}),
    ("n2-standard-4", 4, 16, _EVERYWHERE, {}),
    ("c2-standard-4", 4, 16, _EVERYWHERE, {}),
    ("t2a-standard-2", 2, 8, ("us-central1-a",), {"architecture": "ARM64"}),
    ("g2-standard-4", 4, 16, ("us-central1-a", "us-central1-b"), _gpus("nvidia-l4", 1)),
    ("g2-standard-24", 24, 96, ("us-central1-a",), _gpus("nvidia-l4", 2)),
    ("a2-highgpu-1g", 12, 85, ("us-central1-a", "us-central1-f"), _gpus("nvidia-tesla-a100", 1)),
    ("a2-ultragpu-1g", 12, 170, ("us-central1-a",), _gpus("nvidia-a100-80gb", 1, ssds=1)),
    ("a3-highgpu-8g", 208, 1872, ("us-central1-a",), _gpus("nvidia-h100-80gb", 8, ssds=16)),
    ("a4-highgpu-8g", 224, 3968, ("us-central1-b",), _gpus("nvidia-b200", 8, ssds=32)),
    ("m3-ultramem-32", 32, 976, ("us-central1-a",), {"deprecated": {"state": "OBSOLETE"}}),
)

MACHINES: Mapping[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    name: ({"name": name, "guestCpus": cpus, "memoryMb": int(memory * 1024), "architecture": "X86_64", **more}, zones)
    for name, cpus, memory, zones, more in _TYPES
}
"""Machine types, each with the zones that have it."""

ACCELERATORS: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "nvidia-tesla-t4": (4, ("us-central1-a", "us-central1-b", "us-central1-f")),
    "nvidia-tesla-t4-vws": (4, ("us-central1-a",)),
    "nvidia-tesla-v100": (8, ("us-central1-a",)),
    "nvidia-l4": (8, ("us-central1-a", "us-central1-b")),
    "nvidia-tesla-a100": (16, ("us-central1-a", "us-central1-f")),
    "ct5lp": (8, ("us-central1-a",)),
}
"""Models of accelerators, each with the most of them in one machine, and the zones that have it."""

IMAGES: Mapping[tuple[str, str], str] = {
    ("ubuntu-os-cloud", "ubuntu-2404-lts-amd64"): "X86_64",
    ("ubuntu-os-cloud", "ubuntu-2404-lts-arm64"): "ARM64",
    ("ubuntu-os-accelerator-images", "ubuntu-accelerator-2404-amd64-with-nvidia-580"): "X86_64",
}
"""Families of public images, each with its architecture."""

_PRICES: Mapping[str, tuple[str, str, float, float]] = {
    "E2 Instance Core": ("CPU", "h", 0.021811, 0.008725),
    "E2 Instance Ram": ("RAM", "GiBy.h", 0.002923, 0.001169),
    "N1 Predefined Instance Core": ("N1Standard", "h", 0.031611, 0.006655),
    "N1 Predefined Instance Ram": ("N1Standard", "GiBy.h", 0.004237, 0.000892),
    "N2 Instance Core": ("CPU", "h", 0.031611, 0.00941),
    "N2 Instance Ram": ("RAM", "GiBy.h", 0.004237, 0.00126),
    "N2 Custom Instance Core": ("CPU", "h", 0.033174, 0.00988),
    "N2 Sole Tenancy Instance Core": ("CPU", "h", 0.031611, 0.0),
    "Compute optimized Core": ("CPU", "h", 0.03398, 0.01002),
    "Compute optimized Ram": ("RAM", "GiBy.h", 0.00455, 0.00134),
    "T2A Arm Instance Core": ("CPU", "h", 0.0265, 0.00926),
    "T2A Arm Instance Ram": ("RAM", "GiBy.h", 0.003, 0.00105),
    "G2 Instance Core": ("CPU", "h", 0.024988, 0.01277),
    "G2 Instance Ram": ("RAM", "GiBy.h", 0.002927, 0.001496),
    "A2 Instance Core": ("CPU", "h", 0.031611, 0.009483),
    "A2 Instance Ram": ("RAM", "GiBy.h", 0.004237, 0.001271),
    "A3 Instance Core": ("CPU", "h", 0.029311, 0.00886),
    "A3 Instance Ram": ("RAM", "GiBy.h", 0.002553, 0.00077),
    "Nvidia Tesla T4 GPU": ("GPU", "h", 0.35, 0.14),
    "Nvidia Tesla V100 GPU": ("GPU", "h", 2.48, 0.74),
    "Nvidia L4 GPU": ("GPU", "h", 0.56004, 0.2862),
    "Nvidia L4 Virtual Workstation GPU": ("GPU", "h", 0.2, 0.2),
    "Nvidia Tesla A100 GPU": ("GPU", "h", 2.933908, 0.880172),
    "Nvidia Tesla A100 80GB GPU": ("GPU", "h", 3.92808, 1.57),
    "Nvidia H100 80GB GPU": ("GPU", "h", 9.79655, 2.95),
    "SSD backed Local Storage": ("SSD", "GiBy.mo", 0.08, 0.048),
}
"""Group, unit, and prices on demand and of spot machines; the text goes on with " running in ..."."""


def skus() -> Iterator[dict[str, Any]]:
    """Yield the SKUs of Compute Engine: those of `_PRICES` in us-central1, on demand, spot and committed."""
    for number, (text, (group, unit, on_demand, spot)) in enumerate(_PRICES.items()):
        bound = f"{text} attached to Spot Preemptible VMs" if group in ("GPU", "SSD") else f"Spot Preemptible {text}"
        place = "" if group == "SSD" else " running in Americas"
        yield _sku(f"{number:04X}-0001-0001", text + place, group, "OnDemand", unit, on_demand)
        yield _sku(f"{number:04X}-0002-0001", bound + place, group, "Preemptible", unit, spot)
        if group == "CPU":
            yield _sku(f"{number:04X}-0003-0001", f"Commitment v1: {text}", group, "Commit1Yr", unit, on_demand / 2)
            reserved = f"DWS Defined Duration {text}{place}"
            yield _sku(f"{number:04X}-0004-0001", reserved, group, "OnDemand", unit, on_demand / 2)


def _sku(id: str, text: str, group: str, usage: str, unit: str, price: float) -> dict[str, Any]:
    nanos = round(price * 1e9)
    return {
        "name": f"services/6F81-5844-456A/skus/{id}",
        "skuId": id,
        "description": text,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": "Storage" if group == "SSD" else "Compute",
            "resourceGroup": group,
            "usageType": usage,
        },
        "serviceRegions": ["us-central1"],
        "serviceProviderName": "Google",
        "geoTaxonomy": {"type": "MULTI_REGIONAL", "regions": ["us-central1"]},
        "pricingInfo": [
            {
                "effectiveTime": "2026-11-22T10:00:00.000000Z",
                "currencyConversionRate": 1,
                "pricingExpression": {
                    "usageUnit": unit,
                    "displayQuantity": 1,
                    "tieredRates": [
                        {
                            "startUsageAmount": 0,
                            "unitPrice": {
                                "currencyCode": "USD",
                                "units": str(nanos // 10**9),
                                "nanos": nanos % 10**9,
                            },
                        }
                    ],
                },
            }
        ],
    }
