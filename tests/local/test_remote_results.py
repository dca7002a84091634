"""Large results that other tasks take: they stay on their nodes, move between nodes, and are made again when lost."""

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import skyward as sky
from skyward import events as ev
from skyward.control.act.tasks import remote_results as left_results
from skyward.control.act.tasks.future import is_only_lent
from skyward.control.act.tasks.remote_results import LEFT_FROM, RemoteResult
from skyward.link.bulk import BulkPath
from skyward.pool.compute import nodes_with
from skyward.wire.protocol.messages import Blob
from tests.local import tasks
from tests.local.pools import blob_bytes_sent, wait_for_cluster
from tests.local.test_replication import apart
from tests.waiting import wait_for

pytestmark = pytest.mark.local
__all__ = ["apart"]

SIZE = 500_000
"""Elements of an array that stays on its node: four times the minimum size."""


class Fetched:
    """Return the bytes of blobs that nodes have sent to the client."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nbytes = 0
        self._lock = threading.Lock()
        get = BulkPath.get

        def counted(path: BulkPath, blob: Blob) -> Future[memoryview]:
            with self._lock:
                self.nbytes += blob.size
            return get(path, blob)

        monkeypatch.setattr(BulkPath, "get", counted)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Fetched:
    return Fetched(monkeypatch)


@pytest.fixture
def two() -> Iterator[sky.Compute]:
    """Two nodes in a cluster, for this test."""
    with sky.Compute(nodes=2) as pool:
        wait_for_cluster(pool)
        yield pool


@sky.function
def make(fill: float, go: str, log: str = "") -> Any:
    """Return an array once a file exists at `go`: by then, its takers are known."""
    tasks.wait_for_file.fn(go)
    if log:
        with Path(log).open("a") as file:
            file.write(".")
    return np.full(SIZE, fill)


@sky.function
def double(values: Any, log: str = "") -> Any:
    if log:
        with Path(log).open("a") as file:
            file.write(".")
    return values * 2


@sky.function
def total(*values: Any) -> float:
    return float(sum(value.sum() for value in values))


@sky.function
def total_when(values: Any, go: str) -> float:
    tasks.wait_for_file.fn(go)
    return float(values.sum())


@sky.function
def rank_and_total(values: Any) -> tuple[int, float]:
    return sky.instance_info().node, float(values.sum())


@sky.function
def blobs_of_the_worker() -> int:
    """Return the bytes of memory in the blob files of this worker."""
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            if "skyward-blob" in os.readlink(entry):
                found += os.stat(entry).st_blocks * 512
        except FileNotFoundError:
            continue
    return found


def raw(future: sky.TaskFuture[Any]) -> object:
    """Return the state of the future, without requesting the value."""
    return Future.result(future)


def kill(pool: sky.Compute, rank: int) -> None:
    os.kill(pool.start(tasks.pid(), on=rank).future.result(30), signal.SIGKILL)


class Maker:
    """Makes arrays that stay on their nodes, since a task that takes each of them is known before it ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def start(
        self, pool: sky.Compute, fill: float = 1.0, on: Any = "one", log: Path | str = ""
    ) -> tuple[sky.TaskFuture[Any], Path]:
        """Return a future of an array, and the file that it waits for."""
        self._count += 1
        go = self._folder / f"go-{self._count}"
        return pool.start(make(fill, str(go), str(log)), on=on).future, go

    def __call__(
        self, pool: sky.Compute, fill: float = 1.0, on: Any = "one", log: Path | str = "", to: Any = None
    ) -> sky.TaskFuture[Any]:
        """Return a future of an array that a task on node `to` has taken, by default on the same node."""
        a, go = self.start(pool, fill, on, log)
        b = pool.start(total(a), on=on if to is None else to).future
        go.touch()
        assert b.result(60) == fill * SIZE
        assert isinstance(raw(a), RemoteResult)
        return a


@pytest.fixture
def left(tmp_path: Path) -> Maker:
    return Maker(tmp_path)


def lost(future: sky.TaskFuture[Any]) -> bool:
    result = raw(future)
    assert isinstance(result, RemoteResult)
    return not result.is_available


