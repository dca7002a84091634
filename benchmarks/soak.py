"""`python -m benchmarks.soak`: check that memory, descriptors, threads and journal of client and nodes stay bounded.

Each phase repeats one operation and takes samples at 10 %, 50 % and 100 % of it. At scale 1: 10,000 blobs as arguments,
as results and as elements of streams; 10,000 functions; 1,000,000 tasks; 100 pools opened and closed, in one client.
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

__all__ = ["PHASES", "SLACK", "Sample", "growing", "main", "soak"]

BLOB = 1_000_000
"""Bytes of a blob."""

_SAMPLED_AT = (0.1, 0.5, 1.0)


SLACK = {
    "client_mb": 150.0,
    "nodes_mb": 60.0,
    "client_fds": 4,
    "nodes_fds": 4,
    "client_threads": 4,
    "nodes_threads": 4,
    "journal": 300_000,
}
"""Allowed growth of each between the first and the last sample, for work in progress and caches."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Resources of a client and its workers at one point of a phase.

    Attributes:
        phase: its name.
        done: operations so far.
        seconds: since the phase began.
        client_mb, nodes_mb: unshared memory of the client and of all its workers, 10^6 bytes.
        blobs_mb: memory of the blobs of the workers, 10^6 bytes.
        client_fds, nodes_fds: descriptors; of the worker with the most.
        client_threads, nodes_threads: threads; of the worker with the most.
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
"""Runs a phase's operation for one number, or for a chunk that starts there."""


@dataclass(frozen=True, slots=True)
class Phase:
    """An operation that runs `count` times at scale 1, `chunk` of them in a step."""

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
    """Return the number."""
    return number


@sky.function
def first(array: Any) -> int:
    """Return the first number of an array."""
    return int(array[:8].view(np.uint64)[0])


@sky.function
def numbered(number: int) -> Any:
    """Return an array filled with a number."""
    return np.full(BLOB // 8, number)


@sky.function
def many(start: int, count: int) -> Iterator[Any]:
    """Yield arrays filled with numbers."""
    for number in range(start, start + count):
        yield np.full(BLOB // 8, number)


@sky.function
def total(arrays: Iterator[Any]) -> int:
    """Return the sum of the first elements of arrays."""
    return sum(int(array[0]) for array in arrays)


def soak(
    names: Sequence[str], scale: float, executor: str = "thread", tell: Callable[[Sample], object] = lambda _: None
) -> list[Sample]:
    """Run these phases, at a scale, one after another in pools of two nodes; return the samples."""
    samples = []
    for name in names:
        phase = PHASES[name]
        options = sky.Worker(executor=executor, concurrency=2)  # type: ignore[arg-type]  # checked by argparse
        pool = sky.Compute(nodes=2, worker=options)
        if phase.pool:
            pool.open()
        try:
            for sample in _run(name, phase, pool, scale):
                tell(sample)
                samples.append(sample)
        finally:
            if phase.pool:
                pool.close()
    return samples


def growing(samples: Sequence[Sample]) -> list[str]:
    """Return the names of all that has grown from the first sample of a phase to its last."""
    found = []
    for phase in dict.fromkeys(sample.phase for sample in samples):
        *_, before, after = [sample for sample in samples if sample.phase == phase][::2]
        for name, slack in SLACK.items():
            one, other = getattr(before, name), getattr(after, name)
            if other > one + slack:
                found.append(f"{phase}: {name} was {one} after {before.done:,} and {other} after {after.done:,}")
    return found


def _run(name: str, phase: Phase, pool: sky.Compute, scale: float) -> Iterator[Sample]:
    count = max(10 * phase.chunk, round(phase.count * scale) // phase.chunk * phase.chunk)
    step, began, samples = phase.begin(pool, phase.chunk), time.monotonic(), list(_SAMPLED_AT)
    for start in range(0, count, phase.chunk):
        step(start)
        if start + phase.chunk >= count * samples[0]:
            samples.pop(0)
            yield _sample(name, start + phase.chunk, time.monotonic() - began)


def _sample(phase: str, done: int, seconds: float) -> Sample:
    gc.collect()
    me = psutil.Process()
    nodes = me.children(recursive=True)
    return Sample(
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
    """Return the bytes of the blob files that these processes have open, by inode."""
    sizes = {}
    for process in processes:
        for entry in Path(f"/proc/{process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                if "skyward-blob" in os.readlink(entry):
                    found = entry.stat()
                    sizes[found.st_ino] = found.st_blocks * 512
    return sizes


def main(args: Sequence[str] | None = None) -> None:
    """Run the soak test of the command line, and print each sample."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--only", action="append", choices=PHASES, help="run this phase only; can be repeated")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the operations (%(default)s)")
    parser.add_argument("--executor", choices=("thread", "process"), default="thread")
    parser.add_argument("--descriptors", type=int, help="descriptor limit of each process")
    parser.add_argument("--check", action="store_true", help="fail if a resource grows")
    parser.add_argument("--json", action="store_true", help="print each sample as one line of JSON")
    arguments = parser.parse_args(args)
    if arguments.descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (arguments.descriptors, arguments.descriptors))

    def tell(sample: Sample) -> None:
        values = asdict(sample)
        print(json.dumps(values) if arguments.json else " ".join(f"{k} {v}" for k, v in values.items()), flush=True)

    samples = soak(arguments.only or list(PHASES), arguments.scale, arguments.executor, tell)
    if arguments.check and (found := growing(samples)):
        parser.exit(1, "\n".join(found) + "\n")


if __name__ == "__main__":
    main()
