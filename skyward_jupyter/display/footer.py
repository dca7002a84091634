"""The footer of a cell: the nodes it ran on, its duration and its cost."""

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skyward.frontends.views import duration_text, money_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from skyward.frontends.pools import Run

__all__ = ["Footer", "footer_of"]


@dataclass(frozen=True, slots=True)
class Footer:
    """Summary of a cell in one line: `node 3, A100, 12 s, $0.0110`, or `8 nodes, A100, 12 s, 2 of 8 failed`.

    What was stopped is named only where something has failed: `4 nodes, 12 s, 1 of 4 failed, 3 stopped`.

    Attributes:
        nodes: ranks of its nodes; empty for a cell that ran in the notebook itself.
        hardware: accelerators of the nodes, or their provider.
        seconds: time from sending the cell to its end.
        cost: cost of its tasks, USD; 0 if the machines have no price.
        tasks: number of its tasks.
        failed: number of its tasks that failed.
        timed_out: number of those that ran past their timeout.
        stopped: number of its tasks that were stopped before they had ended.
    """

    nodes: tuple[int, ...]
    hardware: tuple[str, ...]
    seconds: float
    cost: float = 0.0
    tasks: int = 1
    failed: int = 0
    timed_out: int = 0
    stopped: int = 0

    def __str__(self) -> str:
        nodes = f"node {self.nodes[0]}" if len(self.nodes) == 1 else f"{len(self.nodes)} nodes"
        where = nodes if self.nodes else "here"
        price = money_text(self.cost) if self.cost > 0 else ""
        parts = (where, " and ".join(self.hardware), duration_text(self.seconds), price, *self._ends())
        return ", ".join(filter(None, parts))

    def _ends(self) -> "Iterable[str]":
        """Yield how tasks have ended: `1 of 4 failed`, `3 stopped`; nothing if all returned a result."""
        if not self.failed:
            return
        of_all = f" of {self.tasks}"
        counts = {"failed": self.failed - self.timed_out, "timed out": self.timed_out, "stopped": self.stopped}
        for what, count in counts.items():
            if count:
                yield f"{count}{of_all} {what}" if self.tasks > 1 else what
                of_all = ""

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        style = "text-align:right;font-size:85%;opacity:.65"
        return {"text/plain": str(self), "text/html": f'<div style="{style}">{html.escape(str(self))}</div>'}


def footer_of(runs: "Iterable[Run[Any]]", seconds: float) -> Footer | None:
    """Return the footer of a cell that has ended; None if none of its runs reached a node."""
    runs = list(runs)
    nodes = tuple(sorted({rank for run in runs for rank in run.nodes}))
    if not nodes:
        return None
    hardware = tuple(dict.fromkeys(kind for run in runs for kind in run.hardware))
    return Footer(
        nodes,
        hardware,
        seconds,
        sum(run.cost for run in runs),
        tasks=sum(run.size for run in runs),
        failed=sum(run.failed for run in runs),
        timed_out=sum(run.timed_out for run in runs),
        stopped=sum(run.stopped for run in runs),
    )
