"""What it costs to keep the panel up to date with 1,000 nodes and 10,000 tasks, as they change ten times a second.

    python -m benchmarks.panel

No node is started: the pool is a report that changes a little each time. What the library's loop does to make a report
of a real pool is not in these figures.
"""

import json
import time
from dataclasses import replace
from typing import Any, Literal

from skyward.control.costing import CellCost
from skyward.control.origin import Origin
from skyward.control.snapshot import NodeView, PoolReport, PoolSnapshot, TaskView
from skyward.metrics import NodeMetrics
from skyward_kernel.projection import changes, encode, project
from skyward_kernel.publisher import Publisher

NODES, TASKS, LISTED, SECONDS = 1000, 10_000, 1000, 10.0


def _node(rank: int, now: float) -> NodeView:
    state: Literal["active", "draining"] = "draining" if rank % 50 == 7 else "active"
    used = NodeMetrics("machine", 4.0 + rank % 3, 8.0, 2 * 2**30, 8 * 2**30)
    plain = NodeView(rank, state, "ready", f"10.0.{rank // 256}.{rank % 256}", 8, 8, 0, "default", 2.5, 60.0)
    return replace(plain, machine=rank, kind="aws a100 us-east-1a spot", asked_at=now, metrics=used)


class Pool:
    """A pool of many nodes, of which a few change whenever it is looked at."""

    recovered = ()
    is_open = False

    def __init__(self) -> None:
        self.revision = 0
        now = time.time()
        self._nodes = [_node(rank, now) for rank in range(NODES)]
        cell = Origin(7, "cell", "train(lr)")
        self._tasks = tuple(TaskView(n, "run_cell", "running", n % NODES, cell, now, now) for n in range(LISTED))

    def report(self, **_: Any) -> PoolReport:
        """The pool now."""
        self.revision += 1
        for rank in range(self.revision % 10, NODES, 100):
            self._nodes[rank] = replace(self._nodes[rank], busy=self.revision % 8)
        counts = TASKS, NODES, self.revision, 0
        snapshot = PoolSnapshot(
            "default", "ready", "aws", tuple(self._nodes), *counts, 1, NODES, NODES, at=time.time(), per_hour=2500.0
        )
        cost = CellCost(self._tasks[0].origin or Origin(7), TASKS, self.revision * 0.5)
        return PoolReport(snapshot, (), self._tasks, (), (cost,))


class Pools:
    """The pools of a kernel: that one."""

    names = ("default",)

    def __init__(self) -> None:
        self.pool = Pool()

    def peek(self, name: str) -> Pool:
        """The pool."""
        self.pool.revision += 1
        return self.pool


def main() -> None:
    """Print the figures."""
    pools: Any = Pools()
    sent: list[int] = []
    publisher = Publisher(pools, lambda message: sent.append(len(json.dumps(message))))
    state = project(pools.pool.report())
    began = time.perf_counter()
    for _ in range(20):
        after = project(pools.pool.report(), state)
        rows, _ = changes({"default": state}, {"default": after})
        json.dumps({table: {key: encode(row) for key, row in there.items()} for table, there in rows.items()})
        state = after
    each = (time.perf_counter() - began) / 20
    cpu, began = time.process_time(), time.perf_counter()
    publisher.start()
    time.sleep(SECONDS)
    publisher.stop()
    share = (time.process_time() - cpu) / (time.perf_counter() - began)
    print(f"{NODES:,} nodes, {TASKS:,} tasks, {LISTED:,} of them listed, always changing:")
    print(f"  one look, its differences and their JSON: {each * 1e3:.1f} ms")
    print(f"  {len(sent)} messages in {SECONDS:.0f} s, the largest of {max(sent):,} bytes")
    print(f"  {100 * share:.1f} % of one processor")


if __name__ == "__main__":
    main()
