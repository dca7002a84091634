"""The pool's runtime: executes the control plane's effects, and makes no decisions itself.

Runs on the library's loop; `skyward.pool.compute` is its API for other threads.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from skyward import events
from skyward.control.act.bill import bill_notice
from skyward.control.act.driver import Timer, boot_limit, plane_of, price_warning
from skyward.control.act.event_publisher import FAILURES, EventPublisher
from skyward.control.act.leases import RENEW_EVERY, Leases
from skyward.control.act.machines.guarded import ProviderCallError
from skyward.control.act.machines.offers import isolated_providers, provider_config
from skyward.control.act.machines.warm import warm_notice
from skyward.control.act.nodes.cluster import ClusterManager
from skyward.control.act.nodes.fleet import Fleet, WarmTerms
from skyward.control.act.nodes.launching import LauncherUpdate, launchers_of
from skyward.control.act.nodes.node import Node
from skyward.control.act.nodes.volumes import check_volumes
from skyward.control.act.pool_tasks import PoolTasks
from skyward.control.act.report import task_history, view
from skyward.control.act.tasks.deadlock import DeadlockDetector
from skyward.control.act.tasks.history import unix_offset
from skyward.control.decide import messages as plane
from skyward.control.decide.machines import messages as machine_messages
from skyward.control.decide.machines.warm import WarmCandidate, plan_warm
from skyward.control.decide.plane import ControlPlane
from skyward.control.decide.prospects.total import over_total
from skyward.control.decide.recorded_autoscaler import RecordedAutoscaler
from skyward.control.decide.removal import undrainable, unsizable
from skyward.control.decide.tasks import messages as tasks
from skyward.control.lifecycle import POOL, Lifecycle, PoolState
from skyward.control.observe.snapshot import NodeView, PoolSnapshot
from skyward.control.observe.startup import WARM
from skyward.decision_log.file import DecisionFile
from skyward.decision_log.lines import header_of
from skyward.errors import JournalError, NodeStartError, PoolClosedError, ProvisioningError, StorageError, UsageError
from skyward.events.bus import EventBus
from skyward.events.decisions import DecisionEvent
from skyward.formatting import joined
from skyward.journal import ClusterEntry, PoolRecord, SizeEntry, UpdateEntry, nodes_of
from skyward.journal.costs import summed
from skyward.journal.requests import heed_request, is_requested, withdraw_request
from skyward.process.background_tasks import BackgroundTasks
from skyward.process.lifespan import Lifespan, Say
from skyward.providers.protocol import acts_on
from skyward.scaling.snapshot import Demand
from skyward.specs import Nodes, Options, Spec
from skyward.specs.plugin_order import processes, required
from skyward.specs.unused_options import unused_options
from skyward.specs.update import SpecHistory, changed_fields

if TYPE_CHECKING:
    from skyward.events.metrics import NodeMetrics
    from skyward.events.output import Follower, OutputFilter

__all__ = ["Pool"]

_HEED_EVERY = 1.0
"""Seconds between looks at whether another process asks for the pool to be closed."""

_NO_SPECS: Mapping[str, SpecHistory] = MappingProxyType({})

_RECORD_UNSENT_AFTER = 0.1
"""Seconds after which a change of the number of tasks that no node has is recorded."""

_SIZE_EFFECTS = frozenset({
    plane.Decided, machine_messages.Drain, machine_messages.Install, machine_messages.Activate,
    machine_messages.NodeGone, machine_messages.Terminate,
})  # fmt: skip  # one name a line says no more
"""Effects of messages that may have changed the size of the pool, or the machines that drain or leave."""

_SUBMISSIONS = (tasks.Submitted, tasks.SubmitGang, tasks.Broadcast)
"""Messages about new tasks."""

_OF_MACHINES_ONLY = frozenset({"architecture", "disk_gb", "region"})
"""Fields of a spec that only its provider uses; tasks cannot ask for them."""

_logger = logging.getLogger(__name__)


class Pool:
    """A pool of nodes and the tasks sent to it.

    Attributes:
        standalone: reason why its nodes form no cluster; empty if they form one.
        together: terms of its broadcasts, if their members work together; None if they are independent.
        warm_until: time at which its last warm machine ends, in seconds since the epoch; 0 if it keeps none.
        borrowed: True if it had machines of other pools, once it is closed.
    """

    def __init__(
        self,
        name: str,
        groups: Mapping[str, Sequence[Spec]],
        options: Options,
        say: Say,
        record: PoolRecord,
        bus: EventBus,
        earlier_specs: Mapping[str, SpecHistory] = _NO_SPECS,
    ) -> None:
        isolated = isolated_providers(groups)
        self.standalone = _why_standalone(isolated, options)
        if options.cluster is not False and isolated:
            options = replace(options, cluster=False)
        self._isolated = isolated if any(Nodes.of(specs[0].nodes).ceiling > 1 for specs in groups.values()) else ()
        self.together = _together(groups)
        if self.together is not None and self._isolated:
            raise UsageError(
                f"Nodes of provider {joined(map(repr, self._isolated))} do not reach each other, so functions cannot "
                "work together on them: take one node, or another provider."
            )
        self.name = name
        self._bus = bus
        self._publisher: EventPublisher | None = None
        self._began = 0.0
        self._reported_failure = ""
        self._price_warning = ""
        self._options = options
        self._decision_file: DecisionFile | None = None
        self._life: Lifecycle[PoolState] = Lifecycle(f"pool {name!r}", POOL, "new")
        self._record = record
        self._specs = {
            group: earlier_specs.get(group) or SpecHistory({0: tuple(specs)}) for group, specs in groups.items()
        }
        self._updating = asyncio.Lock()
        first = {group: history.first for group, history in self._specs.items()}
        self._launchers = launchers_of(record, groups, options, first)
        self._plane: ControlPlane | None = None
        self.clustering = (
            None
            if options.cluster is False
            else ClusterManager(name, record.derive("authority"), self._use_node, self.note)
        )
        self._background = BackgroundTasks()
        self.tasks = PoolTasks(self, options.retry_on_interruption)
        self._fleet = Fleet(self._launchers, self.tell, self.tasks.router.handle, self.clustering, self.tasks.take_over)
        self.startups = self._fleet.startups
        self.leases = Leases(
            self._fleet, self._launchers.values(), record, lambda: self.control.ledger, self.note, _now
        )
        self._timer = Timer(lambda: self.tell(plane.Tick()))
        self._progress = asyncio.Event()
        self._lifespan = Lifespan(name, self._close, say)
        self._closers = 0
        self._keep_machines = False
        self._is_attached = False
        self._has_nodes = True
        self._recorded_terms: tuple[float, float | None] = 0.0, options.budget
        self._unsent = record.unsent
        self._unsent_timer: asyncio.TimerHandle | None = None
        self._closing_on_request: asyncio.Task[None] | None = None
        self._recorded_size: SizeEntry | None = None
        self._recorded_updates: list[UpdateEntry] = []
        self.warm_until = 0.0
        self.borrowed = False
        self._fleet.keep_for = self._to_keep_spare
        for launcher in self._launchers.values():
            launcher.note, launcher.repriced = self.note, self._warn_of_price
            launcher.starter.standalone = self.standalone

    # Opening and closing.

    @property
    def state(self) -> PoolState:
        """State of the pool's lifecycle."""
        return self._life.state

    async def open(self, earlier: Sequence[ClusterEntry] = ()) -> None:
        """Launch the nodes, and return once enough of them are ready.

        Args:
            earlier: recorded clusters of the process that opened the pool: their machines are taken over. If an update
                was replacing all nodes when it ended, so that none is left, it goes on.

        Raises:
            ProvisioningError: not enough nodes started, or none of the recorded ones exists. Whatever was launched is
                terminated. If the state of recorded machines could not be determined, all of them are left running.
        """
        self._began = _now()
        self._life.move("requesting", self._began)
        self._bus.emit(events.PoolRequesting)
        self._keep_machines = self._is_attached = bool(earlier)
        size = self._record.size()
        machines = [machine for entry in earlier for machine in entry.machines]
        self._has_nodes = not earlier or bool(nodes_of(machines, size))
        for group, launcher in self._launchers.items():
            entries = [entry for entry in earlier if entry.group == group]
            launcher.adopt(entries, frozenset() if size is None else size.leaving)
        self._background.spawn(self._renew_record())
        self._background.spawn(self._heed_request())
        await self._lifespan.open(self._open())
        self._life.move("ready", _now())
        if earlier:
            self.leases.take_over()
            self._background.spawn(self._renew_leases())
        else:
            self._record.is_idle = True
        if earlier and self._unsent:
            lost, it = ("1 task is", "it") if self._unsent == 1 else (f"{self._unsent} tasks are", "them")
            self.note(f"{lost} lost: the former process had queued {it}, and sent {it} to no node. Submit {it} again.")
        self._bus.emit(events.PoolReady, len(self.control.tasks.ranks), _now() - self._began)
        self._background.spawn(
            DeadlockDetector(self.name, self.tasks.works, self.tasks.cancel, self.tell).watch(self.control)
        )
        if self.clustering is not None:
            self.clustering.start()

    async def _open(self) -> None:
        try:
            try:
                await self._start_nodes()
            except ProviderCallError as error:
                raise ProvisioningError(f"Pool {self.name!r} could not be opened: {error}") from error.__cause__
        except Exception as error:
            self._bus.emit(events.PoolFailed, type(error).__name__, str(error))
            raise

    def _continue_updates(self) -> list[UpdateEntry]:
        """Continue the updates that a former process had begun; return their entries."""
        self._recorded_updates = found = self._record.updates() if self._keep_machines else []
        updates = [each for each in found if each.before in self._specs[each.group].specs]
        for each in updates:
            self._launchers[each.group].continue_update(each.before, self._specs[each.group].specs[each.before])
        return updates

    async def _start_nodes(self) -> None:
        updates = self._continue_updates()
        specs = [spec for history in self._specs.values() for spec in history.present]
        store_notes = [] if self._keep_machines else await check_volumes(specs)
        for launcher in self._launchers.values():
            await launcher.prepare()
        notes = [
            f"Nodes of provider {provider!r} do not reach each other, so they form no cluster: no collections."
            for provider in self._isolated
        ]
        notes += [*store_notes, *(note for launcher in self._launchers.values() for note in launcher.notes)]
        for note in dict.fromkeys(notes):
            self._bus.emit(events.PoolNote, note)
        if not self._keep_machines:
            self._warn_of_price()
            if unused := unused_options(self._options, [each.nodes for each in self._launchers.values()]):
                self.note(unused)
        self._life.move("provisioning", _now())
        size = self._record.size()
        self._plane = control = plane_of(self._launchers, self._options, size, updates)
        if (costs := self._record.costs()) is not None:  # machines of a killed process count until now
            control.ledger.carry(costs.until(time.time()))
            control.ledger.budget = costs.budget
        self._open_decision_file(control)
        self._publisher = EventPublisher(self._bus, control, self.tasks.works, self.tasks.broadcasts, self.startups)
        if self._keep_machines and self._has_nodes and not self._entering:
            self._keep_machines = self._is_attached = False
            raise NodeStartError(f"Pool {self.name!r} is gone: none of its machines exists any more.")
        if not self._keep_machines:
            self._bus.emit(events.PoolProvisioning, self._provider, sum(control.first.values()))
        self.tell(plane.Open())
        while self._entering or not (self._plane.ready or self._fleet.entered):
            if self._plane.cannot_start:
                raise NodeStartError(f"Pool {self.name!r} {self._plane.failure}")
            if self._keep_machines and self._has_nodes and not self._entering and not self._fleet.entered:
                self._keep_machines = self._is_attached = False
                because = f", and the pool {control.failure}" if control.budget_exhausted else ""
                raise NodeStartError(f"Pool {self.name!r} is gone: could not attach to any of its nodes{because}.")
            self._progress.clear()
            await self._progress.wait()
        self._keep_machines = False
        if control.is_attached:
            size = size or SizeEntry({}, {})
            nodes = self._fleet.nodes.items()
            draining = tuple(rank for rank, node in nodes if node.instance.id in size.draining)
            self.tell(plane.ContinueSize(size.desired, draining))

    def _open_decision_file(self, control: ControlPlane) -> None:
        if self._options.decision_log is None:
            return
        path = Path(self._options.decision_log).expanduser()
        self._decision_file = DecisionFile(path, self._warn_of_decision_file)
        self._decision_file.open(header_of(self.name, control.settings, control.policy, time.time()))

    def _warn_of_decision_file(self, reason: str) -> None:
        self.note(f"{reason}; the pool continues without it. Give another file with `decision_log=`.")

    def _write_decisions(self) -> None:
        """Write what the autoscaler has recorded in this step."""
        if self._decision_file is not None and isinstance(self.control.autoscaler, RecordedAutoscaler):
            self._decision_file.write(self.control.autoscaler.take_records())

    async def close(self) -> None:
        """Stop all tasks and terminate every machine. Idempotent; continues in the background if cancelled.

        Raises:
            ProvisioningError: some machines may be left; they are on record, for `skyward reap`.
            StorageError: files that tasks wrote to volumes could not be uploaded.
        """
        self._closers += 1
        try:
            await self._lifespan.close()
        finally:
            self._closers -= 1
        if self._fleet.volume_reports.unflushed:
            left, self._fleet.volume_reports.unflushed = self._fleet.volume_reports.unflushed, []
            raise StorageError(
                f"Pool {self.name!r} is closed, but files that its tasks wrote to volumes could not be uploaded: "
                f"{'; '.join(left)}."
            )

    async def _close(self) -> None:
        if self.state == "new":
            self._life.move("closed", _now())
            self.tasks.stop()
            self._record.end()
            self._bus.end()
            return
        was_ready = self.state == "ready"
        self._life.move("stopping", _now())
        self._bus.emit(events.PoolStopping)
        self.tasks.stop()
        self._timer.stop()
        if self._unsent_timer is not None:
            self._unsent_timer.cancel()
        await self._background.cancel()
        closed = f"Pool {self.name!r} was closed before this task ended. Open it and send it again."
        if self._publisher is not None and not self._keep_machines:
            self._publisher.publish_stopping(closed)
        self.tasks.end_all(closed)
        # Errors here must not keep the machines from being terminated.
        await asyncio.gather(self.tasks.results.close(bring=not self._keep_machines), return_exceptions=True)
        warm: dict[int, WarmTerms] = {}
        left = ""
        try:
            self.borrowed = self._record.is_borrowing
            warm = {} if self._keep_machines else self._to_keep_warm(was_ready=was_ready)
        except Exception:  # as above
            _logger.exception("no machine of pool %r is kept warm", self.name)
        try:
            kept = await self._fleet.close(leave=self._keep_machines, warm=warm)
            if self._plane is not None:
                self._plane.ledger.close(_now())
            if self._keep_machines:
                notice = f"Pool {self.name!r} is left to its lease; `skyward reap {self.name}` terminates its nodes."
                self._bus.emit(events.PoolNote, notice)
            else:
                notice = self._settle_bill()
                if self._publisher is not None:
                    self._publisher.publish_closed(_now())
                if notice:
                    self._bus.emit(events.PoolNote, notice)
                if not self._closers:  # they get an error
                    self._fleet.volume_reports.note_all(self.note)
                if kept:
                    self._rest(kept)
                else:
                    self._record.end()
        except Exception as error:
            self._fleet.volume_reports.note_all(self.note)
            left = (str(error) or type(error).__name__).rstrip(".")
            notice = (
                f"Machines of pool {self.name!r} may be left: {left}. Run `skyward reap {self.name}` to terminate them."
            )
            raise ProvisioningError(notice) from error
        finally:
            self._record.leave()
            self.tasks.router.close()
            if self._decision_file is not None:
                self._decision_file.close()
            if self._plane is not None:
                self.tasks.kept_values.close()
            self._life.move("closed", _now())
            spent = 0.0 if self._plane is None else self._plane.ledger.spent(_now())
            self._bus.emit(events.PoolClosed, _now() - self._began, *self._counts, spent, left)
            self._bus.end()

    def _settle_bill(self) -> str:
        """Take the bill of the machines as the cost of the pool; return a notice on it, empty if they were free."""
        try:
            costs = summed(self._record.bills(), time.time())
        except JournalError as error:  # the machines are gone, which counts
            _logger.warning("the costs of pool %r are unknown: %s", self.name, error)
            return ""
        if costs and self._plane is not None:
            self._plane.ledger.settle(sum(each.spent for each in costs))
        return bill_notice(self.name, costs)

    def _to_keep_warm(self, *, was_ready: bool) -> dict[int, WarmTerms]:
        """Return the machines to keep for later pools, of which the budget covers the costs."""
        if self._plane is None or not was_ready:
            return {}
        table = self._plane.reconciler.table
        running = [each.id for each in table if each.state == "RUNNING" and not each.reclaimed]
        return self._warm_terms(running, closing=True)

    def _to_keep_spare(self, number: int) -> WarmTerms | None:
        """Return the terms on which a machine is kept that the open pool needs no longer; None for not at all."""
        machine = self.control.reconciler.table.machines.get(number)
        if machine is None or machine.expelled or machine.reclaimed or self.control.budget_exhausted:
            return None
        return self._warm_terms([number], closing=False).get(number)

    def _warm_terms(self, machines: Sequence[int], *, closing: bool) -> dict[int, WarmTerms]:
        """Return those of these machines that are kept warm, within the budget, and on which terms."""
        ledger = self.control.ledger
        candidates = [
            WarmCandidate(number, ledger.price_of(number) or 0.0, seconds)
            for number in machines
            if (seconds := self._fleet.warm_seconds(number, closing=closing))
        ]
        left = None
        if ledger.budget is not None:
            left = ledger.budget - ledger.committed(_now()) - self._fleet.spare_costs(closing=closing)
        plan = plan_warm(candidates, left)
        if plan.notice:
            self.note(plan.notice)
        prices = {each.machine: each.per_hour for each in candidates}
        return {machine: WarmTerms(time.time() + seconds, prices[machine]) for machine, seconds in plan.seconds.items()}

    def _rest(self, kept: Mapping[int, WarmTerms]) -> None:
        """Leave the record of the pool to its warm machines."""
        self._record.rest()
        self.warm_until = max(each.until for each in kept.values())
        price = sum(each.per_hour for each in kept.values())
        self._bus.emit(events.PoolNote, warm_notice(self.name, len(kept), self.warm_until, price))

    def note(self, text: str) -> None:
        """Show a notice to the user."""
        self._bus.emit(events.PoolNote, f"Pool {self.name!r}: {text}")

    def _warn_of_price(self) -> None:
        """Warn if the pool may cost more than its limit per hour, unless that was said already."""
        warning = price_warning(self._launchers, self._options)
        if warning and warning != self._price_warning:
            self._price_warning = warning
            self._bus.emit(events.PoolNote, warning)

    @property
    def is_known(self) -> bool:
        """True once opening has progressed so far that a snapshot can be taken."""
        return self._plane is not None and self.state not in ("new", "requesting")

    @property
    def _provider(self) -> str:
        return ", ".join(dict.fromkeys(launcher.provider_name for launcher in self._launchers.values()))

    @property
    def _counts(self) -> tuple[int, int]:
        """Number of tasks that returned a value, and of tasks that failed; cancelled ones are neither."""
        return self._bus.count(events.TaskCompleted), self._bus.count(*FAILURES)

    @property
    def _entering(self) -> bool:
        return self._fleet.entering > 0 or any(launcher.existing_machines for launcher in self._launchers.values())

    # Leaving.

    def limit_leases(self) -> None:
        """Keep the leases within the rest of the budget from now on, and not only once this process leaves the pool."""
        self.leases.is_limited = True
        self._background.spawn(self._renew_leases())

    def keep_as_found(self) -> None:
        """Have `close` leave the machines of a former process as they were, if it does not end what is gone."""
        self._keep_machines = self._is_attached

    async def leave(self) -> None:
        """Prepare the pool for the end of this process.

        It is recorded whether any task is left, for a process that attaches to the pool for a while.
        """
        await self.leases.leave()
        self._record_idle()

    def _record_idle(self) -> None:
        """Record whether this process leaves unfinished tasks, should it end now."""
        snapshot = self.snapshot()
        self._record.is_idle = not (snapshot.queued or snapshot.running)

    async def _heed_request(self) -> None:
        """Close the pool when another process of this user asks for it: `skyward down --force`."""
        while not is_requested(self._record.id):  # noqa: ASYNC110 - another process sets it
            await asyncio.sleep(_HEED_EVERY)
        heed_request(self._record.id)
        self.note("closing: another process of this user asked for it.")
        self._closing_on_request = asyncio.get_running_loop().create_task(self._close_on_request())

    async def _close_on_request(self) -> None:
        try:
            await self.close()
        except ProvisioningError as error:  # what is left is on record
            self.note(str(error))
        finally:
            withdraw_request(self._record.id)

    async def _renew_record(self) -> None:
        """Renew the pool's record periodically, as a heartbeat of this process."""
        while True:
            self._record.renew()
            await self._renew_leases()
            await asyncio.sleep(RENEW_EVERY)

    async def _renew_leases(self) -> None:
        """Adapt the leases, if they are limited while this process still runs, to the rest of the budget."""
        try:
            if self.leases.is_left:
                await self.leave()
            else:
                await self.leases.limit()
        except JournalError as error:  # the pool goes on
            _logger.warning("could not record the leases of pool %r: %s", self.name, error)

    # The control plane.

    @property
    def control(self) -> ControlPlane:
        """The control plane.

        Raises:
            PoolClosedError: the pool was never open.
        """
        if self._plane is None:
            raise PoolClosedError(f"Pool {self.name!r} is not open.")
        return self._plane

    @property
    def publisher(self) -> EventPublisher:
        """The publisher of events.

        Raises:
            PoolClosedError: the pool was never open.
        """
        if self._publisher is None:
            raise PoolClosedError(f"Pool {self.name!r} is not open.")
        return self._publisher

    @property
    def nodes(self) -> Mapping[int, Node]:
        """Nodes that have a machine, by rank."""
        return self._fleet.nodes

    def node_at(self, rank: int) -> Node | None:
        """Return the node of a rank; None if it has no machine."""
        return self._fleet.nodes.get(rank)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine for as long as the pool is open."""
        self._background.spawn(coroutine)

    def tell(self, message: plane.PlaneMessage) -> None:
        """Send a message to the control plane, and execute the effects."""
        if self._plane is None or self._publisher is None or self.state in ("stopping", "closed"):
            return
        self.tasks.history.revision += 1
        if isinstance(message, tasks.Ended) and (work := self.tasks.works.get(message.task)) is not None:
            work.running = False
        if self._record.is_idle and isinstance(message, _SUBMISSIONS):
            self._record.is_idle = False
        sent: set[Node] = set()
        now = _now()
        effects = self._plane.handle(message, now)
        if self._plane.policy_time is not None and (slow := self._plane.policy_time.take_warning()):
            self.note(slow)
        self._write_decisions()
        self._publisher.publish_step(message, effects, now)
        for effect in effects:
            try:
                self._execute(effect, sent)
            except Exception as error:  # later effects belong to other tasks and nodes
                _logger.error("could not execute %s of pool %r", type(effect).__name__, self.name, exc_info=error)
                if isinstance(effect, tasks.Dispatch):
                    self.tasks.dispatch_failed(effect, error)
        for node in sent:
            node.flush()
        self._publisher.publish_costs()
        self._record_costs(now)
        if not _SIZE_EFFECTS.isdisjoint(map(type, effects)):
            self._record_size()
        if self._plane.updates or self._recorded_updates:
            self._record_updates()
        if self._fleet.spares and self._plane.budget_exhausted:
            self._fleet.end_spares()
        self._progress.set()
        self._timer.set(self._plane.next_tick)
        if self._unsent_timer is None and self.state == "ready":
            loop = asyncio.get_running_loop()
            self._unsent_timer = loop.call_later(_RECORD_UNSENT_AFTER, self._record_unsent)

    def _record_unsent(self) -> None:
        """Record the number of tasks that no node has, for a process that attaches to the pool."""
        self._unsent_timer = None
        unsent = self.control.tasks.unsent + len(self.tasks.prerequisites)
        if unsent != self._unsent:
            self._unsent = unsent
            try:
                self._record.unsent = unsent
            except OSError as error:  # the pool goes on
                _logger.warning("could not record the queued tasks of pool %r: %s", self.name, error)

    def _record_costs(self, now: float) -> None:
        """Record the costs when the price or the budget has changed, for a process that attaches to the pool."""
        ledger = self.control.ledger
        terms = ledger.per_hour, ledger.budget
        if terms == self._recorded_terms:
            return
        self._recorded_terms = terms
        if self.leases.is_left or self.leases.is_limited:
            self._background.spawn(self._renew_leases())
        try:
            self._record.set_costs(ledger.spent(now), *terms)
        except JournalError as error:  # the pool goes on
            _logger.warning("could not record the costs of pool %r: %s", self.name, error)

    def _record_size(self) -> None:
        """Record the size of the pool if it has changed, for a process that attaches to it.

        The nodes that a reached budget drains are no choice of the user or the policy: the size before is kept.
        """
        control, nodes = self.control, self._fleet.nodes
        if self.state != "ready" or control.budget_exhausted:
            return
        draining = frozenset(nodes[rank].instance.id for rank in control.draining if rank in nodes)
        ending = [machine.id for machine in control.reconciler.table.in_states("TERMINATING")]
        leaving = self._fleet.instances(ending) - self._fleet.instances(self._fleet.spares)
        size = SizeEntry(self.bounds, dict(control.desired), draining, leaving)
        if size == self._recorded_size:
            return
        self._recorded_size = size
        try:
            self._record.set_size(size)
        except JournalError as error:  # the pool goes on
            _logger.warning("could not record the size of pool %r: %s", self.name, error)

    def _record_updates(self) -> None:
        """Record the updates of the groups if they have changed, for a process that attaches to the pool."""
        updates = [
            UpdateEntry(name, self._specs[name].first_at(source.position), fell_back)
            for name, (source, fell_back) in sorted(self.control.updates.origins.items())
        ]
        if updates == self._recorded_updates:
            return
        self._recorded_updates = updates
        try:
            self._record.set_updates(updates)
        except JournalError as error:  # the pool goes on
            _logger.warning("could not record the updates of pool %r: %s", self.name, error)

    def _execute(self, effect: plane.PlaneEffect, sent: set[Node]) -> None:
        """Execute one effect; nodes that were sent a command are added to `sent`."""
        if isinstance(effect, tasks.Settle):
            effect = self.tasks.final(effect)
        self.publisher.publish_effect(effect)
        match effect:
            case (
                tasks.Dispatch()
                | tasks.Settle()
                | tasks.Member()
                | tasks.MeetingOpened()
                | tasks.Stop()
                | tasks.Recall()
                | tasks.Requeue()
                | tasks.BroadcastEnded()
            ):
                self.tasks.execute(effect, sent)
            case plane.ThresholdReached() | plane.Decided():
                pass
            case plane.ForgetKept() | plane.KeptValuesLost():
                self.tasks.kept_values.execute(effect)
            case machine_messages.Drain(rank) if rank in self._fleet.nodes:
                self.tasks.results.clear(self._fleet.nodes[rank])
            case machine_messages.GiveUp():
                if self._reported_failure != self.control.failure:  # several nodes may be given up for one reason
                    self._reported_failure = self.control.failure
                    self._bus.emit(events.PoolNote, f"Pool {self.name!r} {self._reported_failure}")
            case _:
                self._fleet.do(effect, sum(self.control.desired.values()))

    # Scaling.

    def resize(self, wanted: Nodes, group: str | None = None) -> str:
        """Change the number of nodes. Nodes that are removed finish their tasks first.

        Return the reason if it is refused, in which case nothing changes; else an empty string.
        """
        name = group if group is not None else next(iter(self._launchers))
        least = wanted.ceiling if wanted.desired is None else max(wanted.min, wanted.desired)
        if reason := unsizable(least, self.control.retained(_now()).get(name)):
            return reason
        control, bounds = self.control, {name: (wanted.min, wanted.ceiling)}
        if reason := over_total(control.groups, bounds, control.head, self._options.max_nodes):
            return reason
        nodes = {} if wanted.desired is None else {name: wanted.desired}
        self.tell(plane.Resize({name: (wanted.min, wanted.ceiling)}, nodes))
        return ""

    async def update(self, name: str, specs: tuple[Spec, ...]) -> bool:
        """Launch the nodes of a group from other specs, and replace those of earlier ones, one by one.

        Return False if the specs mean the same for the provider, so that nothing changes and a notice says so.

        Raises:
            UsageError: it is refused; nothing changes.
            SkywardError: the provider has no fitting offer, or failed; nothing changes.
        """
        async with self._updating:
            history, launcher = self._specs[name], self._launchers[name]
            fields = changed_fields(history.present, specs)
            if not fields:
                self.note(f"group {name!r} has this spec already, so its nodes are not replaced.{_of_includes(specs)}")
                return False
            if _ignored_by_provider(fields, specs):
                self.note(
                    f"group {name!r} is not updated: its provider does not act on {joined(fields)}, so its nodes would "
                    "be the same."
                )
                return False
            isolated = isolated_providers({name: specs})
            if isolated and (self.clustering is not None or self.together is not None):
                raise UsageError(
                    f"Pool {self.name!r} cannot be updated: its nodes form a cluster, and nodes of provider "
                    f"{joined(map(repr, isolated))} do not reach each other. Open another pool."
                )
            for notice in await check_volumes(specs):
                self.note(notice)
            first = history.position_of(specs)
            # the position is taken before anything is found for it; the specs recorded last are the present ones
            self._record.set_specs(name, first, specs)
            self._record.set_specs(name, history.first, history.present)
            try:
                prepared = await self._background.spawn(launcher.prepare_update(specs, first))
            except ProviderCallError as error:
                raise ProvisioningError(f"Pool {self.name!r} could not be updated: {error}") from error.__cause__
            except asyncio.CancelledError:
                if self.state == "ready":
                    raise
                raise PoolClosedError(f"Pool {self.name!r} was closed before it was updated.") from None
            try:
                self._check_update(prepared)
                self._record.set_specs(name, first, specs)
            except BaseException:
                prepared.discard()
                raise
            history.take(specs)
            prepared.apply()
            sources, positions = launcher.sources, launcher.positions
            message = plane.UpdateGroup(prepared.group, sources, positions, boot_limit(launcher), fields)
            self.tell(message)
            if gap := self.control.updates.gap(name, _now()):
                self.note(gap)
            for notice in launcher.notes:
                self._bus.emit(events.PoolNote, notice)
            self._warn_of_price()
            return True

    def _check_update(self, prepared: LauncherUpdate) -> None:
        """Check that nodes of other specs can do what the pool has to do, and that the budget can be enforced.

        Raises:
            UsageError: the update is refused.
        """
        reason = self.control.refuses_update(prepared.group, _now())
        if prepared.unpriced and self.control.ledger.budget is not None:
            places = ", ".join(map(str, prepared.unpriced[:3]))
            reason = f"it has a budget, and the price of its nodes at {places} is not known"
        if reason:
            raise UsageError(f"Pool {self.name!r} cannot be updated: {reason}.")

    @property
    def bounds(self) -> dict[str, tuple[int, int]]:
        """Minimum and maximum number of nodes, by group."""
        return {name: (group.min, group.max) for name, group in self.control.groups.items()}

    def drain(self, rank: int) -> str:
        """Drain and remove a node, which makes the pool smaller. Return the reason if it is refused; else empty."""
        ready = self.control
        kept = ready.kept.busy_nodes(_now())
        reason = undrainable(ready.reconciler.table, ready.groups, ready.desired, kept, rank)
        self.tell(plane.DrainNode(rank))
        return reason

    def request_resources(self, floor: Sequence[Demand]) -> None:
        """Keep capacity for these demands, even while it is idle."""
        self.tell(plane.SetFloor(tuple(floor)))

    def infeasible(self, floor: Sequence[Demand]) -> str:
        """Return the reason why the pool could never hold `floor`, even at its largest; empty if it could."""
        return self.control.infeasible(floor)

    def fund(self, budget: float | None) -> str:
        """Change the budget. Return the reason if it is refused, in which case nothing changes; else empty."""
        unpriced = [str(place) for launcher in self._launchers.values() for place in launcher.unpriced]
        if budget is not None and unpriced:
            return f"pool {self.name!r} may have nodes at {', '.join(unpriced[:3])}, whose price is not known"
        self.tell(plane.SetBudget(budget))
        return ""

    def _use_node(self) -> str:
        """Request a node for the client's use of collections. Return the reason if there can be none; else empty."""
        self.tell(plane.CollectionUsed())
        ready = self.control
        return f"pool {self.name!r} {ready.failure}" if ready.budget_exhausted or ready.cannot_start else ""

    # Views.

    def holds(self, key: bytes) -> frozenset[int]:
        """Return the ranks of the nodes that hold a blob."""
        return frozenset(rank for rank, node in tuple(self._fleet.nodes.items()) if node.holds(key))

    def follow(self, wanted: "OutputFilter", tail: int | None) -> "Follower":
        """Return a follower of the output, which starts with the last `tail` pieces of what was printed so far."""
        over = self.state == "closed" or (wanted.task is not None and wanted.task not in self.tasks.works)
        return self.tasks.log.follow(wanted, tail, ended=over)

    def metrics(self) -> "dict[int, tuple[NodeMetrics, ...]]":
        """Return the latest metrics of the nodes, by rank."""
        return {rank: tuple(node.metrics) for rank, node in sorted(self._fleet.nodes.items())}

    def snapshot(self) -> PoolSnapshot:
        """Return a snapshot of the pool."""
        found = view(self.control, self._fleet.nodes, self.name, self.state, self._launchers, *self._counts)
        spares = self._fleet.spares
        return replace(
            found,
            lease=found.lease if self.leases.shortened is None else min(found.lease, self.leases.shortened),
            nodes=tuple(self._with_machine(node, spares) if node.state == "stopping" else node for node in found.nodes),
            queued=found.queued + len(self.tasks.prerequisites) + self.control.tasks.withheld,
            cancelled=self._bus.count(events.TaskCancelled),
        )

    def _with_machine(self, node: NodeView, spares: frozenset[int]) -> NodeView:
        """Return a node that is stopping with the volumes that it flushes, or as warm if its machine is kept."""
        if node.machine in spares:
            return replace(node, phase=WARM)
        return replace(node, volumes=self._fleet.volumes_of(node.machine))

    def decisions(self) -> list[DecisionEvent]:
        """Return the latest decisions, oldest first; `at` in Unix time."""
        if self._plane is None:
            return []
        since = unix_offset()
        return [replace(event, at=event.at + since) for event in self._plane.decisions]

    def task_history(self, task: int) -> tuple[str, ...]:
        """Return the transitions of a task as text, oldest first."""
        return () if self._plane is None else task_history(self._plane, task)


