"""Which nodes to launch and which to let go: the planner of Ray's autoscaler v2, decided without I/O.

One round goes in the order of Ray: nodes of an outdated configuration go, minimums are added, maximums are enforced,
then the floor, the gangs and the demands are placed, and nodes that idle and hold none of them go. Beside Ray's
answers it keeps apart what Ray 2.48 mixes up: every node that a minimum adds is a node of its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

from skyward.scaling.packing import Candidate, Room, Rooms, Shape, fill, shapes_of
from skyward.values.needs import Resources

__all__ = ["Cause", "Existing", "Gang", "NodeType", "Plan", "PlanRequest", "plan"]

type Cause = Literal["OUTDATED", "MAX_NUM_NODE_PER_TYPE", "MAX_NUM_NODES", "IDLE"]
"""Why a node goes, in the words of Ray."""

type Placement = Literal["none", "same_node", "different_nodes"]


@dataclass(frozen=True, slots=True)
class NodeType:
    """What can be launched.

    Attributes:
        resources: what a node of it owns.
        min, max: how many there may be, the head among them.
        idle_timeout: seconds, in place of the plan's own.
        launch_hash: of its configuration; nodes that were launched from another one are outdated.
    """

    resources: Resources
    min: int = 0
    max: int = 1
    idle_timeout: float | None = None
    launch_hash: str = ""


@dataclass(frozen=True, slots=True)
class Existing:
    """A node that runs or that still can come to; others are no part of a plan.

    Attributes:
        running: it has a worker, and so a load; else it is a whole free node of its type.
        head: it never goes.
        total, free: what it owns and has left; None for its type's resources.
        idle: seconds without work; of a node that does not run yet, seconds that nothing has needed it.
        launch_hash: of the configuration that it was launched from.
    """

    id: str
    type: str
    running: bool = True
    head: bool = False
    total: Resources | None = None
    free: Resources | None = None
    idle: float = 0.0
    launch_hash: str = ""


@dataclass(frozen=True, slots=True)
class Gang:
    """Requests that are placed all or none: anywhere, on one node together, or each on a node of its own."""

    bundles: tuple[Resources, ...]
    placement: Placement = "none"


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A cluster at one moment.

    Attributes:
        types: by name; ties go to the first.
        demands, floor: requests, each with how many of it. The floor is all or nothing, held against what nodes own
            and not against what they have left, and takes nothing from the demands.
        max_nodes: most nodes over all types, the head among them; None for no limit.
        idle_timeout: seconds after which an idle node goes; None for never.
        check_launch_hash: whether outdated nodes go.
    """

    types: Mapping[str, NodeType]
    existing: Sequence[Existing] = ()
    demands: Sequence[tuple[Resources, int]] = ()
    gangs: Sequence[Gang] = ()
    floor: Sequence[tuple[Resources, int]] = ()
    max_nodes: int | None = None
    idle_timeout: float | None = None
    check_launch_hash: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do.

    Attributes:
        launch: nodes by type.
        terminate: ids of nodes that go, and why.
        infeasible: requests that found no place, each with how many of it.
        infeasible_gangs: those that found no place as a whole.
        floor_infeasible: the floor found no place as a whole.
        needed: ids of the nodes on which something was placed.
        floor_nodes: nodes that hold part of the floor, by type.
    """

    launch: Mapping[str, int]
    terminate: tuple[tuple[str, Cause], ...] = ()
    infeasible: tuple[tuple[Resources, int], ...] = ()
    infeasible_gangs: tuple[Gang, ...] = ()
    floor_infeasible: bool = False
    needed: frozenset[str] = frozenset()
    floor_nodes: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Node:
    """A node while the plan is made: one that exists, or one to launch.

    Attributes:
        given: what it is, None where it is still to launch.
        room: for demands.
        floor_room: for the floor.
        cause: why it goes, None where it stays.
    """

    type: str
    given: Existing | None
    room: Room
    floor_room: Room
    held: bool = False
    floored: bool = False
    cause: Cause | None = None

    @property
    def head(self) -> bool:
        return self.given is not None and self.given.head


def plan(request: PlanRequest) -> Plan:
    """What to launch and to terminate for `request`. Time grows about linearly with nodes and with unequal shapes."""
    return _Round(request).run()


class _Round:
    """One making of a plan. The order of `_nodes` is Ray's, because ties go to the first."""

    def __init__(self, request: PlanRequest) -> None:
        self._request = request
        self._types = request.types
        self._rooms = Rooms()
        self._empty = {name: self._rooms.get(each.resources, each.resources) for name, each in request.types.items()}
        self._nodes: list[_Node] = []

    def run(self) -> Plan:
        """The plan."""
        self._take_existing()
        self._add_minimums()
        self._keep_maximum_per_type()
        self._keep_maximum()
        floor_infeasible = not self._place_whole(shapes_of(self._request.floor), floor=True)
        gangs = sorted(self._request.gangs, key=_hardest_first, reverse=True)
        infeasible_gangs = tuple(gang for gang in gangs if not self._place_gang(gang))
        infeasible = self._place(shapes_of(self._request.demands), floor=False)
        self._let_idle_go()
        launch = _count(node.type for node in self._nodes if node.given is None)
        return Plan(
            {name: launch[name] for name in self._types if name in launch},
            tuple((node.given.id, node.cause) for node in self._nodes if node.given and node.cause),
            tuple(infeasible),
            infeasible_gangs,
            floor_infeasible,
            frozenset(node.given.id for node in self._nodes if node.given and (node.held or node.floored)),
            _count(node.type for node in self._nodes if node.floored),
        )

    def _take_existing(self) -> None:
        """The nodes that exist; the outdated ones go, but never the head."""
        for each in self._request.existing:
            known = self._types.get(each.type)
            if known is None and not each.running and not self._request.check_launch_hash:
                continue  # nobody knows what it will own
            node = self._node(each, known)
            outdated = known is None or (known.launch_hash and known.launch_hash != each.launch_hash)
            if outdated and self._request.check_launch_hash and not each.head:
                node.cause = "OUTDATED"
            self._nodes.append(node)

    def _node(self, given: Existing, known: NodeType | None) -> _Node:
        own: Resources = known.resources if known else {}
        total = given.total if given.running and given.total is not None else own
        free = given.free if given.running and given.free is not None else total
        whole = self._rooms.get(total, total)
        return _Node(given.type, given, whole if free is total else self._rooms.get(total, free), whole)

    def _add_minimums(self) -> None:
        there = _count(node.type for node in self._nodes if node.cause is None)
        added = [
            self._launched(name) for name, each in self._types.items() for _ in range(each.min - there.get(name, 0))
        ]
        self._nodes[:0] = added

    def _launched(self, name: str) -> _Node:
        return _Node(name, None, self._empty[name], self._empty[name])

    def _keep_maximum_per_type(self) -> None:
        by_type: dict[str, list[_Node]] = {}
        going = [node for node in self._nodes if node.cause is not None]
        for node in self._nodes:
            if node.cause is None:
                by_type.setdefault(node.type, []).append(node)
        staying: list[_Node] = []
        for name, nodes in by_type.items():
            known = self._types.get(name)
            if known is not None and len(nodes) > known.max:
                victims, nodes = _victims(nodes, len(nodes) - known.max, "MAX_NUM_NODE_PER_TYPE")
                going += victims
            staying += nodes
        self._keep(going + staying)

    def _keep_maximum(self) -> None:
        staying = [node for node in self._nodes if node.cause is None]
        if not self._request.max_nodes or len(staying) <= self._request.max_nodes:
            return
        going = [node for node in self._nodes if node.cause is not None]
        victims, staying = _victims(staying, len(staying) - self._request.max_nodes, "MAX_NUM_NODES")
        self._keep(going + victims + staying)

    def _keep(self, nodes: Sequence[_Node]) -> None:
        """All but those that were to be launched and now are not."""
        self._nodes = [node for node in nodes if node.given is not None or node.cause is None]

    def _place_gang(self, gang: Gang) -> bool:
        if gang.placement == "same_node":
            together: dict[str, float] = {}
            for bundle in gang.bundles:
                for name, amount in bundle.items():
                    together[name] = together.get(name, 0.0) + amount
            return self._place_whole([Shape(together, 1)] if gang.bundles else [])
        shapes = shapes_of((bundle, 1) for bundle in gang.bundles)
        return self._place_whole(shapes, spread=gang.placement == "different_nodes")

    def _place_whole(self, shapes: Sequence[Shape], *, floor: bool = False, spread: bool = False) -> bool:
        return not shapes or not self._place(shapes, floor=floor, spread=spread, whole=True)

    def _place(
        self, shapes: Sequence[Shape], *, floor: bool, spread: bool = False, whole: bool = False
    ) -> Sequence[Shape]:
        """Place the shapes on the nodes, then on new ones; what is left. If anything is, `whole` places nothing.

        A node that has to go takes its share too: its place is not free before it is gone, and what would have run
        there is a demand of the next round.
        """
        if not shapes:
            return ()
        alike: dict[Room, list[int]] = {}
        for at, node in enumerate(self._nodes):
            alike.setdefault(node.floor_room if floor else node.room, []).append(at)
        here = [Candidate(room, iter(places), len(places)) for room, places in alike.items()]
        used, left = fill(self._rooms, here, shapes, spread=spread)
        new: list[_Node] = []
        if left:
            there = _count(node.type for node in self._nodes)
            line = count()
            names = {
                Candidate(self._empty[name], line, each.max - there.get(name, 0)): name
                for name, each in self._types.items()
                if each.max > there.get(name, 0)
            }
            most = None if self._request.max_nodes is None else max(0, self._request.max_nodes - len(self._nodes))
            bought, left = fill(self._rooms, list(names), left, most=most, spread=spread)
            if left and whole:
                return left
            for each in bought:
                node = self._launched(names[each.candidate])
                _put(node, each.room, floor)
                new.append(node)
        for each in used:
            _put(self._nodes[each.at], each.room, floor)
        first = {each.at for each in used}
        self._nodes = [
            *(self._nodes[each.at] for each in used),
            *(node for at, node in enumerate(self._nodes) if at not in first),
            *new,
        ]
        return left

    def _let_idle_go(self) -> None:
        there = _count(node.type for node in self._nodes if node.cause is None)
        for node in self._nodes:
            if node.given is None or node.cause is not None or node.head or node.held or node.floored:
                continue
            known = self._types.get(node.type)
            timeout = self._request.idle_timeout
            if known is not None and known.idle_timeout is not None:
                timeout = known.idle_timeout
            if timeout is None or node.given.idle <= timeout:
                continue
            if there[node.type] > (known.min if known else 0):
                there[node.type] -= 1
                node.cause = "IDLE"


def _put(node: _Node, room: Room, floor: bool) -> None:
    if floor:
        node.floor_room, node.floored = room, True
    else:
        node.room, node.held = room, True


def _victims(nodes: list[_Node], number: int, cause: Cause) -> tuple[list[_Node], list[_Node]]:
    """Those of `nodes` that go, and the rest: first what does not run yet, then the longest idle, then the emptiest."""
    ordered = sorted(nodes, key=_cheapest_loss)
    heads = [node for node in ordered if node.head]
    others = [node for node in ordered if not node.head]
    for node in others[:number]:
        node.cause = cause
    return others[:number], others[number:] + heads


def _cheapest_loss(node: _Node) -> tuple[bool, float, float]:
    owned = [(amount, node.room.free.get(name, 0.0)) for name, amount in node.room.total.items() if amount > 0]
    mean = sum((amount - free) / amount for amount, free in owned) / len(owned) if owned else 0.0
    return node.given is not None and node.given.running, -node.given.idle if node.given else 0.0, mean


def _hardest_first(gang: Gang) -> tuple[int, int]:
    return 0 if gang.placement == "none" else len(gang.bundles), len(gang.bundles)


def _count(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts
