"""Volumes of nodes on the client: what their machines need, and the message that attaches them."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace

from skyward.bootstrap.client_environment import cache_directory
from skyward.errors import SpecError, StorageError
from skyward.providers.protocol import Access, LocalAccess
from skyward.specs import Image, Spec, Storage, Volume
from skyward.specs.plugin import PluginStep
from skyward.storage.failures import UNREACHABLE
from skyward.storage.listing import check, list_objects
from skyward.storage.location import BucketLocation
from skyward.wire.protocol.volumes import AttachVolumes, NodeVolume

__all__ = ["attach_command", "check_volumes", "with_volume_packages", "with_volume_tools"]

_CHECK_WITHIN = 5.0
"""Seconds that a store has to answer the client; one that only the nodes reach takes all of them."""

_NOTHING = "check bucket and prefix, or write read_only=False"

_PACKAGE = "obstore>=0.12.1,<0.13"
"""Requirement of nodes with volumes: the client of object stores."""

_TOOLS = PluginStep(
    "volumes",
    """
if ! command -v s3fs && ! command -v rclone; then
  as_root=
  [ "$(id -u)" = 0 ] || as_root='sudo -n'
  export DEBIAN_FRONTEND=noninteractive
  lock='-o DPkg::Lock::Timeout=120'
  { $as_root apt-get $lock update -qq || :
    $as_root apt-get $lock install -qq -y --no-install-recommends s3fs rclone fuse3 ca-certificates
  } || echo 'no program that mounts buckets could be installed'
fi >&2
""",
)
"""Set-up of machines on which buckets may be mounted. Without the programs, a node copies what it may only read."""


def with_volume_packages(image: Image, volumes: Sequence[Volume]) -> Image:
    """Return the environment with the package that nodes with these volumes need."""
    return replace(image, pip=(*image.pip, _PACKAGE)) if volumes else image


def with_volume_tools(steps: tuple[PluginStep, ...], volumes: Sequence[Volume]) -> tuple[PluginStep, ...]:
    """Return the set-up of machines, with the programs that mount buckets if one of these volumes may be mounted."""
    return (*steps, _TOOLS) if any(volume.mode in ("auto", "mount") for volume in volumes) else steps


async def attach_command(spec: Spec, access: Access | None, *, is_local: bool) -> AttachVolumes | None:
    """Return the message that attaches the volumes of a node, with credentials that are looked up now.

    Args:
        spec: spec of the node; None is returned if it has no volumes.
        access: access to its machine.
        is_local: whether that is the client's own machine.

    Raises:
        CredentialsError: there are no credentials.
    """
    if not spec.volumes:
        return None
    volumes = await asyncio.to_thread(lambda: tuple(map(_node_volume, spec.volumes)))
    directory = None if access is None or isinstance(access, LocalAccess) else access.directory
    own = f"{directory}/volumes" if directory else ""
    return AttachVolumes(volumes, str(cache_directory() / "volumes") if is_local else own, is_local)


async def check_volumes(specs: Iterable[Spec]) -> list[str]:
    """Check that the stores of volumes answer, before any machine is rented for them.

    Returns:
        Notices about those that cannot be reached from here: their nodes may be able to.

    Raises:
        CredentialsError: there are no credentials for one.
        StorageError: one refuses, or a volume is read-only and has no objects.
    """
    volumes = {volume for spec in specs for volume in spec.volumes}
    return list(filter(None, await asyncio.gather(*(asyncio.to_thread(_check, volume) for volume in volumes))))


def _check(volume: Volume) -> str:
    location = _location(volume)
    try:
        checked = check(location, within=_CHECK_WITHIN)
        if volume.read_only and next(iter(list_objects(checked)), None) is None:
            raise StorageError(f"There are no objects at {location.describe}, and the volume is read-only: {_NOTHING}.")
    except StorageError as error:
        if error.code != UNREACHABLE:
            raise
        return f"{location.store} cannot be reached from here; the nodes try it: {error}"
    return ""


def _node_volume(volume: Volume) -> NodeVolume:
    return NodeVolume(volume.mount, volume.mode, volume.read_only, _location(volume))


def _location(volume: Volume) -> BucketLocation:
    storage = volume.storage or Storage()
    if isinstance(storage, str):  # the pool was made without the configuration, which has its tables
        raise SpecError(f"Volume storage {storage!r} is not known here: give the `sky.Storage(...)` itself.")
    return storage.location(volume.bucket, volume.prefix)
