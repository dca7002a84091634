"""Placements of a gang: how its members are spread over the nodes."""

from typing import Any, Literal, get_args

from skyward.errors import SpecError
from skyward.values.validation import shown

__all__ = ["GANG_PLACEMENTS", "GangPlacement", "gang_placement"]

type GangPlacement = Literal["pack", "spread", "strict_pack", "strict_spread"]
"""Placement of the members of a gang: on as few nodes as possible, on as many as possible, on one node, or each on a
node of its own. The strict ones are conditions; the others only preferences."""

GANG_PLACEMENTS: tuple[GangPlacement, ...] = get_args(GangPlacement.__value__)


def gang_placement(given: Any) -> GangPlacement:
    """Return `given` if it is a placement.

    Raises:
        SpecError: it is not.
    """
    if isinstance(given, str) and given in GANG_PLACEMENTS:
        return given
    known = ", ".join(map(repr, GANG_PLACEMENTS))
    raise SpecError(f"placement must be one of {known}, but got {shown(given)}.")
