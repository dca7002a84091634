"""Placement: the nodes that `on=` selects."""

from typing import Any

import pytest

from skyward.control.decide.machines.table import MachineTable
from skyward.control.decide.tasks.manager import TaskManager
from skyward.control.decide.tasks.messages import Broadcast, Member, RankJoined, RankRemoved, Settle
from skyward.control.decide.tasks.placement import chosen_ranks
from skyward.errors import UsageError
from skyward.specs.placement import Several, target_of
from skyward.values.needs import NOTHING, Needs

GROUPS = ("cpu", "gpu")


@pytest.mark.parametrize(
    ("on", "target"),
    [
        ("one", None),
        ("head", 0),
        (3, 3),
        ("all", Several()),
        ([2, 0, 2], Several((0, 2))),
        (range(1, 4), Several((1, 2, 3))),
        ([1], Several((1,))),
        ("gpu", Several(group="gpu")),
    ],
)
def test_valid_placements_are_parsed(on: Any, target: object) -> None:
    assert target_of(on, "p", GROUPS) == target


@pytest.mark.parametrize("on", [None, 1.5, True, [], [True], ["0"], range(0), {}])
def test_invalid_placements_are_refused(on: Any) -> None:
    takes = r"on must be 'one', 'all', 'head', a rank, a list or range of ranks, or the name of a group, but got"
    with pytest.raises(UsageError, match=takes):
        target_of(on, "p", GROUPS)


def test_unknown_group_is_refused_with_suggestions() -> None:
    with pytest.raises(UsageError, match=r"^Pool 'p' has no group 'gpus'; did you mean 'gpu'\?$"):
        target_of("gpus", "p", GROUPS)
    with pytest.raises(UsageError, match=r"^Pool 'p' has no group 'somewhere'; it has cpu, gpu\.$"):
        target_of("somewhere", "p", GROUPS)


class World:
    """A pool with a CPU node of rank 0 and GPU nodes of ranks 1 and 2, of which `up` have joined."""

    def __init__(self, *up: int) -> None:
        self.table = MachineTable()
        self.tasks = TaskManager()
        for rank, group in enumerate(("cpu", "gpu", "gpu")):
            self.table.add(group, rank, 0.0, 0.0)
            if rank in up:
                resources = {"GPU": 1.0} if group == "gpu" else {}
                self.tasks.handle(RankJoined(rank, 1, group, resources), 0.0)

    def choose(self, where: Several, needs: Needs = NOTHING) -> tuple[int, ...] | None:
        return chosen_ranks("p", where, needs, 1, self.table, self.tasks)

    def send(self, ranks: tuple[int, ...] | None) -> list[int]:
        effects = self.tasks.handle(Broadcast(self.tasks.number(), ranks=ranks), 0.0)
        return [effect.rank for effect in effects if isinstance(effect, Member)]


def test_group_means_its_active_nodes_or_else_its_booting_nodes() -> None:
    assert World(0, 1, 2).choose(Several(group="gpu")) == (1, 2)
    assert World(0, 2).choose(Several(group="gpu")) == (2,)
    assert World(0).choose(Several(group="gpu")) == (1, 2)


def test_group_without_nodes_is_refused_with_the_fix() -> None:
    with pytest.raises(UsageError, match=r"^Group 'none' .* has no node now: .*`pool.resize\(1, group='none'\)`\.$"):
        World().choose(Several(group="none"))


def test_unknown_ranks_are_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"^Pool 'p' has no node 3 or 7; its nodes are 0, 1, 2\.$"):
        World(0, 1, 2).choose(Several((0, 3, 7)))


def test_infeasible_node_is_refused_by_rank_and_skipped_in_a_group() -> None:
    gpu = Needs({"GPU": 1.0})
    with pytest.raises(UsageError, match=r"which node 0 of pool 'p' can never have\.$"):
        World(0, 1).choose(Several((0, 1)), gpu)
    with pytest.raises(UsageError, match=r"which no node of group 'cpu' can ever have\.$"):
        World(0, 1).choose(Several(group="cpu"), gpu)


def test_nodes_that_join_later_do_not_take_part() -> None:
    world = World(0, 1)
    assert world.send((1,)) == [1]
    effects = world.tasks.handle(RankJoined(2, 1, "gpu"), 0.0)
    assert not [effect for effect in effects if isinstance(effect, Member)]


def test_booting_node_is_awaited_and_may_fail() -> None:
    world = World(0)
    assert world.send((0, 2)) == [0, 2]
    effects = world.tasks.handle(RankRemoved(2, "it was given up"), 0.0)
    assert [(effect.outcome, effect.reason) for effect in effects if isinstance(effect, Settle)] == [
        ("lost", "it was given up")
    ]
