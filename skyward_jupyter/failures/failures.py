"""The errors of a cell that failed in several places: the first is raised, and here is what is told of the others."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from skyward.formatting import nodes_text
from skyward_jupyter.failures.tracebacks import with_cell_names

if TYPE_CHECKING:
    from skyward.wire.failures.failure import Failure, Frame
    from skyward.worker.cells.cell import CellResult

__all__ = ["tell_the_others", "tell_where"]

_TOLD = 5
"""Kinds of errors beside the first that are told of."""


def tell_where(error: BaseException, node: int) -> None:
    """Add to `error` which node has raised it."""
    error.add_note(f"Raised on node {node}.")


def tell_the_others(error: BaseException, results: "Sequence[CellResult]") -> None:
    """Add to `error`, which the first of `results` that failed has raised, what became of the others that failed.

    Those that are alike are told of once, with their nodes; one from another line of the cell with its traceback. Where
    it ran on several nodes, that of the first is told, too.
    """
    kinds: dict[object, list[tuple[int, Failure]]] = {}
    for result in results:
        if (failure := result.failure) is not None:
            kinds.setdefault((failure.type_name, failure.message, failure.chain), []).append((result.node, failure))
    if not kinds:
        return
    first, *others = kinds.values()
    if len({result.node for result in results}) > 1:
        tell_where(error, first[0][0])
    if len(first) > 1:
        error.add_note(_same(first[1:]))
    frames = _frames(first[0][1])
    for kind in others[:_TOLD]:
        for line in _told(kind, frames):
            error.add_note(line)
    if left := sum(map(len, others[_TOLD:])):
        error.add_note(f"... and {left} more.")


def _told(kind: "Sequence[tuple[int, Failure]]", known: "tuple[Frame, ...]") -> Iterator[str]:
    """What is told of errors that are alike, where the reader has seen the frames `known`."""
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
