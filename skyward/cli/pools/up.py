"""`skyward up`: open a pool, and show it until Ctrl-C gives it back, or leave it to its lease."""

import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from skyward.cli.pools.opening import lease_text, make_pool
from skyward.cli.terminal.answers import say, speaker, write_lines
from skyward.cli.terminal.interrupts import Interrupts
from skyward.errors import SpecError
from skyward.formatting import money_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from skyward.pool.compute import Compute

__all__ = ["budget_warning", "up"]

_DRAW_EVERY = 0.5
"""Seconds between looks at the pool."""


def up(*, pool: str, detach: bool = False, quiet: bool = False, options: Mapping[str, Any] | None = None) -> int:
    """Open a pool; return the exit status: 0, or 128 and the signal that ended the wait for it to open."""
    from skyward.pool.reaping.recorded_pools import recorded_pools
    from skyward.reporting.console import opening_quietly

    if any(not each.warm_until for each in recorded_pools(pool)):
        raise SpecError(
            f"There is a pool {pool!r} already: `skyward status {pool}` shows it, and `skyward down {pool}` ends it."
        )
    compute = make_pool(pool, options or {}, outlives=detach)
    if detach and not any(specs[0].nodes.min for specs in compute.groups.values()):
        raise SpecError(
            f"Pool {pool!r} may have no nodes, and without any nothing is left of it when this command ends: give it "
            "at least one with --detach, such as `--nodes 1:4`."
        )
    with Interrupts(speaker(), lambda: _leaving(compute)) as interrupts:
        try:
            with opening_quietly(stays=True) if quiet else nullcontext():
                compute.open()
        except KeyboardInterrupt:  # it was closed again
            return interrupts.status
        if detach:
            return _detach(compute, interrupts)
        with suppress(KeyboardInterrupt):
            _show(compute)
        with interrupts.closing():
            compute.close()
    return 0


def budget_warning(name: str, budget: float | None, per_hour: float) -> str:
    """Return a warning that no process watches the budget of a pool that is left, USD; "" if it cannot be exceeded."""
    if budget is None or not per_hour:
        return ""
    return (
        f"The budget of {money_text(budget)} is watched only while a command or a notebook uses the pool: left alone, "
        f"its nodes cost {money_text(per_hour)} an hour until their lease ends. `--ttl 60` makes the lease shorter, "
        f"and `skyward down {name}` ends it."
    )


def _detach(pool: "Compute", interrupts: Interrupts) -> int:
    before = pool.snapshot()
    if not pool.leave():
        with interrupts.closing():
            pool.close()
        say(
            f"the nodes of pool {pool.name!r} cannot outlive this process, so they were given back; leave --detach out."
        )
        return 1
    name = pool.name
    write_lines([f"Pool {name!r} is left to its lease {lease_text(pool)}."])
    say(f"`skyward run --pool {name} SCRIPT` and `skyward exec {name}` use it; `skyward down {name}` ends it.")
    if warning := budget_warning(name, before.budget, before.per_hour):
        say(warning)
    return 0


def _show(pool: "Compute") -> None:
    """Show the pool until a signal arrives, or it is closed: as a live table on a terminal."""
    from skyward.reporting.screen import is_terminal

    if not is_terminal(sys.stdout):
        write_lines([f"Pool {pool.name!r} is open."])
        while pool.is_open:
            time.sleep(_DRAW_EVERY)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.stdout, highlight=False)
    with Live(_drawn(pool), console=console, auto_refresh=False, redirect_stdout=False) as live:
        while pool.is_open:
            time.sleep(_DRAW_EVERY)
            live.update(_drawn(pool), refresh=True)


def _drawn(pool: "Compute") -> "RenderableType":
    """Return the state of the pool to draw."""
    from rich.console import Group
    from rich.text import Text

    from skyward.formatting import count_text, money_text
    from skyward.views.tables import node_grid

    snapshot = pool.snapshot()
    cost = f", {money_text(snapshot.spent)} so far" if snapshot.spent else ""
    rate = f", {money_text(snapshot.per_hour)} per hour" if snapshot.per_hour else ""
    head = f"Pool {pool.name}: {count_text(snapshot.active)} active{rate}{cost}; Ctrl-C gives the nodes back"
    nodes = node_grid(snapshot)
    nodes.header_style = "bold"
    return Group(Text(head), nodes)


def _leaving(pool: "Compute") -> str:
    if pool.is_open and not any(node.outlives for node in pool.snapshot().nodes):
        return f"the nodes of pool {pool.name!r} are on this computer, and end with this process."
    return (
        f"the nodes of pool {pool.name!r} are left to their lease {lease_text(pool)}, and cost money meanwhile: "
        f"`skyward reap {pool.name}` terminates them."
    )
