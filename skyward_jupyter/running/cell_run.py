"""A cell on its way: waiting for it, stopping it, and bringing home what it left."""

from collections.abc import Callable, Sequence
from concurrent.futures import wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from skyward.errors import SkywardError, TaskCancelledError, TaskError, TaskTimeoutError
from skyward.wire.failures.failure import capture_failure
from skyward.worker.cells.cell import CellResult
from skyward.worker.cells.returned_state import ReturnedState
from skyward_jupyter.cells.cell import Shape
from skyward_jupyter.cells.originals import Originals
from skyward_jupyter.failures.failures import tell_the_others, tell_where
from skyward_jupyter.failures.presentation import reworded
from skyward_jupyter.running.results import Outcome, apply_result, apply_results, stream_items
from skyward_jupyter.running.stopping import Stop, bind_remains, came_back, stop_runs, was_cancelled

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from concurrent.futures import Future

    from skyward.control.act.tasks.run import Run
    from skyward_jupyter.files.trip import Trip

__all__ = ["CellRun"]


@dataclass(frozen=True)
class CellRun:
    """The runs of one cell.

    Attributes:
        runs: one, or with `--map` one for each element.
        shape: how they make up the cell.
        user_ns: the names of the notebook.
        notify: takes a sentence for the user.
        finish: called once the output of the cell is complete.
        originals: the objects that the cell took along.
        names_node: whether an error of a cell that runs on one node names it, because nothing else does.
        files: the files of the cell, if it has any.
        streams: what gives the elements of a cell that yields, once they are asked for.
    """

    runs: "Sequence[Run[Any]]"
    shape: Shape
    user_ns: dict[str, Any]
    notify: Callable[[str], None]
    finish: Callable[[], object]
    originals: Originals = field(default_factory=Originals)
    names_node: bool = False
    files: "Trip | None" = None
    streams: list[Any] = field(default_factory=list, repr=False)

    def let_go_when_over(self) -> None:
        """Keep nothing of the notebook alive for a result that does not refer to it, should nobody ask for that."""
        if self.shape != "single":
            self.originals.release()  # each run changes copies of its own
            return

        def over(future: "Future[CellResult]") -> None:
            if not (future.cancelled() or future.exception()):
                harvest = future.result().harvest
                if harvest.together is None and not harvest.deleted:
                    self.originals.release()

        for run in self.runs:
            run.future.add_done_callback(over)

    @property
    def done(self) -> int:
        """How many runs are over."""
        return sum(run.future.done() for run in self.runs)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every run is over; whether they are."""
        return not wait([run.future for run in self.runs], timeout).not_done

    def items(self) -> "Iterator[Any]":
        """The elements of a cell that yields, as they arrive; its names are bound after the last one.

        Raises:
            BaseException: what the cell raised.
        """
        (run,) = self.runs
        try:
            with self._using_originals():
                try:
                    stream = run.items()
                    self.streams.append(stream)  # an interrupt would stop the work by dropping it, before `stop` does
                    items = self._with_files(stream)
                    yield from stream_items(items, self.user_ns, self.originals, self.notify)
                except TaskError as error:
                    self._tell_what_came(error)
                    raise reworded(error) from None
        except Exception as error:
            self._name_node(error)
            self._explain(error)
            raise
        finally:
            self.finish()

    def collect(self) -> Any:
        """Bind in the notebook what the cell left behind; the value of its last expression, of several runs a list.

        Raises:
            TaskError: it did not end by itself.
            BaseException: what the cell raised; what it had bound by then is bound here.
        """
        self.finish()
        try:
            with self._using_originals():
                outcome = self._apply()
        except TaskError as error:
            raise reworded(error) from error.__cause__
        except BaseException as error:
            self._explain(error)
            raise
        for notice in outcome.notices:
            self.notify(notice)
        return outcome.value

    def stop(self, grace: float, shown: AbstractContextManager[object] | None = None) -> Stop:
        """Stop the work, and wait for what it leaves; see `stop_runs`."""
        stop = stop_runs(self.runs, grace, nullcontext() if shown is None else shown)
        self.finish()
        return stop

    def salvage(self, stop: Stop) -> str:
        """Bind what there is of a cell that was stopped; a sentence on how that went and on what came back."""
        when = "at its end" if stop.was_over else "then"
        with self._using_originals():
            return stop.text(came_back(self._bind_remains(), as_lists=self.shape != "single", when=when))

    @contextmanager
    def _using_originals(self) -> "Iterator[None]":
        """The last use of the originals, unless it is interrupted: `salvage` needs them then."""
        try:
            yield
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException:
            self._release()
            raise
        self._release()

    def _release(self) -> None:
        """Keep nothing of the notebook, and of what nodes keep for it, alive: what came of the cell is bound."""
        self.originals.release()
        for run in self.runs:
            run.release_kept()

    def _tell_what_came(self, error: TaskError) -> None:
        """Bind what there is of a cell that did not end by itself, and add to `error` what came back."""
        as_lists = self.shape != "single"
        if came := came_back(self._bind_remains(), as_lists=as_lists, when="when the cell was stopped"):
            error.add_note(f"{came}.")
        elif isinstance(error, (TaskCancelledError, TaskTimeoutError)) and any(
            each.is_lost for run in self.runs for each in run.remains()
        ):
            error.add_note("What the cell had assigned did not come back.")

    def _bind_remains(self) -> list[str]:
        remains = [each for run in self.runs for each in run.remains()]
        as_lists, joins = self.shape != "single", self.shape == "all"
        names = bind_remains(remains, self.user_ns, self.originals, self.notify, as_lists=as_lists, joins=joins)
        nothing = CellResult(ReturnedState())  # the place of a run among the others is in the names of its files
        self._bring([each.value if isinstance(each.value, CellResult) else nothing for each in remains])
        return names

    def _apply(self) -> Outcome:
        try:
            results = self._results()
        except TaskError as error:
            self._tell_what_came(error)
            raise
        try:
            if self.shape == "single":
                return apply_result(results[0], self.user_ns, self.originals)
            return apply_results(results, self.user_ns, joins=self.shape == "all")
        except BaseException as error:
            if self.shape != "single":
                tell_the_others(error, results)
            elif isinstance(error, Exception):
                self._name_node(error)
            raise
        finally:
            self._bring(results)

    def _bring(self, results: "Sequence[CellResult]") -> None:
        if self.files is not None:
            self.files.arrive(results)

    def _with_files(self, items: "Iterator[Any]") -> "Generator[Any, None, CellResult]":
        """What a cell that yields gives; its files come home with its names."""
        while True:  # not `yield from`, which would close `items` when the reader is interrupted: `salvage` needs it
            try:
                item = next(items)
            except StopIteration as end:
                result: CellResult = end.value
                self._bring([result])
                return result
            yield item

    def _explain(self, error: BaseException) -> None:
        if self.files is not None:
            self.files.explain(error)

    def _results(self) -> list[CellResult]:
        """What the runs have returned.

        Raises:
            TaskError: the cell did not end by itself; with `--map`, it was cancelled.
        """
        match self.shape:
            case "single":
                return [self.runs[0].future.result()]
            case "all":
                results: list[CellResult] = self.runs[0].future.result()
                return results
            case "map":
                for run in filter(was_cancelled, self.runs):
                    run.future.result()  # raises that it was
                return [_result(run) for run in self.runs]

    def _name_node(self, error: BaseException) -> None:
        if self.names_node and not isinstance(error, SkywardError):  # those say it themselves
            tell_where(error, self.runs[0].nodes[-1])


def _result(run: "Run[CellResult]") -> CellResult:
    """The result of one run of several. One that did not end by itself failed; the others keep their values."""
    try:
        return run.future.result()
    except TaskError as error:
        return CellResult(ReturnedState(), capture_failure(reworded(error)), run.nodes[-1] if run.nodes else 0)
