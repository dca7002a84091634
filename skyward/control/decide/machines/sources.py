"""Where machines come from, and how long a place that failed is left alone."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from skyward.providers.protocol import Market

__all__ = ["FIRST_PAUSE", "Backoff", "MachineSource"]

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 300.0
"""Seconds between requests to a place that fails: the first pause, doubled up to the longest."""


@dataclass(frozen=True, slots=True)
class MachineSource:
    """One source of machines: a type, in a zone, in a market.

    Attributes:
        position: of its provider among those of the group; two of them may have the same name, and other settings.
        hourly_price: of one machine, USD.
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
class _Trouble:
    failures: int
    last_failure: float
    until: float


@dataclass
class Backoff:
    """Which places are to be left alone, and until when.

    Failures of requests that were made before the last failure was known count once. A success takes one failure back
    and not all of them: where only part of what is asked for is there, the pauses go on growing.
    """

    first: float = FIRST_PAUSE
    longest: float = LONGEST_PAUSE
    _troubles: dict[MachineSource, _Trouble] = field(default_factory=dict)

    def failed(self, place: MachineSource, asked_at: float, now: float) -> None:
        """A request made at `asked_at` gave nothing."""
        trouble = self._troubles.get(place)
        if trouble is not None and asked_at < trouble.last_failure:
            return
        failures = trouble.failures + 1 if trouble is not None else 1
        pause = min(self.longest, self.first * 2 ** (failures - 1))
        self._troubles[place] = _Trouble(failures, now, now + pause)

    def worked(self, place: MachineSource) -> None:
        """A machine of this place runs."""
        trouble = self._troubles.get(place)
        if trouble is not None:
            trouble.failures -= 1
            if trouble.failures <= 0:
                del self._troubles[place]

    def ready_at(self, place: MachineSource) -> float:
        """When the place may be asked again."""
        trouble = self._troubles.get(place)
        return 0.0 if trouble is None else trouble.until

    def choose(self, places: Iterable[MachineSource], now: float) -> MachineSource | None:
        """The first place that may be asked now."""
        return next((place for place in places if self.ready_at(place) <= now), None)
