"""The machines of a pool: executes the control plane's effects that concern them."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from skyward.control.act.machines.warm import LASTS_FOR
from skyward.control.act.nodes.cluster import ClusterManager
from skyward.control.act.nodes.launching import Launcher
from skyward.control.act.nodes.node import Node
from skyward.control.act.nodes.outages import reason_of_loss, watch_outages
from skyward.control.act.nodes.version_differences import VersionDifferences
from skyward.control.act.nodes.volume_reports import VolumeReports
from skyward.control.decide.machines import messages as machines
from skyward.control.decide.machines.reconciler import NOT_NEEDED
from skyward.control.decide.machines.sources import MachineSource, RefusalKind
from skyward.control.decide.messages import MachineMessage
from skyward.control.decide.tasks.messages import Dropped, Overdue, Stored
from skyward.errors import (
    CredentialsError,
    JournalError,
    NoCapacityError,
    NodeStartError,
    ProvisioningError,
    QuotaError,
    RateLimitError,
    SpecError,
)
from skyward.events.volumes import VolumeState
from skyward.process.background_tasks import BackgroundTasks
from skyward.providers import Instance, LocalAccess, SSHAccess
from skyward.wire.protocol.messages import (
    Clustered,
    CollectionsFilled,
    CopiesReport,
    Fetched,
    LossReported,
    NodeReport,
    Peered,
    ReclaimNotice,
    Topology,
    WorkerEvent,
)
from skyward.wire.protocol.volumes import VolumesWritten

__all__ = ["Fleet", "WarmTerms"]

STRAYS_WITHIN = 15.0
"""Seconds that closing a pool waits for unreachable machines that may still run a worker."""

_PRICES_EVERY = 300.0
"""Seconds between questions about the prices of spot machines."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WarmTerms:
    """The terms of a machine that is kept warm: its deadline in seconds since the epoch, and USD per hour."""

    until: float
    per_hour: float


_NOT_WARM: Mapping[int, WarmTerms] = MappingProxyType({})


