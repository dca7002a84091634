"""Times in the seconds that Skyward's options take: `sky.time.minutes(5)` is 300.0."""

__all__ = ["days", "hours", "minutes"]


def minutes(number: float) -> float:
    """Seconds in `number` minutes."""
    return number * 60.0


def hours(number: float) -> float:
    """Seconds in `number` hours."""
    return number * 3600.0


def days(number: float) -> float:
    """Seconds in `number` days."""
    return number * 86400.0
