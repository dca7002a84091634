"""Collections while nodes are lost and added: confirmed writes are kept, and nothing is applied twice."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

import skyward as sky
from tests.local import tasks
from tests.local.pools import wait_for_cluster, wait_for_copies
from tests.waiting import wait_for

pytestmark = pytest.mark.local


@pytest.fixture
def three() -> Iterator[sky.Compute]:
    with sky.Compute(nodes=3, retry_on_interruption=10, worker=sky.Worker(concurrency=2)) as pool:
        wait_for_cluster(pool)
        yield pool


@sky.function
def count(name: str) -> int:
    return sky.counter(name).increment()


@sky.function
def meet(name: str, parties: int) -> int:
    sky.barrier(name, parties).wait()
    return sky.instance_info().node


def kill(pool: sky.Compute, rank: int) -> None:
    os.kill(pool.start(tasks.pid(), on=rank).future.result(20), signal.SIGKILL)


def is_another(pool: sky.Compute, rank: int, process: int) -> bool:
    return bool(pool.start(tasks.pid(), on=rank).future.result(20) != process)


def has(pool: sky.Compute, nodes: int) -> bool:
    return len(pool.snapshot().nodes) == nodes


class Busy:
    """Threads that repeat one operation, each with its own numbers; `done` are the results."""

    def __init__(self, *things: Callable[[int], Any]) -> None:
        self.done: list[list[Any]] = [[] for _ in things]
        self._failed: list[BaseException] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(thing, done))
            for thing, done in zip(things, self.done, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, thing: Callable[[int], Any], done: list[Any]) -> None:
        try:
            while not self._stop.is_set():
                done.append(thing(len(done)))
        except BaseException as error:
            self._failed.append(error)

    def all_did(self, times: int) -> Callable[[], bool]:
        """Return whether each thread has repeated it so often from now on."""
        targets = [len(done) + times for done in self.done]
        return lambda: bool(self._failed) or all(len(d) >= n for d, n in zip(self.done, targets, strict=True))

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        if self._failed:
            raise self._failed[0]


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_loss_of_one_of_three_nodes_loses_nothing(three: sky.Compute, victim: int) -> None:
    cache, steps, seen, work = three.dict("cache"), three.counter("steps"), three.set("seen"), three.queue("work")
    for number in range(50):
        cache["before", number] = number

    def put(number: int) -> None:
        work.put(number)

    busy = Busy(
        lambda number: cache.__setitem__(number, number),
        lambda _: steps.increment(),
        lambda _: steps.increment(),
        seen.add,
        put,
    )
    wait_for(busy.all_did(20), "all tasks to run")
    kill(three, victim)
    wait_for(busy.all_did(20), "all tasks to continue")
    busy.stop()
    writes, ones, twos, adds, puts = (len(done) for done in busy.done)
    assert [cache["before", number] for number in range(50)] == list(range(50))
    assert [cache[number] for number in range(writes)] == list(range(writes))
    assert sorted(busy.done[1] + busy.done[2]) == list(range(1, ones + twos + 1))
    assert steps.value == ones + twos
    assert (len(seen), adds - 1 in seen) == (adds, True)
    assert [work.get(timeout=20) for _ in range(puts)] == list(range(puts))
    assert work.empty()


def test_takers_get_each_item_once_while_a_node_is_lost(three: sky.Compute) -> None:
    work = three.queue("work")
    numbers = iter(range(10_000))

    def put_next() -> None:
        work.put(next(numbers))

    busy = Busy(lambda _: put_next(), lambda _: work.get(timeout=None))
    wait_for(busy.all_did(50), "both to run")
    kill(three, 1)
    wait_for(busy.all_did(20), "both to continue")
    put_more = threading.Timer(0.1, put_next)
    put_more.start()
    busy.stop()
    put_more.join()
    sent = next(numbers)
    rest = [work.get(timeout=20) for _ in range(sent - len(busy.done[1]))]
    assert sorted(busy.done[1] + rest) == list(range(sent))
    assert work.empty()


def test_barrier_waiters_survive_the_loss_of_another_node(three: sky.Compute) -> None:
    """Two wait on each of two nodes; the replica of their barrier may be on the lost one."""
    waits = [three.start(meet(f"gate-{number}", 2), on=rank).future for number, rank in enumerate((0, 0, 2))]
    wait_for(lambda: three.snapshot().running == len(waits), "them to wait")
    kill(three, 1)
    for number in range(len(waits)):
        three.barrier(f"gate-{number}", 2).wait(timeout=60)
    assert [future.result(30) for future in waits] == [0, 0, 2]


def test_replacement_joins_the_same_cluster(three: sky.Compute) -> None:
    steps = three.counter("after")
    steps.increment(10)
    for victim in (0, 1):  # one after another, until most of the first three are replaced
        before = three.start(tasks.pid(), on=victim).future.result(20)
        kill(three, victim)
        wait_for(partial(is_another, three, victim, before), "a new node")
        wait_for_cluster(three)
        assert steps.increment() == 11 + victim


def test_pool_of_two_waits_for_the_replacement() -> None:
    with sky.Compute(nodes=2) as pool:
        wait_for_cluster(pool)
        cache = pool.dict("cache")
        cache.update({number: number for number in range(30)})
        kill(pool, 1)
        cache.update({number: -number for number in range(30)})
        assert [cache[number] for number in range(30)] == [-number for number in range(30)]


def test_nodes_hand_over_their_replicas_when_the_pool_shrinks() -> None:
    with sky.Compute(nodes=4) as pool:
        wait_for_cluster(pool)
        cache, steps = pool.dict("cache"), pool.counter("steps")
        cache.update({number: number for number in range(100)})
        for nodes in (2, 1, 3):
            pool.resize(nodes)
            wait_for(partial(has, pool, nodes), f"{nodes} nodes")
            assert steps.increment() > 0
            assert [cache[number] for number in range(100)] == list(range(100))
        assert steps.value == 3


def everyone_is_in_anew(pool: sky.Compute) -> None:
    """Return when every node of a pool with recent losses is in the cluster and has copies; content may be lost."""
    sky.gather(*(tasks.pid() for _ in range(8))) >> pool
    meet("anew", 4) @ pool
    wait_for_copies(pool)


def kill_all(pool: sky.Compute, ranks: list[int]) -> None:
    futures = [pool.start(tasks.pid(), on=rank).future for rank in ranks]
    for process in [future.result(20) for future in futures]:
        os.kill(process, signal.SIGKILL)


def on_thread(call: Callable[[], Any]) -> "Future[Any]":
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run).start()
    return future


@pytest.mark.parametrize("nodes", [1, 2])
def test_strong_collections_lost_with_all_nodes_raise_once_and_work_again(nodes: int) -> None:
    with sky.Compute(nodes=nodes) as pool:
        wait_for_cluster(pool)
        steps, full, never = pool.counter("steps"), pool.queue("full"), pool.queue("never")
        sloppy = pool.counter("sloppy", consistency="eventual")
        steps.increment()
        sloppy.increment()
        full.put("gone")
        meeting = on_thread(lambda: pool.barrier("gate", 2).wait(60))
        taking = on_thread(lambda: never.get(60))
        kill_all(pool, list(range(nodes)))
        wait_for(lambda: pool.snapshot().nodes and count("other") >> pool, "a new node")
        assert sloppy.increment() == 1, "an eventual collection raised or has content"
        with pytest.raises(sky.CollectionLostError, match="^Counter 'steps' has lost its content: all nodes with"):
            steps.increment()
        assert steps.value == 0
        assert count("steps") >> pool == steps.value == 1, "tasks and client differ"
        with pytest.raises(sky.CollectionLostError, match="^Counter 'joined' has lost its content"):
            count("joined") >> pool
        assert [count("joined") >> pool for _ in range(2)] == [1, 2]
        never.put("item")
        pool.barrier("gate", 2).wait(60)
        assert (meeting.result(60), taking.result(60)) == (None, "item"), "waiters do not wait on the new nodes"


def test_lock_lost_with_all_nodes_is_not_released_for_its_next_holder() -> None:
    with sky.Compute(nodes=1) as pool:
        lock = pool.lock("mutex")
        lock.acquire()
        kill_all(pool, [0])
        count("other") >> pool
        acquired, release = threading.Event(), threading.Event()

        def hold() -> None:
            with pool.lock("mutex"):
                acquired.set()
                release.wait(60)

        holding = on_thread(hold)
        assert acquired.wait(60)
        with pytest.raises(sky.LockLostError):
            lock.release()
        with pytest.raises(TimeoutError):
            lock.acquire(timeout=0)
        release.set()
        holding.result(60)


def test_client_operation_wakes_a_pool_without_nodes() -> None:
    with sky.Compute(nodes=(0, 2), autoscale_idle_timeout=2, autoscale_cooldown=0) as pool:
        steps = pool.counter("steps")
        assert steps.increment() == 1
        wait_for(partial(has, pool, 0), "the idle pool to have no node")
        with pytest.raises(sky.CollectionLostError, match="^Counter 'steps' has lost its content"):
            steps.increment()
        assert steps.increment() == 1
        assert pool.queue("work").get(timeout=3, default="nothing") == "nothing"
        assert steps.value == 1, "the pool counts as idle while the client waits"


def test_strong_collections_raise_when_three_nodes_of_more_are_lost_at_once() -> None:
    with sky.Compute(nodes=4) as pool:
        wait_for_cluster(pool)
        cache = pool.dict("cache")
        cache.update({number: number for number in range(100)})
        kill_all(pool, [1, 2, 3])
        everyone_is_in_anew(pool)
        with pytest.raises(sky.CollectionLostError, match="^Dict 'cache' may have lost part of its content: nodes"):
            cache.get(0)
        cache.update({number: number for number in range(100)})
        assert [cache[number] for number in range(100)] == list(range(100))


@pytest.mark.skipif(sys.platform != "linux", reason="nodes outlive their client on Linux")
def test_attached_client_learns_of_content_that_the_former_client_wrote() -> None:
    script = (
        "import os, skyward as sky\n"
        "pool = sky.Compute(provider=sky.Local(outlives=True), nodes=1, name='left-shared', ttl=60).open()\n"
        "pool.counter('steps').increment()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script], timeout=60, check=False)
    with sky.attach("left-shared") as pool:
        steps = pool.counter("steps")
        assert steps.value == 1
        kill_all(pool, [0])
        count("other") >> pool
        with pytest.raises(sky.CollectionLostError, match="^Counter 'steps' has lost its content"):
            steps.increment()
        assert steps.increment() == 1


def performed[T](operation: Callable[[], T]) -> tuple[T, int]:
    """Return the result, and the number of losses reported before: of a part, of what was moved then, of the whole."""
    for losses in range(3):
        with contextlib.suppress(sky.CollectionLostError):
            return operation(), losses
    return operation(), 3


def test_entries_are_kept_or_the_loss_raises_when_nodes_are_lost_one_after_another(three: sky.Compute) -> None:
    """Each node is killed once its predecessor's replacement is active, before or after that one has its copies."""
    cache, expected = three.dict("cache"), dict.fromkeys(range(60), "value")
    cache.update(expected)
    for victim in (0, 1, 2, 0, 1, 2):
        wait_for(lambda: sum(node.state == "active" for node in three.snapshot().nodes) == 3, "three active nodes")
        kill(three, victim)
        told, got = False, dict.fromkeys(expected)
        for key in expected:
            got[key], losses = performed(lambda: cache.get(key))  # noqa: B023  # called at once
            told = told or losses > 0
        assert told or got == expected, f"entries are missing without an error after the loss of node {victim}"
        if told:
            performed(lambda: cache.update(expected))


def test_collections_work_again_after_all_first_nodes_were_lost_one_after_another(three: sky.Compute) -> None:
    """The lost nodes are half of the cluster then, so that it has no majority to remove them."""
    three.counter("steps").increment()
    for victim in (1, 0, 2):
        wait_for(lambda: sum(node.state == "active" for node in three.snapshot().nodes) == 3, "three active nodes")
        kill(three, victim)

    performed(lambda: three.queue("new").put("item"))
    value, losses = performed(lambda: three.counter("steps").value)
    assert value == 1 or losses, "the content is lost without an error"
    assert performed(lambda: three.counter("after").increment())[0] == 1
