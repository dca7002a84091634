"""Scripts on all nodes of a pool: the wait for those that start, and a sentence on those that it did not run on."""

import time
from typing import TYPE_CHECKING

from skyward.cli.terminal.answers import say
from skyward.formatting import count_text, nodes_text

if TYPE_CHECKING:
    from collections.abc import Collection

    from skyward.control.observe.snapshot import PoolSnapshot
    from skyward.pool.compute import Compute
    from skyward.specs.placement import On

__all__ = ["await_nodes", "tell_left_out"]

_LOOK_EVERY = 0.1
"""Seconds between looks at the nodes of a pool."""


def await_nodes(pool: "Compute", on: "On") -> None:
    """Before a script runs on all nodes of a pool that was attached to, wait until it has its minimum of nodes again.

    A node that was lost while nobody had the pool is replaced from then on. The wait ends if it cannot be replaced.
    """
    if not _is_everywhere(pool, on):
        return
    is_told = False
    while pool.is_open:
        snapshot = pool.snapshot()
        active, starting = _nodes(snapshot, on)
        if not starting or snapshot.failure or len(active) >= _least(pool, snapshot, on):
            return
        if not is_told:
            verb = "are" if len(starting) > 1 else "is"
            say(f"waiting for {nodes_text(starting)} of pool {pool.name!r}, which {verb} not ready yet.")
            is_told = True
        time.sleep(_LOOK_EVERY)


def tell_left_out(pool: "Compute", on: "On", ran: "Collection[int]", script: str, *, stays: bool) -> None:
    """Say which nodes of a pool a script did not run on, if it was to run on all of them.

    Args:
        ran: ranks of the nodes that it ran on.
        stays: whether the pool stays, so that it can run there later.
    """
    if not (_is_everywhere(pool, on) and pool.is_open):
        return
    snapshot = pool.snapshot()
    active, starting = _nodes(snapshot, on)
    if left_out := sorted({*active, *starting} - {*ran}):
        were = "they were not ready" if len(left_out) > 1 else "it was not ready"
        again = f": run it there with `--on {','.join(map(str, left_out))}`" if stays else ""
        say(f"{script} did not run on {nodes_text(left_out)} of pool {pool.name!r}, since {were}{again}.")
    elif len({*ran}) < (least := _least(pool, snapshot, on)):
        say(f"{script} ran on {len({*ran})} of {count_text(least)} of pool {pool.name!r}: the others are not there.")


def _is_everywhere(pool: "Compute", on: "On") -> bool:
    return isinstance(on, str) and on in ("all", *pool.groups)


def _least(pool: "Compute", snapshot: "PoolSnapshot", on: "On") -> int:
    """Return the minimum of nodes of a pool, or of a group of it."""
    return snapshot.min if on == "all" else pool.groups[str(on)][0].nodes.min


def _nodes(snapshot: "PoolSnapshot", on: "On") -> tuple[list[int], list[int]]:
    """Return the ranks of the nodes that are active, and of those that start."""
    nodes = [each for each in snapshot.nodes if on in ("all", each.group)]
    retried = {each.rank for each in snapshot.startup_failures if on in ("all", each.group) and not each.gave_up}
    active = [each.rank for each in nodes if each.state == "active"]
    starting = {each.rank for each in nodes if each.state in ("vacant", "waiting")} | retried
    return active, sorted(starting - {*active})
