"""Commands on tasks, and on cells in the background."""

from collections.abc import Sequence

from skyward.errors import UsageError
from skyward.frontends.commands import DECLARED, Outcome, handler_of
from skyward.frontends.views import task_table
from skyward_kernel.commands.context import BackgroundCell, Context
from skyward_kernel.commands.titles import titled
from skyward_kernel.pools import PoolManager

__all__ = ["cancel", "show", "tasks"]


@handler_of(DECLARED["tasks"])
def tasks(context: Context, *, pool: str | None = None) -> Outcome:
    """Show the tasks of a pool, or of all."""
    names = context.shown(pool)
    found = {name: context.pools.get(name).report().tasks for name in names}
    if not any(found.values()):
        return Outcome("\n".join(f"Pool {name!r} has had no tasks yet." for name in names))
    tables = {name: task_table(tasks) for name, tasks in found.items() if tasks}
    return Outcome(table=titled("tasks", tables, are_several=len(names) > 1))


@handler_of(DECLARED["cancel"])
def cancel(
    context: Context,
    *,
    number: str | None = None,
    every: bool = False,
    task: int | None = None,
    cell: int | None = None,
    pool: str | None = None,
) -> Outcome:
    """Cancel one background cell or all, one task, or all tasks of a cell."""
    if pool is not None and task is None:
        raise UsageError("--pool names the pool of a task, so it goes with --task N.")
    if (number is not None) + every + (task is not None) + (cell is not None) > 1:
        raise UsageError(f"%sky cancel takes one of {cancel.usage}.")
    if task is not None:
        return _cancel_task(context.pools, pool or context.default_pool, task)
    if cell is not None:
        return _cancel_tasks_of_cell(context.pools, cell)
    running = [each for each in context.cells if not each.done()]
    if not running:
        return Outcome("No cell runs in the background.")
    chosen = running if every else [_chosen(running, number)]
    return Outcome("\n".join(f"Cell {each.number}: {each.cancel()}" for each in chosen))


def _cancel_task(pools: PoolManager, name: str, task: int) -> Outcome:
    if not pools.get(name).cancel([task]):
        raise UsageError(f"Pool {name!r} has no queued or running task {task}.")
    return Outcome(f"Stopping task {task}.")


def _cancel_tasks_of_cell(pools: PoolManager, cell: int) -> Outcome:
    found = (pools.find(name) for name in pools.names)
    stopped = sum(pool.cancel(cell=cell) for pool in found if pool is not None)
    if not stopped:
        raise UsageError(f"Cell {cell} has no queued or running task.")
    return Outcome(f"Stopping {stopped} {'task' if stopped == 1 else 'tasks'} of cell {cell}.")


@handler_of(DECLARED["show"])
def show(context: Context, *, number: str | None = None) -> Outcome:
    """Show a background cell again and return its handle."""
    cells = context.cells
    if not cells:
        return Outcome("There are no cells in the background. `%%sky --noblock` starts one.")
    cell = cells[-1] if number is None else _chosen(cells, number)
    context.in_notebook().replay(cell.number)
    return Outcome(value=cell)


def _chosen(cells: Sequence[BackgroundCell], number: str | None) -> BackgroundCell:
    listed = ", ".join(str(cell.number) for cell in cells)
    if number is None:
        if len(cells) == 1:
            return cells[0]
        raise UsageError(f"Several cells run in the background: name one of {listed}, or --all.")
    for cell in cells:
        if str(cell.number) == number:
            return cell
    raise UsageError(f"There is no background cell {number!r}: name one of {listed}.")
