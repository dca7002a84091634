"""The store as the source of the objects of a volume."""

from collections.abc import Callable, Sequence
from pathlib import Path

from skyward.storage.listing import ObjectEntry
from skyward.storage.location import BucketLocation
from skyward.storage.trees import download_many

__all__ = ["StoreFetcher"]


class StoreFetcher:
    """Source that fetches every object from the store."""

    def __init__(self, location: BucketLocation) -> None:
        self._location = location

    def fetch(
        self, entries: Sequence[ObjectEntry], folder: Path, arrived: Callable[[int, bool], None], contents: str = ""
    ) -> None:
        """Fetch objects into a folder.

        Raises:
            StorageError: an object could not be fetched.
        """
        download_many(self._location, entries, folder, progress=lambda count: arrived(count, False))
