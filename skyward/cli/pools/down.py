"""`skyward down`: terminate the machines of pools, and close these."""

import time
from typing import TYPE_CHECKING

from skyward.cli.terminal.answers import ask, say, write_lines
from skyward.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skyward.pool.reaping.recorded_pools import RecordedPool

__all__ = ["down"]

_HEEDED_WITHIN = 10.0
_CLOSED_WITHIN = 120.0
"""Seconds that the owner of a pool has to see the request, which it looks for every second, and to close the pool."""

_LOOK_EVERY = 0.2


def down(*, pool: tuple[str, ...] = (), every: bool = False, yes: bool = False, force: bool = False) -> int:
    """Close pools; return the exit status: 1 if machines may be left, or a pool was not closed."""
    from skyward.pool.reaping.recorded_pools import recorded_pools

    if bool(pool) == every:
        raise SpecError("give the names of pools, or --all.")
    found = recorded_pools()
    unknown = [name for name in pool if not any(name in (each.name, each.id) for each in found)]
    chosen = [each for each in found if every or {each.name, each.id} & {*pool}]
    for name in unknown:
        say(f"there is no pool {name!r}; `skyward status` lists all pools.")
    owned = [each for each in chosen if each.owner]
    if not force:
        for each in owned:
            say(
                f"pool {each.name!r} belongs to {each.owner}, which still runs: close it there, or give --force to ask "
                "that process."
            )
        chosen = [each for each in chosen if not each.owner]
    if not chosen:
        if every and not owned:
            write_lines(["There are no pools."])
        return int(bool(unknown or owned))
    names = ", ".join(each.name for each in chosen)
    if not ask(f"Terminate {_machines(chosen)} of {names}?", yes=yes):
        say("nothing was terminated.")
        return 1
    closed = [_close(each) for each in chosen]
    return int(not all(closed) or bool(unknown) or (bool(owned) and not force))


def _machines(pools: "Sequence[RecordedPool]") -> str:
    from skyward.formatting import count_text

    return count_text(sum(len(each.machines) for each in pools), "machine")


def _close(pool: "RecordedPool") -> bool:
    """Terminate the machines of one pool; return whether none is left."""
    if pool.owner:
        return _ask_owner(pool)
    from skyward.pool.reaping.reap import describe_orphan, reap

    done = [each for each in reap([pool.id], warm=True) if each.orphan.id == pool.id]
    if not done:
        say(f"pool {pool.name!r} has just been taken over, or closed, by another process.")
        return False
    write_lines(map(describe_orphan, done))
    return not any(each.error for each in done)


def _ask_owner(pool: "RecordedPool") -> bool:
    from skyward.journal import Journal
    from skyward.journal.requests import is_heeded, request_to_close, withdraw_request

    request_to_close(pool.id)
    say(f"waiting for {pool.owner} to close pool {pool.name!r}.")
    asked = time.monotonic()
    with Journal() as journal:
        while any(entry.id == pool.id for entry in journal.pools(pool.name)):
            has_answered = is_heeded(pool.id)
            within = _CLOSED_WITHIN if has_answered else _HEEDED_WITHIN
            if time.monotonic() - asked > within:
                withdraw_request(pool.id)
                fault = f"has not closed pool {pool.name!r}" if has_answered else "has not answered"
                say(
                    f"{pool.owner} {fault} within {within:g} s. If it is suspended, `kill -CONT {pool.pid}` lets it go "
                    f"on; `kill -9 {pool.pid}` ends it, and then `skyward down {pool.name}` terminates the machines."
                )
                return False
            time.sleep(_LOOK_EVERY)
    withdraw_request(pool.id)
    write_lines([f"{pool.name}: closed by {pool.owner}"])
    return True
