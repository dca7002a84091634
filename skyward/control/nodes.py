"""The reconciler: brings the nodes there are in line with the nodes that are wanted. Decides; does nothing.

A node is known by its rank. Ranks that were freed are used again, lowest first, so that they stay `0 .. n-1`; the node
of rank 0 is the head, which is never drained while another node is left. Nodes that are starting count as there, so
nothing is launched twice; nodes that leave count neither as there nor as too many.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from skyward.control.lifecycle import NODE, Lifecycle, NodeState

__all__ = [
    "Activate",
    "Drain",
    "Effect",
    "Emptied",
    "Failed",
    "GiveUp",
    "Joined",
    "Launch",
    "Lost",
    "Message",
    "Reconciler",
    "Resize",
    "Terminate",
    "Terminated",
]

MAX_LAUNCHES = 3
"""Machines launched in a row for one node before its failure counts as permanent."""

BACKOFF = 1.0
"""Seconds before the second launch of a node; doubled for the third."""


# Messages.


@dataclass(frozen=True, slots=True)
class Resize:
    """So many nodes are wanted."""

    desired: int


@dataclass(frozen=True, slots=True)
class Joined:
    """The worker of a node is connected."""

    rank: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A node did not come up."""

    rank: int
    reason: str


@dataclass(frozen=True, slots=True)
class Lost:
    """A node that was up died."""

    rank: int
    reason: str


@dataclass(frozen=True, slots=True)
class Emptied:
    """A draining node holds no task any more."""

    rank: int


@dataclass(frozen=True, slots=True)
class Terminated:
    """The machine of a node is gone."""

    rank: int


type Message = Resize | Joined | Failed | Lost | Emptied | Terminated


# Effects.


@dataclass(frozen=True, slots=True)
class Launch:
    """Get a machine for this rank, `delay` seconds from now."""

    rank: int
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class Activate:
    """Let a node take tasks: it joined, or its drain was taken back."""

    rank: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Give a node no more tasks; say when it holds none."""

    rank: int


@dataclass(frozen=True, slots=True)
class Terminate:
    """Give the machine of a node back."""

    rank: int
    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """A node cannot be had. It is not tried again until the pool is resized."""

    rank: int
    reason: str


type Effect = Launch | Activate | Drain | Terminate | GiveUp


@dataclass
class Reconciler:
    """The nodes of one pool. `handle` is the only way in; it returns what to do."""

    desired: int = 0
    _nodes: dict[int, Lifecycle[NodeState]] = field(default_factory=dict)
    _failures: dict[int, int] = field(default_factory=dict)
    _given_up: set[int] = field(default_factory=set)

    @property
    def states(self) -> dict[int, NodeState]:
        """The state of every node there is, by rank."""
        return {rank: node.state for rank, node in sorted(self._nodes.items())}

    @property
    def empty(self) -> bool:
        """Whether there is no node, in any state."""
        return not self._nodes

    def has(self, rank: int) -> bool:
        """Whether there is a node of this rank, in any state."""
        return rank in self._nodes

    def count(self, *states: NodeState) -> int:
        """How many nodes are in one of `states`."""
        return sum(node.state in states for node in self._nodes.values())

    @property
    def given_up(self) -> frozenset[int]:
        """Ranks that cannot be had."""
        return frozenset(self._given_up)

    def handle(self, message: Message, now: float) -> list[Effect]:
        """Take `message` at time `now`; what must be done about it, in order."""
        effects: list[Effect] = []
        match message:
            case Resize(desired):
                self.desired = desired
                self._given_up.clear()
                self._failures.clear()
            case Joined(rank) if self._is(rank, "waiting"):
                self._failures.pop(rank, None)
                self._nodes[rank].move("active", now)
                effects.append(Activate(rank))
            case Failed(rank, reason) if self._is(rank, "waiting"):
                self._fail(rank, reason, now, effects)
            case Lost(rank, reason) if self._is(rank, "active", "draining", "waiting"):
                self._remove(rank, reason, now, effects)
            case Emptied(rank) if self._is(rank, "draining"):
                self._remove(rank, "it is not needed any more", now, effects)
            case Terminated(rank) if self._is(rank, "stopping"):
                self._nodes.pop(rank).move("stopped", now)
            case _:
                pass  # said of a node that has moved on since
        self._converge(now, effects)
        return effects

    def _is(self, rank: int, *states: NodeState) -> bool:
        node = self._nodes.get(rank)
        return node is not None and node.state in states

    def _fail(self, rank: int, reason: str, now: float, effects: list[Effect]) -> None:
        self._failures[rank] = self._failures.get(rank, 0) + 1
        self._remove(rank, reason, now, effects)
        if self._failures[rank] >= MAX_LAUNCHES:
            self._given_up.add(rank)
            effects.append(GiveUp(rank, reason))

    def _remove(self, rank: int, reason: str, now: float, effects: list[Effect]) -> None:
        self._nodes[rank].move("stopping", now, reason)
        effects.append(Terminate(rank, reason))

    def _converge(self, now: float, effects: list[Effect]) -> None:
        present = [rank for rank, node in self._nodes.items() if node.state in ("waiting", "active")]
        missing = self.desired - len(present) - len(self._given_up)
        if missing > 0:
            missing -= self._take_back_drains(missing, now, effects)
            self._launch(self._free_ranks(missing), now, effects)
        elif len(present) > self.desired:
            self._shrink(len(present) - self.desired, now, effects)

    def _take_back_drains(self, wanted: int, now: float, effects: list[Effect]) -> int:
        draining = sorted(rank for rank, node in self._nodes.items() if node.state == "draining")[:wanted]
        for rank in draining:
            self._nodes[rank].move("active", now, "it is needed again")
            effects.append(Activate(rank))
        return len(draining)

    def _free_ranks(self, count: int) -> list[int]:
        """The lowest ranks in reach that have no node. One whose old machine is still going is waited for."""
        candidates = range(self.desired + len(self._given_up))
        return [rank for rank in candidates if rank not in self._nodes and rank not in self._given_up][:count]

    def _launch(self, ranks: Iterable[int], now: float, effects: list[Effect]) -> None:
        for rank in ranks:
            node = Lifecycle(f"node {rank}", NODE, "idle")
            node.move("waiting", now)
            self._nodes[rank] = node
            failures = self._failures.get(rank, 0)
            effects.append(Launch(rank, BACKOFF * 2 ** (failures - 1) if failures else 0.0))

    def _shrink(self, excess: int, now: float, effects: list[Effect]) -> None:
        """Let the highest ranks go: those still starting at once, active ones when they are empty; the head last."""
        for rank in sorted((r for r in self._nodes if self._is(r, "waiting", "active")), reverse=True)[:excess]:
            if self._is(rank, "waiting"):
                self._remove(rank, "it is not needed any more", now, effects)
            else:
                self._nodes[rank].move("draining", now)
                effects.append(Drain(rank))
