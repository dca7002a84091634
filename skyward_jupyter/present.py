"""How mistakes look that a user makes with `%%sky`: as a sentence, where errors of cells have a traceback.

IPython asks an exception for `_render_traceback_` before it draws one itself. The exceptions keep their own types.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from traceback import walk_tb

from skyward.errors import IllegalMoveError, RemoteError, RemoteTraceback, SkywardError, TaskError
from skyward.wire.modules import OUR_PACKAGES
from skyward_jupyter.tracebacks import with_cell_names

__all__ = ["interrupted", "presented", "reworded", "stated"]


@contextmanager
def presented() -> Iterator[None]:
    """Inside, exceptions that concern the user get a short form. Any other is a defect, and keeps its traceback.

    IPython keeps the last exception. It keeps no value of the notebook alive in frames of ours that are over.
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
    """A `KeyboardInterrupt` that shows as one line that says what came of the work."""
    error = KeyboardInterrupt(text)
    _show_as(error, [f"Interrupted: {text}"])
    return error


def stated[E: BaseException](error: E) -> E:
    """Return `error`, which shows as its sentence: it is a mistake in a cell that was not sent."""
    _show_as(error, [f"{type(error).__name__}: {error}"])
    return error


def reworded(error: TaskError) -> TaskError:
    """`error` in the words of someone who wrote a cell, and no function."""
    text = str(error)
    for ours, theirs in _WORDS.items():
        text = text.replace(ours, theirs)
    error.args = (text, *error.args[1:])
    return error


_WORDS = {
    "run_cell()": "The cell",
    "stream_cell()": "The cell",
    "Give it more with timeout=, or .with_timeout().": "Give it more with --timeout, or leave --timeout out.",
}


def _empty_frames(error: BaseException) -> None:
    """Clear the variables of our own frames in the tracebacks of `error` and of what led to it."""
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
                with suppress(RuntimeError):  # it runs still
                    frame.clear()


_CLEARED = OUR_PACKAGES | {"cloudpickle"}
"""Packages whose frames are cleared of what they hold on to."""


def _lines(error: BaseException) -> list[str] | None:
    """How `error` is shown; None for the way that IPython has."""
    if hasattr(error, "_render_traceback_") or isinstance(error, IllegalMoveError):
        return None
    notes: Iterable[str] = getattr(error, "__notes__", ())
    if isinstance(error, SkywardError) and not isinstance(error, RemoteError):
        return [f"{type(error).__name__}: {error}", *notes]
    if isinstance(error.__cause__, RemoteTraceback):  # of a task that ended without the result of its cell
        return [*with_cell_names(error.__cause__.text).splitlines(), *notes]
    return None


def _show_as(error: BaseException, lines: list[str]) -> None:
    try:
        # One piece: what IPython puts between pieces is nothing in some of its modes.
        error._render_traceback_ = lambda: ["\n".join(lines)]  # type: ignore[attr-defined]  # IPython looks for it
    except AttributeError:
        return  # a type with slots: IPython's own way will have to do
