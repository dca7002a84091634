"""Room for what waits in a pool at its maximum number of nodes: idle nodes of other groups go."""

import pytest

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.messages import KeptAdded, Resize
from skyward.control.decide.prospects.first_nodes import FirstNodes
from skyward.control.decide.prospects.total import over_total
from skyward.control.decide.tasks import messages as tasks
from skyward.kept.keep import KeptInfo
from skyward.kept.registry import KeptEntry
from skyward.scaling.registry import POLICIES
from skyward.scaling.snapshot import GangDemand, Group
from skyward.values.gangs import GangPlacement
from skyward.values.needs import NOTHING, Needs
from tests.unit.control.decide.plane_world import World

pytestmark = pytest.mark.unit

GPU = Needs({"GPU": 1.0})
CPUS = Group("cpus", 0, 4, resources={"CPU": 4.0}, hourly_price=1.0)
GPUS = Group("gpus", 0, 4, resources={"GPU": 1.0}, hourly_price=8.0)


ELASTIC = [policy for policy in POLICIES if policy != "no"]


def submit(world: World, *needs: Needs, placement: GangPlacement = "pack") -> list[int]:
    """Submit a gang; return its tasks."""
    gang = world.plane.tasks.number()
    numbers = tuple(world.plane.tasks.number() for _ in needs)
    world.tell(tasks.SubmitGang(gang, numbers, GangDemand(needs, placement)))
    return list(numbers)


def run_until_sent(world: World, members: list[int], until: float = 600.0) -> None:
    """Advance the clock until the gang has started."""
    while world.now < until and not set(members) <= set(world.sent):
        world.wait(1.0)
        world.deliver()


def full_of_idle_nodes(policy: str, cpus: int = 4) -> World:
    """Return a pool at its maximum number of nodes, all of one group and idle."""
    world = World(CPUS, GPUS, policy=policy, max_nodes=cpus, idle_timeout=3600.0, cooldown=2.0).open()
    world.tell(Resize({"cpus": (cpus, cpus)}))
    world.deliver()
    world.tell(Resize({"cpus": (0, cpus)}))
    return world


@pytest.mark.parametrize("policy", ELASTIC)
def test_idle_nodes_make_room_for_a_gang(policy: str) -> None:
    """Regression: under vanilla and capability the gang waited until the nodes were removed for being idle."""
    world = full_of_idle_nodes(policy)
    members = submit(world, GPU, GPU, GPU)
    run_until_sent(world, members)
    assert set(members) <= set(world.sent)
    assert world.plane.desired["gpus"] == 3
    assert sum(world.plane.desired.values()) <= 4


def test_reason_of_room_for_a_gang_names_the_nodes() -> None:
    world = full_of_idle_nodes("vanilla")
    submit(world, GPU, GPU)
    assert world.reasons_given[-1].endswith(
        "2 tasks at once (a gang with placement 'pack'), each with 1 GPU, lack 2 nodes of group 'gpus', and idle node "
        "3 and idle node 2 make room"
    )


def test_node_that_a_gang_needs_makes_no_room_for_its_other_members() -> None:
    world = full_of_idle_nodes("vanilla")
    members = submit(world, Needs({"CPU": 4.0}), Needs({"CPU": 4.0}), GPU, GPU, placement="strict_spread")
    run_until_sent(world, members)
    assert dict(world.plane.desired) == {"cpus": 2, "gpus": 2}
    assert set(members) <= set(world.sent)


def test_node_0_makes_room_with_the_last_node_of_an_idle_pool() -> None:
    world = full_of_idle_nodes("vanilla", cpus=2)
    members = submit(world, GPU, GPU, placement="strict_spread")
    run_until_sent(world, members)
    assert dict(world.plane.desired) == {"cpus": 0, "gpus": 2}
    assert set(members) <= set(world.sent)


def test_no_node_goes_for_a_gang_that_would_lack_others_nonetheless() -> None:
    world = full_of_idle_nodes("vanilla")
    busy = world.submit(2, NOTHING)
    members = submit(world, GPU, GPU, GPU)
    world.wait(30.0)
    assert dict(world.plane.desired) == {"cpus": 4, "gpus": 0}
    world.finish(busy)
    run_until_sent(world, members)
    assert set(members) <= set(world.sent)


def test_idle_node_makes_room_for_tasks_that_no_node_can_hold() -> None:
    world = World(CPUS, GPUS, policy="vanilla", max_nodes=2).open()
    world.tell(Resize({"cpus": (2, 2)}))
    world.deliver()
    world.tell(Resize({"cpus": (0, 2)}))
    (task,) = world.submit(1, GPU)
    assert "tasks wait that need a node of group 'gpus', and idle node 1 makes room for it" in world.reasons_given[-1]
    world.deliver()
    assert task in world.sent


def test_decision_names_the_booting_node_that_goes_in_place_of_an_idle_one() -> None:
    """Regression: it named an idle node, and a node that was still booting went."""
    world = World(CPUS, GPUS, policy="vanilla", max_nodes=3).open()
    world.tell(Resize({"cpus": (2, 2)}))
    world.deliver()
    world.tell(Resize({"cpus": (3, 3)}))
    world.allocate()
    world.tell(Resize({"cpus": (0, 3)}))
    world.submit(1, GPU)
    assert not any(isinstance(effect, machines.Drain) for effect in world.said)
    assert world.reasons_given[-1].endswith("and a node of group 'cpus' that is still booting makes room for it")


