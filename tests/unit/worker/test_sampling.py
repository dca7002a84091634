"""Samples of a machine: with files of Linux recorded on machines and in containers, and of this machine."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from skyward.events.metrics import GPUMetrics
from skyward.worker.machine import gpus, procfs, sampling
from skyward.worker.machine.cgroups import cpu_limit, memory_limit
from skyward.worker.machine.sampling import Sampler
from tests.waiting import wait_for

pytestmark = pytest.mark.unit

MIB = 1 << 20

STAT = """\
cpu  4705 356 584 3699176 23060 7 231 66 12 0
cpu0 2352 178 292 1849588 11530 4 116 33 6 0
intr 114930548 113199788 3 0 5 263 0 4 0 1
ctxt 1990473
"""

MEMINFO = """\
MemTotal:       16303428 kB
MemFree:         1234567 kB
MemAvailable:    9876543 kB
Buffers:          345678 kB
HugePages_Total:       0
"""

NET_DEV = """\
Inter-|  Receive  |  Transmit
 face |bytes  packets errs drop fifo frame compressed multicast|bytes  packets errs drop fifo colls carrier compressed
  lo: 1000000  1000  0  0  0  0  0  0  1000000  1000  0  0  0  0  0  0
  eth0: 123456789  99999  0  0  0  0  0  0 98765432  88888  0  0  0  0  0  0
docker0:  555555  4444  0  0  0  0  0  0  666666  3333  0  0  0  0  0  0
veth1a2b3c4: 7777  66  0  0  0  0  0  0  8888  55  0  0  0  0  0  0
 wlan0:  200  2  0  0  0  0  0  0  100  1  0  0  0  0  0  0
"""

DISKSTATS = """\
   7       0 loop0 11 0 2222 3 0 0 0 0 0 4 5
 259       0 nvme0n1 150000 20000 8000000 90000 60000 40000 4000000 80000 0 70000 170000 0 0 0 0 0 0
 259       1 nvme0n1p1 149000 20000 7900000 89000 59000 40000 3900000 79000 0 69000 168000 0 0 0 0
   8       0 sda 100 0 1000 10 200 0 2000 20 0 30 30
 253       0 dm-0 169000 0 7900000 99000 99000 0 3900000 99000 0 70000 198000
