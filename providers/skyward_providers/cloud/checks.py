"""Checks of what credentials may do."""

from collections.abc import Awaitable, Callable, Mapping

from skyward.errors import SkywardError
from skyward.providers import Check

__all__ = ["run_checks"]


async def run_checks(calls: Mapping[str, Callable[[], Awaitable[object]]]) -> list[Check]:
    """Make requests, and return a check for each: what it shows, and its problem if it raises a `SkywardError`.

    A request that returns text has a problem of its own: that text, if it is not empty.
    """
    checks = []
    for what, call in calls.items():
        try:
            found = await call()
        except SkywardError as error:
            checks.append(Check(what, str(error)))
        else:
            checks.append(Check(what, found if isinstance(found, str) else ""))
    return checks
