"""Hardware of a cluster: its partitions and types of nodes, as `scontrol` describes them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from skyward.providers import InstanceType, Offer
from skyward.specs import Architecture

__all__ = ["Partition", "architecture_of", "offers_of", "read_partitions", "read_records"]


_FIELD = re.compile(r"(?:^|(?<=\s))([A-Za-z][\w:/]*)=(\S*)")
_ARM = ("aarch64", "arm64")


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition.

    Attributes:
        name: its name.
        is_default: True if jobs without a partition get it.
        is_up: True if it takes and starts jobs.
        limit: longest time limit of a job, as Slurm writes it; "" for none.
    """

    name: str
    is_default: bool
    is_up: bool
    limit: str


def read_records(output: str) -> list[Mapping[str, str]]:
    """Return the records of `scontrol --oneliner show`. Values with spaces are cut."""
    return [dict(_FIELD.findall(line)) for line in output.splitlines() if "=" in line]


def read_partitions(output: str) -> list[Partition]:
    """Return the partitions in the output of `scontrol --oneliner show partition`."""
    return [
        Partition(
            record["PartitionName"],
            record.get("Default") == "YES",
            record.get("State", "UP") == "UP",
            "" if record.get("MaxTime", "UNLIMITED") == "UNLIMITED" else record["MaxTime"],
        )
        for record in read_records(output)
        if "PartitionName" in record
    ]


def architecture_of(node: Mapping[str, str]) -> Architecture:
    """Return the architecture of a node, as `scontrol` describes it."""
    return "arm64" if node.get("Arch") in _ARM else "x86_64"


def offers_of(nodes: str, partitions: Mapping[str, Partition], hourly_price: float) -> Iterator[Offer]:
    """Yield one offer for each partition and type of node in the output of `scontrol --oneliner show node`.

    An offer is the whole node: the most that one job can have.
    """
    seen = set()
    for record in read_records(nodes):
        for partition in record.get("Partitions", "").split(","):
            if partition not in partitions:
                continue
            for gpu, count in _gpus(record.get("Gres", "")) or ((None, 0),):
                offer = _offer(record, partitions[partition], gpu, count, hourly_price, ",".join(partitions))
                if offer.id not in seen:
                    seen.add(offer.id)
                    yield offer


def _offer(
    record: Mapping[str, str], partition: Partition, gpu: str | None, count: int, hourly_price: float, partitions: str
) -> Offer:
    vcpus, memory = int(record.get("CPUTot", "0")), round(int(record.get("RealMemory", "0")) / 1024, 1)
    architecture = architecture_of(record)
    gpus = "" if gpu is None else f", {count} {gpu or 'gpu'}"
    name = f"{vcpus} CPU{'s' * (vcpus != 1)}, {memory:g} GiB{gpus}"
    kind = InstanceType(name, vcpus, memory, gpu, count, architecture)
    specific = {"partitions": partitions, "gpu": gpu or ""}
    return Offer(
        f"{partition.name}: {name}, {architecture}",
        kind,
        on_demand_price=hourly_price,
        region=partition.name,
        specific=specific,
        divisible=True,
    )


def _gpus(gres: str) -> list[tuple[str, int]]:
    """Return type and number of the GPUs in generic resources such as "gpu:a100:4(S:0-1),nvme:2"."""
    found = []
    for word in re.sub(r"\([^)]*\)", "", gres).split(","):
        name, *rest = word.split(":")
        if name == "gpu":
            count = int(rest.pop()) if rest and rest[-1].isdigit() else 1
            found.append((rest[0] if rest else "", count))
    return found
