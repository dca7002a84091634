"""The state of one source of machines, as the launcher of a group keeps it."""

import asyncio
from dataclasses import dataclass, field

from skyward.control.act.machines.offers import SourceOffer
from skyward.control.decide.machines.sources import MachineSource
from skyward.journal import ImageRecord
from skyward.providers.protocol import Cluster, Instance

__all__ = ["SourceState"]


@dataclass(slots=True, eq=False)
class SourceState:
    """State of one source of machines.

    Attributes:
        offered: the source, and the provider to launch its machines with.
        prepared: resources that the machines share; None until these were set up.
        entry: number of the journal's entry for these resources; None if nothing is on record.
        existing: machines of another process that no request has returned yet.
        unchecked_since: time of day of the first request whose answer is unknown; None if all are known.
        image: built image that its machines are launched from; None for the usual one.
        image_notes: notices about that image.
        announced: True if the user was told of this source.
        dearest: highest price of its machines that the provider has stated, USD per hour; 0 for none.
        refused: why its last machine was not used, if that is also expected of the next one; empty if it was.
        failure: reason why the last request failed; empty if none did.
        preparing: held while the shared resources are set up.
    """

    offered: SourceOffer
    prepared: Cluster | None = None
    entry: int | None = None
    existing: list[Instance] = field(default_factory=list)
    unchecked_since: float | None = None
    image: ImageRecord | None = None
    image_notes: tuple[str, ...] = ()
    announced: bool = False
    dearest: float = 0.0
    refused: str = ""
    failure: str = ""
    preparing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def source(self) -> MachineSource:
        """The source."""
        return self.offered.source

    @property
    def cluster(self) -> Cluster:
        """Resources that the machines share. Only after these were set up."""
        assert self.prepared is not None, f"{self.source} is not prepared"
        return self.prepared

    @property
    def number(self) -> int:
        """Number of the journal's entry for these resources. Only while one is on record."""
        assert self.entry is not None, f"{self.source} is not on record"
        return self.entry

    async def get_instance(self, instance: str) -> Instance | None:
        """Return the state of a machine, as the provider reports it; None if it does not exist."""
        self.prepared, found = await self.offered.provider.get_instance(self.cluster, instance)
        return found
