"""`python -m benchmarks.soak`: whether a client and its nodes hold memory, descriptors, threads and journal flat.

Each phase does one thing many times and looks at 10 %, 50 % and 100 % of it. At scale 1: 10,000 blobs as arguments, as
results and as elements of streams; 10,000 functions; 1,000,000 tasks; 100 pools opened and closed, in one client.
"""

import argparse
import contextlib
import gc
import json
import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import skyward as sky
from skyward.journal import data_directory

__all__ = ["PHASES", "SLACK", "Look", "growing", "main", "soak"]

BLOB = 1_000_000
"""Bytes of a blob."""

_LOOKS = (0.1, 0.5, 1.0)


SLACK = {
    "client_mb": 150.0,
    "nodes_mb": 60.0,
    "client_fds": 4,
    "nodes_fds": 4,
    "client_threads": 4,
    "nodes_threads": 4,
    "journal": 300_000,
}
"""How much more of each there may be at the last look than at the first: what is under way, and what is cached."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a client and its workers had at one point of a phase.

    Attributes:
        phase: name of it.
        done: how many times its one thing was done.
        seconds: since the phase began.
        client_mb, nodes_mb: memory of the client and of all its workers that nobody shares with them, 10^6 bytes.
        blobs_mb: memory of the blobs that the workers hold, 10^6 bytes.
        client_fds, nodes_fds: descriptors; of the worker that has most.
        client_threads, nodes_threads: threads; of the worker that has most.
        journal: bytes of files in the data directory.
    """

    phase: str
    done: int
    seconds: float
    client_mb: float
    nodes_mb: float
    blobs_mb: float
    client_fds: int
    nodes_fds: int
    client_threads: int
    nodes_threads: int
    journal: int


type Step = Callable[[int], None]
"""Does its thing for one number, or for a chunk that begins there."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One thing done `count` times at scale 1, `chunk` of them in a step."""

    count: int
    chunk: int
    begin: Callable[[sky.Compute, int], Step]
    pool: bool = True


def _arguments(pool: sky.Compute, chunk: int) -> Step:
    base = np.random.default_rng(0).integers(0, 256, BLOB, dtype=np.uint8)

    def step(start: int) -> None:
        arrays = []
        for number in range(start, start + chunk):
            arrays.append(array := base.copy())
            array[:8].view(np.uint64)[0] = number
        assert sky.gather(*(first(array) for array in arrays)) >> pool == tuple(range(start, start + chunk))

    return step


def _results(pool: sky.Compute, chunk: int) -> Step:
    def step(start: int) -> None:
        results = sky.gather(*(numbered(number) for number in range(start, start + chunk))) >> pool
        assert [int(each[0]) for each in results] == list(range(start, start + chunk))

    return step


