"""The volumes of a node: attached before its first task, saved after each task, and flushed before the node ends."""

import json
import os
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Event as ThreadEvent
from threading import Lock, Thread  # tasks may replace the attributes of the module

from skyward.caches.users import CacheUsers
from skyward.errors import CredentialsError, StorageError
from skyward.events.volumes import VolumeState
from skyward.formatting import count_text, joined
from skyward.process.clock import clock
from skyward.storage.clashes import clashes
from skyward.storage.failures import BAD_KEY
from skyward.storage.listing import check, list_objects
from skyward.task.volumes import VOLUMES
from skyward.wire.protocol.messages import Output, WorkerEvent
from skyward.wire.protocol.volumes import (
    AttachVolumes,
    NodeVolume,
    VolumesAttached,
    VolumesFlushed,
    VolumeStates,
    VolumesWritten,
)
from skyward.worker.volumes.copied import CopiedVolume
from skyward.worker.volumes.mounted import MountedVolume
from skyward.worker.volumes.peers import Connect, PeerFetcher, SharedFiles
from skyward.worker.volumes.places import PlaceError, Space, clear_abandoned
from skyward.worker.volumes.pruning import SYNCED, WAITING
from skyward.worker.volumes.spaces import SPACE
from skyward.worker.volumes.store import StoreFetcher
from skyward.worker.volumes.synced import SyncedVolume
from skyward.worker.volumes.tools import find_tool, fuse_problem
from skyward.worker.volumes.volume import AttachedVolume, AttachError, Fetcher, Unsaved, clash_text

__all__ = ["Volumes"]

STALLED = 60.0
"""Seconds without progress after which files are given up that cannot be uploaded."""

_NAMED = 20
"""Files that are named in a message at most."""

LOOKED_AT = 10_000
"""Objects of a mounted volume whose keys are looked at, ten lists of them: a bucket may have millions."""

_TELL_EVERY = 0.5


