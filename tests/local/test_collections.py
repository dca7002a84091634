"""Collections of a pool: on nodes with either executor, and from the client; the same under one name everywhere."""

import asyncio
import contextvars
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import skyward as sky
from tests.waiting import wait_for

if TYPE_CHECKING:
    from concurrent.futures import Future

pytestmark = pytest.mark.local


@sky.function
def write(name: str, key: object, value: object) -> None:
    sky.dict(name)[key] = value


@sky.function
def read(name: str, key: object) -> Any:
    return sky.dict(name)[key]


@sky.function
def take(name: str, key: object) -> object:
    return sky.dict(name).pop(key, "nothing")


@sky.function
def count(name: str, times: int) -> None:
    for _ in range(times):
        sky.counter(name).increment()


@sky.function
def meet(name: str, parties: int, timeout: float | None = None) -> int:
    sky.barrier(name, parties).wait(timeout)
    return sky.instance_info().node


@sky.function
def next_of(name: str, timeout: float | None = None) -> object:
    return sky.queue(name).get(timeout)


@sky.function
def hold(name: str, seconds: float) -> tuple[float, float]:
    with sky.lock(name, timeout=None):
        begin = time.time()
        time.sleep(seconds)
        return begin, time.time()


@sky.function
def acquire_only(name: str) -> bool:
    return sky.lock(name).acquire()


@sky.function
def everything_awaited() -> tuple[object, ...]:
    async def main() -> tuple[object, ...]:
        cache, seen, steps, work = sky.dict("ad"), sky.set("as"), sky.counter("ac"), sky.queue("aq")
        await cache.set_async("a", 1)
        await cache.update_async({"b": 2}, c=None)
        await seen.add_async(1)
        await seen.discard_async(2)
        await asyncio.gather(*(steps.increment_async() for _ in range(100)))
        await steps.decrement_async(10)
        await work.put_async("x")
        async with sky.lock("al"):
            inside = sky.lock("al").timeout
        await sky.barrier("ab", 1).wait_async()
        found = (
            [await cache.get_async(key, "none") for key in "abcd"],
            await cache.pop_async("a"),
            await cache.contains_async("a"),
            await seen.contains_async(True),
            await seen.size_async(),
            await steps.value_async(),
            await work.size_async(),
            await work.get_async(),
            await work.empty_async(),
            inside,
        )
        await cache.delete_async("b")
        await steps.reset_async(3)
        return found

    return asyncio.run(main())


def test_all_nodes_read_what_one_writes(each_executor: sky.Compute) -> None:
    pool = each_executor
    for key, value in (("a", [1, 2]), (("t", 1), {"x": None}), (None, None), (2, b"\0" * 3_000_000)):
        write("shared", key, value) >> pool
        assert read("shared", key) @ pool == [value, value]
        assert pool.dict("shared")[key] == value
    with pytest.raises(KeyError, match="^'missing'$"):
        read("shared", "missing") >> pool


def test_dict_has_the_operations_of_a_mapping(pool: sky.Compute) -> None:
    cache = pool.dict("cache")
    assert cache is pool.dict("cache") is sky_dict_in(pool, "cache")
    cache["none"] = None
    assert "none" in cache
    assert cache["none"] is None
    assert cache.get("none", "default") is None
    assert cache.pop("none", "default") is None
    assert cache.pop("none", "default") == "default"
    assert "none" not in cache
    with pytest.raises(KeyError):
        cache.pop("none")
    with pytest.raises(KeyError):
        del cache["none"]
    cache.update({number: number * number for number in range(200)}, name="x")
    assert [cache[number] for number in range(200)] == [number * number for number in range(200)]
    assert cache[True] == cache[1.0] == cache[1]
    del cache[7]
    assert cache.get(7) is None
    with pytest.raises(TypeError, match="unhashable type: 'list'"):
        cache[[1]] = 2
    with pytest.raises(TypeError):
        iter(cache)
    with pytest.raises(sky.NotPicklableError, match=r"cache\['a'\]"):
        cache["a"] = threading.Lock()


def sky_dict_in(pool: sky.Compute, name: str) -> object:
    """Return `sky.dict` inside the scope of `pool`."""
    from skyward.functions.target import current_pool

    token = current_pool.set(pool)
    try:
        return sky.dict(name)
    finally:
        current_pool.reset(token)


def test_each_value_is_popped_once(each_executor: sky.Compute) -> None:
    for number in range(10):
        each_executor.dict("once")[number] = number
        assert sorted(map(str, take("once", number) @ each_executor)) == [str(number), "nothing"]


def test_set_has_the_operations_of_a_set(each_executor: sky.Compute) -> None:
    @sky.function
    def add(members: list[object]) -> int:
        seen = sky.set("seen")
        for member in members:
            seen.add(member)
        return len(seen)

    mine = each_executor.set("seen")
    assert len(mine) == 0
    assert mine
    add([1, "1", (1, "a"), None, frozenset({1, 2})]) >> each_executor
    assert add([1.0, "1", (True, "a"), None, frozenset({2, 1})]) >> each_executor == 5
    assert 1 in mine
    assert 2 not in mine
    mine.discard(1)
    mine.discard("never there")
    assert len(mine) == 4


