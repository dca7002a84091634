"""Comparison of policies: runs scenarios in parallel processes."""

import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING

from skyward.simulator.measures import Result
from skyward.simulator.runner import simulate
from skyward.simulator.scenario import Scenario

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

__all__ = ["RunProgress", "compare"]

REPORT_EVERY = 0.2
"""Seconds between reports of the progress of a run."""


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Progress of one scenario.

    Attributes:
        place: its place in the sequence.
        ended, tasks: numbers of tasks that have ended, and of all tasks.
        result: its result, once it is there.
    """

    place: int
    ended: int
    tasks: int
    result: Result | None = None


type _Listener = Callable[[RunProgress], None]


def compare(
    scenarios: Sequence[Scenario], listener: _Listener | None = None, processes: int | None = None
) -> list[Result]:
    """Return the results of the scenarios, in their order.

    Args:
        listener: called now and then with the progress of a run, and with each result as it arrives.
        processes: maximum; None for the number of cores. One scenario, or one process, runs in this process.

    Raises:
        RuntimeError: a process ended without a result, for example because the memory was exhausted.
    """
    processes = min(len(scenarios), processes or os.cpu_count() or 1)
    if processes > 1:
        return _in_processes(scenarios, listener or _ignore, processes)
    return [_run(place, scenario, listener or _ignore) for place, scenario in enumerate(scenarios)]


def _ignore(progress: RunProgress) -> None:
    pass


def _run(place: int, scenario: Scenario, listener: _Listener) -> Result:
    reported = time.monotonic()

    def report(ended: int, tasks: int) -> None:
        nonlocal reported
        if time.monotonic() - reported > REPORT_EVERY:
            reported = time.monotonic()
            listener(RunProgress(place, ended, tasks))

    result = simulate(scenario, report)
    listener(RunProgress(place, result.tasks, result.tasks, result))
    return result


def _in_processes(scenarios: Sequence[Scenario], listener: _Listener, count: int) -> list[Result]:
    """Run the scenarios in `count` processes, each of which gets the next one when it is done.

    The processes are connected by pipes alone, and are terminated whatever happens: a pool of `multiprocessing` leaves
    semaphores and tracebacks behind at an interrupt.
    """
    waiting = deque(enumerate(scenarios))
    results: dict[int, Result] = {}
    context = multiprocessing.get_context("spawn")
    running: dict[Connection, SpawnProcess] = {}
    # Blocked while they start, and for good in them: the interrupt of a terminal is for this process.
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            running[ours] = process
            theirs.close()
            ours.send(waiting.popleft())
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        while len(results) < len(scenarios):
            for connection in wait(list(running)):
                assert isinstance(connection, Connection)
                try:
                    progress = connection.recv()
                except EOFError:
                    running[connection].join()
                    code = running[connection].exitcode
                    raise RuntimeError(
                        f"a process of the simulator ended with status {code} before its result"
                    ) from None
                if isinstance(progress, BaseException):
                    raise progress
                if progress.result is not None:
                    results[progress.place] = progress.result
                    if waiting:
                        connection.send(waiting.popleft())
                    else:
                        connection.send(None)
                        running.pop(connection).join()
                listener(progress)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.join()
    return [results[place] for place in range(len(scenarios))]


def _serve(connection: Connection) -> None:
    """Run scenarios for another process until it sends None, or ends."""
    try:
        while (given := connection.recv()) is not None:
            place, scenario = given
            _run(place, scenario, connection.send)
    except (EOFError, BrokenPipeError):
        return
    except Exception as error:
        connection.send(error)
