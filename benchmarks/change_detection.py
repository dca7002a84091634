"""Cells that use values of the notebook and change none, compared with calls of a function with the same values.

A call compares nothing afterwards. So the difference is the cost of detecting changes, and of the cell itself.
"""

import importlib.util
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks.arrays import MB
from benchmarks.cell import problem_of
from benchmarks.figure import Aim, Figure, best, interleave, median
from benchmarks.settings import Settings
from skyward.functions.decorator import function

__all__ = ["figures"]


@function
def held(values: Any) -> int:
    """Return the number of values."""
    return len(values)


def _arrays(count: int, megabytes: int) -> list[Any]:
    import numpy

    return [numpy.full(megabytes * MB, number % 251, dtype=numpy.uint8) for number in range(count)]


def figures(settings: Settings) -> Iterator[Figure]:
    """Return the milliseconds of a cell whose values its node has, and of a call with the same values."""
    if importlib.util.find_spec("IPython") is None:
        yield Figure("a cell that changes nothing", "ms", None, note="IPython is not installed")
        return
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    if shell.history_manager is not None:
        shell.history_manager.enabled = False
    size = 10 if settings.quick else 100
    kinds: dict[str, Callable[[], Any]] = {
        f"10 arrays of {size} MB": lambda: _arrays(10, size),
        f"{5 * size} arrays of 2 MB": lambda: _arrays(5 * size, 2),
        "a list of 1,000,000 floats": lambda: [float(number) for number in range(1_000_000)],
        "a dict of 200,000 small lists": lambda: {number: [number] for number in range(200_000)},
    }
    try:
        for start in ("%load_ext skyward", "pool = %sky up --nodes 1", "%%sky\nimport numpy"):
            _run(shell, start)
        for name, make in kinds.items():
            shell.user_ns["values"] = make()
            yield _figure(shell, name, 3 if settings.quick else 7)
            shell.user_ns["values"] = None
    finally:
        problem_of(shell, "%sky down")


def _figure(shell: Any, name: str, rounds: int) -> Figure:
    pool, values = shell.user_ns["pool"], shell.user_ns["values"]
    cell: Callable[[], object] = partial(_run, shell, "%%sky\ncount = len(values)")
    call: Callable[[], object] = lambda: held(values) >> pool  # noqa: E731  # both are timed alike
    ours, floor = interleave([cell, call], 1, rounds)
    return Figure(
        f"a cell with {name}, none changed",
        "ms",
        median(ours) * 1e3,
        median(floor) * 1e3,
        "a call with the same",
        quiet=best(ours) / best(floor),
        aim=Aim("ratio", 2.0),
    )


def _run(shell: Any, source: str) -> None:
    if problem := problem_of(shell, source):
        raise RuntimeError(problem)
