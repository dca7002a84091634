"""Time under the control of a test."""

__all__ = ["ManualClock"]


class ManualClock:
    """Clock that stands still until a test sets `now`."""

    now = 0.0

    def __call__(self) -> float:
        return self.now
