"""How nodes start: the phase that each is in, what it has said, how long phases usually take, and what has failed.

Keeps what it is told, and decides nothing. Lives on the library's loop.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from skyward.bootstrap import PhaseEvent
from skyward.errors import JournalError

__all__ = ["REQUESTED", "Boot", "Failure", "StartupTracker", "UsualTimes"]

SAMPLES = 9
"""Starts that count for what is usual: the latest ones on record, and so many of one pool at most."""

STARTS = 3
"""Starts of one rank whose logs are kept."""

LONGEST = 256 * 1024
LOGS = 8 * 1024 * 1024
"""Characters of one log, and of all of a pool's, that are kept."""

REQUESTED = "requested"
"""The phase in which a machine has been asked for. Which image it is to get makes no difference yet."""


class Durations(Protocol):
    """Keeps how long phases took from one process to the next, as `PoolRecord` does."""

    def took(self, provider: str, image: str) -> Mapping[str, list[float]]:
        """Seconds that each phase took lately."""

    def add_took(self, provider: str, image: str, seconds: Mapping[str, float], keep: int) -> None:
        """A node is up whose phases took so long."""


class UsualTimes:
    """How long phases usually take: the median of the latest, for a provider and the identity of an image.

    It is nice to know, so where it cannot be read or written down nothing fails.
    """

    def __init__(self, record: Durations) -> None:
        self._record = record
        self._known: dict[tuple[str, str], dict[str, deque[float]]] = {}
        self._told: dict[tuple[str, str], int] = {}

    def of(self, provider: str, image: str, phase: str) -> float | None:
        """Seconds; None where none has been seen."""
        seen = self._seen(provider, image).get(phase)
        return median(seen) if seen else None

    def _seen(self, provider: str, image: str) -> dict[str, deque[float]]:
        key = provider, image
        if key not in self._known:
            took: Mapping[str, list[float]] = {}
            with suppress(JournalError):
                took = self._record.took(provider, image)
            self._known[key] = {phase: deque(seconds, SAMPLES) for phase, seconds in took.items()}
        return self._known[key]

    def add(self, provider: str, image: str, seconds: Mapping[str, float]) -> None:
        """A node is up whose phases took so long. The first few of a pool are written down, which takes a moment."""
        seen = self._seen(provider, image)
        for phase, took in seconds.items():
            seen.setdefault(phase, deque(maxlen=SAMPLES)).append(took)
        told = self._told.get((provider, image), 0)
        if seconds and told < SAMPLES:
            self._told[provider, image] = told + 1
            with suppress(JournalError):
                self._record.add_took(provider, image, seconds, SAMPLES)


type OnPhase = Callable[["Boot", str, float | None], object]
"""Is told that a start has begun a phase; or, with the seconds that it took, completed one."""


class Boot:
    """The start of one machine.

    Attributes:
        on_phase: is told of its phases.
        phase: what it is doing, and since when on the steady clock.
        image: identity of the image that it gets; empty where its environment is there already.
        took: seconds that its phases took, those that were over at once left out.
    """

    def __init__(self, rank: int, machine: int) -> None:
        self.rank = rank
        self.machine = machine
        self.on_phase: OnPhase | None = None
        self.phase = ""
        self.since = time.monotonic()
        self.image = ""
        self.took: dict[str, float] = {}
        self._lines: list[str] = []
        self._size = 0

    def enter(self, phase: str) -> str:
        """It is in another phase; that."""
        if phase != self.phase:
            now = time.monotonic()
            if self.phase:
                self.took[self.phase] = self.took.get(self.phase, 0.0) + now - self.since
            self.phase, self.since = phase, now
            self._note(phase)
            if self.on_phase is not None:
                self.on_phase(self, phase, None)
        return phase

    def heard(self, event: PhaseEvent) -> str:
        """Its bootstrap goes on; the phase that it is in."""
        match event.event:
            case "started":
                return self.enter(event.phase)
            case "completed":
                self._note(f"{event.phase}: done in {event.elapsed:.1f} s")
                self._completed(event.phase, event.elapsed)
            case "skipped":
                self._note(f"{event.phase}: nothing to do")
                self._completed(event.phase, 0.0)
            case "failed":
                pass  # which is told with all that it printed
        return self.phase

    def _completed(self, phase: str, elapsed: float) -> None:
        if self.on_phase is not None:
            self.on_phase(self, phase, elapsed)

    def failed(self, reason: str, log: str) -> None:
        """It is over. `log`: all that is known of what it said, where that is more than the reason tells."""
        self._note(f"failed: {reason.splitlines()[0] if log else reason}")
        if log:
            self._keep(log[-LONGEST:])

    def _note(self, text: str) -> None:
        self._keep(f"{time.strftime('%H:%M:%S')}  {text}")

    def _keep(self, text: str) -> None:
        self._lines.append(text.rstrip("\n"))
        self._size += len(text) + 1

    @property
    def size(self) -> int:
        """Characters of its log."""
        return self._size

    @property
    def log(self) -> str:
        """All that it has said, a line for each phase."""
        return "\n".join(self._lines)


