"""Execution of the panel's commands, each with a sentence for the user about its outcome."""

import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from skyward.errors import SkywardError, UsageError
from skyward.formatting import count_text
from skyward.specs import Nodes
from skyward_kernel.pools import PoolManager
from skyward_kernel.protocol import (
    Answer,
    AskPrice,
    Attach,
    CancelCell,
    CancelTask,
    Command,
    Drain,
    NewPool,
    Reap,
    Refresh,
    Reply,
    Scale,
    StopAll,
    StopPool,
)

__all__ = ["SLOW", "Change", "CommandHandler", "OpenPool", "Scaled", "attempt", "cancel_cell", "scale_or_stop"]

type Change = Refresh | CancelTask | CancelCell | Scale | Drain | StopPool | StopAll | NewPool | Attach | Reap
"""Commands that change something."""

type OpenPool = Callable[[str, Mapping[str, str]], object]
"""Opens a pool with a name and options: flags to the texts of their values."""

SLOW: Final = (StopPool, StopAll, NewPool, Attach, Reap, AskPrice)
"""Commands that wait for machines or providers."""

_logger = logging.getLogger(__name__)


def attempt(command: Command, do: Callable[[], Reply]) -> Reply:
    """Return the reply of `do` to a command, or an answer with the reason why it failed."""
    try:
        return do()
    except SkywardError as error:
        return Answer(command.id, "refused", str(error))
    except Exception as error:  # a bug: the user sees the message, the log has the traceback
        _logger.exception("the command %s failed", command.kind)
        return Answer(command.id, "refused", f"{type(error).__name__}: {error}")


class Scaled(Protocol):
    """Pools by name, as `PoolManager` has them."""

    def scale(self, name: str, nodes: Nodes) -> object:
        """Change how many nodes a pool has."""

    def close(self, name: str) -> None:
        """Close a pool."""


class CommandHandler:
    """Handler of commands. Thread-safe.

    Args:
        pools: the pools of the kernel.
        open_pool: opens a new pool.
    """

    def __init__(self, pools: PoolManager, open_pool: OpenPool) -> None:
        self._pools = pools
        self._open_pool = open_pool

    def __call__(self, command: Change) -> str:
        """Execute a command and describe the outcome.

        Raises:
            SkywardError: the command failed.
        """
        match command:
            case Refresh():
                return ""
            case CancelTask(_, pool, task):
                if not self._pools.get(pool).cancel([task]):
                    raise UsageError(f"Pool {pool!r} has no queued or running task {task}.")
                return f"Stopping task {task}."
            case CancelCell(_, cell):
                return cancel_cell(self._pools, cell)
            case Scale(_, pool) | StopPool(_, pool):
                return scale_or_stop(self._pools, pool, command)
            case Drain(_, pool, node):
                self._pools.get(pool).drain(node)
                return f"Draining node {node} of pool {pool!r}: it terminates once its tasks are done."
            case StopAll():
                closed = self._pools.close_all()
                return f"Closed: {', '.join(closed)}." if closed else "There are no pools."
            case NewPool(_, name, options):
                self._open_pool(name, options)
                return f"Pool {name!r} is open."
            case Attach(_, pool):
                found = len(self._pools.attach(pool).recovered)
                tasks = f" with {found} recovered task{'' if found == 1 else 's'}" if found else ""
                return f"Attached to pool {pool!r}{tasks}."
            case Reap(_, pool):
                return _reap(pool)


def scale_or_stop(pools: Scaled, name: str, command: Scale | StopPool) -> str:
    """Execute a command on the pool with this name and describe the outcome.

    Raises:
        SkywardError: the command failed.
    """
    match command:
        case Scale(_, _, least, most):
            wanted = Nodes(least, None if most == least else most)
            pools.scale(name, wanted)
            return f"Scaling pool {name!r} to {count_text(wanted)}."
        case StopPool():
            pools.close(name)
            return f"Pool {name!r} is closed."


def _reap(pool: str) -> str:
    """Terminate the orphaned machines of a pool and describe the outcome.

    Raises:
        UsageError: the pool has no orphaned machines, or some may still be running.
    """
    from skyward.pool.reap import describe_orphan, reap

    done = reap([pool])
    if not done:
        raise UsageError(f"Pool {pool!r} has no orphaned machines: they are gone, or a process owns them.")
    summary = f"{'; '.join(map(describe_orphan, done))}."
    if any(each.error for each in done):
        raise UsageError(summary)
    return summary


def cancel_cell(pools: PoolManager, cell: int) -> str:
    """Cancel every task of a cell, in all pools, and describe the outcome.

    Raises:
        UsageError: the cell has no queued or running task.
    """
    found = (pools.find(name) for name in pools.names)
    stopped = sum(pool.cancel(cell=cell) for pool in found if pool is not None)
    if not stopped:
        raise UsageError(f"Cell {cell} has no queued or running task.")
    tasks = "task" if stopped == 1 else "tasks"
    return f"Stopping {stopped} {tasks} of cell {cell}."
