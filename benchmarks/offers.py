"""Figure 12: duration of a query for stored offers, among 50,000 of one provider."""

import random
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.figure import Aim, Figure, timed
from benchmarks.settings import Settings
from skyward.market import OfferRepository, SpecOffers, rank
from skyward.providers.protocol import InstanceType, Offer
from skyward.specs import Spec

__all__ = ["figures"]

MODELS = ("A100-SXM4-80GB", "NVIDIA H100 80GB", "T4", "L4", "RTX 4090", "V100", "A10G", None, None, None, None)

SPECS = {
    "A100": Spec(accelerator="A100"),
    "H100:8 in one region": Spec(accelerator="H100:8", region="region-7"),
    "4 vCPUs, 16 GiB": Spec(vcpus=4, memory_gb=16),
    "97 vCPUs, which nothing has": Spec(vcpus=97),
}


def figures(settings: Settings) -> Iterator[Figure]:
    """Time the query and the ranking of what it returns, in milliseconds, beside ranking all offers; and a fetch."""
    count = 5000 if settings.quick else 50_000
    offers = _catalogue(count)
    with tempfile.TemporaryDirectory() as folder, OfferRepository(Path(folder)) as repository:
        took = timed(lambda: repository.replace("key", "cloud", offers, time.time()))
        yield Figure(f"offers: storing {count:,}", "ms", took * 1e3)
        for name, spec in SPECS.items():
            ours = min(timed(partial(_query, repository, spec)) for _ in range(11))
            floor = min(timed(partial(rank, [SpecOffers(spec, "cloud", offers)])) for _ in range(2))
            title = f"offers: {name}, of {count:,}"
            yield Figure(title, "ms", ours * 1e3, floor * 1e3, "all in Python", aim=Aim("value", 10.0))


def _query(repository: OfferRepository, spec: Spec) -> None:
    rank([SpecOffers(spec, "cloud", repository.select("key", spec, limit=100))])


def _catalogue(count: int) -> list[Offer]:
    chosen = random.Random(1)
    return [_offer(number, chosen) for number in range(count)]


def _offer(number: int, chosen: random.Random) -> Offer:
    model = chosen.choice(MODELS)
    kind = InstanceType(
        f"type-{number % 900}",
        chosen.choice((2, 4, 8, 16, 32, 64, 96)),
        chosen.choice((4, 8, 16, 64, 256, 1024)),
        model,
        chosen.choice((1, 1, 2, 4, 8)) if model else 0,
        chosen.choice(("x86_64", "x86_64", "arm64")),
    )
    price = round(chosen.uniform(0.01, 40), 4)
    spot = price * 0.4 if chosen.random() < 0.7 else None
    return Offer(f"id{number}", kind, spot, price, "hour", f"region-{number % 60}", {"zone": f"z{number % 180}"})
