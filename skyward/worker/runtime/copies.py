"""Reports of the members of the cluster, and of the copies that a node has made of their values."""

import asyncio
from collections.abc import Callable

from casty import ActorSystem, Event, HandoffEnded, HandoffStarted, MemberChanged, NodeId

from skyward.wire.protocol.messages import CopiesReport

__all__ = ["CopyReporter"]

_QUIET = 0.25
"""Seconds without a change after which a node reports: the engine shows a change of members before it reports the
copies that it starts then."""


class CopyReporter:
    """Observer of the engine that reports the members of the cluster, and whether this node has all its copies.

    Lives on the loop of the engine.

    Args:
        report: takes each report that differs from the last one.

    Attributes:
        last: the last report.
    """

    def __init__(self, report: Callable[[CopiesReport], None]) -> None:
        self.last: CopiesReport | None = None
        self._report = report
        self._system: ActorSystem | None = None
        self._filling: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._members: tuple[str, ...] = ()

    def wants(self, kind: type[Event]) -> bool:
        """Return whether the engine reports events of this kind."""
        return kind in (MemberChanged, HandoffStarted, HandoffEnded)

    def __call__(self, event: Event) -> None:
        """Take an event of the engine."""
        match event:
            case HandoffStarted(actor, "in"):
                self._filling.add(actor)
            case HandoffEnded(actor, "in"):
                self._filling.discard(actor)
            case _:
                pass
        self._report_soon()

    def start(self, system: ActorSystem) -> None:
        """Report on this system from now on."""
        self._system = system
        self._report_soon()

    def stop(self) -> None:
        """Report no more."""
        self._system = None
        if self._timer is not None:
            self._timer.cancel()

    def _report_soon(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_QUIET, self._report_now)

    def _report_now(self) -> None:
        if self._system is None:
            return
        members, self._members = self._members, tuple(sorted(_identity(m.node) for m in self._system.members))
        if members != self._members:
            self._report_soon()
            return
        report = CopiesReport(
            node=_identity(self._system.node),
            members=members,
            complete=not self._filling,
        )
        if report != self.last:
            self.last = report
            self._report(report)


def _identity(node: NodeId) -> str:
    """Return the identity of a member: one that joins again has another."""
    return f"{node.address}#{node.incarnation.hex}"
