"""Errors of cells, displayed like IPython's own: with the frames of the node, without those of Skyward.

IPython uses the traceback of the exception, in any mode (`%xmode`), in `%tb` and in its debugger. So the exception gets
the right traceback before IPython reads it: the frames of the node, below those of the user.
"""

import re
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from IPython.core.getipython import get_ipython

from skyward.frontends.cells import OUR_PACKAGES
from skyward_jupyter.failures.frames import is_of_node

__all__ = ["Tracebacks", "as_cell_error", "with_cell_names"]

_FILE = re.compile(r'File "([^"\n]+)", line ')

_LOCAL = "skyward_jupyter.running.local"

_OF_THE_CELL = "__skyward_of_the_cell__"
"""Attribute that marks a syntax error in the text of a cell."""


def as_cell_error[E: SyntaxError](error: E) -> E:
    """Mark a syntax error as one in the text of a cell. It is displayed without a traceback, as in IPython."""
    error.__dict__[_OF_THE_CELL] = True
    return error


def with_cell_names(text: str) -> str:
    """Return the text of a traceback with cells named as IPython names them: `Cell In[3], line 5`."""
    shell: Any = get_ipython()

    def named(found: re.Match[str]) -> str:
        label = None if shell is None else shell.compile.format_code_name(found[1])
        return found[0] if label is None else f"{' '.join(label)}, line "

    return _FILE.sub(named, text)


class Tracebacks:
    """Hook into a shell that displays exceptions from nodes without frames of IPython and Skyward.

    Args:
        shell: an `InteractiveShell`, whose `showtraceback` is replaced.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._show = self._shell.showtraceback
        self._shell.showtraceback = self.show

    def show(self, exc_tuple: Any = None, *args: Any, **options: Any) -> None:
        """Display an exception: that of `exc_tuple`, the current one, or the last one. See `shell.showtraceback`."""
        error = sys.exception() if exc_tuple is None else exc_tuple[1]
        if error is None:
            error = getattr(sys, "last_exc", None)
        for each in _chain(error):
            BaseException.with_traceback(each, shown_traceback(each))  # its class may override the method
        if exc_tuple is not None and error is not None:
            exc_tuple = type(error), error, error.__traceback__
        if isinstance(error, SyntaxError) and _OF_THE_CELL in error.__dict__:
            options["running_compiled_code"] = False
        self._show(exc_tuple, *args, **options)

    def remove(self) -> None:
        """Restore the shell."""
        if vars(self._shell).get("showtraceback") == self.show:
            del self._shell.showtraceback


def shown_traceback(error: BaseException) -> TracebackType | None:
    """Return the traceback to display: for an exception of a node, its frames there, below the user's frames here.

    The first frame, which belongs to IPython, stays, because IPython skips it.
    """
    entries = list(_entries(error.__traceback__))
    first = next((place for place, entry in enumerate(entries) if is_of_node(entry.tb_frame)), _below_local(entries))
    if first is None:
        return error.__traceback__
    here = entries[:first]
    ours = next((place for place, entry in enumerate(here) if _package(entry) in OUR_PACKAGES), len(here))
    del here[ours:]
    by_magic = len(here) > 1 and _package(here[-1]) == "IPython"
    while len(here) > 1 and _package(here[-1]) == "IPython":
        here.pop()
    if by_magic and here[-1].tb_frame.f_code.co_name == "<module>":
        here.pop()  # the line that IPython generated from the magic
    shown: TracebackType | None = entries[first]
    for entry in reversed(here):
        shown = TracebackType(shown, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return shown


def _below_local(entries: list[TracebackType]) -> int | None:
    """Return the index of the first frame of a cell that runs here with `--local`; None if there is none."""
    modules = [entry.tb_frame.f_globals.get("__name__", "") for entry in entries]
    ours = [place for place, module in enumerate(modules) if module == _LOCAL]
    return ours[-1] + 1 if ours and ours[-1] + 1 < len(entries) else None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception, its causes, and the members of exception groups among them."""
    waiting, seen = [error], set[int]()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions


def _entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _package(entry: TracebackType) -> str:
    return str(entry.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
