"""Sources of machines, and the backoff of sources that failed."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from skyward.providers.protocol import Market

__all__ = ["FIRST_PAUSE", "Backoff", "MachineSource"]

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 300.0
"""Seconds between requests to a source that fails: the first backoff, doubled up to the longest."""


@dataclass(frozen=True, slots=True)
class MachineSource:
    """One source of machines: a type, in a zone, in a market.

    Attributes:
        position: index of its provider among those of the group; two may have the same name but other settings.
        hourly_price: USD an hour for one machine.
    """

    provider: str
    type: str = ""
    zone: str = ""
    market: Market | Literal[""] = ""
    position: int = 0
    hourly_price: float = field(default=0.0, compare=False)

    def __str__(self) -> str:
        return " ".join(filter(None, (self.provider, self.type, self.zone, self.market)))


@dataclass(slots=True)
class _Failures:
    failures: int
    last_failure: float
    until: float


@dataclass
class Backoff:
    """Exponential backoff of the sources that failed.

    Failures of requests that were made before the last known failure count once. A success takes back one failure, not
    all of them: while only part of the requests succeed, the backoff goes on growing.
    """

    first: float = FIRST_PAUSE
    longest: float = LONGEST_PAUSE
    _failures: dict[MachineSource, _Failures] = field(default_factory=dict)

    def failed(self, source: MachineSource, asked_at: float, now: float) -> None:
        """Record that a request made at `asked_at` failed."""
        record = self._failures.get(source)
        if record is not None and asked_at < record.last_failure:
            return
        failures = record.failures + 1 if record is not None else 1
        pause = min(self.longest, self.first * 2 ** (failures - 1))
        self._failures[source] = _Failures(failures, now, now + pause)

    def succeeded(self, source: MachineSource) -> None:
        """Record that a machine of this source runs."""
        record = self._failures.get(source)
        if record is not None:
            record.failures -= 1
            if record.failures <= 0:
                del self._failures[source]

    def ready_at(self, source: MachineSource) -> float:
        """Return when the source may be used again."""
        record = self._failures.get(source)
        return 0.0 if record is None else record.until

    def choose(self, sources: Iterable[MachineSource], now: float) -> MachineSource | None:
        """Return the first source that may be used now."""
        return next((source for source in sources if self.ready_at(source) <= now), None)
