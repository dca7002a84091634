"""Placement of gangs: the nodes on which all members of a gang start at once, now or after nodes are launched.

One function places them, on what is free now as well as on nodes that could be launched. Members of equal shapes are
placed together, the shape that the fewest nodes can hold first, so thousands of members take milliseconds. Gangs of
equal shapes are placed wherever that is possible. For different shapes, "pack" and "spread" are the vector bin packing
problem: three greedy orders are tried, then, for small gangs, a search with a limited number of steps.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import islice, pairwise

from skyward.scaling.snapshot.fitting import at_once
from skyward.scaling.snapshot.values import Counts, GangDemand, Group, Snapshot
from skyward.values.gangs import GangPlacement
from skyward.values.needs import Needs, Resources

__all__ = ["GangPlan", "GangUse", "Seats", "gang_fits", "gang_launches", "gang_nodes", "place_gang"]

SEARCHED_MEMBERS = 16
SEARCHED_NODES = 64
SEARCH_STEPS = 2000
"""Limits of the search: the largest gang and pool for which it is done, and its steps."""

MIXED_MEMBERS = 8
MIXES = 64
"""Limits of the search for a mix of new nodes: the largest gang for which it is done, and the mixes."""

_CRUMB = 1e-9


@dataclass(frozen=True, slots=True)
class Seats:
    """The room of one node: free slots, free resources, and capabilities."""

    slots: int
    free: Resources
    capabilities: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Room:
    """The room of one node while members are placed on it."""

    slots: int
    free: dict[str, float]
    capabilities: frozenset[str]

    @classmethod
    def of(cls, seats: Seats) -> "_Room":
        return cls(max(seats.slots, 0), dict(seats.free), seats.capabilities)

    def copy(self) -> "_Room":
        return _Room(self.slots, dict(self.free), self.capabilities)

    def fits(self, needs: Needs) -> int:
        """Return how many members of this shape fit."""
        if not needs or not self.slots:
            return self.slots
        if not needs.capabilities <= self.capabilities:
            return 0
        most = self.slots
        for name, amount in needs.resources.items():
            most = min(most, int((self.free.get(name, 0.0) + _CRUMB) / amount))
        return most

    def take(self, needs: Needs, times: int = 1) -> None:
        self.slots -= times
        for name, amount in needs.resources.items():
            self.free[name] = self.free.get(name, 0.0) - times * amount

    def give(self, needs: Needs) -> None:
        self.take(needs, -1)

    @property
    def key(self) -> tuple[object, ...]:
        return self.slots, tuple(self.free.items()), self.capabilities


@dataclass(frozen=True, slots=True)
class _Shape:
    """Members of equal needs, by their positions in the gang."""

    needs: Needs
    members: list[int]


def place_gang(seats: Sequence[Seats], needs: Sequence[Needs], placement: GangPlacement) -> list[int] | None:
    """Return the node of each member, by its position in `seats`; None if they cannot all start at once.

    Args:
        seats: rooms of the nodes. Of nodes that are equally good, the first ones are used.
        needs: needs of each member.
        placement: how they are spread over the nodes.
    """
    if not needs:
        return []
    rooms = [_Room.of(each) for each in seats]
    shapes = _scarcest_first(rooms, needs)
    if shapes is None:
        return None
    match placement:
        case "strict_pack":
            found = _on_one(rooms, shapes)
        case "strict_spread":
            found = _apart(rooms, shapes)
        case "spread":
            found = _spread(rooms, shapes) or _packed(rooms, shapes)
        case "pack":
            found = _packed(rooms, shapes)
    if found is None:
        return None
    places = [0] * len(needs)
    for position, members in found.items():
        for member in members:
            places[member] = position
    return places


type _Found = dict[int, list[int]]
"""Members by the position of their node."""


def _scarcest_first(rooms: Sequence[_Room], needs: Sequence[Needs]) -> list[_Shape] | None:
    """Return the shapes, that with the fewest nodes first; None if there is too little room for one of them."""
    if sum(room.slots for room in rooms) < len(needs):
        return None
    members: dict[Needs, list[int]] = {}
    last, alike = needs[0], members.setdefault(needs[0], [])
    for position, each in enumerate(needs):
        if each is not last:
            last, alike = each, members.setdefault(each, [])
        alike.append(position)
    able: dict[Needs, int] = {}
    for shape in members:
        able[shape] = sum(room.fits(shape) > 0 for room in rooms)
        if not able[shape]:
            return None
    ordered = sorted(members, key=lambda shape: (able[shape], -sum(shape.resources.values()), members[shape][0]))
    return [_Shape(shape, members[shape]) for shape in ordered]


def _on_one(rooms: Sequence[_Room], shapes: Sequence[_Shape]) -> _Found | None:
    everyone = [member for shape in shapes for member in shape.members]
    for position, room in enumerate(rooms):
        if room.slots >= len(everyone) and _held(room, shapes) == len(everyone):
            return {position: everyone}
    return None


def _held(room: _Room, shapes: Sequence[_Shape]) -> int:
    """Return how many members an otherwise empty node holds, the scarce shapes first."""
    left, total = room.copy(), 0
    for shape in shapes:
        if times := min(left.fits(shape.needs), len(shape.members)):
            left.take(shape.needs, times)
            total += times
    return total


def _apart(rooms: Sequence[_Room], shapes: Sequence[_Shape]) -> _Found | None:
    """Place each member on a node of its own: a maximum flow from the shapes to the kinds of nodes."""
    kinds: dict[tuple[int, ...], list[int]] = {}
    for position, room in enumerate(rooms):
        kind = tuple(index for index, shape in enumerate(shapes) if room.fits(shape.needs))
        if kind:
            kinds.setdefault(kind, []).append(position)
    spare = {kind: len(positions) for kind, positions in kinds.items()}
    flow: dict[tuple[int, tuple[int, ...]], int] = {}
    for index, shape in enumerate(shapes):
        left = len(shape.members)
        while left:
            path = _augmenting(index, spare, flow)
            if path is None:
                return None
            moved = min(
                left,
                spare[path[-1][1]],
                *(flow[following, kind] for (_, kind), (following, _) in pairwise(path)),
            )
            for step, (giver, kind) in enumerate(path):
                flow[giver, kind] = flow.get((giver, kind), 0) + moved
                if step + 1 < len(path):
                    flow[path[step + 1][0], kind] -= moved
            spare[path[-1][1]] -= moved
            left -= moved
    free = {kind: iter(positions) for kind, positions in kinds.items()}
    found: _Found = {}
    for index, shape in enumerate(shapes):
        members = iter(shape.members)
        for kind in kinds:
            for _ in range(flow.get((index, kind), 0)):
                found[next(free[kind])] = [next(members)]
    return found


def _augmenting(
    start: int, spare: Mapping[tuple[int, ...], int], flow: Mapping[tuple[int, tuple[int, ...]], int]
) -> list[tuple[int, tuple[int, ...]]] | None:
    """Return a path of shapes and kinds of nodes, from the shape `start` to a kind that has a node left."""
    came: dict[int, tuple[int, tuple[int, ...]]] = {}
    queue = [start]
    seen_kinds: set[tuple[int, ...]] = set()
    for shape in queue:  # grows meanwhile
        for kind, left in spare.items():
            if shape not in kind or kind in seen_kinds:
                continue
            seen_kinds.add(kind)
            if left:
                path = [(shape, kind)]
                while path[0][0] != start:
                    path.insert(0, came[path[0][0]])
                return path
            for other in kind:
                if other != start and other not in came and flow.get((other, kind), 0):
                    came[other] = (shape, kind)
                    queue.append(other)
    return None


def _spread(rooms: Sequence[_Room], shapes: Sequence[_Shape]) -> _Found | None:
    """Place the members one by one, each on the node that has the fewest of them so far."""
    left = [room.copy() for room in rooms]
    used = [0] * len(rooms)
    found: _Found = {}
    for shape in shapes:
        able = [(used[position], position) for position, room in enumerate(left) if room.fits(shape.needs)]
        heapify(able)
        for member in shape.members:
            if not able:
                return None
            _, position = heappop(able)
            left[position].take(shape.needs)
            used[position] += 1
            found.setdefault(position, []).append(member)
            if left[position].fits(shape.needs):
                heappush(able, (used[position], position))
    return found


def _packed(rooms: Sequence[_Room], shapes: Sequence[_Shape]) -> _Found | None:
    """Place the members on few nodes."""
    most_first = sorted(range(len(rooms)), key=lambda position: -_held(rooms[position], shapes))
    found = _filled(rooms, shapes, most_first)
    if found is not None or len(shapes) == 1:
        return found
    tightest_first = sorted(range(len(rooms)), key=lambda position: (rooms[position].slots, position))
    by_size = sorted(shapes, key=lambda shape: -sum(shape.needs.resources.values()))
    for order in (shapes, by_size):
        if (found := _best_fit(rooms, order, tightest_first)) is not None:
            return found
    return _searched(rooms, shapes)


def _filled(rooms: Sequence[_Room], shapes: Sequence[_Shape], order: Iterable[int]) -> _Found | None:
    """Fill node after node, each with the scarce shapes first."""
    waiting = [list(reversed(shape.members)) for shape in shapes]
    remaining = sum(map(len, waiting))
    found: _Found = {}
    for position in order:
        if not remaining:
            break
        room = rooms[position].copy()
        for shape, members in zip(shapes, waiting, strict=True):
            if times := min(room.fits(shape.needs), len(members)):
                room.take(shape.needs, times)
                found.setdefault(position, []).extend(members.pop() for _ in range(times))
                remaining -= times
    return None if remaining else found


def _best_fit(rooms: Sequence[_Room], shapes: Sequence[_Shape], order: Sequence[int]) -> _Found | None:
    """Place shape after shape, on the nodes in this order."""
    left = [room.copy() for room in rooms]
    found: _Found = {}
    for shape in shapes:
        members = list(reversed(shape.members))
        for position in order:
            if times := min(left[position].fits(shape.needs), len(members)):
                left[position].take(shape.needs, times)
                found.setdefault(position, []).extend(members.pop() for _ in range(times))
            if not members:
                break
        if members:
            return None
    return found


def _searched(rooms: Sequence[_Room], shapes: Sequence[_Shape]) -> _Found | None:
    """Search for a placement, within the limits of the search."""
    members = [(member, shape.needs) for shape in shapes for member in shape.members]
    if len(members) > SEARCHED_MEMBERS or len(rooms) > SEARCHED_NODES or sum(r.slots for r in rooms) < len(members):
        return None
    left = [room.copy() for room in rooms]
    places: list[int] = []
    steps = SEARCH_STEPS

    def place(index: int) -> bool:
        nonlocal steps
        if index == len(members):
            return True
        needs, tried = members[index][1], set()
        for position, room in enumerate(left):
            if not room.fits(needs) or (key := room.key) in tried:
                continue
            tried.add(key)
            steps -= 1
            if steps < 0:
                return False
            room.take(needs)
            places.append(position)
            if place(index + 1):
                return True
            places.pop()
            room.give(needs)
        return False

    if not place(0):
        return None
    found: _Found = {}
    for (member, _), position in zip(members, places, strict=True):
        found.setdefault(position, []).append(member)
    return found


# Launching.


def gang_fits(groups: Sequence[Group], gang: GangDemand, max_nodes: int | None = None) -> bool:
    """Return whether the gang could start if every group had its maximum number of idle nodes.

    Args:
        max_nodes: maximum number of nodes over all groups; None for only the limits of the groups.
    """
    placement: GangPlacement = "pack" if gang.placement == "spread" else gang.placement
    seats, _ = _empty_seats({group.name: group.max for group in groups}, groups, len(gang.needs))
    if place_gang(seats, gang.needs, placement) is None:
        return False
    if max_nodes is None:
        return True
    least = {group.name: min(group.min, group.max) for group in groups}
    counts = {name: Counts(booting=number, desired=number) for name, number in least.items()}
    # With the planner's own answer: a gang that it cannot place would wait for ever.
    return bool(gang_nodes(Snapshot(0.0, tuple(groups), counts, gangs=(gang,), max_nodes=max_nodes)).uses)


def gang_launches(groups: Sequence[Group], there: Mapping[str, int], gang: GangDemand) -> Mapping[str, int]:
    """Return the cheapest new nodes found with which the gang could start, by group.

    Args:
        there: nodes that the groups have, all of which it may use.
    """
    counts = {group.name: Counts(booting=there[group.name], desired=there[group.name]) for group in groups}
    return gang_nodes(Snapshot(0.0, tuple(groups), counts, gangs=(gang,))).launch


@dataclass(frozen=True, slots=True)
class GangUse:
    """Parts of a group that the waiting gangs will use.

    Attributes:
        free: free slots of its active nodes.
        shapes: number of the members that run there, by shape.
        starting: its nodes that start, or are to be launched, in parts: the share of each that the members fill.
        starting_nodes: number of these nodes.
    """

    free: int = 0
    shapes: Mapping[Needs, int] = field(default_factory=dict)
    starting: float = 0.0
    starting_nodes: int = 0


@dataclass(frozen=True, slots=True)
class GangPlan:
    """Nodes that the waiting gangs need.

    Attributes:
        launch: by group, the nodes to launch beside those that the group has or was decided to have.
        held: by group, the nodes that it has, or was decided to have, for groups whose nodes gangs will use: no idle
            node of these should be removed.
        keep: ranks of existing nodes that gangs will use.
        uses: by group, what gangs will use; absent for nothing.
    """

    launch: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[str, int] = field(default_factory=dict)
    keep: frozenset[int] = frozenset()
    uses: Mapping[str, GangUse] = field(default_factory=dict)

    def least(self, group: str) -> int:
        """Return the least number of nodes that a group must have for the gangs; 0 if they do not use it."""
        more = self.launch.get(group, 0)
        return self.held[group] + more if more or group in self.held else 0


_NO_PLAN = GangPlan()


def gang_nodes(snapshot: Snapshot) -> GangPlan:
    """Return the nodes that the waiting gangs need, oldest gang first, within the limits of the pool.

    Each gang is placed on what is free on the active nodes, on the nodes that start, and on as few new nodes as
    possible, of the groups where these cost least. If the limits leave no room for that, it waits for nodes that are
    busy now, and counts on all of what they have. A gang that does not fit even then needs nothing.
    """
    if not snapshot.gangs:
        return _NO_PLAN
    return _GangPlanner(snapshot).plan()


class _GangPlanner:
    """Plan of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._groups = {group.name: group for group in snapshot.groups}
        counts = snapshot.counts
        self._there = {
            name: max(counts[name].desired if group.can_launch else 0, counts[name].active + counts[name].booting)
            for name, group in self._groups.items()
        }
        total = sum(max(there, self._groups[name].min) for name, there in self._there.items())
        self._room_in_all = None if snapshot.max_nodes is None else max(0, snapshot.max_nodes - total)
        self._room = {name: max(0, group.max - self._there[name]) for name, group in self._groups.items()}
        self._launch: dict[str, int] = {}
        self._used: set[str] = set()
        self._keep: set[int] = set()
        self._taken: dict[int, int] = {}
        self._members: dict[int, list[Needs]] = {}
        active = [node for node in snapshot.nodes if node.stage == "active" and node.group in self._groups]
        self._ranks: list[int | None] = [node.rank for node in active]
        self._owner = [node.group for node in active]
        self._free: list[Seats] = []
        self._whole: list[Seats] = []
        for node in active:
            group = self._groups[node.group]
            self._free.append(Seats(max(0, group.slots - node.busy), node.free, group.capabilities))
            self._whole.append(_whole(group))
        self._spare = [each.slots for each in self._free]
        starting = {name: self._there[name] - self._owner.count(name) for name in self._groups}
        empty, owner = _empty_seats(starting, snapshot.groups, sum(len(gang.needs) for gang in snapshot.gangs))
        self._add(empty, owner)

    def plan(self) -> GangPlan:
        for gang in self._snapshot.gangs:
            if not self._serve(gang) and not any(self._room.values()):
                break  # the younger ones wait for the same nodes
        held = {name: self._there[name] for name in self._groups if name in self._used}
        return GangPlan(self._launch, held, frozenset(self._keep), {name: self._use(name) for name in self._used})

    def _use(self, group: str) -> GangUse:
        """Return what the gangs that were placed use of a group."""
        of_group = [position for position in self._taken if self._owner[position] == group]
        active = [position for position in of_group if self._ranks[position] is not None]
        starting = [position for position in of_group if self._ranks[position] is None]
        return GangUse(
            sum(min(self._taken[position], self._spare[position]) for position in active),
            Counter(needs for position in active for needs in self._members[position] if needs.resources),
            sum(self._share(position) for position in starting),
            len(starting),
        )

    def _share(self, position: int) -> float:
        """Return the share of an empty node that the members on it fill."""
        group = self._groups[self._owner[position]]
        return min(1.0, sum(1 / (at_once(group, needs) or 1) for needs in self._members[position]))

    def _add(self, seats: Sequence[Seats], owner: Sequence[str]) -> None:
        self._free += seats
        self._whole += seats
        self._owner += owner
        self._ranks += [None] * len(seats)

    def _serve(self, gang: GangDemand) -> bool:
        """Place a gang on what is free, with new nodes if needed; else on what its nodes have when they are idle.

        Return whether it needs no node that is busy now.
        """
        for seats, is_taken in ((self._free, True), (self._whole, False)):
            more, places = self._with_launches(seats, gang)
            if places is None:
                continue
            empty, owner = _empty_seats(more, self._snapshot.groups, len(gang.needs))
            for name, number in more.items():
                self._launch[name] = self._launch.get(name, 0) + number
                self._room[name] -= number
                if self._room_in_all is not None:
                    self._room_in_all -= number
            self._add(empty, owner)
            for member, position in enumerate(places):
                self._used.add(self._owner[position])
                self._taken[position] = self._taken.get(position, 0) + 1
                self._members.setdefault(position, []).append(gang.needs[member])
                rank = self._ranks[position]
                if rank is not None:
                    self._keep.add(rank)
                if is_taken:
                    self._free[position] = _less(self._free[position], gang.needs[member])
            return is_taken
        return False

    def _with_launches(self, seats: Sequence[Seats], gang: GangDemand) -> tuple[dict[str, int], list[int] | None]:
        """Return the cheapest launches found with which the gang fits, and its placement; None if it does not."""
        placement: GangPlacement = "pack" if gang.placement == "spread" else gang.placement
        places = place_gang(seats, gang.needs, placement)
        if places is not None:
            return {}, places
        found = [self._fewest(seats, gang, placement, group) for group in self._snapshot.groups]
        if len(self._groups) > 1:
            found.append(self._of_several(seats, gang, placement))
        fitting = [each for each in found if each is not None]
        return min(fitting, key=lambda each: self._cost(each[0])) if fitting else ({}, None)

    def _cost(self, launch: Mapping[str, int]) -> tuple[float, int]:
        price = sum(number * self._groups[name].hourly_price for name, number in launch.items())
        return price, sum(launch.values())

    def _fewest(
        self, seats: Sequence[Seats], gang: GangDemand, placement: GangPlacement, group: Group
    ) -> tuple[dict[str, int], list[int]] | None:
        """Return the fewest new nodes of one group with which the gang fits, and its placement."""
        most = self._most(group.name, len(gang.needs))
        empty = _whole(group)
        found = place_gang([*seats, *[empty] * most], gang.needs, placement) if most else None
        if found is None:
            return None
        least = 0
        while most - least > 1:
            half = (least + most) // 2
            if (places := place_gang([*seats, *[empty] * half], gang.needs, placement)) is None:
                least = half
            else:
                most, found = half, places
        return {group.name: most}, found

    def _of_several(
        self, seats: Sequence[Seats], gang: GangDemand, placement: GangPlacement
    ) -> tuple[dict[str, int], list[int]] | None:
        """Return new nodes of several groups with which the gang fits, the cheaper ones first."""
        launch = {name: self._most(name, len(gang.needs)) for name in self._groups}
        empty, _ = _empty_seats(launch, self._snapshot.groups, len(gang.needs))
        if place_gang([*seats, *empty], gang.needs, placement) is None:
            return None
        for group in sorted(self._snapshot.groups, key=lambda group: -group.hourly_price):
            least, most = -1, launch[group.name]
            while most - least > 1:
                half = (least + most) // 2
                fewer, _ = _empty_seats({**launch, group.name: half}, self._snapshot.groups, len(gang.needs))
                if place_gang([*seats, *fewer], gang.needs, placement) is None:
                    least = half
                else:
                    most = half
            launch[group.name] = most
        launch = {name: number for name, number in launch.items() if number}
        if self._room_in_all is not None and sum(launch.values()) > self._room_in_all:
            return self._of_a_mix(seats, gang, placement, self._room_in_all)
        empty, _ = _empty_seats(launch, self._snapshot.groups, len(gang.needs))
        places = place_gang([*seats, *empty], gang.needs, placement)
        return None if places is None else (launch, places)

    def _of_a_mix(
        self, seats: Sequence[Seats], gang: GangDemand, placement: GangPlacement, room: int
    ) -> tuple[dict[str, int], list[int]] | None:
        """Return at most `room` new nodes of several groups with which a small gang fits, the cheapest found."""
        if len(gang.needs) > MIXED_MEMBERS:
            return None
        most = {name: self._most(name, len(gang.needs)) for name in self._groups}
        found: list[tuple[dict[str, int], list[int]]] = []
        for mix in islice(_mixes(most, min(room, sum(most.values()))), MIXES):
            empty, owner = _empty_seats(mix, self._snapshot.groups, len(gang.needs))
            places = place_gang([*seats, *empty], gang.needs, placement)
            if places is None:
                continue
            used = _count(owner[position - len(seats)] for position in set(places) if position >= len(seats))
            empty, _ = _empty_seats(used, self._snapshot.groups, len(gang.needs))
            fewer = place_gang([*seats, *empty], gang.needs, placement)
            found.append((mix, places) if fewer is None else (used, fewer))
        return min(found, key=lambda each: self._cost(each[0]), default=None)

    def _most(self, group: str, members: int) -> int:
        """Return the most new nodes of a group that a gang of so many members could use."""
        most = min(self._room[group], members)
        return most if self._room_in_all is None else min(most, self._room_in_all)


