"""The GPUs of a machine, as NVIDIA's library tells of them, or else its command; none where neither is there."""

import shutil
import subprocess
from collections.abc import Callable, Iterable
from threading import Thread  # tasks may replace the attributes of the module
from typing import Any

from skyward.events.metrics import GPUMetrics

__all__ = ["find_gpus"]

type Look = Callable[[], tuple[GPUMetrics, ...]]

_FIELDS = "index,name,utilization.gpu,memory.used,memory.total"
_MIB = 1 << 20


def find_gpus(interval: float) -> Look:
    """What looks at the GPUs, chosen once. The command goes on running, and writes every `interval` seconds."""
    return _from_library() or _from_command(interval) or tuple


def _from_library() -> Look | None:
    try:
        import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]  # of the node, if it has it

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except Exception:  # no library, no driver, or one that does not fit the other
        return None

    def look_at(handle: Any) -> Iterable[GPUMetrics]:
        try:
            name, memory = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetMemoryInfo(handle)
            busy = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
        except pynvml.NVMLError:  # lost, or of a kind that does not tell
            return ()
        return [GPUMetrics(name if isinstance(name, str) else name.decode(), busy, memory.used, memory.total)]

    return lambda: tuple(gpu for handle in handles for gpu in look_at(handle))


def _from_command(interval: float) -> Look | None:
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
                if (said := _parse(line)) is not None:
                    found[said[0]] = said[1]
        found.clear()

    Thread(target=listen, name="skyward-gpus", daemon=True).start()
    return lambda: tuple(gpu for _, gpu in sorted(found.items()))


def _parse(line: str) -> tuple[int, GPUMetrics] | None:
    """The number of a GPU and what the command says of it. What that does not know is 0."""
    index, _, rest = line.partition(",")
    name, *numbers = rest.rsplit(",", 3)
    if len(numbers) != 3 or not index.strip().isdigit():
        return None
    busy, used, total = (int(number) if number.strip().isdigit() else 0 for number in numbers)
    return int(index), GPUMetrics(name.strip(), busy / 100, used * _MIB, total * _MIB)
