"""`>>`, `>`, `@`, `&` and `gather` on real nodes."""

import os
from concurrent.futures import as_completed, wait
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from tests.local import tasks
from tests.waiting import wait_for

pytestmark = pytest.mark.local


def test_run_returns_the_result(each_executor: sky.Compute) -> None:
    assert tasks.add(2, 3) >> each_executor == 5


def test_tasks_run_in_other_processes(pool: sky.Compute) -> None:
    assert os.getpid() not in {tasks.pid() >> pool for _ in range(4)}


def test_nodes_are_used_round_robin(pool: sky.Compute) -> None:
    ranks = [tasks.place() >> pool for _ in range(6)]
    assert [rank for rank, _, _ in ranks] in ([0, 1] * 3, [1, 0] * 3)


def test_every_node_has_its_own_directory(pool: sky.Compute) -> None:
    places = tasks.place() @ pool
    assert [rank for rank, _, _ in places] == [0, 1]
    assert len({directory for _, directory, _ in places}) == 2


def test_image_env_reaches_tasks() -> None:
    with sky.Compute(nodes=1, image=sky.Image(env={"TESTED": "yes"})) as pool:
        assert (tasks.place() >> pool)[2] == "yes"


def test_group_keeps_order_and_types(pool: sky.Compute) -> None:
    number, text, where = (tasks.add(1, 1) & tasks.sleep(0.01) & tasks.place()) >> pool
    assert (number, text, len(where)) == (2, "slept", 3)


def test_gather_returns_the_results_of_many_calls_in_order(each_executor: sky.Compute) -> None:
    assert sky.gather(*(tasks.add(i, i) for i in range(500))) >> each_executor == tuple(2 * i for i in range(500))


def test_empty_gather_returns_an_empty_tuple(pool: sky.Compute) -> None:
    assert sky.gather() >> pool == ()


def test_streamed_gather_yields_in_order(pool: sky.Compute) -> None:
    calls = [tasks.add(i, 0) for i in range(20)]
    assert list(sky.gather(*calls, stream=True) >> pool) == list(range(20))


def test_streamed_gather_yields_as_completed(pool: sky.Compute) -> None:
    calls = [tasks.sleep(3), tasks.add(1, 1), tasks.add(2, 2)]
    assert list(sky.gather(*calls, stream=True, ordered=False) >> pool) == [2, 4, "slept"]


def test_future_has_the_result(pool: sky.Compute) -> None:
    future = tasks.add(20, 22) > pool
    assert future.result(10) == 42
    assert future.done()
    assert future.exception() is None


def test_futures_work_with_concurrent_futures(pool: sky.Compute) -> None:
    futures = [tasks.add(i, 0) > pool for i in range(4)]
    assert {future.result() for future in as_completed(futures, timeout=10)} == {0, 1, 2, 3}
    assert not wait(futures, timeout=10).not_done


def test_group_future_has_a_tuple(pool: sky.Compute) -> None:
    assert (sky.gather(tasks.add(1, 2), tasks.add(3, 4)) > pool).result(10) == (3, 7)


def test_current_pool_is_used_by_sky() -> None:
    with sky.Compute(nodes=1):
        assert tasks.add(1, 2) >> sky == 3
        assert tasks.add(1, 2) >> sky.sky == 3
        assert (tasks.add(1, 2) & tasks.add(3, 4)) >> sky == (3, 7)


def test_open_and_close_may_be_repeated() -> None:
    pool = sky.Compute(nodes=1)
    for _ in range(2):
        pool.open().open()
        assert tasks.add(1, 2) >> pool == 3
        pool.close()
        pool.close()
    assert not pool.is_open


def test_lambdas_and_closures_can_be_sent(each_executor: sky.Compute) -> None:
    offset = 40

    @sky.function
    def shifted(number: int) -> int:
        return (lambda n: n + offset)(number)

    assert shifted(2) >> each_executor == 42


def test_shards_of_a_broadcast_add_up_to_the_data(each_executor: sky.Compute) -> None:
    assert tasks.shared(list(range(11))) @ each_executor == [[0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9]]


