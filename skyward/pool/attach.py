"""`sky.attach`: a pool that another process has opened, and left behind."""

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from skyward.errors import UsageError
from skyward.journal import Claim, Journal, PoolRecord, Seal
from skyward.values.validation import shown

if TYPE_CHECKING:
    from skyward.journal import PoolEntry
    from skyward.pool.compute import Compute

__all__ = ["attach"]


def attach(name: str) -> "Compute":
    """The pool of that name, open, which a process has left behind that was killed, or restarted.

    Its nodes are those that are still there under their lease, with what they hold: variables that were sent, what the
    pool's collections hold, tasks that run. `recovered` lists the tasks whose end that process did not hear of, or
    had no time to confirm, with their results and what they printed meanwhile. What it had not sent yet is lost.

    Nodes of `sky.Local()` end with the process that opened them, so such a pool cannot be attached to, unless they are
    told to outlive it: `sky.Local(outlives=True)`.

    Raises:
        UsageError: there is no such pool on record, or its owner lives.
        ProvisioningError: nothing of it is left. What is on record of it is reaped then.
    """
    from skyward.pool.compute import Compute
    from skyward.pool.reap import reap_pool

    if not isinstance(name, str):
        raise UsageError(f"A pool is attached to by its name, as in `sky.attach('train')`, but got {shown(name)}.")
    with ExitStack() as stack:
        journal = Journal()
        stack.callback(journal.close)
        entry, claim = _find(name, journal)
        stack.callback(claim.release)
        try:
            seal = Seal(claim.secrets_key)
            clusters = journal.clusters(entry.id, seal)
            settings = seal.unpack(entry.settings) if entry.settings else None
        except Exception as error:
            raise UsageError(
                f"What is on record of pool {name!r} cannot be read here ({error}): "
                "attach to it with the packages that it was opened with."
            ) from error
        if settings is None or not any(machine.worker for cluster in clusters for machine in cluster.machines):
            left = reap_pool(journal, entry, claim)
            cleared = "What there was of it has been cleared away; open it anew."
            kept = f"What there was of it could not be cleared away: {left}. `sky reap {name}` tries again."
            raise UsageError(
                f"Nothing of pool {name!r} is left to attach to: none of its nodes outlives the process that opened "
                f"it. {kept if left else cleared}"
            )
        groups, options = settings

        def take_over() -> PoolRecord:
            record = PoolRecord.taken_over(entry.id, journal, claim)
            stack.pop_all()  # the record has them from now on
            return record

        return Compute.attached(entry.name, groups, options, take_over, clusters)


_LOOKS = 5
_PAUSE = 0.05
"""How often, and how many seconds apart, a pool is asked for: who looks what is left behind holds it for an instant."""


def _find(name: str, journal: Journal) -> "tuple[PoolEntry, Claim]":
    entries = journal.pools(name)
    for look in range(_LOOKS if entries else 0):
        time.sleep(_PAUSE if look else 0.0)
        for entry in reversed(entries):
            if (claim := Claim.take(entry.id)) is not None:
                return entry, claim
    if entries:
        raise UsageError(
            f"Pool {name!r} belongs to process {entries[-1].pid} on {entries[-1].host}, which lives: "
            "use it there, or end that process first."
        )
    known = sorted({entry.name for entry in journal.pools()})
    there = f"on record are {', '.join(map(repr, known))}" if known else "there is none on record"
    raise UsageError(f"There is no pool {name!r} to attach to; {there}.")
