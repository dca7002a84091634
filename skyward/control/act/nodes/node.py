"""A node on the client: its machine, its worker, the messages to it, and the blobs it holds."""

import asyncio
import contextlib
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from skyward.bootstrap import Facts, PhaseEvent, Plan
from skyward.control.act.nodes.node_volumes import NodeVolumes
from skyward.control.act.tasks.remote_blobs import RemoteBlob, ResultLostError
from skyward.control.act.tasks.task import Work
from skyward.control.decide.tasks.deadlines import CHECK_INTERVAL, UNRESPONSIVE, Deadlines
from skyward.control.observe.costs import FREE
from skyward.control.observe.startup import NodeStartup
from skyward.errors import NodeStartError
from skyward.formatting import joined
from skyward.journal import WorkerEntry
from skyward.link.blob_inventory import BlobInventory
from skyward.link.bulk import BulkPath, NodeFullError
from skyward.link.channel import Channel
from skyward.link.connection.hello import WorkerProcess
from skyward.link.launch import attach_worker, start_worker
from skyward.link.ssh.worker import FINISHES_WITHIN, EnvironmentSender, OrphanWorkerError, SSHWorker, lease_of
from skyward.process.background_tasks import BackgroundTasks
from skyward.providers.protocol import Instance, LocalAccess, SSHAccess
from skyward.wire.protocol.flow import WINDOW
from skyward.wire.protocol.messages import (
    CODES,
    Blob,
    Cancel,
    Code,
    Collective,
    Drop,
    Farewell,
    Finished,
    GangMember,
    LeaseSet,
    Metrics,
    NodeCommand,
    NodeReport,
    PartialResultPending,
    Prepare,
    Prepared,
    SetLease,
    Shutdown,
    Submit,
    WorkerEvent,
)
from skyward.wire.protocol.volumes import AttachVolumes, VolumesAttached, VolumesFlushed, VolumeStates
from skyward.wire.transport.secrets import SECRETS_VARIABLE
from skyward.wire.transport.trust import issue_secrets

if TYPE_CHECKING:
    from skyward.control.act.nodes.copies import VolumeCopies  # circular: they are about nodes
    from skyward.control.act.nodes.replication import Replicator  # circular: replication sends through nodes
    from skyward.events.metrics import NodeMetrics

__all__ = ["BLOB_BUDGET", "Node", "OnEvent", "OnLost"]

type OnEvent = Callable[[Node, WorkerEvent], None]
type OnLost = Callable[[Node, str], None]

BLOB_BUDGET = 4 * 1024**3
"""Maximum size in bytes of the blobs that a node caches for later calls."""

BLOB_SHARE = 4
"""The same limit as a fraction of the machine's memory: 1 / `BLOB_SHARE`."""

PAUSES = (0.2, 1.0, 4.0)
"""Delays in seconds between attempts to send a blob to a node without memory for it, while its tasks finish."""

ENTER_WITHIN = 20.0
"""Timeout of attaching to an existing machine in seconds."""

PREPARE_WITHIN = 300.0
"""Time for the plugins of a new worker to start, in seconds, unless its start may take longer."""

SILENCE = 30.0
"""Default time without an answer after which a node counts as lost, in seconds."""

SHUTDOWN_WITHIN = 5.0
"""Seconds that a node has to flush its events after a shutdown command; its own limits are shorter."""

LEASE_SET_WITHIN = 5.0
"""Seconds that a worker has to answer that it has changed its lease."""

HISTORY = 300.0
"""Seconds for which the metrics of a node are kept."""