class Fleet:
    """The machines of one pool, by their numbers in the control plane. Runs on the library's loop.

    Args:
        launchers: launchers by group.
        tell: sends the control plane messages about machines, and about the blobs of nodes.
        route: handles the events of nodes.
        reported: handles the report of a node that another process started.
        clustering: the cluster that the nodes form; None without one.

    Attributes:
        nodes: nodes that have a machine, by rank.
        startups: startup tracker of the nodes.
        entering, entered: number of nodes, started by another process, that are being attached, and were attached.
        volume_reports: what the nodes have reported about their volumes.
        keep_for: returns the terms on which a machine that the pool needs no longer is kept warm; None for not at all.
    """

    def __init__(
        self,
        launchers: Mapping[str, Launcher],
        tell: Callable[[MachineMessage | Overdue | Stored | Dropped], None],
        route: Callable[[Node, WorkerEvent], None],
        clustering: ClusterManager | None,
        reported: Callable[[Node, NodeReport], None],
    ) -> None:
        self.nodes: dict[int, Node] = {}
        self.clustering = clustering
        self.entering = self.entered = 0
        self.startups = next(iter(launchers.values())).startups
        self._launchers = launchers
        self._tell = tell
        self._route = route
        self._reported = reported
        self._differences = VersionDifferences()
        self._owners: dict[int, Launcher] = {}
        self._instances: dict[int, Instance] = {}
        self._brought_up: dict[int, Node] = {}
        self._asked: set[int] = set()
        self._starting: dict[int, asyncio.Task[None]] = {}
        self._background = BackgroundTasks()
        self._strays = BackgroundTasks()
        self.volume_reports = VolumeReports()
        self._watching = False
        self._total = 0
        self._announcing = False
        self._spares: dict[int, WarmTerms] = {}
        self._sparing: dict[int, WarmTerms] = {}
        self.keep_for: Callable[[int], WarmTerms | None] = lambda _: None

    def _ask(self, node: Node) -> Awaitable[Instance | None]:
        return self._owners[node.machine].state_of(node.instance.id)

    def do(self, effect: machines.ReconcilerEffect, total: int) -> None:
        """Execute an effect. `total`: desired number of nodes."""
        self._total = total
        match effect:
            case machines.Launch(group, source, numbers):
                self._asked.update(numbers)
                self._owners.update(dict.fromkeys(numbers, self._launchers[group]))
                self._background.spawn(self._request(self._launchers[group], source, numbers))
            case machines.Install(machine, rank):
                if not self._watching:
                    self._watching = True
                    self._background.spawn(watch_outages(self.nodes.values, self._ask))
                    self._background.spawn(self._watch_prices())
                self._starting[machine] = self._background.spawn(self._bring_up(machine, rank))
            case machines.Activate():
                self.announce()
            case machines.NodeGone(rank, reason, again):
                if self.nodes.pop(rank, None) is not None:
                    self._announce_soon()
                elif again:
                    self.startups.refused(rank, reason)
            case machines.Terminate(machine, reason):
                self._background.spawn(self._terminate(machine, reason))
            case _:
                pass  # concerns a rank: the task manager handles it

    def _announce_soon(self) -> None:
        """Announce once for all nodes that leave in this step."""
        if not self._announcing:
            self._announcing = True
            asyncio.get_running_loop().call_soon(self._announce_leaving)

    def _announce_leaving(self) -> None:
        self._announcing = False
        self.announce()

    def announce(self) -> None:
        """Send every node the list of its peers."""
        for node in self.nodes.values():
            if node.phase == "ready":
                node.tell(Topology(self._topology(node)))

    def _topology(self, node: Node) -> str:
        """Return what a node sees of the pool: the desired nodes count, and those that still drain."""
        return self._owners[node.machine].topology(node, self.nodes, max(self._total, len(self.nodes)))

    def warm_seconds(self, machine: int, *, closing: bool) -> float:
        """Return for how many seconds a machine is to be kept warm; 0 if it cannot be.

        Args:
            machine: number of the machine.
            closing: whether it is kept for other pools, and not for this one.
        """
        node, owner = self._brought_up.get(machine), self._owners.get(machine)
        if node is None or owner is None or node.phase != "ready" or not node.is_up or node.unreachable:
            return 0.0
        return owner.warm_seconds(node.instance) if owner.shares_machines or not closing else 0.0

    async def close(self, *, leave: bool = False, warm: Mapping[int, WarmTerms] = _NOT_WARM) -> dict[int, WarmTerms]:
        """Close every node and terminate every machine; or `leave` them running, to be attached to later.

        Args:
            leave: whether the nodes remain as they are.
            warm: machines to keep for later pools. Returns those that were kept.

        Raises:
            ProvisioningError: some machines may be left. All others are terminated.
        """
        await self._background.cancel()
        warm = self._begin_warm(warm)
        for machine in [each for each in self._spares if not leave and not self._owners[each].shares_machines]:
            del self._spares[machine]
            self._owners[machine].give_up_warm(self._instances[machine])
        await self._differences.close()
        if self.clustering is not None:
            await self.clustering.close()
        closing = (node.close(leave=leave) for node in self._brought_up.values())
        for unclosed in await asyncio.gather(*closing, return_exceptions=True):
            if unclosed is not None:
                _logger.warning("a node did not shut down cleanly: %s", unclosed)
        for machine, node in self._brought_up.items():
            self._end_stray(machine, node)
            self.volume_reports.closed(node)
        kept = await self._make_warm(warm)
        self.nodes.clear()
        self._brought_up.clear()
        try:
            if not leave:
                await self._tear_down()
        finally:
            await self._end_strays()
        return kept

    def _begin_warm(self, warm: Mapping[int, WarmTerms]) -> dict[int, WarmTerms]:
        """Record the machines that are kept warm; return those that could be recorded."""
        recorded = {}
        for machine, terms in warm.items():
            instance = self._brought_up[machine].instance
            try:
                self._owners[machine].begin_warm(machine, instance, terms.per_hour, terms.until)
            except JournalError as error:  # it is terminated
                _logger.warning("machine %s is not kept warm: %s", instance.id, error)
            else:
                recorded[machine] = terms
        return recorded

    async def _make_warm(self, warm: Mapping[int, WarmTerms]) -> dict[int, WarmTerms]:
        """Clean machines for later pools; return those that were kept."""

        async def clean(machine: int) -> bool:
            seconds = max(1.0, warm[machine].until - time.time())
            return await self._owners[machine].make_warm(self._brought_up[machine].instance, seconds)

        done = await asyncio.gather(*map(clean, warm), return_exceptions=True)
        for error in done:
            if isinstance(error, BaseException):
                _logger.warning("a machine could not be kept warm: %s", error)
        return self._spares | {
            machine: terms for (machine, terms), kept in zip(warm.items(), done, strict=True) if kept is True
        }

    # Machines that an open pool needs no longer. They remain "terminating" for the control plane, which thus counts
    # their costs, and no nodes.

    @property
    def spares(self) -> frozenset[int]:
        """Numbers of the machines that are kept warm while the pool is open."""
        return frozenset(self._spares)

    def volumes_of(self, machine: int) -> tuple[VolumeState, ...]:
        """Return the volumes of the node of a machine, also while it shuts down."""
        node = self._brought_up.get(machine)
        return () if node is None else node.volumes.states

    def instances(self, machines: Iterable[int]) -> frozenset[str]:
        """Return the provider's ids of those of these machines that it has allocated."""
        return frozenset(self._instances[machine].id for machine in machines if machine in self._instances)

    async def _spare(self, machine: int, node: Node) -> bool:
        """Keep the machine of a closed node warm, if that is wanted; return whether it is."""
        owner, terms = self._owners[machine], self.keep_for(machine)
        if terms is None or machine not in self._begin_warm({machine: terms}):
            return False
        self._sparing[machine] = terms
        try:
            await node.close()
            self._brought_up.pop(machine, None)
            kept = await owner.make_warm(node.instance, terms.until - time.time())
        except BaseException:
            owner.give_up_warm(node.instance)
            raise
        finally:
            del self._sparing[machine]
        if kept:
            self._instances[machine] = node.instance
            self._spares[machine] = terms
            self._background.spawn(self._end_spare_at(machine, terms))
        return kept

    async def _end_spare_at(self, machine: int, terms: WarmTerms) -> None:
        await asyncio.sleep(terms.until - time.time())
        if self._spares.get(machine) is terms:
            await self._end_spare(machine)

    async def _end_spare(self, machine: int) -> None:
        """Terminate a machine that is kept warm."""
        if self._spares.pop(machine, None) is not None:
            self._owners[machine].give_up_warm(self._instances[machine])
            await self._terminate(machine, "it was kept warm long enough")

    async def set_leases(self, most: float) -> list[int]:
        """Have all nodes change their leases; return the ranks of those that did not answer.

        Args:
            most: seconds after the end of this process by which a node ends, with the tasks that run then.
        """
        nodes = [node for node in self.nodes.values() if node.phase == "ready" and node.is_up]
        answered = await asyncio.gather(*(node.set_lease(self._owners[node.machine].lease, most) for node in nodes))
        return [node.rank for node, has_answered in zip(nodes, answered, strict=True) if not has_answered]

    @property
    def has_watchdogs(self) -> bool:
        """True if the machine of a node is ended by its watchdog, some time after its worker."""
        return any(isinstance(node.instance.access, SSHAccess) for node in self.nodes.values())

    def spare_costs(self, *, closing: bool) -> float:
        """Return what the machines that are kept warm will cost until their deadlines, USD.

        Args:
            closing: whether only those count that are kept after the close of the pool.
        """
        now, kept = time.time(), {**self._sparing, **self._spares}
        counted = [each for machine, each in kept.items() if self._owners[machine].shares_machines or not closing]
        return sum(each.per_hour * max(0.0, each.until - now) for each in counted) / 3600

    def end_spares(self) -> None:
        """Terminate the machines that are kept warm while the pool is open."""
        for machine in tuple(self._spares):
            self._background.spawn(self._end_spare(machine))

    async def _use_spares(self, launcher: Launcher, count: int) -> list[Instance]:
        """Return up to `count` machines of a launcher that were kept warm, ready for a new node."""
        now = time.time()
        used: list[Instance] = []
        for machine in [each for each in self._spares if self._owners[each] is launcher]:
            if len(used) == count or self._spares[machine].until < now + LASTS_FOR:
                continue
            if not launcher.is_present(self._instances[machine]):  # it has another environment, or other hardware
                continue
            del self._spares[machine]
            instance = self._instances[machine]
            found = await launcher.use_again(instance)
            if found is None:
                await self._terminate(machine, "it could not be used again")
                continue
            used.append(found)
            self._instances.pop(machine, None)
            self._owners.pop(machine, None)
            launcher.end_bill(machine)
            self._tell(machines.Terminated(machine))
        return used

    def _end_stray(self, machine: int, node: Node) -> None:
        """End the worker of a closed node that was unreachable, as soon as its machine can be reached again."""
        if node.orphan_directory:
            self._strays.spawn(self._owners[machine].end_orphan(node))

    async def _end_strays(self) -> None:
        """Wait up to `STRAYS_WITHIN` for unreachable machines, so that a short outage leaves no worker behind."""
        if self._strays:
            await asyncio.wait(list(self._strays), timeout=STRAYS_WITHIN)
        for _ in self._strays:
            _logger.warning("a worker is unreachable and may still run; it exits when its lease expires")
        await self._strays.cancel()

    async def _tear_down(self) -> None:
        launchers = self._launchers.values()
        ends = await asyncio.gather(*(launcher.teardown() for launcher in launchers), return_exceptions=True)
        if errors := [end for end in ends if end is not None]:
            raise ProvisioningError("; ".join(str(error) or type(error).__name__ for error in errors))

    async def _request(self, launcher: Launcher, source: MachineSource, numbers: Sequence[int]) -> None:
        instances: Sequence[Instance] = ()
        reason, retry_after = "the provider returned too few machines", None
        kind: RefusalKind = "unknown"
        try:
            spares = await self._use_spares(launcher, len(numbers))
            instances = spares
            if len(spares) < len(numbers):
                instances = [*spares, *await launcher.provision(source, len(numbers) - len(spares))]
        except Exception as error:
            reason, kind = str(error) or type(error).__name__, refusal_kind(error)
            retry_after = error.retry_after if isinstance(error, RateLimitError) else None
        finally:
            self._asked.difference_update(numbers)
        created = dict(zip(numbers, instances, strict=False))
        self._instances.update(created)
        for number, instance in created.items():
            self._tell(machines.Allocated(number))
            launcher.bill(number, instance)
            self._tell_price(number, instance, source.hourly_price)
        if len(created) < len(numbers):
            self._tell(machines.Refused(tuple(numbers[len(created) :]), reason, kind, retry_after))

    async def _bring_up(self, machine: int, rank: int) -> None:
        node = self._owners[machine].node(rank, machine, self._instances[machine], self._on_event, self._on_lost)
        self.nodes[rank] = self._brought_up[machine] = node
        node.on_overdue, node.on_blobs = self._on_overdue, self._on_blobs
        node.on_code = self._differences.look
        node.copies = None if self.clustering is None else self.clustering.copies
        is_attaching = node.worker_entry is not None
        self.entering += is_attaching
        try:
            owner = self._owners[machine]
            await owner.start(node, lambda: self._topology(node))
        except Exception as error:
            is_final = isinstance(error, NodeStartError) and error.is_final
            self._tell(machines.Failed(machine, str(error) or type(error).__name__, is_final))
        else:
            self._tell_price(machine, node.instance, self._instances[machine].hourly_price)
            self._instances[machine] = node.instance
            self.entered += is_attaching
            self._tell(machines.Joined(machine, self._owners[machine].found(node), is_attaching))
            node.release()
            self.volume_reports.joined(node, owner.note)
            if is_attaching:
                self._tell(machines.TakenOver(machine))
            if self.clustering is not None:
                self.clustering.add(node)
        finally:
            self.entering -= is_attaching

    def _tell_price(self, machine: int, instance: Instance, known: float) -> None:
        """Report the price of a machine, if its provider states one that is not the `known` one."""
        if instance.hourly_price and instance.hourly_price != known:
            self._owners[machine].set_price(machine, instance)
            self._tell(machines.Priced(machine, instance.hourly_price))

    async def _watch_prices(self) -> None:
        """Ask for the current prices of spot machines, periodically."""
        while True:
            await asyncio.sleep(_PRICES_EVERY)
            for machine, instance in tuple(self._instances.items()):
                if not instance.spot:
                    continue
                try:
                    found = await self._owners[machine].state_of(instance.id)
                except Exception as error:  # the last known price counts on
                    _logger.info("the price of machine %s is unknown: %s", machine, error)
                    continue
                if found is not None and found.hourly_price and machine in self._instances:
                    self._tell_price(machine, found, instance.hourly_price)
                    self._instances[machine] = replace(instance, hourly_price=found.hourly_price)

    async def _terminate(self, machine: int, reason: str) -> None:
        if machine in self._asked or machine in self._spares:
            return  # the request is under way: its machine is terminated once it is known. Or it is kept for a while
        starting = self._starting.pop(machine, None)
        if starting is not None and not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
        node, instance = self._brought_up.get(machine), self._instances.get(machine)
        try:
            if node is not None:
                self._differences.forget(node)
                if self.clustering is not None:
                    await self.clustering.leave(node)
                if reason == NOT_NEEDED and await self._spare(machine, node):
                    return
                await node.close()
                self.volume_reports.closed(node, self._owners[machine].note)
                # Only now: if this is cancelled before, `close` continues with the node.
                if self._brought_up.pop(machine, None) is not None:
                    self._end_stray(machine, node)
            if instance is not None:
                await self._owners[machine].terminate(instance)
        except Exception:
            _logger.exception("machine %s could not be terminated; trying again (%s)", machine, reason)
            return
        self._instances.pop(machine, None)
        if (owner := self._owners.pop(machine, None)) is not None:
            owner.end_bill(machine)
        self._tell(machines.Terminated(machine))

    def _on_event(self, node: Node, event: WorkerEvent) -> None:
        if isinstance(event, NodeReport):
            self._reported(node, event)
        elif isinstance(event, VolumesWritten):
            self.volume_reports.wrote(node, event, self.nodes.values(), self._owners[node.machine].note)
        elif isinstance(event, ReclaimNotice):
            self._tell(machines.Reclaimed(node.machine, event.seconds))
        elif not isinstance(event, Clustered | CollectionsFilled | LossReported | CopiesReport | Peered | Fetched):
            self._route(node, event)
        elif self.clustering is not None:
            self.clustering.handle(node, event)

    def _on_overdue(self, node: Node, tasks: tuple[int, ...], reason: str) -> None:
        if self.nodes.get(node.rank) is node:
            self._tell(Overdue(tasks, node.rank, f"node {node.rank} was terminated: {reason}"))

    def _on_blobs(self, node: Node, stored: tuple[bytes, ...], dropped: tuple[bytes, ...]) -> None:
        if self.nodes.get(node.rank) is node:
            if stored:
                self._tell(Stored(node.rank, stored))
            if dropped:
                self._tell(Dropped(node.rank, dropped))

    def _on_lost(self, node: Node, reason: str) -> None:
        if self.clustering is not None:
            self.clustering.remove(node)
        # The loss of a node that is not ready yet ends `Launcher.start` with an error: `_bring_up` reports `Failed`.
        if node.phase != "ready":
            return
        if node.machine_ended or isinstance(node.instance.access, LocalAccess):
            self._tell(machines.Lost(node.machine, reason))
        else:
            self._background.spawn(self._explain_loss(node, reason))

    async def _explain_loss(self, node: Node, reason: str) -> None:
        self._tell(machines.Lost(node.machine, await reason_of_loss(node, reason, self._ask)))


_REFUSALS: Mapping[type[Exception], RefusalKind] = {
    NoCapacityError: "capacity",
    QuotaError: "quota",
    RateLimitError: "rate",
    CredentialsError: "denied",
    SpecError: "impossible",
}


def refusal_kind(error: Exception) -> RefusalKind:
    """Return the kind of refusal that an error of a provider stands for."""
    return next((kind for each, kind in _REFUSALS.items() if isinstance(error, each)), "unknown")
