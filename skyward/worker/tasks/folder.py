"""The working directory of a cell: the notebook's folder on nodes that share its disk, and the node's own elsewhere.

A process has one working directory. Where several task slots are threads of one process, each thread gets a directory
of its own (Linux). Where the system refuses that, as in most containers, concurrent cells must use the same folder.
"""

import contextlib
import os
from dataclasses import dataclass
from threading import Lock, get_ident, local  # tasks may replace the attributes of the module

from skyward.errors import PayloadError

__all__ = ["SHARED", "Directories", "directories", "enter", "leave", "remember"]

SHARED = "SKYWARD_SHARED_FILES"
"""Variable that is set on a node with the disk of its client."""

_chdir = os.chdir  # tasks may replace the attributes of the module


@dataclass(frozen=True, slots=True)
class Directories:
    """Directories of a worker process.

    Attributes:
        directory: its working directory when it started.
        own: the node's own directory, which is removed with the node.
        is_shared: True if it has the disk of its client.
        threads: True if tasks may run concurrently in this process.
    """

    directory: str
    own: str
    is_shared: bool = False
    threads: bool = False


_found: Directories | None = None
_lock = Lock()
_inside: dict[int, str] = {}
_thread = local()


def remember() -> None:
    """Note the directories of this process, before a task changes them."""
    global _found
    env = os.environ
    if (own := env.get("SKYWARD_SCRATCH")) is None:
        return
    several = env.get("SKYWARD_WORKERS_PER_NODE", "1") != "1"
    threads = several and env.get("SKYWARD_WORKER_EXECUTOR", "thread") == "thread"
    _found = Directories(os.getcwd(), own, SHARED in env, threads)


def directories() -> Directories | None:
    """Return the directories that `remember` noted; None in a process that is no worker."""
    return _found


def enter(folder: str) -> None:
    """Make `folder` the working directory of the task that this thread runs.

    Raises:
        OSError: the folder does not exist.
        PayloadError: another task of this process runs in another folder.
    """
    found = _found
    if found is None:
        return
    if found.threads and _is_separate():
        _chdir(folder)
        return
    with _lock:
        me = get_ident()
        others = {each for thread, each in _inside.items() if thread != me and each != folder}
        if others:
            raise PayloadError(
                f"this node runs a cell in {others.pop()} now, and its threads share one working directory, so a cell "
                f"in {folder} cannot run at the same time: wait for the other one, or open the pool with "
                "--executor process."
            )
        _inside[me] = folder  # first, so that an interrupt leaves the directory restorable
        try:
            _chdir(folder)
        except OSError:
            del _inside[me]
            raise


def leave() -> None:
    """Return to the initial directory; where threads share the directory, only the last one does so. Idempotent."""
    found = _found
    if found is None:
        return
    with _lock, contextlib.suppress(OSError):  # a task has removed the directory
        if getattr(_thread, "separate", False) or (_inside.pop(get_ident(), None) is not None and not _inside):
            _chdir(found.directory)


def _is_separate() -> bool:
    """Return whether this thread has a working directory of its own, after giving it one if possible."""
    if not getattr(_thread, "separate", False):
        try:
            os.unshare(os.CLONE_FS)
        except (AttributeError, OSError):  # another system, or a container that forbids the call
            return False
        _thread.separate = True
    return True
