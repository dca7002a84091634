"""A large kept value, compared with the same value sent for each cell that uses it."""

import importlib.util
from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.arrays import MB
from benchmarks.cell import problem_of
from benchmarks.figure import Aim, Figure, timed
from benchmarks.settings import Settings

__all__ = ["figures"]

CELLS = 10
MAKE = "import numpy\nvalues = numpy.random.default_rng(0).integers(0, 256, {nbytes}, dtype=numpy.uint8)"
READ, CHANGE = "total = int(values[::4096].sum())", "values += 1"


def figures(settings: Settings) -> Iterator[Figure]:
    """Return the seconds of ten cells that use an array: kept on the node, and sent from the notebook."""
    if importlib.util.find_spec("IPython") is None:
        yield Figure(f"an array used by {CELLS} cells, `--keep`", "s", None, note="IPython is not installed")
        return
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    if shell.history_manager is not None:
        shell.history_manager.enabled = False
    try:
        for start in ("%load_ext skyward", "%sky up --nodes 1", "%%sky\nimport numpy"):
            _run(shell, start)
        yield _figure(shell, "read", READ, 100 if settings.quick else 1000)
        yield _figure(shell, "changed", CHANGE, 100 if settings.quick else 250)
    finally:
        problem_of(shell, "%sky down")


def _figure(shell: Any, what: str, use: str, megabytes: int) -> Figure:
    make = MAKE.format(nbytes=megabytes * MB)
    _run(shell, f"%%sky --keep values\n{make}")
    kept = timed(partial(_cells, shell, use))
    _run(shell, f"del values\n{make}")
    sent = timed(partial(_cells, shell, use))
    _run(shell, "del values")
    name = f"{megabytes:,} MB {what} by {CELLS} cells, `--keep`"
    return Figure(name, "s", kept, sent, "sent from the notebook", aim=Aim("ratio", 1.0))


def _cells(shell: Any, use: str) -> None:
    for _ in range(CELLS):
        _run(shell, f"%%sky\n{use}")


def _run(shell: Any, source: str) -> None:
    if problem := problem_of(shell, source):
        raise RuntimeError(problem)
