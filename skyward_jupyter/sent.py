"""A cell on its way: waiting for it, stopping it, and bringing home what it left."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from skyward.errors import SkywardError, TaskError
from skyward.wire.failure import capture_failure
from skyward.words import asked_to_stop
from skyward.worker.cell import CellResult
from skyward.worker.harvest import Harvest
from skyward_jupyter.failures import listed, tell_the_others, tell_where
from skyward_jupyter.originals import Originals
from skyward_jupyter.present import reworded
from skyward_jupyter.results import Outcome, apply_result, apply_results, stream_items

if TYPE_CHECKING:
    from collections.abc import Iterator

    from skyward.control.run import Run

__all__ = ["SentCell", "Shape"]

type Shape = Literal["single", "all", "map"]
"""One run on one node, one run on all nodes, or one run for each element."""


@dataclass(frozen=True)
class SentCell:
    """The runs of one cell.

    Attributes:
        runs: one, or with `--map` one for each element.
        shape: how they make up the cell.
        user_ns: the names of the notebook.
        notify: takes a sentence for the user.
        finish: called once the output of the cell is complete.
        originals: the objects that the cell took along.
        names_node: whether an error of a cell that runs on one node names it, because nothing else does.
    """

    runs: "Sequence[Run[Any]]"
    shape: Shape
    user_ns: dict[str, Any]
    notify: Callable[[str], None]
    finish: Callable[[], object]
    originals: Originals = field(default_factory=Originals)
    names_node: bool = False

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
            yield from stream_items(run.items(), self.user_ns, self.originals, self.notify)
        except TaskError as error:
            raise reworded(error) from None
        except Exception as error:
            self._name_node(error)
            raise
        finally:
            self.finish()
            self.originals.release()

    def collect(self) -> Any:
        """Bind in the notebook what the cell left behind; the value of its last expression, of several runs a list.

        Raises:
            TaskError: it did not end by itself.
            BaseException: what the cell raised; what it had bound by then is bound here.
        """
        self.finish()
        try:
            outcome = self._apply()
        except TaskError as error:
            raise reworded(error) from error.__cause__
        finally:
            self.originals.release()
        for notice in outcome.notices:
            self.notify(notice)
        return outcome.value

    def stop(self, grace: float) -> str:
        """Stop the work; wait up to `grace` seconds for the nodes to have stopped. A sentence on how it went."""
        stopping = [run for run in self.runs if run.cancel()]
        if not stopping:
            return "the work was over already."
        futures = {run.future: run for run in stopping}
        try:
            left = wait(futures, grace).not_done
        except KeyboardInterrupt:  # the user will not wait
            left = {future for future in futures if not future.done()}
        self.finish()
        if waiting := _ranks(run for future, run in futures.items() if future in left):
            return f"{asked_to_stop(waiting)}."
        ranks = _ranks(stopping)
        return f"the work on {listed(ranks)} was stopped." if ranks else "the work had not started on any node."

    def _apply(self) -> Outcome:
        match self.shape:
            case "single":
                result = self.runs[0].future.result()
                try:
                    return apply_result(result, self.user_ns, self.originals)
                except Exception as error:
                    self._name_node(error)
                    raise
            case "all":
                results = self.runs[0].future.result()
            case "map":
                results = [_result(run) for run in self.runs]
        try:
            return apply_results(results, self.user_ns)
        except BaseException as error:
            tell_the_others(error, results)
            raise

    def _name_node(self, error: BaseException) -> None:
        if self.names_node and not isinstance(error, SkywardError):  # those say it themselves
            tell_where(error, self.runs[0].nodes[-1])


def _result(run: "Run[CellResult]") -> CellResult:
    """The result of one run of several. One that did not end by itself failed; the others keep their values."""
    try:
        return run.future.result()
    except TaskError as error:
        return CellResult(Harvest(), capture_failure(reworded(error)), run.nodes[-1] if run.nodes else 0)


def _ranks(runs: "Iterable[Run[Any]]") -> list[int]:
    return sorted({rank for run in runs for rank in run.nodes})
