"""Commands on whole pools: opening, closing and scaling them, and showing their state."""

from collections.abc import Iterable, Mapping
from typing import Any

from skyward.errors import UsageError
from skyward.frontends.commands import DECLARED, Outcome, handler_of
from skyward.frontends.configuration import Nodes
from skyward.frontends.views import count_text, decision_table, money_text, node_table, pool_table, table
from skyward_kernel.commands.context import BackgroundCell, Context
from skyward_kernel.commands.titles import titled
from skyward_kernel.orphans import orphan_notes, warm_notes

__all__ = ["check_new_name", "config", "decisions", "down", "pools", "scale", "status", "up", "update"]

_NO_POOLS = "There are no pools. A cell with %%sky opens one."


def check_new_name(context: Context, name: str) -> None:
    """Check the name of a pool that does not exist yet.

    Raises:
        UsageError: it is not a name, or taken.
    """
    if not name.strip() or name.startswith("-"):
        raise UsageError("A pool needs a name.")
    if name in context.pools.names:
        raise UsageError(f"There is a pool {name!r} already: choose another name.")


@handler_of(DECLARED["up"])
def up(
    context: Context, *, pool: str | None = None, options: Mapping[str, Any] | None = None, quiet: bool = False
) -> Outcome:
    """Open a pool and return it. A notebook may name an open pool, also to set its budget; the form is for new ones.

    Raises:
        UsageError: the name is invalid, or taken.
        SpecError: the pool is open and differs from the options.
        ProvisioningError: its machines could not be provisioned.
    """
    if context.notebook is not None:
        name = pool or context.default_pool
        if context.pools.raise_budget(name, options or {}):
            opened = context.pools.get(name)
            return Outcome(f"The budget of pool {name!r} is {money_text(opened.options.budget or 0.0)} now.")
        opened = context.notebook.open(pool, options or {}, quiet=quiet)
    else:
        name = pool or ""
        check_new_name(context, name)
        opened = context.pools.get_or_open(name, options or {})
    return Outcome(f"Pool {pool or context.default_pool!r} is open.", value=opened, is_silent=True)


@handler_of(DECLARED["down"])
def down(context: Context, *, pool: str | None = None, every: bool = False) -> Outcome:
    """Close one pool, or all."""
    if every and pool is not None:
        raise UsageError(f"%sky down takes a name or --all, but got both: leave {pool!r} or --all out.")
    name = pool or context.default_pool
    running = [cell for cell in context.cells if (every or cell.pool == name) and not cell.done()]
    if every:
        closed = context.pools.close_all()
        bills = (f"{each}{_bill(spent)}" for each, spent in closed.items())
        text = f"Closed: {', '.join(bills)}." if closed else "There are no pools."
    else:
        closed = {name: context.pools.close(name)}
        text = f"Pool {name!r} is closed{_bill(closed[name])}."
    warm = [note for each in closed for note in warm_notes(each)]
    return Outcome("\n".join((text, *warm, *(_ended(cell) for cell in running if cell.status != "done"))))


def _bill(spent: float) -> str:
    """Return the cost of a pool as the end of a clause; empty if it was free."""
    return f" ({money_text(spent)} spent)" if spent else ""


def _ended(cell: BackgroundCell) -> str:
    """Return a sentence on a cell that ran in the background when its pool was closed."""
    return f"Cell {cell.number} was still running and was stopped: {cell.remaining}."


@handler_of(DECLARED["status"])
def status(context: Context, *, pool: str | None = None) -> Outcome:
    """Show pools, their nodes, and cells in the background."""
    found = [context.pools.get(each).snapshot() for each in ([pool] if pool else context.pools.names)]
    left = [] if pool else [*orphan_notes(), *warm_notes()]
    if not found:
        return Outcome("\n".join((_NO_POOLS, *left)))
    nodes = {each.name: node_table(each) for each in found}
    parts = [pool_table(found), titled("nodes", nodes, are_several=len(found) > 1)]
    cells = [cell for cell in context.cells if pool in (None, cell.pool)]
    if cells:
        parts.append(_cell_table(cells))
    return Outcome("\n".join(left), "\n\n".join(parts))


