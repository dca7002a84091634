"""Order of the events of a control plane: legal for each node, and exactly one end for each task."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skyward import events as ev
from skyward.control.act.event_publisher import EventPublisher
from skyward.control.act.tasks.future import TaskFuture
from skyward.control.act.tasks.task import BroadcastWork, Work
from skyward.control.decide import messages as plane
from skyward.control.decide.machines import messages as machines
from skyward.control.decide.tasks import messages as tasks
from skyward.control.observe.startup import StartupTracker
from skyward.events.bus import EventBus
from skyward.kept.keep import KeptInfo
from skyward.kept.registry import KeptEntry
from skyward.scaling.snapshot import Group
from skyward.wire.payloads.code import PreparedCode
from skyward.wire.payloads.payload import Outgoing
from skyward.wire.protocol.messages import Payload
from tests.unit.control.decide.plane_world import World

pytestmark = pytest.mark.unit

NODE: Mapping[type[ev.NodeEvent] | None, frozenset[type[ev.NodeEvent]]] = {
    None: frozenset({ev.NodeRequested, ev.NodeGivenUp}),
    ev.NodeRequested: frozenset({ev.NodeAllocated, ev.NodeFailed, ev.NodeRemoved}),
    ev.NodeAllocated: frozenset({ev.NodeReady, ev.NodeFailed, ev.NodeRemoved, ev.NodeReclaimed}),
    ev.NodeReady: frozenset({ev.NodeDraining, ev.NodeLost, ev.NodeRemoved, ev.NodeReclaimed}),
    ev.NodeReclaimed: frozenset({ev.NodeDraining, ev.NodeLost, ev.NodeRemoved, ev.NodeFailed, ev.NodeReady}),
    ev.NodeDraining: frozenset({ev.NodeDrainCancelled, ev.NodeLost, ev.NodeRemoved, ev.NodeReclaimed}),
    ev.NodeDrainCancelled: frozenset({ev.NodeDraining, ev.NodeLost, ev.NodeRemoved}),
    ev.NodeFailed: frozenset({ev.NodeGivenUp, ev.NodeTerminated}),
    ev.NodeGivenUp: frozenset({ev.NodeTerminated}),
    ev.NodeLost: frozenset({ev.NodeTerminated, ev.NodeValuesLost}),
    ev.NodeValuesLost: frozenset({ev.NodeTerminated}),
    # A pending request cannot be cancelled: the machine may be allocated, and may be needed again.
    ev.NodeRemoved: frozenset(
        {ev.NodeTerminated, ev.NodeValuesLost, ev.NodeAllocated, ev.NodeReady, ev.NodeRemoved, ev.NodeFailed}
    ),
    ev.NodeTerminated: frozenset(),
}
"""Legal successors of each event of one machine."""

ENDS = (ev.TaskCompleted, ev.TaskFailed, ev.TaskTimedOut, ev.TaskCancelled)
TASK: Mapping[type[ev.TaskEvent] | None, frozenset[type[ev.TaskEvent]]] = {
    None: frozenset({ev.TaskQueued}),
    ev.TaskQueued: frozenset({ev.TaskAssigned, ev.TaskFailed, ev.TaskCancelled}),
    ev.TaskAssigned: frozenset({ev.TaskAssigned, ev.TaskRetried, *ENDS}),
    ev.TaskRetried: frozenset({ev.TaskAssigned, ev.TaskFailed, ev.TaskCancelled}),
    **dict.fromkeys(ENDS, frozenset()),
}
"""Legal successors of each event of one task."""


def nothing(_: object) -> None:
    """Ignore the end of a broadcast."""


class NoRecord:
    """An empty record of earlier starts."""

    def took(self, provider: str, image: str) -> Mapping[str, list[float]]:
        return {}

    def add_phase_seconds(self, provider: str, image: str, seconds: Mapping[str, float], keep: int) -> None:
        pass


class Silent:
    """A sink for the output of tasks that print nothing."""

    def output(self, node: int, stream: object, text: str) -> None:
        pass

    def display(self, *arguments: object) -> None:
        pass

    def task_ended(self, node: int) -> None:
        pass


class Observed(World):
    """A world whose control plane is observed like that of a pool."""

    def __init__(self, *groups: Group, **settings: Any) -> None:
        super().__init__(*groups, **settings)
        self.bus = EventBus("world")
        self.works: dict[int, Work] = {}
        self.broadcasts: dict[int, BroadcastWork] = {}
        startups = StartupTracker(NoRecord())
        self.observer = EventPublisher(self.bus, self.plane, self.works, self.broadcasts, startups, lambda: 0.0)
        self.buffer = self.bus.subscribe(ev.BaseEvent)

    def tell(self, message: plane.PlaneMessage) -> list[plane.PlaneEffect]:
        if isinstance(message, tasks.Submitted):
            self.works.update((number, self.work(number)) for number in message.tasks)
        if isinstance(message, tasks.Broadcast):
            self.broadcasts[message.broadcast] = BroadcastWork(
                lambda _: self.work(0), TaskFuture(), nothing, {}, name="all"
            )
        effects = super().tell(message)
        self.observer.publish_step(message, effects, self.now)
        for effect in effects:
            self.observer.publish_effect(effect)
            match effect:
                case tasks.Member(_, task):
                    self.works[task] = self.work(task)
                case tasks.Dispatch(task, rank):
                    self.works[task].nodes.append(rank)
                case tasks.Settle(task):
                    del self.works[task]
                case tasks.BroadcastEnded(number):
                    del self.broadcasts[number]
                case _:
                    pass
        self.observer.publish_costs()
        return effects

    def work(self, number: int) -> Work:
        nothing = Outgoing(Payload(b""), {})
        return Work(PreparedCode(b"", nothing, f"f{number}"), nothing, TaskFuture(), Silent(), task=number)

    def close(self) -> list[ev.BaseEvent]:
        """Close the pool; return every event."""
        self.observer.publish_stopping("the pool is closed")
        self.plane.ledger.close(self.now)
        self.observer.publish_closed(self.now)
        self.bus.end()
        found = []
        while (event := self.buffer.take(1)) is not None:
            found.append(event)
        return found


def check(found: list[ev.BaseEvent]) -> None:
    assert [event.number for event in found] == list(range(1, len(found) + 1))
    nodes: dict[int, type[ev.NodeEvent] | None] = defaultdict(lambda: None)
    removed: set[int] = set()
    works: dict[int, type[ev.TaskEvent] | None] = defaultdict(lambda: None)
    for event in found:
        match event:
            case ev.NodeEvent(machine=machine):
                came_in_vain = machine in removed and isinstance(event, ev.NodeTerminated)
                assert came_in_vain or type(event) in NODE[nodes[machine]], f"{event} after {nodes[machine]}"
                nodes[machine] = type(event)
                if isinstance(event, ev.NodeRemoved):
                    removed.add(machine)
            case ev.TaskEvent(task=task):
                assert type(event) in TASK[works[task]], f"{event} after {works[task]}"
                works[task] = type(event)
            case _:
                pass
    assert all(last is ev.NodeTerminated for last in nodes.values()), nodes
    assert all(last in ENDS for last in works.values()), works


RANK = st.integers(0, 5)
ACTIONS = st.one_of(
    st.tuples(st.just("submit"), st.integers(1, 6)),
    st.tuples(st.just("broadcast"), st.just(0)),
    st.tuples(st.sampled_from(["finish", "fail", "kill slot", "cancel"]), st.integers(0, 5)),
    st.tuples(st.sampled_from(["allocate", "deliver", "refuse", "install fails", "bury"]), st.just(0)),
    st.tuples(st.sampled_from(["lose", "drain", "keep", "keep for no time"]), RANK),
    st.tuples(st.just("resize"), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.integers(1, 400)),
    st.tuples(st.just("fund"), st.sampled_from([0, 1, 1000])),
)


def act(world: Observed, what: str, number: int) -> None:
    running = [task for task in world.sent if task not in world.settled]
    match what:
        case "submit":
            world.submit(number)
        case "broadcast":
            world.tell(tasks.Broadcast(world.plane.tasks.number()))
        case "cancel":
            world.tell(tasks.CancelTasks(tuple(world.works)[number : number + 1]))
        case "finish" | "fail" | "kill slot" if len(running) > number:
            outcome = {"finish": "value", "fail": "error"}.get(what, "lost")
            world.tell(tasks.Ended(running[number], world.sent[running[number]], outcome, 1.0))  # type: ignore[arg-type]  # one of the literals
        case "allocate":
            world.allocate()
        case "deliver":
            world.deliver()
        case "bury":
            world.bury()
        case "refuse" if world.asked:
            asked = tuple(world.asked)
            world.asked.clear()
            world.tell(machines.Refused(asked, "none left"))
        case "install fails" if world.installing:
            machine = next(iter(world.installing))
            del world.installing[machine]
            world.tell(machines.Failed(machine, "bootstrap phase 'deps' failed:\nE: no such package"))
        case "lose" if number in world.plane.reconciler.table.assignments:
            world.tell(machines.Lost(world.machine_of(number), "its process was killed"))
        case "drain":
            world.tell(plane.DrainNode(number))
        case "keep" | "keep for no time" if world.plane.tasks.node(number) is not None:
            keep_for = 200.0 if what == "keep" else 0.0
            key = f"{len(world.said)}"
            world.tell(
                plane.KeptAdded(KeptEntry(KeptInfo(key, "model", "Net", 1, keep_for), number, "p", 0, world.now))
            )
            world.tell(tasks.Submitted((world.plane.tasks.number(),), number, kept=(key,)))
        case "resize":
            world.tell(plane.Resize({"a": (min(number, 1), number)}))
        case "fund":
            world.tell(plane.SetBudget(float(number)))
        case "wait":
            world.wait(number)
        case _:
            pass


@settings(max_examples=200)
@given(st.lists(ACTIONS, max_size=40))
def test_nodes_and_tasks_have_events_in_a_legal_order_and_each_task_ends_once(actions: list[tuple[str, int]]) -> None:
    world = Observed(Group("a", 1, 4, 2, hourly_price=1.0), retries=1)
    world.tell(plane.Open())
    for what, number in actions:
        act(world, what, number)
    check(world.close())


def kinds(found: list[ev.BaseEvent]) -> list[str]:
    return [type(event).__name__ for event in found]


def test_node_is_lost_before_its_task_is_requeued() -> None:
    world = Observed(Group("a", 1, 1, 1)).open()
    assert isinstance(world, Observed)
    world.submit()
    world.tell(machines.Lost(world.machine_of(0), "killed"))
    world.deliver()
    world.finish()
    found = world.close()
    check(found)
    names = [name for name in kinds(found) if name.startswith(("NodeLost", "NodeReady", "Task"))]
    assert names == [
        *("NodeReady", "TaskQueued", "TaskAssigned"),
        *("NodeLost", "TaskRetried", "NodeReady", "TaskAssigned", "TaskCompleted"),
    ]


def test_failed_start_reports_the_phase_and_the_last_lines() -> None:
    world = Observed(Group("a", 1, 1, 1))
    world.tell(plane.Open())
    world.allocate()
    act(world, "install fails", 0)
    found = world.close()
    check(found)
    (failed,) = (event for event in found if isinstance(event, ev.NodeFailed))
    assert (failed.reason, failed.log, failed.replaced) == (
        "bootstrap phase 'deps' failed",
        ("E: no such package",),
        True,
    )


def test_cost_changes_are_reported_and_the_reached_budget_once() -> None:
    world = Observed(Group("a", 1, 1, 1, hourly_price=36.0), budget=2.0)
    world.tell(plane.Open())
    world.deliver()
    world.wait(1000)
    world.deliver()
    found = world.close()
    check(found)
    assert [event.per_hour for event in found if isinstance(event, ev.CostChanged)] == [36.0, 0.0]
    (reached,) = (event for event in found if isinstance(event, ev.BudgetReached))
    assert reached.budget == 2.0
    assert 1.0 < reached.spent <= 2.0


def test_repeated_decision_has_no_event() -> None:
    world = Observed(Group("a", 1, 4, 1)).open()
    assert isinstance(world, Observed)
    world.submit(3)
    world.wait(30)
    found = [event.decision for event in world.close() if isinstance(event, ev.ScalingDecided)]
    kept = list(world.plane.decisions)
    assert [decision.number for decision in found] == [decision.number for decision in kept]
    assert [decision.reason for decision in found if not decision.held_back] == [
        decision.reason for decision in kept if not decision.held_back
    ]
