"""Progress of a simulation on a terminal."""

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from skyward.simulator import Scenario
    from skyward.simulator.compare import RunProgress

__all__ = ["progress_of"]


@contextmanager
def progress_of(scenarios: "Sequence[Scenario]") -> "Iterator[Callable[[RunProgress], None] | None]":
    """Show a bar for each run on standard error while they last; yield its listener, or None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        bars = [shown.add_task(scenario.policy_name, total=None, start=False) for scenario in scenarios]

        def listener(progress: "RunProgress") -> None:
            bar = bars[progress.place]
            shown.start_task(bar)
            shown.update(bar, completed=progress.ended, total=progress.tasks)
            if progress.result is not None:
                shown.stop_task(bar)

        yield listener
