"""The shell of a pool: carries out what the task manager and the reconciler decide. It decides nothing itself.

Lives on the library's loop; `skyward.compute` is its face for other threads.
"""

import asyncio
import logging
import pickle
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from skyward.control import background
from skyward.control import task_messages as tasks
from skyward.control.fleet import Fleet
from skyward.control.launching import Launcher
from skyward.control.lifecycle import POOL, Lifecycle, PoolState
from skyward.control.node import Node
from skyward.control.settle import settle
from skyward.control.snapshot import PoolSnapshot
from skyward.control.tasks import TaskManager
from skyward.control.work import Arrived, Work
from skyward.errors import NodeStartError, PoolClosedError, UsageError
from skyward.specs import Nodes, Options, Spec
from skyward.wire.messages import (
    Blob,
    Credit,
    Display,
    Drop,
    Event,
    Feed,
    Finished,
    Need,
    Output,
    Started,
    Yielded,
)
from skyward.wire.payload import blobs_of

__all__ = ["BroadcastWork", "Pool"]

_logger = logging.getLogger(__name__)

TICK = 0.05
"""Seconds between looks at tasks that wait on a node they have no slot on."""


@dataclass(slots=True, eq=False)
class BroadcastWork:
    """A broadcast: makes the work of each member, and collects them. `done` is called with the members, by rank."""

    make: Callable[[], Work]
    done: Callable[[dict[int, Work]], None]
    members: dict[int, Work]
    number: int = 0


