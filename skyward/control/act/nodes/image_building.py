"""Building of an image: one machine is rented, gets the environment, and is terminated once the image is made.

The machine belongs to a pool of the journal, like any other. So the reaper terminates it if this process is killed, and
deletes the image that was being made: only a finished image is recorded.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from skyward.bootstrap import PhaseEvent, Plan
from skyward.control.act.machines.booting import until_running
from skyward.control.act.machines.guarded import GuardedProvider
from skyward.control.act.machines.machine_images import find_image
from skyward.control.act.machines.offers import SourceOffer
from skyward.control.act.nodes.launching import Inventory, Launcher
from skyward.control.decide.machines.sources import MachineSource
from skyward.control.observe.startup import StartupTracker
from skyward.errors import ProvisioningError, SkywardError
from skyward.formatting import duration_text
from skyward.journal import BuiltImage, ImageRecord, ImageRecords, JournalSeal, PoolRecord
from skyward.link.connection.transport import run_to_completion
from skyward.link.launch import bake_machine
from skyward.market import reason_of
from skyward.providers.protocol import Instance, LocalAccess, ProviderImage
from skyward.specs import Image, Options, Spec

__all__ = ["build_image", "delete_unrecorded"]

_ANSWER_WITHIN = 300.0
"""Seconds that a running machine has to accept the first connection."""

_logger = logging.getLogger(__name__)


async def build_image(
    record: PoolRecord, spec: Spec, options: Options, report: Callable[[str], None], *, rebuild: bool
) -> BuiltImage:
    """Build and record an image with the environment of `spec.image`; return it.

    Args:
        record: record of a new pool that the machine belongs to. It ends with the build.
        spec: the machine, of one provider that makes images.
        options: timeouts.
        report: called with a sentence about each step.
        rebuild: build it although there is such an image.

    Raises:
        SkywardError: it failed. Nothing is left, unless the message says so.
    """
    inventory, startups = Inventory(), StartupTracker(record)
    launcher = Launcher(record, "", [spec], options, inventory, startups, shares_machines=False, uses_images=False)
    try:
        await launcher.prepare()
        for note in launcher.notes:
            report(note)
        if not rebuild and (existing := await _existing(launcher, spec)) is not None:
            report(f"Image {existing.id} has this environment already.")
            return existing
        return await _build(launcher, record, spec, options, report)
    finally:
        await run_to_completion(_clean_up(launcher, record))


async def _existing(launcher: Launcher, spec: Spec) -> BuiltImage | None:
    """Return a recorded image with the environment that fits the preferred source."""
    offered = next(iter(launcher.prepared.values()))[0]
    found = await find_image(offered, await launcher.starter.plan_of(spec, None))
    return None if found.record is None else found.record.built


async def _build(
    launcher: Launcher, record: PoolRecord, spec: Spec, options: Options, report: Callable[[str], None]
) -> BuiltImage:
    began = time.monotonic()
    source, instance = await _launch(launcher)
    launcher.bill(1, instance)
    report(f"Machine {instance.id} of {source} was launched.")
    instance = await until_running(instance, launcher.state_of, launcher.boot_within)
    access = instance.access
    assert access is not None
    assert not isinstance(access, LocalAccess)
    # Files of the user do not belong in an image: they are sent to each node.
    shared = replace(spec, image=replace(spec.image, includes=()))
    plan = await launcher.starter.plan_of(shared, access.directory)
    within = options.ssh_timeout or _ANSWER_WITHIN
    await bake_machine(access, plan, within, lambda event: _tell_phase(event, report), is_rented=True)
    offered, cluster = launcher.prepared[source]
    provider = offered.provider
    assert isinstance(provider, GuardedProvider)
    scope = await provider.image_scope(offered.spec, offered.offer)
    report("Making the image.")
    made = await provider.make_image(cluster, instance.id, f"skyward-{plan.image_hash}-{secrets.token_hex(4)}")
    built = _built(made, offered, plan, spec.image)
    # A build that is interrupted from here on has its image on record.
    await run_to_completion(
        asyncio.to_thread(ImageRecords().add, ImageRecord(built, made, scope, record.id, _packed(offered)))
    )
    report(f"Image {built.id} was built in {duration_text(time.monotonic() - began)}.")
    return built


async def _launch(launcher: Launcher) -> tuple[MachineSource, Instance]:
    """Launch one machine from the first source that has one.

    Raises:
        SkywardError: none has; the error of the last one.
    """
    error: SkywardError = ProvisioningError("the provider launched no machine")
    for source in launcher.sources:
        try:
            if found := await launcher.provision(source, 1):
                return source, found[0]
        except SkywardError as refused:  # nothing was launched
            _logger.info("%s: %s", source, refused)
            error = refused
    raise error


def _tell_phase(event: PhaseEvent, report: Callable[[str], None]) -> None:
    if event.event == "completed" and event.elapsed >= 1:
        report(f"Phase {event.phase} took {duration_text(event.elapsed)}.")


def _built(made: ProviderImage, offered: SourceOffer, plan: Plan, image: Image) -> BuiltImage:
    parts = [f"Python {plan.python}", *image.pip, *(f"{name} (apt)" for name in image.apt)]
    architecture = offered.offer.instance_type.architecture
    return BuiltImage(
        offered.config.name,
        made.id,
        made.region,
        architecture,
        plan.image_hash,
        ", ".join(parts),
        made.size_gb,
        made.monthly_price,
        datetime.now(UTC),
    )


def _packed(offered: SourceOffer) -> bytes:
    """Return the settings of the provider, pickled; empty if they have secrets, or something that cannot be pickled."""
    try:
        return JournalSeal().pack(offered.config)
    except Exception:  # settings of other packages may hold anything
        return b""


async def _clean_up(launcher: Launcher, record: PoolRecord) -> None:
    """Terminate the machine, remove what it used, and delete an image that was not finished.

    Raises:
        ProvisioningError: something may be left. It stays in the journal, for `skyward reap`.
    """
    prepared = tuple(launcher.prepared.values())
    errors: list[str] = []
    try:
        await launcher.teardown()
    except ProvisioningError as error:
        errors.append(str(error))
    for offered, cluster in prepared:
        assert isinstance(offered.provider, GuardedProvider)
        try:
            await delete_unrecorded(offered.provider, await offered.provider.find_images(cluster))
        except Exception as error:  # providers raise anything
            errors.append(reason_of(error))
    if errors:
        record.leave()
        raise ProvisioningError(
            f"The machine or an unfinished image of {record.id} may be left: {'; '.join(errors)}; `skyward reap` "
            "removes them."
        )
    record.end()


async def delete_unrecorded(provider: GuardedProvider, images: Sequence[ProviderImage]) -> None:
    """Delete those of a pool's images that are not on record: they were not finished.

    Raises:
        SkywardError, ProviderCallError: one may still exist.
    """
    if not images:
        return
    kept = {record.built.id for record in await asyncio.to_thread(ImageRecords().all)}
    for image in images:
        if image.id not in kept:
            await provider.delete_image(image)
