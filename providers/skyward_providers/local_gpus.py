"""The GPUs of this machine, as `nvidia-smi` lists them; none where it is missing or fails."""

import asyncio
import contextlib
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from skyward import accelerators

__all__ = ["GPUs", "find_gpus", "parse", "visible"]

_WITHIN = 20.0
"""Seconds that the command has; a driver that is not kept loaded takes a few."""


@dataclass(frozen=True, slots=True)
class GPUs:
    """GPUs of one model.

    Attributes:
        name: that of the catalogue, or as the driver has it.
        count: how many.
        memory_gb: memory of one, GiB; None where it is not known.
    """

    name: str
    count: int
    memory_gb: float | None = None


_found: dict[str, tuple[GPUs, ...]] = {}
"""What each command has listed: the GPUs of a machine do not change while this process lives."""


async def find_gpus() -> GPUs | None:
    """Return the GPUs that processes of this environment see: those of the most frequent model; None without any."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    if command not in _found:
        _found[command] = tuple(parse(await _listed(command)))
    kinds = Counter(visible(_found[command], os.environ))
    if not kinds:
        return None
    kind, count = kinds.most_common(1)[0]
    return GPUs(kind.name, count, kind.memory_gb)


async def _listed(command: str) -> str:
    query = (command, "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
    nothing = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *query, stdin=nothing, stdout=asyncio.subprocess.PIPE, stderr=nothing
        )
    except OSError:
        return ""
    try:
        async with asyncio.timeout(_WITHIN):
            out, _ = await process.communicate()
            return out.decode(errors="replace") if process.returncode == 0 else ""
    except TimeoutError:
        return ""
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def parse(listed: str) -> Iterable[GPUs]:
    """The GPUs of a list with a line for each: its name, and its memory in MiB."""
    for line in listed.splitlines():
        name, comma, memory = (part.strip() for part in line.rpartition(","))
        if comma and name:
            model = accelerators.describe(name).model
            known = model if model in accelerators.names() else name
            yield GPUs(known, 1, round(int(memory) / 1024, 1) if memory.isdigit() else None)


def visible(gpus: tuple[GPUs, ...], environ: Mapping[str, str]) -> tuple[GPUs, ...]:
    """Those of `gpus` that CUDA shows to a process with this environment."""
    asked = environ.get("CUDA_VISIBLE_DEVICES")
    if asked is None:
        return gpus
    seen: list[GPUs] = []
    for each in asked.split(","):
        number = each.strip()
        if number.startswith(("GPU-", "MIG-")) and gpus:
            seen.append(gpus[0])  # which one it is, the list does not say
        elif number.isdigit() and int(number) < len(gpus):
            seen.append(gpus[int(number)])
        else:
            break  # as CUDA does: what follows an invalid number is not seen
    return tuple(seen)
