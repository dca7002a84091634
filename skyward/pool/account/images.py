"""Images of machines with an environment: building, listing and deletion."""

import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from skyward.config import load
from skyward.config.pools import configured_values
from skyward.control.act.machines.guarded import GuardedProvider, guarded
from skyward.control.act.machines.offers import provider_config
from skyward.control.act.nodes.image_building import build_image as build
from skyward.errors import ProvisioningError, SkywardError, SpecError, UsageError
from skyward.formatting import joined
from skyward.journal import BuiltImage, ImageRecord, ImageRecords, JournalSeal, PoolRecord
from skyward.market import reason_of
from skyward.process import background
from skyward.providers.protocol import (
    SETUP_FIELDS,
    ImageBuildingProvider,
    ProviderConfig,
    acts_on,
    find_provider,
    provider_names,
)
from skyward.specs import Image, Nodes, Options, Spec, SpecFields
from skyward.specs.paths import compute_fields
from skyward.specs.plugin_order import image_of
from skyward.values.validation import shown

__all__ = ["build_image", "build_with", "delete_image", "images"]

_ENDED_WITHIN = 600.0
_DELETED_WITHIN = 300.0
"""Seconds for an interrupted build to clean up, and for the deletion of an image."""

_NAME = "image-build"
_OF_POOL = ("nodes", "allocation", "volumes", "resources", "capabilities", "idle_timeout")
"""Fields of a pool that say nothing about the machine that an image is made of."""

_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_CREDENTIALS = re.compile(r"://[^/@\s]+@")

_logger = logging.getLogger(__name__)


def build_image(*, pool: str | None = None, rebuild: bool = False, **fields: Unpack[SpecFields]) -> BuiltImage:
    """Build an image of a machine with an environment, which pools with the same environment then start from.

    One machine is rented on demand, set up, and terminated once its image is made. The image is kept, and billed by the
    provider, until `sky.delete_image`. It has no keys, and no values of `Image.env` or `Image.shell_vars`.

    Args:
        pool: a pool of `skyward.toml`, whose fields are taken.
        rebuild: build it although there is an image with this environment.
        fields: fields of the machine, such as `provider`, `accelerator` and `image`, instead of those of the pool.

    Raises:
        SpecError: a field is not allowed, or the image would contain a secret.
        ProvisioningError: the provider makes no images, or refuses.
        NodeStartError: the environment could not be made.

    Example:
        >>> sky.build_image(provider=sky.AWS(), accelerator="L4", image=sky.Image(pip=["torch", "transformers"]))
    """
    return build_with(pool, fields, _logger.info, rebuild=rebuild)


def build_with(
    pool: str | None, fields: Mapping[str, Any], report: Callable[[str], None], *, rebuild: bool = False
) -> BuiltImage:
    """Build an image, as `build_image` does; `report` gets a sentence about each step."""
    spec = _spec(pool, fields)
    config = provider_config(spec)
    _check_provider(config)
    _check_secrets(spec.image)
    spec = replace(spec, provider=config, nodes=Nodes(1), allocation="on-demand")
    record = PoolRecord.new(_NAME, {"": (spec,)}, Options(), spec.ttl)
    return _finished(record, spec, report, rebuild=rebuild)


def _finished(record: PoolRecord, spec: Spec, report: Callable[[str], None], *, rebuild: bool) -> BuiltImage:
    """Run a build. If the caller is interrupted, wait until nothing is left of it."""
    ended = threading.Event()

    async def run() -> BuiltImage:
        try:
            return await build(record, spec, Options(), report, rebuild=rebuild)
        finally:
            ended.set()

    building = background.run(run())
    try:
        return building.result()
    except KeyboardInterrupt:
        report("Interrupted: terminating the machine.")
        building.cancel()
        ended.wait(_ENDED_WITHIN)
        raise


def _spec(pool: str | None, fields: Mapping[str, Any]) -> Spec:
    """Return the machine to make an image of, with the environment that its plugins need."""
    given = dict(fields)
    if pool is not None:
        pools = load().pools
        if pool not in pools:
            known = ", ".join(pools) or "none"
            raise SpecError(f"skyward.toml has no pool {pool!r}; it has {known}.")
        found = compute_fields(configured_values(pool))
        if "groups" in found:
            raise SpecError(f"Pool {pool!r} has groups of nodes: give the fields of one of them instead of the pool.")
        names = Spec.__dataclass_fields__
        given = {name: value for name, value in found.items() if name in names and name not in _OF_POOL} | given
    provider = given.get("provider")
    if isinstance(provider, str) and "," not in provider:
        given["provider"] = load().provider(provider)
    elif provider is None or isinstance(provider, str | Sequence):
        raise SpecError("An image is built at one provider: name it, as in `--provider aws` or `provider=sky.AWS()`.")
    spec = Spec(**given)
    # Steps of plugins are not part of an environment: each machine that starts from the image runs them.
    return replace(spec, image=image_of(spec.plugins, spec.image, spec), plugins=())


