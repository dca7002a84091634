"""Base of the control plane's effects."""

from dataclasses import dataclass, field

__all__ = ["CausedEffect"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CausedEffect:
    """An effect of one step of the control plane.

    Attributes:
        cause: number of the message that was handled in this step (`skyward.control.decide.causes`). Not compared.
    """

    cause: int = field(default=0, compare=False)
