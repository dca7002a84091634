"""What is wrong with the nodes of a pool that do not come up, put together from its control plane and their starts."""

from collections.abc import Iterator
from itertools import islice

from skyward.control.decide.machines.machines import Machine
from skyward.control.decide.plane import ControlPlane
from skyward.control.observe.snapshot import TroubleView
from skyward.control.observe.startup import REQUESTED, Boots, Failure

__all__ = ["troubles"]

MOST = 20
"""Nodes that are told of: those of the lowest ranks."""


def troubles(plane: ControlPlane, boots: Boots, now: float, since: float) -> tuple[TroubleView, ...]:
    """The nodes that are wanted and whose latest start has failed. `since`: Unix time at zero of the steady clock."""
    return tuple(islice(_troubles(plane, boots, now, since), MOST))


def _troubles(plane: ControlPlane, boots: Boots, now: float, since: float) -> Iterator[TroubleView]:
    reconciler = plane.reconciler
    for rank in sorted({*boots.failures, *reconciler.given_up}):
        gave_up = rank in reconciler.given_up
        machine = reconciler.book.seats[rank].machine if rank in reconciler.book.seats else None
        if machine is None and not gave_up:
            continue  # it is not wanted any more
        failure = boots.failures.get(rank) or Failure(REQUESTED, plane.failure, (), now)
        attempt, attempts = _attempts(plane, rank, failure)
        retry = None if machine is None or gave_up else _retry_at(plane, machine)
        yield TroubleView(
            rank=rank,
            group="" if machine is None else machine.group,
            phase=failure.phase,
            reason=failure.reason,
            lines=failure.lines,
            at=failure.at + since,
            attempt=attempt,
            attempts=attempts,
            retry_at=None if retry is None or retry <= now else retry + since,
            gave_up=gave_up,
        )


def _attempts(plane: ControlPlane, rank: int, failure: Failure) -> tuple[int, int]:
    """The number of the next try, or the one under way, and after how many there is none."""
    reconciler = plane.reconciler
    failed, refused = reconciler.attempts(rank)
    if failure.phase == REQUESTED:
        return refused + 1, reconciler.limits.refusals if reconciler.opening else 0
    return failed + 1, reconciler.limits.launches


def _retry_at(plane: ControlPlane, machine: Machine) -> float | None:
    """When a machine that waits its turn is asked for at the soonest; None where it has been."""
    if machine.state != "QUEUED" or machine.asked:
        return None
    reconciler = plane.reconciler
    places = reconciler.places[machine.group]
    return max(machine.not_before, min(map(reconciler.requester.backoff.ready_at, places)))
