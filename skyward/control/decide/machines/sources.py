"""Sources of machines, and the backoff of sources that failed."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from skyward.providers.protocol import Market

__all__ = ["FIRST_PAUSE", "NO_CAPACITY_PAUSE", "PATIENCE", "QUOTA_PAUSE", "Backoff", "MachineSource", "RefusalKind"]

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 300.0
"""Seconds between requests to a source that fails: the first backoff, doubled up to the longest."""

PATIENCE = 3
"""Requests in a row that a source may fail to answer before the next source, which may cost more, is asked."""

LONGEST_WAIT = 60.0
"""Seconds that a provider may ask to wait without the next source being asked instead."""


@dataclass(frozen=True, slots=True)
class MachineSource:
    """One source of machines: a type, in a zone, in a market.

    Attributes:
        market: "" if it is unknown.
        position: index of its provider among those of the group; two may have the same name but other settings.
        group: group that it launches machines for: providers of the same name may have other settings in each.
        hourly_price: USD an hour for one machine.
        lender: number of the journal's entry of another pool whose warm machines were taken over; 0 for machines that
            this pool launches.
    """

    provider: str
    type: str = ""
    zone: str = ""
    market: Market | Literal[""] = ""
    position: int = 0
    group: str = ""
    hourly_price: float = field(default=0.0, compare=False)
    lender: int = 0

    def __str__(self) -> str:
        return " ".join(filter(None, (self.provider, self.type, self.zone, self.market)))


NO_CAPACITY_PAUSE = 300.0
QUOTA_PAUSE = 3600.0
"""Seconds without a request to a source that has no machine now, and to one of which the account may have no more."""

type RefusalKind = Literal["unknown", "capacity", "quota", "rate", "impossible", "denied"]
"""The kind of a refused request: for an unknown reason; there is no such machine now; the account may have no more of
them; too many requests; there never is one; or the provider takes no requests of this account at all."""


_TRANSIENT: frozenset[RefusalKind] = frozenset({"unknown", "rate"})
"""Kinds of refusals that say nothing about the stock of a source."""


@dataclass(slots=True)
class _Failures:
    """Failures of a source; `unanswered`: those in a row that say nothing about its stock."""

    failures: int
    last_failure: float
    until: float
    unanswered: int = 0


@dataclass
class Backoff:
    """Backoff of the sources that failed: exponential, or as long as the kind of a refusal demands.

    A source whose answer is lost, or that refuses for an unknown reason, may well have machines: it is waited for, and
    no other source is asked meanwhile, until that has happened `patience` times in a row.

    Failures of requests that were made before the last known failure count once. A success takes back one failure, not
    all of them: while only part of the requests succeed, the backoff goes on growing. Neither shortens the pause that
    the kind of a refusal demands: a machine that starts was requested before.

    Attributes:
        no_capacity: pause of a source that has no machine now.
        patience: failures in a row after which a source is waited for no longer.
    """

    first: float = FIRST_PAUSE
    longest: float = LONGEST_PAUSE
    no_capacity: float = NO_CAPACITY_PAUSE
    patience: int = PATIENCE
    _failures: dict[MachineSource, _Failures] = field(default_factory=dict)
    _resting: dict[MachineSource, float] = field(default_factory=dict)
    _denied: set[tuple[str, int, str]] = field(default_factory=set)
    _answered_at: dict[MachineSource, float] = field(default_factory=dict)

    @property
    def is_clear(self) -> bool:
        """True if no source has failed of late."""
        return not (self._failures or self._resting or self._denied)

    def failed(
        self,
        source: MachineSource,
        asked_at: float,
        now: float,
        kind: RefusalKind = "unknown",
        retry_after: float | None = None,
    ) -> None:
        """Record that a request made at `asked_at` failed."""
        if kind == "denied":
            self._denied.add((source.provider, source.position, source.group))
        pauses = {"capacity": self.no_capacity, "quota": QUOTA_PAUSE, "impossible": inf}
        rest = now + max(pauses.get(kind, 0.0), retry_after or 0.0)
        self._resting[source] = max(self._resting.get(source, 0.0), rest)
        record = self._failures.get(source)
        if record is not None and asked_at < record.last_failure:
            return
        failures, before = (1, 0) if record is None else (record.failures + 1, record.unanswered)
        pause = min(self.longest, self.first * 2 ** (failures - 1))
        self._failures[source] = _Failures(failures, now, now + pause, before + 1 if kind in _TRANSIENT else 0)

    def answered(self, source: MachineSource, now: float) -> None:
        """Record that a request was answered with a machine."""
        self._answered_at[source] = now
        if (record := self._failures.get(source)) is not None:
            record.unanswered = 0

    def gave_since(self, source: MachineSource, asked_at: float) -> bool:
        """Return whether the source has given a machine since `asked_at`."""
        return self._answered_at.get(source, -inf) >= asked_at

    def succeeded(self, source: MachineSource) -> None:
        """Record that a machine of this source runs."""
        record = self._failures.get(source)
        if record is not None:
            record.failures -= 1
            if record.failures <= 0:
                del self._failures[source]

    def ready_at(self, source: MachineSource) -> float:
        """Return when the source may be used again; infinity for never."""
        if (source.provider, source.position, source.group) in self._denied:
            return inf
        record = self._failures.get(source)
        return max(self._resting.get(source, 0.0), 0.0 if record is None else record.until)

    def choose(self, sources: Iterable[MachineSource], now: float) -> MachineSource | None:
        """Return the first source that may be used now; None if there is none, or an earlier one is waited for."""
        for source in sources:
            if self.ready_at(source) <= now:
                return source
            if self._is_awaited(source, now):
                return None
        return None

    def awaits(self, sources: Iterable[MachineSource], now: float) -> bool:
        """Return whether no source is to be used now because one that failed is waited for."""
        sources = tuple(sources)
        return self.choose(sources, now) is None and any(self._is_awaited(source, now) for source in sources)

    def retry_at(self, sources: Iterable[MachineSource], now: float) -> float:
        """Return when one of the sources may be used; infinity for never."""
        earliest = inf
        for source in sources:
            earliest = min(earliest, self.ready_at(source))
            if self._is_awaited(source, now):
                break
        return earliest

    def _is_awaited(self, source: MachineSource, now: float) -> bool:
        record = self._failures.get(source)
        if record is None or not 0 < record.unanswered < self.patience:
            return False
        return now < self.ready_at(source) < inf and self._resting.get(source, 0.0) <= now + LONGEST_WAIT
