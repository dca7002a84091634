"""Errors of cells as IPython shows its own: with the frames of the node, and without those that only brought them here.

IPython takes what it shows from the traceback of an exception, in any mode (`%xmode`), in `%tb` and in its debugger.
So the exception has the right traceback when IPython looks: that of the node, below the frames of the user.
"""

import re
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from IPython.core.getipython import get_ipython

from skyward.wire.modules import OUR_PACKAGES
from skyward_jupyter.frames import is_of_node

__all__ = ["Tracebacks", "as_of_the_cell", "with_cell_names"]

_FILE = re.compile(r'File "([^"\n]+)", line ')

_LOCAL = "skyward_jupyter.local"

_OF_THE_CELL = "__skyward_of_the_cell__"
"""The attribute of an exception that the text of a cell has, before any of it ran."""


def as_of_the_cell[E: SyntaxError](error: E) -> E:
    """Return `error` marked as one of the text of a cell: it is shown without a traceback, as IPython does."""
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
    """Has a shell show exceptions that came from nodes without the frames of IPython and of Skyward.

    Args:
        shell: an `InteractiveShell`, whose `showtraceback` this takes the place of.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._show = self._shell.showtraceback
        self._shell.showtraceback = self.show

    def show(self, exc_tuple: Any = None, *args: Any, **options: Any) -> None:
        """Show an exception: that of `exc_tuple`, the current one, or the last one. As `shell.showtraceback`."""
        error = sys.exception() if exc_tuple is None else exc_tuple[1]
        if error is None:
            error = getattr(sys, "last_exc", None)
        for each in _chain(error):
            BaseException.with_traceback(each, shown_traceback(each))  # its own attributes may refuse to be set
        if exc_tuple is not None and error is not None:
            exc_tuple = type(error), error, error.__traceback__
        if isinstance(error, SyntaxError) and _OF_THE_CELL in error.__dict__:
            options["running_compiled_code"] = False
        self._show(exc_tuple, *args, **options)

    def remove(self) -> None:
        """Leave the shell as it was."""
        if vars(self._shell).get("showtraceback") == self.show:
            del self._shell.showtraceback


def shown_traceback(error: BaseException) -> TracebackType | None:
    """Return the traceback to show: for an exception of a node, its frames there, below those of the user's code here.

    IPython leaves out the first frame, which is its own, and so that one stays.
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
        here.pop()  # the line that IPython made of the magic
    shown: TracebackType | None = entries[first]
    for entry in reversed(here):
        shown = TracebackType(shown, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return shown


def _below_local(entries: list[TracebackType]) -> int | None:
    """The place of the first frame of a cell that runs here with `--local`."""
    modules = [entry.tb_frame.f_globals.get("__name__", "") for entry in entries]
    ours = [place for place, module in enumerate(modules) if module == _LOCAL]
    return ours[-1] + 1 if ours and ours[-1] + 1 < len(entries) else None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, those that led to it, and the members of groups among them."""
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