def test_no_increment_is_lost(each_executor: sky.Compute) -> None:
    steps = each_executor.counter("steps")
    sky.gather(*(count("steps", 25) for _ in range(8))) >> each_executor
    assert int(steps) == steps.value == 200
    assert steps.increment(2**100) == 2**100 + 200
    assert steps.decrement(2**100) == 200
    steps.reset(-5)
    assert range(10)[steps] == 5
    steps.reset()
    assert steps.value == 0
    with pytest.raises(sky.SpecError, match="whole numbers, but got 1.5"):
        steps.increment(1.5)  # type: ignore[arg-type]


def test_threads_of_one_process_share_a_counter(pool: sky.Compute) -> None:
    steps = pool.counter("threads")
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.append(steps.increment())) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(1, 51))


def test_queue_is_in_order_and_keeps_everything(pool: sky.Compute) -> None:
    work = pool.queue("work")
    items: list[object] = [None, 0, "x" * 10, b"y" * 2_000_000, *range(300), "z" * 3000, ["w" * 5000]] + [
        "p" * 3000
    ] * 40
    for item in items:
        work.put(item)
    assert len(work) == len(items)
    assert not work.empty()
    assert work
    assert [work.get() for _ in items] == items
    assert work.empty()
    assert work.get(timeout=0.05, default="nothing") == "nothing"
    assert work.get(timeout=0) is None
    with pytest.raises(sky.SpecError, match="timeout must be seconds, or None"):
        work.get(timeout=-1)


def test_each_item_is_taken_once(each_executor: sky.Compute) -> None:
    @sky.function
    def drain() -> list[int]:
        work, mine = sky.queue("many"), []
        while (item := work.get(timeout=1)) is not None:
            mine.append(item)
        return mine

    work = each_executor.queue("many")

    async def fill() -> None:
        await asyncio.gather(*(work.put_async(number) for number in range(300)))

    asyncio.run(fill())
    taken = drain() @ each_executor
    assert sorted(item for mine in taken for item in mine) == list(range(300))


def test_get_waits_for_an_item(each_executor: sky.Compute) -> None:
    future = next_of("waited") > each_executor
    each_executor.queue("waited").put("item")
    assert future.result(20) == "item"


def test_interrupted_get_takes_nothing(each_executor: sky.Compute) -> None:
    future = next_of("interrupted") > each_executor
    wait_for(lambda: running(future, each_executor), "it to run")
    assert future.cancel()
    with pytest.raises(sky.TaskTimeoutError):
        next_of("interrupted").with_timeout(0.3) >> each_executor
    each_executor.queue("interrupted").put("kept")
    assert each_executor.queue("interrupted").get(timeout=40) == "kept"


def running(future: "Future[Any]", pool: sky.Compute) -> bool:
    return not future.done() and pool.snapshot().running > 0


def test_barrier_releases_all_together(each_executor: sky.Compute) -> None:
    for _ in range(5):
        assert meet("round", 2) @ each_executor == [0, 1]


def test_barrier_wait_has_a_timeout(each_executor: sky.Compute) -> None:
    with pytest.raises(TimeoutError, match=r"^Barrier 'alone': 1 of 2 parties arrived within 0\.2 s\.$"):
        meet("alone", 2, 0.2) >> each_executor
    future = meet("alone", 2) > each_executor
    each_executor.barrier("alone", 2).wait()
    each_executor.barrier("only one", 1).wait(timeout=0)
    with pytest.raises(TimeoutError, match=r"^Barrier 'now': 1 of 2 parties arrived within 0 s\.$"):
        each_executor.barrier("now", 2).wait(timeout=0)
    assert future.result(20) in (0, 1)


def test_barrier_can_be_reset_and_others_are_unaffected(pool: sky.Compute) -> None:
    future = meet("broken", 3) > pool
    wait_for(lambda: one_waits(pool), "it to wait")
    with pytest.raises(sky.SpecError, match="this call asks for 2 parties, and the waiting ones for 3"):
        pool.barrier("broken", 2).wait()
    pool.barrier("broken", 3).reset()
    with pytest.raises(threading.BrokenBarrierError, match="^Barrier 'broken' was reset.$"):
        future.result(20)
    with pytest.raises(sky.SpecError, match="needs at least 1 party, but got 0"):
        pool.barrier("none", 0)


def one_waits(pool: sky.Compute) -> bool:
    try:
        pool.barrier("broken", 3).wait(0.05)
    except TimeoutError as error:
        return "2 of 3 parties arrived" in str(error)
    return False


def test_interrupt_ends_a_wait_at_a_barrier(each_executor: sky.Compute) -> None:
    future = meet("never", 2) > each_executor
    wait_for(lambda: running(future, each_executor), "it to run")
    assert future.cancel()
    wait_for(lambda: each_executor.snapshot().running == 0, "it to stop")
    with pytest.raises(TimeoutError, match="1 of 2 parties arrived"):
        each_executor.barrier("never", 2).wait(0.3)