def _elements(pool: sky.Compute, chunk: int) -> Step:
    def step(start: int) -> None:
        for number, element in enumerate(many(start, chunk) >> pool, start):
            assert element[0] == number
        with contextlib.closing(pool.start(many(start, chunk)).items()) as given_up:
            assert next(given_up)[0] == start
        fed = (np.full(BLOB // 8, number) for number in range(start, start + chunk))
        assert total(fed) >> pool == sum(range(start, start + chunk))

    return step


def _functions(pool: sky.Compute, chunk: int) -> Step:
    def step(start: int) -> None:
        calls = []
        for number in range(start, start + chunk):
            namespace: dict[str, Any] = {"__name__": "__main__"}
            exec(f"def function(x):\n    return x + {number}  # {'.' * 2000}", namespace)
            calls.append(sky.function(namespace["function"])(1))
        assert sky.gather(*calls) >> pool == tuple(range(start + 1, start + chunk + 1))

    return step


def _tasks(pool: sky.Compute, chunk: int) -> Step:
    def step(start: int) -> None:
        results = sky.gather(*(same(number) for number in range(start, start + chunk))) >> pool
        assert results == tuple(range(start, start + chunk))

    return step


def _pools(_: sky.Compute, chunk: int) -> Step:
    def step(start: int) -> None:
        for number in range(start, start + chunk):
            with sky.Compute(nodes=1, name=f"soak-{number}") as pool:
                assert same(number) >> pool == number
                assert numbered(number) >> pool is not None

    return step


PHASES = {
    "arguments": Phase(10_000, 20, _arguments),
    "results": Phase(10_000, 20, _results),
    "elements": Phase(10_000, 20, _elements),
    "functions": Phase(10_000, 100, _functions),
    "tasks": Phase(1_000_000, 1_000, _tasks),
    "pools": Phase(100, 1, _pools, pool=False),
}


@sky.function
def same(number: int) -> int:
    """A number."""
    return number


@sky.function
def first(array: Any) -> int:
    """The number at the front of an array."""
    return int(array[:8].view(np.uint64)[0])


@sky.function
def numbered(number: int) -> Any:
    """An array of a number."""
    return np.full(BLOB // 8, number)


@sky.function
def many(start: int, count: int) -> Iterator[Any]:
    """Arrays of numbers."""
    for number in range(start, start + count):
        yield np.full(BLOB // 8, number)


@sky.function
def total(arrays: Iterator[Any]) -> int:
    """The sum of the first elements of arrays."""
    return sum(int(array[0]) for array in arrays)


def soak(
    names: Sequence[str], scale: float, executor: str = "thread", tell: Callable[[Look], object] = lambda _: None
) -> list[Look]:
    """Run these phases, at a scale, one after the other in pools of two nodes; what was seen."""
    looks = []
    for name in names:
        phase = PHASES[name]
        options = sky.Worker(executor=executor, concurrency=2)  # type: ignore[arg-type]  # argparse has checked it
        pool = sky.Compute(nodes=2, worker=options)
        if phase.pool:
            pool.open()
        try:
            for look in _run(name, phase, pool, scale):
                tell(look)
                looks.append(look)
        finally:
            if phase.pool:
                pool.close()
    return looks


def growing(looks: Sequence[Look]) -> list[str]:
    """Name what has grown from the first look of a phase to its last."""
    found = []
    for phase in dict.fromkeys(look.phase for look in looks):
        *_, before, after = [look for look in looks if look.phase == phase][::2]
        for name, slack in SLACK.items():
            one, other = getattr(before, name), getattr(after, name)
            if other > one + slack:
                found.append(f"{phase}: {name} was {one} after {before.done:,} and {other} after {after.done:,}")
    return found


def _run(name: str, phase: Phase, pool: sky.Compute, scale: float) -> Iterator[Look]:
    count = max(10 * phase.chunk, round(phase.count * scale) // phase.chunk * phase.chunk)
    step, began, looks = phase.begin(pool, phase.chunk), time.monotonic(), list(_LOOKS)
    for start in range(0, count, phase.chunk):
        step(start)
        if start + phase.chunk >= count * looks[0]:
            looks.pop(0)
            yield _look(name, start + phase.chunk, time.monotonic() - began)


def _look(phase: str, done: int, seconds: float) -> Look:
    gc.collect()
    me = psutil.Process()
    nodes = me.children(recursive=True)
    return Look(
        phase,
        done,
        round(seconds, 1),
        _private(me),
        round(sum(map(_private, nodes)), 1),
        round(sum(_blobs(nodes).values()) / 1e6, 1),
        me.num_fds(),
        max((node.num_fds() for node in nodes), default=0),
        me.num_threads(),
        max((node.num_threads() for node in nodes), default=0),
        sum(path.stat().st_size for path in Path(data_directory()).rglob("*") if path.is_file()),
    )


def _private(process: psutil.Process) -> float:
    return round(process.memory_full_info().uss / 1e6, 1)


def _blobs(processes: Sequence[psutil.Process]) -> dict[int, int]:
    """Bytes of the files of blobs that these processes have open, by inode."""
    sizes = {}
    for process in processes:
        for entry in Path(f"/proc/{process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
                if "skyward-blob" in os.readlink(entry):
                    found = entry.stat()
                    sizes[found.st_ino] = found.st_blocks * 512
    return sizes


def main(args: Sequence[str] | None = None) -> None:
    """Soak as the command line says, and print each look."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--only", action="append", choices=PHASES, help="this phase; may be given several times")
    parser.add_argument("--scale", type=float, default=1.0, help="part of what is done (%(default)s)")
    parser.add_argument("--executor", choices=("thread", "process"), default="thread")
    parser.add_argument("--descriptors", type=int, help="limit of descriptors of each process")
    parser.add_argument("--check", action="store_true", help="fail where something grows")
    parser.add_argument("--json", action="store_true", help="print each look as one line of JSON")
    arguments = parser.parse_args(args)
    if arguments.descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (arguments.descriptors, arguments.descriptors))

    def tell(look: Look) -> None:
        values = asdict(look)
        print(json.dumps(values) if arguments.json else " ".join(f"{k} {v}" for k, v in values.items()), flush=True)

    looks = soak(arguments.only or list(PHASES), arguments.scale, arguments.executor, tell)
    if arguments.check and (found := growing(looks)):
        parser.exit(1, "\n".join(found) + "\n")


if __name__ == "__main__":
    main()
