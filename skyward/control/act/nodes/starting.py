"""Starting workers: the environments of the machines of one group, and the workers that run in them."""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from skyward.bootstrap import Plan, SharedSetup, client_settings, has_own_environment
from skyward.bootstrap.script import fetch_limit
from skyward.bootstrap.supplies import Supplier
from skyward.control.act.machines.offers import SourceOffer
from skyward.control.act.nodes.environments import GroupEnvironments
from skyward.control.act.nodes.node import Node
from skyward.control.act.nodes.volumes import (
    attach_command,
    check_volumes,
    native_paths,
    stored_volumes,
    with_volume_packages,
    with_volume_tools,
)
from skyward.errors import CredentialsError, NodeStartError, StorageError
from skyward.link.connection.programs import ClientShell
from skyward.providers.protocol import ExecAccess, LocalAccess
from skyward.specs import Image, Options, Spec, Volume
from skyward.specs.plugin import Plugin
from skyward.specs.plugin_order import steps_of
from skyward.storage.failures import UNREACHABLE, may_pass
from skyward.task.volumes import VOLUMES
from skyward.wire.protocol.messages import PluginPart, Prepare

if TYPE_CHECKING:
    from skyward.specs.plugin import PluginStep

__all__ = ["START_TIMEOUT", "WorkerStarter"]

START_TIMEOUT = 60.0
"""Default timeout of the start of a worker on a running machine, in seconds."""

_logger = logging.getLogger(__name__)