def test_lock_has_one_holder(each_executor: sky.Compute) -> None:
    spans = sorted(hold("mutex", 0.1) @ each_executor)
    assert spans[0][1] <= spans[1][0]
    lock = each_executor.lock("mutex")
    assert lock is each_executor.lock("mutex")
    with lock:
        with pytest.raises(
            RuntimeError, match="is already held by this thread or asyncio task, and it is not reentrant"
        ):
            lock.acquire()
        others: list[BaseException] = []

        def other() -> None:
            try:
                each_executor.lock("mutex", timeout=0.1).acquire()
            except TimeoutError as error:
                others.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert [str(error) for error in others] == ["Lock 'mutex' was not free within 0.1 s."]
    with pytest.raises(RuntimeError, match="^Lock 'mutex' is not held by this thread or asyncio task.$"):
        lock.release()
    assert lock.acquire(timeout=0)
    lock.release()


def test_unreleased_lock_is_released_when_its_task_ends(each_executor: sky.Compute) -> None:
    for _ in range(4):  # the same node can acquire it again too
        assert acquire_only("forgotten") >> each_executor
    with each_executor.lock("forgotten", timeout=15):
        pass


def test_every_operation_can_be_awaited(each_executor: sky.Compute) -> None:
    assert everything_awaited() >> each_executor == (
        [1, 2, None, "none"], 1, False, True, 1, 90, 1, "x", True, 30,
    )  # fmt: skip  # one value per line adds nothing
    assert each_executor.counter("ac").value == 3
    assert "b" not in each_executor.dict("ad")


def test_collection_is_pickled_as_its_name(each_executor: sky.Compute) -> None:
    cache, total = each_executor.dict("travels"), each_executor.counter("total", consistency="eventual")

    @sky.function
    def fill(given: Any) -> str:
        given["x"] = 1
        total.increment(4)
        return repr(total)

    assert fill(cache) >> each_executor == "<counter 'total'>"
    assert (cache["x"], total.value) == (1, 4)


def test_refused_consistency_leaves_other_handles_usable(pool: sky.Compute) -> None:
    first = pool.dict("refused")
    first["x"] = 1
    with pytest.raises(sky.SpecError, match="cannot be 'eventual'"):
        pool.dict("refused", consistency="eventual")["x"]
    assert first["x"] == pool.dict("refused")["x"] == 1


def test_first_use_determines_consistency(pool: sky.Compute) -> None:
    @sky.function
    def other(consistency: Any) -> int:
        return sky.counter("level", consistency=consistency).increment()

    assert other("eventual") >> pool == 1
    assert pool.counter("level").increment() == 2
    with pytest.raises(
        sky.SpecError, match="^Counter 'level' has been 'eventual' since its first use; it cannot be 'strong'"
    ):
        pool.counter("level", consistency="strong").increment()
    with pytest.raises(sky.SpecError, match='consistency must be "strong" or "eventual", but got 3'):
        pool.set("x", consistency=3)  # type: ignore[arg-type]
    with pytest.raises(sky.SpecError, match="name of a dict must be a string"):
        pool.dict("")


def test_pool_without_a_cluster_has_no_collections() -> None:
    @sky.function
    def attempt() -> object:
        return sky.dict("cache")

    refusal = "^Distributed collections require cluster mode, and this pool has `cluster=False`, so there is no dict.$"
    with sky.Compute(nodes=1, cluster=False) as pool:
        with pytest.raises(sky.NoClusterError, match=refusal):
            attempt() >> pool
        with pytest.raises(RuntimeError, match=refusal):
            pool.dict("cache")


def test_pool_at_a_provider_of_isolated_nodes_names_it_as_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    @sky.function
    def attempt() -> object:
        return sky.dict("cache")

    monkeypatch.setattr(type(sky.Local()), "isolated_nodes", True, raising=False)
    refusal = "mode, and nodes of provider 'local' do not reach each other, so there is no dict.$"
    with sky.Compute(nodes=1) as pool:
        with pytest.raises(sky.NoClusterError, match=refusal):
            attempt() >> pool
        with pytest.raises(sky.NoClusterError, match=refusal):
            pool.dict("cache")


def test_collections_work_on_one_node_and_end_with_the_pool() -> None:
    with sky.Compute(nodes=1) as pool:
        cache = pool.dict("cache")
        write("cache", "a", 1) >> pool
        assert cache["a"] == 1
    with pytest.raises(sky.PoolClosedError, match="is closed, and its collections with it"):
        cache.get("a")
    with pytest.raises(sky.PoolClosedError):
        pool.dict("cache")
    with pool:
        assert pool.dict("cache").get("a") is None


def test_collection_outside_a_pool_is_refused() -> None:
    with pytest.raises(sky.NoPoolError, match=r"or name it: `pool\.queue\(\.\.\.\)`\.$"):
        contextvars.Context().run(sky.queue, "work")
