"""A volume that is copied to the node before its first task, from the cache of the machine where that has it."""

import errno
import shutil
from collections.abc import Callable, Sequence, Set
from pathlib import Path

from skyward.errors import CredentialsError, StorageError
from skyward.formatting import size_text
from skyward.storage.listing import ObjectEntry, list_objects, marker_text
from skyward.wire.protocol.volumes import NodeVolume
from skyward.worker.volumes.fetched import FetchedVolume
from skyward.worker.volumes.peers import SharedFiles
from skyward.worker.volumes.trees import CachedTrees, contents_of
from skyward.worker.volumes.volume import AttachError, Fetcher, OnChange, Unsaved, check_names, listed_again

__all__ = ["CopiedVolume", "check_room"]


class CopiedVolume(FetchedVolume):
    """A read-only copy of a prefix.

    Args:
        volume: the volume.
        cache: folder of the cache of the machine.
        fetcher: source of its objects.
        show: shows a folder at the path of the volume.
        changed: called after changes of the state.
        shared: the files that other nodes may fetch.
        say: tells the user a line.
    """

    def __init__(
        self,
        volume: NodeVolume,
        cache: Path,
        fetcher: Fetcher,
        show: Callable[[Path], Path],
        changed: OnChange,
        shared: SharedFiles,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(volume, "copy", changed)
        self._shared = shared
        self._say = say
        self._trees = CachedTrees.of(cache, volume.location)
        self._fetcher = fetcher
        self._show = show
        self._contents = ""

    @property
    def contents(self) -> str:
        """Digest of the list of its objects."""
        return self._contents

    def attach(self) -> Path:
        """Fetch what the cache does not have; return the path of the copy.

        Raises:
            AttachError: the store refuses, an object could not be fetched, or the disk has no room for it.
        """
        try:
            with self._trees.fetching():
                tree = self._fetched()
                self._trees.use(self._contents)
                self._trees.remove_former(self._contents)
        except (StorageError, CredentialsError) as error:
            raise AttachError.of(error) from error
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise AttachError(f"the copy cannot be written: {error.strerror or error}", is_final=full) from error
        path = self._show(tree)
        self._update(status="ready", path=str(path), total=self._state.nbytes)
        return path

    def _fetched(self) -> Path:
        """Fetch the objects, and anew those that are changed meanwhile; return the folder of the copy."""
        location, tries, arrived = self._volume.location, 0, frozenset[str]()
        entries = list(list_objects(location, on_marker=self._name_marker))
        while True:
            check_names(location, entries)
            self._contents = contents = contents_of(entries)
            self._shared.expect(contents, entries, self._trees.part_of(contents), self._trees.tree(contents))
            tries += 1
            try:
                return self._complete(contents, entries, arrived)
            except StorageError as error:
                newer = list(listed_again(location, error, tries).values())
                arrived = self._trees.take_over(contents, entries, contents_of(newer), newer)
                entries = newer

    def _name_marker(self, marker: ObjectEntry) -> None:
        if text := marker_text(self._volume.location, marker):
            self._say(text)

    def _complete(self, contents: str, entries: Sequence[ObjectEntry], arrived: Set[str]) -> Path:
        missing = self._trees.damaged(contents, entries)
        if missing == []:
            return self._trees.tree(contents)
        folder = self._trees.tree(contents)
        if missing is None:
            linked = arrived | self._trees.link_known(contents, entries)
            missing = [each for each in entries if each.key not in linked]
            folder = self._trees.part(contents)
        size = sum(each.size for each in missing)
        check_room(folder, size)
        self._update(total=size)
        self._fetcher.fetch(missing, folder, self._arrived, contents)
        self._update(files=len(missing))
        return self._trees.finish(contents, entries)

    def refresh(self) -> None:
        """Do nothing: a copy is as it was when it was made."""

    def save(self, stalled: float) -> Unsaved:
        """Do nothing: a copy is read-only."""
        return Unsaved()

    def detach(self) -> None:
        """Let the cache remove the copy. Idempotent."""
        self._trees.release()
        self._update(status="detached")


def check_room(folder: Path, size: int) -> None:
    """Check that a disk has room for files.

    Raises:
        AttachError: it has not.
    """
    free = shutil.disk_usage(folder).free
    if size > free:
        raise AttachError(
            f"its objects need {size_text(size)}, and the disk of the node has {size_text(free)} free: take a larger "
            "disk with `disk_gb=`, a smaller prefix, or mode='mount'",
            is_final=True,
        )
