"""An attached volume, as its node handles it."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from skyward.events.volumes import VolumeState

__all__ = ["AttachError", "AttachedVolume", "OnChange"]


class AttachError(Exception):
    """A volume cannot be attached.

    Args:
        why: the reason, as a sentence without its full stop.
        is_final: whether another node of the same kind would fail, too.
    """

    def __init__(self, why: str, *, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final


class AttachedVolume(Protocol):
    """A volume on this node. Its methods may be called from any thread, and block."""

    @property
    def state(self) -> VolumeState:
        """Its current state."""

    @property
    def contents(self) -> str:
        """Digest of the list of its objects, if that does not change; else ""."""

    def attach(self) -> Path:
        """Make its files available; return the folder that has them.

        Raises:
            AttachError: that is not possible.
        """

    def refresh(self) -> None:
        """Look for changes that other nodes have made."""

    def save(self, stalled: float) -> list[str]:
        """Upload what tasks have written; return the names of the files that could not be, with the reason last.

        Args:
            stalled: seconds without progress after which the rest is given up.
        """

    def detach(self) -> None:
        """End what keeps the volume available. Idempotent."""


type OnChange = Callable[[], None]
"""Callback for changes of a volume's state."""
