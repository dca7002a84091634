"""Local nodes that outlive the process that opened them: another one attaches to them, or terminates them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import skyward as sky
from skyward.control.observe.origin import Origin, current_origin
from skyward.journal import CostEntry, Journal, data_directory
from skyward.pool.compute import when_closed
from skyward.pool.reaping.orphans import orphans
from tests.killed_client import kill_when_up
from tests.local.pools import processes_in
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.usefixtures("own_journal"),
    pytest.mark.local,
    pytest.mark.skipif(sys.platform != "linux", reason="nodes outlive their client on Linux"),
]

CLIENT = """
import faulthandler, os, sys, time
import skyward as sky
from skyward.control.observe.origin import Origin, current_origin

faulthandler.dump_traceback_later(90, exit=True)

@sky.function
def waits(go):
    print("begun", flush=True)
    while not os.path.exists(go):
        time.sleep(0.01)
    return "done all the same"

image = sky.Image(env={"HF_TOKEN": "hf_of_nobody"})
pool = sky.Compute(provider=sky.Local(outlives=True), nodes=2, image=image, name="left", ttl=60).open()
current_origin.set(Origin(7, "id-of-it", "pool = open_it('now', 2)"))
left = waits(sys.argv[1]) > pool
while not pool.logs(tail=1):
    time.sleep(0.01)
os.kill(os.getpid(), 9)
"""

QUEUES = """
import os, sys, time
import skyward as sky

@sky.function
def waits(go):
    print("begun", flush=True)
    while not os.path.exists(go):
        time.sleep(0.01)

provider = sky.Local(outlives=True)
pool = sky.Compute(provider=provider, nodes=1, name="left", ttl=60, retry_on_interruption=0).open()
left = [waits(sys.argv[1]) > pool for _ in range(4)]
while pool.snapshot().queued != 3 or not pool.logs(tail=1):
    time.sleep(0.01)
time.sleep(0.5)  # longer than the time after which the number is recorded
os.kill(os.getpid(), 9)
"""


TAKES = """
import faulthandler, os, sys, time
from collections.abc import Iterator
import skyward as sky

faulthandler.dump_traceback_later(90, exit=True)

@sky.function
def total(items: Iterator[int]):
    return sum(told(items))

@sky.function
def kept(items: Iterator[int]):
    taken = []
    try:
        taken.extend(told(items))
    except sky.InputLostError as error:
        return taken, str(error)

@sky.function
def whole(items: Iterator[int], go):
    found = list(told(items))
    print("has all", flush=True)
    while not os.path.exists(go):
        time.sleep(0.01)
    return found

def told(items):
    for item in items:
        print("took", item, flush=True)
        yield item

def endless():
    yield from (1, 2, 3)
    time.sleep(1000)

worker = sky.Worker(executor="process", concurrency=3)
pool = sky.Compute(provider=sky.Local(outlives=True), name="left", ttl=60, worker=worker).open()
left = [total(endless()) > pool, kept(endless()) > pool, whole((1, 2, 3), sys.argv[1]) > pool]
while sum(entry.text.count("took 3") for entry in pool.logs()) < 3 or "has all" not in pool.logs().text:
    time.sleep(0.01)
os.kill(os.getpid(), 9)
"""

TALKS = """
import faulthandler, os, sys, time
import skyward as sky

faulthandler.dump_traceback_later(90, exit=True)

@sky.function
def talks(go):
    print("begun", flush=True)
    while not os.path.exists(go):
        time.sleep(0.01)
    rest = "x" * 60
    for number in range(1024):
        print("\\n".join(f"{number:05}{part:03} {rest}" for part in range(1000)))
    open(go + ".done", "w").close()
    return "done all the same"

worker = sky.Worker(executor="process")
pool = sky.Compute(provider=sky.Local(outlives=True), name="left", ttl=60, worker=worker).open()
left = talks(sys.argv[1]) > pool
while not pool.logs(tail=1):
    time.sleep(0.01)
os.kill(os.getpid(), 9)
"""


COUNTS = """
import faulthandler, os, sys, time
import skyward as sky

faulthandler.dump_traceback_later(90, exit=True)

@sky.function
def counts(number):
    yield from range(number)
    return "counted"

@sky.function
def arrays(number):
    import numpy
    for each in range(number):
        yield numpy.full(100_000, each)

@sky.function
def slow(go):
    yield from range(10)
    while not os.path.exists(go):
        time.sleep(0.01)
    yield from range(10, 20)

@sky.function
def consumed():
    yield from range(10)

