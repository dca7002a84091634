"""Limits and usage of a container's CPU and memory: control groups of version 1 and 2.

A limit applies to all groups below the one that has it. So the tightest limit on the path to the root counts, and usage
is read at its group, too.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Limit", "cpu_limit", "memory_limit"]


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit, and the usage that counts against it: cores and seconds for which they were busy, or bytes.

    Attributes:
        most: the limit.
        used: returns the usage.
        kept: returns the bytes in use that the system can reclaim, such as cached files.
    """

    most: float
    used: Callable[[], float]
    kept: Callable[[], float] = lambda: 0.0


def cpu_limit(root: Path = Path("/")) -> Limit | None:
    """Return the cores that this process may use; None where no group limits them."""
    limits = [
        *(_cpu_v2(folder) for folder in _folders(root, "")),
        *(_cpu_v1(root, folder) for folder in _folders(root, "cpu")),
    ]
    return min(filter(None, limits), key=lambda limit: limit.most, default=None)


def memory_limit(root: Path = Path("/")) -> Limit | None:
    """Return the bytes that this process may use; None where no group limits them."""
    limits = [
        *(_memory(f, "memory.max", "memory.current", "") for f in _folders(root, "")),
        *(_memory(f, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_") for f in _folders(root, "memory")),
    ]
    return min(filter(None, limits), key=lambda limit: limit.most, default=None)


def _cpu_v2(folder: Path) -> Limit | None:
    quota, _, period = _text(folder / "cpu.max").strip().partition(" ")
    if not quota.isdigit() or not period:
        return None
    return Limit(int(quota) / int(period), lambda: _field(folder / "cpu.stat", "usage_usec") / 1e6)


def _cpu_v1(root: Path, folder: Path) -> Limit | None:
    quota, period = (_text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    if not quota.isdigit() or not period:  # -1 is no limit
        return None
    times = next(_folders(root, "cpuacct"), folder)
    return Limit(int(quota) / int(period), lambda: int(_text(times / "cpuacct.usage") or 0) / 1e9)


def _memory(folder: Path, most: str, used: str, prefix: str) -> Limit | None:
    limit = _text(folder / most).strip()
    if not limit.isdigit() or int(limit) >= 1 << 60:  # version 1 writes "no limit" as a huge number
        return None

    def in_use() -> float:
        return max(0, int(_text(folder / used) or 0) - _field(folder / "memory.stat", f"{prefix}inactive_file"))

    return Limit(int(limit), in_use, lambda: _field(folder / "memory.stat", f"{prefix}active_file"))


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folder of this process's group of a controller, "" for version 2, and the folders above it."""
    group = _group(_text(root / "proc/self/cgroup"), controller)
    mount = _mount(_text(root / "proc/self/mountinfo"), controller)
    if group is None or mount is None:
        return
    shown, point = mount
    top = root / point.lstrip("/")
    inside = group.removeprefix(shown.rstrip("/")) if group.startswith(shown) else ""
    folder = top / inside.strip("/")
    while folder != top and top in folder.parents:
        yield folder
        folder = folder.parent
    yield top


def _group(cgroup: str, controller: str) -> str | None:
    """Return the group of a controller, from `/proc/self/cgroup`."""
    for line in cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(",") if controller else not controllers:
            return path
    return None


def _mount(mountinfo: str, controller: str) -> tuple[str, str] | None:
    """Return the mounted group of a controller and its mount point, from `/proc/self/mountinfo`."""
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        if (kind == "cgroup2") if not controller else (kind == "cgroup" and controller in options.split(",")):
            shown, point = fields.split()[3:5]
            return shown, point
    return None


def _field(path: Path, name: str) -> int:
    """Return the number of a line `name number` of a file; 0 where there is none."""
    for line in _text(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def _text(path: Path) -> str:
    """Return the content of a file; "" where it does not exist."""
    try:
        return path.read_text()
    except OSError:
        return ""
