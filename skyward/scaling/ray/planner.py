"""The planner of Ray's autoscaler v2, without I/O: nodes to launch and nodes to terminate.

One round follows the order of Ray: outdated nodes are removed, minimums added, maximums enforced; then the floor, the
gangs and the demands are placed, and idle nodes without placements are removed. One difference to Ray 2.48, which
shares one object between the nodes that a minimum adds: here each of them is a separate node.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

from skyward.scaling.ray.packing import EqualNodes, EqualRequests, Room, Rooms, fill, shapes_of
from skyward.values.needs import Resources

__all__ = ["Existing", "Gang", "GangConstraint", "NodeType", "PlanRequest", "ScalingPlan", "TerminationCause", "plan"]

type TerminationCause = Literal["OUTDATED", "MAX_NUM_NODE_PER_TYPE", "MAX_NUM_NODES", "IDLE"]
"""Cause of a termination, in Ray's terms."""

type GangConstraint = Literal["none", "same_node", "different_nodes"]


@dataclass(frozen=True, slots=True)
class NodeType:
    """Type of node that can be launched.

    Attributes:
        resources: total resources of a node.
        min, max: bounds of the number of nodes, including the head.
        idle_timeout: seconds, instead of the timeout of the plan.
        hourly_price: USD per hour of a node; of equally good types, the cheapest is launched.
        launch_hash: digest of its configuration; nodes launched from another configuration are outdated.
    """

    resources: Resources
    min: int = 0
    max: int = 1
    idle_timeout: float | None = None
    launch_hash: str = ""
    hourly_price: float = 0.0


@dataclass(frozen=True, slots=True)
class Existing:
    """Node that runs or is being launched.

    Attributes:
        running: True if it has a worker, and so a load; otherwise it counts as an empty node of its type.
        head: True for the head, which is never removed.
        total, free: its total and free resources; None for those of its type.
        idle: seconds without work; for a node that does not run yet, seconds for which nothing has needed it.
        launch_hash: digest of the configuration that it was launched from.
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
    """Requests that are placed all or none: anywhere, all on one node, or each on a different node."""

    bundles: tuple[Resources, ...]
    placement: GangConstraint = "none"


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """State of a cluster at one moment.

    Attributes:
        types: node types by name; ties go to the cheapest, then to the first.
        demands, floor: requests, each with its count. The floor is all or nothing, compared with the total resources of
            nodes instead of the free ones, and takes nothing from the demands.
        max_nodes: maximum number of nodes over all types, including the head; None for no limit.
        idle_timeout: seconds after which an idle node is removed; None for never.
        check_launch_hash: True to remove outdated nodes.
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
class ScalingPlan:
    """Changes to make.

    Attributes:
        launch: number of nodes to launch, by type.
        terminate: ids of nodes to remove, with causes.
        infeasible: requests that cannot be placed, each with its count.
        infeasible_gangs: gangs that cannot be placed.
        floor_infeasible: True if the floor cannot be placed.
        needed: ids of the nodes with placements.
        floor_nodes: number of nodes with parts of the floor, by type.
    """

    launch: Mapping[str, int]
    terminate: tuple[tuple[str, TerminationCause], ...] = ()
    infeasible: tuple[tuple[Resources, int], ...] = ()
    infeasible_gangs: tuple[Gang, ...] = ()
    floor_infeasible: bool = False
    needed: frozenset[str] = frozenset()
    floor_nodes: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Node:
    """Node during planning: an existing one, or one to launch.

    Attributes:
        given: the existing node; None for one to launch.
        room: room for demands.
        floor_room: room for the floor.
        cause: cause of its termination; None if it stays.
    """

    type: str
    given: Existing | None
    room: Room
    floor_room: Room
    held: bool = False
    floored: bool = False
    cause: TerminationCause | None = None

    @property
    def head(self) -> bool:
        return self.given is not None and self.given.head


def plan(request: PlanRequest) -> ScalingPlan:
    """Return the plan for `request`. Time is about linear in the number of nodes and of distinct shapes."""
    return _Round(request).run()


