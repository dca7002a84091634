"""A cell that was sent: waiting for it, stopping it, and binding its results."""

from collections.abc import Callable, Sequence
from concurrent.futures import wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from skyward.errors import (
    BudgetExhaustedError,
    NodeErrors,
    SkywardError,
    TaskCancelledError,
    TaskError,
    TaskTimeoutError,
)
from skyward.frontends.cells import CellResult, ReturnedState, capture_failure
from skyward.frontends.files import Shape
from skyward_jupyter.cells.originals import Originals
from skyward_jupyter.failures.notes import note_node, note_other_failures
from skyward_jupyter.failures.presentation import first_error, for_cells
from skyward_jupyter.running.results import AppliedCell, apply_result, apply_results, stream_items
from skyward_jupyter.running.stopping import StopOutcome, bind_remains, returned_clause, stop_runs, was_cancelled

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from concurrent.futures import Future

    from skyward.frontends.files import FileTransfer
    from skyward.frontends.pools import Run

__all__ = ["CellRun"]


@dataclass(frozen=True)
class CellRun:
    """The runs of one cell.

    Attributes:
        runs: one run, or with `--map` one for each element.
        shape: the kind of runs.
        user_ns: the names of the notebook.
        notify: shows a sentence to the user.
        finish: called once the output of the cell is complete.
        originals: the captured objects.
        names_node: add a note with the node to an error, because nothing else names it.
        files: the files of the cell, if it has any.
        is_gang: True for the runs of a gang, of which the first that fails stops the others.
        streams: the streams of a cell that yields, once they are read.
    """

    runs: "Sequence[Run[Any]]"
    shape: Shape
    user_ns: dict[str, Any]
    notify: Callable[[str], None]
    finish: Callable[[], object]
    originals: Originals = field(default_factory=Originals)
    names_node: bool = False
    files: "FileTransfer | None" = None
    is_gang: bool = False
    streams: list[Any] = field(default_factory=list, repr=False)

    def release_when_done(self) -> None:
        """Release the captured objects as soon as possible, even if the result is never collected."""
        if self.shape != "single":
            self.originals.release()  # each run changes its own copies
            return

        def over(future: "Future[CellResult]") -> None:
            if not (future.cancelled() or future.exception()):
                state = future.result().state
                if state.graph is None and not state.deleted:
                    self.originals.release()

        for run in self.runs:
            run.future.add_done_callback(over)

    @property
    def done(self) -> int:
        """The number of finished runs."""
        return sum(run.future.done() for run in self.runs)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every run has finished; return whether they have."""
        return not wait([run.future for run in self.runs], timeout).not_done

    def items(self) -> "Iterator[Any]":
        """Yield the elements of a cell that yields, as they arrive, and bind its names after the last one.

        Raises:
            VolumeError: files that it wrote to a volume could not be uploaded.
            BaseException: the exception of the cell.
        """
        (run,) = self.runs
        try:
            with self._using_originals():
                try:
                    stream = run.items()
                    self.streams.append(stream)  # keeps it alive: dropping it at an interrupt would cancel the work
                    items = self._with_files(stream)
                    yield from stream_items(items, self.user_ns, self.originals, self.notify)
                except TaskError as error:
                    self._note_remains(error)
                    raise for_cells(error) from None
        except Exception as error:
            self._name_node(error)
            self._explain(error)
            self._note_unsaved(error)
            raise
        finally:
            self.finish()
        self._check_saved(None)

    def collect(self) -> Any:
        """Bind the results of the cell, and return the value of its last expression; a list for several runs.

        Raises:
            TaskError: the cell was stopped, or its node was lost.
            VolumeError: files that it wrote to a volume could not be uploaded; its names are bound here.
            BaseException: the exception of the cell; the names that it had bound by then are bound here.
        """
        self.finish()
        try:
            with self._using_originals():
                outcome = self._apply()
        except TaskError as error:
            raise for_cells(error) from error.__cause__
        except BaseException as error:
            self._explain(error)
            raise
        for notice in outcome.notices:
            self.notify(notice)
        self._check_saved(outcome.value)
        return outcome.value

    def stop(self, grace: float, shown: AbstractContextManager[object] | None = None) -> StopOutcome:
        """Stop the work, and wait for its remains; see `stop_runs`."""
        stop = stop_runs(self.runs, grace, nullcontext() if shown is None else shown)
        self.finish()
        return stop

    def bind_after_stop(self, stop: StopOutcome) -> str:
        """Bind the remains of a stopped cell, and return a sentence on the outcome."""
        when = "at its end" if stop.was_over else "then"
        with self._using_originals():
            names, raised = self._bind_remains()
            self._report(raised)
            for node, unsaved in self._unsaved().items():
                self.notify(f"On node {node}, {unsaved}.")
            return stop.text(returned_clause(names, as_lists=self.shape != "single", when=when))

    @contextmanager
    def _using_originals(self) -> "Iterator[None]":
        """Release the originals at the end, unless it is interrupted, because `bind_after_stop` needs them."""
        try:
            yield
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException:
            self._release()
            raise
        self._release()

    def _release(self) -> None:
        """Release the captured objects and kept values, once the results are bound."""
        from skyward.frontends.pools import release_kept  # loads the engine, so it is imported late

        self.originals.release()
        for run in self.runs:
            release_kept(run)

    def _report(self, raised: BaseException | None) -> None:
        """Show what a run had raised before the cell was stopped."""
        if raised is not None:
            subject = "The cell" if self.shape == "single" else "A run"
            for notice in (
                f"{subject} had raised {type(raised).__name__}: {raised}",
                *getattr(raised, "__notes__", ()),
            ):
                self.notify(notice)

    def _note_remains(self, error: BaseException) -> BaseException:
        """Bind the remains of a stopped or lost cell, and return the error to raise.

        That is `error`, with a note on the remains, or what a run of a collective raised, for which the others were
        stopped.
        """
        as_lists = self.shape != "single"
        names, raised = self._bind_remains()
        if raised is not None and as_lists and isinstance(error, TaskCancelledError):
            return raised
        self._report(raised)
        failed = any(each.error is not None for run in self.runs for each in run.remains())
        if returned := returned_clause(names, as_lists=as_lists, failed=failed, when="when the cell was stopped"):
            error.add_note(f"{returned}.")
        elif isinstance(error, (BudgetExhaustedError, TaskCancelledError, TaskTimeoutError)) and any(
            each.is_lost for run in self.runs for each in run.remains()
        ):
            error.add_note("The variables of the cell were not returned.")
        self._note_unsaved(error)
        return error

    def _bind_remains(self) -> tuple[list[str], BaseException | None]:
        remains = [each for run in self.runs for each in run.remains()]
        as_lists, joins = self.shape != "single", self.shape == "all"
        bound = bind_remains(remains, self.user_ns, self.originals, self.notify, as_lists=as_lists, joins=joins)
        nothing = CellResult(ReturnedState())  # keeps the positions of runs, which are in the names of their files
        self._write_files([each.value if isinstance(each.value, CellResult) else nothing for each in remains])
        return bound

    def _apply(self) -> AppliedCell:
        failed: BaseException | None = None
        try:
            results = self._results()
        except (SkywardError, NodeErrors) as error:
            failed = self._note_remains(first_error(error))
        if failed is not None:  # raised here, because a group in its context is displayed like a group
            raise failed from failed.__cause__
        try:
            if self.shape == "single":
                return apply_result(results[0], self.user_ns, self.originals)
            return apply_results(results, self.user_ns, joins=self.shape == "all")
        except BaseException as error:
            if self.shape != "single":
                note_other_failures(error, results)
            elif isinstance(error, Exception):
                self._name_node(error)
            self._note_unsaved(error)
            raise
        finally:
            self._write_files(results)

    def _unsaved(self) -> dict[int, str]:
        """Return by node, as a sentence, the files of volumes that the runs wrote and that could not be uploaded."""
        return {node: unsaved for run in self.runs for node, unsaved in run.unsaved}

    def _note_unsaved(self, error: BaseException) -> None:
        """Add notes to an error of the cell about files that could not be uploaded either."""
        from skyward.frontends.pools import note_unsaved  # loads the engine, so it is imported late

        for node, unsaved in self._unsaved().items():
            note_unsaved(error, unsaved, "" if self.shape == "single" else f" on node {node},")

    def _check_saved(self, value: object) -> None:
        """Check that the files of a cell without an error are in their volumes. `value`: of its last expression.

        Raises:
            VolumeError: some could not be uploaded.
        """
        from skyward.frontends.pools import unsaved_error  # loads the engine, so it is imported late

        if not (found := self._unsaved()):
            return
        (first, of_first), *others = found.items()
        returned = "The variables of the cell were returned."
        error = unsaved_error("The cell", f" on node {first}", of_first, lambda: value, returned)
        for node, unsaved in others:
            error.add_note(f"On node {node}, {unsaved}.")
        raise error

    def _write_files(self, results: "Sequence[CellResult]") -> None:
        if self.files is not None:
            self.files.write_results(results)

    def _with_files(self, items: "Iterator[Any]") -> "Generator[Any, None, CellResult]":
        """Yield the elements of a cell that yields, and write its files at the end."""
        while (
            True
        ):  # not `yield from`, which would close `items` when the reader is interrupted: `bind_after_stop` needs it
            try:
                item = next(items)
            except StopIteration as end:
                result: CellResult = end.value
                self._write_files([result])
                return result
            yield item

    def _explain(self, error: BaseException) -> None:
        if self.files is not None:
            self.files.explain(error)

    def _results(self) -> list[CellResult]:
        """Return the results of the runs.

        Raises:
            TaskError: the cell was stopped or lost; with `--map`, it was cancelled. For a gang, it is the error for
                which the other runs were cancelled.
        """
        match self.shape:
            case "single":
                return [self.runs[0].future.result()]
            case "all":
                results: list[CellResult] = self.runs[0].future.result()
                return results
            case "map":
                unfinished = filter(_has_no_result if self.is_gang else was_cancelled, self.runs)
                for run in sorted(unfinished, key=was_cancelled):
                    run.future.result()  # raises
                return [_result(run) for run in self.runs]

    def _name_node(self, error: BaseException) -> None:
        if self.names_node and not isinstance(error, SkywardError):  # these name it themselves
            note_node(error, self.runs[0].nodes[-1])


def _has_no_result(run: "Run[CellResult]") -> bool:
    return was_cancelled(run) or run.future.exception() is not None


def _result(run: "Run[CellResult]") -> CellResult:
    """Return the result of one run of several. A stopped or lost run counts as failed; the others keep their values."""
    try:
        return run.future.result()
    except SkywardError as error:
        return CellResult(ReturnedState(), capture_failure(for_cells(error)), run.nodes[-1] if run.nodes else 0)
