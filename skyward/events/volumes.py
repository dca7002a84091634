"""State of the volumes of a node."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["VolumeState", "VolumeStatus"]

type VolumeStatus = Literal["attaching", "ready", "restarting", "flushing", "failed", "detached"]
"""State of a volume on a node: "restarting" while a mount whose process ended is mounted again."""


@dataclass(frozen=True, slots=True)
class VolumeState:
    """A volume on one node.

    Attributes:
        mount: path that the volume was requested at.
        source: address of its bucket, such as "s3://datasets/train".
        mode: way in which its files are there: "mount", "copy" or "sync".
        read_only: True if tasks may only read it.
        path: real path on the node.
        status: its state.
        detail: the reason of that state; "" for none.
        tool: program that mounts it; "" for files on the node's disk.
        files, nbytes: number and size of the files that were transferred from the store or from other nodes.
        from_peers: bytes of these that came from other nodes.
        total: bytes to transfer before it is ready; 0 if unknown.
        unflushed: files that wait for their upload.
        unflushed_bytes: their size.

    Example:
        >>> for node in pool.snapshot().nodes:
        ...     for volume in node.volumes:
        ...         print(node.rank, volume.mount, volume.status, volume.unflushed)
    """

    mount: str
    source: str
    mode: str
    read_only: bool
    path: str
    status: VolumeStatus
    detail: str = ""
    tool: str = ""
    files: int = 0
    nbytes: int = 0
    from_peers: int = 0
    total: int = 0
    unflushed: int = 0
    unflushed_bytes: int = 0
