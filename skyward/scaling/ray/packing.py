"""Packing of shapes into nodes as Ray does it: greedily, on the node with the highest score.

Nodes with equal total and free resources form one candidate, which is tried and scored once for all of them, and tried
again only if placements elsewhere invalidate its last trial.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from skyward.values.needs import Resources

__all__ = [
    "EqualNodes",
    "EqualRequests",
    "Placed",
    "Room",
    "Rooms",
    "Score",
    "fill",
    "largest_first",
    "score",
    "shapes_of",
]

CRUMB = 1e-9
"""Amounts below this count as zero, since sums of fractions are inexact."""

GPU = "GPU"


class Score(NamedTuple):
    """Utilisation of a node, compared from left to right; larger is better.

    Attributes:
        gpu_ok: False for a node with GPUs on which no request uses one.
        kinds: number of the node's resources that placed requests use.
        least, mean: of `total * (used / total) ** 3`, over all resources of the node.
    """

    gpu_ok: bool
    kinds: int
    least: float
    mean: float


class EqualRequests(NamedTuple):
    """Number of equal requests, each for these amounts."""

    bundle: Resources
    times: int


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """Total and free resources of equal nodes, and what was placed on them. Made by `Rooms`, compared by identity."""

    total: Resources
    free: Resources
    kinds: frozenset[str]
    gpu_asked: bool


class Rooms:
    """Interning table of the rooms of one plan: equal rooms are the same object."""

    def __init__(self) -> None:
        self._totals: dict[tuple[tuple[str, float], ...], Resources] = {}
        self._known: dict[tuple[object, ...], Room] = {}

    def get(
        self, total: Resources, free: Resources, kinds: frozenset[str] = frozenset(), gpu_asked: bool = False
    ) -> Room:
        """Return the room of nodes with these total and free resources."""
        return self._make(self._totals.setdefault(tuple(total.items()), total), free, kinds, gpu_asked)

    def after(self, room: Room, free: Resources, kinds: frozenset[str], gpu_asked: bool) -> Room:
        """Return the room that `room` becomes when only `free` is left."""
        return self._make(room.total, free, kinds, gpu_asked)

    def _make(self, total: Resources, free: Resources, kinds: frozenset[str], gpu_asked: bool) -> Room:
        key = (id(total), tuple(free.items()), kinds, gpu_asked)
        if (room := self._known.get(key)) is None:
            room = self._known[key] = Room(total, free, kinds, gpu_asked)
        return room


class _Trial(NamedTuple):
    """Shapes that fit on a node, as (index, count), and the room and score of the node with them."""

    placed: tuple[tuple[int, int], ...]
    room: Room
    score: Score


@dataclass(slots=True, eq=False)
class EqualNodes:
    """Equal nodes.

    Attributes:
        room: room of each.
        order: position of each among all candidates, ascending.
        left: number of nodes left.
        price: USD per hour of each, if it would be launched; ties in score go to the lowest price, then by position.
    """

    room: Room
    order: Iterator[int]
    left: int
    price: float = 0.0
    at: int = field(init=False)

    def __post_init__(self) -> None:
        self.at = next(self.order)

    def take(self) -> int:
        """Remove the next node and return its position."""
        taken = self.at
        self.left -= 1
        if self.left:
            self.at = next(self.order)
        return taken


class Placed(NamedTuple):
    """Placement on one node: the candidate, the position of the node, and its new room."""

    candidate: EqualNodes
    at: int
    room: Room


def largest_first(shape: EqualRequests) -> tuple[int, float, list[tuple[str, float]]]:
    """Return the sort key of a shape, for descending order: number of resources, their sum, then names."""
    bundle = shape.bundle
    return len(bundle), sum(bundle.values()), sorted(bundle.items())


def shapes_of(requests: Iterable[tuple[Resources, int]]) -> list[EqualRequests]:
    """Return the requests as shapes, equal ones merged, largest first."""
    counts: dict[tuple[tuple[str, float], ...], EqualRequests] = {}
    for bundle, number in requests:
        if number > 0:
            key = tuple(sorted(bundle.items()))
            known = counts.get(key)
            counts[key] = EqualRequests(bundle, number + (known.times if known else 0))
    return sorted(counts.values(), key=largest_first, reverse=True)


def score(total: Resources, requests: Sequence[Resources]) -> tuple[Score, list[Resources]]:
    """Return the score of an empty node with the requests placed in order, and the requests that do not fit."""
    rooms = Rooms()
    counts = [1] * len(requests)
    trial = _try(rooms, rooms.get(total, total), [(r, _wanted(r)) for r in requests], counts, spread=False)
    placed = {index for index, _ in trial.placed}
    return trial.score, [request for index, request in enumerate(requests) if index not in placed]


def fill(
    rooms: Rooms,
    candidates: Sequence[EqualNodes],
    shapes: Sequence[EqualRequests],
    *,
    most: int | None = None,
    spread: bool,
) -> tuple[list[Placed], list[EqualRequests]]:
    """Place the shapes on the best candidate, the rest on the next best, and so on.

    Args:
        shapes: largest first.
        most: maximum number of nodes to use.
        spread: place at most one request on each node.

    Returns:
        The placements in order, and the shapes that were not placed.
    """
    wanted = [(shape.bundle, _wanted(shape.bundle)) for shape in shapes]
    counts = [shape.times for shape in shapes]
    remaining = sum(counts)
    done: list[Placed] = []
    live: dict[EqualNodes, _Trial] = {}
    best: list[tuple[float, float, float, float, float, int, int, EqualNodes, _Trial]] = []
    by_shape: list[list[tuple[int, int, EqualNodes, _Trial]]] = [[] for _ in shapes]
    known: dict[Room, _Trial] = {}
    serial = count()

    def push(candidate: EqualNodes, trial: _Trial) -> None:
        gpu_ok, kinds, least, mean = trial.score
        heappush(best, (-gpu_ok, -kinds, -least, -mean, candidate.price, candidate.at, next(serial), candidate, trial))

    def retry(candidate: EqualNodes) -> None:
        trial = known.get(candidate.room)
        if trial is None or any(number > counts[index] for index, number in trial.placed):
            trial = known[candidate.room] = _try(rooms, candidate.room, wanted, counts, spread=spread)
        if not trial.placed:
            live.pop(candidate, None)
            return
        live[candidate] = trial
        push(candidate, trial)
        for index, number in trial.placed:
            heappush(by_shape[index], (-number, next(serial), candidate, trial))

    for candidate in candidates:
        retry(candidate)
    while remaining and best and (most is None or len(done) < most):
        *_, candidate, trial = heappop(best)
        if live.get(candidate) is not trial:
            continue
        done.append(Placed(candidate, candidate.take(), trial.room))
        if candidate.left:
            push(candidate, trial)
        else:
            del live[candidate]
        for index, number in trial.placed:
            counts[index] -= number
            remaining -= number
        for index, _ in trial.placed:
            stale = by_shape[index]
            while stale and -stale[0][0] > counts[index]:
                *_, other, old = heappop(stale)
                if live.get(other) is old:
                    retry(other)
    return done, [EqualRequests(shape.bundle, left) for shape, left in zip(shapes, counts, strict=True) if left]


def _wanted(bundle: Resources) -> tuple[tuple[str, float], ...]:
    """Return the positive amounts of a bundle."""
    return tuple((name, amount) for name, amount in bundle.items() if amount > 0)


def _try(
    rooms: Rooms,
    room: Room,
    wanted: Sequence[tuple[Resources, tuple[tuple[str, float], ...]]],
    counts: Sequence[int],
    *,
    spread: bool,
) -> _Trial:
    """Place as much of `wanted` on a node as fits, in order and without backtracking."""
    free = dict(room.free)
    placed: list[tuple[int, int]] = []
    kinds: set[str] = set()
    gpu_asked = room.gpu_asked
    for index, (bundle, amounts) in enumerate(wanted):
        fits = counts[index]
        if not fits:
            continue
        for name, amount in amounts:
            available = free.get(name, 0.0)
            if available < fits * amount - CRUMB:
                fits = int((available + CRUMB) // amount)
                if fits <= 0:
                    break
        if fits <= 0:
            continue
        if spread:
            fits = 1
        for name, amount in amounts:
            rest = free[name] - fits * amount
            free[name] = rest if rest > CRUMB else 0.0
            kinds.add(name)
        gpu_asked = gpu_asked or GPU in bundle
        placed.append((index, fits))
        if spread:
            break
    if not placed:
        return _Trial((), room, _score(room.total, room.free, room.kinds, gpu_asked))
    after = rooms.after(room, free, room.kinds | kinds, gpu_asked)
    return _Trial(tuple(placed), after, _score(after.total, after.free, after.kinds, gpu_asked))


def _score(total: Resources, free: Mapping[str, float], kinds: frozenset[str], gpu_asked: bool) -> Score:
    used = [
        owned * ((owned - free[name]) / owned) ** 3
        for name, owned in total.items()
        if owned and free.get(name) is not None
    ]
    return Score(
        gpu_asked or not total.get(GPU, 0) > 0,
        sum(name in total for name in kinds),
        min(used, default=0.0),
        sum(used) / len(used) if used else 0.0,
    )
