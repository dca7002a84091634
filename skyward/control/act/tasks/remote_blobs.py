"""Large parts of results that are on a node and not here."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from skyward.wire.protocol.messages import Blob

if TYPE_CHECKING:
    from skyward.control.act.nodes.node import Node  # circular: a result stays on its node, and a node sends results on
    from skyward.control.act.tasks.remote_results import RemoteResult  # circular: a result knows the task that made it

__all__ = ["RemoteBlob", "ResultLostError"]


class ResultLostError(Exception):
    """A result is on no node any more.

    Attributes:
        result: it.
    """

    def __init__(self, result: "RemoteResult") -> None:
        super().__init__("the result is on no node any more")
        self.result = result


@dataclass(frozen=True, slots=True, eq=False)
class RemoteBlob:
    """A blob of a result that was left on its node: it stands where the bytes of other blobs are."""

    blob: Blob
    result: "RemoteResult"

    @property
    def nbytes(self) -> int:
        """Its size."""
        return self.blob.size

    async def fetch(self, asker: "Node") -> memoryview:
        """Its bytes, brought here for a node that cannot get them from another.

        Raises:
            ResultLostError: it is there no more.
        """
        return await self.result.part(self.blob.key, asker)
