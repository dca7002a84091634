"""`sky.attach`: take over an orphaned pool of another process."""

import math
import os
import socket
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from skyward.control.decide.machines.budget import can_be_attached
from skyward.errors import UsageError
from skyward.formatting import money_text
from skyward.journal import SELF_TERMINATION, Claim, Journal, JournalSeal, PoolRecord, nodes_of
from skyward.pool.reaping.local_nodes import has_ended
from skyward.pool.reaping.orphans import outlives, update_goes_on
from skyward.specs.update import SpecHistory
from skyward.values import limits
from skyward.values.validation import number, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skyward.journal import ClusterEntry, CostEntry, PoolEntry
    from skyward.pool.compute import Compute

__all__ = ["attach"]


def attach(name: str, *, budget: float | None = None) -> "Compute":
    """Take over the pool of that name from a process that was killed or restarted, and return it open.

    Its nodes are those whose lease has not expired, with their state: variables, contents of collections, running
    tasks. `recovered` lists the tasks whose end that process did not receive or confirm, with their results and
    output. Tasks that it had not sent yet are lost; a notice has their number.

    If an update was just replacing all nodes, so that none is left, it goes on.

    Nodes of `sky.Local()` end with the process that opened them, so such a pool cannot be attached to, unless it was
    opened with `sky.Local(outlives=True)`.

    The pool's budget and costs continue: a pool that is about to reach its budget drains at once, and returns the
    results of its tasks first. A pool that has reached it needs another `budget`.

    Args:
        budget: maximum total cost of the pool from now on, USD, including the cost so far; None for the budget that it
            has.

    Raises:
        UsageError: there is no such pool, its owner is still running, the budget does not cover attaching, or it
            has no nodes to attach to; in the last case it is reaped.
        ProvisioningError: none of its nodes exists any more, or too few could be reconnected.

    Example:
        >>> pool = sky.attach("train")
        >>> for task in pool.recovered:
        ...     print(task.state, task.output)
    """
    from skyward.pool.compute import open_attached
    from skyward.pool.reaping.reap import reap_pool

    if not isinstance(name, str):
        raise UsageError(f"A pool is attached to by its name, as in `sky.attach('train')`, but got {shown(name)}.")
    number(budget, "budget", optional=True, most=limits.USD)
    with ExitStack() as stack:
        journal = Journal()
        stack.callback(journal.close)
        entry, claim = _find(name, journal)
        stack.callback(claim.release)
        try:
            seal = JournalSeal(claim.secrets_key)
            clusters = journal.clusters(entry.id, seal)
            recorded = journal.specs(entry.id)
            has_settings = entry.settings and all(each.specs for each in recorded)
            settings = seal.unpack(entry.settings) if has_settings else None
            histories: dict[str, SpecHistory] = {}
            for each in recorded if settings is not None else ():
                histories.setdefault(each.group, SpecHistory()).add(each.first, seal.unpack(each.specs))
        except Exception as error:
            raise UsageError(
                f"The records of pool {name!r} cannot be read here ({error}): "
                "attach to it in an environment with the packages that it was opened with."
            ) from error
        is_alive = claim.silent <= entry.lease + SELF_TERMINATION  # else its machines are gone
        machines = [machine for cluster in clusters for machine in cluster.machines]
        goes_on = update_goes_on(journal, entry, claim)
        if settings is None or not (nodes_of(machines, journal.size(entry.id)) or goes_on):
            left = reap_pool(journal, entry, claim).error
            reaped = "Its machines were terminated; open a new pool."
            failed = f"Its machines could not be terminated: {left}. Run `skyward reap {name}` to try again."
            why = _why_none(settings, clusters)
            raise UsageError(f"Pool {name!r} has no nodes to attach to: {why}. {failed if left else reaped}")
        groups, options = settings
        groups = {**groups, **{name: history.present for name, history in histories.items()}}
        if budget is not None:
            _check_prices(name, clusters)
            options = replace(options, budget=budget)
        if is_alive and not all(has_ended(entry, each, owned=False) for each in machines):
            _check_budget(name, journal.costs(entry.id), budget)

        def take_over() -> PoolRecord:
            record = PoolRecord.taken_over(entry.id, journal, claim)
            stack.pop_all()  # the record owns them now
            if budget is not None:
                record.set_budget(budget)
            return record

        return open_attached(entry.name, groups, options, take_over, clusters, histories)


def _why_none(settings: object, clusters: "Sequence[ClusterEntry]") -> str:
    """Return why a pool of an ended process has no nodes to attach to. `settings`: None if they are not on record."""
    if settings is None:
        return "its options or specs could not be recorded, because something in them cannot be pickled"
    if not any(map(outlives, clusters)):
        return "none of them outlives the process that opened it"
    return "none was ready when the process that opened it ended"


def _check_prices(name: str, clusters: "Sequence[ClusterEntry]") -> None:
    unpriced = [str(cluster.offered.source) for cluster in clusters if cluster.machines and not cluster.offered.priced]
    if unpriced:
        raise UsageError(
            f"The budget cannot be enforced: pool {name!r} has nodes at {', '.join(unpriced)}, whose price is not "
            f"known. Attach to it without one: `sky.attach({name!r})`."
        )


def _check_budget(name: str, costs: "CostEntry | None", budget: float | None) -> None:
    """Refuse to attach to a pool of which the budget would terminate the machines before their results arrive."""
    if costs is None:
        return
    budget, spent = costs.budget if budget is None else budget, costs.until(time.time())
    if budget is not None and not can_be_attached(spent, costs.per_hour, budget):
        raise UsageError(
            f"Pool {name!r} has spent {money_text(spent)} of its budget of {money_text(budget)}: attach to it with a "
            f"larger one, such as `sky.attach({name!r}, budget={_enough(spent)})`, `%sky attach {name} --budget "
            f"{_enough(spent)}` or `skyward run --pool {name} --budget {_enough(spent)} SCRIPT`, or terminate its "
            f"machines with `skyward reap {name}`. Until then they run under their lease, for "
            f"{money_text(costs.per_hour)} an hour."
        )


def _enough(spent: float) -> int:
    return math.ceil(spent * 2)


_ATTEMPTS = 5
_PAUSE = 0.05
"""Number of attempts to claim a pool, and seconds between them: listing orphans holds each claim for an instant."""


def _find(name: str, journal: Journal) -> "tuple[PoolEntry, Claim]":
    entries = [entry for entry in journal.pools(name) if not journal.warm.is_resting(entry.id)]
    for attempt in range(_ATTEMPTS if entries else 0):
        time.sleep(_PAUSE if attempt else 0.0)
        for entry in reversed(entries):
            if (claim := Claim.take(entry.id)) is not None:
                return entry, claim
    if entries:
        if (entries[-1].host, entries[-1].pid) == (socket.gethostname(), os.getpid()):
            raise UsageError(f"Pool {name!r} is open in this process already: use it, there is nothing to attach to.")
        raise UsageError(
            f"Pool {name!r} belongs to process {entries[-1].pid} on {entries[-1].host}, which is still running: "
            "use it there, or wait until that process has left it."
        )
    known = sorted({entry.name for entry in journal.pools()})
    others = f"the journal has {', '.join(map(repr, known))}" if known else "the journal has none"
    raise UsageError(f"There is no pool {name!r} to attach to; {others}.")
