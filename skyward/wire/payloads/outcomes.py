"""Outcomes of several calls that ran in one task."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["SeriesOutcomes"]


@dataclass(frozen=True, slots=True)
class SeriesOutcomes:
    """Outcomes of the first calls of a series, in their order: plain results, other results packed, and failures.

    Attributes:
        unrun: number of calls that did not run.
    """

    ran: Sequence[object]
    unrun: int = 0

    def __iter__(self) -> Iterator[object]:
        return iter(self.ran)

    def __len__(self) -> int:
        """Return the number of calls that ran."""
        return len(self.ran)
