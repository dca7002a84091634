"""Pools that scale, have several groups, cost money and fail, on real worker processes."""

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import skyward as sky
from skyward.control.observe.snapshot import PoolSnapshot
from skyward.pool.compute import Compute
from skyward.scaling import Decision, Snapshot
from skyward.views.tables import pool_table

pytestmark = pytest.mark.local


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """A file that tasks wait for; created at the end, so that no task keeps waiting."""
    path = tmp_path / "gate"
    yield path
    path.touch()


@sky.function
def held(gate: str) -> int:
    """Run until the gate exists; return the rank it ran on."""
    import time
    from pathlib import Path

    while not Path(gate).exists():
        time.sleep(0.01)
    return sky.instance_info().node


@sky.function
def rank() -> int:
    return sky.instance_info().node


@sky.function
def topology() -> tuple[int, tuple[int, ...]]:
    info = sky.instance_info()
    return info.total_nodes, tuple(peer.node for peer in info.peers)


@sky.function
def part(data: list[int]) -> list[int]:
    return sky.shard(data)


@sky.function(resources={"GPU": 1})
def on_gpu() -> str:
    import os

    return os.environ["KIND"]


@sky.function(capabilities={"big"})
def on_big() -> str:
    import os

    return os.environ["KIND"]


def until(pool: Compute, true: Callable[[PoolSnapshot], bool]) -> PoolSnapshot:
    """Return the snapshot of the pool once a condition holds for it."""
    changed = threading.Event()
    for _ in range(1000):
        now = pool.snapshot()
        if true(now):
            return now
        changed.wait(0.02)
    pytest.fail(f"it never came to that: {now}; {[str(event) for event in pool.decisions()]}")


def active(pool: PoolSnapshot) -> int:
    return sum(node.state == "active" for node in pool.nodes)


def test_pool_grows_for_queued_tasks_and_shrinks_when_idle(gate: Path) -> None:
    with Compute(nodes=(1, 3), autoscale_cooldown=0.2, autoscale_idle_timeout=2) as pool:
        waiting = [held(str(gate)) > pool for _ in range(3)]
        until(pool, lambda now: active(now) == 3 and now.running == 3)
        gate.touch()
        assert sorted(future.result() for future in waiting) == [0, 1, 2]
        shrunk = until(pool, lambda now: len(now.nodes) == 1)
        assert shrunk.nodes[0].rank == 0, "the head was removed"
        *grew, shrank = pool.decisions()
        assert grew[-1].after == {"default": 3}
        assert all(event.change > 0 and "task" in event.reason for event in grew)
        assert shrank.after == {"default": 1}
        assert "idle" in shrank.reason


def test_pool_without_nodes_wakes_and_scales_to_zero_again() -> None:
    with Compute(nodes=(0, 2), autoscale_cooldown=0.2, autoscale_idle_timeout=0.3) as pool:
        assert pool.snapshot().nodes == ()
        assert rank() >> pool == 0
        until(pool, lambda now: now.nodes == ())
        assert rank() >> pool == 0


def test_policy_no_leaves_the_pool_as_it_is(gate: Path) -> None:
    with Compute(nodes=(1, 3), policy="no", autoscale_cooldown=0.1, autoscale_idle_timeout=0.1) as pool:
        waiting = [held(str(gate)) > pool for _ in range(3)]
        pool.resize((2, 3))
        until(pool, lambda now: active(now) == 2 and now.running == 2)
        gate.touch()
        assert {future.result() for future in waiting} == {0, 1}
        assert [event.by for event in pool.decisions()] == ["user"]


def test_resize_applies_the_desired_number_of_nodes() -> None:
    with Compute(nodes=(1, 3), policy="no") as pool:
        pool.resize(sky.Nodes.parse("3/1:3"))
        assert pool.snapshot().desired == 3
        until(pool, lambda now: active(now) == 3)
        pool.resize(sky.Nodes.parse("2/1:3"))
        until(pool, lambda now: len(now.nodes) == 2)


def test_cancelled_tasks_do_not_count_as_failed(gate: Path) -> None:
    with Compute(nodes=1) as pool:
        waiting = held(str(gate)) > pool
        until(pool, lambda now: now.running == 1)
        waiting.cancel()
        found = until(pool, lambda now: now.cancelled == 1)
        assert (found.done, found.failed) == (0, 0)
        assert pool_table([found]).splitlines()[0].split()[-2:] == ["failed", "cancelled"]


