"""The working directory of a cell: the notebook's folder on nodes that share its disk, and the node's own elsewhere.

A process has one working directory. Where several task slots are threads of one process, each thread gets a directory
of its own (Linux). Where that is refused, as in most containers, cells that run at the same time must be of one folder.
"""

import contextlib
import os
from dataclasses import dataclass
from threading import Lock, get_ident, local  # tasks may replace the attributes of the module

from skyward.errors import PayloadError

__all__ = ["SHARED", "Directories", "directories", "enter", "leave", "remember"]

SHARED = "SKYWARD_SHARED_FILES"
"""The variable of a node that has the disk of its client."""

_chdir = os.chdir  # tasks may replace the attributes of the module


@dataclass(frozen=True, slots=True)
class Directories:
    """What a worker process knows of its folders.

    Attributes:
        directory: its working directory when it started.
        own: the directory that is the node's own, which goes with it.
        is_shared: whether it has the disk of its client.
        threads: whether tasks may run at the same time in this process.
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
    """What `remember` noted; None in a process that is no worker."""
    return _found


def enter(folder: str) -> None:
    """Make `folder` the working directory of the task that this thread runs.

    Raises:
        OSError: it is not there.
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
                f"this node runs a cell in {others.pop()} now, and its threads have one working directory together, so "
                f"a cell in {folder} cannot run beside it: wait for the other one, or open the pool with "
                "--executor process."
            )
        _inside[me] = folder  # first, so that an interrupt leaves nothing behind
        try:
            _chdir(folder)
        except OSError:
            del _inside[me]
            raise


def leave() -> None:
    """Go back to where the process started; the last one does so where threads share the directory. Idempotent."""
    found = _found
    if found is None:
        return
    with _lock, contextlib.suppress(OSError):  # a task has removed the directory
        if getattr(_thread, "separate", False) or (_inside.pop(get_ident(), None) is not None and not _inside):
            _chdir(found.directory)


def _is_separate() -> bool:
    """Return whether this thread has a working directory of its own, from now on if it had none."""
    if not getattr(_thread, "separate", False):
        try:
            os.unshare(os.CLONE_FS)
        except (AttributeError, OSError):  # another system, or a container that allows no such call
            return False
        _thread.separate = True
    return True
