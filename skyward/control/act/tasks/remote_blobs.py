"""Blobs of results that are stored on a node and not on the client."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from skyward.wire.protocol.messages import Blob

if TYPE_CHECKING:
    from skyward.control.act.nodes.node import Node  # circular: a result stays on its node, and a node sends results on
    from skyward.control.act.tasks.remote_results import RemoteResult  # circular: a result knows the task that made it

__all__ = ["RemoteBlob", "ResultLostError"]


class ResultLostError(Exception):
    """Raised if a result is on no node any more.

    Attributes:
        result: the lost result.
    """

    def __init__(self, result: "RemoteResult") -> None:
        super().__init__("the result is on no node any more")
        self.result = result


@dataclass(frozen=True, slots=True, eq=False)
class RemoteBlob:
    """A blob of a result that was left on its node; takes the place of the bytes of a local blob."""

    blob: Blob
    result: "RemoteResult"

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.blob.size

    async def fetch(self, asker: "Node") -> memoryview:
        """Fetch the bytes to the client, for the node `asker` that cannot get them from a peer.

        Raises:
            ResultLostError: the blob is on no node any more.
        """
        return await self.result.part(self.blob.key, asker)
