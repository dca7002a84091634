"""The volumes of one node, as its worker reports them: attached before its first task, and flushed before it ends."""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from skyward.errors import NodeStartError
from skyward.formatting import count_text, joined
from skyward.wire.protocol.volumes import AttachVolumes, VolumesAttached, VolumesFlushed, VolumeStates

if TYPE_CHECKING:
    from skyward.events.volumes import VolumeState

__all__ = ["NodeVolumes"]

_WITHIN = 90.0
"""Time for the volumes of a node to be attached, or flushed, after their last progress, in seconds."""


class NodeVolumes:
    """The volumes of one node. Runs on the library's loop.

    Attributes:
        states: their states.
        contents: digests of the lists of objects of its copies, by the paths of their volumes.
        unflushed: the files that it could not upload, and the reason, as a sentence, once it is closed; "" for none.
    """

    def __init__(self) -> None:
        self.states: tuple[VolumeState, ...] = ()
        self.contents: dict[str, str] = {}
        self.unflushed = ""
        self._answer: asyncio.Future[VolumesAttached] | None = None
        self._progress_at = 0.0

    @property
    def could_not_attach(self) -> bool:
        """True if its worker has answered that it could not attach one."""
        return self._answer is not None and self._answer.done() and bool(self._answer.result().why)

    @property
    def is_flushing(self) -> bool:
        """True while files wait for their upload, and there was progress lately."""
        waiting = any(volume.unflushed for volume in self.states)
        return waiting and time.monotonic() - self._progress_at < _WITHIN

    async def attach(self, command: AttachVolumes, send: Callable[[AttachVolumes], None], lost: asyncio.Event) -> None:
        """Have the worker attach them, for as long as there is progress, and return if the node is lost.

        Args:
            command: the command to do so.
            send: sends the command.
            lost: set once the node is lost.

        Raises:
            NodeStartError: one could not be attached.
        """
        self._answer = answer = asyncio.get_running_loop().create_future()
        self._progress_at = time.monotonic()
        send(command)
        losing = asyncio.ensure_future(lost.wait())
        try:
            while not (answer.done() or losing.done()):
                await asyncio.wait((answer, losing), timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                if time.monotonic() - self._progress_at > _WITHIN:
                    names = joined(volume.location.describe for volume in command.volumes)
                    raise NodeStartError(f"the volumes {names} made no progress for {_WITHIN:g} s")
        finally:
            losing.cancel()
        if answer.done():
            attached = answer.result()
            if attached.why:
                raise NodeStartError(attached.why, is_final=attached.is_final)
            mounts = [volume.mount for volume in command.volumes]
            self.contents = {mount: each for mount, each in zip(mounts, attached.contents, strict=True) if each}

    def handle(self, event: VolumesAttached | VolumeStates | VolumesFlushed) -> None:
        """Take what the worker reports."""
        match event:
            case VolumesAttached():
                if self._answer is not None and not self._answer.done():
                    self._answer.set_result(event)
            case VolumeStates(states):
                self.states, self._progress_at = states, time.monotonic()
            case VolumesFlushed(why):
                self.unflushed = why

    def give_up(self) -> None:
        """Note what still waits for its upload, since the node is ended."""
        if self.is_flushing:
            waiting = [volume for volume in self.states if volume.unflushed]
            self.unflushed = joined(f"{count_text(volume.unflushed, 'file')} of {volume.source}" for volume in waiting)