class Pool:
    """A pool of nodes and the tasks sent to it."""

    def __init__(self, name: str, specs: Sequence[Spec], options: Options, say: Callable[[str], None]) -> None:
        self.name = name
        self._say = say
        self._life: Lifecycle[PoolState] = Lifecycle(f"pool {name!r}", POOL, "idle")
        self._tasks = TaskManager(options.retry_on_interruption)
        self._launcher = Launcher(name, specs, options)
        self._fleet = Fleet(name, self._launcher, Nodes.of(specs[0].nodes), self)
        self._works: dict[int, Work] = {}
        self._arrived: dict[int, Arrived] = {}
        self._broadcasts: dict[int, BroadcastWork] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._draining: set[int] = set()
        self._ticking = False
        self._done = self._failed = 0

    # Opening and closing.

    @property
    def state(self) -> PoolState:
        """Where the pool is in its life."""
        return self._life.state

    async def open(self) -> None:
        """Get the nodes, and return when enough of them are ready.

        Raises:
            ProvisioningError: they cannot be had. What was started is gone again.
        """
        self._life.move("requesting", _now())
        try:
            await self._launcher.prepare()
            for note in self._launcher.notes:
                self._say(note)
            self._life.move("provisioning", _now())
            await self._fleet.open()
        except BaseException:
            await self.close()
            raise
        self._life.move("ready", _now())

    async def close(self) -> None:
        """Stop what runs, give every machine back. Twice does no harm."""
        if self.state in ("stopping", "closed"):
            return
        if self.state == "idle":
            self._life.move("closed", _now())
            return
        self._life.move("stopping", _now())
        for task in tuple(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        closed = PoolClosedError(f"Pool {self.name!r} was closed before this task ended. Open it and send it again.")
        for work in tuple(self._works.values()):
            settle(work, closed)
        self._works.clear()
        self._finish_broadcasts()
        await self._fleet.close()
        self._life.move("closed", _now())

    def _finish_broadcasts(self) -> None:
        broadcasts, self._broadcasts = self._broadcasts, {}
        for broadcast in broadcasts.values():
            broadcast.done(broadcast.members)

    # Tasks.

    def submit(self, works: Sequence[Work], target: int | None = None) -> None:
        """Take tasks, in order; with `target`, for the node of that rank."""
        if self.state in ("stopping", "closed"):
            closed = PoolClosedError(f"Pool {self.name!r} is closed. Open it, or a new one, first.")
            for work in works:
                settle(work, closed)
            return
        self._fleet.wake()
        if target is not None and target not in self._fleet.ranks:
            error = UsageError(f"Pool {self.name!r} has no node {target}; its nodes are {_listed(self._fleet.ranks)}.")
            for work in works:
                settle(work, error)
            return
        replayable: list[int] = []
        once: list[int] = []
        for work in works:
            work.task = self._tasks.number()
            self._works[work.task] = work
            (once if work.feeders else replayable).append(work.task)
        for numbers, again in ((replayable, True), (once, False)):
            if numbers:
                self._do(tasks.Submitted(tuple(numbers), target, again))
        self.changed()

    def broadcast(self, work: BroadcastWork) -> None:
        """Send a task to every node there is, and to those that join while it runs."""
        if self.state in ("stopping", "closed"):
            work.done({})
            return
        self._fleet.wake()
        work.number = self._tasks.number()
        self._broadcasts[work.number] = work
        self._do(tasks.Broadcast(work.number))

    def cancel(self, works: Iterable[Work]) -> None:
        """Stop tasks; each ends when its node has stopped it."""
        self._do(tasks.Cancel(tuple(work.task for work in works if work.task in self._works)))

    def cancel_broadcast(self, broadcast: BroadcastWork) -> None:
        """Stop every member of a broadcast."""
        self.cancel(broadcast.members.values())

    def credit(self, work: Work, units: int) -> None:
        """The caller has consumed part of a task's stream."""
        node = self._node_of(work.task)
        if node is not None:
            node.tell(Credit(work.task, units))

    def fetch(self, work: Work, blob: Blob) -> Future[memoryview]:
        """Get a large element of a stream from its node; from any thread."""
        rank = work.nodes[-1]
        node = self._fleet.nodes.get(rank)
        if node is None:
            raise ConnectionError(f"node {rank}, which holds the element, is gone")
        return node.fetch(blob)

    def _node_of(self, task: int) -> Node | None:
        rank = self._tasks.node_of(task)
        return None if rank is None else self._fleet.nodes.get(rank)

    def _do(self, message: tasks.Message) -> None:
        sent: set[Node] = set()
        for effect in self._tasks.handle(message, _now()):
            match effect:
                case tasks.Send(task, rank, attempt, share):
                    node = self._fleet.nodes[rank]
                    self._send(self._works[task], node, attempt, share)
                    sent.add(node)
                case tasks.Settle(task, outcome, reason):
                    self._settle(task, outcome, reason)
                case tasks.Stop(task, rank):
                    if (holder := self._fleet.nodes.get(rank)) is not None and not holder.stop_task(task):
                        self._do(tasks.Ended(task, rank, "cancelled", 0.0))
                case tasks.Recall(task, rank):
                    if (holder := self._fleet.nodes.get(rank)) is not None and not holder.stop_task(task, recall=True):
                        self._do(tasks.Ended(task, rank, "returned", 0.0))
                case tasks.Member(broadcast, task, rank):
                    owner = self._broadcasts[broadcast]
                    owner.members[rank] = self._works[task] = work = owner.make()
                    work.task = task
                case tasks.BroadcastEnded(broadcast):
                    ended = self._broadcasts.pop(broadcast)
                    ended.done(ended.members)
        for node in sent:
            node.flush()
        self._after_tasks()

    def _after_tasks(self) -> None:
        if self._draining:
            for rank in [rank for rank in self._draining if not self._tasks.busy(rank)]:
                self._draining.discard(rank)
                self._fleet.emptied(rank)
        if self._tasks.waits() and not self._ticking:
            self._ticking = True
            asyncio.get_running_loop().call_later(TICK, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        self._do(tasks.Tick())

    def _send(self, work: Work, node: Node, attempt: int, share: tuple[int, int] | None) -> None:
        work.nodes.append(node.rank)
        work.running = True
        node.submit(work, attempt, share, lambda _: self._do(tasks.Ended(work.task, node.rank, "lost", 0.0)))
        for index, feeder in enumerate(work.feeders):
            feeder.start(partial(background.call_soon, self._start_feed, work, index))

    def _start_feed(self, work: Work, index: int) -> None:
        self._spawn(self._feed(work, index))

    async def _feed(self, work: Work, index: int) -> None:
        """Send what a feeder has read, in its order."""
        feeder = work.feeders[index]
        async with feeder.order:
            items, last, failure = feeder.take()
            node = self._node_of(work.task)
            if node is None or (not items and not last):
                return
            blobs = {key: view for item in items for key, view in item.blobs.items()}
            try:
                await node.ship(blobs)
            except ConnectionError:
                return  # the node is gone, and the task with it
            payloads = tuple(item.payload for item in items)
            node.tell(Feed(work.task, index, payloads, last, failure.payload if failure else None))
            self._tasks.handle(tasks.Delivered(work.task), _now())

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _settle(
        self, task: int, outcome: Literal["value", "error", "timeout", "cancelled", "lost"], reason: str
    ) -> None:
        work = self._works.pop(task, None)
        if work is None:
            return
        if outcome == "value":
            self._done += 1
        else:
            self._failed += 1
        settle(work, outcome, reason, self._arrived.pop(task, None))

    # Events of nodes.

    def heard(self, node: Node, event: Event) -> None:
        """An event of a node."""
        if self._fleet.nodes.get(node.rank) is not node:
            return
        work = self._works.get(event.task)
        match event:
            case Finished():
                self._on_finished(node, event, work)
            case Output(_, stream, text) if work is not None:
                work.sink.output(node.rank, stream, text)
            case Output(0, stream, text):
                self._launcher.sink.output(node.rank, stream, text)
            case Yielded(_, items) if work is not None and work.stream is not None:
                work.stream.arrive(items)
                self._tasks.handle(tasks.Delivered(event.task), _now())
            case Started():
                self._do(tasks.Started(event.task))
            case Need(_, index, count) if work is not None:
                work.feeders[index].grant(count)
            case Display(_, payload) if work is not None and isinstance(payload.data, bytes):
                data, metadata, display_id, update = pickle.loads(payload.data)
                work.sink.display(node.rank, data, metadata, display_id, update)
            case _:
                pass  # of a task that is over here

    def _on_finished(self, node: Node, event: Finished, work: Work | None) -> None:
        payload = event.payload
        if isinstance(payload.data, Blob) or (payload.buffers and blobs_of([payload])):
            self._spawn(self._fetch_result(node, event, blobs_of([payload])))
        else:
            self._ended(node, event, Arrived(payload), work)

    async def _fetch_result(self, node: Node, event: Finished, blobs: list[Blob]) -> None:
        """Bring a large result here before its task counts as ended: if the node dies meanwhile, it runs again."""
        fetched = {}
        try:
            for blob in blobs:
                fetched[blob.key] = await asyncio.wrap_future(node.fetch(blob))
        except ConnectionError:
            self._do(tasks.Ended(event.task, node.rank, "lost", event.seconds))
            return
        node.tell(Drop(tuple(fetched)))
        self._ended(node, event, Arrived(event.payload, fetched), self._works.get(event.task))

    def _ended(self, node: Node, event: Finished, arrived: Arrived, work: Work | None) -> None:
        if work is not None:
            work.seconds = event.seconds
            self._arrived[event.task] = arrived
        self._do(tasks.Ended(event.task, node.rank, event.outcome, event.seconds))

    # What the fleet says.

    def joined(self, rank: int) -> None:
        """A node can take tasks."""
        self._draining.discard(rank)
        self._do(tasks.NodeJoined(rank, self._launcher.slots))

    def draining(self, rank: int) -> None:
        """A node is to take no more tasks."""
        self._draining.add(rank)
        asyncio.get_running_loop().call_soon(self._do, tasks.NodeDraining(rank))

    def lost(self, rank: int, reason: str) -> None:
        """A node died."""
        _logger.warning("%s; replacing it, and sending what ran there again", reason)
        self._draining.discard(rank)
        self._do(tasks.NodeLost(rank, reason))

    def removed(self, rank: int, reason: str) -> None:
        """No node will have this rank for now."""
        self._draining.discard(rank)
        self._do(tasks.NodeRemoved(rank, reason))

    def changed(self) -> None:
        """The nodes have changed. What waits fails when none is left to wait for: it would wait for ever."""
        if self.state != "ready" or not self._fleet.hopeless:
            return
        error = NodeStartError(self._fleet.failure or f"Pool {self.name!r} has no nodes; add some with resize().")
        works = tuple(self._works.values())
        for work in works:
            settle(work, error)
        self._do(tasks.Cancel(tuple(work.task for work in works)))
        self._finish_broadcasts()

    def busy(self, rank: int) -> int:
        """Slots in use on a node."""
        return self._tasks.busy(rank)

    def say(self, text: str) -> None:
        """Tell the user."""
        self._say(text)

    def resize(self, wanted: Nodes) -> None:
        """Change how many nodes there are. Nodes that go finish their tasks first."""
        self._fleet.resize(wanted)

    # Looking at it.

    def holds(self, key: bytes) -> frozenset[int]:
        """Ranks of the nodes that hold a blob."""
        return frozenset(rank for rank, node in tuple(self._fleet.nodes.items()) if node.holds(key))

    def snapshot(self) -> PoolSnapshot:
        """What there is now."""
        return PoolSnapshot(
            name=self.name,
            state=self.state,
            provider=self._launcher.provider_name,
            nodes=self._fleet.views(),
            queued=self._tasks.queued,
            running=self._tasks.running,
            done=self._done,
            failed=self._failed,
            min=self._fleet.wanted.min,
            max=self._fleet.wanted.ceiling,
            desired=self._fleet.desired,
        )


def _now() -> float:
    return time.monotonic()


def _listed(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, ranks)) or "none"
