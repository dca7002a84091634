"""Events of real pools, from before they open until they are closed, with every way to read them."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import skyward as sky
from skyward import events as ev
from skyward.control.act.tasks import deadlock
from tests.local import tasks
from tests.local.test_orphaned_local_pools import client_that_dies
from tests.unit.events.test_order import ENDS, TASK
from tests.waiting import wait_for

pytestmark = pytest.mark.local


@sky.function
def fail() -> None:
    raise LookupError("nothing here\nbut this")


@sky.function
def sleep(seconds: float) -> None:
    import time

    time.sleep(seconds)


def names(found: Iterable[ev.BaseEvent]) -> list[str]:
    return [type(event).__name__ for event in found]


def test_pool_has_events_from_before_it_opens_until_it_is_closed() -> None:
    pool = sky.Compute(nodes=2, name="told")
    everything, lives = pool.events(), pool.events(ev.NodeEvent)
    with pool:
        assert tasks.add(1, 2) >> pool == 3
        with pytest.raises(LookupError):
            fail() >> pool
        reasons = [task.reason for task in pool.report().tasks]
    assert reasons == ["", "LookupError: nothing here"]
    found = list(everything)
    assert {event.pool for event in found} == {"told"}
    assert [event.number for event in found] == list(range(1, len(found) + 1))
    assert [event.time for event in found] == sorted(event.time for event in found)
    assert [name for name in names(found) if name.startswith("Pool")] == [
        *("PoolRequesting", "PoolProvisioning", "PoolReady", "PoolStopping", "PoolClosed")
    ]
    assert found[0].number == 1
    assert isinstance(closed := found[-1], ev.PoolClosed)
    assert (closed.done, closed.failed) == (1, 1)
    phases = {rank: [] for rank in range(2)}  # type: dict[int, list[str]]
    for event in lives:
        assert isinstance(event, ev.NodeEvent)
        phases[event.node].append(type(event).__name__)
    for rank in phases:
        assert phases[rank] == [
            *("NodeRequested", "NodeAllocated", "NodePhaseStarted", "NodePhaseStarted"),
            *("NodeReady", "NodeRemoved", "NodeTerminated"),
        ]
    ends = [event for event in found if isinstance(event, ev.TaskEnded)]
    assert [(event.name, type(event)) for event in ends] == [("add", ev.TaskCompleted), ("fail", ev.TaskFailed)]
    assert isinstance(failed := ends[-1], ev.TaskFailed)
    assert (failed.error, failed.reason) == ("LookupError", "nothing here")
    assert failed.elapsed is not None


def test_every_outcome_has_its_event_and_each_task_exactly_one(tmp_path: Path) -> None:
    with sky.Compute(nodes=2, worker=sky.Worker(executor="process", concurrency=2)) as pool:
        stream = pool.events(ev.TaskEvent)
        sky.gather(*(tasks.add(n, n) for n in range(20))) >> pool
        tasks.add(1, 1) @ pool
        with pytest.raises(sky.TaskTimeoutError):
            sleep(60).with_timeout(0.1) >> pool
        cancelled = pool.start(sleep(60))
        cancelled.cancel()
        with pytest.raises(sky.TaskCancelledError):
            cancelled.future.result(30)
        assert tasks.die_once(str(tmp_path / "marker")) >> pool == "alive"
        waits = sleep(60) > pool
    with pytest.raises(sky.PoolClosedError):
        waits.result(30)
    last: dict[int, type[ev.TaskEvent] | None] = {}
    found = list(stream)
    for event in found:
        assert isinstance(event, ev.TaskEvent)
        assert type(event) in TASK[last.get(event.task)], f"{event} after {last.get(event.task)}"
        last[event.task] = type(event)
    assert all(kind in ENDS for kind in last.values())
    assert len(last) == 20 + 2 + 4
    ends = [type(event) for event in found if isinstance(event, ENDS)]
    assert [ends.count(kind) for kind in ENDS] == [23, 1, 1, 1]
    assert names(found).count("TaskRetried") == 1
    (closed,) = (event for event in found if isinstance(event, ev.TaskFailed))
    assert closed.error == "PoolClosedError"


def test_event_of_a_task_names_the_error_that_its_caller_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlock, "_EVERY", 0.1)
    with sky.Compute(nodes=1) as pool:
        stream = pool.events(ev.TaskFailed, ev.TaskTimedOut, ev.TaskCancelled)
        with pytest.raises(sky.TaskTimeoutError):
            sky.gather(sleep(60), sleep(61), sleep(62)).with_timeout(0.5) >> pool
        late = [stream.get(30) for _ in range(3)]
        assert {type(event) for event in late} == {ev.TaskTimedOut}
        with pytest.raises(sky.SlotsHeldError) as refused:
            for number in tasks.count(5000) >> pool:
                tasks.add(number, 1) >> pool
        failed = stream.get(30)
        assert isinstance(failed, ev.TaskFailed)
        assert (failed.name, failed.error) == ("add", "SlotsHeldError")
        assert failed.reason
        assert failed.reason in str(refused.value)


def test_killed_node_is_lost_and_replaced() -> None:
    with sky.Compute(nodes=2) as pool, pool.events(ev.NodeLost, ev.NodeReady) as stream:
        os.kill(pool.start(tasks.pid(), on=1).future.result(30), signal.SIGKILL)
        lost, ready = stream.get(30), stream.get(30)
    assert isinstance(lost, ev.NodeLost)
    assert (lost.node, lost.replaced) == (1, True)
    assert "SIGKILL" in lost.reason
    assert isinstance(ready, ev.NodeReady)
    assert (ready.node, ready.ready, ready.wanted) == (1, 2, 2)
    assert ready.machine != lost.machine


def test_scaling_events_match_the_decisions_of_the_pool() -> None:
    with sky.Compute(nodes=(0, 2), autoscale_idle_timeout=0.2, autoscale_cooldown=0) as pool:
        stream = pool.events(ev.ScalingDecided)
        assert tasks.add(1, 1) >> pool == 2
        wait_for(lambda: not pool.snapshot().nodes, "the pool to be empty again")
        decided = {decision.number: decision.reason for decision in pool.decisions()}
    decided_events = [event.decision for event in stream if isinstance(event, ev.ScalingDecided)]
    assert decided_events
    assert {decision.number: decision.reason for decision in decided_events}.items() <= decided.items()
    assert [decision.number for decision in decided_events if decision.change] == [
        decision.number for decision in pool.decisions() if decision.change
    ]


def test_cost_events_follow_the_price() -> None:
    pool = sky.Compute(nodes=1, provider=sky.Local(hourly_price=3600.0))  # one dollar per second
    stream = pool.events(ev.CostChanged, ev.BudgetReached, ev.PoolClosed)
    with pool:
        budget = pool.snapshot().spent + 60.5  # the cost of a node in its last minute, plus half a second
        pool.set_budget(budget)
        with pytest.raises(sky.BudgetExhaustedError):
            while True:
                sleep(0.1) >> pool
    found = list(stream)
    assert names(found) == ["CostChanged", "BudgetReached", "CostChanged", "PoolClosed"]
    first, reached, last, closed = found
    assert isinstance(first, ev.CostChanged)
    assert isinstance(reached, ev.BudgetReached)
    assert isinstance(last, ev.CostChanged)
    assert isinstance(closed, ev.PoolClosed)
    assert (first.per_hour, reached.budget, last.per_hour) == (3600.0, budget, 0.0)
    assert 0 < reached.spent < closed.spent < budget
    assert closed.spent == pytest.approx(last.spent)


def test_pool_that_cannot_be_opened_reports_why_and_ends_its_streams(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os\nos._exit(3)\n")
    pool = sky.Compute(nodes=1, provider=sky.Local(), image=sky.Image(env={"PYTHONPATH": str(tmp_path)}))
    stream = pool.events(ev.NodeFailed, ev.PoolFailed, ev.PoolClosed)
    with pytest.raises(sky.SkywardError) as raised:
        pool.open()
    found = list(stream)
    assert names(found)[-2:] == ["PoolFailed", "PoolClosed"]
    assert isinstance(failed := found[-2], ev.PoolFailed)
    assert (failed.error, failed.reason) == (type(raised.value).__name__, str(raised.value))
    assert isinstance(node := found[0], ev.NodeFailed)
    assert node.phase == "worker"


def test_async_for_reads_events_without_blocking_the_loop() -> None:
    async def read(pool: sky.Compute) -> tuple[list[str], int]:
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                beats += 1
                await asyncio.sleep(0.01)

        beating = asyncio.create_task(beat())
        found = [event async for event in pool.events(ev.TaskEnded)]
        beating.cancel()
        return names(found), beats

    pool = sky.Compute(nodes=1)
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(asyncio.run, read(pool))
        with pool:
            sleep(0.2) >> pool
        found, beats = reading.result(30)
    assert found == ["TaskCompleted"]
    assert beats > 3


def test_abandoned_stream_leaves_no_thread() -> None:
    with sky.Compute(nodes=1) as pool:
        before = threading.active_count()
        for event in pool.events(replay=True):
            if isinstance(event, ev.PoolReady):
                break
        stream = pool.events()
        with ThreadPoolExecutor(1) as threads:
            reading = threads.submit(list, stream)
            stream.close()
            assert reading.result(30) == []
        wait_for(lambda: threading.active_count() <= before, "the reader's thread to end")
        assert tasks.add(1, 1) >> pool == 2


def test_slow_reader_gets_a_count_of_dropped_events_and_slows_nothing() -> None:
    @sky.function
    def nothing() -> None:
        pass

    with sky.Compute(nodes=1) as pool:
        stream = pool.events(ev.TaskEvent)
        sky.gather(*(nothing() for _ in range(4000))) >> pool
    first = next(stream)
    assert isinstance(first, ev.EventsDropped)
    rest = list(stream)
    assert first.count + len(rest) == 12_000
    assert len(rest) == 10_000


def test_example_of_the_documentation_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "use" / "events.md").read_text()
    script = tmp_path / "example.py"
    script.write_text(re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[0])
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    for said in ("ready with ", "node 0 is ready", "node 1 is ready", "0.25", "invert raised ZeroDivisionError"):
        assert said in done.stdout  # two threads print, sometimes on one line


def test_every_event_type_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "use" / "events.md").read_text()
    assert [name for name in ev.__all__ if name not in ("BaseEvent", "EventStream") and name not in page] == []


def test_events_of_a_closed_pool_can_be_replayed_and_reopening_starts_a_new_sequence() -> None:
    pool = sky.Compute(nodes=1)
    with pool:
        pass
    assert names(pool.events(ev.PoolClosed, replay=True)) == ["PoolClosed"]
    assert list(pool.events()) == []
    with pool:
        assert tasks.add(1, 1) >> pool == 2
    assert names(pool.events(ev.TaskEnded, ev.PoolReady, replay=True)) == ["PoolReady", "TaskCompleted"]


def test_attached_pool_has_events_of_its_recovered_tasks(tmp_path: Path) -> None:
    client_that_dies(tmp_path / "go")
    with sky.attach("left") as pool:
        stream = pool.events(replay=True)
        (tmp_path / "go").touch()
        assert pool.recovered[0].result(30) == "done all the same"
        assert tasks.add(1, 1) >> pool == 2
    found = list(stream)
    assert names(found)[0] == "PoolRequesting"
    assert "PoolProvisioning" not in names(found), "nothing is launched"
    assert names(found)[-1] == "PoolClosed"
    recovered = pool.recovered[0]
    lives = [names([event])[0] for event in found if isinstance(event, ev.TaskEvent) and event.task == recovered.number]
    assert lives == ["TaskRecovered", "TaskCompleted"]
    ready = [event.node for event in found if isinstance(event, ev.NodeReady)]
    assert sorted(ready) == [0, 1]
    assert sum(isinstance(event, ev.TaskEnded) for event in found) == 2


FORGETS_TO_CLOSE = """
import asyncio, threading
import skyward as sky

async def read(pool):
    async for event in pool.events():
        pass

if __name__ == "__main__":
    pool = sky.Compute(nodes=1, console=False).open()
    for reading in (lambda: list(pool.events()), lambda: list(pool.follow()), lambda: asyncio.run(read(pool))):
        threading.Thread(target=reading).start()
    print("the end")
"""


def test_event_readers_do_not_keep_a_program_with_an_open_pool_alive(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(FORGETS_TO_CLOSE)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the end\n", "")
