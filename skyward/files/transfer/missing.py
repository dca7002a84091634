"""Hints for files that a cell did not find on its node, but that exist in the notebook's folder."""

import errno
import os
import re
from collections.abc import Collection, Iterator
from posixpath import normpath

from skyward.errors import RemoteTraceback
from skyward.files.patterns import is_inside, is_relative
from skyward.formatting import option_text

__all__ = ["missing_note"]

_QUOTED = re.compile(r"'([^'\n]+)'|\"([^\"\n]+)\"")
_WORD = re.compile(r"[^\s'\",;()]*[./][^\s'\",;()]*")
"""A word that looks like a path: it has a dot or a slash."""

_SAYS_SO = "No such file or directory"


def missing_note(error: BaseException, folder: str, there: str, node: int, sent: Collection[str] = ()) -> str | None:
    """Return a hint on the option that sends the file that `error` or its causes name; None if there is no such file.

    Args:
        error: the exception of a cell.
        folder: the notebook's folder.
        there: the folder on the node in which the cell ran.
        node: rank of the node.
        sent: paths of the files that were sent.
    """
    for each in _chain(error):
        for named in _paths(each):
            path = _from_folder(named, folder, there)
            if path is not None and path not in sent and (note := _note(path, folder, node)):
                as_it_is = not is_inside(normpath(named), folder.rstrip("/"))
                return note if as_it_is else f"{note} In the cell, name it {path}: {folder} is not there."
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop(0)
        if each is not None and id(each) not in seen and not isinstance(each, RemoteTraceback):
            seen.add(id(each))
            yield each
            waiting += [each.__cause__, each.__context__]
            if isinstance(each, BaseExceptionGroup):
                waiting += each.exceptions


def _paths(error: BaseException) -> Iterator[str]:
    """Yield the missing paths, as an error names them."""
    if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):
        return
    for name in (getattr(error, "filename", None), getattr(error, "filename2", None)):
        if isinstance(name, (str, bytes, os.PathLike)):
            yield os.fsdecode(name)
    text = str(error)
    if isinstance(error, OSError) or _SAYS_SO in text:
        for one, other in _QUOTED.findall(text):
            yield one or other
        for word in _WORD.findall(text):
            yield word.rstrip(".:")


def _from_folder(path: str, folder: str, there: str) -> str | None:
    """Return a path relative to the notebook's folder; None if it is outside."""
    path = normpath(path)
    for start in (there, folder):
        if is_inside(path, start.rstrip("/")):
            path = os.path.relpath(path, start)
    return path if is_relative(path) else None


def _note(path: str, folder: str, node: int) -> str | None:
    here = os.path.join(folder, path)
    if os.path.isfile(here):
        return f"{path} is here, in {folder}, but not on node {node}: send it with {option_text('--file', path)}."
    if os.path.isdir(here):
        return (
            f"{path} is a folder here, in {folder}, but not on node {node}: send it with {option_text('--sync', path)}."
        )
    above = os.path.dirname(path)
    if above and os.path.isdir(os.path.join(folder, above)):
        return (
            f"The folder {above} is here, in {folder}, but not on node {node}: send it with "
            f"{option_text('--sync', above)}, or create it in the cell with os.makedirs({above!r}, exist_ok=True)."
        )
    return None
