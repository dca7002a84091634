"""Snapshots of a pool, assembled from its control plane and its nodes."""

import time
from collections.abc import Iterator, Mapping
from itertools import islice

from skyward.control.act.nodes.launching import Launcher
from skyward.control.act.nodes.node import Node
from skyward.control.act.tasks.history import unix_offset
from skyward.control.decide.machines.table import Machine, MachineTable
from skyward.control.decide.plane import ControlPlane
from skyward.control.lifecycle import PoolState
from skyward.control.observe.snapshot import KeptView, NodeView, PoolSnapshot, StartupFailureView
from skyward.control.observe.startup import REQUESTED, StartupFailure, StartupTracker
from skyward.formatting import clock_text

__all__ = ["startup_failures", "task_history", "view"]


def task_history(plane: ControlPlane, task: int) -> tuple[str, ...]:
    """Return the transitions of a task as text, oldest first, each with its cause; empty if they are not known."""
    life, since = plane.tasks.life_of(task), unix_offset()
    return tuple(
        f"{clock_text(at + since)} {before} -> {after}{f': {why}' if why else ''}{_cause(plane, cause)}"
        for at, before, after, why, cause in (() if life is None else life.transitions)
    )


def _cause(plane: ControlPlane, number: int) -> str:
    return f" ({plane.causes.get(number) or f'#{number}'})" if number else ""


def view(
    plane: ControlPlane,
    nodes: Mapping[int, Node],
    name: str,
    state: PoolState,
    launchers: Mapping[str, Launcher],
    done: int,
    failed: int,
) -> PoolSnapshot:
    """Return a snapshot of the pool: its nodes by rank, then machines that are stopping."""
    now, since = time.monotonic(), unix_offset()
    table = plane.reconciler.table
    over = state == "closed"
    if over:  # the table is stale: all machines were terminated and all tasks have ended
        table = MachineTable()
    seated = {assignment.machine.id: assignment.life.state for _, assignment in sorted(table.assignments.items())}
    groups = plane.groups.values()
    order = [*(table.machines[number] for number in seated), *(m for m in table if m.id not in seated)]
    views = []
    startups = next((launcher.startups for launcher in launchers.values()), None)
    for machine in order:
        node = nodes.get(machine.rank) if machine.id in seated else None
        waits = seated.get(machine.id) == "waiting"
        views.append(
            NodeView(
                rank=machine.rank,
                state=seated.get(machine.id, "stopping"),
                phase=_phase(machine, node),
                address="" if node is None else node.address,
                slots=plane.groups[machine.group].slots,
                busy=plane.tasks.busy(machine.rank) if machine.id in seated else 0,
                received=0 if node is None else node.received,
                sent=0 if node is None else node.sent,
                group=machine.group,
                hourly_price=_price(plane, machine),
                age=now - machine.requested_at[0] if machine.requested_at else 0.0,
                metrics=node.metrics[-1] if node is not None and node.metrics else None,
                volumes=() if node is None else node.volumes.states,
                machine=machine.id,
                kind=str(machine.source) if machine.source is not None else "",
                asked_at=machine.requested_at[0] + since if machine.requested_at else None,
                access=None if node is None else node.instance.access,
                phase_at=(machine.since if node is None else node.startup.since) + since if waits else None,
                usual=_usual(machine, node, startups) if waits and startups is not None else None,
                kept=_kept(plane, machine.rank, since) if machine.id in seated else (),
                outdated=not over and plane.reconciler.is_outdated(machine),
            )
        )
    in_use = [machine.source.provider for machine in order if machine.source is not None]
    return PoolSnapshot(
        name=name,
        state=state,
        provider=", ".join(dict.fromkeys(in_use or [launcher.provider_name for launcher in launchers.values()])),
        nodes=tuple(views),
        queued=0 if over else plane.tasks.queued,
        running=0 if over else plane.tasks.running,
        done=done,
        failed=failed,
        min=sum(group.min for group in groups),
        max=sum(group.max for group in groups),
        desired=sum(plane.desired.values()),
        desired_in=dict(plane.desired),
        policy=plane.policy.name,
        spent=plane.ledger.spent(now),
        per_hour=plane.ledger.per_hour,
        budget=plane.ledger.budget,
        at=now + since,
        failure=plane.failure,
        budget_exhausted=plane.budget_exhausted,
        startup_failures=() if over or startups is None else startup_failures(plane, startups, now, since),
        accelerators=", ".join(dict.fromkeys(filter(None, (each.accelerators for each in launchers.values())))),
        lease=max(each.lease for each in launchers.values()) if any(node.outlives for node in views) else 0.0,
    )


def _kept(plane: ControlPlane, rank: int, since: float) -> tuple[KeptView, ...]:
    return tuple(
        KeptView(each.key, each.name, each.info.kind, each.info.nbytes, rank, each.until + since, each.users > 0)
        for each in plane.kept.on_node(rank)
    )


def _phase(machine: Machine, node: Node | None) -> str:
    if node is not None:
        return node.phase
    return "queued" if machine.state == "QUEUED" else REQUESTED


def _usual(machine: Machine, node: Node | None, startups: StartupTracker) -> float | None:
    """Return the usual duration of a machine's current phase in seconds; None if unknown."""
    if machine.source is None:
        return None
    image = "" if node is None else node.startup.image
    return startups.usual.of(machine.source.provider, image, _phase(machine, node))


MOST = 20
"""Maximum number of nodes whose failures are listed: those of the lowest ranks."""


def startup_failures(
    plane: ControlPlane, startups: StartupTracker, now: float, since: float
) -> tuple[StartupFailureView, ...]:
    """Return the startup failures of desired nodes. `since`: Unix time at zero of the monotonic clock."""
    return tuple(islice(_startup_failures(plane, startups, now, since), MOST))


def _startup_failures(
    plane: ControlPlane, startups: StartupTracker, now: float, since: float
) -> Iterator[StartupFailureView]:
    reconciler = plane.reconciler
    for rank in sorted({*startups.failures, *reconciler.given_up}):
        gave_up = rank in reconciler.given_up
        machine = reconciler.table.assignments[rank].machine if rank in reconciler.table.assignments else None
        if machine is None and not gave_up:
            continue  # the node is not desired any more
        failure = startups.failures.get(rank) or StartupFailure(REQUESTED, plane.failure, (), now)
        attempt, attempts = _attempts(plane, rank, failure)
        retry = None if machine is None or gave_up else _retry_at(plane, machine)
        yield StartupFailureView(
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


def _attempts(plane: ControlPlane, rank: int, failure: StartupFailure) -> tuple[int, int]:
    """Return the number of the current or next attempt, and the maximum."""
    reconciler = plane.reconciler
    failed, refused = reconciler.attempts(rank)
    if failure.phase == REQUESTED:
        return refused + 1, reconciler.limits.refusals if reconciler.opening else 0
    return failed + 1, reconciler.limits.launches


def _retry_at(plane: ControlPlane, machine: Machine) -> float | None:
    """Return the earliest time at which a queued machine is requested; None if it was requested already."""
    if machine.state != "QUEUED" or machine.requested_at:
        return None
    reconciler = plane.reconciler
    sources = reconciler.sources[machine.group]
    return max(machine.not_before, min(map(reconciler.requester.backoff.ready_at, sources)))


def _price(plane: ControlPlane, machine: Machine) -> float:
    """Return the price of a machine: as billed, or that of its offer before."""
    billed = plane.ledger.price_of(machine.id)
    return billed if billed is not None else 0.0 if machine.source is None else machine.source.hourly_price
