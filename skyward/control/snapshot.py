"""What a pool looks like at one moment."""

from dataclasses import dataclass
from typing import Literal

from skyward.control.lifecycle import NodeState, PoolState
from skyward.metrics import NodeMetrics

__all__ = ["NodeView", "PoolSnapshot"]


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node.

    Attributes:
        state: where it is; "stopping" from when it takes no part any more until its machine is gone.
        phase: what it is doing while it waits.
        slots, busy: how many tasks it runs at once, and how many it has.
        received: bytes of blobs that it got.
        sent: those of them that came from here; the others came from other nodes.
        group: of which it is.
        hourly_price: of its machine, USD.
        age: seconds since its machine was asked for.
        metrics: what it uses of its machine; None before it has said so.
    """

    rank: int
    state: NodeState | Literal["stopping"]
    phase: str
    address: str
    slots: int
    busy: int
    received: int
    group: str = ""
    hourly_price: float = 0.0
    age: float = 0.0
    sent: int = 0
    metrics: NodeMetrics | None = None


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """One pool: its nodes by rank, and its tasks by number.

    Attributes:
        min, max, desired: nodes, over all groups.
        policy: what decides how many there are.
        spent, per_hour, budget: USD; `budget` is None for no limit.
    """

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
    policy: str = ""
    spent: float = 0.0
    per_hour: float = 0.0
    budget: float | None = None