def _check_provider(config: ProviderConfig) -> None:
    """Check that a provider makes images of machines that Skyward sets up.

    Raises:
        ProvisioningError: it does not; the message names those that do.
    """
    if not isinstance(config.create_provider(), ImageBuildingProvider):
        able = joined([f"`{name}`" for name in _image_builders()])
        raise ProvisioningError(f"Provider {config.name!r} cannot make images of machines; these can: {able}.")
    if not acts_on(config).fields >= SETUP_FIELDS:
        raise ProvisioningError(
            f"Machines of provider {config.name!r} have their environment already, since its settings name a `python`: "
            "leave that out to build an image."
        )


def _image_builders() -> list[str]:
    """Return the names of the installed providers that make images and can be created without settings."""
    found = []
    for name in provider_names():
        try:
            if isinstance(find_provider(name)().create_provider(), ImageBuildingProvider):
                found.append(name)
        except Exception:  # it needs settings, a package, or credentials
            _logger.debug("provider %s was not asked", name, exc_info=True)
    return found


def _check_secrets(image: Image) -> None:
    """Check that no secret would be part of an installed package's metadata.

    Raises:
        SpecError: a requirement contains a secret.
    """
    for requirement in image.pip:
        if used := [name for name in _REFERENCE.findall(requirement) if name in image.env]:
            raise SpecError(
                f"pip has {requirement!r}, so the value of {used[0]} might stay in the image, readable to all who use "
                "it: give pip its credentials by a setting such as UV_INDEX_URL in the environment of this computer."
            )
        if _CREDENTIALS.search(requirement) and "git@" not in requirement:
            raise SpecError(
                "A requirement in pip has credentials in its address, which might stay in the image, readable to all "
                "who use it: give them by a setting such as UV_INDEX_URL in the environment of this computer."
            )


def images() -> list[BuiltImage]:
    """Return the images that this user has built and not deleted, the latest first. They are billed by their providers.

    Raises:
        JournalError: the records cannot be read.

    Example:
        >>> sum(image.monthly_price or 0 for image in sky.images())
    """
    return [record.built for record in ImageRecords().all()]


def delete_image(id: str) -> bool:
    """Delete a built image at its provider, with what is stored for it, and then its record.

    Args:
        id: its id, as `sky.images` returns it.

    Returns:
        False if it was gone already, so that only its record was deleted.

    Raises:
        UsageError: there is no record of such an image.
        SkywardError: it may still exist, and stays on record.

    Example:
        >>> for image in sky.images():
        ...     sky.delete_image(image.id)
    """
    records = ImageRecords().all()
    found = [record for record in records if record.built.id == id]
    if not found:
        known = ", ".join(record.built.id for record in records) or "none"
        raise UsageError(f"No image {shown(id)} is on record; these are: {known}.")
    existed = [background.run(_delete(record, _config(record))).result(_DELETED_WITHIN) for record in found]
    return any(existed)


def _config(record: ImageRecord) -> ProviderConfig:
    """Return the settings with which an image was built; those of the user's files if they were not recorded."""
    if record.settings:
        try:
            found = JournalSeal().unpack(record.settings)
        except Exception:  # written by another version, or its module is not found here
            _logger.debug("settings of image %s", record.built.id, exc_info=True)
        else:
            if isinstance(found, ProviderConfig):
                return found
    configured = load().provider(record.built.provider)
    assert isinstance(configured, ProviderConfig)
    return configured


async def _delete(record: ImageRecord, config: ProviderConfig) -> bool:
    provider = guarded(config)
    if not isinstance(provider, GuardedProvider) or not provider.builds_images:
        raise ProvisioningError(f"Provider {config.name!r} cannot delete images.")
    try:
        existed = await provider.image_exists(record.image)
        await provider.delete_image(record.image)
        if existed and await provider.image_exists(record.image):
            raise ProvisioningError("it still exists")
    except SkywardError as error:
        raise ProvisioningError(f"Image {record.built.id} may still exist: {reason_of(error)}.") from error
    ImageRecords().forget(record)
    return existed
