"""A cell in the background."""

from collections.abc import Generator, Iterable
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from skyward.process.thread_events import ThreadEvent
from skyward.views.tables import table
from skyward_jupyter.failures.presentation import interrupted, presented

if TYPE_CHECKING:
    from skyward_jupyter.display.recorder import OutputRecorder
    from skyward_jupyter.display.sections import NodeSections
    from skyward_jupyter.running.cell_run import CellRun
    from skyward_jupyter.running.status_line import StatusLine

__all__ = ["CellHandle", "Status", "cell_table"]

type Status = Literal["queued", "running", "done", "failed", "cancelled"]


class CellHandle:
    """A cell that runs in the background, as `%%sky --noblock` gives it. It can be awaited, too.

    The notebook's variables change when `result()` is called, and not before.

    Attributes:
        number: its number in `%sky status`, which `%sky cancel` and `%sky show` take.
        pool: name of its pool.
        code: its first line.
        tape: what it has put out.
        line: shows how far it is, and what came of it; None where a display cannot change any more, as in a terminal.
    """

    def __init__(
        self,
        sent: "CellRun",
        number: int,
        pool: str,
        code: str,
        grace: float,
        tape: "OutputRecorder | NodeSections | None" = None,
    ) -> None:
        self.number = number
        self.pool = pool
        self.code = code
        self.tape = tape
        self.line: StatusLine | None = None
        self._sent = sent
        self._grace = grace
        self._lock = Lock()
        self._collected = False
        self._value: Any = None
        self._error: BaseException | None = None

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the cell, and bind its variables in the notebook; with `--map`, the list of its last expressions.

        Interrupting it stops the wait only; `cancel()` stops the work.

        Raises:
            TimeoutError: it was not over after `timeout` seconds. It goes on.
            TaskError: it did not end by itself.
            BaseException: what the cell raised; what it had bound by then is bound here.
        """
        with presented():
            try:
                over = self._sent.wait(timeout)
            except KeyboardInterrupt:
                raise interrupted("the cell goes on in the background; .cancel() stops it.") from None
            if not over:
                raise TimeoutError(f"The cell is not over after {timeout:g} s: wait longer, or .cancel() it.")
            with self._lock:
                if not self._collected:
                    try:
                        self._value = self._sent.collect()
                    except KeyboardInterrupt:
                        raise  # what is not bound yet is bound the next time
                    except BaseException as error:
                        self._error = error
                    self._collected = True
            if self.line is not None:
                self.line.confirm()
            if self._error is not None:
                raise self._error
            return self._value

    def __await__(self) -> Generator[Any, None, Any]:
        """As `result()`, while the notebook's own tasks go on. Cancelling the wait leaves the work alone."""
        return self._over().__await__()

    async def _over(self) -> Any:
        bell = ThreadEvent()
        for run in self._sent.runs:
            run.future.add_done_callback(bell.ring)
        await bell.until(self.done)
        return self.result()

    def cancel(self) -> str:
        """Stop the work on its nodes; a sentence on how that went. `result()` binds what it had assigned by then."""
        return self._sent.stop(self._grace).text(is_final=False)

    def done(self) -> bool:
        """Whether the work is over."""
        return self._sent.done == len(self._sent.runs)

    @property
    def progress(self) -> tuple[int, int]:
        """How many runs are over, and how many there are."""
        return self._sent.done, len(self._sent.runs)

    @property
    def amount(self) -> str:
        """How much has come of it so far, where it yields; empty otherwise."""
        return ""

    @property
    def status(self) -> Status:
        """How far the work is."""
        states = {run.state for run in self._sent.runs}
        for state in ("running", "queued", "cancelled", "failed"):
            if state in states:
                return "running" if state == "queued" and len(states) > 1 else state
        return "failed" if self._error is not None else "done"

    def _ipython_display_(self) -> None:
        if self.line is None:
            raise NotImplementedError  # IPython shows it as anything else then
        self.line.show()

    def __repr__(self) -> str:
        return f"<CellHandle: %%sky in the background on pool {self.pool!r}; .result() waits for it>"


def cell_table(cells: Iterable[CellHandle]) -> str:
    """One line for each cell in the background."""
    return table(
        ("cell", "status", "pool", "code"),
        ((cell.number, ", ".join(filter(None, (cell.status, cell.amount))), cell.pool, cell.code) for cell in cells),
    )