worker = sky.Worker(executor=EXECUTOR, concurrency=6)
pool = sky.Compute(provider=sky.Local(outlives=True), name="left", ttl=60, worker=worker).open()
ended = counts(2000) >> pool
paused = counts(20_000) >> pool
large = arrays(6) >> pool
running = slow(sys.argv[1]) >> pool
assert list(consumed() >> pool) == list(range(10))
given_up = counts(100) >> pool
taken = [[next(stream) for _ in range(2)] for stream in (ended, paused, large, running, given_up)]
def arrived():
    return all(stream.buffer.received >= number for stream, number in
               ((ended, 2000), (paused, 4096), (large, 6), (running, 10), (given_up, 100)))
while not arrived() or pool.snapshot().running > 2:
    time.sleep(0.01)
time.sleep(0.1)  # longer than the time between credits
taken = [next(stream) for stream in (ended, paused, large, running)]
given_up.close()
list(consumed() >> pool)  # on the same connection, so that what was sent before has arrived
os.kill(os.getpid(), 9)
"""


def client_that_dies(go: Path, script: str = CLIENT) -> None:
    """Run a client that leaves a pool behind, with a task that waits for a file."""
    done = subprocess.run([sys.executable, "-c", script, go], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == -signal.SIGKILL, done.stderr


@sky.function
def token() -> str:
    return os.environ["HF_TOKEN"]


@sky.function
def never(go: str) -> None:
    while not os.path.exists(go):
        time.sleep(0.01)


def workers() -> list[psutil.Process]:
    """Return the workers on this machine that belong to the test's journal."""
    return processes_in(os.environ["TMPDIR"], "skyward.worker")


def nothing_left() -> bool:
    """Return whether no worker, no directory and no record is left."""
    directories = list(Path(os.environ["TMPDIR"]).glob("skyward-left-*"))
    return not workers() and not directories and not list((data_directory() / "pools").iterdir())


def test_attached_process_gets_the_results_and_terminates_the_nodes(tmp_path: Path) -> None:
    client_that_dies(tmp_path / "go")
    assert len(workers()) == 2
    with sky.attach("left") as pool:
        (task,) = pool.recovered
        assert task.origin == Origin(7, "id-of-it", "pool = open_it('now', 2)", former=True)
        assert [(each.number, each.origin) for each in pool.report().tasks] == [(task.number, task.origin)]
        (tmp_path / "go").touch()
        assert task.result() == "done all the same"
        assert [node.state for node in pool.snapshot().nodes] == ["active", "active"]
        pool.resize(3)  # one more machine, beside the existing ones
        wait_for(lambda: sum(node.state == "active" for node in pool.snapshot().nodes) == 3, "a third node")
        assert token() @ pool == ["hf_of_nobody"] * 3, "the environment of the image was lost"
    wait_for(nothing_left, "the remaining processes to end")


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_elements_that_a_dead_client_had_not_consumed_are_given_again(tmp_path: Path, executor: str) -> None:
    client_that_dies(tmp_path / "go", COUNTS.replace("EXECUTOR", repr(executor)))
    (tmp_path / "go").touch()
    with sky.attach("left") as pool:
        left = sorted(pool.recovered, key=lambda task: task.number)
        ended, paused, large, running = (task for task in left if task.name != "consumed")
        assert list(ended.items()) == list(range(3, 2000))
        assert ended.result() == "counted"
        assert list(paused.items()) == list(range(3, 20_000))
        assert [array[0] for array in large.items()] == [3, 4, 5]
        assert list(running.items()) == list(range(3, 20))


