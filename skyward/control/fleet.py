"""The shell of a pool's nodes: carries out what the reconciler decides."""

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from skyward.control import nodes as steps
from skyward.control.launching import Launcher
from skyward.control.node import Node
from skyward.control.snapshot import NodeView
from skyward.errors import NodeStartError
from skyward.provider import Instance
from skyward.specs import Nodes
from skyward.wire.messages import Event, Topology

__all__ = ["Crew", "Fleet"]


class Crew(Protocol):
    """Whom the fleet tells about its nodes."""

    def joined(self, rank: int) -> None:
        """A node can take tasks; or takes them again, after a drain that was taken back."""

    def draining(self, rank: int) -> None:
        """A node is to take no more; `Fleet.emptied` is wanted when it holds none."""

    def lost(self, rank: int, reason: str) -> None:
        """A node died; another is to take its rank."""

    def removed(self, rank: int, reason: str) -> None:
        """No node will have this rank for now."""

    def heard(self, node: Node, event: Event) -> None:
        """An event of a node."""

    def changed(self) -> None:
        """The nodes there are have changed."""

    def busy(self, rank: int) -> int:
        """Slots in use on a node."""

    def say(self, text: str) -> None:
        """Tell the user."""


class Fleet:
    """The nodes of one pool. Lives on the library's loop."""

    def __init__(self, name: str, launcher: Launcher, wanted: Nodes, crew: Crew) -> None:
        self.wanted = wanted
        self.failure = ""
        self._name = name
        self._launcher = launcher
        self._crew = crew
        self._reconciler = steps.Reconciler()
        self._nodes: dict[int, Node] = {}
        self._launches: dict[int, object] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._progress = asyncio.Event()

    @property
    def nodes(self) -> dict[int, Node]:
        """The nodes that have a machine, by rank."""
        return self._nodes

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of every node there is, whatever its state."""
        return tuple(self._reconciler.states)

    @property
    def desired(self) -> int:
        """How many nodes are wanted now."""
        return self._reconciler.desired

    @property
    def hopeless(self) -> bool:
        """Whether no node is up, coming or going."""
        return self._reconciler.empty

    async def open(self) -> None:
        """Get the first nodes, and return when enough of them are ready.

        Raises:
            NodeStartError: they cannot be had.
        """
        self._reconcile(steps.Resize(max(self.wanted.min, self.wanted.threshold)))
        while self._reconciler.count("active") < self.wanted.threshold:
            if self.desired - len(self._reconciler.given_up) < self.wanted.threshold:
                raise NodeStartError(self.failure)
            self._progress.clear()
            await self._progress.wait()

    def resize(self, wanted: Nodes) -> None:
        """Change how many nodes there are. Nodes that go finish their tasks first."""
        self.wanted = wanted
        self._reconcile(steps.Resize(max(wanted.min, min(self.desired, wanted.ceiling))))

    def wake(self) -> None:
        """Get a node if there is none and one is allowed: there is work."""
        if self.desired == 0 and self.wanted.ceiling > 0:
            self._reconcile(steps.Resize(1))

    def emptied(self, rank: int) -> None:
        """A draining node holds no task any more."""
        self._reconcile(steps.Emptied(rank))

    async def close(self) -> None:
        """End every node and give every machine back. Twice does no harm."""
        for task in tuple(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await asyncio.gather(*(node.close() for node in self._nodes.values()))
        self._nodes.clear()
        await self._launcher.teardown()

    def _reconcile(self, message: steps.Message) -> None:
        launches: dict[float, list[int]] = {}
        for effect in self._reconciler.handle(message, time.monotonic()):
            match effect:
                case steps.Launch(rank, delay):
                    launches.setdefault(delay, []).append(rank)
                case steps.Activate(rank):
                    self._announce()
                    self._crew.joined(rank)
                case steps.Drain(rank):
                    self._crew.draining(rank)
                case steps.Terminate(rank, reason):
                    self._terminate(rank, reason)
                case steps.GiveUp(rank, reason):
                    self.failure = f"Pool {self._name!r} could not start node {rank}: {reason}"
                    self._crew.say(self.failure)
                    self._crew.removed(rank, self.failure)
        for delay, ranks in launches.items():
            self._spawn(self._launch(ranks, delay))
        self._progress.set()
        self._crew.changed()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _launch(self, ranks: Sequence[int], delay: float) -> None:
        launch = object()
        self._launches.update(dict.fromkeys(ranks, launch))
        await asyncio.sleep(delay)
        wanted = [rank for rank in ranks if self._launches.get(rank) is launch]
        try:
            instances = await self._launcher.provision(len(wanted))
        except Exception as error:
            for rank in wanted:
                self._reconcile(steps.Failed(rank, str(error)))
            return
        for rank in wanted[len(instances) :]:
            self._reconcile(steps.Failed(rank, "the provider had no machine for it"))
        await asyncio.gather(*(self._bring_up(*pair, launch) for pair in zip(wanted, instances, strict=False)))

    async def _bring_up(self, rank: int, instance: Instance, launch: object) -> None:
        if self._launches.get(rank) is not launch:  # it was scaled away meanwhile
            await self._launcher.terminate(instance)
            return
        node = self._nodes[rank] = Node(rank, instance, self._crew.heard, self._on_lost)
        try:
            await self._launcher.start(node)
        except Exception as error:
            if self._nodes.get(rank) is node:
                self._reconcile(steps.Failed(rank, str(error)))
        else:
            self._reconcile(steps.Joined(rank))

    def _announce(self) -> None:
        """Tell every node who its peers are."""
        for node in self._nodes.values():
            if node.phase == "ready":
                node.tell(Topology(self._launcher.topology(node, self._nodes, self.desired)))

    def _terminate(self, rank: int, reason: str) -> None:
        self._launches.pop(rank, None)
        node = self._nodes.pop(rank, None)
        if rank < self.desired:
            self._crew.lost(rank, f"node {rank} died: {reason}")
        else:
            self._crew.removed(rank, f"node {rank} is gone: {reason}")
        self._spawn(self._give_back(rank, node))

    async def _give_back(self, rank: int, node: Node | None) -> None:
        if node is not None:
            with contextlib.suppress(Exception):  # a machine that cannot be given back now is, at teardown
                await node.close()
                await self._launcher.terminate(node.instance)
        self._reconcile(steps.Terminated(rank))

    def _on_lost(self, node: Node, reason: str) -> None:
        if self._nodes.get(node.rank) is node and node.phase == "ready":
            self._reconcile(steps.Lost(node.rank, reason))

    def views(self) -> tuple[NodeView, ...]:
        """What each node looks like now, by rank."""
        return tuple(self._view(rank) for rank in self._reconciler.states)

    def _view(self, rank: int) -> NodeView:
        node = self._nodes.get(rank)
        return NodeView(
            rank=rank,
            state=self._reconciler.states[rank],
            phase="requested" if node is None else node.phase,
            address="" if node is None else node.address,
            slots=self._launcher.slots,
            busy=self._crew.busy(rank),
            received=0 if node is None else node.received,
        )
