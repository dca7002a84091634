"""What a pool looks like at one moment."""

from dataclasses import dataclass

from skyward.control.lifecycle import NodeState, PoolState

__all__ = ["NodeView", "PoolSnapshot"]


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node.

    Attributes:
        phase: what it is doing while it waits.
        slots, busy: how many tasks it runs at once, and how many it has.
        received: bytes of blobs sent to it.
    """

    rank: int
    state: NodeState
    phase: str
    address: str
    slots: int
    busy: int
    received: int


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """One pool: its nodes by rank, and its tasks by number. `min`, `max` and `desired` count nodes."""

    name: str
    state: PoolState
    provider: str
    nodes: tuple[NodeView, ...]
    queued: int
    running: int
    done: int
    failed: int
    min: int
    max: int
    desired: int
