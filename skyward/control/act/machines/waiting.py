"""Machines that wait at their provider, such as jobs in a queue, and the notices about them."""

from collections.abc import Callable
from dataclasses import dataclass, field

from skyward.formatting import count_text

__all__ = ["WaitingMachines"]

_PATIENCE = 30.0
"""Seconds that machines wait for one reason before the user is told."""


@dataclass(slots=True)
class WaitingMachines:
    """The machines of a pool that wait. There is one notice for each reason.

    Args:
        clock: returns the time in seconds.
    """

    clock: Callable[[], float]
    _reasons: dict[str, str] = field(default_factory=dict)
    _since: dict[str, float] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)

    def update(self, machine: str, detail: str) -> str:
        """Record why a machine waits, "" if nobody says; return the notice that is due, or ""."""
        reason = " ".join(word for word in detail.split() if word != machine)  # one reason for all jobs
        self._reasons[machine] = reason
        waiting = set(self._reasons.values())
        self._since = {each: since for each, since in self._since.items() if each in waiting}
        since = self._since.setdefault(reason, self.clock())
        if not reason or reason in self._told or self.clock() - since < _PATIENCE:
            return ""
        self._told.add(reason)
        count = list(self._reasons.values()).count(reason)
        return f"{count_text(count)} {'waits: ' if count == 1 else 'wait, each because '}{reason}."

    def forget(self, machine: str) -> None:
        """Forget a machine that runs, or has ended."""
        self._reasons.pop(machine, None)