# Without a transfer to the client.


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_chain_of_large_values_is_not_fetched(fetched: Fetched, left: Maker, executor: Any) -> None:
    with sky.Compute(nodes=2, worker=sky.Worker(executor=executor)) as pool:
        wait_for_cluster(pool)
        before = blob_bytes_sent(pool)
        a, go = left.start(pool)
        b = double(a) > pool
        answers = [rank_and_total(b) > pool for _ in range(6)]
        go.touch()
        assert {answer.result(30)[1] for answer in answers} == {2.0 * SIZE}
        assert {answer.result()[0] for answer in answers} == {0, 1}, "not both nodes have received it"
        assert (fetched.nbytes, blob_bytes_sent(pool)) == (0, before)
        assert isinstance(raw(a), RemoteResult)
        assert b.result()[0] == 2.0
        assert fetched.nbytes == 8 * SIZE


def test_task_is_placed_on_the_node_that_has_its_input(left: Maker) -> None:
    with sky.Compute(nodes=3) as pool:
        for rank in (2, 1):
            a = left(pool, on=rank)
            assert [rank_and_total(a) >> pool for _ in range(3)] == [(rank, SIZE)] * 3


def test_nodes_of_different_machines_transfer_it_directly(apart: None, fetched: Fetched, left: Maker) -> None:
    with sky.Compute(nodes=2) as pool:
        wait_for_cluster(pool)
        before = blob_bytes_sent(pool)
        a = left(pool)
        assert total(a) @ pool == [SIZE, SIZE]
        assert (fetched.nbytes, blob_bytes_sent(pool)) == (0, before)


def test_transfer_through_the_client_is_reported_if_nodes_cannot_reach_each_other(
    fetched: Fetched, left: Maker
) -> None:
    with sky.Compute(nodes=2, cluster=False) as pool:
        notes = pool.events(ev.PoolNote)
        a = left(pool, on=0)
        assert fetched.nbytes == 0
        assert total(a) @ pool == [SIZE, SIZE]
        assert total(a) @ pool == [SIZE, SIZE]
        assert fetched.nbytes == 8 * SIZE, "reported more than once"
    assert [note.text for note in notes if isinstance(note, ev.PoolNote) and "through" in note.text] == [
        f"Pool {pool.name!r}: The result of make() is sent to another node through this machine: the nodes cannot "
        "reach each other."
    ]


def test_transfer_to_another_pool_goes_through_the_client_and_is_reported(left: Maker) -> None:
    with sky.Compute(nodes=1) as pool, sky.Compute(nodes=1) as other:
        notes = pool.events(ev.PoolNote)
        assert total(left(pool)) >> other == SIZE
    assert [note.text for note in notes if isinstance(note, ev.PoolNote) and "through" in note.text] == [
        f"Pool {pool.name!r}: The result of make() is sent to another node through this machine: that node belongs "
        "to another pool."
    ]


def test_requested_value_is_fetched_at_once(two: sky.Compute, fetched: Fetched, left: Maker) -> None:
    (asked, go), (called_back, _), (awaited, _) = (left.start(two) for _ in range(3))
    answers = [total(a) > two for a in (asked, called_back, awaited)]
    called_back.add_done_callback(lambda _: None)

    async def ask() -> float:
        return float((await awaited).sum())

    waiting = [threading.Thread(target=asked.result), threading.Thread(target=lambda: asyncio.run(ask()))]
    for thread in waiting:
        thread.start()
    while is_only_lent(asked) or is_only_lent(awaited):
        time.sleep(0.005)
    for path in (go, go.with_name("go-2"), go.with_name("go-3")):
        path.touch()
    assert [answer.result(30) for answer in answers] == [SIZE] * 3
    assert not any(isinstance(raw(a), RemoteResult) for a in (asked, called_back, awaited))
    for thread in waiting:
        thread.join()
    assert fetched.nbytes == 3 * 8 * SIZE


