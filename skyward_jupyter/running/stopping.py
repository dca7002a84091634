"""Stopping a cell: waiting for its nodes, binding the variables that it had assigned, and describing the outcome."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skyward.errors import TaskCancelledError
from skyward.frontends.calls import stop_all
from skyward.frontends.cells import CellResult, ReturnedState
from skyward.frontends.views import WORK_ENDED, asked_to_stop, joined, nodes_text, size_text
from skyward_jupyter.cells.originals import Originals
from skyward_jupyter.failures.presentation import for_cells
from skyward_jupyter.running.results import apply_result, apply_results

if TYPE_CHECKING:
    from skyward.frontends.pools import Run, TaskOutcome

__all__ = ["StopOutcome", "bind_remains", "returned_clause", "stop_runs", "stopping_text", "was_cancelled"]

_MARGIN = 1.0
"""Seconds beyond the grace of a cell for the message that it was killed."""

_POLL_INTERVAL = 0.1
"""Seconds between polls for the remains of a cell."""


@dataclass(frozen=True, slots=True)
class StopOutcome:
    """The outcome of stopping the runs of a cell.

    Attributes:
        was_over: True if all runs had finished before.
        ended: True if every run ended by itself after the request.
        stopped: ranks of the nodes that have stopped the work.
        waiting: ranks of the nodes that have not confirmed it.
        lost: ranks of the nodes whose variables are lost.
        gave_up: True if the user stopped waiting while variables were packed or transferred.
        within: the time that the nodes had, in words.
    """

    was_over: bool
    ended: bool
    stopped: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    gave_up: bool = False
    within: str = ""

    def text(self, returned: str = "", *, is_final: bool = True) -> str:
        """Return a sentence on the outcome.

        Args:
            returned: a clause on the variables that were returned.
            is_final: True if everything that has not arrived is discarded.
        """
        parts = []
        if self.was_over:
            parts.append(WORK_ENDED)
        if self.gave_up:
            left = "were not fetched" if is_final else "are still being fetched"
            parts.append(f"the work on {nodes_text(self.waiting)} was stopped")
            parts.append(f"the cell's variables there {left}")
        elif self.waiting:
            asked = asked_to_stop(self.waiting, self.within)
            parts.append(f"{asked}: the cell's variables there were discarded" if is_final else asked)
        if self.stopped:
            parts.append(f"the work on {nodes_text(self.stopped)} was stopped")
        if returned:
            parts.append(returned)
        if self.lost:
            parts.append(f"the cell's variables on {nodes_text(self.lost)} were not returned")
        return f"{'; '.join(parts) or 'the work had not started on any node'}."


def stop_runs(runs: "Sequence[Run[Any]]", grace: float, shown: AbstractContextManager[object]) -> StopOutcome:
    """Stop the runs, and wait up to `grace` seconds for the nodes to stop, and for their remains.

    Large values may take longer to arrive: they are waited for, unless the user interrupts again.

    Args:
        shown: a context manager that is entered during the wait.
    """
    asked, stopping = stop_all(runs), list(runs)
    gave_up = False
    try:
        stopping = asked.result()
        if not stopping:
            return StopOutcome(was_over=True, ended=False)
        with shown:
            _wait_for(stopping, grace + _MARGIN if grace else 0.0)
    except KeyboardInterrupt:
        gave_up = True
    remains = [each for run in stopping for each in run.remains() if each.node is not None]
    waiting = _ranks(each for each in remains if not each.is_over)
    return StopOutcome(
        was_over=False,
        ended=not waiting and not any(map(was_cancelled, runs)),
        stopped=tuple(rank for rank in _ranks(remains) if rank not in waiting),
        waiting=waiting,
        lost=_ranks(each for each in remains if each.is_lost),
        gave_up=gave_up and any(run.is_leaving for run in stopping),
        within="yet" if gave_up or not grace else f"within {grace:g} s",
    )


def _wait_for(runs: "Sequence[Run[Any]]", seconds: float) -> None:
    futures = [run.future for run in runs]
    left = wait(futures, seconds).not_done
    while left and any(run.is_leaving for run in runs):
        left = wait(futures, _POLL_INTERVAL).not_done


def stopping_text(runs: "Sequence[Run[Any]]", grace: float) -> Callable[[], str]:
    """Return a function that returns the text to show while a cell is being stopped."""

    def text() -> str:
        if any(run.is_leaving for run in runs):
            bytes_in_transfer = sum(run.bytes_in_transfer for run in runs)
            size = f" ({size_text(bytes_in_transfer)})" if bytes_in_transfer else ""
            return f"Fetching the variables of the cell{size}; interrupt again to skip this"
        return f"Stopping the work; the variables of the cell are returned if it ends within {grace:g} s"

    return text


def bind_remains(
    remains: "Sequence[TaskOutcome]",
    user_ns: dict[str, Any],
    originals: Originals,
    notify: Callable[[str], None],
    *,
    as_lists: bool,
    joins: bool = False,
) -> tuple[list[str], BaseException | None]:
    """Bind the results or remains of runs; in the lists of several runs, a run without any has its error, or None.

    Returns:
        The names of returned values, other than functions and classes, and what a run raised before it was stopped.
    """
    raised: BaseException | None = None
    notices: Sequence[str] = ()
    values = [each.value for each in remains]
    if not any(isinstance(value, CellResult) for value in values):
        return [], None
    results = [
        value if isinstance(value, CellResult) else CellResult(ReturnedState(), node=each.node or 0)
        for value, each in zip(values, remains, strict=True)
    ]
    try:
        if as_lists:
            errors = {number: for_cells(each.error) for number, each in enumerate(remains) if each.error is not None}
            outcome = apply_results(results, user_ns, joins=joins, errors=errors)
        else:
            outcome = apply_result(results[0], user_ns, originals)
        notices = outcome.notices
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raised = error
    for notice in notices:
        notify(notice)
    names = dict.fromkeys(_names(results, as_lists=as_lists))
    return [name for name in names if name in user_ns and not inspect.isroutine(user_ns[name])], raised


def _names(results: Iterable[CellResult], *, as_lists: bool) -> Iterable[str]:
    for result in results:
        state = result.state
        graph = () if state.graph is None else state.graph.names
        changed = () if as_lists else state.changed
        yield from (name for name in (*state.values, *graph, *changed) if name not in result.definitions)


def returned_clause(names: Sequence[str], *, as_lists: bool, failed: bool = False, when: str = "then") -> str:
    """Return a clause on the returned variables of a stopped cell; empty for none.

    Args:
        names: the returned variables.
        as_lists: they are lists, of the values of several runs.
        failed: a run has failed and left no variables, so that the lists have its error.
        when: time whose values were returned.
    """
    if not names:
        return ""
    which, were = joined(names, _NAMED), "was" if len(names) == 1 else "were"
    if as_lists:
        lists = "a list" if len(names) == 1 else "lists"
        instead = "the error of each run that failed" if failed else "None for each run without a value"
        return f"{which} {were} returned as {lists}, with {instead}"
    return f"{which} {were} returned as {'it was' if len(names) == 1 else 'they were'} {when}"


_NAMED = 5
"""Most variables that are named in a sentence."""


def was_cancelled(run: "Run[Any]") -> bool:
    """Return whether a run was stopped before it had ended."""
    future = run.future
    return future.cancelled() or (future.done() and isinstance(future.exception(), TaskCancelledError))


def _ranks(remains: "Iterable[TaskOutcome]") -> tuple[int, ...]:
    return tuple(sorted({each.node for each in remains if each.node is not None}))
