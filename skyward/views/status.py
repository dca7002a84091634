"""Statuses of pools, nodes, tasks and volumes as every view shows them, and the word, icon and tone of each.

The panel has the same table, generated into `labextension/src/protocol.ts`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from skyward.events.volumes import VolumeStatus

__all__ = [
    *(
        "NODE_STATUSES",
        "PHASE_WORDS",
        "POOL_STATUSES",
        "TASK_STATUSES",
        "VOLUME_STATUSES",
        "Label",
        "NodeStatus",
        "PoolStatus",
    ),
    *("Tone", "node_label"),
]

type Tone = Literal["good", "busy", "bad", "quiet"]

type PoolStatus = Literal["new", "starting", "ready", "failing", "budget_reached", "stopping", "closed"]
"""Of a pool: `new` before it is opened; `failing` and `budget_reached` are ready, but get no further nodes."""

type NodeStatus = Literal["queued", "requested", "starting", "idle", "keeping", "busy", "draining", "stopping", "warm"]
"""Of a node: `idle` and `keeping` have no tasks, and `keeping` has values for later ones."""


@dataclass(frozen=True, slots=True)
class Label:
    """Label of a status: an icon and a word, never colour alone."""

    word: str
    icon: str
    tone: Tone


POOL_STATUSES: Final[Mapping[PoolStatus, Label]] = {
    "new": Label("not open", "○", "quiet"),
    "starting": Label("starting", "◔", "busy"),
    "ready": Label("ready", "●", "good"),
    "failing": Label("failing", "▲", "bad"),
    "budget_reached": Label("budget reached", "◒", "bad"),
    "stopping": Label("stopping", "◌", "busy"),
    "closed": Label("closed", "○", "quiet"),
}

NODE_STATUSES: Final[Mapping[NodeStatus, Label]] = {
    "queued": Label("queued", "◌", "quiet"),
    "requested": Label("requested", "◌", "quiet"),
    "starting": Label("starting", "◔", "busy"),
    "idle": Label("idle", "○", "quiet"),
    "keeping": Label("keeps", "◆", "quiet"),
    "busy": Label("busy", "●", "good"),
    "draining": Label("draining", "◒", "busy"),
    "stopping": Label("stopping", "◌", "quiet"),
    "warm": Label("kept warm", "◌", "quiet"),
}

PHASE_WORDS: Final[Mapping[str, str]] = {"volumes": "attaching volumes"}
"""Words for the phases of a start whose names say too little."""

TASK_STATUSES: Final[Mapping[Literal["queued", "running", "done", "failed", "cancelled"], Label]] = {
    "queued": Label("queued", "◌", "quiet"),
    "running": Label("running", "▶", "good"),
    "done": Label("done", "✓", "quiet"),
    "failed": Label("failed", "✗", "bad"),
    "cancelled": Label("cancelled", "⊘", "quiet"),
}
"""A task's status is its state."""

VOLUME_STATUSES: Final[Mapping[VolumeStatus, Label]] = {
    "failed": Label("failed", "✗", "bad"),
    "restarting": Label("restarting", "▲", "bad"),
    "attaching": Label("attaching", "◔", "busy"),
    "flushing": Label("unsaved", "↑", "busy"),
    "ready": Label("ready", "●", "good"),
    "detached": Label("detached", "○", "quiet"),
}
"""The most urgent one first: it stands for a volume whose nodes differ."""


def node_label(status: NodeStatus, phase: str, *, outdated: bool) -> Label:
    """Return the label of a node: its status or, while it is starting, that phase; and whether it is outdated."""
    label = NODE_STATUSES[status]
    word = PHASE_WORDS.get(phase, phase) if status == "starting" else label.word
    return replace(label, word=f"{word}, outdated" if outdated else word)
