"""Reports of nodes about their volumes: what the other nodes look for, and what the user is told."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from skyward.wire.protocol.volumes import RefreshVolumes, VolumesWritten

if TYPE_CHECKING:
    from skyward.control.act.nodes.node import Node

__all__ = ["VolumeReports"]

type Note = Callable[[str], object]
"""Shows a notice to the user."""


class VolumeReports:
    """The reports of a pool's nodes about their volumes. Runs on the library's loop.

    Attributes:
        unflushed: the files that closed nodes could not upload, each with the reason, as sentences.
    """

    def __init__(self) -> None:
        self.unflushed: list[str] = []
        self._written: set[str] = set()
        self._versions: dict[tuple[str, str], tuple[str, int]] = {}
        self._copied: dict[str, tuple[str, int]] = {}

    def joined(self, node: "Node", note: Note) -> None:
        """Have a node that joins look for what others wrote meanwhile; tell the user if its copies are newer."""
        for mount, contents in node.volumes.contents.items():
            before, rank = self._copied.setdefault(mount, (contents, node.rank))
            if contents != before:
                self._copied[mount] = contents, node.rank
                note(
                    f"node {node.rank} has a newer copy of the volume at {mount} than node {rank}: its objects were "
                    "changed meanwhile. `pool.update(...)`, or a new pool, gives all nodes the same."
                )
        if self._written and node.volumes.states:
            node.tell(RefreshVolumes(tuple(self._written)))

    def wrote(self, node: "Node", written: VolumesWritten, nodes: "Iterable[Node]", note: Note) -> None:
        """Have the other nodes look for what a node has written, before their next tasks; name what was written twice.

        Nodes that write at the same time see each other's version neither before nor after.
        """
        self._written.add(written.mount)
        for key, before, after in written.files:
            last, rank = self._versions.get((written.mount, key), (before, node.rank))
            if last != before and rank != node.rank:
                note(
                    f"{key!r} of the volume at {written.mount} was written by nodes {rank} and {node.rank}, and "
                    "neither had seen the version of the other: the last one is kept. Give each node a file of its own."
                )
            self._versions[written.mount, key] = after, node.rank
        for other in nodes:
            if other is not node and other.phase == "ready":
                other.tell(RefreshVolumes((written.mount,)))

    def closed(self, node: "Node", note: Note | None = None) -> None:
        """Keep what a closed node could not upload, for the error of the pool's close.

        Args:
            note: tells the user now, since the pool stays open.
        """
        if node.volumes.unflushed:
            self.unflushed.append(f"node {node.rank}: {node.volumes.unflushed}")
            node.volumes.unflushed = ""
            if note is not None:
                note(f"files that tasks wrote to volumes are not in the store: {self.unflushed[-1]}.")

    def note_all(self, note: Note) -> None:
        """Tell the user what closed nodes could not upload, since no error of the pool's close does."""
        for unflushed in self.unflushed:
            note(f"files that tasks wrote to volumes are not in the store: {unflushed}.")
