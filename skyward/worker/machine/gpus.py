"""The GPUs of a machine, from NVIDIA's library, or else from its command; none where both are missing."""

import shutil
import subprocess
from collections.abc import Callable, Iterable
from threading import Thread  # tasks may replace the attributes of the module
from typing import Any

from skyward.events.metrics import GPUMetrics

__all__ = ["find_gpus"]

type Sample = Callable[[], tuple[GPUMetrics, ...]]

_FIELDS = "index,name,utilization.gpu,memory.used,memory.total"
_MIB = 1 << 20


def find_gpus(interval: float) -> Sample:
    """Return a sampler of the GPUs, chosen once. The command keeps running, and writes every `interval` seconds."""
    return _from_library() or _from_command(interval) or tuple


def _from_library() -> Sample | None:
    try:
        import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]  # installed on the node, or not

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except Exception:  # no library, no driver, or versions that do not match
        return None

    def sample(handle: Any) -> Iterable[GPUMetrics]:
        try:
            name, memory = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetMemoryInfo(handle)
            busy = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
        except pynvml.NVMLError:  # the GPU is lost, or does not support the query
            return ()
        return [GPUMetrics(name if isinstance(name, str) else name.decode(), busy, memory.used, memory.total)]

    return lambda: tuple(gpu for handle in handles for gpu in sample(handle))


def _from_command(interval: float) -> Sample | None:
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    query = [command, f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits", f"--loop={max(1, round(interval))}"]
    try:
        process = subprocess.Popen(
            query, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    except OSError:
        return None
    found: dict[int, GPUMetrics] = {}

    def listen() -> None:
        with process:
            for line in process.stdout or ():
                if (parsed := _parse(line)) is not None:
                    found[parsed[0]] = parsed[1]
        found.clear()

    Thread(target=listen, name="skyward-gpus", daemon=True).start()
    return lambda: tuple(gpu for _, gpu in sorted(found.items()))


def _parse(line: str) -> tuple[int, GPUMetrics] | None:
    """Return the index of a GPU and its metrics, from a line of the command. Unknown values are 0."""
    index, _, rest = line.partition(",")
    name, *numbers = rest.rsplit(",", 3)
    if len(numbers) != 3 or not index.strip().isdigit():
        return None
    busy, used, total = (int(number) if number.strip().isdigit() else 0 for number in numbers)
    return int(index), GPUMetrics(name.strip(), busy / 100, used * _MIB, total * _MIB)
