"""The lifecycle of one machine in the cloud: its states, transitions and timeouts. Decides only; no I/O.

States and transitions are those of Ray's autoscaler v2 (`spec/`, version 2.48), under other names.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from math import ceil
from typing import Literal

__all__ = [
    "INSTANCE",
    "InstanceState",
    "Observed",
    "after_request_timeout",
    "can_run",
    "launch_now",
    "observe",
    "reachable",
]

type InstanceState = Literal[
    "UNKNOWN",
    "QUEUED",
    "REQUESTED",
    "ALLOCATED",
    "INSTALLING",
    "RUNNING",
    "STOP_REQUESTED",
    "STOPPING",
    "STOPPED",
    "TERMINATING",
    "TERMINATED",
    "ALLOCATION_FAILED",
    "INSTALL_FAILED",
    "TERMINATION_FAILED",
]

type Observed = Literal["UNSPECIFIED", "RUNNING", "IDLE", "DRAINING", "DEAD"]
"""State of a worker, as reported or as known."""


def _moves(*to: InstanceState) -> frozenset[InstanceState]:
    return frozenset(to)


INSTANCE: Mapping[InstanceState, frozenset[InstanceState]] = {
    "QUEUED": _moves("REQUESTED"),
    "REQUESTED": _moves("ALLOCATED", "QUEUED", "ALLOCATION_FAILED"),
    "ALLOCATED": _moves("INSTALLING", "RUNNING", "STOPPING", "STOPPED", "TERMINATING", "TERMINATED"),
    "INSTALLING": _moves("RUNNING", "INSTALL_FAILED", "STOPPED", "TERMINATING", "TERMINATED"),
    "RUNNING": _moves("STOP_REQUESTED", "STOPPING", "STOPPED", "TERMINATING", "TERMINATED"),
    "STOP_REQUESTED": _moves("RUNNING", "STOPPING", "STOPPED", "TERMINATED"),
    "STOPPING": _moves("STOPPED", "TERMINATING", "TERMINATED"),
    "STOPPED": _moves("TERMINATING", "TERMINATED"),
    "TERMINATING": _moves("TERMINATED", "TERMINATION_FAILED"),
    "TERMINATION_FAILED": _moves("TERMINATING"),
    "INSTALL_FAILED": _moves("TERMINATING", "TERMINATED"),
    "TERMINATED": _moves(),
    "ALLOCATION_FAILED": _moves(),
    "UNKNOWN": _moves(),
}
"""An instance is queued, requested, allocated, installed, runs, drains (unless refused), and is terminated."""

_SEEN: Mapping[Observed, InstanceState] = {
    "RUNNING": "RUNNING",
    "IDLE": "RUNNING",
    "DRAINING": "STOPPING",
    "DEAD": "STOPPED",
}


@cache
def reachable(state: InstanceState) -> frozenset[InstanceState]:
    """Return every state that an instance may still reach; `state` itself only if a path leads back to it."""
    found: set[InstanceState] = set()
    ahead = list(INSTANCE[state])
    while ahead:
        if (each := ahead.pop()) not in found:
            found.add(each)
            ahead.extend(INSTANCE[each])
    return frozenset(found)


def can_run(state: InstanceState) -> bool:
    """Return whether an instance runs tasks, or may still do so."""
    return state == "RUNNING" or "RUNNING" in reachable(state)


def observe(state: InstanceState, observed: Observed) -> InstanceState:
    """Return the state of an instance after its worker was seen as `observed`.

    A late report, or one that allows no legal transition, changes nothing. A worker that drains while it is recorded as
    installing has started, so it counts as running until its next report.
    """
    seen = _SEEN.get(observed)
    if seen is None or seen == state or state in reachable(seen):
        return state
    if seen in INSTANCE[state]:
        return seen
    if seen == "STOPPING" and "RUNNING" in INSTANCE[state]:
        return "RUNNING"
    return state


def launch_now(
    queued: Mapping[str, int],
    requested: Mapping[str, int],
    running: Mapping[str, int],
    upscaling_speed: float,
    max_concurrent_launches: int,
) -> dict[str, int]:
    """Return the number of queued instances to request now, by type; types with none are left out.

    For each type at most `upscaling_speed` times the running instances, and at least one; at most
    `max_concurrent_launches` may be requested in total. Types go in the order of `queued`.
    """
    left = max_concurrent_launches - sum(requested.values())
    launches: dict[str, int] = {}
    for name, waiting in queued.items():
        rate = max(1, ceil(upscaling_speed * max(running.get(name, 0), 1)))
        count = min(waiting, rate, left)
        if count > 0:
            launches[name] = count
            left -= count
    return launches


def after_request_timeout(
    now: float, timeout: float, max_retries: int, requested_at: Iterable[float]
) -> Literal["QUEUED", "ALLOCATION_FAILED"] | None:
    """Return the next state of an instance in REQUESTED; None before its timeout.

    Args:
        timeout: seconds that one request may take.
        max_retries: requests after the first.
        requested_at: times of its requests.
    """
    times = tuple(requested_at)
    if not times or now - max(times) <= timeout:
        return None
    return "ALLOCATION_FAILED" if len(times) > max_retries else "QUEUED"
