"""Packing shapes into nodes the way Ray does it: greedily, on the node of the highest score.

Nodes that own and have left the same are one candidate: it is tried once and scored once, however many of them there
are, and tried again only when so much has been placed elsewhere that its last trial no longer holds.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from skyward.values.needs import Resources

__all__ = ["Candidate", "Placed", "Room", "Rooms", "Score", "Shape", "fill", "largest_first", "score", "shapes_of"]

CRUMB = 1e-9
"""Amounts smaller than this are none: sums of fractions are not exact."""

GPU = "GPU"


class Score(NamedTuple):
    """How well a node is used, compared from left to right; larger is better.

    Attributes:
        gpu_ok: false for a node with GPUs on which nothing asks for one.
        kinds: resources of the node that something placed on it uses.
        least, mean: of `total * (used / total) ** 3`, over every resource that the node owns.
    """

    gpu_ok: bool
    kinds: int
    least: float
    mean: float


class Shape(NamedTuple):
    """So many equal requests, each for these amounts."""

    bundle: Resources
    times: int


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """What nodes of one kind own and have left, and what was placed on them. Made by `Rooms`, compared by identity."""

    total: Resources
    free: Resources
    kinds: frozenset[str]
    gpu_asked: bool


class Rooms:
    """The rooms of one plan: equal ones are the same object."""

    def __init__(self) -> None:
        self._totals: dict[tuple[tuple[str, float], ...], Resources] = {}
        self._known: dict[tuple[object, ...], Room] = {}

    def get(
        self, total: Resources, free: Resources, kinds: frozenset[str] = frozenset(), gpu_asked: bool = False
    ) -> Room:
        """The room of nodes that own `total` and have `free` left."""
        return self._make(self._totals.setdefault(tuple(total.items()), total), free, kinds, gpu_asked)

    def after(self, room: Room, free: Resources, kinds: frozenset[str], gpu_asked: bool) -> Room:
        """What `room` is when no more than `free` is left of it."""
        return self._make(room.total, free, kinds, gpu_asked)

    def _make(self, total: Resources, free: Resources, kinds: frozenset[str], gpu_asked: bool) -> Room:
        key = (id(total), tuple(free.items()), kinds, gpu_asked)
        if (room := self._known.get(key)) is None:
            room = self._known[key] = Room(total, free, kinds, gpu_asked)
        return room


class _Trial(NamedTuple):
    """What of the shapes goes on a node, as (index, how many), and what the node is then."""

    placed: tuple[tuple[int, int], ...]
    room: Room
    score: Score


@dataclass(slots=True, eq=False)
class Candidate:
    """Nodes that are alike.

    Attributes:
        room: what each has.
        order: place of each among all candidates, ascending; of equal scores the lowest place wins.
        left: how many there are.
    """

    room: Room
    order: Iterator[int]
    left: int
    at: int = field(init=False)

    def __post_init__(self) -> None:
        self.at = next(self.order)

    def take(self) -> int:
        """The place of the next one, which is gone then."""
        taken = self.at
        self.left -= 1
        if self.left:
            self.at = next(self.order)
        return taken


class Placed(NamedTuple):
    """One node got something: the candidate, its place, and what it is now."""

    candidate: Candidate
    at: int
    room: Room


def largest_first(shape: Shape) -> tuple[int, float, list[tuple[str, float]]]:
    """The order in which shapes are placed, descending: kinds, their sum, then by name."""
    bundle = shape.bundle
    return len(bundle), sum(bundle.values()), sorted(bundle.items())


def shapes_of(requests: Iterable[tuple[Resources, int]]) -> list[Shape]:
    """The requests, equal ones as one shape, largest first."""
    counts: dict[tuple[tuple[str, float], ...], Shape] = {}
    for bundle, number in requests:
        if number > 0:
            key = tuple(sorted(bundle.items()))
            known = counts.get(key)
            counts[key] = Shape(bundle, number + (known.times if known else 0))
    return sorted(counts.values(), key=largest_first, reverse=True)


def score(total: Resources, requests: Sequence[Resources]) -> tuple[Score, list[Resources]]:
    """The score of an empty node on which the requests were placed in that order, and those that found no room."""
    rooms = Rooms()
    counts = [1] * len(requests)
    trial = _try(rooms, rooms.get(total, total), [(r, _wanted(r)) for r in requests], counts, spread=False)
    placed = {index for index, _ in trial.placed}
    return trial.score, [request for index, request in enumerate(requests) if index not in placed]


def fill(
    rooms: Rooms, candidates: Sequence[Candidate], shapes: Sequence[Shape], *, most: int | None = None, spread: bool
) -> tuple[list[Placed], list[Shape]]:
    """Place the shapes on the best candidate, what is left on the best of the others, and so on.

    Args:
        shapes: largest first.
        most: nodes that may be used.
        spread: each node takes one request and no more.

    Returns:
        The nodes that got something, in that order, and what is left of the shapes.
    """
    wanted = [(shape.bundle, _wanted(shape.bundle)) for shape in shapes]
    counts = [shape.times for shape in shapes]
    remaining = sum(counts)
    done: list[Placed] = []
    live: dict[Candidate, _Trial] = {}
    best: list[tuple[float, float, float, float, int, int, Candidate, _Trial]] = []
    holds: list[list[tuple[int, int, Candidate, _Trial]]] = [[] for _ in shapes]
    known: dict[Room, _Trial] = {}
    serial = count()

    def rank(candidate: Candidate, trial: _Trial) -> None:
        gpu_ok, kinds, least, mean = trial.score
        heappush(best, (-gpu_ok, -kinds, -least, -mean, candidate.at, next(serial), candidate, trial))

    def enter(candidate: Candidate) -> None:
        trial = known.get(candidate.room)
        if trial is None or any(number > counts[index] for index, number in trial.placed):
            trial = known[candidate.room] = _try(rooms, candidate.room, wanted, counts, spread=spread)
        if not trial.placed:
            live.pop(candidate, None)
            return
        live[candidate] = trial
        rank(candidate, trial)
        for index, number in trial.placed:
            heappush(holds[index], (-number, next(serial), candidate, trial))

    for candidate in candidates:
        enter(candidate)
    while remaining and best and (most is None or len(done) < most):
        *_, candidate, trial = heappop(best)
        if live.get(candidate) is not trial:
            continue
        done.append(Placed(candidate, candidate.take(), trial.room))
        if candidate.left:
            rank(candidate, trial)
        else:
            del live[candidate]
        for index, number in trial.placed:
            counts[index] -= number
            remaining -= number
        for index, _ in trial.placed:
            stale = holds[index]
            while stale and -stale[0][0] > counts[index]:
                *_, other, old = heappop(stale)
                if live.get(other) is old:
                    enter(other)
    return done, [Shape(shape.bundle, left) for shape, left in zip(shapes, counts, strict=True) if left]


def _wanted(bundle: Resources) -> tuple[tuple[str, float], ...]:
    """What of a bundle takes room."""
    return tuple((name, amount) for name, amount in bundle.items() if amount > 0)


def _try(
    rooms: Rooms,
    room: Room,
    wanted: Sequence[tuple[Resources, tuple[tuple[str, float], ...]]],
    counts: Sequence[int],
    *,
    spread: bool,
) -> _Trial:
    """What of `wanted` goes on a node, in that order and without going back, and its score then."""
    free = dict(room.free)
    placed: list[tuple[int, int]] = []
    kinds: set[str] = set()
    gpu_asked = room.gpu_asked
    for index, (bundle, amounts) in enumerate(wanted):
        fits = counts[index]
        if not fits:
            continue
        for name, amount in amounts:
            there = free.get(name, 0.0)
            if there < fits * amount - CRUMB:
                fits = int((there + CRUMB) // amount)
                if fits <= 0:
                    break
        if fits <= 0:
            continue
        if spread:
            fits = 1
        for name, amount in amounts:
            there = free[name] - fits * amount
            free[name] = there if there > CRUMB else 0.0
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
