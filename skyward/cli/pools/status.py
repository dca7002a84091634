"""`skyward status`: the pools of this user, from the journal."""

import time
from typing import TYPE_CHECKING, Any

from skyward.cli.terminal.answers import say, write_json, write_lines, write_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from skyward.pool.reaping.recorded_pools import RecordedMachine, RecordedPool

__all__ = ["status"]


def status(*, pool: str | None = None, json: bool = False) -> int:
    """Print the pools, and the machines of one; return 1 if there is no pool of that name."""
    from skyward.formatting import count_text
    from skyward.pool.reaping.recorded_pools import recorded_pools

    found = recorded_pools(pool)
    if json:
        write_json([_row(each) for each in found])
    elif found:
        write_table(_pools(found))
        if pool is not None:
            write_lines([""])
            write_table(_machines(found))
    elif pool is None:
        write_lines(["There are no pools."])
    if pool is not None and not found:
        say(f"there is no pool {pool!r}; `skyward status` lists all pools.")
        return 1
    for each in found:
        if each.unreadable:
            say(f"the records of pool {each.name!r} cannot be read here: {each.unreadable}.")
        if each.unanswered and not each.owner:
            requests, have = count_text(each.unanswered, "request"), "has" if each.unanswered == 1 else "have"
            say(f"{requests} of pool {each.name!r} {have} no answer, and may have launched machines.")
    return 0


def _pools(found: "Sequence[RecordedPool]") -> "Table":
    from skyward.formatting import money_text
    from skyward.views.drawing import grid

    rows = [
        (
            each.name,
            each.owner or f"gone, was process {each.pid} on {each.host}",
            len(each.machines),
            _left(each),
            money_text(each.per_hour) if each.per_hour else "free",
            money_text(each.spent) + (f" of {money_text(each.budget)}" if each.budget is not None else ""),
            each.places,
        )
        for each in found
    ]
    return grid(("pool", "owner", "machines", "lease", "$/hour", "so far", "place"), rows, cut=("owner", "place"))


def _left(pool: "RecordedPool") -> str:
    from skyward.formatting import clock_text, duration_text

    if pool.warm_until:
        return f"warm until {clock_text(pool.warm_until)}"
    if pool.ended:
        return f"its nodes have ended; `skyward down {pool.name}` clears it"
    if pool.lease_left is None:
        return f"renewed, {duration_text(pool.lease)}"
    return f"{duration_text(pool.lease_left)} left" if pool.lease_left else "over"


def _machines(found: "Sequence[RecordedPool]") -> "Table":
    from skyward.views.drawing import grid

    rows = [
        (
            *((each.name,) if len(found) > 1 else ()),
            "none" if one.rank is None else one.rank,
            one.id,
            one.address,
            _state(each, one),
            one.place,
        )
        for each in found
        for one in each.machines
    ]
    header = (*(("pool",) if len(found) > 1 else ()), "node", "machine", "address", "state", "place")
    return grid(header, rows, cut=("address", "place"))


def _state(pool: "RecordedPool", machine: "RecordedMachine") -> str:
    """Return the state of a machine in a word."""
    if machine.ended:
        return "gone"
    if pool.warm_until:
        return "warm"
    if machine.rank is not None:
        return "active"
    return "leaving" if machine.directory else "starting"


def _row(pool: "RecordedPool") -> dict[str, Any]:
    return {
        "pool": pool.name,
        "id": pool.id,
        "state": pool.state,
        "owner_alive": bool(pool.owner),
        "pid": pool.pid,
        "host": pool.host,
        "opened": pool.opened,
        "lease": pool.lease,
        "lease_left": pool.lease_left,
        "attachable": pool.attachable,
        "warm_until": pool.warm_until or None,
        "per_hour": pool.per_hour,
        "spent": pool.spent,
        "budget": pool.budget,
        "unanswered_requests": pool.unanswered,
        "as_of": time.time(),
        "machines": [
            {"id": each.id, "node": each.rank, "address": each.address, "place": each.place, "ended": each.ended}
            for each in pool.machines
        ],
    }
