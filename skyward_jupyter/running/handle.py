"""A cell in the background."""

from collections.abc import Generator
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from skyward.frontends.calls import ThreadEvent
from skyward_jupyter.failures.presentation import interrupted, short_errors

if TYPE_CHECKING:
    from skyward_jupyter.display.recorder import OutputRecorder
    from skyward_jupyter.display.sections import NodeSections
    from skyward_jupyter.running.cell_run import CellRun
    from skyward_jupyter.running.status_line import StatusLine

__all__ = ["CellHandle", "CellStatus"]

type CellStatus = Literal["queued", "running", "done", "failed", "cancelled"]


class CellHandle:
    """A cell that runs in the background, as returned by `%%sky --noblock`. It can be awaited, too.

    The notebook's variables change only when `result()` is called.

    Attributes:
        number: its number in `%sky status`, for `%sky cancel` and `%sky show`.
        pool: name of its pool.
        code: its first line.
        recorder: its recorded output.
        line: displays its progress and outcome; None if a display cannot be updated, as in a terminal.
    """

    _waits = ".result() waits for it"

    def __init__(
        self,
        sent: "CellRun",
        number: int,
        pool: str,
        code: str,
        grace: float,
        recorder: "OutputRecorder | NodeSections | None" = None,
    ) -> None:
        self.number = number
        self.pool = pool
        self.code = code
        self.recorder = recorder
        self.line: StatusLine | None = None
        self._sent = sent
        self._grace = grace
        self._lock = Lock()
        self._collected = False
        self._value: Any = None
        self._error: BaseException | None = None

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the cell, bind its variables, and return its value; with `--map`, the list of values.

        Interrupting it only stops the wait; `cancel()` stops the work.

        Raises:
            TimeoutError: the cell has not finished after `timeout` seconds. It keeps running.
            TaskError: the cell was stopped, or its node was lost.
            BaseException: the exception of the cell; the names that it had bound by then are bound here.
        """
        with short_errors():
            try:
                over = self._sent.wait(timeout)
            except KeyboardInterrupt:
                raise interrupted("the cell keeps running in the background; .cancel() stops it.") from None
            if not over:
                raise TimeoutError(f"The cell has not finished after {timeout:g} s: wait longer, or .cancel() it.")
            with self._lock:
                if not self._collected:
                    try:
                        self._value = self._sent.collect()
                    except KeyboardInterrupt:
                        raise  # the next call binds the rest
                    except BaseException as error:
                        self._error = error
                    self._collected = True
            if self.line is not None:
                self.line.confirm()
            if self._error is not None:
                raise self._error
            return self._value

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait like `result()`, without blocking the event loop. Cancelling the wait does not stop the work."""
        return self._over().__await__()

    async def _over(self) -> Any:
        finished = ThreadEvent()
        for run in self._sent.runs:
            run.future.add_done_callback(finished.notify)
        await finished.wait_for(self.done)
        return self.result()

    def cancel(self) -> str:
        """Stop the work, and return a sentence on the outcome. `result()` binds what the cell had assigned by then."""
        return self._sent.stop(self._grace).text(is_final=False)

    def done(self) -> bool:
        """Return whether the cell has finished."""
        return self._sent.done == len(self._sent.runs)

    @property
    def progress(self) -> tuple[int, int]:
        """The number of finished runs, and the number of all runs."""
        return self._sent.done, len(self._sent.runs)

    @property
    def amount(self) -> str:
        """The number of elements so far, in words; empty for a cell that does not yield."""
        return ""

    @property
    def status(self) -> CellStatus:
        """The state of the cell."""
        states = {run.state for run in self._sent.runs}
        for state in ("running", "queued", "cancelled", "failed"):
            if state in states:
                return "running" if state == "queued" and len(states) > 1 else state
        return "failed" if self._error is not None else "done"

    def _ipython_display_(self) -> None:
        if self.line is None:
            raise NotImplementedError  # IPython falls back to the repr
        self.line.show()

    @property
    def remaining(self) -> str:
        """The effect that `result()` would have on a cell that has ended, as a phrase; empty once it was called."""
        if self._collected:
            return ""
        if not any(run.has_state for run in self._sent.runs):
            return ".result() raises its error; no variables were returned"
        return ".result() binds its variables" + ("" if self.status == "done" else " and raises its error")

    def __repr__(self) -> str:
        done, total = self.progress
        progress = f"{done} of {total} runs done" if done < total > 1 else ""
        waits = self._waits if done < total else self.remaining
        state = ", ".join(filter(None, (self.status, progress, self.amount)))
        text = "; ".join(filter(None, (state, waits)))
        return f"<{type(self).__name__}: %%sky in the background on pool {self.pool!r}: {text}>"
