"""How many nodes to launch, which to drain and which to call back, so that there come to be as many as are wanted."""

from collections.abc import Iterable

__all__ = ["recall", "reconcile"]

HEAD = 0
"""The node that is never drained: others know its address."""


def reconcile(
    current: Iterable[int], pending: Iterable[int], draining: Iterable[int], desired: int
) -> tuple[int, tuple[int, ...]]:
    """How many nodes to launch, and the ranks to drain, first to last.

    Nodes on their way count as there, so nothing is launched twice. Nodes that leave are neither drained again nor
    does another one go in their place; where more are wanted they are called back (`recall`) before any is launched.
    Only nodes that are there are drained, the highest rank first, and never the head.

    Args:
        current: ranks of the nodes that are there, with those that leave and can still be called back.
        pending: ranks of those on their way.
        draining: ranks of those that leave.
        desired: how many there should be.
    """
    here = set(current)
    staying = here - set(draining)
    victims = sorted(staying - {HEAD}, reverse=True)[: max(0, len(staying) - desired)]
    return max(0, desired - len(here | set(pending))), tuple(victims)


def recall(current: Iterable[int], pending: Iterable[int], draining: Iterable[int], desired: int) -> tuple[int, ...]:
    """The ranks whose drain to call off, lowest first: as many as are wanted more than will be left.

    Takes what `reconcile` takes, and goes with its answer.
    """
    here, leaving = set(current), set(draining)
    missing = desired - len((here - leaving) | set(pending))
    return tuple(sorted(here & leaving)[: max(0, missing)])
