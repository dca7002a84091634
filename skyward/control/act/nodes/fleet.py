"""The machines of a pool: executes the control plane's effects that concern them."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from skyward.control.act.nodes.cluster import ClusterManager
from skyward.control.act.nodes.launching import Launcher
from skyward.control.act.nodes.node import Node
from skyward.control.act.nodes.version_differences import VersionDifferences
from skyward.control.decide.machines import messages as machines
from skyward.control.decide.machines.sources import MachineSource
from skyward.control.decide.messages import MachineMessage
from skyward.control.decide.tasks.messages import Dropped, Overdue, Stored
from skyward.errors import ProvisioningError
from skyward.process.background_tasks import BackgroundTasks
from skyward.wire.protocol.messages import (
    Clustered,
    CollectionsFilled,
    CopiesReport,
    Fetched,
    LossReported,
    NodeReport,
    Peered,
    Topology,
    WorkerEvent,
)

if TYPE_CHECKING:
    from skyward.providers.protocol import Instance

__all__ = ["Fleet"]

STRAYS_WITHIN = 15.0
"""Seconds that closing a pool waits for unreachable machines that may still run a worker."""

_logger = logging.getLogger(__name__)


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

    def do(self, effect: machines.ReconcilerEffect, total: int) -> None:
        """Execute an effect. `total`: desired number of nodes."""
        match effect:
            case machines.Launch(group, source, numbers):
                self._asked.update(numbers)
                self._owners.update(dict.fromkeys(numbers, self._launchers[group]))
                self._background.spawn(self._request(self._launchers[group], source, numbers))
            case machines.Install(machine, rank):
                self._starting[machine] = self._background.spawn(self._bring_up(machine, rank))
            case machines.Activate():
                self.announce(total)
            case machines.NodeGone(rank, reason, again):
                if self.nodes.pop(rank, None) is None and again:
                    self.startups.refused(rank, reason)
            case machines.Terminate(machine, reason):
                self._background.spawn(self._terminate(machine, reason))
            case _:
                pass  # concerns a rank: the task manager handles it

    def announce(self, total: int) -> None:
        """Send every node the list of its peers."""
        for node in self.nodes.values():
            if node.phase == "ready":
                node.tell(Topology(self._owners[node.machine].topology(node, self.nodes, total)))

    async def close(self, *, leave: bool = False) -> None:
        """Close every node and terminate every machine; or `leave` them running, to be attached to later.

        Raises:
            ProvisioningError: some machines may be left. All others are terminated.
        """
        await self._background.cancel()
        await self._differences.close()
        if self.clustering is not None:
            await self.clustering.close()
        closing = (node.close(leave=leave) for node in self._brought_up.values())
        for unclosed in await asyncio.gather(*closing, return_exceptions=True):
            if unclosed is not None:
                _logger.warning("a node did not shut down cleanly: %s", unclosed)
        for machine, node in self._brought_up.items():
            self._end_stray(machine, node)
        self.nodes.clear()
        self._brought_up.clear()
        try:
            if not leave:
                await self._tear_down()
        finally:
            await self._end_strays()

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
        reason = "the provider returned too few machines"
        try:
            instances = await launcher.provision(source, len(numbers))
        except Exception as error:
            reason = str(error) or type(error).__name__
        finally:
            self._asked.difference_update(numbers)
        created = dict(zip(numbers, instances, strict=False))
        self._instances.update(created)
        for number in created:
            self._tell(machines.Allocated(number))
        if len(created) < len(numbers):
            self._tell(machines.Refused(tuple(numbers[len(created) :]), reason))

    async def _bring_up(self, machine: int, rank: int) -> None:
        node = self._owners[machine].node(rank, machine, self._instances[machine], self._on_event, self._on_lost)
        self.nodes[rank] = self._brought_up[machine] = node
        node.on_overdue, node.on_blobs = self._on_overdue, self._on_blobs
        node.on_code = self._differences.look
        is_attaching = node.worker_entry is not None
        self.entering += is_attaching
        try:
            await self._owners[machine].start(node)
        except Exception as error:
            self._tell(machines.Failed(machine, str(error) or type(error).__name__))
        else:
            self.entered += is_attaching
            self._tell(machines.Joined(machine, self._owners[machine].found(node), is_attaching))
            node.release()
            if is_attaching:
                self._tell(machines.TakenOver(machine))
            if self.clustering is not None:
                self.clustering.add(node)
        finally:
            self.entering -= is_attaching

    async def _terminate(self, machine: int, reason: str) -> None:
        if machine in self._asked:
            return  # the request is under way; its machine is terminated once it is known
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
                await node.close()
                # Only now: if this is cancelled before, `close` continues with the node.
                if self._brought_up.pop(machine, None) is not None:
                    self._end_stray(machine, node)
            if instance is not None:
                await self._owners[machine].terminate(instance)
        except Exception:
            _logger.exception("machine %s could not be terminated; trying again (%s)", machine, reason)
            return
        self._instances.pop(machine, None)
        self._owners.pop(machine, None)
        self._tell(machines.Terminated(machine))

    def _on_event(self, node: Node, event: WorkerEvent) -> None:
        if isinstance(event, NodeReport):
            self._reported(node, event)
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
        if node.phase == "ready":
            self._tell(machines.Lost(node.machine, reason))
