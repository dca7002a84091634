"""Launching: machines for the nodes of one group, obtained from their providers, and workers started on them."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from skyward.bootstrap import check_includes, check_remote_requirements, check_requirements, has_own_environment
from skyward.control.act.machines.actual_prices import price_rise, too_dear
from skyward.control.act.machines.booting import BOOT_TIMEOUT, until_running
from skyward.control.act.machines.guarded import GuardedProvider
from skyward.control.act.machines.machine_images import find_image, forget_if_gone, gone_note
from skyward.control.act.machines.offers import ASK_WITHIN, FoundOffers, SourceOffer, find_offers, provider_config
from skyward.control.act.machines.source_state import SourceState
from skyward.control.act.machines.waiting import WaitingMachines
from skyward.control.act.machines.warm import LASTS_FOR, adapted, can_be_kept, entered, is_kept, keep_warm, taken_notice
from skyward.control.act.nodes.node import Node, OnEvent, OnLost
from skyward.control.act.nodes.starting import START_TIMEOUT, WorkerStarter
from skyward.control.act.nodes.topology import topology
from skyward.control.act.nodes.volumes import check_credentials
from skyward.control.decide.machines.sources import MachineSource
from skyward.control.observe.costs import SlotPrice
from skyward.control.observe.startup import BOOTING, StartupTracker
from skyward.errors import (
    CredentialsError,
    NoCapacityError,
    NodeStartError,
    ProvisioningError,
    QuotaError,
    SkywardError,
)
from skyward.formatting import count_text
from skyward.journal import ClusterEntry, MachineEntry, PoolRecord, WorkerEntry
from skyward.link.ssh.worker import end_orphan
from skyward.market import reason_of
from skyward.providers.protocol import (
    SETUP_FIELDS,
    Access,
    Cluster,
    Instance,
    SSHAccess,
    acts_on,
    native_volumes,
)
from skyward.scaling.snapshot import Group
from skyward.specs import Nodes, Options, Spec

__all__ = ["Inventory", "Launcher", "LauncherUpdate", "launchers_of"]

_logger = logging.getLogger(__name__)

_AT_START: Mapping[str, int] = MappingProxyType({})


class Inventory:
    """The machines that a pool knows, over all its groups.

    A provider lists the machines of the whole pool. A machine that no group knows is an orphan, unless a request is
    under way.

    Attributes:
        known: ids of machines.
        asking: number of requests under way.
        waiting: machines that were launched and wait at their provider.
    """

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.asking = 0
        self.waiting = WaitingMachines(time.monotonic)


@dataclass(frozen=True, slots=True)
class LauncherUpdate:
    """An update of a launcher that is prepared.

    Attributes:
        group: the group as scaling will see it.
        unpriced: sources of the new specs without a known price.
        apply: launches machines from the new specs from then on.
        discard: forgets the new specs: the update is refused.
    """

    group: Group
    unpriced: tuple[MachineSource, ...]
    apply: Callable[[], None]
    discard: Callable[[], None]


class Launcher:
    """Launcher of the machines of one group. `teardown` releases everything that the provider handed out.

    Unless `uses_images` is False, machines are launched from an image with their environment, if one was built.

    Its specs may be replaced by others. The sources of a spec have its position, and those of later specs later ones:
    `first` is the position of the first of the present ones. Earlier machines keep their sources, specs and providers.

    Attributes:
        provider_name: name of the provider of the preferred source.
        notes: notices about the spec, for the user.
        startups: startup tracker of the pool's nodes.
        starter: starter of the nodes' workers.
        note: shows a notice to the user.
        repriced: called after machines came from a source that was not announced, and may cost more.
        shares_machines: True if warm machines of other pools can be used, and those of this one by others: machines of
            different pools do not form a cluster, since the firewall of each lets in only its own.
    """

    def __init__(
        self,
        record: PoolRecord,
        group: str,
        specs: Sequence[Spec],
        options: Options,
        inventory: Inventory,
        startups: StartupTracker,
        *,
        shares_machines: bool,
        uses_images: bool = True,
        first: int = 0,
    ) -> None:
        self.startups = startups
        self.shares_machines = shares_machines
        self.nodes = Nodes.of(specs[0].nodes)
        self.provider_name = provider_config(specs[0]).name
        self.notes: tuple[str, ...] = ()
        self.starter = WorkerStarter(record.id, options)
        self.note: Callable[[str], None] = _logger.info
        self.repriced: Callable[[], None] = lambda: None
        self._record = record
        self._group = group
        self._specs = specs
        self._first = first
        self._options = options
        self._inventory = inventory
        self._uses_images = uses_images
        self._states: dict[MachineSource, SourceState] = {}
        self._instances: dict[str, SourceState] = {}
        self._workers: dict[str, WorkerEntry] = {}
        self._earlier: tuple[ClusterEntry, ...] = ()
        self._leaving: frozenset[str] = frozenset()
        self._former: tuple[int, Sequence[Spec]] = 0, ()
        self._kept_warm: set[str] = set()
        self._billed: set[int] = set()

    @property
    def start_within(self) -> float:
        """Timeout in seconds for a running machine to become a node."""
        start = self._options.bootstrap_timeout or START_TIMEOUT
        if all(provider_config(spec).name == "local" for spec in self._specs):
            images = [spec.image for spec in self._specs]
            set_up = [each.bootstrap_timeout for each in images if each.shell_vars or has_own_environment(each)]
            return start + max(set_up, default=0.0)
        connect = self._options.ssh_timeout or start
        return self.boot_within + connect + start + max(spec.image.bootstrap_timeout for spec in self._specs)

    @property
    def boot_within(self) -> float:
        """Timeout in seconds for a launched machine to run."""
        own = [getattr(provider_config(spec), "boot_timeout", BOOT_TIMEOUT) for spec in self._specs]
        return self._options.provision_timeout or max(own)

    @property
    def existing_machines(self) -> int:
        """Number of machines that exist before any is requested."""
        return sum(self.existing.values())

    @property
    def existing(self) -> Mapping[MachineSource, int]:
        """Number of machines that exist before any is requested, by source."""
        return {source: len(state.existing) for source, state in self._states.items() if state.existing}

    @property
    def ranks(self) -> Mapping[MachineSource, tuple[int, ...]]:
        """Ranks of the nodes of machines that exist before any is requested, by source: of the first ones of each."""
        return {
            source: tuple(self._workers[each.id].rank for each in state.existing if each.id in self._workers)
            for source, state in self._states.items()
            if state.existing
        }

    @property
    def accelerators(self) -> str:
        """Accelerators of a machine at the preferred source, such as "A100"; empty for none."""
        return self._preferred.offered.accelerators if self._states else ""

    @property
    def lease(self) -> float:
        """Lease in seconds: the time for which machines may outlive their client."""
        return max(spec.ttl for spec in self._specs)

    @property
    def positions(self) -> range:
        """Positions of the sources of the present specs."""
        return range(self._first, self._first + len(self._specs))

    @property
    def sources(self) -> tuple[MachineSource, ...]:
        """Sources of the machines that are launched, the preferred one first."""
        return tuple(source for source in self._sources_at(self.positions) if not source.lender)

    @property
    def former_sources(self) -> tuple[MachineSource, ...]:
        """Sources of the specs before the update that another process had begun, the preferred one first."""
        first, specs = self._former
        return tuple(each for each in self._sources_at(range(first, first + len(specs))) if not each.lender)

    def _sources_at(self, positions: range) -> tuple[MachineSource, ...]:
        return tuple(source for source in self._states if source.position in positions)

    def is_present(self, instance: Instance) -> bool:
        """Return whether a machine was launched from one of the present specs."""
        state = self._instances.get(instance.id)
        return state is not None and state.source.position in self.positions

    @property
    def unpriced(self) -> tuple[MachineSource, ...]:
        """Sources without a known price, of machines that exist or are launched."""
        used, positions = set(map(id, self._instances.values())), self.positions
        return tuple(
            source
            for source, state in self._states.items()
            if not state.offered.priced and (source.position in positions or id(state) in used)
        )

    @property
    def dearest(self) -> float:
        """Highest price of a machine at the sources that the user was told of, USD per hour."""
        told = (self._states[source] for source in self._sources_at(self.positions) if self._states[source].announced)
        return max((max(state.source.hourly_price, state.dearest) for state in told), default=0.0)

    @property
    def _preferred(self) -> SourceState:
        return self._states[self._sources_at(self.positions)[0]]

    def group(self) -> Group:
        """Return the group as scaling sees it. Fields that the spec leaves open have the offer's values."""
        return self._group_of(self._preferred.offered)

    @property
    def earlier(self) -> Mapping[tuple[str, int], Group]:
        """The group as it was, by its name and the positions of the sources of earlier specs."""
        return {
            (self._group, source.position): self._group_of(state.offered)
            for source, state in reversed(self._states.items())
            if source.position not in self.positions
        }

    def _group_of(self, offered: SourceOffer) -> Group:
        spec = offered.spec
        resources = offered.resources
        return Group(
            self._group,
            self.nodes.min,
            self.nodes.ceiling,
            self._options.worker.concurrency,
            {name: amount for name, amount in resources.items() if amount},
            spec.node_capabilities,
            offered.source.hourly_price,
            spec.idle_timeout,
        )

    @property
    def prepared(self) -> Mapping[MachineSource, tuple[SourceOffer, Cluster]]:
        """The sources whose shared resources were set up, each with its offer and its cluster."""
        states = self._states.items()
        return {source: (each.offered, each.prepared) for source, each in states if each.prepared is not None}

    def adopt(self, earlier: Sequence[ClusterEntry], leaving: Collection[str] = ()) -> None:
        """Take over another process's machines of this group, which this launcher now terminates.

        Args:
            earlier: the entries of these machines.
            leaving: ids of those that the other process was about to terminate: they become no nodes.
        """
        self._earlier = tuple(earlier)
        self._leaving = frozenset(leaving)
        for entry in earlier:
            offered: SourceOffer = entry.offered
            state = self._states.setdefault(offered.source, SourceState(offered))
            state.announced, state.entry = True, entry.number
            self._inventory.known.update({each.instance.id for each in entry.machines} - self._leaving)
            if entry.cluster is not None:
                state.prepared = entry.cluster

    def continue_update(self, first: int, before: Sequence[Spec]) -> None:
        """Continue an update that another process had begun.

        Args:
            first: position of the first of the specs before the update.
            before: these specs.
        """
        self._former = first, before

    async def prepare(self) -> None:
        """Find offers, and set up the resources that the machines of the preferred source share.

        Raises:
            SpecError: an include does not exist, or the nodes cannot install a requirement. Raised before anything is
                launched.
            NoOffersError: no offer fits.
        """
        if not self._earlier:
            _check_images(self._specs)
        found = await self._find(self._specs, self._first)
        await self._find_former()
        for entry in self._earlier:
            await self._find_existing(entry)
        failures = await self._prepare_preferred(self.positions)
        self._set_notes(found, failures)

    async def prepare_update(self, specs: Sequence[Spec], first: int) -> "LauncherUpdate":
        """Find the offers for other specs, and set up what the machines of the preferred one share.

        If that fails, nothing of the new specs is left.

        Args:
            specs: specs to launch machines from, once the update is applied. Until then, nothing changes.
            first: position of the first of them: no other specs have it.

        Raises:
            SpecError, NoOffersError: see `prepare`.
        """
        _check_images(specs)
        positions = range(first, first + len(specs))
        known = set(self._sources_at(positions))

        def discard() -> None:
            # What a provider has set up stays on record until the pool is closed: its machines there may share it.
            unused = [each for each in self._sources_at(positions) if each not in known and not each.lender]
            for source in unused:
                if self._states[source].entry is None:
                    del self._states[source]

        try:
            found = await self._find(specs, first)
            failures = await self._prepare_preferred(positions)
        except BaseException:  # an interrupt, too
            discard()
            raise

        def apply() -> None:
            self._specs, self._first = specs, first
            self._set_notes(found, failures)

        states = [self._states[source] for source in self._sources_at(positions)]
        unpriced = tuple(state.source for state in states if not state.offered.priced)
        return LauncherUpdate(self._group_of(states[0].offered), unpriced, apply, discard)

    async def _find(self, specs: Sequence[Spec], first: int) -> FoundOffers:
        """Find the offers of specs, and add their sources. `first`: position of the first of the specs."""
        options = self._options
        found = await find_offers(
            specs, options.selection, priced=options.budget is not None, within=options.provision_timeout or ASK_WITHIN
        )
        for offered in found.offered:
            position = first + offered.source.position
            source = replace(offered.source, position=position, group=self._group)
            self._states.setdefault(source, SourceState(replace(offered, source=source)))
        return found

    async def _find_former(self) -> None:
        """Find the offers for the specs before an update, for the nodes that are launched if it cannot go on."""
        first, specs = self._former
        if not specs:
            return
        try:
            await self._find(specs, first)
        except SkywardError as error:  # the sources on record remain
            _logger.warning("no offers for the earlier spec of group %r: %s", self._group, reason_of(error))

    def _set_notes(self, found: FoundOffers, failures: Sequence[str]) -> None:
        preferred = self._preferred
        self.provider_name = preferred.source.provider
        preferred.announced = True
        price = preferred.offered.price_note(len(self._sources_at(self.positions))) if not self._earlier else ()
        of_source = (*preferred.offered.notes, *preferred.cluster.notes, *self._warm_note)
        self.notes = (*price, *found.notes, *failures, *of_source, *preferred.image_notes)

    async def _prepare_preferred(self, positions: range) -> list[str]:
        """Prepare the preferred source of these positions; if its provider fails, prefer a source of another.

        Return notices about these.

        Where a source has no capacity or quota, the provider may have some for its others. The sources that failed, or
        whose provider did, move to the end, and are tried again when the others have no machines.

        Raises:
            SkywardError: all providers failed; the error of the first one.
        """
        refusals: dict[MachineSource, SkywardError] = {}
        failed: set[int] = set()
        notices: list[str] = []
        sources = self._sources_at(positions)
        for source in sources:
            state = self._states[source]
            if source.position in failed:
                continue
            try:
                await self._cluster(state, is_shown=source == sources[0])
            except SkywardError as error:
                refusals[source] = error
                if not isinstance(error, NoCapacityError | QuotaError):
                    failed.add(source.position)
                if state.prepared is None:
                    self._remove_record(state)  # nothing was created
                notices.append(f"{source} is tried last, because it could not be prepared: {reason_of(error)}.")
            else:
                last = {each for each in sources if each in refusals or each.position in failed}
                self._states = dict(sorted(self._states.items(), key=lambda each: each[0] in last))
                return notices
        raise next(iter(refusals.values()))

    async def _find_existing(self, entry: ClusterEntry) -> None:
        """Find the machines of another process that still exist: `provision` hands these out first."""
        offered: SourceOffer = entry.offered
        state = self._states[offered.source]
        if entry.cluster is None:
            return
        for machine in sorted(entry.machines, key=_by_rank):
            if machine.instance.id in self._leaving:
                await self._finish_termination(state, machine.instance)
                continue
            instance = await state.get_instance(machine.instance.id)
            if instance is None or instance.status == "exited":
                self._record.gone(entry.number, machine.instance.id)
                continue
            self._instances[instance.id] = state
            state.existing.append(instance if machine.worker is None else machine.instance)
            if machine.worker is not None:
                self._workers[instance.id] = machine.worker
        state.unchecked_since = min(entry.requests.values(), default=time.time())
        await self._terminate_orphans(state)
        for token in entry.requests:
            self._record.provisioned(entry.number, token, state.cluster, ())

    async def _finish_termination(self, state: SourceState, instance: Instance) -> None:
        """Terminate a machine that another process was about to terminate."""
        try:
            await state.offered.provider.terminate(state.cluster, [instance.id])
        except Exception as error:  # it is no machine that the pool knows, so the next check for such ones ends it
            _logger.warning("machine %s could not be terminated; trying later: %s", instance.id, reason_of(error))
        else:
            self._record.gone(state.number, instance.id)

    async def _cluster(self, state: SourceState, *, is_shown: bool = False) -> Cluster:
        """Return the resources that the machines of a source share. The first call sets these up.

        Args:
            is_shown: True if the pool shows the notes of the source, as it does those of the preferred one.
        """
        async with state.preparing:
            if state.prepared is None:
                offered = state.offered
                if state.entry is None:
                    state.entry = self._record.preparing(self._group, offered)
                if not is_shown and state is not self._preferred:
                    for note in offered.notes:
                        _logger.warning("%s: %s", state.source, note)
                cluster = await self._prepared(offered)
                state.prepared = replace(cluster, tags=self._record.identity.tags)
                self._record.prepared(state.entry, state.prepared)
                await self._choose_image(state)
            return state.cluster

    async def _prepared(self, offered: SourceOffer) -> Cluster:
        """Set up the resources of a source, and find the volumes that its provider attaches."""
        provider = offered.provider
        cluster = await provider.prepare(offered.spec, offered.offer, self._record.identity)
        native = native_volumes(offered.spec, offered.config)
        if not native:
            return cluster
        assert isinstance(provider, GuardedProvider)
        try:
            return await provider.attach(cluster, native)
        except Exception:
            await provider.teardown(cluster)
            raise

    async def _choose_image(self, state: SourceState) -> None:
        """Let the machines of a source start from an image that was built with their environment, if there is one."""
        offered = state.offered
        if not self._uses_images or not acts_on(offered.config).fields >= SETUP_FIELDS:
            return
        if isinstance(offered.provider, GuardedProvider) and offered.provider.builds_images:
            found = await find_image(offered, await self.starter.plan_of(offered.spec, None))
            state.image, state.image_notes = found.record, found.notes
            if found.record is not None:
                state.prepared = replace(state.cluster, machine_image=found.record.image)

    async def _drop_image_if_gone(self, state: SourceState) -> bool:
        """Return whether the image of a source was deleted meanwhile, so that its machines start from the usual one."""
        record, provider = state.image, state.offered.provider
        if record is None or not isinstance(provider, GuardedProvider):
            return False
        try:
            is_gone = await forget_if_gone(provider, record)
        except Exception:  # it does not say: the failure of the launch counts
            _logger.debug("could not check image %s", record.built.id, exc_info=True)
            return False
        if is_gone:
            _logger.warning("%s", gone_note(record.built))
            state.image = None
            state.prepared = replace(state.cluster, machine_image=None)
        return is_gone

    async def provision(self, source: MachineSource, count: int) -> Sequence[Instance]:
        """Return up to `count` machines of a source: existing ones first, or else the result of one request.

        Raises:
            CredentialsError: the nodes' volumes would have no credentials.
            Exception: what the request raises.
        """
        state = self._states[source]
        if existing := state.existing:
            taken, existing[:] = existing[:count], existing[count:]
            return taken
        await check_credentials(state.offered.spec)
        warm = await self._take_warm(source, count) if self.shares_machines else []
        if len(warm) == count:
            return warm
        try:
            return [*warm, *await self._launch(state, count - len(warm))]
        except Exception as error:
            if not warm:
                raise
            _logger.warning("%s: %s", source, reason_of(error))
            return warm

    async def _launch(self, state: SourceState, count: int) -> Sequence[Instance]:
        """Launch up to `count` machines: from the ordinary image if that with an environment is gone.

        If they come from a source that the user was not told of, say so.
        """
        try:
            try:
                instances = await self._request(state, count)
            except SkywardError:  # nothing was launched
                if not await self._drop_image_if_gone(state):
                    raise
                instances = await self._request(state, count)
        except Exception as error:
            state.failure = reason_of(error)
            raise
        if instances and not state.announced:
            self._announce(state)
        for each in instances:
            self._check_price(state, each)
        return instances

    def _check_price(self, state: SourceState, instance: Instance) -> None:
        """Tell the user that a new machine costs more than was announced."""
        told = max(state.source.hourly_price, state.dearest)
        if notice := price_rise(state.offered, instance.hourly_price, told):
            state.dearest = instance.hourly_price
            self.note(notice)
            self.repriced()

    def _announce(self, state: SourceState) -> None:
        """Tell the user that machines come from another source than announced before, and at which price."""
        told = (each for each in self._sources_at(self.positions) if self._states[each].announced)
        first = self._states[next(told)]
        state.announced = True
        reason = f": {first.failure}" if first.failure else ""
        self.note(f"nodes come from {state.offered.at_price} instead of {first.offered.at_price}{reason}.")
        self.repriced()

    async def _request(self, state: SourceState, count: int) -> Sequence[Instance]:
        """Request up to `count` machines of a source, and return those that were launched.

        Raises:
            NoCapacityError: machines cost more than the spec allows, here or at the last boot. None is left.
        """
        if state.refused:
            reason, state.refused = state.refused, ""
            raise NoCapacityError(f"The last machine of {state.source} was not used: {reason}.")
        cluster = await self._cluster(state)
        token = self._record.asking(state.number)
        tagged = replace(cluster, tags={**cluster.tags, "skyward-request": token})
        self._inventory.asking += 1
        began, asked = time.time(), time.monotonic()
        try:
            state.prepared, instances = await state.offered.provider.provision(tagged, count)
            self._record.provisioned(state.number, token, state.prepared, instances)
            if instances:
                self.startups.add_allocation(state.source.provider, time.monotonic() - asked)
            if dear := [each for each in instances if too_dear(state.offered, each)]:
                instances = await self._terminate_dear(state, instances, dear, began)
            instances, extra = instances[:count], instances[count:]
            self._instances.update((instance.id, state) for instance in instances)
            self._inventory.known.update(instance.id for instance in instances)
            if extra:
                await self._terminate_extra(state, extra, count)
        except CredentialsError:  # nothing was launched, and the provider would not list its machines either
            self._record.provisioned(state.number, token, cluster, ())
            raise
        except Exception:
            state.unchecked_since = state.unchecked_since or began
            raise
        finally:
            self._inventory.asking -= 1
            await self._terminate_orphans(state)
        return instances

    async def _take_warm(self, wanted: MachineSource, count: int) -> list[Instance]:
        """Take over up to `count` machines that other pools kept warm, instead of launching them."""
        taken: list[tuple[SourceState, Instance, str]] = []
        priced = self._options.budget is not None
        fits = partial(adapted, specs=self._specs, first=self._first, wanted=wanted, priced=priced)
        try:
            now = time.time()
            for entry, pool in self._record.take_warm(self._group, count, now, now + LASTS_FOR, fits):
                offered: SourceOffer = entry.offered
                state = self._states.setdefault(offered.source, SourceState(offered))
                state.offered, state.prepared, state.entry = offered, entry.cluster, entry.number
                for machine in entry.machines:
                    self._instances[machine.instance.id] = state
                    self._inventory.known.add(machine.instance.id)
                    taken.append((state, machine.instance, pool.name))
        except Exception:  # such as the records of a pool that cannot be read in this environment
            _logger.warning("could not look for warm machines; launching others", exc_info=True)
        entering = (entered(state.offered, state.cluster, instance) for state, instance, _ in taken)
        usable = []
        for (state, instance, pool_name), found in zip(
            taken, await asyncio.gather(*entering, return_exceptions=True), strict=True
        ):
            if isinstance(found, BaseException):
                _logger.warning("machine %s, which was kept warm, is not used: %s", instance.id, reason_of(found))
                await self._terminate_unusable(instance)
            else:
                usable.append(found)
                self.note(taken_notice(found, pool_name, state.source, wanted))
        return usable

    async def _terminate_unusable(self, instance: Instance) -> None:
        """Terminate a machine that was taken over and cannot be used; its teardown tries again if that fails."""
        try:
            await self.terminate(instance)
        except Exception:
            _logger.exception("machine %s could not be terminated; trying again when the pool is closed", instance.id)

    # Keeping machines warm.

    @property
    def _warm_note(self) -> tuple[str, ...]:
        """Notice that no machine is kept warm after the pool, although the spec asks for it; else nothing."""
        if self.shares_machines or not any(is_kept(spec, provider_config(spec)) for spec in self._specs):
            return ()
        return (
            "No machine of this pool is kept warm after its close: its nodes form a cluster, and the next pool could "
            "not add nodes of its own to it. Set cluster=False if it needs no collections.",
        )

    def warm_seconds(self, instance: Instance) -> float:
        """Return for how many seconds a machine is to be kept warm after the pool; 0 if it is not, or cannot be."""
        state = self._instances.get(instance.id)
        return state.offered.spec.warm if state is not None and can_be_kept(state.offered, instance) else 0.0

    def begin_warm(self, machine: int, instance: Instance, per_hour: float, until: float) -> None:
        """Record that a machine is kept warm until a time. Called before anything on it is ended."""
        number = self._instances[instance.id].number
        self._record.keep_warm(number, instance.id, machine, per_hour, until)
        self._kept_warm.add(instance.id)

    async def make_warm(self, instance: Instance, seconds: float) -> bool:
        """Clean a machine whose worker has ended, for the next pool; return False if it is terminated instead."""
        if await keep_warm(instance, seconds):
            self._record.warm_is_ready(self._instances[instance.id].number, instance.id)
            return True
        self.give_up_warm(instance)
        return False

    def give_up_warm(self, instance: Instance) -> None:
        """Record that a machine is not kept warm any more."""
        self._kept_warm.discard(instance.id)
        self._record.give_up_warm(self._instances[instance.id].number, instance.id)

    async def use_again(self, instance: Instance) -> Instance | None:
        """Return a warm machine of this pool, which may become a node again; None if it cannot be used."""
        state = self._instances[instance.id]
        self.give_up_warm(instance)
        try:
            found = await entered(state.offered, state.cluster, instance)
        except Exception as error:
            _logger.warning("machine %s, which was kept warm, is not used: %s", instance.id, reason_of(error))
            return None
        self.note(f"Machine {instance.id}, which was kept warm, is used again instead of launching one.")
        return found

    async def _terminate_dear(
        self, state: SourceState, launched: Sequence[Instance], dear: Sequence[Instance], began: float
    ) -> list[Instance]:
        """Terminate the machines of a request that cost more than the spec allows; return the others.

        Raises:
            NoCapacityError: there is no other.
        """
        await state.offered.provider.terminate(state.cluster, [each.id for each in dear])
        for each in dear:
            self._record.bill_found([each.id], str(state.source), each.hourly_price, began)
            self._record.gone(state.number, each.id)
        reason = f"A machine of {state.source} was terminated at once: {too_dear(state.offered, dear[0])}."
        usable = [each for each in launched if each not in dear]
        if not usable:
            raise NoCapacityError(reason)
        _logger.warning("%s", reason)
        return usable

    async def _terminate_extra(self, state: SourceState, extra: Sequence[Instance], count: int) -> None:
        """Terminate the machines that a provider returned beyond the `count` that were requested."""
        surplus = f"{state.source} returned {count_text(count + len(extra), 'machine')} for a request of {count}"
        try:
            await state.offered.provider.terminate(state.cluster, [each.id for each in extra])
        except Exception:
            _logger.exception("%s; the extra ones could not be terminated; trying again later", surplus)
            state.unchecked_since = state.unchecked_since or time.time()
        else:
            _logger.warning("%s; the extra ones were terminated", surplus)
            for each in extra:
                self._record.gone(state.number, each.id)

    async def _terminate_orphans(self, state: SourceState) -> None:
        """Terminate the machines of a failed request, whose answer is unknown, once no other is under way.

        The machines of another pool, of which this one took some over, are none of its business.
        """
        if state.unchecked_since is None or self._inventory.asking or state.source.lender:
            return
        provider = state.offered.provider
        try:
            existing = await provider.find(state.cluster)
            if self._inventory.asking:
                return  # the machines of a new request may be among them
            if orphans := self._unknown(existing):
                await provider.terminate(state.cluster, [each.id for each in orphans])
                self._bill_found(state, orphans)
        except Exception:
            _logger.exception("could not check for machines of a failed request at %s; trying later", state.source)
        else:
            state.unchecked_since = None

    def _unknown(self, existing: Sequence[Instance]) -> list[Instance]:
        """Return those of the existing machines that no request has returned."""
        return [each for each in existing if each.id not in self._instances and each.id not in self._inventory.known]

    def _bill_found(self, state: SourceState, machines: Sequence[Instance]) -> None:
        """Record what terminated machines of a source cost that no request had returned."""
        if state.unchecked_since is not None:
            ran = [each.id for each in machines if each.status != "exited"]
            self._record.bill_found(ran, str(state.source), state.source.hourly_price, state.unchecked_since)

    def found(self, node: Node) -> Mapping[str, float]:
        """Return the measured resources of a node that neither its spec nor its offer states."""
        stated = {**self._offered(node).spec.resources, **self._stated(node)}
        return {name: amount for name, amount in node.measured.items() if name not in stated}

    def _stated(self, node: Node) -> Mapping[str, float]:
        """Return the resources of a node that its spec or its offer states."""
        return {name: amount for name, amount in self._offered(node).resources.items() if amount}

    def _offered(self, node: Node) -> SourceOffer:
        return self._instances[node.instance.id].offered

    def node(self, rank: int, machine: int, instance: Instance, on_event: OnEvent, on_lost: OnLost) -> Node:
        """Return a new node for a machine; it is not started yet."""
        entry = self._workers.pop(instance.id, None)
        instance = replace(instance, access=self._with_options(instance.access))
        node = Node(rank, machine, instance, on_event, on_lost, self._record.derive, entry)
        node.slot_price = self._terms(instance)
        return node

    def _terms(self, instance: Instance) -> SlotPrice:
        offered, slots = self._instances[instance.id].offered, self._options.worker.concurrency
        return SlotPrice(offered.accelerators or offered.source.provider, offered.source.hourly_price, slots)

    def _with_options(self, access: Access | None) -> Access | None:
        """Return the access to a machine, with the timeouts of the options where these are set."""
        if not isinstance(access, SSHAccess):
            return access
        within, every = self._options.ssh_timeout, self._options.ssh_retry_interval
        return replace(access, answer_within=within or access.answer_within, retry_every=every or access.retry_every)

    async def start(self, node: Node, info: Callable[[], str]) -> None:
        """Start a node's worker and connect to it.

        Args:
            node: the node.
            info: returns the result of `instance_info()` on the node, as JSON, once it is connected.

        Raises:
            NodeStartError: the node did not start.
        """
        self.startups.begin(node.startup)
        was_attached = node.worker_entry is not None
        try:
            await self._start(node, info)
        except Exception as error:
            self.startups.failed(node.startup, error)
            raise
        self.startups.completed(node.startup, self._offered(node).source.provider, attached=was_attached)

    async def state_of(self, instance: str) -> Instance | None:
        """Return the state of a machine, as its provider reports it; None if it does not exist."""
        return await self._instances[instance].get_instance(instance)

    async def _wait_for_boot(self, node: Node) -> None:
        """Wait until the machine of a node runs, if its provider launched it without waiting."""
        node.phase = node.startup.enter(BOOTING)
        machine, waiting = node.instance.id, self._inventory.waiting

        def on_detail(detail: str) -> None:
            if notice := waiting.update(machine, detail):
                self.note(notice)

        try:
            instance = await until_running(node.instance, self.state_of, self.boot_within, on_detail)
        finally:
            waiting.forget(machine)
        state = self._instances[machine]
        if reason := too_dear(state.offered, instance):
            state.refused = reason
            self.set_price(node.machine, instance)
            raise NodeStartError(reason)
        self._check_price(state, instance)
        node.instance = replace(instance, access=self._with_options(instance.access))
        node.slot_price = self._terms(instance)

    async def _start(self, node: Node, info: Callable[[], str]) -> None:
        if node.instance.status != "running" or node.instance.access is None:
            await self._wait_for_boot(node)
        await self.starter.start(node, self._offered(node), info)
        if node.worker_entry is not None:
            self._record.installed(self._instances[node.instance.id].number, node.instance, node.worker_entry)

    def end_orphan(self, node: Node) -> Coroutine[Any, Any, None]:
        """Return a coroutine that ends a worker whose machine was unreachable, once that can be reached again."""
        access = node.instance.access
        assert isinstance(access, SSHAccess)
        return end_orphan(access, node.orphan_directory, self._offered(node).spec.ttl)

    def bill(self, machine: int, instance: Instance) -> None:
        """Record what an allocated machine costs."""
        source = self._instances[instance.id].source
        if price := instance.hourly_price or source.hourly_price:
            self._billed.add(machine)
            self._record.bill(machine, instance.id, str(source), price)

    def set_price(self, machine: int, instance: Instance) -> None:
        """Record another price of a machine. One whose price was unknown has a bill from now on."""
        if machine in self._billed:
            self._record.set_price(machine, instance.hourly_price)
        else:
            self.bill(machine, instance)

    def end_bill(self, machine: int) -> None:
        """Record that a machine costs nothing any more."""
        self._billed.discard(machine)
        self._record.end_bill(machine)

    async def terminate(self, instance: Instance) -> None:
        """Terminate one machine. Idempotent."""
        state = self._instances.get(instance.id)
        if state is not None:
            await state.offered.provider.terminate(state.cluster, [instance.id])
            self._instances.pop(instance.id, None)
            self._inventory.known.discard(instance.id)
            self._record.gone(state.number, instance.id)

    async def teardown(self) -> None:
        """Terminate every machine, and remove the resources they shared. Idempotent.

        Raises:
            ProvisioningError: some of it may be left, and stays on record. The other sources are torn down anyway.
        """
        await self.starter.close()
        within = self._options.shutdown_timeout
        errors = []
        for state in [each for each in self._states.values() if each.entry is not None]:
            try:
                async with asyncio.timeout(within):
                    await self._tear_down(state)
            except TimeoutError:
                errors.append(f"{state.source} did not answer within {within:.0f} s")
            except Exception as error:
                errors.append(f"{state.source}: {(str(error) or type(error).__name__).rstrip('.')}")
        if errors:
            raise ProvisioningError("; ".join(errors))

    async def _tear_down(self, state: SourceState) -> None:
        """Terminate everything at one source. An unfinished preparation is repeated first, to get its cluster."""
        provider = state.offered.provider
        try:
            cluster = await self._cluster(state)
        except SkywardError:  # nothing was created
            self._remove_record(state)
            return
        machines = [instance for instance, where in self._instances.items() if where is state]
        left = [instance for instance in machines if instance not in self._kept_warm]
        existing = [] if state.source.lender else await provider.find(cluster)
        unknown = self._unknown(existing)
        ids = dict.fromkeys((*left, *(each.id for each in existing)))
        ending = [each for each in ids if each not in self._kept_warm]
        if ending:
            await provider.terminate(cluster, ending)
        self._bill_found(state, unknown)
        keeps_warm = len(left) < len(machines)  # these need what they share
        try:
            if not keeps_warm and not state.source.lender:
                await provider.teardown(cluster)  # it may wait for the end of the machines, which are billed until then
        finally:
            for instance in left:
                self._instances.pop(instance, None)
                self._record.gone(state.number, instance)
        if keeps_warm:
            return
        state.prepared = None
        self._remove_record(state)

    def _remove_record(self, state: SourceState) -> None:
        """Remove the journal's entry for the resources that the machines of a source share, if there is one."""
        entry, state.entry = state.entry, None
        if entry is not None:
            self._record.torn_down(entry)

    def topology(self, node: Node, nodes: Mapping[int, Node], total: int) -> str:
        """Return the value of `instance_info()` on `node`, as JSON."""
        state, worker = self._instances[node.instance.id], self._options.worker
        resources = self._stated(node)
        spec, job = state.offered.spec, state.cluster.id
        return topology(node, nodes, total, spec=spec, resources=resources, worker=worker, job=job)


def _check_images(specs: Sequence[Spec]) -> None:
    """Check, before anything is launched, that the environments of specs can be made.

    Raises:
        SpecError: an include does not exist, or the nodes cannot install a requirement.
    """
    for spec in specs:
        check_includes(spec.image.includes)
        config = provider_config(spec)
        if config.name == "local":
            check_requirements(spec.image)
        elif "image.pip" in acts_on(config).fields:
            check_remote_requirements(spec.image)


def launchers_of(
    record: PoolRecord, groups: Mapping[str, Sequence[Spec]], options: Options, first: Mapping[str, int] = _AT_START
) -> Mapping[str, Launcher]:
    """Return the launchers of one pool, by group. `first`: positions of the first of their specs; 0 by default."""
    inventory, startups = Inventory(), StartupTracker(record)
    most = sum(Nodes.of(specs[0].nodes).ceiling for specs in groups.values())
    shares = options.cluster is False or most == 1
    return {
        group: Launcher(
            record, group, specs, options, inventory, startups, shares_machines=shares, first=first.get(group, 0)
        )
        for group, specs in groups.items()
    }


def _by_rank(machine: MachineEntry) -> tuple[bool, int]:
    return machine.worker is None, machine.worker.rank if machine.worker is not None else 0