class Node:
    """A node that is starting or up. Runs on the library's loop.

    Args:
        rank: rank of the node in its pool.
        machine: number of its machine in the control plane.
        instance: its machine, as the provider describes it.
        on_event, on_lost: called with the node and an event, or the reason why the node was lost.
        derive: derives a secret of the pool for a purpose.
        worker_entry: its worker, if another process started it.

    Attributes:
        startup: progress of its startup.
        worker_entry: its worker as another process can attach to it; None if that is not possible.
        received: bytes of blobs that the node received.
        sent: bytes of these that the client sent.
        replicator: replicator of large blobs; None if the client sends all of them.
        copies: copies of volumes that nodes pass on; None if they form no cluster.
        on_blobs: called with the keys of blobs that were stored on the node, and of blobs that it drops.
        on_code: called with a task whose function is new to the node.
        on_overdue: called before `on_lost` with the overdue tasks of an unresponsive node, and the reason.
        measured: measured resources of its machine, if the provider does not know them.
        metrics: metrics of its machine, oldest first.
        slot_price: price of its tasks.
        volumes: its volumes.
        orphan_directory: directory of its worker after closing, if the worker may still run: its machine was lent and
            unreachable.
    """

    def __init__(
        self,
        rank: int,
        machine: int,
        instance: Instance,
        on_event: "OnEvent",
        on_lost: "OnLost",
        derive: Callable[[str], bytes],
        worker_entry: WorkerEntry | None = None,
    ) -> None:
        self.rank = rank
        self.machine = machine
        self.instance = instance
        self.address = ""
        self.startup = NodeStartup(rank, machine)
        self.phase = "requested"
        self.received = self.sent = 0
        self.replicator: Replicator | None = None
        self.copies: VolumeCopies | None = None
        self.measured: Mapping[str, float] = {}
        self.on_blobs: Callable[[Node, tuple[bytes, ...], tuple[bytes, ...]], None] | None = None
        self.on_code: Callable[[Node, Work], None] | None = None
        self.on_overdue: Callable[[Node, tuple[int, ...], str], None] | None = None
        self.metrics: deque[NodeMetrics] = deque()
        self.slot_price = FREE
        self.volumes = NodeVolumes()
        self.orphan_directory = ""
        self._on_event = on_event
        self._on_lost = on_lost
        self.worker_entry = worker_entry
        self._purpose = worker_entry.purpose if worker_entry is not None else f"node {secrets.token_hex(8)}"
        self._seed = derive(self._purpose)
        self._codes: OrderedDict[bytes, None] = OrderedDict()
        self._holdings = BlobInventory(BLOB_BUDGET)
        self._arriving: dict[bytes, asyncio.Future[Any]] = {}
        self._leaving: dict[bytes, asyncio.Future[None]] = {}
        self._unsent: dict[int, asyncio.Future[bool]] = {}
        self._unsent_keys: dict[int, frozenset[bytes]] = {}
        self._doubtful: set[bytes] = set()
        self._worker: WorkerProcess | None = None
        self._channel: Channel | None = None
        self._bulk: BulkPath | None = None
        self._watching: asyncio.Task[None] | None = None
        self._buffered: list[WorkerEvent] | None = None
        self._shipping = BackgroundTasks()
        self._closing: asyncio.Task[None] | None = None
        self._silent = asyncio.Event()
        self._machine_ended = False
        self._lost_event = asyncio.Event()
        self._preparing: asyncio.Future[Prepared] | None = None
        self._leasing: asyncio.Future[None] | None = None
        self._lease_lock = asyncio.Lock()
        self._deadlines: Deadlines | None = None
        self._deadline_watch: asyncio.Task[None] | None = None

    async def start(
        self,
        environment: Mapping[str, str],
        within: float,
        plan: Plan | None = None,
        preparation: Callable[[], Prepare] | None = None,
        volumes: AttachVolumes | None = None,
    ) -> None:
        """Start the node's worker in the environment of `plan`, or attach to its existing worker; then connect.

        Args:
            environment: variables of the worker.
            within: time for the worker to start, in seconds.
            plan: its environment; None if the machine has one.
            preparation: returns the plugins of a new worker, once it is connected; None without any.
            volumes: the volumes of a new worker, which are attached before its plugins are started; None without any.

        Raises:
            NodeStartError: the worker did not start, or cannot be reached.
        """
        access = self.instance.access
        if access is None:
            raise ValueError(f"instance {self.instance.id} is not running")
        # A local worker is never unreachable: a broken connection means that it is gone.
        silence, grace = (SILENCE, 0.0) if isinstance(access, LocalAccess) else (access.grace, access.grace)
        self.phase = self.startup.enter("worker" if isinstance(access, LocalAccess) else "connecting")
        # On a thread: the first call loads a library.
        ours, theirs = await asyncio.to_thread(issue_secrets, self._purpose, self._seed)
        own = {"SKYWARD_NODE_ID": str(self.rank), SECRETS_VARIABLE: theirs.write()}
        if self.worker_entry is not None:
            self._worker = await attach_worker(access, self.worker_entry, min(within, ENTER_WITHIN))
        else:
            try:
                self._worker = await start_worker(access, {**environment, **own}, within, plan, self.report)
            except OrphanWorkerError as error:
                if isinstance(access, SSHAccess) and access.lent:
                    self.orphan_directory = error.directory
                raise
        hello = self._worker.hello
        self.address = hello.address
        self._holdings.limit(min(BLOB_BUDGET, int(hello.memory_gb * 2**30) // BLOB_SHARE or BLOB_BUDGET))
        self.measured = {"CPU": hello.vcpus, "memory": hello.memory_gb} if hello.vcpus else {}
        if hello.gpus:
            self.measured = {**self.measured, "GPU": hello.gpus}
        if hello.machine:
            self.instance = replace(self.instance, address=hello.machine)
        self.phase = self.startup.enter("joining")
        self._bulk = BulkPath(hello.bulk, ours.key, f"{self.instance.id}", grace)
        self._channel = Channel(
            hello.address, ours.credentials, silence, self._handle, self._lost, dial=self._worker.dial
        )
        self._watching = asyncio.get_running_loop().create_task(self._watch(self._worker))
        if self.worker_entry is not None:
            self._buffered = []
            await self._channel.connect(resume=True)
        else:
            await self._channel.connect()
        if volumes is not None and self.worker_entry is None:
            await self._attach(volumes)
        if preparation is not None and self.worker_entry is None:
            await self._prepare(preparation(), max(within, PREPARE_WITHIN))
        if self._silent.is_set():
            raise NodeStartError(f"connection lost while {'starting' if self.worker_entry is None else 'attaching'}")
        if hello.directory:
            self.worker_entry = WorkerEntry(
                self.rank, self._purpose, hello.address, hello.machine_bulk, hello.directory
            )
        self.phase = self.startup.enter("ready")

    async def _prepare(self, prepare: Prepare, within: float) -> None:
        """Have the worker start its slots with their plugins.

        Raises:
            NodeStartError: a plugin could not be started, or the connection is lost.
        """
        self.phase = self.startup.enter("plugins")
        self._preparing = asyncio.get_running_loop().create_future()
        self.tell(prepare)
        self.flush()
        lost = asyncio.ensure_future(self._silent.wait())
        try:
            await asyncio.wait((self._preparing, lost), timeout=within, return_when=asyncio.FIRST_COMPLETED)
        finally:
            lost.cancel()
        if self._preparing.done():
            if (prepared := self._preparing.result()).why:
                raise NodeStartError(prepared.why, is_final=prepared.is_final)
        elif not self._silent.is_set():
            names = joined(repr(part.name) for part in prepare.parts)
            raise NodeStartError(f"the plugins {names} did not start within {within:g} s: see `bootstrap_timeout`")

    async def set_lease(self, seconds: float, most: float) -> bool:
        """Have the worker change its lease; return whether it has answered, after all of its earlier events.

        A lease is longer than the time without a connection after which the client gives the machine up.

        Args:
            seconds: the lease of its spec.
            most: seconds after the end of its client by which it ends, with the tasks that run then; may be infinite.
        """
        access = self.instance.access
        if access is not None and not isinstance(access, LocalAccess):
            seconds = lease_of(access, seconds)
        seconds = min(seconds, most)
        async with self._lease_lock:
            self._leasing = leasing = asyncio.get_running_loop().create_future()
            self.tell(SetLease(seconds, min(FINISHES_WITHIN, most - seconds)))
            self.flush()
            lost = asyncio.ensure_future(self._silent.wait())
            try:
                await asyncio.wait((leasing, lost), timeout=LEASE_SET_WITHIN, return_when=asyncio.FIRST_COMPLETED)
            finally:
                lost.cancel()
            return leasing.done()

    async def _attach(self, volumes: AttachVolumes) -> None:
        """Have the worker attach its volumes.

        Raises:
            NodeStartError: one could not be attached.
        """
        self.phase = self.startup.enter("volumes")
        if self.copies is not None:
            volumes = await self.copies.with_peers(self, volumes)

        def send(command: AttachVolumes) -> None:
            self.tell(command)
            self.flush()

        await self.volumes.attach(volumes, send, self._silent)

    def _handle(self, event: WorkerEvent) -> None:
        match event:
            case VolumesAttached() | VolumeStates() | VolumesFlushed():
                self.volumes.handle(event)
            case Prepared():
                if self._preparing is not None and not self._preparing.done():
                    self._preparing.set_result(event)
            case LeaseSet():
                if self._leasing is not None and not self._leasing.done():
                    self._leasing.set_result(None)
            case Metrics(now):
                self._keep(replace(now, at=time.time()))
            case Farewell():
                self._silent.set()
            case PartialResultPending(task) if self._deadlines is not None:
                self._deadlines.leaving(task, time.monotonic())
                self._pass_on(event)
            case Finished(task) if self._deadlines is not None:
                self._deadlines.ended(task, time.monotonic())
                self._pass_on(event)
            case _:
                self._pass_on(event)

    def _pass_on(self, event: WorkerEvent) -> None:
        if self._buffered is None:
            self._on_event(self, event)
        else:
            self._buffered.append(event)

    def _keep(self, now: "NodeMetrics") -> None:
        self.metrics.append(now)
        while self.metrics[0].at < now.at - HISTORY:
            self.metrics.popleft()

    def release(self) -> None:
        """Pass on the buffered events of tasks that another process sent."""
        buffered, self._buffered = self._buffered or [], None
        for event in buffered:
            if isinstance(event, NodeReport):
                self._holdings.adopt((blob.key, blob.size) for blob in event.blobs)
                self._tell_blobs(stored=tuple(blob.key for blob in event.blobs))
            self._on_event(self, event)

    def report(self, event: PhaseEvent) -> None:
        """Record progress of the setup of the node's environment."""
        self.phase = self.startup.on_phase_event(event)

    @property
    def environment_sender(self) -> EnvironmentSender | None:
        """Access to its environment; None if that was not made by this process."""
        return self._worker.environment if isinstance(self._worker, SSHWorker) else None

    @property
    def unreachable(self) -> bool:
        """True while the connection to its machine is broken."""
        return self._worker is not None and self._worker.unreachable

    @property
    def machine_ended(self) -> bool:
        """True if its provider has reported the end of its machine."""
        return self._machine_ended

    def ended(self, reason: str) -> None:
        """Handle the end of its machine, as its provider reports it."""
        self._machine_ended = True
        self._lost(reason)

    async def _watch(self, worker: WorkerProcess) -> None:
        self._lost(await worker.exited())

    def _lost(self, reason: str) -> None:
        self._silent.set()
        if self._closing is None:
            self._lost_event.set()
            self._on_lost(self, reason)

    async def lost_within(self, seconds: float) -> bool:
        """Wait for up to `seconds`; return whether the node is lost."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._lost_event.wait()
        return self._lost_event.is_set()

    def holds(self, key: bytes) -> bool:
        """Return whether a blob is on the node, or on its way there."""
        return key in self._holdings

    @property
    def is_up(self) -> bool:
        """True until the node is lost or closed."""
        return self._closing is None and not self._lost_event.is_set()

    def has_all(self, keys: Iterable[bytes]) -> bool:
        """Return whether all of these blobs are stored on the node."""
        return all(key in self._holdings and key not in self._arriving for key in keys)

    def can_pin(self, size: int) -> bool:
        """Return whether the node may pin results of `size` more bytes."""
        return self._holdings.can_pin(size)

    def keep_result(self, blobs: Iterable[Blob]) -> None:
        """Keep the blobs of a result on the node that made it, as it keeps blobs that it receives."""
        sizes = {blob.key: blob.size for blob in blobs}
        self._holdings.adopt(sizes.items())
        self._tell_blobs(stored=tuple(sizes))
        if self.replicator is not None:
            self.replicator.has(self, sizes)

    def pin(self, blobs: Sequence[Blob]) -> None:
        """Keep blobs of a result on the node, and exempt them from eviction."""
        self.keep_result(blobs)
        self._holdings.pin(blob.key for blob in blobs)

    def unpin(self, keys: Iterable[bytes]) -> None:
        """End a `pin`."""
        self._holdings.unpin(keys)

    def discard(self, keys: Iterable[bytes]) -> None:
        """Have the node drop those of these blobs that are not in use."""
        if self.is_up:
            self._forget(self._holdings.discard(keys))

    @property
    def held(self) -> frozenset[bytes]:
        """Keys of the blobs that are stored on the node."""
        return frozenset(self._holdings) - self._arriving.keys()

    async def facts(self) -> Facts | None:
        """Return facts about the node's environment; None if that is this process's own, or unknown."""
        return None if self._worker is None else await self._worker.facts()

    async def reach(self, address: str) -> str:
        """Open a local address that leads to an address of the node's machine, and return it."""
        if self._worker is None:
            raise ConnectionError("the node is not connected")
        return await self._worker.reach(address)

    def dial(self, address: str) -> str:
        """Return the current local address for an address of the machine that was passed to `reach` before."""
        return address if self._worker is None else self._worker.dial(address)

    def tell(self, command: NodeCommand) -> None:
        """Queue a command for the node."""
        if self._channel is not None:
            self._channel.send(command)

    def flush(self) -> None:
        """Send all queued commands now."""
        if self._channel is not None:
            self._channel.flush()

    def submit(
        self,
        work: Work,
        attempt: int,
        share: tuple[int, int] | None,
        collective: Collective | None,
        gang: GangMember | None,
        failed: Callable[[Exception], None],
    ) -> None:
        """Send a task, after the blobs it needs. `failed` is called with the error if it does not reach the node."""
        blobs = work.blobs
        if not blobs:
            self._submit(work, attempt, share, collective, gang)
            return
        self._unsent[work.task] = unsent = asyncio.get_running_loop().create_future()
        self._unsent_keys[work.task] = frozenset(blobs)

        async def ship() -> None:
            try:
                async with self.shipped(blobs):
                    if not unsent.done():
                        self._submit(work, attempt, share, collective, gang)
                        self._settle_unsent(work.task, sent=True)
            except Exception as error:
                if not unsent.done():
                    self._settle_unsent(work.task, sent=False)
                    failed(error)

        self._shipping.spawn(ship())

    def _settle_unsent(self, task: int, *, sent: bool) -> None:
        self._unsent.pop(task).set_result(sent)
        self._unsent_keys.pop(task)

    async def has(self, task: int) -> bool:
        """Return whether the node was sent a task; waits while the blobs of the task are on their way."""
        unsent = self._unsent.get(task)
        return unsent is None or await asyncio.shield(unsent)

    def _submit(
        self,
        work: Work,
        attempt: int,
        share: tuple[int, int] | None,
        collective: Collective | None,
        gang: GangMember | None,
    ) -> None:
        code = work.code
        if code.digest in self._codes:
            self._codes.move_to_end(code.digest)
        else:
            self._codes[code.digest] = None
            if len(self._codes) > CODES:
                self.tell(Drop((), (self._codes.popitem(last=False)[0],)))
            self.tell(Code(code.digest, code.outgoing.payload, code.name))
            if self.on_code is not None:
                self.on_code(self, work)
        stream = work.stream is not None
        self._start_deadline(work)
        self.tell(
            Submit(
                work.task,
                attempt,
                code.digest,
                work.call.payload,
                stream,
                WINDOW if stream else 0,
                len(work.feeders),
                work.timeout,
                share,
                "" if work.origin is None else work.origin.label,
                work.values,
                work.grace,
                collective,
                gang,
            )
        )

    def _start_deadline(self, work: Work) -> None:
        if self._deadlines is None:
            self._deadlines = Deadlines(self.slot_price.slots)
        self._deadlines.sent(work.task, work.timeout, time.monotonic(), work.grace)
        self._watch_deadlines()

    def _watch_deadlines(self) -> None:
        if self._deadlines and (self._deadline_watch is None or self._deadline_watch.done()) and self._closing is None:
            self._deadline_watch = asyncio.get_running_loop().create_task(self._check_deadlines(self._deadlines))

    async def _check_deadlines(self, deadlines: Deadlines) -> None:
        """Report the node as lost if a task is overdue and the worker does not answer, though its machine does.

        Silence is counted in checks, so that time in which this process was suspended does not count.
        """
        heard, silent = None, 0.0
        while deadlines and self._channel is not None and self._worker is not None:
            await asyncio.sleep(CHECK_INTERVAL)
            heard, before = self._channel.last_message_at, heard
            silent = silent + CHECK_INTERVAL if heard == before else 0.0
            if silent < UNRESPONSIVE or not deadlines.overdue(time.monotonic()):
                continue
            machine_answers = await self._worker.answers()
            late = deadlines.overdue(time.monotonic())
            if machine_answers and late and self._channel.last_message_at == heard and self._closing is None:
                reason = "no answer from the worker while a task was overdue"
                if self.on_overdue is not None:
                    self.on_overdue(self, late, reason)
                self._lost(reason)
                return

    @asynccontextmanager
    async def shipped(self, blobs: Mapping[bytes, memoryview | RemoteBlob]) -> AsyncIterator[None]:
        """Send blobs to the node, each once for all tasks; inside the context, commands may refer to them.

        Raises:
            ConnectionError: a blob could not be transferred.
            NodeFullError: the node has no memory for a blob, even after dropping all others.
            ResultLostError: a blob is on no node any more.
        """
        for pause in PAUSES:
            try:
                await self._ship(blobs)
                break
            except NodeFullError:
                self._forget(self._holdings.shrink_to(self._holdings.nbytes // 2))
                await asyncio.sleep(pause)
        else:
            await self._ship(blobs)
        try:
            yield
        finally:
            self._holdings.release(blobs)

    async def _ship(self, blobs: Mapping[bytes, memoryview | RemoteBlob]) -> None:
        """Send blobs to the node, where they are kept until released.

        Raises:
            ConnectionError, NodeFullError, ResultLostError: see `shipped`. The blobs are released.
        """
        if self._bulk is None:
            raise ConnectionError("the node is not connected")
        for key, view in blobs.items():
            if isinstance(view, RemoteBlob) and key not in self._holdings and not view.result.is_available:
                raise ResultLostError(view.result)
        missing, dropped = self._holdings.want(blobs)
        try:
            for key, view in missing.items():
                self.received += view.nbytes
                self._arriving[key] = asyncio.ensure_future(self._bring_unmodified(key, view))
                self._arriving[key].add_done_callback(partial(self._arrived, key))
            self._forget(dropped)
            if waiting := [self._arriving[key] for key in blobs if key in self._arriving]:
                await asyncio.wait(waiting)  # for all: a blob in transfer must not be dropped
                await asyncio.gather(*waiting)
        except BaseException:
            self._holdings.release(blobs)
            raise

    def _forget(self, keys: tuple[bytes, ...]) -> None:
        """Have the node drop blobs."""
        if not keys or self._channel is None:
            return
        if self.replicator is not None:
            self.replicator.dropped(self, keys)
        self._tell_blobs(dropped=keys)
        self._channel.send(Drop(keys))
        confirmed = self._channel.confirmed()
        self._leaving |= dict.fromkeys(keys, confirmed)
        confirmed.add_done_callback(partial(self._forgotten, keys))

    def _forgotten(self, keys: tuple[bytes, ...], confirmed: asyncio.Future[None]) -> None:
        for key in keys:
            if self._leaving.get(key) is confirmed:
                del self._leaving[key]

    async def _bring_unmodified(self, key: bytes, view: memoryview | RemoteBlob) -> None:
        await self._bring(key, view)
        if key in self._doubtful:
            raise ConnectionError("the caller may have modified the buffer during the transfer")

    def _bring(self, key: bytes, view: memoryview | RemoteBlob) -> Awaitable[Any]:
        if (leaving := self._leaving.get(key)) is not None:
            return self._bring_after_drop(key, view, leaving)
        if self.replicator is not None and (coming := self.replicator.bring(self, key, view)) is not None:
            return coming
        return self._fetch_and_put(key, view) if isinstance(view, RemoteBlob) else self.put(key, view)

    async def _fetch_and_put(self, key: bytes, blob: RemoteBlob) -> None:
        await self.put(key, await blob.fetch(self))

    async def _bring_after_drop(self, key: bytes, view: memoryview | RemoteBlob, leaving: asyncio.Future[None]) -> None:
        """Send a blob that is being dropped, once the node has confirmed: the drop would hit the new copy otherwise."""
        await asyncio.wait([leaving])
        if leaving.cancelled():
            raise ConnectionError("the node is lost")
        await self._bring(key, view)

    def put(self, key: bytes, view: memoryview) -> asyncio.Future[memoryview]:
        """Send a blob from the client.

        Raises:
            ConnectionError: the node is not connected.
        """
        if self._bulk is None:
            raise ConnectionError("the node is not connected")
        self.sent += view.nbytes
        return asyncio.wrap_future(self._bulk.put(key, view))

    def _arrived(self, key: bytes, done: asyncio.Future[Any]) -> None:
        self._arriving.pop(key, None)
        is_doubtful = key in self._doubtful
        self._doubtful.discard(key)
        if done.cancelled() or done.exception() is not None:
            self._holdings.forget(key)
            if is_doubtful:
                self._forget((key,))
        elif key in self._holdings:
            self._tell_blobs(stored=(key,))

    def _tell_blobs(self, stored: tuple[bytes, ...] = (), dropped: tuple[bytes, ...] = ()) -> None:
        if self.on_blobs is not None:
            self.on_blobs(self, stored, dropped)

    def stop_task(self, task: int, *, recall: bool = False, as_is: bool = False) -> bool:
        """Stop a task; False if it had not been sent yet, and will not be.

        Args:
            task: number of the task.
            recall: whether the node is to return the task only if it has not started.
            as_is: whether blobs in transfer are memory of the caller, who may change them from now on.
        """
        if task in self._unsent:
            if as_is:
                self._doubtful |= self._unsent_keys[task] & self._arriving.keys()
            self._settle_unsent(task, sent=False)
            return False
        self.tell(Cancel(task, recall))
        if not recall and self._deadlines is not None:
            self._deadlines.stopped(task, time.monotonic())
            self._watch_deadlines()
        return True

    def fetch(self, blob: Blob) -> Future[memoryview]:
        """Fetch a blob of a result; the node drops it afterwards."""
        if self._bulk is None:
            raise ConnectionError("the node is not connected")
        return self._bulk.get(blob)

    async def close(self, *, leave: bool = False) -> None:
        """Disconnect, and end the worker unless `leave` is set. Idempotent; continues if the caller is cancelled."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(leave=leave))
        await asyncio.shield(self._closing)

    async def _shut_down(self, channel: Channel) -> None:
        """Send the shutdown command, and handle events until the worker has ended or the timeout expires."""
        channel.send(Shutdown())
        if channel.connected:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SHUTDOWN_WITHIN) as limit:
                    while not await self._silent_within(1.0):
                        if self.volumes.is_flushing:
                            limit.reschedule(asyncio.get_running_loop().time() + SHUTDOWN_WITHIN)
        if not self._silent.is_set():
            self.volumes.give_up()

    async def _silent_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._silent.wait()
        return self._silent.is_set()

    async def _close(self, *, leave: bool) -> None:
        for task in self._shipping:
            task.cancel()
        for number in tuple(self._unsent):
            self._settle_unsent(number, sent=False)
        if self._channel is not None:
            if not leave:
                await self._shut_down(self._channel)
            await self._channel.close()
        for watch in (self._watching, self._deadline_watch):
            if watch is not None:
                watch.cancel()
        if self._bulk is not None:
            self._bulk.close()
        if (leave or self._machine_ended) and self._worker is not None:
            await self._worker.leave()
        elif self._worker is not None and not await self._worker.stop():
            access = self.instance.access
            if isinstance(access, SSHAccess) and access.lent:
                self.orphan_directory = self._worker.hello.directory
        if self._bulk is not None:
            try:
                await asyncio.to_thread(self._bulk.join)
            except RuntimeError:  # the interpreter is shutting down: no new threads
                self._bulk.join()
