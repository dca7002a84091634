"""Display of user errors in `%%sky`: one sentence, while errors of cells have a traceback.

IPython calls `_render_traceback_` of an exception, if it has one, instead of its own formatter. The exceptions keep
their types.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from traceback import walk_tb

from skyward.errors import (
    IllegalTransitionError,
    NodeErrors,
    RemoteError,
    RemoteTraceback,
    SkywardError,
    TaskError,
    TaskTimeoutError,
)
from skyward.frontends.cells import OUR_PACKAGES
from skyward_jupyter.failures.tracebacks import with_cell_names

__all__ = ["as_sentence", "first_error", "for_cells", "interrupted", "short_errors"]


@contextmanager
def short_errors() -> Iterator[None]:
    """Give user errors that leave the block a short form. Any other exception is a defect, and keeps its traceback.

    IPython keeps the last exception alive. Clear the frames of this library in it, so that they keep no values alive.
    """
    try:
        yield
    except BaseException as error:
        _empty_frames(error)
        lines = _lines(error)
        if lines is not None:
            _show_as(error, lines)
        raise


def interrupted(text: str) -> KeyboardInterrupt:
    """Return a `KeyboardInterrupt` that is displayed as one line with the outcome of the work."""
    error = KeyboardInterrupt(text)
    _show_as(error, [f"Interrupted: {text}"])
    return error


def as_sentence[E: BaseException](error: E) -> E:
    """Return `error`, displayed as one sentence: a mistake in a cell that was not sent."""
    _show_as(error, [f"{type(error).__name__}: {error}"])
    return error


def for_cells[E: BaseException](error: E) -> E:
    """Rewrite the message of `error` for a user who wrote a cell, not a function."""
    if isinstance(error, TaskError) and error.subject:
        rest = str(error).removeprefix(error.subject).removesuffix(error.fix)
        error.subject = "The cell"
        if isinstance(error, TaskTimeoutError):
            error.fix = "Give it more with --timeout, or leave out --timeout."
        error.args = (f"{error.subject}{rest}{error.fix}", *error.args[1:])
    return error


def first_error(error: BaseException) -> BaseException:
    """Return the first error of a cell that failed on several nodes, with notes on the others; else `error`.

    IPython displays a group with the frames of this library, whatever its short form is.
    """
    if not isinstance(error, NodeErrors):
        return error
    first, *others = (for_cells(each) for each in error.exceptions)
    for note in getattr(error, "__notes__", ()):
        first.add_note(note)
    for node, other in zip(error.nodes[1:], others, strict=False):
        if type(other) is not type(first):
            first.add_note(f"Node {node}: {type(other).__name__}: {other}")
    return first


def _empty_frames(error: BaseException) -> None:
    """Clear the variables of this library's frames in the tracebacks of `error` and its causes."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        waiting += (each.__cause__, each.__context__)
        for frame, _ in walk_tb(each.__traceback__):
            if frame.f_globals.get("__name__", "").partition(".")[0] in _CLEARED:
                with suppress(RuntimeError):  # still running
                    frame.clear()


_CLEARED = OUR_PACKAGES | {"cloudpickle"}
"""Packages whose frames are cleared of what they hold on to."""


def _lines(error: BaseException) -> list[str] | None:
    """Return the lines to display for `error`; None to leave it to IPython."""
    if hasattr(error, "_render_traceback_") or isinstance(error, IllegalTransitionError):
        return None
    notes: Iterable[str] = getattr(error, "__notes__", ())
    if isinstance(error, SkywardError) and not isinstance(error, RemoteError):
        return [f"{type(error).__name__}: {error}", *notes]
    if isinstance(error.__cause__, RemoteTraceback):  # the task failed without a result of its cell
        return [*with_cell_names(error.__cause__.text).splitlines(), *notes]
    return None


def _show_as(error: BaseException, lines: list[str]) -> None:
    try:
        # One string: some modes of IPython join the strings without a separator.
        error._render_traceback_ = lambda: ["\n".join(lines)]  # type: ignore[attr-defined]  # IPython looks for it
    except AttributeError:
        return  # a type with slots keeps IPython's traceback
