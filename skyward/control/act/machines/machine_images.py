"""Images of machines that this user has built: the one that has the environment of a node, if there is one.

Records are not deleted because a provider does not answer: only an answer that an image is gone counts.
"""

import asyncio
import logging
from dataclasses import dataclass

from skyward.bootstrap import Plan
from skyward.control.act.machines.guarded import GuardedProvider
from skyward.control.act.machines.offers import SourceOffer
from skyward.journal import BuiltImage, ImageRecord, ImageRecords
from skyward.market import reason_of

__all__ = ["FoundImage", "find_image", "forget_if_gone", "gone_note"]

_ASK_WITHIN = 30.0
"""Seconds for a provider to say whether an image exists, before the ordinary image is used."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FoundImage:
    """The image for the machines of a source.

    Attributes:
        record: its record; None for the provider's ordinary image.
        notes: notices for the user, one sentence each.
    """

    record: ImageRecord | None = None
    notes: tuple[str, ...] = ()


async def find_image(offered: SourceOffer, plan: Plan) -> FoundImage:
    """Return the latest built image with the environment of `plan` that fits the machines of a source and exists.

    Records of images that are gone are deleted, which a notice says. A failure is logged: the ordinary image does it.
    """
    provider = offered.provider
    if not isinstance(provider, GuardedProvider) or not provider.builds_images:
        return FoundImage()
    notes: list[str] = []
    try:
        found = await asyncio.to_thread(ImageRecords().of, offered.config.name, plan.image_hash)
        if not found:
            return FoundImage()
        async with asyncio.timeout(_ASK_WITHIN):
            scope = await provider.image_scope(offered.spec, offered.offer)
            for record in (each for each in found if each.scope == scope):
                if not await forget_if_gone(provider, record):
                    return FoundImage(record, (*notes, _using(record.built)))
                notes.append(gone_note(record.built))
    except Exception as error:  # providers raise anything
        _logger.warning("built images at provider %r are not used: %s", offered.config.name, reason_of(error))
    return FoundImage(None, tuple(notes))


async def forget_if_gone(provider: GuardedProvider, record: ImageRecord) -> bool:
    """Return whether a recorded image is gone, and delete its record if so.

    Raises:
        SkywardError, ProviderCallError: the provider does not say.
    """
    if await provider.image_exists(record.image):
        return False
    await asyncio.to_thread(ImageRecords().forget, record)
    return True


def _using(image: BuiltImage) -> str:
    return f"Using image {image.id}, built {image.built.astimezone():%Y-%m-%d} with this environment."


def gone_note(image: BuiltImage) -> str:
    """Return the notice that an image is gone."""
    return (
        f"Image {image.id} at {image.provider} was deleted outside of Skyward: its record was removed, and machines "
        "start from the provider's ordinary image."
    )
