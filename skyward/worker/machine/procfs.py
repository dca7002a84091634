"""Parsers for files of Linux' /proc about a machine and its processes. No file is opened here."""

from collections.abc import Container
from dataclasses import dataclass

__all__ = [
    "Process",
    "busy_ticks",
    "disk_bytes",
    "free_bytes",
    "memory_bytes",
    "network_bytes",
    "process",
    "process_disk_bytes",
]

_SECTOR = 512
_VIRTUAL = ("lo", "veth", "docker", "br-", "virbr", "ifb", "cni", "flannel")
"""Prefixes of interfaces whose bytes stay on the machine, or are counted where they leave it."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process: ticks for which it and its reaped children were busy, and pages that it holds."""

    ticks: int
    pages: int


def busy_ticks(stat: str) -> int:
    """Return the ticks for which the CPUs of a machine were busy, from `/proc/stat`, without stolen time."""
    user, nice, system, _, _, irq, softirq = map(int, stat.split(maxsplit=8)[1:8])
    return user + nice + system + irq + softirq


def memory_bytes(meminfo: str) -> tuple[int, int]:
    """Return the bytes in use and in all, from `/proc/meminfo`. Memory that can be reclaimed at once is not in use."""
    sizes = _sizes(meminfo)
    total = sizes["MemTotal"]
    return total - sizes.get("MemAvailable", sizes["MemFree"]), total


def free_bytes(meminfo: str) -> int:
    """Return the bytes of memory and swap that processes can still have, from `/proc/meminfo`."""
    sizes = _sizes(meminfo)
    return sizes.get("MemAvailable", sizes["MemFree"]) + sizes.get("SwapFree", 0)


def _sizes(meminfo: str) -> dict[str, int]:
    lines = (line.partition(":") for line in meminfo.splitlines())
    return {name: int(rest.split()[0]) * 1024 for name, _, rest in lines}


def network_bytes(net_dev: str) -> tuple[int, int]:
    """Return the bytes received and sent over physical interfaces, from `/proc/net/dev`."""
    received = sent = 0
    for line in net_dev.splitlines()[2:]:
        name, _, rest = line.partition(":")
        if not name.strip().startswith(_VIRTUAL):
            numbers = rest.split()
            received, sent = received + int(numbers[0]), sent + int(numbers[8])
    return received, sent


def disk_bytes(diskstats: str, whole: Container[str]) -> tuple[int, int]:
    """Return the bytes read and written, from `/proc/diskstats`. `whole`: the disks, without partitions."""
    read = written = 0
    for line in diskstats.splitlines():
        fields = line.split()
        if fields[2] in whole:
            read, written = read + int(fields[5]) * _SECTOR, written + int(fields[9]) * _SECTOR
    return read, written


def process(stat: str) -> Process:
    """Return the process of a `/proc/PID/stat`."""
    fields = stat[stat.rindex(")") + 2 :].split()  # the name before that may contain anything
    return Process(sum(map(int, fields[11:15])), int(fields[21]))


def process_disk_bytes(io: str) -> tuple[int, int]:
    """Return the bytes that a process has read from and written to disks, from `/proc/PID/io`."""
    numbers = {name: int(value) for name, _, value in (line.partition(":") for line in io.splitlines())}
    return numbers["read_bytes"], numbers["write_bytes"]