def test_node_that_becomes_ready_joins_an_open_broadcast(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with sky.Compute(nodes=2) as pool:
        run = pool.start(tasks.shared_slowly(list(range(6)), str(go)), on="all")
        wait_for(lambda: run.state == "running", "the broadcast to run")
        pool.resize(3)
        wait_for(lambda: 2 in run.nodes, "the third node to join the broadcast")
        go.touch()
        assert run.future.result(20) == [[0, 2, 4], [1, 3, 5], []]


def test_task_runs_on_the_requested_rank(pool: sky.Compute) -> None:
    for rank in (0, 1, 1):
        assert pool.start(tasks.place(), on=rank).future.result(10)[0] == rank
    assert pool.start(tasks.place(), on="head").future.result(10)[0] == 0


def test_task_for_an_unknown_rank_is_refused(pool: sky.Compute) -> None:
    with pytest.raises(sky.UsageError, match="^Pool 'shared' has no node 7; its nodes are 0, 1.$"):
        pool.start(tasks.place(), on=7).future.result(10)


def test_instance_info_is_complete(pool: sky.Compute) -> None:
    zero, one = tasks.info() @ pool
    assert (zero.node, one.node) == (0, 1)
    assert zero.is_head
    assert not one.is_head
    assert zero.total_nodes == one.total_nodes == 2
    assert zero.head_addr == one.head_addr == zero.peers[0].private_ip
    assert [peer.node for peer in one.peers] == [0, 1]
    assert len({peer.private_ip for peer in one.peers}) == 2
    assert zero.job_id == one.job_id != ""
    assert zero.head_port == 29500
    assert (zero.accelerator, zero.accelerators) == (None, 0)
    assert zero.network is not None
    assert zero.network.interface == "lo"


def test_instance_info_is_complete_in_process_slots() -> None:
    worker = sky.Worker(concurrency=2, executor="process")
    with sky.Compute(nodes=1, worker=worker, accelerator="A100:2") as pool:

        def both() -> tuple[sky.InstanceInfo, ...]:
            return sky.gather(*(tasks.info_slowly() for _ in range(2))) >> pool

        wait_for(lambda: {info.worker for info in both()} == {0, 1}, "tasks to run in both processes")
        infos = both()
        assert {info.total_workers for info in infos} == {2}
        accelerator = infos[0].accelerator
        assert accelerator is not None
        assert (accelerator.type, accelerator.count, accelerator.memory_gb) == ("A100", 2, 80)


def test_several_tasks_run_at_once_on_a_node() -> None:
    with sky.Compute(nodes=1, worker=sky.Worker(concurrency=3)) as pool:
        futures = [tasks.sleep(0.2) > pool for _ in range(3)]
        assert {future.result(10) for future in futures} == {"slept"}
        assert pool.snapshot().nodes[0].slots == 3


def test_snapshot_describes_nodes_and_tasks(pool: sky.Compute) -> None:
    tasks.add(1, 1) >> pool
    snapshot = pool.snapshot()
    assert (snapshot.name, snapshot.state, snapshot.provider) == ("shared", "ready", "local")
    assert [(node.rank, node.state, node.phase) for node in snapshot.nodes] == [
        (0, "active", "ready"),
        (1, "active", "ready"),
    ]
    assert snapshot.done > 0
    assert (snapshot.min, snapshot.max, snapshot.desired) == (2, 2, 2)


def test_resize_changes_the_number_of_nodes() -> None:
    with sky.Compute(nodes=1) as pool:
        pool.resize(3)
        wait_for(lambda: len(tasks.pid() @ pool) == 3, "three nodes")
        pool.resize(1)
        wait_for(lambda: len(pool.snapshot().nodes) == 1, "one node")
        assert (tasks.place() >> pool)[0] == 0


def test_pool_without_nodes_wakes_with_the_first_task() -> None:
    with sky.Compute(nodes=sky.Nodes(min=0, max=2)) as pool:
        assert pool.snapshot().nodes == ()
        assert tasks.add(1, 2) >> pool == 3


def test_pool_is_ready_before_all_nodes_are() -> None:
    with sky.Compute(nodes=sky.Nodes(min=3, desired=1)) as pool:
        assert tasks.add(1, 2) >> pool == 3
        assert len(pool.snapshot().nodes) == 3


def test_readiness_may_need_more_than_the_minimum() -> None:
    with sky.Compute(nodes=sky.Nodes(min=1, desired=2, max=3)) as pool:
        assert sum(node.state == "active" for node in pool.snapshot().nodes) == 2


def test_first_of_several_specs_is_used() -> None:
    specs = [sky.Spec(provider=sky.Local(), nodes=1, image=sky.Image(env={"TESTED": name})) for name in "ab"]
    with sky.Compute(*specs, selection="first") as pool:
        assert (tasks.place() >> pool)[2] == "a"


def test_on_selects_nodes_by_rank_and_by_group() -> None:
    groups = {"a": sky.Spec(nodes=1, vcpus=1), "b": sky.Spec(nodes=2, vcpus=2)}
    with sky.Compute(groups=groups) as pool:

        def ranks(on: str | list[int] | range) -> list[int]:
            return [rank for rank, _, _ in pool.start(tasks.place(), on=on).future.result(60)]

        assert ranks([2, 0]) == [0, 2]
        assert ranks(range(1, 2)) == [1]
        of_a, of_b = ranks("a"), ranks("b")
        assert (len(of_a), len(of_b), sorted(of_a + of_b)) == (1, 2, [0, 1, 2])
        run = pool.start(tasks.place(), on=[1, 7])
        with pytest.raises(sky.UsageError, match=r"has no node 7; its nodes are 0, 1, 2\.$"):
            run.future.result(60)
        three: Any = tasks.add(1, 2) > pool
        with pytest.raises(sky.UsageError, match=r"has no node 7; its nodes are 0, 1, 2\.$"):
            pool.start(tasks.add(three, 1), on=[1, 7]).future.result(60)
        assert pool.start(tasks.add(three, 1), on=[1, 2]).future.result(60) == [4, 4]
        assert sorted(ranks("all")) == [0, 1, 2]


def test_calls_of_a_group_start_in_their_order_whatever_functions_they_call() -> None:
    """Regression: those of one function started together, before earlier calls of another."""
    with sky.Compute(nodes=1) as pool:
        group = sky.gather(*(tasks.started() if number % 2 else tasks.started_too() for number in range(8)))
        moments = list(group >> pool)
    assert moments == sorted(moments)
