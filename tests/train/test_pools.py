"""Pools whose broadcasts are collectives of training frameworks: places, results, streams, failures, losses."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from tests.train.collectives import losses, places, rounds
from tests.train.tasks import fit, gather, train, train_model, train_with_trainer
from tests.waiting import interrupt_when

pytestmark = [pytest.mark.train, pytest.mark.timeout(400)]

IMAGE = sky.Image(env={"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"})

MEETING_TIMEOUT = 5.0
"""Seconds; less than a process that replaces another one needs to import PyTorch on a busy machine."""


@dataclass(frozen=True, slots=True)
class Group:
    """A pool, and the framework of its collectives."""

    framework: str
    pool: sky.Compute

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the results of all members."""
        return sky.function(function)(*arguments) @ self.pool

    def assert_works(self) -> None:
        """Run a collective."""
        assert [place for place, _ in places(self.framework) @ self.pool] == [(0, 2), (1, 2)]


@pytest.fixture(scope="module")
def torch() -> Iterator[Group]:
    """Two nodes, whose collective runs once more if it loses a member."""
    with sky.Compute(nodes=2, image=IMAGE, plugins=[sky.plugins.torch(restarts=1)]) as pool:
        yield Group("torch", pool)


@pytest.fixture(scope="module")
def jax() -> Iterator[Group]:
    """Two nodes, whose collective runs once more if it loses a member."""
    with sky.Compute(nodes=2, image=IMAGE, plugins=[sky.plugins.jax(restarts=1)]) as pool:
        yield Group("jax", pool)


@pytest.fixture(scope="module")
def accelerate() -> Iterator[Group]:
    """Two nodes, whose collective runs once more if it loses a member."""
    with sky.Compute(nodes=2, image=IMAGE, plugins=[sky.plugins.accelerate(restarts=1)]) as pool:
        yield Group("accelerate", pool)


@pytest.fixture(scope="module", params=["torch", "jax", "accelerate"])
def group(request: pytest.FixtureRequest) -> Group:
    """Each of them."""
    found: Group = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def processes() -> Iterator[Group]:
    """One node with two processes, whose members must meet soon."""
    plugin = sky.plugins.torch(procs_per_node=2, meeting_timeout=MEETING_TIMEOUT)
    with sky.Compute(nodes=1, image=IMAGE, plugins=[plugin]) as pool:
        yield Group("torch", pool)


def test_members_are_one_collective_and_a_single_call_waits_for_nobody(group: Group) -> None:
    group.assert_works()
    place, _ = places(group.framework) >> group.pool
    assert place == (0, 1)


def test_losses_and_output_of_members_that_divide_data(group: Group, capsys: pytest.CaptureFixture[str]) -> None:
    with losses(group.framework, [1, 2, 3, 4, 5], 2) @ group.pool as stream:
        elements = list(stream)
    assert sorted(elements) == [(0, 7.5), (0, 15.0), (1, 7.5), (1, 15.0)]
    assert [loss for rank, loss in elements if rank == 1] == [15.0, 7.5]
    printed = capsys.readouterr().out
    assert "loss of step 1: 7.5, from [1, 3, 5]\n" in printed
    assert "loss of step 1: 7.5, from [2, 4]\n" in printed


def test_error_of_a_member_is_the_only_one(group: Group, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="member 1 failed") as raised:
        rounds(group.framework, str(tmp_path), 1) @ group.pool
    failed, *others = raised.value.__notes__
    assert failed == "It failed in rank 1 of 2, on node 1."
    for note in others:
        assert re.fullmatch(r"The others were stopped; some failed, too: rank 0 on node 0: \w+\.", note)
    group.assert_works()


def test_collective_runs_again_after_a_killed_member(group: Group, tmp_path: Path) -> None:
    assert rounds(group.framework, str(tmp_path), 1, "kill") @ group.pool == [1.0, 1.0]
    assert Path(tmp_path, "failed").exists()


def test_interrupt_ends_members_that_wait_in_the_framework(group: Group, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), interrupt_when(Path(tmp_path, "failed").exists, "a member to block"):
        rounds(group.framework, str(tmp_path), 0, "block") @ group.pool
    group.assert_works()


def test_pools_have_collectives_at_the_same_time(torch: Group, accelerate: Group, processes: Group) -> None:
    groups = (torch, accelerate, processes)
    runs = [each.pool.start(places(each.framework), on="all") for _ in range(3) for each in groups]
    assert [[place for place, _ in run.future.result()] for run in runs] == [[(0, 2), (1, 2)]] * 9


def test_torch_trains_one_model_on_two_nodes(torch: Group) -> None:
    (before, after), (other_before, other_after) = torch.run(train)
    assert before != other_before, "each member begins with weights of its own"
    assert after == other_after
    assert after not in (before, other_before)


def test_processes_of_a_node_train_one_model(processes: Group) -> None:
    assert len({pid for _, pid in places("torch") @ processes.pool}) == 2
    (before, after), (other_before, other_after) = processes.run(train)
    assert before != other_before
    assert after == other_after


def test_processes_of_a_node_divide_data(processes: Group, capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(losses("torch", [1, 2, 3], 1) @ processes.pool) == [(0, 6.0), (1, 6.0)]
    printed = capsys.readouterr().out
    assert "from [1, 3]" in printed
    assert "from [2]" in printed


def test_member_that_does_not_come_is_named(processes: Group) -> None:
    (_, stopped), _ = places("torch") @ processes.pool
    os.kill(stopped, signal.SIGSTOP)
    text = rf"rank [01] \(node 0\) did not meet the others within {MEETING_TIMEOUT:g} s"
    with pytest.raises(sky.PluginError, match=text):
        places("torch") @ processes.pool
    processes.assert_works()


def test_keras_trains_one_model_on_two_nodes() -> None:
    with sky.Compute(nodes=2, image=IMAGE, plugins=[sky.plugins.keras(), sky.plugins.jax()]) as pool:
        first, second = sky.function(fit)() @ pool
    assert first == second
    assert len({*first[0]}) == 3, "each epoch has a loss of its own"


def test_accelerator_trains_one_model_on_two_nodes(accelerate: Group) -> None:
    assert accelerate.run(gather) == [("DistributedType.MULTI_CPU", 2, [0.0, 1.0])] * 2
    first, second = accelerate.run(train_model)
    assert first[0] == "DistributedDataParallel"
    assert first == second


def test_trainer_trains_one_model_on_two_nodes(accelerate: Group, tmp_path: Path) -> None:
    first, second = accelerate.run(train_with_trainer, str(tmp_path))
    assert first[:3] == (2, "DistributedDataParallel", 4)
    assert first == second


def test_loss_of_a_killed_member_is_an_error_without_restarts(processes: Group, tmp_path: Path) -> None:
    with pytest.raises(sky.NodeLostError, match="the process it ran in was killed") as raised:
        rounds("torch", str(tmp_path), 0, "kill") @ processes.pool
    assert "It failed in rank 0 of 2, on node 0." in raised.value.__notes__
