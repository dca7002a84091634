"""The machines that a pool knows of, over all its groups."""

__all__ = ["Roll"]


class Roll:
    """Which machines of a pool somebody has use for. A provider that is asked for a pool's machines names those of all
    its groups: what none of them knows, while none of them asks for any, is nobody's.

    Attributes:
        known: ids of machines.
        asking: requests that are under way.
    """

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.asking = 0
