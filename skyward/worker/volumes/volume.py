"""An attached volume, as its node handles it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from skyward.errors import CredentialsError, StorageError
from skyward.events.volumes import VolumeState
from skyward.formatting import joined
from skyward.storage.clashes import clashes
from skyward.storage.failures import CHANGED, NO_KEY, may_pass
from skyward.storage.listing import ObjectEntry, find, list_objects
from skyward.storage.location import BucketLocation

__all__ = [
    "AttachError",
    "AttachedVolume",
    "Fetcher",
    "OnChange",
    "Unsaved",
    "check_names",
    "clash_text",
    "listed_again",
]


_TRIES = 5
"""Downloads of an object that others keep changing."""

_NAMED = 5


class AttachError(Exception):
    """A volume cannot be attached.

    Args:
        why: the reason, as a sentence without its full stop.
        is_final: whether another node of the same kind would fail, too.
    """

    def __init__(self, why: str, *, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final

    @classmethod
    def of(cls, error: StorageError | CredentialsError) -> "AttachError":
        """Return the one for an error of the store, which is final unless it may be the node's own, or pass."""
        return cls(str(error).rstrip("."), is_final=not may_pass(getattr(error, "code", "")))


@dataclass(frozen=True, slots=True)
class Unsaved:
    """Changes of tasks that are not in the store.

    Attributes:
        names: files that could not be uploaded, such as "s3://bucket/a".
        why: the reason, as a sentence without its full stop.
        kept: objects that were not deleted although tasks have removed their files.
        is_tried_again: whether another attempt may succeed without a change of the files.
    """

    names: tuple[str, ...] = ()
    why: str = ""
    kept: tuple[str, ...] = ()
    is_tried_again: bool = True

    def __bool__(self) -> bool:
        return bool(self.names or self.kept)


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


def check_names(location: BucketLocation, entries: Iterable[ObjectEntry]) -> None:
    """Check that objects can be files below a folder.

    Raises:
        AttachError: one would be a file and a folder.
    """
    for key, below in clashes(entries):
        raise AttachError(clash_text(location, key, below), is_final=True)


def clash_text(location: BucketLocation, key: str, below: str) -> str:
    """Return what is wrong with a key that is also the folder of another one, as a sentence without its full stop."""
    return (
        f"{location.address(key)} and {location.address(below)} would be a file and a folder of the same name: rename "
        "one of them in the store, or choose a prefix without them"
    )


def listed_again(location: BucketLocation, error: StorageError, tries: int) -> dict[str, ObjectEntry]:
    """Return the objects of a volume by their keys, if some were changed or deleted while they were fetched.

    Args:
        location: the place of its objects.
        error: the error of fetching.
        tries: number of times that objects were fetched.

    Raises:
        StorageError: another error, or the objects do not come to rest, or the store refuses.
    """
    if error.code not in (CHANGED, NO_KEY) or not error.names:
        raise error
    if tries >= _TRIES:
        names = joined(map(location.address, error.names), _NAMED)
        raise StorageError(
            f"{names} {'was' if len(error.names) == 1 else 'were'} changed during each of {_TRIES} downloads: start "
            "the pool when nothing writes there, choose a prefix without what is written all the time, or use "
            "mode='mount'.",
            code=error.code,
            names=error.names,
        )
    # One that is listed and not there only marks a folder, and has content.
    missing = {key for key in error.names if find(location, key) is None}
    return {each.key: each for each in list_objects(location) if each.key not in missing}


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