def _cell_table(cells: Iterable[BackgroundCell]) -> str:
    """Return a table with one line for each cell in the background."""
    return table(
        ("cell", "status", "pool", "code"),
        ((cell.number, ", ".join(filter(None, (cell.status, cell.amount))), cell.pool, cell.code) for cell in cells),
    )


@handler_of(DECLARED["pools"])
def pools(context: Context) -> Outcome:
    """Show the pools."""
    names = context.pools.names
    left = [*orphan_notes(), *warm_notes()]
    if not names:
        return Outcome("\n".join((_NO_POOLS, *left)))
    return Outcome("\n".join(left), pool_table(context.pools.get(name).snapshot() for name in names))


@handler_of(DECLARED["decisions"])
def decisions(context: Context, *, pool: str | None = None) -> Outcome:
    """Show why a pool was scaled up or down, or why all were."""
    names = context.shown(pool)
    found = {name: context.pools.get(name).decisions() for name in names}
    if not any(found.values()):
        none = "There are no scaling decisions for pool {!r} since this kernel opened it, or attached to it."
        return Outcome("\n".join(map(none.format, names)))
    tables = {name: decision_table(events) for name, events in found.items() if events}
    return Outcome(table=titled("decisions", tables, are_several=len(names) > 1))


@handler_of(DECLARED["scale"])
def scale(
    context: Context,
    *,
    nodes: Nodes,
    pool: str | None = None,
    group: str | None = None,
    wait: bool = False,
    quiet: bool = False,
) -> Outcome:
    """Change how many nodes a pool, or one of its groups, has; with `--wait`, return when they are active.

    Raises:
        UsageError: there is no such pool, or nodes that keep values would have to be removed.
        SpecError: there is no such group.
    """
    name = pool or context.default_pool
    wanted = context.pools.scale(name, nodes, group)
    what = f"pool {name!r}" if group is None else f"group {group!r} of pool {name!r}"
    if wait:
        count = context.in_notebook().wait_for_nodes(name, wanted, group, quiet=quiet)
        return Outcome(f"{what[0].upper()}{what[1:]} has {count_text(count)}.")
    snapshot = context.pools.get(name).snapshot()
    if snapshot.budget_exhausted:
        return Outcome(f"Pool {name!r} {snapshot.failure}.", failed=True)
    return Outcome(f"Scaling {what} to {count_text(wanted)}.")


@handler_of(DECLARED["update"])
def update(
    context: Context, *, pool: str | None = None, options: Mapping[str, Any] | None = None, group: str | None = None
) -> Outcome:
    """Change the spec of the nodes of a pool, and replace those there are one by one.

    Raises:
        UsageError: no option is given, there is no such pool, or it refuses the update.
        SpecError: a value is not allowed, or there is no such group.
    """
    name = pool or context.default_pool
    if not options:
        raise UsageError(
            f"%sky update takes the options that change, such as `%sky update {name} --pip numpy,torch`: each takes "
            "the place of what the pool has now."
        )
    changed = context.pools.update(name, options, group)
    if not changed:
        return Outcome(f"Pool {name!r} is not changed.")
    nodes = context.pools.get(name).snapshot().nodes
    outdated = sum(node.outdated and group in (None, node.group) for node in nodes)
    if not outdated:
        return Outcome(f"New nodes of pool {name!r} have {changed}.")
    they = "1 node is replaced" if outdated == 1 else f"{outdated} nodes are replaced one by one"
    return Outcome(
        f"New nodes of pool {name!r} have {changed}; {they}. Until `%sky status` shows no outdated node, cells may "
        "still run on one."
    )


@handler_of(DECLARED["config"])
def config(context: Context, *, pool: str | None = None) -> Outcome:
    """Show every setting with its value and its source."""
    return Outcome(table=context.in_notebook().config(pool))