def test_fetched_value_is_not_sent_again_to_the_node_that_made_it(two: sky.Compute, tmp_path: Path) -> None:
    """Its argument is memory of the caller, so it could not be made again."""
    go = tmp_path / "go"

    @sky.function
    def double_when(values: Any, go: str) -> Any:
        tasks.wait_for_file.fn(go)
        return values * 2

    a = two.start(double_when(np.ones(SIZE), str(go)), on=0).future
    b = two.start(total(a), on=0).future
    wait_until_sent = blob_bytes_sent(two)
    while not wait_until_sent:
        time.sleep(0.005)
        wait_until_sent = blob_bytes_sent(two)
    go.touch()
    assert b.result(30) == 2.0 * SIZE
    assert not isinstance(raw(a), RemoteResult)
    assert two.start(total(a, a), on=0).future.result(30) == 4.0 * SIZE
    assert blob_bytes_sent(two) == wait_until_sent
    assert two.start(total(a), on=1).future.result(30) == 2.0 * SIZE


def test_members_of_a_group_stay_for_the_task_that_takes_the_group(
    two: sky.Compute, fetched: Fetched, tmp_path: Path
) -> None:
    go = tmp_path / "go"

    @sky.function
    def total_of(pair: tuple[Any, Any]) -> float:
        return float(pair[0].sum() + pair[1].sum())

    group = (make(1.0, str(go)) & make(2.0, str(go))) > two
    b = total_of(group) > two  # type: ignore[arg-type]  # the value of a future
    go.touch()
    assert b.result(30) == 3.0 * SIZE
    assert fetched.nbytes == 0
    assert [value[0] for value in group.result(30)] == [1.0, 2.0]


