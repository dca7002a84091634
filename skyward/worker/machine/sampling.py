"""Usage of a node's machine, sampled every few seconds on a thread of its own.

On Linux the files of /proc and of control groups are read directly: that takes less than a millisecond, and no package.
Elsewhere the samples have only what Python itself can tell: the CPU time of the node, and its disk.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Thread  # tasks may replace the attributes of the module
from typing import Literal

from skyward.events.metrics import GPUMetrics, NodeMetrics
from skyward.process.clock import clock
from skyward.wire.protocol.messages import Metrics
from skyward.worker.machine import procfs
from skyward.worker.machine.cgroups import cpu_limit, memory_limit
from skyward.worker.machine.gpus import find_gpus

__all__ = ["Sampler", "start_sampling"]

type Scope = Literal["machine", "processes"]

FIRST = 0.5
"""Seconds until the first sample, at most: its rates are those since the start."""

_STACKED = ("loop", "ram", "zram", "dm-", "md")
"""Prefixes of disks that are memory, or consist of other disks that are counted."""


@dataclass(frozen=True, slots=True)
class _Counters:
    """Monotonic counters: seconds of CPU, and bytes."""

    at: float
    cpu: float
    read: float | None = None
    written: float | None = None
    received: float | None = None
    sent: float | None = None


class Sampler:
    """Sampler of a machine, or of this process and its descendants.

    Args:
        scope: what to sample.
        root: root of its file system.
        gpus: samples the GPUs.
    """

    def __init__(
        self, scope: Scope, root: Path = Path("/"), gpus: Callable[[], tuple[GPUMetrics, ...]] = tuple
    ) -> None:
        self._root = root
        self._proc = root / "proc"
        self._linux = (self._proc / "self/stat").exists()
        self._scope: Scope = scope if self._linux else "processes"
        self._gpus = gpus
        self._ticks, self._page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
        self._cpu_limit, self._memory_limit = cpu_limit(root), memory_limit(root)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._cpus = min(cores, self._cpu_limit.most) if self._cpu_limit is not None else float(cores)
        blocks = root / "sys/block"
        self._disks = (
            {each.name for each in blocks.iterdir() if not each.name.startswith(_STACKED)} if blocks.is_dir() else set()
        )
        self._before = self._count()[0]

    def sample(self) -> NodeMetrics:
        """Return the current usage; rates are those since the last sample."""
        before, (now, memory) = self._before, self._count()
        self._before = now
        elapsed = max(now.at - before.at, 1e-6)

        def rate(earlier: float | None, later: float | None) -> float | None:
            return None if earlier is None or later is None else max(0.0, later - earlier) / elapsed

        disk = shutil.disk_usage(".")
        return NodeMetrics(
            scope=self._scope,
            cpu=rate(before.cpu, now.cpu) or 0.0,
            cpus=self._cpus,
            memory=memory,
            memory_total=self._memory_total(),
            disk_free=disk.free,
            disk_total=disk.total,
            read=rate(before.read, now.read),
            written=rate(before.written, now.written),
            received=rate(before.received, now.received),
            sent=rate(before.sent, now.sent),
            gpus=self._gpus(),
        )

    def _memory_total(self) -> int | None:
        if not self._linux:
            return None
        total = procfs.memory_bytes((self._proc / "meminfo").read_text())[1]
        return total if self._memory_limit is None else min(total, int(self._memory_limit.most))

    def _count(self) -> tuple[_Counters, int | None]:
        """Return the counters, and the bytes of memory in use."""
        if not self._linux:
            return _Counters(clock.monotonic(), sum(os.times()[:4])), None
        return self._count_machine() if self._scope == "machine" else self._count_processes()

    def _count_machine(self) -> tuple[_Counters, int]:
        read = self._proc.joinpath
        if self._cpu_limit is not None:
            cpu = self._cpu_limit.used()
        else:
            cpu = procfs.busy_ticks(read("stat").read_text()) / self._ticks
        if self._memory_limit is not None:
            memory = int(self._memory_limit.used())
        else:
            memory = procfs.memory_bytes(read("meminfo").read_text())[0]
        disks = procfs.disk_bytes(read("diskstats").read_text(), self._disks)
        network = procfs.network_bytes(read("self/net/dev").read_text())
        return _Counters(clock.monotonic(), cpu, *disks, *network), memory

    def _count_processes(self) -> tuple[_Counters, int]:
        ticks = pages = 0
        read = written = 0
        for folder in self._tree(self._proc / "self"):
            try:
                each = procfs.process((folder / "stat").read_text("utf-8", "replace"))
                disks = procfs.process_disk_bytes((folder / "io").read_text())
            except OSError:  # the process has ended, or belongs to another user
                continue
            ticks, pages = ticks + each.ticks, pages + each.pages
            read, written = read + disks[0], written + disks[1]
        return _Counters(clock.monotonic(), ticks / self._ticks, read, written), pages * self._page

    def _tree(self, folder: Path) -> Iterator[Path]:
        """Yield the folders of a process and of its descendants."""
        yield folder
        try:
            lists = [(thread / "children").read_text() for thread in (folder / "task").iterdir()]
        except OSError:  # the process has ended, or the system has no such lists
            return
        for children in lists:
            for child in children.split():
                yield from self._tree(self._proc / child)


def start_sampling(interval: float, scope: Scope, emit: Callable[[Metrics], None]) -> None:
    """Sample every `interval` seconds from now on, as long as the process lives."""

    def run() -> None:
        sampler = Sampler(scope, gpus=find_gpus(interval))
        pause = min(FIRST, interval)
        while True:
            clock.sleep(pause)
            pause = interval
            with contextlib.suppress(OSError, ValueError, KeyError):  # a file is gone, or malformed
                emit(Metrics(sampler.sample()))

    Thread(target=run, name="skyward-metrics", daemon=True).start()
