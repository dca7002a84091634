"""Detection of processes that were forked from one that uses pools. Pools do not work there, and each use raises."""

import os

from skyward.errors import UsageError

__all__ = ["begin_use", "is_forked", "refuse_forked"]

_used = False
_forked = False


def begin_use() -> None:
    """Record that this process uses pools, so that its forks cannot."""
    global _used
    _used = True


def is_forked() -> bool:
    """Return whether this process was forked from one that used pools."""
    return _forked


def refuse_forked() -> None:
    """Check that pools work in this process.

    Raises:
        UsageError: it was forked from one that used pools, so their threads and connections are not here.
    """
    if _forked:
        raise UsageError(
            "Pools do not work in a process that was forked from one that uses them: use them in the parent, or start "
            'a new process, as with `multiprocessing.get_context("spawn")` or `subprocess`.'
        )


def _after_fork() -> None:
    global _forked
    _forked = _used


os.register_at_fork(after_in_child=_after_fork)
