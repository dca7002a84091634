"""Sentences on how long the nodes of a pool outlive a command."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skyward.pool.compute import Compute

__all__ = ["asked_lease", "lease_text", "left_sentence"]


def asked_lease(pool: "Compute") -> float:
    """Return the longest lease that the specs of a pool ask for, in seconds."""
    return max(spec.ttl for alternatives in pool.groups.values() for spec in alternatives)


def lease_text(pool: "Compute") -> str:
    """Return how long the nodes of a pool outlive this process: `for 10 min 0 s`."""
    from skyward.formatting import duration_text

    return f"for {duration_text(pool.snapshot().lease if pool.is_open else asked_lease(pool))}"


def left_sentence(name: str, lease: float, asked: float, budget: float | None) -> str:
    """Return a sentence on a pool that was left.

    Args:
        name: name of the pool.
        lease: the lease of its nodes, in seconds.
        asked: the lease that its specs ask for, in seconds.
        budget: USD in total; None for no limit.
    """
    from skyward.formatting import duration_text, money_text

    if budget is None or lease >= asked:
        return f"Pool {name!r} is left to its lease for {duration_text(lease)}."
    rest = f"the rest of its budget of {money_text(budget)} covers no more"
    return f"Pool {name!r} is left for {duration_text(lease)}: {rest}."
