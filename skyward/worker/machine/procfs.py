"""What Linux says of a machine and of processes in the files of /proc, as numbers. No file is opened here."""

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
"""Interfaces, as their names begin, whose bytes stay on the machine, or are counted where they leave it."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process: ticks that it and its children that have ended were busy, and pages that it holds."""

    ticks: int
    pages: int


def busy_ticks(stat: str) -> int:
    """Ticks that the CPUs of a machine were busy, of `/proc/stat`. Those that a hypervisor took are nobody's."""
    user, nice, system, _, _, irq, softirq = map(int, stat.split(maxsplit=8)[1:8])
    return user + nice + system + irq + softirq


def memory_bytes(meminfo: str) -> tuple[int, int]:
    """Bytes in use and in all, of `/proc/meminfo`. What the system would give up at once is not in use."""
    sizes = _sizes(meminfo)
    total = sizes["MemTotal"]
    return total - sizes.get("MemAvailable", sizes["MemFree"]), total


def free_bytes(meminfo: str) -> int:
    """Bytes that processes can still have, of `/proc/meminfo`: of memory, and of swap."""
    sizes = _sizes(meminfo)
    return sizes.get("MemAvailable", sizes["MemFree"]) + sizes.get("SwapFree", 0)


def _sizes(meminfo: str) -> dict[str, int]:
    lines = (line.partition(":") for line in meminfo.splitlines())
    return {name: int(rest.split()[0]) * 1024 for name, _, rest in lines}


def network_bytes(net_dev: str) -> tuple[int, int]:
    """Bytes received and sent, of `/proc/net/dev`, over what leads out of the machine."""
    received = sent = 0
    for line in net_dev.splitlines()[2:]:
        name, _, rest = line.partition(":")
        if not name.strip().startswith(_VIRTUAL):
            numbers = rest.split()
            received, sent = received + int(numbers[0]), sent + int(numbers[8])
    return received, sent


def disk_bytes(diskstats: str, whole: Container[str]) -> tuple[int, int]:
    """Bytes read and written, of `/proc/diskstats`. `whole`: the disks, without partitions."""
    read = written = 0
    for line in diskstats.splitlines():
        fields = line.split()
        if fields[2] in whole:
            read, written = read + int(fields[5]) * _SECTOR, written + int(fields[9]) * _SECTOR
    return read, written


def process(stat: str) -> Process:
    """The process of a `/proc/PID/stat`."""
    fields = stat[stat.rindex(")") + 2 :].split()  # its name, before that, may hold anything
    return Process(sum(map(int, fields[11:15])), int(fields[21]))


def process_disk_bytes(io: str) -> tuple[int, int]:
    """Bytes that a process has read from and written to disks, of `/proc/PID/io`."""
    numbers = {name: int(value) for name, _, value in (line.partition(":") for line in io.splitlines())}
    return numbers["read_bytes"], numbers["write_bytes"]