def test_small_results_are_fetched(two: sky.Compute, tmp_path: Path) -> None:
    go = tmp_path / "go"

    @sky.function
    def small() -> Any:
        tasks.wait_for_file.fn(str(go))
        return np.ones(LEFT_FROM // 8 - 1)

    a = small() > two
    b = total(a) > two
    go.touch()
    assert b.result(30) == LEFT_FROM // 8 - 1
    assert not isinstance(raw(a), RemoteResult)


def test_every_form_of_request_fetches_the_result(two: sky.Compute, left: Maker) -> None:
    a, b, c, d = (left(two, float(i)) for i in range(4))
    assert not wait([a, b, c, d], 0).not_done
    assert a.result(30)[0] == 0.0
    assert b.exception(30) is None

    async def ask() -> tuple[Any, Any]:
        return await c, await asyncio.wrap_future(d)

    assert [value[0] for value in asyncio.run(ask())] == [2.0, 3.0]
    c.result()[0] = 50.0
    assert total(c) >> two == 2.0 * SIZE, "not the value that the task returned"
    assert c.result()[0] == 50.0


def test_timeout_of_a_request_is_kept(two: sky.Compute, left: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    a = left(two)
    get, go = BulkPath.get, threading.Event()
    threads: list[threading.Thread] = []

    def slow(path: BulkPath, blob: Blob) -> Future[memoryview]:
        coming: Future[memoryview] = Future()
        coming.set_running_or_notify_cancel()

        def give() -> None:
            go.wait(30)
            coming.set_result(get(path, blob).result())

        threads.append(threading.Thread(target=give))
        threads[-1].start()
        return coming

    monkeypatch.setattr(BulkPath, "get", slow)
    for ask in (a.result, a.exception):
        with pytest.raises(TimeoutError):
            ask(0.05)
    go.set()
    assert a.result(30)[0] == 1.0
    for thread in threads:
        thread.join()


# Lifetime on the node.


def test_node_drops_a_result_with_its_last_reference(two: sky.Compute, left: Maker, tmp_path: Path) -> None:
    go = tmp_path / "go"
    a = left(two, on=0)
    b = two.start(total_when(a, str(go)), on=1).future
    wait_for(b.running, "the second task to run")
    result = raw(a)
    assert isinstance(result, RemoteResult)
    (key,) = result.keys
    del result, a
    gc.collect()
    assert 0 in nodes_with(two, key), "dropped although a task takes it"
    go.touch()
    assert b.result(30) == SIZE
    wait_for(lambda: not nodes_with(two, key), "the nodes to be asked to drop it")


def test_dropping_a_result_frees_its_memory(two: sky.Compute, left: Maker) -> None:
    a = left(two, on=0)
    held = two.start(blobs_of_the_worker(), on=0).future.result(30)
    assert held >= 8 * SIZE
    assert a.done(), "freed although it is referenced"
    del a
    gc.collect()
    wait_for(lambda: two.start(blobs_of_the_worker(), on=0).future.result(30) < held, "its memory to be free")


def test_results_beyond_the_memory_of_a_node_are_fetched(
    two: sky.Compute, left: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    left(two)
    monkeypatch.setattr("skyward.link.blob_inventory.BlobInventory.can_pin", lambda self, size: False)
    a, go = left.start(two)
    b = total(a) > two
    go.touch()
    assert b.result(30) == SIZE
    assert not isinstance(raw(a), RemoteResult)


def test_result_is_fetched_when_its_pool_closes(left: Maker) -> None:
    with sky.Compute(nodes=1) as pool:
        a, b, gone = left(pool), left(pool, 2.0), left(pool, 3.0)
        assert b.result()[0] == 2.0
        assert isinstance(raw(a), RemoteResult)
        del gone
        gc.collect()
        run = pool.start(tasks.sleep(60), on=0)
        still = total(a) > pool
    assert a.result(30)[0] == 1.0
    assert b.result()[0] == 2.0
    assert a.exception() is None
    for future in (run.future, still):
        with pytest.raises(sky.PoolClosedError):
            future.result(30)


def test_result_lost_when_its_pool_closes_is_reported(left: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_results, "_AT_THE_END", SIZE * 8 + 4096)
    with sky.Compute(nodes=1, name="away") as pool:
        notes = pool.events(ev.PoolNote)
        futures = [left(pool), left(pool)]
    notice = notes.get(30)
    assert isinstance(notice, ev.PoolNote)
    assert notice.text.startswith("Pool 'away': The results of make(), 3.8 MiB in all, could not be fetched before")
    assert notice.text.endswith("are lost. Call .result() before the pool is closed.")
    errors = [error for future in futures if (error := future.exception(30)) is not None]
    assert len(errors) == 1, "the other result would have fit"
    with pytest.raises(
        sky.PoolClosedError,
        match=r"^The result of make\(\) was left on its node for the tasks that take it, and pool 'away' is closed\. "
        r"Call \.result\(\) before the pool is closed\.$",
    ):
        raise errors[0]


def test_result_is_fetched_before_its_node_is_terminated(left: Maker, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with sky.Compute(nodes=2) as pool:
        wait_for_cluster(pool)
        a = left(pool, 3.0, on=1, log=log)
        pool.resize(1)
        wait_for(lambda: len(pool.snapshot().nodes) == 1, "node 1 to go")
        assert total(a) >> pool == 3.0 * SIZE
        assert a.result(30)[0] == 3.0
    assert log.read_text() == "."


def test_draining_node_keeps_no_more_results(left: Maker, tmp_path: Path) -> None:
    with sky.Compute(nodes=2) as pool:
        wait_for_cluster(pool)
        a, go = left.start(pool, on=1)
        b = total(a) > pool
        wait_for(a.running, "the task to run on the node")
        pool.resize(1)
        wait_for(lambda: pool.snapshot().nodes[1].state == "draining", "the node to be drained")
        go.touch()
        assert b.result(30) == SIZE
        assert not isinstance(raw(a), RemoteResult)
        wait_for(lambda: len(pool.snapshot().nodes) == 1, "node 1 to go")


# Lost with its node.


def test_lost_result_is_made_again_for_the_task_that_takes_it(two: sky.Compute, left: Maker, tmp_path: Path) -> None:
    log = tmp_path / "log"
    notes = two.events(ev.PoolNote)
    a = left(two, on=0, log=log)
    kill(two, 0)
    wait_for(lambda: lost(a), "the node to be lost")
    assert total(a) >> two == SIZE
    assert log.read_text() == ".."
    assert isinstance(raw(a), RemoteResult)
    assert a.result(60)[0] == 1.0
    assert log.read_text() == "..", "made again more than once"
    note = notes.get(30)
    assert isinstance(note, ev.PoolNote)
    assert note.text == f"Pool {two.name!r}: The result of make() was lost with its node; running it again."


def test_lost_result_is_made_again_on_its_requested_node(two: sky.Compute, tmp_path: Path) -> None:
    go = tmp_path / "go"

    @sky.function
    def shard() -> Any:
        tasks.wait_for_file.fn(str(go))
        return np.full(SIZE, float(sky.instance_info().node))

    shards = [two.start(shard(), on=rank).future for rank in (0, 1)]
    takers = [total(each) > two for each in shards]
    go.touch()
    assert [each.result(30) for each in takers] == [0.0, SIZE]
    kill(two, 1)
    wait_for(lambda: lost(shards[1]), "the node to be lost")
    assert total(shards[1]) >> two == SIZE
    assert shards[1].result(60)[0] == 1.0


def test_lost_result_is_made_again_on_request(two: sky.Compute, left: Maker, tmp_path: Path) -> None:
    log = tmp_path / "log"
    a, b = left(two, on=0, log=log), left(two, 2.0, on=0, log=log)
    kill(two, 0)
    wait_for(lambda: lost(a), "the node to be lost")
    assert log.read_text() == ".."
    assert a.result(60)[0] == 1.0

    async def ask() -> Any:
        return await b

    assert asyncio.run(ask())[0] == 2.0
    assert log.read_text() == "...."


def test_result_held_by_another_node_is_not_made_again(two: sky.Compute, left: Maker, tmp_path: Path) -> None:
    log = tmp_path / "log"
    a = left(two, on=0, log=log, to=1)
    kill(two, 0)
    wait_for(lambda: lost(a), "the node to be lost")
    assert a.result(30)[0] == 1.0
    assert total(a) >> two == SIZE
    assert log.read_text() == "."


def test_chain_is_made_again_from_the_lost_part(two: sky.Compute, left: Maker, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    a, go = left.start(two, on=0, log=first)
    b = two.start(double(a, str(second)), on=0).future
    c = two.start(total(b), on=0).future
    go.touch()
    assert c.result(30) == 2.0 * SIZE
    del a
    gc.collect()
    kill(two, 0)
    wait_for(lambda: lost(b), "the node to be lost")
    assert total(b) >> two == 2.0 * SIZE
    assert (first.read_text(), second.read_text()) == ("..", "..")


def test_every_member_of_a_broadcast_gets_the_lost_result(two: sky.Compute, left: Maker) -> None:
    a = left(two, on=0)
    kill(two, 0)
    wait_for(lambda: lost(a), "the node to be lost")
    wait_for(lambda: sum(node.state == "active" for node in two.snapshot().nodes) == 2, "another node 0")
    assert total(a) @ two == [SIZE, SIZE]


def test_only_slot_is_free_for_the_repeated_task(left: Maker) -> None:
    with sky.Compute(nodes=1) as pool:
        a = left(pool)
        kill(pool, 0)
        wait_for(lambda: lost(a), "the node to be lost")
        assert [future.result(60) for future in [total(a) > pool for _ in range(3)]] == [SIZE] * 3


def test_task_fails_with_the_error_of_its_repeated_input(two: sky.Compute, tmp_path: Path) -> None:
    log, go = tmp_path / "log", tmp_path / "go"

    @sky.function
    def make_once() -> Any:
        tasks.wait_for_file.fn(str(go))
        if log.exists():
            raise LookupError("only once")
        log.touch()
        return np.ones(SIZE)

    a = two.start(make_once(), on=0).future
    b = two.start(total(a), on=0).future
    go.touch()
    assert b.result(30) == SIZE
    kill(two, 0)
    wait_for(lambda: lost(a), "the node to be lost")
    with pytest.raises(LookupError, match="^'?only once") as caught:
        total(a) >> two
    assert caught.value.__notes__ == ["total() did not run: it takes the result of make_once(), which failed."]
    with pytest.raises(LookupError, match="^'?only once"):
        a.result(30)
    assert isinstance(a.exception(30), LookupError)
    with pytest.raises(LookupError, match="^'?only once"):
        total(a) @ two


def test_results_are_made_again_within_retry_on_interruption(left: Maker) -> None:
    with sky.Compute(nodes=1, retry_on_interruption=1) as pool:
        a = left(pool)
        kill(pool, 0)
        wait_for(lambda: lost(a), "the node to be lost")
        assert total(a) >> pool == SIZE
        kill(pool, 0)
        wait_for(lambda: lost(a), "the next node to be lost")
        with pytest.raises(sky.NodeLostError, match=r"^The result of make\(\) was lost with its node, 2 times\."):
            a.result(60)


def test_results_do_not_stay_if_retries_are_zero(left: Maker) -> None:
    with sky.Compute(nodes=1, retry_on_interruption=0) as pool:
        a, go = left.start(pool)
        b = total(a) > pool
        go.touch()
        assert b.result(30) == SIZE
        assert not isinstance(raw(a), RemoteResult)


def test_task_that_waits_for_a_repeated_input_can_be_cancelled(two: sky.Compute, tmp_path: Path) -> None:
    log, go, again = tmp_path / "log", tmp_path / "go", tmp_path / "again"

    @sky.function
    def make_when() -> Any:
        tasks.wait_for_file.fn(str(again if log.exists() else go))
        log.touch()
        return np.ones(SIZE)

    a = two.start(make_when(), on=0).future
    first = two.start(total(a), on=0).future
    go.touch()
    assert first.result(30) == SIZE
    kill(two, 0)
    wait_for(lambda: lost(a), "the node to be lost")
    b = total(a) > two
    wait_for(lambda: two.snapshot().running == 1, "the first task to run again")
    assert two.snapshot().queued == 1
    assert b.cancel()
    with pytest.raises(sky.TaskCancelledError):
        b.result(30)
    again.touch()
    assert a.result(60)[0] == 1.0


def test_task_that_waits_for_a_repeated_input_does_not_run(two: sky.Compute, left: Maker, tmp_path: Path) -> None:
    again = tmp_path / "again"

    @sky.function
    def make_when() -> Any:
        made = tmp_path / "made"
        if made.exists():
            tasks.wait_for_file.fn(str(again))
        tasks.wait_for_file.fn(str(tmp_path / "go"))
        made.touch()
        return np.ones(SIZE)

    a = two.start(make_when(), on=0).future
    first = two.start(total(a), on=0).future
    (tmp_path / "go").touch()
    assert first.result(30) == SIZE
    blocked = two.start(tasks.wait_for_file(str(tmp_path / "free")), on=1).future
    wait_for(blocked.running, "the other node to be busy")
    b = two.start(total(a), on=1)
    kill(two, 0)
    wait_for(lambda: lost(a), "the node to be lost")
    (tmp_path / "free").touch()
    wait_for(lambda: b.nodes and two.snapshot().queued == 1, "the task to be withheld")
    wait_for(lambda: not b.future.running(), "it to count as waiting")
    assert b.state == "queued"
    again.touch()
    assert b.future.result(60) == SIZE


def test_input_of_a_cancelled_task_is_released(two: sky.Compute, left: Maker) -> None:
    a = left(two)
    result = raw(a)
    assert isinstance(result, RemoteResult)
    wait_for(lambda: result._users == 1, "the task that took it to release it")
    asked, go = threading.Event(), threading.Event()

    class Slow:
        def __reduce__(self) -> Any:
            asked.set()
            go.wait(30)
            return int, (7,)

    foreign: Future[Any] = Future()
    taker = total(a, foreign) > two
    foreign.set_result(Slow())
    assert asked.wait(30)
    assert taker.cancel()
    with pytest.raises(sky.TaskCancelledError):
        taker.result(30)
    go.set()
    free = total(a) > two
    assert free.result(30) == SIZE
    wait_for(lambda: result._users == 1, "both tasks to release it")


def test_callback_cannot_wait_for_a_remote_result(two: sky.Compute, left: Maker) -> None:
    a = left(two)
    outcome: Future[BaseException | None] = Future()

    def ask(_: object) -> None:
        try:
            a.result()
        except sky.UsageError as error:
            outcome.set_result(error)

    number: Any = Future()  # so that the task ends after the callback is added
    (tasks.add(1, number) > two).add_done_callback(ask)
    number.set_result(1)
    assert "cannot be taken in a callback" in str(outcome.result(30))
    assert a.result(30)[0] == 1.0
