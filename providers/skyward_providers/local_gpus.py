"""The GPUs of this machine, as listed by `nvidia-smi`; none if that is missing or fails."""

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
"""Timeout of the command in seconds; loading the driver takes a few."""


@dataclass(frozen=True, slots=True)
class GPUs:
    """GPUs of one model.

    Attributes:
        name: name in the catalogue, or else the driver's.
        count: number of GPUs.
        memory_gb: memory of one GPU in GiB; None if unknown.
    """

    name: str
    count: int
    memory_gb: float | None = None


_found: dict[str, tuple[GPUs, ...]] = {}
"""Cached output of each command: the GPUs of a machine do not change while this process runs."""


async def find_gpus() -> GPUs | None:
    """Return the GPUs of the most frequent model that processes with this environment see; None if there are none."""
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
    """Parse a list of GPUs, one per line: name, and memory in MiB."""
    for line in listed.splitlines():
        name, comma, memory = (part.strip() for part in line.rpartition(","))
        if comma and name:
            model = accelerators.describe(name).model
            known = model if model in accelerators.names() else name
            yield GPUs(known, 1, round(int(memory) / 1024, 1) if memory.isdigit() else None)


def visible(gpus: tuple[GPUs, ...], environ: Mapping[str, str]) -> tuple[GPUs, ...]:
    """Return those of `gpus` that are visible to CUDA in a process with this environment."""
    asked = environ.get("CUDA_VISIBLE_DEVICES")
    if asked is None:
        return gpus
    seen: list[GPUs] = []
    for each in asked.split(","):
        number = each.strip()
        if number.startswith(("GPU-", "MIG-")) and gpus:
            seen.append(gpus[0])  # the list has no UUIDs
        elif number.isdigit() and int(number) < len(gpus):
            seen.append(gpus[int(number)])
        else:
            break  # as CUDA does: devices after an invalid entry are hidden
    return tuple(seen)
