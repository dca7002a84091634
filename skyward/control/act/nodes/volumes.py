"""Volumes of nodes on the client: what their machines need, and the message that attaches them."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from skyward.bootstrap.client_environment import cache_directory
from skyward.control.act.machines.offers import provider_config
from skyward.errors import CredentialsError, ProvisioningError, SpecError, StorageError
from skyward.providers.protocol import Access, ExecAccess, LocalAccess, native_volumes
from skyward.specs import Image, Spec, Storage, Volume
from skyward.specs.plugin import PluginStep
from skyward.specs.storage import lacks_keys
from skyward.storage.failures import UNREACHABLE
from skyward.storage.listing import check, list_objects
from skyward.storage.location import BucketLocation
from skyward.wire.protocol.volumes import AttachVolumes, NodeVolume
from skyward.worker.volumes.pruning import prune_volumes

__all__ = [
    "attach_command",
    "check_credentials",
    "check_volumes",
    "native_paths",
    "stored_volumes",
    "with_volume_packages",
    "with_volume_tools",
]

_logger = logging.getLogger(__name__)

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


def stored_volumes(spec: Spec) -> tuple[Volume, ...]:
    """Return the volumes of a spec that are in object stores, and attached by the worker of a node."""
    native = native_volumes(spec, provider_config(spec))
    return tuple(volume for volume in spec.volumes if volume not in native)


def native_paths(spec: Spec) -> dict[str, str]:
    """Return the path of each volume that the provider attaches, by its mount."""
    return {volume.mount: volume.mount for volume in native_volumes(spec, provider_config(spec))}


def with_volume_packages(image: Image, volumes: Sequence[Volume]) -> Image:
    """Return the environment with the package that nodes with these volumes need."""
    return replace(image, pip=(*image.pip, _PACKAGE)) if volumes else image


def with_volume_tools(steps: tuple[PluginStep, ...], volumes: Sequence[Volume]) -> tuple[PluginStep, ...]:
    """Return the set-up of machines, with the programs that mount buckets if one of these volumes may be mounted."""
    return (*steps, _TOOLS) if any(volume.mode in ("auto", "mount") for volume in volumes) else steps


async def attach_command(spec: Spec, access: Access | None) -> AttachVolumes | None:
    """Return the message that attaches the volumes of a node, with credentials that are looked up now.

    Args:
        spec: spec of the node; None is returned if it has no volumes, or its provider attaches them.
        access: access to its machine.

    Raises:
        CredentialsError: there are no credentials.
    """
    if not (stored := stored_volumes(spec)):
        return None
    volumes = await asyncio.to_thread(lambda: tuple(map(_node_volume, stored)))
    is_local = isinstance(access, LocalAccess) or (isinstance(access, ExecAccess) and access.is_local)
    if is_local:
        await asyncio.to_thread(_prune_own)
    directory = None if access is None or isinstance(access, LocalAccess) else access.directory
    own = f"{directory}/volumes" if directory else ""
    return AttachVolumes(volumes, str(cache_directory() / "volumes") if is_local else own, is_local)


def _prune_own() -> None:
    """Remove what is unused from the cache of local nodes, once a day. The cache of a machine is pruned there."""
    with contextlib.suppress(OSError):
        for line in prune_volumes(cache_directory() / "volumes", time.time()):
            _logger.warning("%s", line)


async def check_credentials(spec: Spec) -> None:
    """Look up the credentials of volumes, before a machine is rented for them.

    Raises:
        CredentialsError: there never are any, since the function that returns them is in another process.
        ProvisioningError: there are none now.
    """
    if not (stored := stored_volumes(spec)):
        return
    try:
        await asyncio.to_thread(lambda: [_location(volume) for volume in stored])
    except CredentialsError as error:
        if any(lacks_keys(volume.storage) for volume in stored):
            raise
        raise ProvisioningError(str(error)) from error


async def check_volumes(specs: Iterable[Spec]) -> list[str]:
    """Check that the stores of volumes answer, before any machine is rented for them.

    Returns:
        Notices about those that cannot be reached from here: nodes on other machines may be able to.

    Raises:
        CredentialsError: there are no credentials for one.
        StorageError: one refuses, or a volume is read-only and has no objects.
    """
    volumes: dict[Volume, bool] = {}
    for spec in specs:
        is_local = provider_config(spec).name == "local"
        for volume in stored_volumes(spec):
            volumes[volume] = volumes.get(volume, True) and is_local
    checks = (asyncio.to_thread(_check, volume, is_local=is_local) for volume, is_local in volumes.items())
    return list(filter(None, await asyncio.gather(*checks)))


def _check(volume: Volume, *, is_local: bool) -> str:
    location = _location(volume)
    try:
        checked = check(location, within=_CHECK_WITHIN)
        if volume.read_only and next(iter(list_objects(checked)), None) is None:
            raise StorageError(f"There are no objects at {location.describe}, and the volume is read-only: {_NOTHING}.")
    except StorageError as error:
        if error.code != UNREACHABLE or is_local:  # local nodes are on this machine
            raise
        return f"{error} The nodes try it, since they may reach it nevertheless."
    return ""


def _node_volume(volume: Volume) -> NodeVolume:
    return NodeVolume(volume.mount, volume.mode, volume.read_only, _location(volume))


def _location(volume: Volume) -> BucketLocation:
    storage = volume.storage or Storage()
    if isinstance(storage, str):  # the pool was made without the configuration, which has its tables
        raise SpecError(f"Volume storage {storage!r} is not known here: give the `sky.Storage(...)` itself.")
    return storage.location(volume.bucket, volume.prefix)
