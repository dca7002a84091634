"""Attaching to a pool that was left, for one command, and leaving it again, whatever ends that command."""

import atexit
import contextlib
import socket
import time
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from skyward.cli.pools.leases import asked_lease, left_sentence
from skyward.cli.terminal.answers import say
from skyward.errors import SpecError, UsageError

if TYPE_CHECKING:
    from skyward.cli.terminal.interrupts import Interrupts
    from skyward.pool.compute import Compute
    from skyward.pool.reaping.recorded_pools import RecordedPool

__all__ = ["attached", "describe_user", "refuse_unless_free"]

_LOOK_EVERY = 0.5
"""Seconds between looks at whether a pool is in use."""

_ATTEMPTS = 4
_PAUSE = 0.05
"""Number of looks that must find a pool in use, and seconds between them."""

_LONGEST = 80
"""Characters of a command in a sentence."""

_REPLACED_WITHIN = 600.0
"""Seconds that a command waits for the replacement of the last node of its pool."""

_ARRIVES_WITHIN = 10.0
"""Seconds in which the ends of tasks that had ended before must arrive."""


@contextmanager
def attached(
    name: str, interrupts: "Interrupts", *, waits: bool = False, budget: float | None = None
) -> Iterator["Compute"]:
    """Attach to a pool that another process has left, and leave it at the end.

    Args:
        name: name of the pool.
        interrupts: the signals of the command, which do not interrupt the leaving.
        waits: whether to wait until no other process uses the pool.
        budget: another maximum of its total cost, USD; None for the one that it has.

    Raises:
        SpecError: there is no such pool, another process uses it, or its former process had unfinished tasks.
        UsageError: it has no nodes to attach to, and was ended.
        ProvisioningError: its nodes cannot be reached.
    """
    import_module("skyward.pool.hooks")  # registers what closes the pools of this process, after what follows
    atexit.register(_leave_open)  # a signal may interrupt anything below
    try:
        pool = _attach(name, waits=waits, budget=budget)
        try:
            yield pool
        finally:
            if not interrupts.signal:
                _await_replacement(pool)
    finally:
        with interrupts.closing():
            _leave_open()


def refuse_unless_free(name: str, *, waits: bool = False) -> None:
    """Refuse a pool that a command cannot attach to now; or, with `waits`, wait until no other process uses it.

    Raises:
        SpecError: another process uses it, or its former process had unfinished tasks.
    """
    from skyward.pool.reaping.recorded_pools import recorded_pools

    is_told = False
    while (used := _in_use(name)) is not None:
        user = describe_user(used)
        if not waits:
            raise SpecError(
                f"Pool {name!r} is used by {user}, and by one process at a time: give --wait to wait until it is free."
            )
        if not is_told:
            say(f"waiting until pool {name!r} is free: it is used by {user}.")
            is_told = True
        time.sleep(_LOOK_EVERY)
    if any(not each.owner and each.attachable and not each.left_idle for each in recorded_pools(name)):
        raise SpecError(_unfinished(name))


def describe_user(pool: "RecordedPool") -> str:
    """Return the process that owns a pool, with its command and how long it has run if it is on this computer."""
    from skyward.formatting import clock_text

    if pool.host != socket.gethostname():
        return pool.owner
    process = Path("/proc", str(pool.pid))
    with contextlib.suppress(OSError):
        words = process.joinpath("cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
        if Path(words[0]).name.startswith("python"):
            words = words[2 if words[1:2] == ["-m"] else 1 :] or words
        command = " ".join((Path(words[0]).name, *words[1:]))[:_LONGEST]
        return f"{pool.owner} (`{command}`, since {clock_text(process.stat().st_mtime)})"
    return pool.owner


def _attach(name: str, *, waits: bool, budget: float | None) -> "Compute":
    from skyward.pool.attach import attach
    from skyward.pool.reaping.recorded_pools import recorded_pools
    from skyward.reporting.console import opening_quietly

    while True:
        refuse_unless_free(name, waits=waits)
        try:
            with opening_quietly():
                pool = attach(name, budget=budget)
            break
        except UsageError as error:
            if _in_use(name) is not None:  # another process was quicker: it is named, or waited for
                continue
            if recorded_pools(name):
                raise SpecError(str(error)) from None
            raise  # it was ended
    _, unfinished = wait([task.future for task in pool.recovered], _ARRIVES_WITHIN)
    if unfinished:
        raise SpecError(_unfinished(name))
    return pool


def _in_use(name: str) -> "RecordedPool | None":
    """Return the newest pool of that name if processes own all of them; listing pools holds each for an instant."""
    from skyward.pool.reaping.recorded_pools import recorded_pools

    for attempt in range(_ATTEMPTS):
        time.sleep(_PAUSE if attempt else 0.0)
        found = [each for each in recorded_pools(name) if not each.warm_until]
        if not found or not all(each.owner for each in found):
            return None
    return found[-1]


def _unfinished(name: str) -> str:
    return (
        f"Pool {name!r} may have tasks of its former process, whose results this command would lose: take it over "
        f"with `sky.attach({name!r})` or `%sky attach {name}`, or end it with `skyward down {name}`."
    )


def _await_replacement(pool: "Compute") -> None:
    """Wait for a node if all nodes of a pool were lost and are being replaced: without one, nothing is left of it."""
    is_told = False
    deadline = time.monotonic() + _REPLACED_WITHIN
    while pool.is_open and time.monotonic() < deadline:
        snapshot = pool.snapshot()
        if _has_node(pool) or snapshot.failure or not (snapshot.nodes or snapshot.startup_failures):
            return
        if not is_told:
            say(
                f"pool {pool.name!r} has no node any more: waiting for its replacement. Ctrl-C closes the pool instead."
            )
            is_told = True
        time.sleep(_LOOK_EVERY)


def _has_node(pool: "Compute") -> bool:
    return any(node.state in ("active", "draining") for node in pool.snapshot().nodes)


def _leave_open() -> None:
    """Leave the pool that this command is attached to, if it is; close it if it cannot be left."""
    from skyward.pool.hooks import opened

    for pool in [*opened]:
        if not pool.is_open:  # it was closed: the budget is spent, or another process asked for it
            pool.close()
            continue
        try:
            if _has_node(pool) and pool.leave():
                _tell_lease(pool)
                continue
            why = _why_closed(pool)
        except UsageError as error:
            why = str(error).removeprefix(f"Pool {pool.name!r} cannot be left: ")
        pool.close()
        say(f"pool {pool.name!r} is closed: {why.rstrip('.')}.")
    atexit.unregister(_leave_open)


def _why_closed(pool: "Compute") -> str:
    from skyward.formatting import money_text

    snapshot = pool.snapshot()
    if not snapshot.budget_exhausted or snapshot.budget is None:
        return "it has no nodes any more"
    more = f"`skyward up {pool.name} --detach --budget USD` opens it anew"
    return f"its budget of {money_text(snapshot.budget)} is spent, and its nodes were given back; {more}"


def _tell_lease(pool: "Compute") -> None:
    """Say that the budget makes the lease shorter than the pool has asked for, if it does."""
    snapshot, asked = pool.snapshot(), asked_lease(pool)
    if snapshot.budget is not None and snapshot.lease < asked:
        say(left_sentence(pool.name, snapshot.lease, asked, snapshot.budget))