def test_tasks_that_the_former_client_had_not_sent_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: they vanished without a word."""
    client_that_dies(tmp_path / "go", QUEUES)
    with sky.attach("left") as pool:
        assert len(pool.recovered) == 1
        lost = "Pool 'left': 3 tasks are lost: the former process had queued them, and sent them to no node. Submit "
        assert lost in capsys.readouterr().err
    (tmp_path / "go").touch()
    wait_for(nothing_left, "the remaining processes to end")


def test_task_without_a_client_ends_however_much_it_prints(tmp_path: Path) -> None:
    """64 MiB, four times what a node buffers in memory; the next client receives all of it."""
    client_that_dies(tmp_path / "go", TALKS)
    (tmp_path / "go").touch()
    wait_for((tmp_path / "go.done").exists, "the task to end without a client", within=100)
    assert max(worker.memory_info().rss for worker in workers()) < 200 * 1024**2
    with sky.attach("left") as pool:
        (task,) = pool.recovered
        assert task.result(60) == "done all the same"
        assert task.printed == len(task.output)
        numbers = [line[:8] for line in task.output.splitlines() if line not in ("begun", "")]
    expected = [f"{number:05}{part:03}" for number in range(1024) for part in range(1000)]
    wrong = [(number, other) for number, other in zip(numbers, expected, strict=False) if number != other]
    assert not wrong[:3], "received and expected output differ"
    assert len(numbers) == len(expected)


def test_task_fed_by_a_dead_client_gets_what_had_arrived_and_then_one_error(tmp_path: Path) -> None:
    client_that_dies(tmp_path / "go", TAKES)
    with sky.attach("left") as pool:
        tasks = {task.name: task for task in pool.recovered}
        lost = "{}() was fed by an iterator of the process that sent it, which is gone: the task got the "
        lost += "elements that had arrived, and the rest is lost. Send it again from this process."
        with pytest.raises(sky.InputLostError) as total:
            tasks["total"].result(30)
        assert str(total.value) == lost.format("total")
        assert tasks["total"].state == "failed"
        assert tasks["kept"].result(30) == ([1, 2, 3], lost.format("kept"))
        (tmp_path / "go").touch()
        assert tasks["whole"].result(30) == [1, 2, 3], "a task with all its inputs was stopped"


def test_failed_attach_leaves_the_pool_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client_that_dies(tmp_path / "go")

    async def sold_out(*_: object, **__: object) -> None:
        raise sky.NoOffersError("sold out")

    with monkeypatch.context() as patched:
        patched.setattr("skyward.control.act.nodes.launching.find_offers", sold_out)
        with pytest.raises(sky.NoOffersError):
            sky.attach("left")
    assert "Pool 'left' is left to its lease; `skyward reap left` terminates its nodes." in capsys.readouterr().err
    with sky.attach("left") as pool:
        (tmp_path / "go").touch()
        assert pool.recovered[0].result() == "done all the same"
    wait_for(nothing_left, "the remaining processes to end")


def test_cell_of_the_former_client_is_stopped_by_its_number_unless_the_new_one_has_it(tmp_path: Path) -> None:
    client_that_dies(tmp_path / "go")
    with sky.attach("left") as pool:
        marked = current_origin.set(Origin(7))
        ours = never(str(tmp_path / "go")) > pool
        current_origin.reset(marked)
        assert pool.cancel(cell=7) == 1
        with pytest.raises(sky.TaskCancelledError):
            ours.result(20)
        assert not pool.recovered[0].done
        assert pool.cancel(cell=7) == 1
        with pytest.raises(sky.TaskCancelledError):
            pool.recovered[0].result(20)
    wait_for(nothing_left, "the remaining processes to end")


def test_orphaned_pool_is_reaped(tmp_path: Path) -> None:
    client_that_dies(tmp_path / "go")
    assert len(workers()) == 2
    (done,) = sky.reap(["left"])
    assert not done.error
    wait_for(nothing_left, "the remaining processes to end")


def test_closed_pool_leaves_nothing() -> None:
    ended: list[bool] = []
    pool = sky.Compute(provider=sky.Local(outlives=True), nodes=1, name="left").open()
    assert len(workers()) == 1
    when_closed(pool, lambda: ended.append(True))
    assert pool.leave()  # for the next process; the view of the pool in this one ends
    assert ended
    pool.close()
    wait_for(nothing_left, "the end of the node")


def test_pool_of_a_with_block_is_not_left() -> None:
    """Regression: `leave` returned True, and the end of the block terminated the nodes with their tasks."""
    with sky.Compute(provider=sky.Local(outlives=True), nodes=1, name="left") as pool:
        with pytest.raises(
            sky.UsageError, match="'left' cannot be left: it is in a `with` block, whose end terminates"
        ):
            pool.leave()
        assert pool.is_open


LEFT = """
import skyward as sky

@sky.function
def seven():
    return 7

pool = sky.Compute(provider=sky.Local(outlives=True), nodes=1, name="left", ttl=60).open()
task = seven() > pool
assert pool.leave() and pool.is_open
try:
    sky.attach("left")
except sky.UsageError as error:
    assert "open in this process already" in str(error)
assert task.result() == 7
"""


def test_pool_is_left_when_its_process_ends() -> None:
    subprocess.run([sys.executable, "-c", LEFT], check=True, timeout=100)
    with sky.attach("left") as pool:
        assert len(pool.snapshot().nodes) == 1


RESIZED = """
import os, sys, time
import skyward as sky

@sky.function
def waits(go):
    print("begun", flush=True)
    while not os.path.exists(go):
        time.sleep(0.01)
    return "done all the same"

