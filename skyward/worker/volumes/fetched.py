"""Common part of the volumes whose files are on the node's disk: their state, and the count of what was fetched."""

from dataclasses import replace
from threading import Lock  # tasks may replace the attributes of the module
from typing import Any, Literal

from skyward.events.volumes import VolumeState
from skyward.wire.protocol.volumes import NodeVolume
from skyward.worker.volumes.volume import OnChange

__all__ = ["FetchedVolume"]


class FetchedVolume:
    """A volume whose files are fetched. Its state may be changed by several threads.

    Args:
        volume: the volume.
        mode: way in which its files are on the node.
        changed: called after changes of the state.
    """

    def __init__(self, volume: NodeVolume, mode: Literal["copy", "sync"], changed: OnChange) -> None:
        self._volume = volume
        self._changed = changed
        self._changing = Lock()
        source, read_only = volume.location.describe, volume.read_only
        self._state = VolumeState(volume.mount, source, mode, read_only, "", "attaching")

    @property
    def state(self) -> VolumeState:
        """Its current state."""
        return self._state

    def _update(self, **changes: Any) -> None:
        """Change fields of the state, and tell."""
        with self._changing:
            self._state = replace(self._state, **changes)
        self._changed()

    def _arrived(self, count: int, from_peer: bool) -> None:
        with self._changing:
            state = self._state
            peers = state.from_peers + count * from_peer
            self._state = replace(state, nbytes=state.nbytes + count, from_peers=peers)
        self._changed()
