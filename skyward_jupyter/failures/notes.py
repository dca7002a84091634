"""Errors of a cell with several failed runs: the first one is raised, with notes on the others."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from skyward.frontends.views import nodes_text
from skyward_jupyter.failures.tracebacks import with_cell_names

if TYPE_CHECKING:
    from skyward.frontends.cells import CellResult, Failure, Frame

__all__ = ["note_node", "note_other_failures"]

_MOST_NOTES = 5
"""Most kinds of errors, besides the first, that notes describe."""


def note_node(error: BaseException, node: int) -> None:
    """Add a note to `error` that names its node."""
    error.add_note(f"Raised on node {node}.")


def note_other_failures(error: BaseException, results: "Sequence[CellResult]") -> None:
    """Add notes to `error`, raised by the first failed result, about the other failures in `results`.

    Equal failures share one note with their nodes. A failure in another line of the cell gets its traceback. If the
    cell ran on several nodes, a note names the node of the first failure too.
    """
    kinds: dict[object, list[tuple[int, Failure]]] = {}
    for result in results:
        if (failure := result.failure) is not None:
            kinds.setdefault((failure.type_name, failure.message, failure.chain), []).append((result.node, failure))
    if not kinds:
        return
    first, *others = kinds.values()
    if len({result.node for result in results}) > 1:
        note_node(error, first[0][0])
    if len(first) > 1:
        error.add_note(_same(first[1:]))
    frames = _frames(first[0][1])
    for kind in others[:_MOST_NOTES]:
        for line in _notes(kind, frames):
            error.add_note(line)
    if left := sum(map(len, others[_MOST_NOTES:])):
        error.add_note(f"... and {left} more.")


def _notes(kind: "Sequence[tuple[int, Failure]]", known: "tuple[Frame, ...]") -> Iterator[str]:
    """Yield the notes on equal failures, for a reader who has seen the frames `known`."""
    _, failure = kind[0]
    if _frames(failure) != known:
        yield with_cell_names(failure.render())
        if len(kind) > 1:
            yield _same(kind[1:])
    else:
        name = failure.type_name.rpartition(".")[2]
        yield f"{_where(kind).capitalize()}: {name}: {failure.message}"


def _same(kind: "Sequence[tuple[int, Failure]]") -> str:
    where = _where(kind)
    return f"The same {'in' if ' runs on ' in where else 'on'} {where}."


def _frames(failure: "Failure") -> "tuple[Frame, ...]":
    return failure.chain[-1].frames if failure.chain else ()


def _where(kind: "Sequence[tuple[int, Failure]]") -> str:
    nodes = sorted({node for node, _ in kind})
    return nodes_text(nodes) if len(nodes) == len(kind) else f"{len(kind)} runs on {nodes_text(nodes)}"
