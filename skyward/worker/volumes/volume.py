"""An attached volume, as its node handles it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from skyward.events.volumes import VolumeState
from skyward.storage.listing import ObjectEntry

__all__ = ["AttachError", "AttachedVolume", "Fetcher", "OnChange", "Unsaved"]


class AttachError(Exception):
    """A volume cannot be attached.

    Args:
        why: the reason, as a sentence without its full stop.
        is_final: whether another node of the same kind would fail, too.
    """

    def __init__(self, why: str, *, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class Unsaved:
    """Files that could not be uploaded, such as "s3://bucket/a", and the reason."""

    names: tuple[str, ...] = ()
    why: str = ""

    def __bool__(self) -> bool:
        return bool(self.names)


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

    def save(self, stalled: float) -> Unsaved:
        """Upload what tasks have written; return what could not be.

        Args:
            stalled: seconds without progress after which the rest is given up.
        """

    def detach(self) -> None:
        """End what keeps the volume available. Idempotent."""


class Fetcher(Protocol):
    """Source of the objects of a volume: other nodes, and the store."""

    def fetch(
        self, entries: Sequence[ObjectEntry], folder: Path, arrived: Callable[[int, bool], None], contents: str = ""
    ) -> None:
        """Fetch objects into a folder.

        Args:
            entries: the objects.
            folder: the folder; its files have the keys of the objects as their paths.
            arrived: called with the number of bytes that have arrived, and whether they came from another node.
            contents: digest of the copy that they belong to; "" if they are no part of one.

        Raises:
            StorageError: an object could not be fetched.
        """


type OnChange = Callable[[], None]
"""Callback for changes of a volume's state."""