class Volumes:
    """The volumes of one node. Its methods may be called from any thread, and block, unless they say otherwise.

    Args:
        node: rank of the node.
        tell: sends an event to the client.
        scratch: the folder that is removed with the node; None if there is none.
        connect: opens a connection to the transfer port of another node.

    Attributes:
        shared: the files that other nodes may fetch.
        closed: set once everything is uploaded, or given up, and all mounts are removed.
    """

    def __init__(self, node: int, tell: Callable[[WorkerEvent], None], scratch: Path | None, connect: Connect) -> None:
        self.shared = SharedFiles()
        self._connect = connect
        self._node = node
        self._tell = tell
        self._is_local = False
        self._scratch = scratch
        self.closed = ThreadEvent()
        self._space: Space | None = None
        self._attached: list[AttachedVolume] = []
        self._lock = Lock()
        self._stale: dict[str, int] = {}
        self._told_at = 0.0
        self._told: tuple[VolumeState, ...] = ()
        self._telling = False
        self._is_closing = False

    def attach(self, command: AttachVolumes) -> None:
        """Attach volumes on a thread, and send `VolumesAttached`. Does not block."""
        Thread(target=self._attach, args=(command,), name="skyward-volumes", daemon=True).start()

    def _attach(self, command: AttachVolumes) -> None:
        paths: list[str] = []
        self._is_local = command.is_local
        try:
            self._space = Space(os.environ.get(SPACE) or f"worker-{os.getpid()}")
            clear_abandoned()
            cache = _cache_folder(command.cache)
            CacheUsers(cache).enter(self._space.folder.name)
            for index, volume in enumerate(command.volumes):
                source: Fetcher = StoreFetcher(volume.location)
                if index < len(command.peers) and command.peers[index]:
                    source = PeerFetcher(command.peers[index], self._connect, source)
                try:
                    paths.append(str(self._attach_one(volume, index, cache, source)))
                except (AttachError, PlaceError) as error:
                    where = f"Volume {volume.location.describe} at {volume.mount}"
                    is_final = isinstance(error, PlaceError) or error.is_final
                    self._tell(VolumesAttached(f"{where} could not be attached: {error}", is_final))
                    return
        except Exception as error:
            self._tell(VolumesAttached(f"The volumes could not be attached: {type(error).__name__}: {error}"))
            return
        self.shared.attaching = False
        attached = dict(zip([each.mount for each in command.volumes], paths, strict=True))
        os.environ[VOLUMES] = json.dumps({**json.loads(os.environ.get(VOLUMES, "{}")), **attached})
        self.tell_states()
        self._tell(VolumesAttached(contents=tuple(each.contents for each in self._attached)))

    def _attach_one(self, volume: NodeVolume, index: int, cache: Path, fetcher: Fetcher) -> Path:
        try:
            check(volume.location)
            if volume.read_only and next(iter(list_objects(volume.location)), None) is None:
                raise AttachError("there are no objects, and it is read-only: check bucket and prefix", is_final=True)
        except (StorageError, CredentialsError) as error:
            raise AttachError.of(error) from error
        problem = fuse_problem() if volume.mode in ("auto", "mount") else "unused"
        if volume.mode == "mount" and problem:
            other = "copy" if volume.read_only else "sync"
            raise AttachError(f"{problem}, which mode='mount' needs: install it, or use mode={other!r}", is_final=True)
        if not problem:
            try:
                path = self._add(self._mounted(volume, index, cache))
            except AttachError as error:
                if volume.mode == "mount":
                    raise
                problem = str(error)
            else:
                Thread(target=self._name_hidden, args=(volume,), name="skyward-volumes-look", daemon=True).start()
                return path
        if volume.mode == "sync":
            return self._add(self._synced(volume, index, cache, fetcher))
        if not volume.read_only:
            raise AttachError(f"{problem}: use mode='sync' for a volume that tasks write to", is_final=True)
        return self._add(
            CopiedVolume(
                volume, cache, fetcher, partial(self._show_copy, volume), self._changed, self.shared, self._say
            )
        )

    def _mounted(self, volume: NodeVolume, index: int, cache: Path) -> AttachedVolume:
        tool = find_tool(read_only=volume.read_only)
        assert tool is not None
        assert self._space is not None
        state = cache / WAITING / f"{self._space.folder.name}-{index}"
        return MountedVolume(volume, tool, self._space, state, partial(self._show, volume), self._changed)

    def _name_hidden(self, volume: NodeVolume) -> None:
        """Tell the user of objects that a mount does not show as files, among the first of the volume."""
        location, where = volume.location, f"the volume at {volume.mount} may not show an object"
        try:
            for key, below in islice(clashes(islice(list_objects(location), LOOKED_AT)), _NAMED):
                self._say(f"{where}: {clash_text(location, key, below)}.")
        except (StorageError, CredentialsError) as error:  # others than of keys are met by tasks
            if getattr(error, "code", "") == BAD_KEY:
                self._say(f"{where}: {error}")

    def _synced(self, volume: NodeVolume, index: int, cache: Path, fetcher: Fetcher) -> AttachedVolume:
        assert self._space is not None
        folder = cache / SYNCED / f"{self._space.folder.name}-{index}"
        folder.mkdir(parents=True)
        return SyncedVolume(
            volume,
            folder,
            fetcher,
            partial(self._show, volume),
            self._changed,
            self._say,
            lambda files: self._tell(VolumesWritten(volume.mount, files)),
        )

    def _add(self, attached: AttachedVolume) -> Path:
        self._attached.append(attached)
        try:
            return attached.attach()
        except BaseException:
            self._attached.remove(attached)
            attached.detach()
            raise

    def _show(self, volume: NodeVolume, folder: Path) -> Path:
        """Show a folder at the path of a volume; return the path by which tasks find it."""
        assert self._space is not None
        if self._is_local and self._scratch is not None:
            at = self._scratch / "volumes" / volume.mount.lstrip("/")
        else:
            at = Path(volume.mount)
        self._space.place(folder, at, read_only=volume.read_only, link=self._is_local)
        return at

    def _show_copy(self, volume: NodeVolume, folder: Path) -> Path:
        """Show a copy, which other nodes and pools share: root could write to it by a link."""
        assert self._space is not None
        return self._show(volume, self._space.read_only(folder) if self._is_local else folder)

    def stale(self, mounts: tuple[str, ...]) -> None:
        """Note that other nodes have written to volumes. Does not block."""
        for mount in mounts:
            self._stale[mount] = self._stale.get(mount, 0) + 1

    def before_task(self) -> None:
        """Look for what other nodes and programs have written.

        Raises:
            StorageError: that is not possible.
        """
        for attached in self._attached:
            if isinstance(attached, MountedVolume):
                attached.refresh()
        if not self._stale:
            return
        with self._lock:
            for attached in self._attached:
                mount = attached.state.mount
                if reports := self._stale.get(mount):
                    attached.refresh()
                    if self._stale[mount] == reports:  # none has come meanwhile; until now, other tasks wait
                        del self._stale[mount]

    def after_task(self) -> str:
        """Upload what tasks have written; return a sentence if that was not possible, and else ""."""
        left = self._save(STALLED)
        again = ". The next task of that node tries again" if any(each and each.is_tried_again for each in left) else ""
        return _sentence(left) + again

    def save_soon(self) -> None:
        """Begin to upload what waits for it, since the machine will be taken away. Does not block."""
        if self._attached:
            Thread(target=self._save, args=(STALLED,), name="skyward-volumes-save", daemon=True).start()

    def _save(self, stalled: float) -> list[Unsaved]:
        """Upload what waits for it, and send the states if that has changed them; return what is left."""
        left = [attached.save(stalled) for attached in tuple(self._attached)]
        if self._states() != self._told:
            self.tell_states()
        return left

    def close(self, stalled: float = STALLED) -> None:
        """Upload what waits for it, tell the client what could not be, and remove all mounts. Idempotent."""
        with self._lock:
            is_closing, self._is_closing = self._is_closing, True
        if is_closing:
            self.closed.wait()
            return
        if self._attached:
            left = self._save(stalled)
            left += [each.unclosed() for each in self._attached if isinstance(each, MountedVolume)]
            self._tell(VolumesFlushed(_sentence(left)))
        for attached in self._attached:
            attached.detach()
        if self._space is not None:
            self._space.clear()
        self.closed.set()

    def _say(self, line: str) -> None:
        self._tell(Output(0, "stderr", f"{line}\n"))

    def tell_states(self) -> None:
        """Send the states to the client. Does not block."""
        self._told_at, self._told = clock.monotonic(), self._states()
        self._tell(VolumeStates(self._told))

    def _states(self) -> tuple[VolumeState, ...]:
        return tuple(each.state for each in tuple(self._attached))

    def _changed(self) -> None:
        """Send the states to the client, at most twice a second."""
        pause = self._told_at + _TELL_EVERY - clock.monotonic()
        if pause <= 0:
            self.tell_states()
        elif not self._telling:
            self._telling = True
            Thread(target=self._tell_later, args=(pause,), name="skyward-volumes-tell", daemon=True).start()

    def _tell_later(self, pause: float) -> None:
        clock.sleep(pause)
        self._telling = False
        self.tell_states()


def _cache_folder(given: str) -> Path:
    """Return the folder of the cache: the given one, or that in Skyward's directory on the machine."""
    own = "/opt/skyward" if os.geteuid() == 0 else "~/.skyward"
    return Path(given or f"{own}/volumes").expanduser()


def _sentence(left: list[Unsaved]) -> str:
    """Return what could not be saved, and why, as a sentence without its full stop; "" if there is nothing."""
    return "; ".join(map(_part, filter(None, left)))


def _part(left: Unsaved) -> str:
    parts = [left.why]
    if left.kept:
        count, kept = len(left.kept), joined(left.kept, _NAMED)
        text = f"{count_text(count, 'object')} {'was' if count == 1 else 'were'} not deleted"
        parts.insert(0, f"{text}, since files that could not be uploaded may have their content: {kept}")
        if not left.names:
            parts[0] = f"{text}: {kept}"
    if left.names:
        parts.insert(0, f"{count_text(len(left.names), 'file')} could not be uploaded: {joined(left.names, _NAMED)}")
    return "; ".join(parts)
