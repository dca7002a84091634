"""Cost of updating the panel with 1,000 nodes and 10,000 tasks, some eighty of which end every second.

    python -m benchmarks.panel

The pool is a real control plane with a simulated cloud, and its reports are made like those of a real pool. The figures
do not include the time of the simulation itself.
"""

import json
import threading
import time
from typing import Any
from unittest.mock import Mock

from skyward.control.act.report import view
from skyward.control.act.tasks.future import TaskFuture
from skyward.control.act.tasks.history import TaskHistory
from skyward.control.act.tasks.task import Work
from skyward.control.observe.costs import SlotPrice
from skyward.control.observe.origin import Origin
from skyward.control.observe.snapshot import PoolReport, PoolSnapshot
from skyward.simulator.runner import Simulation
from skyward.simulator.scenario import Scenario, one_group
from skyward.simulator.workload import Distribution, Task
from skyward.views.projection import project
from skyward.wire.payloads.code import PreparedCode
from skyward.wire.payloads.payload import encode as encode_value
from skyward_kernel.panel.encoding import changes, encode
from skyward_kernel.panel.publisher import Publisher

NODES, TASKS, SLOTS, PRICE, SECONDS = 1000, 10_000, 8, 2.5, 10.0
LISTED = 1000
BOOT = 60.0


class Pool:
    """A pool of many nodes and tasks, in which time advances on request.

    Attributes:
        simulating: CPU seconds of the simulation.
    """

    recovered = ()
    is_open = False

    def __init__(self) -> None:
        lengths = (BOOT + 2.0 * SECONDS + (n % 800) / 8.0 for n in range(TASKS))
        work = tuple(Task(0.0, seconds) for seconds in lengths)
        groups = one_group(NODES, NODES, SLOTS, PRICE)
        self._runner = Simulation(Scenario(work, groups, boot=Distribution(BOOT)))
        self._runner.start()
        self._runner.advance(2 * BOOT)
        cell = Origin(7, "cell", "train(lr)")
        self._works = {number: _work(number, cell) for number in self._runner.runs}
        self._record = TaskHistory(self._works, self._runner.plane.tasks.node_of)
        self._lock = threading.Lock()
        self.simulating = 0.0

    @property
    def revision(self) -> int:
        """Keep the pool busy."""
        return self._record.revision

    def report(self, *, output_after: int = 0, **_: Any) -> PoolReport:
        """Return the current report of the pool."""
        with self._lock:
            record = self._record
            return PoolReport(self.snapshot(), (), record.tasks(LISTED), record.output(output_after), record.cells())

    def snapshot(self) -> PoolSnapshot:
        """Return its current nodes and counts."""
        done = TASKS - len(self._works)
        return view(self._runner.plane, {}, "default", "ready", {}, done, 0)

    def go_on(self, seconds: float) -> None:
        """Advance the time."""
        with self._lock:
            began, runner, record = time.thread_time(), self._runner, self._record
            runner.advance(runner.clock.now + seconds)
            for number in [number for number in self._works if runner.runs[number].outcome]:
                record.ended(self._works.pop(number), "value", "")
            record.wrote(0, 1, "stdout", f"at {runner.clock.now:.1f} s\n")
            self.simulating += time.thread_time() - began


def _work(number: int, cell: Origin) -> Work:
    """A running task."""
    nothing = encode_value(None)
    work = Work(PreparedCode(b"", nothing, "run_cell"), nothing, TaskFuture(), Mock(), origin=cell)
    work.task, work.nodes, work.slot_price = number, [0], SlotPrice(hourly_price=PRICE, slots=SLOTS)
    work.sent_at = work.queued_at
    return work


class Pools:
    """The pools of a kernel: only this one."""

    names = ("default",)

    def __init__(self) -> None:
        self.pool = Pool()

    def peek(self, name: str) -> Pool:
        """Return the pool."""
        return self.pool


def main() -> None:
    """Print the figures."""
    pools: Any = Pools()
    pool, sent = pools.pool, list[int]()
    publisher = Publisher(pools, lambda message: sent.append(len(json.dumps(message))))
    state = project(pool.report())
    cpu, simulating = time.thread_time(), pool.simulating
    for _ in range(20):
        pool.go_on(0.1)
        after = project(pool.report(), state)
        rows, _ = changes({"default": state}, {"default": after})
        json.dumps({table: {key: encode(row) for key, row in there.items()} for table, there in rows.items()})
        state = after
    each = (time.thread_time() - cpu - (pool.simulating - simulating)) / 20
    cpu, began, simulating = time.process_time(), time.perf_counter(), pool.simulating
    publisher.start()
    while time.perf_counter() < began + SECONDS:
        time.sleep(0.1)
        pool.go_on(0.1)
    publisher.stop()
    passed = time.perf_counter() - began
    share = (time.process_time() - cpu - (pool.simulating - simulating)) / passed
    print(f"{NODES:,} nodes, {TASKS:,} tasks, {LISTED:,} of them listed, changing all the time:")
    print(f"  one report, its differences and their JSON: {each * 1e3:.1f} ms")
    print(f"  {len(sent) / passed:.1f} messages per second, the largest of {max(sent):,} bytes")
    print(f"  {100 * share:.1f} % of one processor")


if __name__ == "__main__":
    main()
