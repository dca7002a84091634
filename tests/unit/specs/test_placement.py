"""Which nodes `on=` stands for."""

from typing import Any

import pytest

from skyward.control.decide.machines.table import MachineTable
from skyward.control.decide.tasks.broadcast import chosen_ranks
from skyward.control.decide.tasks.manager import TaskManager
from skyward.control.decide.tasks.messages import Broadcast, Member, NodeJoined, NodeRemoved, Settle
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
def test_where_a_task_is_to_run(on: Any, target: object) -> None:
    assert target_of(on, "p", GROUPS) == target


@pytest.mark.parametrize("on", [None, 1.5, True, [], [True], ["0"], range(0), {}])
def test_what_is_no_place_is_refused(on: Any) -> None:
    takes = r"on must be 'one', 'all', 'head', a rank, a list or range of ranks, or the name of a group, but got"
    with pytest.raises(UsageError, match=takes):
        target_of(on, "p", GROUPS)


def test_an_unknown_group_is_refused_with_the_close_one_or_all() -> None:
    with pytest.raises(UsageError, match=r"^Pool 'p' has no group 'gpus'; did you mean 'gpu'\?$"):
        target_of("gpus", "p", GROUPS)
    with pytest.raises(UsageError, match=r"^Pool 'p' has no group 'somewhere'; it has cpu, gpu\.$"):
        target_of("somewhere", "p", GROUPS)


class World:
    """A pool with a CPU node of rank 0 and GPU nodes of ranks 1 and 2, of which `up` have joined."""

    def __init__(self, *up: int) -> None:
        self.book = MachineTable()
        self.tasks = TaskManager()
        for rank, group in enumerate(("cpu", "gpu", "gpu")):
            self.book.add(group, rank, 0.0, 0.0)
            if rank in up:
                resources = {"GPU": 1.0} if group == "gpu" else {}
                self.tasks.handle(NodeJoined(rank, 1, group, resources), 0.0)

    def choose(self, where: Several, needs: Needs = NOTHING) -> tuple[int, ...] | None:
        return chosen_ranks("p", where, needs, self.book, self.tasks)

    def send(self, ranks: tuple[int, ...] | None) -> list[int]:
        effects = self.tasks.handle(Broadcast(self.tasks.number(), ranks=ranks), 0.0)
        return [effect.rank for effect in effects if isinstance(effect, Member)]


def test_the_nodes_of_a_group_are_those_that_take_tasks_or_else_those_on_their_way() -> None:
    assert World(0, 1, 2).choose(Several(group="gpu")) == (1, 2)
    assert World(0, 2).choose(Several(group="gpu")) == (2,)
    assert World(0).choose(Several(group="gpu")) == (1, 2)


def test_a_group_without_nodes_is_refused_with_what_starts_one() -> None:
    with pytest.raises(UsageError, match=r"^Group 'none' .* has no node now: .*`pool.resize\(1, group='none'\)`\.$"):
        World().choose(Several(group="none"))


def test_ranks_that_are_not_there_are_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match=r"^Pool 'p' has no node 3 or 7; its nodes are 0, 1, 2\.$"):
        World(0, 1, 2).choose(Several((0, 3, 7)))


def test_a_node_that_can_never_run_it_is_refused_by_name_and_left_out_of_a_group() -> None:
    gpu = Needs({"GPU": 1.0})
    with pytest.raises(UsageError, match=r"which node 0 of pool 'p' can never have\.$"):
        World(0, 1).choose(Several((0, 1)), gpu)
    with pytest.raises(UsageError, match=r"which no node of group 'cpu' can ever have\.$"):
        World(0, 1).choose(Several(group="cpu"), gpu)


def test_only_the_chosen_nodes_take_part_also_when_others_join() -> None:
    world = World(0, 1)
    assert world.send((1,)) == [1]
    effects = world.tasks.handle(NodeJoined(2, 1, "gpu"), 0.0)
    assert not [effect for effect in effects if isinstance(effect, Member)]


def test_a_chosen_node_that_is_still_booting_is_waited_for_and_may_never_come() -> None:
    world = World(0)
    assert world.send((0, 2)) == [0, 2]
    effects = world.tasks.handle(NodeRemoved(2, "it was given up"), 0.0)
    assert [(effect.outcome, effect.reason) for effect in effects if isinstance(effect, Settle)] == [
        ("lost", "it was given up")
    ]
