"""Gangs on real local nodes: they start together, end or run again together, and pools grow for them."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from tests.local.tasks import count, wait_for_file
from tests.waiting import interrupt_when, wait_for

pytestmark = pytest.mark.local


@sky.function
def meet(folder: str, value: int = 0) -> tuple[int, int, tuple[int, ...], int]:
    """Wait until all members are there, which takes for ever unless all of them run at once."""
    import time

    gang = sky.instance_info().gang
    assert gang is not None
    Path(folder, f"{gang.start}-{gang.rank}").touch()
    while len(list(Path(folder).glob(f"{gang.start}-*"))) < gang.size:
        time.sleep(0.005)
    return value, sky.instance_info().node, gang.nodes, gang.start


@sky.function
def die_first(folder: str, victim: int) -> tuple[int, int]:
    """Meet the others; in the first start, the member `victim` then kills its process, and the others wait."""
    import time

    gang = sky.instance_info().gang
    assert gang is not None
    Path(folder, f"{gang.start}-{gang.rank}").touch()
    while len(list(Path(folder).glob(f"{gang.start}-*"))) < gang.size:
        time.sleep(0.005)
    if gang.start == 1:
        if gang.rank == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            time.sleep(0.005)
    return gang.rank, gang.start


@sky.function
def fail_or_wait(rank: int) -> int:
    import time

    if rank == 1:
        raise ValueError("member 1 failed")
    while True:
        time.sleep(0.005)


@sky.function
def shares() -> list[int]:
    return sky.shard([10, 11, 12, 13])


@sky.function
def gang_info() -> sky.GangInfo | None:
    return sky.instance_info().gang


@pytest.fixture(scope="module")
def pool() -> Any:
    with sky.Compute(provider="local", nodes=2, worker=sky.Worker(concurrency=2)) as pool:
        yield pool


@pytest.mark.parametrize("placement", ["pack", "spread", "strict_pack", "strict_spread"])
def test_members_run_at_once_where_the_placement_says(pool: sky.Compute, tmp_path: Path, placement: Any) -> None:
    found = sky.gang(*(meet(str(tmp_path), each) for each in (7, 8)), placement=placement) >> pool
    nodes = [node for _, node, _, _ in found]
    assert [value for value, _, _, _ in found] == [7, 8]
    assert {members for _, _, members, _ in found} == {tuple(nodes)}
    assert len(set(nodes)) == (1 if "pack" in placement else 2)


def test_members_share_data_and_know_where_the_first_one_is(pool: sky.Compute) -> None:
    assert sky.gang(shares(), shares()) >> pool == ([10, 12], [11, 13])
    found = sky.gang(gang_info(), gang_info(), gang_info()) >> pool
    assert [each.rank for each in found if each is not None] == [0, 1, 2]
    assert all(each is not None and each.size == 3 and each.head_addr for each in found)
    assert gang_info() >> pool is None


def test_future_and_await_give_the_tuple_of_results(pool: sky.Compute) -> None:
    future = sky.gang(shares(), shares()) > pool
    assert future.result(60) == ([10, 12], [11, 13])

    with sky.Compute(provider="local", nodes=1, worker=sky.Worker(concurrency=2)) as other:

        async def awaited() -> Any:
            return await sky.gang(shares(), shares())

        with other:
            assert asyncio.run(awaited()) == ([10, 12], [11, 13])


def test_first_error_is_raised_and_stops_the_others(pool: sky.Compute) -> None:
    with pytest.raises(ValueError, match="member 1 failed"):
        sky.gang(fail_or_wait(0), fail_or_wait(1)) >> pool
    wait_for(lambda: not pool.snapshot().running, "the other member to be stopped")
    future = sky.gang(fail_or_wait(0), fail_or_wait(1)) > pool
    with pytest.raises(ValueError, match="member 1 failed"):
        future.result(60)


def test_cancel_interrupt_and_deadline_end_the_whole_gang(pool: sky.Compute, tmp_path: Path) -> None:
    gate = str(tmp_path / "never")
    future = sky.gang(wait_for_file(gate), wait_for_file(gate)) > pool
    wait_for(lambda: pool.snapshot().running == 2, "the gang to run")
    assert future.cancel()
    wait_for(lambda: not pool.snapshot().running, "the members to be stopped")
    with interrupt_when(lambda: pool.snapshot().running == 2, "the gang to run"), pytest.raises(KeyboardInterrupt):
        sky.gang(wait_for_file(gate), wait_for_file(gate)) >> pool
    wait_for(lambda: not pool.snapshot().running, "the members to be stopped")
    with pytest.raises(sky.TaskTimeoutError):
        sky.gang(wait_for_file(gate), wait_for_file(gate)).with_timeout(0.5) >> pool


def test_gang_waits_for_all_its_slots_and_younger_tasks_wait_behind_it(pool: sky.Compute, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    older = wait_for_file(str(gate)) > pool
    wait_for(lambda: pool.snapshot().running == 1, "the older task to run")
    (tmp_path / "met").mkdir()
    members = sky.gang(*(meet(str(tmp_path / "met")) for _ in range(4))) > pool
    younger = [gang_info() > pool for _ in range(3)]
    wait_for(lambda: pool.snapshot().queued == 7, "the tasks to wait")
    assert not members.done()
    assert not any(each.done() for each in younger)
    gate.touch()
    older.result(60)
    assert len(members.result(60)) == 4
    assert [each.result(60) for each in younger] == [None] * 3


@pytest.mark.parametrize(("size", "placement"), [(5, "pack"), (5, "spread"), (3, "strict_pack"), (3, "strict_spread")])
def test_gang_that_can_never_fit_is_refused(pool: sky.Compute, size: int, placement: Any) -> None:
    with pytest.raises(
        sky.NoGroupFitsError,
        match=f"{size} tasks at once.*do not fit even in the pool's maximum.*GiB memory.*Allow more nodes",
    ):
        sky.gang(*(gang_info() for _ in range(size)), placement=placement) >> pool


def test_calls_that_cannot_be_members_are_refused(pool: sky.Compute) -> None:
    future = gang_info() > pool
    with pytest.raises(
        sky.UsageError, match=r"it waits for a future, .*; call `x\.result\(\)` first, without `\.after`"
    ):
        sky.gang(gang_info().after(future), gang_info()) >> pool
    with pytest.raises(sky.UsageError, match=r"it waits for a future, .*; pass the result, as in `f\(x\.result\(\)\)`"):
        sky.gang(wait_for_file(future)) >> pool  # type: ignore[arg-type]  # a future in place of its result
    with pytest.raises(sky.OperatorError, match="yields its results one by one"):
        sky.gang(count(3))
    with pytest.raises(sky.OperatorError, match="at least one call"):
        sky.gang()
    with pytest.raises(sky.OperatorError, match="cannot be part of another group"):
        sky.gang(sky.gang(gang_info()))  # type: ignore[call-overload]
    with pytest.raises(sky.OperatorError, match="cannot add to a gang"):
        sky.gang(gang_info()) & gang_info()
    with pytest.raises(sky.SpecError, match="placement must be one of"):
        sky.gang(gang_info(), placement="close")  # type: ignore[call-overload]


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_whole_gang_runs_again_after_a_loss(tmp_path: Path, executor: Any) -> None:
    with sky.Compute(provider="local", nodes=2, worker=sky.Worker(executor=executor)) as pool:
        calls = [die_first(str(tmp_path), 1) for _ in range(2)]
        assert sky.gang(*calls, placement="strict_spread") >> pool == ((0, 2), (1, 2))


@pytest.mark.parametrize("policy", ["pressure", "binpack", "vanilla", "capability", "fixed_elastic"])
def test_elastic_pool_grows_for_a_gang_under_every_policy(tmp_path: Path, policy: Any) -> None:
    with sky.Compute(
        provider="local", nodes=(1, 3), policy=policy, autoscale_cooldown=0.2, autoscale_idle_timeout=600
    ) as pool:
        found = sky.gang(*(meet(str(tmp_path)) for _ in range(3)), placement="strict_spread").with_timeout(120) >> pool
        assert sorted(node for _, node, _, _ in found) == [0, 1, 2]


def test_gang_that_gets_no_nodes_any_more_ends(tmp_path: Path) -> None:
    with sky.Compute(provider="local", nodes=(1, 3), policy="no") as pool:
        with pytest.raises(sky.NoGroupFitsError, match="policy 'no' adds none"):
            sky.gang(gang_info(), gang_info()) >> pool
        gate = tmp_path / "gate"
        busy = wait_for_file(str(gate)) > pool
        pool.resize((1, 2))
        future = sky.gang(gang_info()) > pool
        gate.touch()
        busy.result(60)
        assert len(future.result(60)) == 1


def test_waiting_gang_ends_when_the_pool_is_made_too_small(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with sky.Compute(provider="local", nodes=2) as pool:
        busy = wait_for_file(str(gate)) > pool
        future = sky.gang(gang_info(), gang_info()) > pool
        wait_for(lambda: pool.snapshot().queued == 2, "the gang to wait")
        pool.resize(1)
        with pytest.raises(sky.NoGroupFitsError, match="2 tasks at once"):
            future.result(60)
        gate.touch()
        busy.result(60)


def test_gang_that_waits_when_the_pool_closes_ends(tmp_path: Path) -> None:
    with sky.Compute(provider="local", nodes=2) as pool:
        busy = wait_for_file(str(tmp_path / "never")) > pool
        future = sky.gang(gang_info(), gang_info()) > pool
        wait_for(lambda: pool.snapshot().queued == 2, "the gang to wait")
    for each in (busy, future):
        with pytest.raises(sky.PoolClosedError):
            each.result(60)