@dataclass(frozen=True, slots=True)
class Failure:
    """A node that did not come up, the last time it was tried.

    Attributes:
        phase: in which it failed.
        reason: in one line.
        lines: the last that it printed.
        at: when, on the steady clock.
    """

    phase: str
    reason: str
    lines: tuple[str, ...]
    at: float


class StartupTracker:
    """The starts of the nodes of one pool.

    Attributes:
        usual: how long phases usually take.
        failures: what the latest start of a rank ended with, where it failed and no other was better since.
        on_phase: is told of the phases of every start.
    """

    def __init__(self, record: Durations) -> None:
        self.usual = UsualTimes(record)
        self.failures: dict[int, Failure] = {}
        self.on_phase: OnPhase | None = None
        self._starts: OrderedDict[int, deque[Boot]] = OrderedDict()

    def begin(self, boot: Boot) -> None:
        """A machine is about to become the node of a rank."""
        boot.on_phase = self.on_phase
        self._starts.setdefault(boot.rank, deque(maxlen=STARTS)).append(boot)
        self._starts.move_to_end(boot.rank)

    def _all(self) -> Iterator[Boot]:
        return (boot for starts in self._starts.values() for boot in starts)

    def came(self, provider: str, seconds: float) -> None:
        """A machine is there that was asked for so long ago."""
        self.usual.add(provider, "", {REQUESTED: seconds})

    def up(self, boot: Boot, provider: str, *, was_there: bool = False) -> None:
        """A node is up; one that another process had started says nothing of how long that takes."""
        self.failures.pop(boot.rank, None)
        if not was_there:
            self.usual.add(provider, boot.image, boot.took)

    def failed(self, boot: Boot, error: Exception) -> None:
        """A machine did not become a node."""
        reason = str(error) or type(error).__name__
        boot.failed(reason, getattr(error, "log", ""))
        self._fail(boot.rank, boot.phase, reason)

    def refused(self, rank: int, reason: str) -> None:
        """No machine was to be had for a rank."""
        boot = Boot(rank, 0)
        boot.enter(REQUESTED)
        boot.failed(reason, "")
        self.begin(boot)
        self._fail(rank, REQUESTED, reason)

    def _fail(self, rank: int, phase: str, reason: str) -> None:
        while len(self._starts) > 1 and sum(each.size for each in self._all()) > LOGS:
            self._starts.popitem(last=False)
        first, *lines = reason.strip().splitlines()
        self.failures[rank] = Failure(phase, first.removesuffix(":"), tuple(lines[-3:]), time.monotonic())

    def phase(self, rank: int, machine: int) -> str:
        """The phase that the start of a machine is in, or ended in."""
        return next((boot.phase for boot in self._starts.get(rank, ()) if boot.machine == machine), REQUESTED)

    def log(self, rank: int) -> str:
        """What the node of a rank has said while it started, the last few times; empty where it never did."""
        starts = self._starts.get(rank, ())
        many = len(starts) > 1
        return "\n\n".join(
            f"start {number} of the last {len(starts)}\n{boot.log}" if many else boot.log
            for number, boot in enumerate(starts, 1)
        )