def _mixes(most: Mapping[str, int], total: int) -> Iterator[dict[str, int]]:
    """Yield the ways to divide `total` nodes among groups that have room for so many each."""
    if not most:
        if not total:
            yield {}
        return
    (name, room), *others = most.items()
    for number in range(min(room, total), max(0, total - sum(each for _, each in others)) - 1, -1):
        for rest in _mixes(dict(others), total - number):
            yield {name: number, **rest}


def _whole(group: Group) -> Seats:
    return Seats(max(group.slots, 1), group.resources, group.capabilities)


def _less(seats: Seats, needs: Needs) -> Seats:
    free = {**seats.free, **{name: seats.free.get(name, 0.0) - amount for name, amount in needs.resources.items()}}
    return Seats(seats.slots - 1, free, seats.capabilities)


def _empty_seats(numbers: Mapping[str, int], groups: Sequence[Group], members: int) -> tuple[list[Seats], list[str]]:
    """Return idle nodes of the groups, the cheaper groups first, at most one for each member, and the group of each."""
    seats: list[Seats] = []
    owner: list[str] = []
    for group in sorted(groups, key=lambda group: group.hourly_price):
        number = min(max(0, numbers.get(group.name, 0)), members)
        seats += [_whole(group)] * number
        owner += [group.name] * number
    return seats, owner


def _count(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts
