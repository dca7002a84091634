"""Types and prices of the fake AWS: types (described by moto's copy of AWS's own answers), and prices of our own."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPES

__all__ = [
    "FARGATE",
    "FARGATE_SPOT",
    "IMAGES",
    "TYPES",
    "fargate_price_list",
    "fargate_spot_prices",
    "on_demand_price",
    "price_list",
    "spot_price",
]

FARGATE: Mapping[str, float] = {
    "Fargate-vCPU-Hours:perCPU": 0.04048,
    "Fargate-GB-Hours": 0.004445,
    "Fargate-ARM-vCPU-Hours:perCPU": 0.03238,
    "Fargate-ARM-GB-Hours": 0.00356,
    "Fargate-Windows-vCPU-Hours:perCPU": 0.046552,
    "Fargate-EphemeralStorage-GB-Hours": 0.000111,
    "SpotUsage-Fargate-vCPU-Hours:perCPU": 0.5,
    "ECS-Anywhere-Instance-hours": 0.01025,
    "ECS-EC2-vCPU-Hours": 0.0,
}
"""USD per hour by type of usage, as the price list of us-east-1 has them."""

FARGATE_SPOT: Mapping[str, float] = {
    "vCPU-Hours": 0.01288871,
    "GB-Hours": 0.00141527,
    "ARM-vCPU-Hours": 0.01030969,
    "ARM-GB-Hours": 0.00113349,
}
"""USD per hour by unit, as the file with the prices of spot tasks has them."""

TYPES = (
    "c6i.large", "c6i.xlarge", "c7g.xlarge", "c7i.large", "g4dn.12xlarge", "g4dn.xlarge", "g6.2xlarge", "g6.xlarge",
    "g6f.xlarge", "inf2.xlarge", "m6a.xlarge", "m6i.large", "m6i.xlarge", "m7g.large", "m7i-flex.large", "m7i.large",
    "m7i.metal-24xl", "p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge", "t3.micro", "t4g.small",
)  # fmt: skip  # one a line says no more

IMAGES: Mapping[str, tuple[str, int]] = {
    "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id": ("x86_64", 8),
    "/aws/service/canonical/ubuntu/server/24.04/stable/current/arm64/hvm/ebs-gp3/ami-id": ("arm64", 8),
    "/aws/service/canonical/ubuntu/server/22.04/stable/current/amd64/hvm/ebs-gp2/ami-id": ("x86_64", 8),
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id": ("x86_64", 120),
    "/aws/service/deeplearning/ami/arm64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id": ("arm64", 60),
}
"""Architecture and size of the disk, GiB, of the image of each parameter."""

_GPUS = {"A100": 3.0, "H100": 6.0, "Inferentia2": 0.5, "L4": 0.6, "T4": 0.35}


def on_demand_price(kind: str) -> float:
    """Return the price of a type, USD per hour."""
    described = INSTANCE_TYPES[kind]
    gpus = described.get("GpuInfo", {}).get("Gpus", [])
    cpu = described["VCpuInfo"]["DefaultVCpus"] * 0.04 + described["MemoryInfo"]["SizeInMiB"] / 1024 * 0.004
    older = 0.98 if "6" in kind.partition(".")[0] else 1.0
    total: float = round(cpu * older + sum(_GPUS.get(gpu["Name"], 1.0) * (gpu["Count"] or 0.125) for gpu in gpus), 4)
    return total


def spot_price(kind: str, zone: str) -> float:
    """Return the spot price of a type in a zone, USD per hour: each zone is a bit dearer than the one before."""
    return round(on_demand_price(kind) * (0.3 + 0.02 * (ord(zone[-1]) - ord("a"))), 4)


def price_list(region: str) -> Iterator[str]:
    """Yield the products of a region, as the price list has them: also one that is free, and one without a type."""
    for kind in TYPES:
        yield json.dumps(_product(kind, on_demand_price(kind), region))
        yield json.dumps(_product(kind, 0.0, region))
    yield json.dumps({"product": {"attributes": {"regionCode": region}}, "terms": {}})


def _product(kind: str, price: float, region: str) -> dict[str, Any]:
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": f"{price:.10f}"}}
    return {
        "product": {"productFamily": "Compute Instance", "attributes": {"instanceType": kind, "regionCode": region}},
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": {"SKU.T": {"offerTermCode": "T", "priceDimensions": {"SKU.T.D": dimension}}}},
    }


def fargate_price_list(region: str) -> Iterator[str]:
    """Yield the products of ECS in a region."""
    prefix = "" if region == "eu-west-1" else "USE1-"
    for usage, price in FARGATE.items():
        dimension = {"unit": "hours", "pricePerUnit": {"USD": f"{price:.10f}"}}
        attributes = {"usagetype": prefix + usage, "regionCode": region, "servicecode": "AmazonECS"}
        yield json.dumps(
            {
                "product": {"productFamily": "Compute", "attributes": attributes},
                "serviceCode": "AmazonECS",
                "terms": {"OnDemand": {"SKU.T": {"offerTermCode": "T", "priceDimensions": {"SKU.T.D": dimension}}}},
            }
        )


def fargate_spot_prices() -> str:
    """Return the file with the prices of spot tasks."""
    prices = [
        {"unit": unit, "price": {"USD": str(price)}, "attributes": {"aws:region": region}}
        for region in ("us-east-1", "eu-west-1")
        for unit, price in FARGATE_SPOT.items()
    ]
    return json.dumps({"manifest": {"currencyCode": "USD"}, "prices": prices})
