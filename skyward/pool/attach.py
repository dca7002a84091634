"""`sky.attach`: take over an orphaned pool of another process."""

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from skyward.errors import UsageError
from skyward.journal import Claim, Journal, JournalSeal, PoolRecord
from skyward.values.validation import shown

if TYPE_CHECKING:
    from skyward.journal import PoolEntry
    from skyward.pool.compute import Compute

__all__ = ["attach"]


def attach(name: str) -> "Compute":
    """Take over the pool of that name from a process that was killed or restarted, and return it open.

    Its nodes are those whose lease has not expired, with their state: variables, contents of collections, running
    tasks. `recovered` lists the tasks whose end that process did not receive or confirm, with their results and
    output. Tasks that it had not sent yet are lost.

    Nodes of `sky.Local()` end with the process that opened them, so such a pool cannot be attached to, unless it was
    opened with `sky.Local(outlives=True)`.

    Raises:
        UsageError: there is no such pool, its owner is still running, or none of its nodes outlives its owner; in the
            last case it is reaped.
        ProvisioningError: none of its nodes exists any more, or too few could be reconnected.

    Example:
        >>> pool = sky.attach("train")
        >>> for task in pool.recovered:
        ...     print(task.state, task.output)
    """
    from skyward.pool.compute import open_attached
    from skyward.pool.reap import reap_pool

    if not isinstance(name, str):
        raise UsageError(f"A pool is attached to by its name, as in `sky.attach('train')`, but got {shown(name)}.")
    with ExitStack() as stack:
        journal = Journal()
        stack.callback(journal.close)
        entry, claim = _find(name, journal)
        stack.callback(claim.release)
        try:
            seal = JournalSeal(claim.secrets_key)
            clusters = journal.clusters(entry.id, seal)
            settings = seal.unpack(entry.settings) if entry.settings else None
        except Exception as error:
            raise UsageError(
                f"The records of pool {name!r} cannot be read here ({error}): "
                "attach to it in an environment with the packages that it was opened with."
            ) from error
        if settings is None or not any(machine.worker for cluster in clusters for machine in cluster.machines):
            left = reap_pool(journal, entry, claim)
            reaped = "Its machines were terminated; open a new pool."
            failed = f"Its machines could not be terminated: {left}. Run `sky reap {name}` to try again."
            raise UsageError(
                f"Pool {name!r} has no nodes left to attach to: none of them outlives the process that opened it. "
                f"{failed if left else reaped}"
            )
        groups, options = settings

        def take_over() -> PoolRecord:
            record = PoolRecord.taken_over(entry.id, journal, claim)
            stack.pop_all()  # the record owns them now
            return record

        return open_attached(entry.name, groups, options, take_over, clusters)


_ATTEMPTS = 5
_PAUSE = 0.05
"""Number of attempts to claim a pool, and seconds between them: listing orphans holds each claim for an instant."""


def _find(name: str, journal: Journal) -> "tuple[PoolEntry, Claim]":
    entries = journal.pools(name)
    for attempt in range(_ATTEMPTS if entries else 0):
        time.sleep(_PAUSE if attempt else 0.0)
        for entry in reversed(entries):
            if (claim := Claim.take(entry.id)) is not None:
                return entry, claim
    if entries:
        raise UsageError(
            f"Pool {name!r} belongs to process {entries[-1].pid} on {entries[-1].host}, which is still running: "
            "use it there, or end that process first."
        )
    known = sorted({entry.name for entry in journal.pools()})
    others = f"the journal has {', '.join(map(repr, known))}" if known else "the journal has none"
    raise UsageError(f"There is no pool {name!r} to attach to; {others}.")