nodes = sky.Nodes(min=1, max=4, desired=3)
pool = sky.Compute(provider=sky.Local(outlives=True), nodes=nodes, policy="no", name="left", ttl=60).open()
left = [waits(sys.argv[1]) > pool for _ in range(3)]
while pool.logs().text.count("begun") < 3:
    time.sleep(0.01)
{change}
while not any(node.state == "draining" for node in pool.snapshot().nodes):
    time.sleep(0.01)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize(
    ("change", "draining", "bounds"),
    [("pool.resize(1)", [1, 2], sky.Nodes(1)), ("pool.drain(1)", [1], sky.Nodes(1, 4, 3))],
    ids=["resized", "drained"],
)
def test_nodes_that_were_draining_drain_in_the_process_that_attaches(
    tmp_path: Path, change: str, draining: list[int], bounds: sky.Nodes
) -> None:
    go = tmp_path / "go"
    client_that_dies(go, RESIZED.format(change=change))
    with sky.attach("left") as pool:
        seen = pool.snapshot()
        assert [node.rank for node in seen.nodes if node.state == "draining"] == draining
        assert (seen.desired, seen.min, seen.max) == (3 - len(draining), bounds.min, bounds.ceiling)
        assert pool.requested_nodes == bounds
        assert "when its process ended" in str(pool.decisions()[-1])
        go.touch()
        assert [task.result() for task in pool.recovered] == ["done all the same"] * 3
        wait_for(lambda: len(pool.snapshot().nodes) == 3 - len(draining), "the drained nodes to be terminated")


COSTLY = """
import skyward as sky
pool = sky.Compute(provider=sky.Local(outlives=True, hourly_price=3600.0), nodes=1, budget=75.0, name="costly").open()
pool.set_budget(200.0)
"""


def test_costs_and_budget_continue_in_the_process_that_attaches() -> None:
    kill_when_up(COSTLY)
    with Journal() as journal:
        (entry,) = journal.pools("costly")
        wait_for(lambda: (costs := journal.costs(entry.id)) is not None and costs.until(time.time()) > 3, "costs")
        recorded = journal.costs(entry.id)
    assert recorded is not None
    with sky.attach("costly") as pool:
        least = recorded.until(time.time())
        seen = pool.snapshot()
        assert 3 < least < seen.spent + 1
        assert seen.budget == 200


def spend(usd: float, name: str = "costly") -> None:
    """Record that a pool has spent this much of its budget of 200 USD, at 3600 USD an hour."""
    with Journal() as journal:
        (entry,) = journal.pools(name)
        journal.set_costs(entry.id, CostEntry(usd, 3600.0, time.time(), 200.0))


def test_pool_past_its_budget_is_left_as_it_is_and_attached_to_with_a_larger_budget() -> None:
    """Regression: a pool that its budget could not continue was terminated, with the results that waited there."""
    kill_when_up(COSTLY)
    spend(250.0)
    refused = (
        r"Pool 'costly' has spent \$25\d\.\d\d of its budget of \$200\.00: attach to it with a larger one, such as"
    )
    with pytest.raises(sky.UsageError, match=refused):
        sky.attach("costly")
    assert [(orphan.name, orphan.machines) for orphan in orphans()] == [("costly", 1)]
    with pytest.raises(sky.SpecError, match="budget must be a positive number"):
        sky.attach("costly", budget=-1)
    with sky.attach("costly", budget=900) as pool:
        seen = pool.snapshot()
        assert (seen.budget, seen.budget_exhausted, len(seen.nodes)) == (900, False, 1)
        assert 250 < seen.spent < 900
        with pytest.raises(sky.UsageError, match="Pool 'costly' is open in this process already: use it"):
            sky.attach("costly")
    assert orphans() == []


def test_results_are_returned_in_the_last_minute_of_the_budget(tmp_path: Path) -> None:
    """Regression: the budget could not afford another launch, so the machines were terminated with their results."""
    costly = CLIENT.replace("outlives=True", "outlives=True, hourly_price=1800.0").replace(
        "nodes=2,", "nodes=2, budget=200,"
    )
    client_that_dies(tmp_path / "go", costly)
    spend(150.0, "left")
    with sky.attach("left") as pool:
        (task,) = pool.recovered
        wait_for(lambda: pool.snapshot().budget_exhausted, "the budget")
        (tmp_path / "go").touch()
        assert task.result(20) == "done all the same"
        wait_for(lambda: not workers(), "the nodes to drain")


OPENING = """
import os, threading, time
import skyward as sky
from skyward.journal import Journal

pool = sky.Compute(provider=sky.Local(outlives=True, boot_time=60), nodes=1, name="opening", ttl=60)
threading.Thread(target=pool.open, daemon=True).start()
with Journal() as journal:
    while not any(journal.unanswered(entry.id) for entry in journal.pools("opening")):
        time.sleep(0.01)
os.kill(os.getpid(), 9)
"""


def test_pool_whose_client_ended_while_it_opened_has_no_nodes_for_a_true_reason() -> None:
    """Regression: no node outlived its client, although all of them do."""
    subprocess.run([sys.executable, "-c", OPENING], check=False, timeout=100)
    with pytest.raises(sky.UsageError, match="'opening' has no nodes to attach to: none was ready when the process"):
        sky.attach("opening")
    assert sky.orphans("opening") == []