@pytest.mark.parametrize("policy", ELASTIC)
def test_node_0_of_another_group_goes_with_an_idle_node_that_a_gang_could_use(policy: str) -> None:
    """Regression: the group of node 0 was to have no node, its policy wanted it again, and so on for ever."""
    world = World(CPUS, GPUS, policy=policy, max_nodes=2, idle_timeout=3600.0, cooldown=30.0).open()
    world.tell(Resize({"cpus": (1, 4)}))
    world.deliver()
    world.tell(Resize({"gpus": (1, 4)}))
    world.deliver()
    world.tell(Resize({"cpus": (0, 4), "gpus": (0, 4)}))
    members = submit(world, GPU, GPU, placement="strict_spread")
    run_until_sent(world, members)
    assert set(members) <= set(world.sent)
    assert dict(world.plane.desired) == {"cpus": 0, "gpus": 2}


@pytest.mark.parametrize("policy", ELASTIC)
def test_gang_that_fits_only_in_place_of_an_idle_node_it_could_use_gets_its_place(policy: str) -> None:
    """Regression: each idle node was counted on, and beside both of them there was no room for the large one."""
    pair, small = Group("pair", 0, 1, 2, hourly_price=8.0), Group("small", 0, 5, 1, hourly_price=3.0)
    large = Group("large", 0, 3, 4, hourly_price=5.0)
    world = World(small, pair, large, policy=policy, max_nodes=2, idle_timeout=3600.0, cooldown=30.0).open()
    for group in ("pair", "small"):
        world.tell(Resize({group: (1, 5 if group == "small" else 1)}))
        world.deliver()
    world.tell(Resize({"pair": (0, 1), "small": (0, 5)}))
    members = submit(world, *[NOTHING] * 4, placement="spread")
    run_until_sent(world, members)
    assert set(members) <= set(world.sent)


@pytest.mark.parametrize("policy", ELASTIC)
def test_node_0_that_goes_for_a_task_is_followed_at_once_by_a_node_that_can_hold_it(policy: str) -> None:
    """Regression: a policy that was asked in between could want the former node again."""
    world = full_of_idle_nodes(policy, cpus=1)
    (task,) = world.submit(1, GPU)
    assert dict(world.plane.desired) == {"cpus": 0, "gpus": 1}
    world.wait(60.0)
    assert dict(world.plane.desired) == {"cpus": 0, "gpus": 1}
    world.deliver()
    assert task in world.sent


def test_gang_ends_if_node_0_of_another_group_always_stays_in_its_place() -> None:
    """Regression: it waited for ever for a node that the pool can never have."""
    world = World(CPUS, GPUS, policy="capability", max_nodes=2, idle_timeout=3600.0).open()
    world.tell(Resize({"cpus": (1, 4)}))
    world.deliver()
    world.tell(Resize({"gpus": (1, 4)}))
    world.deliver()
    world.tell(Resize({"cpus": (0, 4)}))
    members = submit(world, GPU, GPU)
    assert {world.settled[task] for task in members} == {"infeasible"}
    assert world.reasons[members[0]].endswith("and node 0, of group 'cpus', stays as long as any other")


def test_kept_value_on_a_node_that_drains_takes_the_room_of_a_node_that_boots() -> None:
    """Regression: the pool then wanted more nodes than its maximum."""
    world = World(CPUS, GPUS, policy="vanilla", max_nodes=2, idle_timeout=3600.0).open()
    world.tell(Resize({"cpus": (1, 1)}))
    world.deliver()
    world.tell(Resize({"gpus": (1, 1)}))
    world.deliver()
    world.submit(1, target=1)
    world.tell(Resize({"cpus": (1, 2), "gpus": (0, 1)}, {"cpus": 2, "gpus": 0}))
    assert dict(world.plane.desired) == {"cpus": 2, "gpus": 0}
    world.tell(KeptAdded(KeptEntry(KeptInfo("weights", "model", "Net", 100, 600.0), 1, "pool", used_at=world.now)))
    assert dict(world.plane.desired) == {"cpus": 1, "gpus": 1}
    assert world.state_of(1) == "active"


def test_first_nodes_are_those_of_a_group_that_is_not_sold_out() -> None:
    """Regression: a set gave the order; the policy gave up a node that was sold out, it was wanted again, and so on."""
    world = World(CPUS, GPUS, policy="vanilla", max_nodes=1).open()
    cpu = Needs({"CPU": 1.0})
    world.submit(1, cpu)
    (number,) = world.asked
    del world.asked[number]
    world.tell(machines.Refused((number,), "no such machine is free", "capacity"))
    world.submit(1, GPU)
    plane = world.plane
    first = FirstNodes(plane.groups, plane.tasks, plane.reconciler, plane.prospects, 1)
    assert first.possible(world.now) == [GPU, cpu]


@pytest.mark.parametrize(
    ("bounds", "head", "reason"),
    [
        (
            {"a": (3, 3)},
            None,
            "the pool may have at most 3 nodes in total (max_nodes), and its other groups have at least 1 of them; ask "
            "for fewer nodes, or lower the minimum of another group first",
        ),
        (
            {"a": (3, 4), "b": (1, 1)},
            None,
            "the pool may have at most 3 nodes in total (max_nodes); ask for fewer nodes",
        ),
        (
            {"a": (3, 3), "b": (0, 1)},
            "b",
            "the pool may have at most 3 nodes in total (max_nodes), and node 0, of group 'b', stays as long as any "
            "other; ask for fewer nodes",
        ),
        ({"a": (2, 3)}, None, ""),
    ],
)
def test_resize_beyond_the_maximum_says_what_to_do(
    bounds: dict[str, tuple[int, int]], head: str | None, reason: str
) -> None:
    """Regression: the error said to drop kept values, of which there were none, or to ask for more nodes."""
    groups = {"a": Group("a", 1, 3), "b": Group("b", 1, 3)}
    assert over_total(groups, bounds, head, 3) == reason