"""

PROCESS = (
    "4242 (my) (odd) name) S 1 4242 4242 0 -1 4194560 5000 600 7 8 250 50 30 20 20 0 12 0 98765 2000000000 12345 "
    "18446744073709551615 1 1 0 0 0 0 0 16781312 134235650 0 0 0 17 3 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
)


def test_busy_ticks_exclude_idle_waiting_and_stolen_time() -> None:
    assert procfs.busy_ticks(STAT) == 4705 + 356 + 584 + 7 + 231


def test_reclaimable_memory_is_not_in_use() -> None:
    assert procfs.memory_bytes(MEMINFO) == ((16303428 - 9876543) * 1024, 16303428 * 1024)


def test_memory_in_use_without_mem_available() -> None:
    text = MEMINFO.replace("MemAvailable:    9876543 kB\n", "")
    assert procfs.memory_bytes(text)[0] == (16303428 - 1234567) * 1024


def test_network_bytes_count_physical_interfaces_only() -> None:
    assert procfs.network_bytes(NET_DEV) == (123456789 + 200, 98765432 + 100)


def test_disks_are_counted_once() -> None:
    assert procfs.disk_bytes(DISKSTATS, {"nvme0n1", "sda"}) == (8001000 * 512, 4002000 * 512)


def test_process_name_may_contain_parentheses() -> None:
    assert procfs.process(PROCESS) == procfs.Process(ticks=250 + 50 + 30 + 20, pages=12345)


def test_disk_bytes_of_a_process() -> None:
    text = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n"
    assert procfs.process_disk_bytes(text) == (4096, 8192)


# Control groups.


def put(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MOUNT_V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"


def test_limits_of_cgroup_version_2(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": MOUNT_V2,
        "sys/fs/cgroup/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/cpu.stat": "usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n",
        "sys/fs/cgroup/memory.max": f"{512 * MIB}\n",
        "sys/fs/cgroup/memory.current": f"{300 * MIB}\n",
        "sys/fs/cgroup/memory.stat": f"anon 1\nfile 2\ninactive_anon 3\ninactive_file {100 * MIB}\n",
    }
    cpu, memory = cpu_limit(put(tmp_path, files)), memory_limit(tmp_path)
    assert cpu is not None
    assert memory is not None
    assert (cpu.most, cpu.used(), memory.most, memory.used()) == (1.5, 2.5, 512 * MIB, 200 * MIB)


def test_tightest_limit_on_the_path_to_the_root_applies(tmp_path: Path) -> None:
    at = "sys/fs/cgroup"
    files = {
        "proc/self/cgroup": "0::/user.slice/user-0.slice/session-1.scope\n",
        "proc/self/mountinfo": MOUNT_V2,
        f"{at}/user.slice/cpu.max": "400000 100000\n",
        f"{at}/user.slice/user-0.slice/cpu.max": "200000 100000\n",
        f"{at}/user.slice/user-0.slice/cpu.stat": "usage_usec 7000000\n",
        f"{at}/user.slice/user-0.slice/session-1.scope/cpu.max": "max 100000\n",
        f"{at}/user.slice/user-0.slice/session-1.scope/memory.max": "max\n",
    }
    cpu = cpu_limit(put(tmp_path, files))
    assert cpu is not None
    assert (cpu.most, cpu.used()) == (2.0, 7.0)
    assert memory_limit(tmp_path) is None


MOUNTS_V1 = """\
31 23 0:28 / /sys/fs/cgroup ro,nosuid,nodev,noexec - tmpfs tmpfs rw,mode=755
32 31 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro,relatime master:12 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro,relatime master:15 - cgroup cgroup rw,memory
"""
CGROUP_V1 = "9:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n0::/\n"


def test_limits_of_cgroup_version_1_with_host_paths(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": CGROUP_V1,
        "proc/self/mountinfo": MOUNTS_V1,
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/cpu,cpuacct/cpuacct.usage": "1250000000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{256 * MIB}\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{90 * MIB}\n",
        "sys/fs/cgroup/memory/memory.stat": f"cache 5\ninactive_file 1\ntotal_inactive_file {40 * MIB}\n",
    }
    cpu, memory = cpu_limit(put(tmp_path, files)), memory_limit(tmp_path)
    assert cpu is not None
    assert memory is not None
    assert (cpu.most, cpu.used(), memory.most, memory.used()) == (0.5, 1.25, 256 * MIB, 50 * MIB)


def test_cgroup_version_1_without_limits(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": CGROUP_V1,
        "proc/self/mountinfo": MOUNTS_V1,
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    }
    assert (cpu_limit(put(tmp_path, files)), memory_limit(tmp_path)) == (None, None)


def test_system_without_control_groups_has_no_limits(tmp_path: Path) -> None:
    assert (cpu_limit(tmp_path), memory_limit(tmp_path)) == (None, None)


# The sampler.


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = [100.0]
    monkeypatch.setattr(sampling, "clock", SimpleNamespace(monotonic=lambda: now[0], sleep=time.sleep))

    def advance(seconds: float) -> None:
        now[0] += seconds

    return advance


def machine(root: Path) -> Path:
    (root / "sys/block").mkdir(parents=True)
    for name in ("loop0", "nvme0n1", "sda", "dm-0"):
        (root / "sys/block" / name).mkdir()
    files = {"stat": STAT, "meminfo": MEMINFO, "diskstats": DISKSTATS, "self/net/dev": NET_DEV, "self/stat": PROCESS}
    return put(root, {f"proc/{name}": text for name, text in files.items()})


def test_sample_of_a_machine_has_rates(tmp_path: Path, clock: Callable[[float], None]) -> None:
    sampler = Sampler("machine", machine(tmp_path), lambda: (GPUMetrics("A", 0.5, 1, 2),))
    later = {
        "stat": STAT.replace("cpu  4705", f"cpu  {4705 + 3 * os.sysconf('SC_CLK_TCK')}"),
        "diskstats": DISKSTATS.replace(" 1000 10 200 0 2000", " 1004 10 200 0 2008"),
        "self/net/dev": NET_DEV.replace("123456789", "123466789").replace("98765432", "98765532"),
    }
    put(tmp_path, {f"proc/{name}": text for name, text in later.items()})
    clock(2.0)
    now = sampler.sample()
    assert (now.scope, now.cpu, now.gpus) == ("machine", 1.5, (GPUMetrics("A", 0.5, 1, 2),))
    assert (now.memory, now.memory_total) == ((16303428 - 9876543) * 1024, 16303428 * 1024)
    assert (now.read, now.written, now.received, now.sent) == (1024.0, 2048.0, 5000.0, 50.0)
    assert now.disk_free is not None
    assert now.disk_total is not None
    assert 0 < now.disk_free <= now.disk_total
    clock(2.0)
    assert (again := sampler.sample()).cpu == 0.0
    assert again.received == 0.0


def test_reset_counter_gives_no_negative_rate(tmp_path: Path, clock: Callable[[float], None]) -> None:
    sampler = Sampler("machine", machine(tmp_path))
    put(tmp_path, {"proc/self/net/dev": NET_DEV.replace("123456789", "9")})
    clock(2.0)
    assert sampler.sample().received == 0.0


def test_sample_in_a_container_uses_its_limits(tmp_path: Path, clock: Callable[[float], None]) -> None:
    files = {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": MOUNT_V2,
        "sys/fs/cgroup/cpu.max": "50000 100000\n",
        "sys/fs/cgroup/cpu.stat": "usage_usec 1000000\n",
        "sys/fs/cgroup/memory.max": f"{512 * MIB}\n",
        "sys/fs/cgroup/memory.current": f"{300 * MIB}\n",
    }
    sampler = Sampler("machine", put(machine(tmp_path), files))
    put(tmp_path, {"sys/fs/cgroup/cpu.stat": "usage_usec 1500000\n"})
    clock(2.0)
    now = sampler.sample()
    assert (now.cpu, now.cpus, now.memory, now.memory_total) == (0.25, 0.5, 300 * MIB, 512 * MIB)


def test_sample_on_another_system_has_cpu_time_only(tmp_path: Path) -> None:
    now = Sampler("machine", tmp_path).sample()
    assert (now.scope, now.memory, now.memory_total, now.read, now.received) == ("processes", None, None, None, None)
    assert now.cpu >= 0


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_sample_of_processes_includes_descendants() -> None:
    sampler = Sampler("processes")
    before = sampler.sample()
    script = "import sys; block = bytearray(b'x' * 100_000_000); print(1, flush=True); sys.stdin.read()"
    nested = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {script!r}]))"
    with subprocess.Popen([sys.executable, "-c", nested], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        after = sampler.sample()
        child.communicate(timeout=60)
    assert before.memory is not None
    assert after.memory is not None
    assert after.memory - before.memory > 90_000_000
    assert (after.received, after.sent) == (None, None)
    assert after.cpu > 0


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_sample_of_this_machine_is_plausible() -> None:
    now = Sampler("machine").sample()
    assert 0 < now.cpus <= (os.cpu_count() or 1)
    assert now.memory is not None
    assert now.memory_total is not None
    assert 0 < now.memory <= now.memory_total
    assert None not in (now.read, now.written, now.received, now.sent)


# GPUs.


def test_gpus_are_read_from_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    class NVMLError(Exception):
        pass

    def rates(handle: int) -> Any:
        if handle == 1:
            raise NVMLError
        return SimpleNamespace(gpu=75, memory=10)

    library = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 3,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda handle: b"old name" if handle == 2 else "H200",
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=10 * MIB, total=100 * MIB, free=0),
        nvmlDeviceGetUtilizationRates=rates,
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    assert gpus.find_gpus(2.0)() == (
        GPUMetrics("H200", 0.75, 10 * MIB, 100 * MIB),
        GPUMetrics("old name", 0.75, 10 * MIB, 100 * MIB),
    )


def test_gpus_are_read_from_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = tmp_path / "nvidia-smi"
    command.write_text(
        '#!/bin/sh\n[ "$3" = --loop=2 ] || exit 1\n'
        "echo '1, NVIDIA A100, 80GB, 12, 1024, 81920'\necho '0, NVIDIA A100, 97, 2048, 40960'\n"
        "echo '2, Odd, [N/A], [N/A], 16384'\necho 'Unable to tell'\ncat >/dev/null\nexit 0\n"
    )
    command.chmod(0o755)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    started: list[subprocess.Popen[str]] = []
    popen = subprocess.Popen

    def start(*args: Any, **options: Any) -> subprocess.Popen[str]:
        started.append(popen(*args, **{**options, "stdin": subprocess.PIPE}))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", start)
    sample = gpus.find_gpus(2.0)
    wait_for(lambda: len(sample()) == 3, "three GPUs")
    assert sample() == (
        GPUMetrics("NVIDIA A100", 0.97, 2048 * MIB, 40960 * MIB),
        GPUMetrics("NVIDIA A100, 80GB", 0.12, 1024 * MIB, 81920 * MIB),
        GPUMetrics("Odd", 0.0, 0, 16384 * MIB),
    )
    (process,) = started
    assert process.stdin is not None
    process.stdin.close()  # ends the command
    wait_for(lambda: not sample(), "the GPUs to be gone with the command")
    process.wait(30)


def test_machine_without_gpus_has_no_gpu_samples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.find_gpus(2.0)() == ()
