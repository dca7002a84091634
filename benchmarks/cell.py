"""Figure 7: overhead of `%%sky` for a cell."""

import contextlib
import importlib.util
import io
import logging
from collections.abc import Iterator
from typing import Any

from benchmarks.figure import Aim, Figure, Peer, interleave, median
from benchmarks.settings import Settings

__all__ = ["figures", "problem_of"]

NAME = "`%%sky` around `1+1`, over the bare cell"
BARE, SKY, PX = "1+1", "%%sky\n1+1", "%%px --block\n1+1"
AIM = Aim("value", 15)


def figures(settings: Settings) -> Iterator[Figure]:
    """Return the milliseconds over the same cell without the magic, in a real IPython shell."""
    if importlib.util.find_spec("IPython") is None:
        yield Figure(NAME, "ms", None, aim=AIM, note="IPython is not installed")
        return
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    if shell.history_manager is not None:
        shell.history_manager.enabled = False
    problem = problem_of(shell, "%load_ext skyward") or problem_of(shell, SKY)
    if problem:
        yield Figure(NAME, "ms", None, aim=AIM, note=problem)
        return
    try:
        bare, sky = _times(shell, SKY, 5 if settings.quick else 15)
    finally:
        problem_of(shell, "%sky down")
    over = (median(sky) - median(bare)) * 1e3
    floor = f"bare cell: {median(bare) * 1e3:.3g} ms"
    peers = _peers(shell) if settings.peers else ()
    yield Figure(NAME, "ms", over, floor_name=floor, aim=AIM, peers=peers)


def _times(shell: Any, source: str, rounds: int) -> list[list[float]]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return interleave([lambda: shell.run_cell(BARE), lambda: shell.run_cell(source)], 10, rounds)


def problem_of(shell: Any, source: str) -> str:
    """Run a cell; return its error, or an empty string."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        outcome = shell.run_cell(source)
    error = outcome.error_before_exec or outcome.error_in_exec
    return f"{type(error).__name__}: {str(error).splitlines()[0][:100]}" if error is not None else ""


def _peers(shell: Any) -> list[Peer]:
    if importlib.util.find_spec("ipyparallel") is None:
        return [Peer("ipyparallel %%px", None, "not installed")]
    import ipyparallel

    with (
        contextlib.redirect_stderr(io.StringIO()),
        ipyparallel.Cluster(n=1, log_level=logging.ERROR) as client,
    ):
        client[:].activate()
        problem = problem_of(shell, PX)
        if problem:
            return [Peer("ipyparallel %%px", None, problem)]
        bare, px = _times(shell, PX, 5)
    return [Peer("ipyparallel %%px", (median(px) - median(bare)) * 1e3)]
