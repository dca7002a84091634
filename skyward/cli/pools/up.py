"""`skyward up`: open a pool, and show it until Ctrl-C gives it back, or leave it to its lease."""

import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from skyward.cli.pools.access import refuse_ended
from skyward.cli.pools.leases import asked_lease, left_sentence
from skyward.cli.pools.opening import make_pool
from skyward.cli.pools.signals import of_own
from skyward.cli.terminal.answers import say, speaker, write_lines
from skyward.cli.terminal.interrupts import Interrupts
from skyward.errors import SpecError, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from skyward.pool.compute import Compute

__all__ = ["up"]

_DRAW_EVERY = 0.5
"""Seconds between looks at the pool."""


def up(*, pool: str, detach: bool = False, quiet: bool = False, options: Mapping[str, Any] | None = None) -> int:
    """Open a pool; return the exit status: 0, or 128 and the signal that ended the wait for it to open."""
    from skyward.pool.compute import limit_leases
    from skyward.pool.reaping.recorded_pools import recorded_pools
    from skyward.reporting.console import opening_quietly

    if recorded := [each for each in recorded_pools(pool) if not each.warm_until]:
        refuse_ended(recorded[-1])
        raise SpecError(
            f"There is a pool {pool!r} already: `skyward status {pool}` shows it, and `skyward down {pool}` ends it."
        )
    compute = make_pool(pool, options or {}, outlives=detach)
    if detach and not any(specs[0].nodes.min for specs in compute.groups.values()):
        raise SpecError(
            f"Pool {pool!r} may have no nodes, and without any nothing is left of it when this command ends: give it "
            "at least one with --detach, such as `--nodes 1:4`."
        )
    with Interrupts(speaker(), lambda: of_own(compute)) as interrupts:
        try:
            with opening_quietly(stays=True) if quiet else nullcontext():
                compute.open()
        except KeyboardInterrupt:  # it was closed again
            return interrupts.status
        if detach:
            return _detach(compute, interrupts)
        with suppress(KeyboardInterrupt):
            limit_leases(compute)
            _show(compute, interrupts)
        with interrupts.closing():
            compute.close()
    return 0


def _detach(pool: "Compute", interrupts: Interrupts) -> int:
    try:
        why = "" if pool.leave() else "the nodes cannot outlive this process; leave --detach out"
    except UsageError as error:
        why = str(error)
    if why:
        with interrupts.closing():
            pool.close()
        say(f"the nodes of pool {pool.name!r} were given back: {why.rstrip('.')}.")
        return 1
    name, snapshot = pool.name, pool.snapshot()
    write_lines([left_sentence(name, snapshot.lease, asked_lease(pool), snapshot.budget)])
    say(f"`skyward run --pool {name} SCRIPT` and `skyward exec {name}` use it; `skyward down {name}` ends it.")
    return 0


def _show(pool: "Compute", interrupts: Interrupts) -> None:
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
    with (
        interrupts.drawing(),
        Live(_drawn(pool), console=console, auto_refresh=False, redirect_stdout=False) as live,
    ):
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
