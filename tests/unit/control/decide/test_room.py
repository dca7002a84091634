"""Room for what waits in a pool at its maximum number of nodes: idle nodes of other groups go."""

import pytest

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.messages import Resize
from skyward.scaling.snapshot import Group
from skyward.values.needs import Needs
from tests.unit.control.decide.plane_world import World

pytestmark = pytest.mark.unit

GPU = Needs({"GPU": 1.0})
CPUS = Group("cpus", 0, 4, resources={"CPU": 4.0}, hourly_price=1.0)
GPUS = Group("gpus", 0, 4, resources={"GPU": 1.0}, hourly_price=8.0)


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
