"""Messages about the volumes of a node."""

from dataclasses import dataclass

from skyward.events.volumes import VolumeState
from skyward.storage.location import BucketLocation
from skyward.values.volumes import VolumeMode

__all__ = [
    "AttachVolumes",
    "NodeVolume",
    "RefreshVolumes",
    "VolumeStates",
    "VolumesAttached",
    "VolumesFlushed",
    "VolumesWritten",
]


@dataclass(frozen=True, slots=True)
class NodeVolume:
    """A volume, as a node attaches it. Its location has the credentials, which are nowhere else on the node's disk."""

    mount: str
    mode: VolumeMode
    read_only: bool
    location: BucketLocation


@dataclass(frozen=True, slots=True)
class AttachVolumes:
    """Attach volumes. Answered with `VolumesAttached`; no task is sent before.

    Attributes:
        volumes: the volumes.
        cache: folder on the machine for copies that outlive the node; "~/..." is below the home there.
        is_local: True if the node is a process on the client's machine: its volumes are below its own folder.
        peers: for each volume, the transfer ports, `host:port`, of nodes that have a copy of it or receive one.
    """

    volumes: tuple[NodeVolume, ...]
    cache: str
    is_local: bool = False
    peers: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class RefreshVolumes:
    """Look for changes by other nodes in the volumes at these paths before the next task starts."""

    mounts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VolumesAttached:
    """The volumes are ready for tasks; or `why` they are not, and whether that `is_final`, such as a wrong bucket.

    Attributes:
        contents: digest of the list of objects of each copy; "" for other volumes.
    """

    why: str = ""
    is_final: bool = False
    contents: tuple[str, ...] = ()
    task: int = 0


@dataclass(frozen=True, slots=True)
class VolumeStates:
    """Current states of the volumes. Sent while they change."""

    states: tuple[VolumeState, ...]
    task: int = 0


@dataclass(frozen=True, slots=True)
class VolumesWritten:
    """Files of a volume were uploaded: other nodes look for them before their next tasks.

    Attributes:
        mount: path of the volume.
        files: key of each, and the version tags of its object that the node had seen, and that it has made.
    """

    mount: str
    files: tuple[tuple[str, str, str], ...]
    task: int = 0


@dataclass(frozen=True, slots=True)
class VolumesFlushed:
    """The volumes are flushed, since the node ends; `why` says what could not be uploaded, "" for nothing."""

    why: str = ""
    task: int = 0
