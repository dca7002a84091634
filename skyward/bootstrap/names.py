"""Names of packages in requirements."""

import re

__all__ = ["normalised", "requirement_name"]

_NAME = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:$|[\[<>=!~;(])")


def normalised(name: str) -> str:
    """Return the normalised name of a distribution."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement_name(requirement: str) -> str | None:
    """Return the normalised name in a requirement such as "torch[all]>=2"; None for a URL, a path or an option."""
    found = _NAME.match(requirement)
    return normalised(found[1]) if found else None