def _together(groups: Mapping[str, Sequence[Spec]]) -> tasks.Together | None:
    """Return the terms of broadcasts by the plugins of a pool, which are the same for all groups."""
    spec = next(iter(groups.values()))[0]
    procs = processes(spec)
    terms = required(spec.plugins)
    return tasks.Together(procs, terms.restarts, terms.meeting_timeout) if procs else None


def _of_includes(specs: Sequence[Spec]) -> str:
    """Return how to ship edited files to nodes of an equal spec; empty if it includes none."""
    if not any(spec.image.includes for spec in specs):
        return ""
    return (
        " The files of `includes` are compared by their paths, not by their content: to copy edited ones to new nodes, "
        "give the image another variable, such as `env={'CODE': '2'}`."
    )


def _ignored_by_provider(fields: Sequence[str], specs: Sequence[Spec]) -> bool:
    """Return whether only fields change that have no effect on machines and nodes, because no provider acts on them."""
    acted_on = {field for spec in specs for field in acts_on(provider_config(spec)).fields}
    return _OF_MACHINES_ONLY.difference(acted_on).issuperset(fields)


def _why_standalone(isolated: Sequence[str], options: Options) -> str:
    if isolated:
        return f"nodes of provider {joined(map(repr, isolated))} do not reach each other"
    return "this pool has `cluster=False`" if options.cluster is False else ""


def _now() -> float:
    return time.monotonic()
