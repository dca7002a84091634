"""The time that a policy of the user takes to decide. The clock is a parameter; no I/O."""

from collections.abc import Callable
from types import TracebackType

from skyward.scaling.snapshot.wording import seconds_text

__all__ = ["SLOW", "PolicyStopwatch"]

SLOW = 0.1
"""Seconds of a decision from which a policy is pointed out."""


class PolicyStopwatch:
    """Measures the decisions of a policy, each in a `with` block, and warns once of a slow one."""

    def __init__(self, policy: str, clock: Callable[[], float]) -> None:
        self._policy = policy
        self._clock = clock
        self._began = 0.0
        self._warning = ""
        self._has_warned = False

    def __enter__(self) -> None:
        self._began = self._clock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        took = self._clock() - self._began
        if took > SLOW and not self._has_warned:
            self._has_warned = True
            self._warning = (
                f"policy {self._policy!r} took {seconds_text(round(took, 1))} to decide, in which the pool neither "
                f"starts tasks nor takes their results. Its `decide` should take less than {SLOW:g} s: let it only "
                "compute, and read files or services in a thread of your own, whose latest result it uses."
            )

    def take_warning(self) -> str:
        """Return the warning of a slow decision, once; empty if there is none."""
        warning, self._warning = self._warning, ""
        return warning