def test_policy_can_be_an_object(gate: Path) -> None:
    class Always:
        name = "always"
        interval = 0.05

        def decide(self, snapshot: Snapshot) -> Decision:
            return Decision({"default": 9}, "because")

    with Compute(nodes=(1, 2), policy=Always()) as pool:
        until(pool, lambda now: active(now) == 2)
        assert str(pool.decisions()[0]) == "1 -> 2 nodes: because, but the maximum is 2 nodes"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            Decision({"default": 1.5}, "half"),  # type: ignore[dict-item]
            "the policy wants 1.5 nodes of 'default', but the number must be an integer of at least 0",
        ),
        (
            Decision({"default": -1}, "none"),
            "the policy wants -1 nodes of 'default', but the number must be an integer of at least 0",
        ),
        (Decision({"other": 2}, "two"), "the policy wants nodes of 'other', but the pool's group is 'default'"),
    ],
)
def test_answer_that_is_no_decision_leaves_the_pool_as_it_is(gate: Path, answer: Decision, reason: str) -> None:
    """Regression: an uncaught TypeError, and tasks that waited until their timeout."""

    class Odd:
        name = "odd"
        interval = 0.05
        asked = 0

        def decide(self, snapshot: Snapshot) -> Decision:
            self.asked += 1
            return answer

    odd = Odd()
    with Compute(nodes=(1, 2), policy=odd) as pool:
        waiting = [held(str(gate)) > pool for _ in range(3)]
        until(pool, lambda now: now.running == 1 and odd.asked > 5)
        (event,) = pool.decisions()
        assert str(event) == f"1 -> 1 nodes: {reason} (held back: the pool stays as it is)"
        gate.touch()
        assert [future.result() for future in waiting] == [0] * 3


@pytest.mark.parametrize("policy", ["vanilla", "capability", "fixed_elastic"])
def test_ratio_policies_look_every_two_seconds(gate: Path, policy: str) -> None:
    """Regression: they looked at every message while tasks waited: three more nodes within 0.2 s."""
    with Compute(nodes=(1, 4), policy=policy) as pool:
        waiting = [held(str(gate)) > pool for _ in range(100)]
        until(pool, lambda now: now.desired == 3)
        first, second = pool.decisions()
        assert second.at - first.at >= 1.9
        gate.touch()
        assert len([future.result() for future in waiting]) == 100


def test_nodes_that_left_are_no_peers() -> None:
    """Regression: the nodes that stayed listed six peers, and six nodes in total."""
    with Compute(nodes=sky.Nodes.parse("6/1:6"), policy="no") as pool:
        assert topology() @ pool == [(6, (0, 1, 2, 3, 4, 5))] * 6
        pool.drain(2)
        until(pool, lambda now: len(now.nodes) == 5)
        assert topology() @ pool == [(5, (0, 1, 3, 4, 5))] * 5
        assert part(list(range(7))) @ pool == [[0, 5], [1, 6], [2], [3], [4]], "the hole has no share"
        pool.resize(1)
        until(pool, lambda now: len(now.nodes) == 1)
        assert topology() >> pool == (1, (0,))


def test_groups_run_together_and_tasks_are_placed_where_they_fit() -> None:
    groups = {
        "cpu": sky.Spec(vcpus=4, image=sky.Image(env={"KIND": "cpu"})),
        "gpu": sky.Spec(accelerator="T4", image=sky.Image(env={"KIND": "gpu"})),
        "big": sky.Spec(nodes=(0, 1), capabilities={"big"}, image=sky.Image(env={"KIND": "big"})),
    }
    with Compute(groups=groups) as pool:
        assert [node.group for node in pool.snapshot().nodes] == ["cpu", "gpu"]
        assert sky.gather(*(on_gpu() for _ in range(4))) >> pool == ("gpu",) * 4
        assert on_big() >> pool == "big"
        assert set(sky.gather(*(rank() for _ in range(30))) >> pool) == {0, 1, 2}
        with pytest.raises(sky.NoGroupFitsError, match=r"on_gpu\(\) asks for 3 GPU, which no node of this pool can"):
            on_gpu().with_resources(GPU=3) >> pool
        assert (on_gpu() @ pool) == ["gpu"], "a broadcast ran on a node that cannot run it"


def test_requested_capacity_is_available_before_any_task() -> None:
    groups = {
        "cpu": sky.Spec(vcpus=4),
        "gpu": sky.Spec(nodes=(0, 2), accelerator="T4"),
    }
    with Compute(groups=groups, autoscale_cooldown=0.1, autoscale_idle_timeout=0.1) as pool:
        sky.request_resources(({"GPU": 1}, 2))
        until(pool, lambda now: [node.group for node in now.nodes if node.state == "active"] == ["cpu", "gpu", "gpu"])
        sky.request_resources()
        until(pool, lambda now: [node.group for node in now.nodes] == ["cpu"])
        with pytest.raises(sky.NoGroupFitsError, match="request_resources asks for 2 GPU"):
            sky.request_resources({"GPU": 2})
        with pytest.raises(sky.NoGroupFitsError, match="3 times 1 GPU, which do not fit even in the pool's maximum"):
            sky.request_resources(({"GPU": 1}, 3))


