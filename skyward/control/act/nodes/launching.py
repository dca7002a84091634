"""Launching: machines for the nodes of one group, obtained from their providers, and workers started on them."""

import asyncio
import json
import logging
import os
import re
import sys
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from skyward.bootstrap import (
    Plan,
    SharedSetup,
    check_includes,
    check_requirements,
    client_settings,
    has_own_environment,
)
from skyward.control.act.nodes.node import Node, OnEvent, OnLost
from skyward.control.act.nodes.offers import ASK_WITHIN, SourceOffer, find_offers, provider_config
from skyward.control.decide.machines.sources import MachineSource
from skyward.control.observe.costs import SlotPrice
from skyward.control.observe.startup import StartupTracker
from skyward.errors import ProvisioningError, SkywardError
from skyward.formatting import count_text
from skyward.journal import ClusterEntry, MachineEntry, PoolRecord, WorkerEntry
from skyward.link.connection.programs import ClientShell
from skyward.link.ssh.worker import end_orphan
from skyward.offers import reason_of
from skyward.providers.protocol import Access, Cluster, ExecAccess, Instance, LocalAccess, SSHAccess
from skyward.scaling.snapshot import Group
from skyward.specs import Image, Nodes, Options, Spec
from skyward.task.instance import AcceleratorInfo, InstanceInfo, NetworkInfo, Peer

__all__ = ["Inventory", "Launcher", "launchers_of"]

START_TIMEOUT = 60.0
"""Default timeout of the start of a worker on a running machine, in seconds."""

_logger = logging.getLogger(__name__)


class Inventory:
    """The machines that a pool knows, over all its groups.

    A provider lists the machines of the whole pool. A machine that no group knows is an orphan, unless a request is
    under way.

    Attributes:
        known: ids of machines.
        asking: number of requests under way.
    """

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.asking = 0