class WorkerStarter:
    """Starter of the workers of one group, which share what their environments need. Lives on the library's loop.

    Attributes:
        standalone: reason why nodes form no cluster, for collections on a node; empty if they form one.
    """

    def __init__(self, pool: str, options: Options) -> None:
        self.standalone = ""
        self._pool = pool
        self._options = options
        self._plans: dict[tuple[Image, tuple[PluginStep, ...], str | None], asyncio.Task[Plan]] = {}
        self._setups: dict[Image, SharedSetup] = {}
        self._supplier = Supplier(ClientShell, _logger.warning)
        self._environments = GroupEnvironments()
        self._attached: set[Volume] = set()

    async def start(self, node: Node, offered: SourceOffer, info: Callable[[], str]) -> None:
        """Start the worker of a node whose machine runs, or attach to its existing worker; then connect.

        Args:
            node: the node.
            offered: the offer of its machine.
            info: returns the result of `instance_info()` on the node, as JSON, once it is connected.

        Raises:
            NodeStartError: the worker did not start, or cannot be reached.
        """
        plan = await self._plan(node, offered)
        node.startup.image = "" if plan is None else plan.image_hash
        variables = self._variables(node, offered)
        if plan is not None:
            variables["SKYWARD_PIP"] = json.dumps(plan.pip)
            plan = self._with_peers(node, offered, plan)
        elif node.worker_entry is None:
            variables |= await self._set_up_local(node, offered)
        parts = parts_of(offered.spec.plugins)

        def prepare() -> Prepare:
            return Prepare(parts, info(), tuple(offered.spec.image.env))

        within = self._options.bootstrap_timeout or START_TIMEOUT
        volumes = None
        if node.worker_entry is None:
            try:
                volumes = await attach_command(offered.spec, node.instance.access)
            except CredentialsError as error:
                raise NodeStartError(str(error), is_final=True) from error
        try:
            await node.start(variables, within, plan, prepare if parts or volumes is not None else None, volumes)
        except NodeStartError as error:
            if node.volumes.could_not_attach and not error.is_final:
                await self._check_stores(offered.spec, error)
            raise
        self._attached.update(stored_volumes(offered.spec))
        self._environments.add(node, _network(offered))

    async def _check_stores(self, spec: Spec, failure: NodeStartError) -> None:
        """Check whether another node may attach the volumes that one could not.

        A store that a node has reached before may come back.

        Raises:
            NodeStartError: none can: a store refuses, or has never answered, and does not answer this machine either.
        """
        try:
            is_away = bool(await check_volumes((spec,)))
        except CredentialsError as error:
            raise NodeStartError(str(error), is_final=True) from failure
        except StorageError as error:
            if error.code != UNREACHABLE:
                raise NodeStartError(str(error), is_final=not may_pass(error.code)) from failure
            is_away = True
        if is_away and not self._attached.issuperset(stored_volumes(spec)):
            raise NodeStartError(f"{failure}; it does not answer this machine either", is_final=True) from failure

    async def plan_of(self, spec: Spec, directory: str | None) -> Plan:
        """Return the plan for the environment of a spec in Skyward's directory on a machine, made once."""
        volumes = stored_volumes(spec)
        steps = with_volume_tools(steps_of(spec.plugins, spec), volumes)
        image = with_volume_packages(spec.image, volumes)
        key = (image, steps, directory)
        if key not in self._plans:
            self._supplier.begin()
            make = partial(
                Plan.of,
                image,
                directory=directory,
                plugins=steps,
                settings=_settings(os.environ),
                helper=self._supplier,
            )
            self._plans[key] = asyncio.get_running_loop().create_task(asyncio.to_thread(make))
        return await asyncio.shield(self._plans[key])

    async def close(self) -> None:
        """End the transfers of environments and packages, and remove the environments of local nodes."""
        await self._supplier.close()
        await self._environments.close()
        for setup in self._setups.values():
            await setup.close()

    async def _plan(self, node: Node, offered: SourceOffer) -> Plan | None:
        """Return the plan of the node's environment, shared by all nodes alike; None if the machine has one already."""
        access = node.instance.access
        if access is None or isinstance(access, LocalAccess) or access.python is not None:
            return None
        return await self.plan_of(offered.spec, access.directory)

    def _with_peers(self, node: Node, offered: SourceOffer, plan: Plan) -> Plan:
        """Return the plan with the nodes that may send the environment, if machines reach each other."""
        isolated = getattr(offered.config, "isolated_nodes", False) is True
        if isolated or not plan.is_same_everywhere:
            return plan
        return replace(plan, peers=self._environments.of(plan.image_hash, _network(offered), fetch_limit(plan)))

    async def _set_up_local(self, node: Node, offered: SourceOffer) -> Mapping[str, str]:
        """Set up a node that is a process on this machine; return variables for its worker. Other nodes: none."""
        access = node.instance.access
        match access:
            case LocalAccess(directory=directory):
                pass
            case ExecAccess(is_local=True, directory=str(directory)):
                pass
            case _:
                return {}
        image = offered.spec.image
        if has_own_environment(image):
            image = with_volume_packages(image, offered.spec.volumes)
        if image not in self._setups:
            self._setups[image] = SharedSetup(image, tuple(sys.path), ClientShell, _logger.warning)
        if has_own_environment(image):
            node.startup.image = image.env_hash()
        setup = await self._setups[image].get(node.report)
        if setup.made is not None:
            node.instance = replace(node.instance, access=replace(access, python=setup.made.python))
        return await setup.environment(Path(directory), image)

    def _variables(self, node: Node, offered: SourceOffer) -> dict[str, str]:
        """Return the environment variables of a node's worker."""
        worker, spec = self._options.worker, offered.spec
        return {
            **spec.image.env,
            "SKYWARD_POOL": self._pool,
            "SKYWARD_LEASE": str(spec.ttl),
            "SKYWARD_BACKLOG": str(int(worker.backlog_gb * 1024**3)),
            "SKYWARD_STANDALONE": self.standalone,
            "SKYWARD_WORKERS_PER_NODE": str(worker.concurrency),
            "SKYWARD_WORKER_EXECUTOR": worker.resolved_executor,
            "SKYWARD_METRICS": str(self._options.metrics_interval or 0),
            "SKYWARD_NOTICES": node.instance.notices,
            "SKYWARD_PLUGINS": "1" if stored_volumes(spec) or parts_of(spec.plugins) else "",
            **({VOLUMES: json.dumps(native)} if (native := native_paths(spec)) else {}),
            "MPLBACKEND": spec.image.env.get("MPLBACKEND", "agg"),
        }


def parts_of(plugins: Sequence[Plugin]) -> tuple[PluginPart, ...]:
    """Return the parts of plugins that run on nodes."""
    return tuple(
        PluginPart(plugin.name, plugin.on_node, json.dumps(dict(plugin.settings())))
        for plugin in plugins
        if plugin.on_node is not None
    )


def _network(offered: SourceOffer) -> str:
    """Return the name of the network in which the machines of a source may reach each other: that of their zone."""
    source = offered.source
    return f"{source.provider} {source.position} {source.zone}"


def _settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return this process's settings of package indexes, except those that name local files."""
    return {name: value for name, value in client_settings(environ).items() if not value.startswith(("/", "~"))}
