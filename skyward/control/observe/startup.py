"""Starts of nodes: the current phase and log of each, usual durations of phases, and failures.

Bookkeeping only; decides nothing. Lives on the library's loop.
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
from skyward.formatting import duration_text
from skyward.journal import Journal

__all__ = [
    "BOOTING",
    "REQUESTED",
    "WARM",
    "NodeStartup",
    "StartupFailure",
    "StartupTracker",
    "UsualTimes",
    "usual_start",
]

SAMPLES = 9
"""Latest starts that count for usual durations; also the maximum that one pool adds to the record."""

STARTS = 3
"""Starts of each rank whose logs are kept."""

LONGEST = 256 * 1024
LOGS = 8 * 1024 * 1024
"""Characters that are kept of one log, and of all logs of a pool."""

REQUESTED = "requested"
"""The phase of a requested machine. It does not depend on the image."""

WARM = "warm"
"""The phase of a machine that is kept for later nodes."""


BOOTING = "booting"
"""The phase of a machine that its provider has launched, and that does not run yet."""


START = "start"
"""All phases of a start together, after the request: starts differ in the phases that they need."""


class Durations(Protocol):
    """A record of the durations of phases that outlives the process, such as `PoolRecord`."""

    def took(self, provider: str, image: str) -> Mapping[str, list[float]]:
        """Return the latest durations of each phase, in seconds."""

    def add_phase_seconds(self, provider: str, image: str, seconds: Mapping[str, float], keep: int) -> None:
        """Add the durations of the phases of one start, and keep the latest `keep`."""


class UsualTimes:
    """Usual durations of phases: the median of the latest ones, for a provider and the identity of an image.

    Best effort: a record that cannot be read or written is ignored.
    """

    def __init__(self, record: Durations) -> None:
        self._record = record
        self._known: dict[tuple[str, str], dict[str, deque[float]]] = {}
        self._added: dict[tuple[str, str], int] = {}

    def of(self, provider: str, image: str, phase: str) -> float | None:
        """Return the usual seconds of a phase; None if unknown."""
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
        """Add the durations of one start. The first few of a pool are written to the record, which blocks briefly."""
        seen = self._seen(provider, image)
        for phase, took in seconds.items():
            seen.setdefault(phase, deque(maxlen=SAMPLES)).append(took)
        added = self._added.get((provider, image), 0)
        if seconds and added < SAMPLES:
            self._added[provider, image] = added + 1
            with suppress(JournalError):
                self._record.add_phase_seconds(provider, image, seconds, SAMPLES)


def usual_start(provider: str, image: str = "") -> float | None:
    """Return the usual seconds from a request of a machine to an active node; None if unknown.

    Args:
        provider: name of the provider.
        image: identity of the image, `Plan.image_hash`; that of the latest start counts if it is new or empty.
    """
    try:
        with Journal() as journal:
            requests = journal.took(provider, "").get(REQUESTED)
            starts = journal.took(provider, image).get(START) if image else None
            latest = journal.latest_image(provider)
            starts = starts or (journal.took(provider, latest).get(START) if latest else None)
    except JournalError:
        return None
    return median(starts) + (median(requests) if requests else 0.0) if starts else None


type OnPhase = Callable[["NodeStartup", str, float | None], object]
"""Callback for a phase of a start: None when it begins, its seconds when it completes."""


class NodeStartup:
    """The start of one machine.

    Attributes:
        on_phase: callback for its phases.
        phase, since: the current phase, and its start on the monotonic clock.
        image: identity of the image that it gets; empty if its environment exists already.
        took: seconds of its phases, except those that were over at once.
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
        """Enter a phase; return it."""
        if phase != self.phase:
            now = time.monotonic()
            if self.phase:
                self.took[self.phase] = self.took.get(self.phase, 0.0) + now - self.since
            self.phase, self.since = phase, now
            self._note(phase)
            if self.on_phase is not None:
                self.on_phase(self, phase, None)
        return phase

    def on_phase_event(self, event: PhaseEvent) -> str:
        """Handle an event of its bootstrap; return the current phase."""
        match event.event:
            case "started":
                self.enter(event.phase)
                for line in event.lines:
                    self._note(line)
            case "completed":
                self._note(f"{event.phase}: done in {duration_text(event.elapsed)}")
                for line in event.lines:
                    self._note(line)
                self._completed(event.phase, event.elapsed)
            case "skipped":
                self._note(f"{event.phase}: nothing to do")
                self._completed(event.phase, 0.0)
            case "failed":
                pass  # `failed` gets the reason and the log
        return self.phase

    def _completed(self, phase: str, elapsed: float) -> None:
        if self.on_phase is not None:
            self.on_phase(self, phase, elapsed)

    def failed(self, reason: str, log: str) -> None:
        """Record its failure. `log`: its full output, if that is more than the reason says."""
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
        """Number of characters of its log."""
        return self._size

    @property
    def log(self) -> str:
        """Its log, with a line for each phase."""
        return "\n".join(self._lines)


