"""Durations in seconds, as Skyward's options take them: `sky.time.minutes(5)` is 300.0."""

__all__ = ["days", "hours", "minutes"]


def minutes(number: float) -> float:
    """Return `number` minutes in seconds.

    Example:
        >>> sky.Compute(nodes=2, ttl=sky.time.minutes(30))
    """
    return number * 60.0


def hours(number: float) -> float:
    """Return `number` hours in seconds.

    Example:
        >>> sky.Compute(nodes=2, default_compute_timeout=sky.time.hours(2))
    """
    return number * 3600.0


def days(number: float) -> float:
    """Return `number` days in seconds.

    Example:
        >>> sky.Compute(nodes=2, default_compute_timeout=sky.time.days(1))
    """
    return number * 86400.0
