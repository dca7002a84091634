"""What the commands of the panel do to the pools, each with a sentence on what came of it."""

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
"""Commands that are no questions."""

type OpenPool = Callable[[str, Mapping[str, str]], object]
"""Opens a pool of that name with these options, flags to the texts behind them."""

SLOW: Final = (StopPool, StopAll, NewPool, Attach, Reap, AskPrice)
"""Commands that wait for machines, or for those who have them."""

_logger = logging.getLogger(__name__)


def attempt(command: Command, do: Callable[[], Reply]) -> Reply:
    """What `do` answers to a command, or why it could not be done."""
    try:
        return do()
    except SkywardError as error:
        return Answer(command.id, "refused", str(error))
    except Exception as error:  # a defect, which who asked is shown and the log explains
        _logger.exception("the command %s failed", command.kind)
        return Answer(command.id, "refused", f"{type(error).__name__}: {error}")


class Scaled(Protocol):
    """Pools by name, as `PoolManager` has them."""

    def scale(self, name: str, nodes: Nodes) -> object:
        """Change how many nodes one has."""

    def close(self, name: str) -> None:
        """Close one."""


class CommandHandler:
    """Carries out commands. It may be called from any thread.

    Args:
        pools: those of the kernel.
        open_pool: opens a new one.
    """

    def __init__(self, pools: PoolManager, open_pool: OpenPool) -> None:
        self._pools = pools
        self._open_pool = open_pool

    def __call__(self, command: Change) -> str:
        """Do it; what came of it.

        Raises:
            SkywardError: it cannot be done.
        """
        match command:
            case Refresh():
                return ""
            case CancelTask(_, pool, task):
                if not self._pools.get(pool).cancel([task]):
                    raise UsageError(f"Pool {pool!r} has no task {task}, or it is over.")
                return f"Stopping task {task}."
            case CancelCell(_, cell):
                return cancel_cell(self._pools, cell)
            case Scale(_, pool) | StopPool(_, pool):
                return scale_or_stop(self._pools, pool, command)
            case Drain(_, pool, node):
                self._pools.get(pool).drain(node)
                return f"Node {node} of pool {pool!r} finishes its tasks and goes."
            case StopAll():
                closed = self._pools.close_all()
                return f"Closed: {', '.join(closed)}." if closed else "There are no pools."
            case NewPool(_, name, options):
                self._open_pool(name, options)
                return f"Pool {name!r} is open."
            case Attach(_, pool):
                found = len(self._pools.attach(pool).recovered)
                tasks = f", with {found} task{'' if found == 1 else 's'} of before" if found else ""
                return f"Pool {pool!r} is this kernel's now{tasks}."
            case Reap(_, pool):
                return _reap(pool)


def scale_or_stop(pools: Scaled, name: str, command: Scale | StopPool) -> str:
    """Do what a command of one pool says to the one of this name; what came of it.

    Raises:
        SkywardError: it cannot be done.
    """
    match command:
        case Scale(_, _, least, most):
            wanted = Nodes(least, None if most == least else most)
            pools.scale(name, wanted)
            return f"Pool {name!r} goes to {count_text(wanted)}."
        case StopPool():
            pools.close(name)
            return f"Pool {name!r} is closed."


def _reap(pool: str) -> str:
    """Give back what is left of a pool; what came of it.

    Raises:
        UsageError: nothing is, or some of it may be left all the same.
    """
    from skyward.pool.reap import reap, told

    done = reap([pool])
    if not done:
        raise UsageError(f"Nothing of {pool!r} is left behind, or a process has it.")
    said = "; ".join(map(told, done))
    if any(each.error for each in done):
        raise UsageError(f"{said}.")
    return f"{said}."


def cancel_cell(pools: PoolManager, cell: int) -> str:
    """Stop every task of a cell, in whatever pool; what came of it.

    Raises:
        UsageError: it has none that is not over.
    """
    found = (pools.find(name) for name in pools.names)
    stopped = sum(pool.cancel(cell=cell) for pool in found if pool is not None)
    if not stopped:
        raise UsageError(f"Cell {cell} has no task that waits or runs.")
    tasks = "task" if stopped == 1 else "tasks"
    return f"Stopping {stopped} {tasks} of cell {cell}."