def test_spent_budget_ends_the_pool_and_its_queued_tasks(gate: Path) -> None:
    priced = sky.Local(hourly_price=3600.0)
    with Compute(provider=priced, nodes=1, budget=1000.0) as pool:
        running, waiting = held(str(gate)) > pool, held(str(gate)) > pool
        before = until(pool, lambda now: now.running == 1)
        assert (before.per_hour, before.budget) == (3600.0, 1000.0)
        budget = round(before.spent + 62.0, 2)
        pool.set_budget(budget)
        spent = r"held\(\) did not run: Pool '.*' has reached its budget of " + re.escape(f"${budget:.2f}")
        with pytest.raises(sky.BudgetExhaustedError, match=spent):
            waiting.result()
        gate.touch()
        assert running.result() == 0
        empty = until(pool, lambda now: now.nodes == ())
        assert budget - 60.0 <= empty.spent <= budget
        assert f"the rest of the budget of ${budget:.2f} is needed to drain the nodes" in pool.decisions()[-1].reason
        assert empty.budget_exhausted
        pool.set_budget(None)
        assert rank() >> pool == 0
        assert not pool.snapshot().budget_exhausted


def test_budget_too_small_for_a_node_is_refused_before_launching() -> None:
    with pytest.raises(sky.NodeStartError, match=r"cannot afford its first nodes with a budget of \$1\.00"):
        Compute(provider=sky.Local(hourly_price=3600.0), budget=1.0).open()


def test_failed_launches_are_retried() -> None:
    flaky = sky.Local(fail_rate=0.5, seed=3)
    with Compute(provider=flaky, nodes=4, provision_retry_delay=0.05, max_provision_attempts=20) as pool:
        assert active(pool.snapshot()) == 4


@pytest.mark.parametrize("policy", ["adaptive", "vanilla"])
def test_group_whose_machines_fail_does_not_hold_back_another_of_the_same_provider(policy: str) -> None:
    """Both groups have local nodes; the failures of one say nothing about the other."""
    groups = {
        "cheap": sky.Spec(provider=sky.Local(hourly_price=1.0, fail_rate=1.0), resources={"X": 1}, nodes=(0, 2)),
        "dear": sky.Spec(provider=sky.Local(hourly_price=9.0), resources={"X": 1}, nodes=(0, 2)),
    }
    with sky.Compute(
        groups=groups,
        policy=policy,
        provision_retry_delay=0.1,
        max_provision_attempts=1,
        autoscale_cooldown=1,
        max_nodes=2,
    ) as pool:
        assert [(rank() > pool).result(timeout=60) for _ in range(2)] == [0, 0]
        assert {node.group for node in pool.snapshot().nodes} == {"dear"}


def test_repeatedly_failed_launches_end_the_opening_with_the_reason() -> None:
    never = sky.Local(fail_rate=1.0)
    with pytest.raises(sky.NodeStartError, match=r"could not start node 0: simulated failure"):
        Compute(provider=never, provision_retry_delay=0.01, max_provision_attempts=2).open()


def test_machines_may_boot_slowly() -> None:
    slow = sky.Local(boot_time=0.2)
    with Compute(provider=slow, nodes=(1, 2)) as pool:
        assert rank() >> pool == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"fail_rate": 2}, "fail_rate must be from 0 to 1, such as 0.2, but got 2."),
        ({"boot_time": -1}, "boot_time must be"),
        ({"hourly_price": "3"}, "hourly_price must be"),
    ],
)
def test_invalid_local_node_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(sky.SpecError, match=message):
        sky.Local(**fields)  # type: ignore[arg-type]


def test_group_is_resized_by_its_name() -> None:
    with Compute(groups={"a": sky.Spec(vcpus=1), "b": sky.Spec(vcpus=2)}) as pool:
        pool.resize(2, group="b")
        until(pool, lambda now: [node.group for node in now.nodes if node.state == "active"] == ["a", "b", "b"])
        with pytest.raises(sky.SpecError, match="has several groups: name one, `group='a'`"):
            pool.resize(2)
        with pytest.raises(sky.SpecError, match="has no group 'c'"):
            pool.resize(2, group="c")