class Launcher:
    """Launcher of the machines of one group. `teardown` releases everything that the provider handed out.

    Attributes:
        provider_name: name of the provider of the preferred source.
        notes: notices about the spec, for the user.
        startups: startup tracker of the pool's nodes.
    """

    def __init__(
        self,
        record: PoolRecord,
        group: str,
        specs: Sequence[Spec],
        options: Options,
        inventory: Inventory,
        startups: StartupTracker,
    ) -> None:
        self.startups = startups
        self.nodes = Nodes.of(specs[0].nodes)
        self.provider_name = provider_config(specs[0]).name
        self.notes: tuple[str, ...] = ()
        self._record = record
        self._group = group
        self._specs = specs
        self._options = options
        self._offers: dict[MachineSource, SourceOffer] = {}
        self._clusters: dict[MachineSource, Cluster] = {}
        self._entries: dict[MachineSource, int] = {}
        self._existing: dict[MachineSource, list[Instance]] = {}
        self._preparing: dict[MachineSource, asyncio.Lock] = {}
        self._workers: dict[str, WorkerEntry] = {}
        self._instances: dict[str, MachineSource] = {}
        self._plans: dict[tuple[Image, str | None], asyncio.Task[Plan]] = {}
        self._setups: dict[Image, SharedSetup] = {}
        self._earlier: tuple[ClusterEntry, ...] = ()
        self._inventory = inventory
        self._unchecked: set[MachineSource] = set()

    @property
    def start_within(self) -> float:
        """Timeout in seconds for a running machine to become a node."""
        start = self._options.bootstrap_timeout or START_TIMEOUT
        if all(provider_config(spec).name == "local" for spec in self._specs):
            images = [spec.image for spec in self._specs]
            set_up = [each.bootstrap_timeout for each in images if each.shell_vars or has_own_environment(each)]
            return start + max(set_up, default=0.0)
        connect = self._options.ssh_timeout or start
        return connect + start + max(spec.image.bootstrap_timeout for spec in self._specs)

    @property
    def existing_machines(self) -> int:
        """Number of machines that exist before any is requested."""
        return sum(self.existing.values())

    @property
    def existing(self) -> Mapping[MachineSource, int]:
        """Number of machines that exist before any is requested, by source."""
        return {source: len(machines) for source, machines in self._existing.items() if machines}

    @property
    def accelerators(self) -> str:
        """Accelerators of a machine at the preferred source, such as "A100"; empty for none."""
        return next(iter(self._offers.values())).accelerators if self._offers else ""

    @property
    def lease(self) -> float:
        """Lease in seconds: the time for which machines may outlive their client."""
        return max(spec.ttl for spec in self._specs)

    @property
    def sources(self) -> tuple[MachineSource, ...]:
        """Sources of the machines, the preferred one first."""
        return tuple(self._offers)

    @property
    def unpriced(self) -> tuple[MachineSource, ...]:
        """Sources without a known price."""
        return tuple(source for source, each in self._offers.items() if not each.priced)

    def group(self) -> Group:
        """Return the group as scaling sees it. Fields that the spec leaves open have the offer's values."""
        offered = next(iter(self._offers.values()))
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

    def adopt(self, earlier: Sequence[ClusterEntry]) -> None:
        """Take over another process's machines of this group, which this launcher now terminates."""
        self._earlier = tuple(earlier)
        for entry in earlier:
            offered: SourceOffer = entry.offered
            self._offers.setdefault(offered.source, offered)
            self._entries[offered.source] = entry.number
            self._inventory.known.update(machine.instance.id for machine in entry.machines)
            if entry.cluster is not None:
                self._clusters[offered.source] = entry.cluster

    async def prepare(self) -> None:
        """Find offers, and set up the resources that the machines of the preferred source share.

        Raises:
            SpecError: an include does not exist. Raised before anything is launched.
            NoOffersError: no offer fits.
        """
        if not self._earlier:
            for spec in self._specs:
                check_includes(spec.image.includes)
                if provider_config(spec).name == "local":
                    check_requirements(spec.image)
        options = self._options
        found = await find_offers(
            self._specs,
            options.selection,
            priced=options.budget is not None,
            within=options.provision_timeout or ASK_WITHIN,
        )
        for offered in found.offered:
            self._offers.setdefault(offered.source, offered)
        for entry in self._earlier:
            await self._find_existing(entry)
        failures = await self._prepare_preferred()
        preferred = next(iter(self._offers))
        self.provider_name = preferred.provider
        self.notes = (*found.notes, *failures, *self._offers[preferred].notes, *self._clusters[preferred].notes)

    async def _prepare_preferred(self) -> list[str]:
        """Prepare the preferred source; if its provider fails, prefer a source of another. Return notices about these.

        The sources of a provider that failed move to the end, and are tried again when the others have no machines.

        Raises:
            SkywardError: all providers failed; the error of the first one.
        """
        refusals: dict[int, SkywardError] = {}
        notices: list[str] = []
        for source in tuple(self._offers):
            if source.position in refusals:
                continue
            try:
                await self._cluster(source)
            except SkywardError as error:
                refusals[source.position] = error
                self._record.torn_down(self._entries.pop(source))  # nothing was created
                notices.append(f"{source} is tried last, because it could not be prepared: {reason_of(error)}.")
            else:
                self._offers = dict(sorted(self._offers.items(), key=lambda each: each[0].position in refusals))
                return notices
        raise next(iter(refusals.values()))

    async def _find_existing(self, entry: ClusterEntry) -> None:
        """Find the machines of another process that still exist: `provision` hands these out first."""
        offered: SourceOffer = entry.offered
        source, cluster = offered.source, entry.cluster
        if cluster is None:
            return
        existing = self._existing.setdefault(source, [])
        for machine in sorted(entry.machines, key=_by_rank):
            self._clusters[source], instance = await offered.provider.get_instance(cluster, machine.instance.id)
            if instance is None or instance.access is None:
                self._record.gone(entry.number, machine.instance.id)
                continue
            self._instances[instance.id] = source
            existing.append(instance if machine.worker is None else machine.instance)
            if machine.worker is not None:
                self._workers[instance.id] = machine.worker
        self._unchecked.add(source)
        await self._terminate_orphans(source)
        for token in entry.requests:
            self._record.provisioned(entry.number, token, self._clusters[source], ())

    async def _cluster(self, source: MachineSource) -> Cluster:
        async with self._preparing.setdefault(source, asyncio.Lock()):
            if source not in self._clusters:
                offered = self._offers[source]
                if source not in self._entries:
                    self._entries[source] = self._record.preparing(self._group, offered)
                if source != next(iter(self._offers)):  # the pool shows the notes of the preferred source
                    for note in offered.notes:
                        _logger.warning("%s: %s", source, note)
                cluster = await offered.provider.prepare(offered.spec, offered.offer, self._record.id)
                self._clusters[source] = replace(cluster, tags={"skyward-pool": self._record.id})
                self._record.prepared(self._entries[source], self._clusters[source])
            return self._clusters[source]

    async def provision(self, source: MachineSource, count: int) -> Sequence[Instance]:
        """Return up to `count` machines of a source: existing ones first, or else the result of one request."""
        if existing := self._existing.get(source):
            taken, existing[:] = existing[:count], existing[count:]
            return taken
        cluster, entry = await self._cluster(source), self._entries[source]
        token = self._record.asking(entry)
        tagged = replace(cluster, tags={**cluster.tags, "skyward-request": token})
        self._inventory.asking += 1
        asked = time.monotonic()
        try:
            self._clusters[source], instances = await self._offers[source].provider.provision(tagged, count)
            self._record.provisioned(entry, token, self._clusters[source], instances)
            if instances:
                self.startups.add_allocation(source.provider, time.monotonic() - asked)
            instances, extra = instances[:count], instances[count:]
            self._instances.update((instance.id, source) for instance in instances)
            self._inventory.known.update(instance.id for instance in instances)
            if extra:
                await self._terminate_extra(source, extra, count)
        except Exception:
            self._unchecked.add(source)
            raise
        finally:
            self._inventory.asking -= 1
            await self._terminate_orphans(source)
        return instances

    async def _terminate_extra(self, source: MachineSource, extra: Sequence[Instance], count: int) -> None:
        """Terminate the machines that a provider returned beyond the `count` that were requested."""
        surplus = f"{source} returned {count_text(count + len(extra), 'machine')} for a request of {count}"
        try:
            await self._offers[source].provider.terminate(self._clusters[source], [each.id for each in extra])
        except Exception:
            _logger.exception("%s; the extra ones could not be terminated; trying again later", surplus)
            self._unchecked.add(source)
        else:
            _logger.warning("%s; the extra ones were terminated", surplus)
            for each in extra:
                self._record.gone(self._entries[source], each.id)

    async def _terminate_orphans(self, source: MachineSource) -> None:
        """Terminate the machines of a failed request, whose answer is unknown, once no other is under way."""
        if source not in self._unchecked or self._inventory.asking:
            return
        provider, cluster = self._offers[source].provider, self._clusters[source]
        try:
            existing = [each.id for each in await provider.find(cluster)]
            if self._inventory.asking:
                return  # the machines of a new request may be among them
            orphans = [each for each in existing if each not in self._instances and each not in self._inventory.known]
            if orphans:
                await provider.terminate(cluster, orphans)
        except Exception:
            _logger.exception("could not check for machines of a failed request at %s; trying again later", source)
        else:
            self._unchecked.discard(source)

    def found(self, node: Node) -> Mapping[str, float]:
        """Return the measured resources of a node that neither its spec nor its offer states."""
        stated = {**self._offers[self._instances[node.instance.id]].spec.resources, **self._offered(node)}
        return {name: amount for name, amount in node.measured.items() if name not in stated}

    def _offered(self, node: Node) -> Mapping[str, float]:
        resources = self._offers[self._instances[node.instance.id]].resources
        return {name: amount for name, amount in resources.items() if amount}

    def node(self, rank: int, machine: int, instance: Instance, on_event: OnEvent, on_lost: OnLost) -> Node:
        """Return a new node for a machine; it is not started yet."""
        entry = self._workers.pop(instance.id, None)
        instance = replace(instance, access=self._with_options(instance.access))
        node = Node(rank, machine, instance, on_event, on_lost, self._record.derive, entry)
        node.slot_price = self._terms(instance)
        return node

    def _terms(self, instance: Instance) -> SlotPrice:
        source, slots = self._instances[instance.id], self._options.worker.concurrency
        return SlotPrice(self._offers[source].accelerators or source.provider, source.hourly_price, slots)

    def _with_options(self, access: Access | None) -> Access | None:
        """Return the access to a machine, with the timeouts of the options where these are set."""
        if not isinstance(access, SSHAccess):
            return access
        within, every = self._options.ssh_timeout, self._options.ssh_retry_interval
        return replace(access, answer_within=within or access.answer_within, retry_every=every or access.retry_every)

    async def start(self, node: Node) -> None:
        """Start a node's worker and connect to it.

        Raises:
            NodeStartError: the node did not start.
        """
        self.startups.begin(node.startup)
        was_attached = node.worker_entry is not None
        try:
            await self._start(node)
        except Exception as error:
            self.startups.failed(node.startup, error)
            raise
        self.startups.completed(node.startup, self._instances[node.instance.id].provider, attached=was_attached)

    async def _start(self, node: Node) -> None:
        timeout = self._options.bootstrap_timeout or START_TIMEOUT
        plan = await self._plan(node)
        node.startup.image = "" if plan is None else plan.image_hash
        variables = self._environment(node)
        if plan is not None:
            variables["SKYWARD_PIP"] = json.dumps(plan.pip)
        elif node.worker_entry is None:
            variables |= await self._set_up_local(node)
        await node.start(variables, timeout, plan)
        if node.worker_entry is not None:
            self._record.installed(self._entries[self._instances[node.instance.id]], node.instance, node.worker_entry)

    async def _plan(self, node: Node) -> Plan | None:
        """Return the plan of the node's environment, shared by all nodes alike; None if the machine has one already."""
        access = node.instance.access
        if access is None or isinstance(access, LocalAccess) or access.python is not None:
            return None
        image = self._spec_of(node.instance).image
        key = (image, access.directory)
        if key not in self._plans:
            make = partial(Plan.of, image, directory=access.directory, settings=_settings(os.environ))
            self._plans[key] = asyncio.get_running_loop().create_task(asyncio.to_thread(make))
        return await asyncio.shield(self._plans[key])

    async def _set_up_local(self, node: Node) -> Mapping[str, str]:
        """Set up a node that is a process on this machine; return variables for its worker. Other nodes: none."""
        access, source = node.instance.access, self._instances[node.instance.id]
        match access:
            case LocalAccess(directory=directory):
                pass
            case ExecAccess(directory=str(directory)) if source.provider == "local":
                pass
            case _:
                return {}
        image = self._spec_of(node.instance).image
        if image not in self._setups:
            self._setups[image] = SharedSetup(image, tuple(sys.path), ClientShell, _logger.warning)
        if has_own_environment(image):
            node.startup.image = image.env_hash()
        setup = await self._setups[image].get(node.report)
        if setup.made is not None:
            node.instance = replace(node.instance, access=replace(access, python=setup.made.python))
        return await setup.environment(Path(directory), image)

    def _environment(self, node: Node) -> dict[str, str]:
        worker, spec = self._options.worker, self._spec_of(node.instance)
        image = spec.image
        return {
            **image.env,
            "SKYWARD_POOL": self._record.id,
            "SKYWARD_LEASE": str(spec.ttl),
            "SKYWARD_BACKLOG": str(int(worker.backlog_gb * 1024**3)),
            "SKYWARD_CLUSTER": "0" if self._options.cluster is False else "1",
            "SKYWARD_WORKERS_PER_NODE": str(worker.concurrency),
            "SKYWARD_WORKER_EXECUTOR": worker.resolved_executor,
            "SKYWARD_METRICS": str(self._options.metrics_interval or 0),
            "MPLBACKEND": image.env.get("MPLBACKEND", "agg"),
        }

    def _spec_of(self, instance: Instance) -> Spec:
        return self._offers[self._instances[instance.id]].spec

    def end_orphan(self, node: Node) -> Coroutine[Any, Any, None]:
        """Return a coroutine that ends a worker whose machine was unreachable, once that can be reached again."""
        access = node.instance.access
        assert isinstance(access, SSHAccess)
        return end_orphan(access, node.orphan_directory, self._spec_of(node.instance).ttl)

    async def terminate(self, instance: Instance) -> None:
        """Terminate one machine. Idempotent."""
        source = self._instances.get(instance.id)
        if source is not None:
            await self._offers[source].provider.terminate(self._clusters[source], [instance.id])
            self._instances.pop(instance.id, None)
            self._inventory.known.discard(instance.id)
            self._record.gone(self._entries[source], instance.id)

    async def teardown(self) -> None:
        """Terminate every machine, and remove the resources they shared. Idempotent.

        Raises:
            ProvisioningError: some of it may be left, and stays on record. The other sources are torn down anyway.
        """
        for setup in self._setups.values():
            await setup.close()
        within = self._options.shutdown_timeout
        errors = []
        for source in tuple(self._entries):
            try:
                async with asyncio.timeout(within):
                    await self._tear_down(source)
            except TimeoutError:
                errors.append(f"{source} did not answer within {within:.0f} s")
            except Exception as error:
                errors.append(f"{source}: {str(error) or type(error).__name__}")
        if errors:
            raise ProvisioningError("; ".join(errors))

    async def _tear_down(self, source: MachineSource) -> None:
        """Terminate everything at one source. An unfinished preparation is repeated first, to get its cluster."""
        provider = self._offers[source].provider
        try:
            cluster = await self._cluster(source)
        except SkywardError:  # nothing was created
            self._record.torn_down(self._entries.pop(source))
            return
        left = [instance for instance, where in self._instances.items() if where == source]
        existing = [instance.id for instance in await provider.find(cluster)]
        await provider.terminate(cluster, list(dict.fromkeys((*left, *existing))))
        await provider.teardown(cluster)
        del self._clusters[source]
        self._record.torn_down(self._entries.pop(source))
        for instance in left:
            self._instances.pop(instance, None)

    def topology(self, node: Node, nodes: Mapping[int, Node], total: int) -> str:
        """Return the value of `instance_info()` on `node`, as JSON."""
        head = nodes.get(0, node).instance.address
        accelerator = accelerator_info(self._spec_of(node.instance))
        accelerators = 0 if accelerator is None else accelerator.count
        processes = self._options.worker.resolved_executor == "process"
        resources = {**node.measured, **self._offered(node)}
        info = InstanceInfo(
            node=node.rank,
            total_nodes=total,
            workers_per_node=self._options.worker.concurrency if processes else 1,
            vcpus=resources.get("CPU", 0),
            memory_gb=resources.get("memory", 0),
            accelerators=accelerators,
            total_accelerators=accelerators * total,
            head_addr=head,
            job_id=self._clusters[self._instances[node.instance.id]].id,
            peers=tuple(
                Peer(node=rank, private_ip=peer.instance.address, public_ip=peer.instance.public_address)
                for rank, peer in sorted(nodes.items())
            ),
            accelerator=accelerator,
            network=NetworkInfo(interface=node.instance.interface),
        )
        return info.to_json()


def launchers_of(record: PoolRecord, groups: Mapping[str, Sequence[Spec]], options: Options) -> Mapping[str, Launcher]:
    """Return the launchers of one pool, by group."""
    inventory, startups = Inventory(), StartupTracker(record)
    return {group: Launcher(record, group, specs, options, inventory, startups) for group, specs in groups.items()}


def _by_rank(machine: MachineEntry) -> tuple[bool, int]:
    return machine.worker is None, machine.worker.rank if machine.worker is not None else 0


def _settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return this process's settings of package indexes, except those that name local files."""
    return {name: value for name, value in client_settings(environ).items() if not value.startswith(("/", "~"))}


def accelerator_info(spec: Spec) -> AcceleratorInfo | None:
    """Return the accelerators of a node of `spec`; None if it has none."""
    accelerator = spec.accelerator
    if accelerator is None:
        return None
    size = re.fullmatch(r"(\d+(?:\.\d+)?)GB", accelerator.memory)
    return AcceleratorInfo(
        type=accelerator.name,
        count=accelerator.count,
        memory_gb=float(size[1]) if size else 0,
        is_trainium=accelerator.name.startswith("Trainium"),
    )