@dataclass(frozen=True, slots=True)
class StartupFailure:
    """The latest failed start of a rank.

    Attributes:
        phase: phase in which it failed.
        reason: the reason, in one line.
        lines: the last lines of its output.
        at: time of the failure, on the monotonic clock.
    """

    phase: str
    reason: str
    lines: tuple[str, ...]
    at: float


class StartupTracker:
    """The starts of the nodes of one pool.

    Attributes:
        usual: usual durations of phases.
        failures: by rank, the latest failed start, until a later one succeeds.
        on_phase: callback for the phases of every start.
    """

    def __init__(self, record: Durations) -> None:
        self.usual = UsualTimes(record)
        self.failures: dict[int, StartupFailure] = {}
        self.on_phase: OnPhase | None = None
        self._starts: OrderedDict[int, deque[NodeStartup]] = OrderedDict()

    def begin(self, boot: NodeStartup) -> None:
        """Add the start of a machine."""
        boot.on_phase = self.on_phase
        self._starts.setdefault(boot.rank, deque(maxlen=STARTS)).append(boot)
        self._starts.move_to_end(boot.rank)

    def _all(self) -> Iterator[NodeStartup]:
        return (boot for starts in self._starts.values() for boot in starts)

    def add_allocation(self, provider: str, seconds: float) -> None:
        """Record that a machine was allocated, `seconds` after its request."""
        self.usual.add(provider, "", {REQUESTED: seconds})

    def completed(self, boot: NodeStartup, provider: str, *, attached: bool = False) -> None:
        """Record that a node is active; a node that another process had started does not count for usual durations."""
        self.failures.pop(boot.rank, None)
        if not attached:
            self.usual.add(provider, boot.image, {**boot.took, START: sum(boot.took.values())} if boot.took else {})

    def failed(self, boot: NodeStartup, error: Exception) -> None:
        """Record that a machine failed to become a node."""
        reason = str(error) or type(error).__name__
        boot.failed(reason, getattr(error, "log", ""))
        self._fail(boot.rank, boot.phase, reason)

    def refused(self, rank: int, reason: str) -> None:
        """Record that no machine could be launched for a rank."""
        boot = NodeStartup(rank, 0)
        boot.enter(REQUESTED)
        boot.failed(reason, "")
        self.begin(boot)
        self._fail(rank, REQUESTED, reason)

    def _fail(self, rank: int, phase: str, reason: str) -> None:
        while len(self._starts) > 1 and sum(each.size for each in self._all()) > LOGS:
            self._starts.popitem(last=False)
        first, *lines = reason.strip().splitlines()
        self.failures[rank] = StartupFailure(phase, first.removesuffix(":"), tuple(lines[-3:]), time.monotonic())

    def phase(self, rank: int, machine: int) -> str:
        """Return the phase that the start of a machine is in, or ended in."""
        return next((boot.phase for boot in self._starts.get(rank, ()) if boot.machine == machine), REQUESTED)

    def log(self, rank: int) -> str:
        """Return the logs of the latest starts of a rank; empty if there are none."""
        starts = self._starts.get(rank, ())
        many = len(starts) > 1
        return "\n\n".join(
            f"start {number} of the last {len(starts)}\n{boot.log}" if many else boot.log
            for number, boot in enumerate(starts, 1)
        )
