"""The setting `policy_content` of Scaler as the name of a policy: `allocate=even_load; scaling=vanilla`.

Source: spec/ "Scaling Policies".
"""

from collections.abc import Collection

from skyward.errors import SpecError
from skyward.formatting import joined
from skyward.values.validation import closest

__all__ = ["scaling_of"]

_PARTS = ("allocate", "scaling")

_ALLOCATE = ("even_load", "capability")
"""Both are what the task manager does: in turn, on the nodes with a free slot that have what the task requests."""

_EXAMPLE = "`policy='allocate=even_load; scaling=vanilla'`"


def scaling_of(content: str, policies: Collection[str]) -> str:
    """Return the name of the scaling policy in `content`.

    Raises:
        SpecError: it is not of this form, or names a policy that does not exist.
    """
    parts: dict[str, str] = {}
    for part in content.split(";"):
        if not part.strip():
            continue
        key, equals, value = (each.strip() for each in part.partition("="))
        if not equals or not value:
            raise SpecError(f"The scaling policy has the part {part.strip()!r}; write NAME=VALUE, as in {_EXAMPLE}.")
        if key not in _PARTS:
            known = joined(map(repr, _PARTS))
            raise SpecError(f"The scaling policy has an unknown part {key!r}; the parts are {known}, as in {_EXAMPLE}.")
        if key in parts:
            raise SpecError(f"The scaling policy has the part {key!r} twice; write it once, as in {_EXAMPLE}.")
        parts[key] = value
    if (allocate := parts.get("allocate", _ALLOCATE[0])) not in _ALLOCATE:
        known = closest(allocate, _ALLOCATE).replace("it has", "they are")
        raise SpecError(f"There is no allocation policy {allocate!r}; {known}")
    if (scaling := parts.get("scaling")) is None:
        raise SpecError(f"The scaling policy {content!r} has no part 'scaling'; write it as in {_EXAMPLE}.")
    if scaling not in policies:
        known = closest(scaling, policies).replace("it has", "they are")
        raise SpecError(f"There is no scaling policy {scaling!r}; {known}")
    return scaling
