"""Stopping of runs whose caller is interrupted while it waits for them."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from typing import Any

from skyward.control.act.tasks import stopping as task_stopping
from skyward.control.act.tasks.run import Run
from skyward.formatting import asked_to_stop, nodes_text

__all__ = ["stopping"]


@contextmanager
def stopping(runs: list[Run[Any]]) -> Iterator[None]:
    """Stop `runs` if the block raises an error or is interrupted.

    The block fills the list, which is empty afterwards: a frame of the traceback that refers to a future, and so to
    the error, would form a cycle that keeps a stream open, and its slot busy, until the next garbage collection.
    """
    __tracebackhide__ = True
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_stop(runs)) from None
    except BaseException:
        task_stopping.stop_all(runs)
        raise
    finally:
        runs.clear()


def _stop(runs: Sequence[Run[Any]]) -> str:
    """Stop unfinished runs, wait briefly for the nodes to confirm, and return a sentence about the outcome."""
    asked = task_stopping.stop_all(runs)
    try:
        running = asked.result()
        wait([run.future for run in running], task_stopping.GRACE)
    except KeyboardInterrupt:
        running = [run for run in runs if not run.future.done() or run.future.cancelled()]
    if not running and any(run.nodes for run in runs):
        return "the work had ended"
    if waiting := _ranks(run for run in running if not run.future.done()):
        return asked_to_stop(waiting)
    ranks = _ranks(running)
    return f"the work on {nodes_text(ranks)} was stopped" if ranks else "the work was not started"


def _ranks(runs: Iterable[Run[Any]]) -> set[int]:
    return {rank for run in runs for rank in run.nodes}
