"""Types of EC2 machines, from DescribeInstanceTypes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from skyward.accelerators import describe, from_name, has_variants
from skyward.errors import SpecError
from skyward.providers import InstanceType

__all__ = ["ImageKind", "MachineType", "machine_types"]

type ImageKind = Literal["ubuntu", "nvidia", ""]

_ARCHITECTURES: Final[Mapping[str, Literal["x86_64", "arm64"]]] = {"x86_64": "x86_64", "arm64": "arm64"}

_TOLERANCE = 0.1
"""Relative difference between the memory that a driver reports and the one that the vendor states."""

_OLD_GPUS: Final = frozenset({"K80", "M60", "V100"})
"""GPUs that NVIDIA's open driver, which the image has, does not support."""

_NAMES: Final[Mapping[str, str]] = {"RTX PRO Server 6000": "RTX PRO 6000"}
"""Names of EC2 that nobody else uses."""


@dataclass(frozen=True, slots=True)
class MachineType:
    """A type of machine.

    Attributes:
        shape: its hardware.
        image: the image that it needs; "" if Skyward knows none.
        burstable: True if its CPU is limited by credits.
        spot: True if it is sold as a spot machine.
    """

    shape: InstanceType
    image: ImageKind
    burstable: bool
    spot: bool


def machine_types(described: Iterable[Mapping[str, Any]]) -> list[MachineType]:
    """Return the types that boot Linux in minutes: those of bare metal take longer, those of Apple have no Linux."""
    usable = [each for each in described if not each.get("BareMetal") and _architecture(each) is not None]
    whole = _whole_memory(usable)
    return [_machine_type(each, whole) for each in usable]


def _architecture(described: Mapping[str, Any]) -> Literal["x86_64", "arm64"] | None:
    supported = described["ProcessorInfo"]["SupportedArchitectures"]
    return next((_ARCHITECTURES[each] for each in supported if each in _ARCHITECTURES), None)


def _gpu(described: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next(iter(described.get("GpuInfo", {}).get("Gpus", ())), None)


def _whole_memory(described: Iterable[Mapping[str, Any]]) -> Mapping[str, int]:
    """Return the memory of each whole model of GPU, MiB."""
    gpus = [gpu for each in described if (gpu := _gpu(each)) is not None]
    return {gpu["Name"]: gpu["MemoryInfo"]["SizeInMiB"] for gpu in gpus if gpu.get("Count")}


def _machine_type(described: Mapping[str, Any], whole: Mapping[str, int]) -> MachineType:
    name, count, memory, image = _accelerator(described, whole)
    shape = InstanceType(
        described["InstanceType"],
        described["VCpuInfo"]["DefaultVCpus"],
        round(described["MemoryInfo"]["SizeInMiB"] / 1024, 2),
        name,
        count,
        _architecture(described) or "x86_64",
        memory,
    )
    return MachineType(
        shape,
        image,
        bool(described.get("BurstablePerformanceSupported")),
        "spot" in described.get("SupportedUsageClasses", ()),
    )


def _accelerator(
    described: Mapping[str, Any], whole: Mapping[str, int]
) -> tuple[str | None, float, float | None, ImageKind]:
    """Return name, count and memory in GB of a type's accelerators, and the image that supports them."""
    if (gpu := _gpu(described)) is not None:
        name, memory = _NAMES.get(gpu["Name"], gpu["Name"]), gpu["MemoryInfo"]["SizeInMiB"]
        if not gpu.get(
            "Count"
        ):  # a share of one GPU, whose driver is NVIDIA's for virtual ones: no public image has it
            full = whole.get(gpu["Name"], memory)
            return name, round(gpu.get("GpuPartitionSize") or memory / full, 3), _nominal(name, full), ""
        known: ImageKind = "nvidia" if gpu.get("Manufacturer") == "NVIDIA" and gpu["Name"] not in _OLD_GPUS else ""
        return name, gpu["Count"], _nominal(name, memory), known
    others = (
        *described.get("NeuronInfo", {}).get("NeuronDevices", ()),
        *described.get("InferenceAcceleratorInfo", {}).get("Accelerators", ()),
    )
    if others:
        return (
            others[0]["Name"],
            others[0]["Count"],
            _nominal(others[0]["Name"], others[0]["MemoryInfo"]["SizeInMiB"]),
            "",
        )
    return None, 0, None, "ubuntu"


def _nominal(name: str, mib: int) -> float:
    """Return the memory of an accelerator as its vendor states it, GB: the catalogue's, unless it has variants."""
    reported = round(mib / 1024, 1)
    model = describe(name).model
    if has_variants(model):
        return reported
    try:
        stated = from_name(model).memory_gb
    except SpecError:  # not in the catalogue
        return reported
    return stated if stated is not None and abs(stated - reported) <= _TOLERANCE * stated else reported