class _Round:
    """One planning round. `_nodes` keeps the order of Ray, because ties go to the first."""

    def __init__(self, request: PlanRequest) -> None:
        self._request = request
        self._types = request.types
        self._rooms = Rooms()
        self._empty = {name: self._rooms.get(each.resources, each.resources) for name, each in request.types.items()}
        self._nodes: list[_Node] = []

    def run(self) -> ScalingPlan:
        """Return the plan."""
        self._take_existing()
        self._add_minimums()
        self._keep_maximum_per_type()
        self._keep_maximum()
        floor_infeasible = not self._place_whole(shapes_of(self._request.floor), floor=True)
        gangs = sorted(self._request.gangs, key=_hardest_first, reverse=True)
        infeasible_gangs = tuple(gang for gang in gangs if not self._place_gang(gang))
        infeasible = self._place(shapes_of(self._request.demands), floor=False)
        self._remove_idle()
        launch = _count(node.type for node in self._nodes if node.given is None)
        return ScalingPlan(
            {name: launch[name] for name in self._types if name in launch},
            tuple((node.given.id, node.cause) for node in self._nodes if node.given and node.cause),
            tuple(infeasible),
            infeasible_gangs,
            floor_infeasible,
            frozenset(node.given.id for node in self._nodes if node.given and (node.held or node.floored)),
            _count(node.type for node in self._nodes if node.floored),
        )

    def _take_existing(self) -> None:
        """Add the existing nodes; mark outdated ones for removal, except the head."""
        for each in self._request.existing:
            known = self._types.get(each.type)
            if known is None and not each.running and not self._request.check_launch_hash:
                continue  # its resources are unknown
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
        current = _count(node.type for node in self._nodes if node.cause is None)
        added = [
            self._launched(name) for name, each in self._types.items() for _ in range(each.min - current.get(name, 0))
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
        """Keep these nodes, without launches that were cancelled."""
        self._nodes = [node for node in nodes if node.given is not None or node.cause is None]

    def _place_gang(self, gang: Gang) -> bool:
        if gang.placement == "same_node":
            together: dict[str, float] = {}
            for bundle in gang.bundles:
                for name, amount in bundle.items():
                    together[name] = together.get(name, 0.0) + amount
            return self._place_whole([EqualRequests(together, 1)] if gang.bundles else [])
        shapes = shapes_of((bundle, 1) for bundle in gang.bundles)
        return self._place_whole(shapes, spread=gang.placement == "different_nodes")

    def _place_whole(self, shapes: Sequence[EqualRequests], *, floor: bool = False, spread: bool = False) -> bool:
        return not shapes or not self._place(shapes, floor=floor, spread=spread, whole=True)

    def _place(
        self, shapes: Sequence[EqualRequests], *, floor: bool, spread: bool = False, whole: bool = False
    ) -> Sequence[EqualRequests]:
        """Place the shapes on the nodes, then on new ones; return the rest. With `whole`, place all or nothing.

        Nodes to be removed get placements too: they count against the limits until they are gone, and their requests
        become demands of the next round.
        """
        if not shapes:
            return ()
        alike: dict[Room, list[int]] = {}
        for at, node in enumerate(self._nodes):
            alike.setdefault(node.floor_room if floor else node.room, []).append(at)
        candidates = [EqualNodes(room, iter(places), len(places)) for room, places in alike.items()]
        used, left = fill(self._rooms, candidates, shapes, spread=spread)
        new: list[_Node] = []
        if left:
            current = _count(node.type for node in self._nodes)
            order = count()
            names = {
                EqualNodes(self._empty[name], order, each.max - current.get(name, 0), each.hourly_price): name
                for name, each in self._types.items()
                if each.max > current.get(name, 0)
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

    def _remove_idle(self) -> None:
        staying = _count(node.type for node in self._nodes if node.cause is None)
        for node in reversed(self._nodes):  # where a minimum stays, it is of the first ones: without holes in the ranks
            if node.given is None or node.cause is not None or node.head or node.held or node.floored:
                continue
            known = self._types.get(node.type)
            timeout = self._request.idle_timeout
            if known is not None and known.idle_timeout is not None:
                timeout = known.idle_timeout
            if timeout is None or node.given.idle <= timeout:
                continue
            if staying[node.type] > (known.min if known else 0):
                staying[node.type] -= 1
                node.cause = "IDLE"


def _put(node: _Node, room: Room, floor: bool) -> None:
    if floor:
        node.floor_room, node.floored = room, True
    else:
        node.room, node.held = room, True


def _victims(nodes: list[_Node], number: int, cause: TerminationCause) -> tuple[list[_Node], list[_Node]]:
    """Mark `number` nodes for removal, not running, longest idle and emptiest first; return them and the rest."""
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
