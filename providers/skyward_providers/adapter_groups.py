"""The worker groups of an adapter, each one machine of a provider. Commands are idempotent."""

import asyncio
import itertools
import logging
import os
import signal
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from skyward.control.act.machines.booting import BOOT_TIMEOUT, until_running
from skyward.errors import SkywardError
from skyward.providers import Cluster, Instance, LocalAccess, Offer, PoolIdentity, Provider
from skyward.specs import Spec
from skyward.wire.protocol.adapter import (
    Answer,
    Malformed,
    ShutdownWorkerGroup,
    StartWorkerGroup,
    Status,
    UnknownCommand,
    encode,
)

__all__ = ["Groups"]

_logger = logging.getLogger(__name__)

_REMEMBERED = 1000
"""Number of answers and ended groups that are remembered, for repeated commands."""

_REASON = 1000

type GroupCommand = StartWorkerGroup | ShutdownWorkerGroup | UnknownCommand


class Groups:
    """The groups of one adapter.

    Args:
        name: name of the adapter, the prefix of group ids.
        identity: the pool that the provider's machines are for.
        provider: the provider of the machines.
        spec: the spec of the machines.
        offer: the provider's offer.
        most: maximum number of groups; -1 for no limit.
        workers: slots of each group.
        boot_within: seconds that a launched machine may take to run.
    """

    def __init__(
        self,
        name: str,
        identity: PoolIdentity,
        provider: Provider,
        spec: Spec,
        offer: Offer,
        most: int,
        workers: int,
        boot_within: float = BOOT_TIMEOUT,
    ) -> None:
        self._name = name
        self._identity = identity
        self._boot_within = boot_within
        self._provider = provider
        self._spec = spec
        self._offer = offer
        self._most = most
        self._workers = workers
        self._numbers = itertools.count(1)
        self._cluster: Cluster | None = None
        self._preparing = asyncio.Lock()
        self._launching = asyncio.Lock()
        self._boots: set[asyncio.Task[Instance]] = set()
        self._machines: set[str] = set()
        self._instances: dict[str, Instance] = {}
        self._starting = 0
        self._working: set[str] = set()
        self._answers: OrderedDict[str, Answer] = OrderedDict()
        self._ended: OrderedDict[str, None] = OrderedDict()

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the running groups."""
        return tuple(self._instances)

    @property
    def has_anything(self) -> bool:
        """True if there is a cluster to tear down."""
        return self._cluster is not None

    async def obey(self, command: GroupCommand, answer: Callable[[Answer], None]) -> None:
        """Execute a command, and answer it. A repeated command is ignored meanwhile, and gets the same answer later."""
        request = command.request
        if request in self._answers:
            answer(self._answers[request])
        elif request not in self._working:
            self._working.add(request)
            try:
                answer(self._remember(await self._do(command)))
            finally:
                self._working.discard(request)

    def _remember(self, answer: Answer) -> Answer:
        if answer.status != "unknown_action":  # such a command may be repeated
            self._answers[answer.request] = answer
            if len(self._answers) > _REMEMBERED:
                self._answers.popitem(last=False)
        return answer

    async def _do(self, command: GroupCommand) -> Answer:
        match command:
            case StartWorkerGroup(request, _, capabilities):
                return await self._start(request, capabilities)
            case ShutdownWorkerGroup(request, group):
                status, reason = await self._shutdown(group)
                return Answer(request, group, "shutdown", status, reason=reason)
            case UnknownCommand(request):
                return Answer(request, "", "unknown", "unknown_action", reason="there is no such command")

    async def _start(self, request: str, capabilities: frozenset[str]) -> Answer:
        def too_much(reason: str) -> Answer:
            return Answer(request, "", "start", "too_much", reason=_short(reason))

        if 0 <= self._most <= len(self._instances) + self._starting:
            return too_much(f"its limit is {self._most} groups")
        if missing := capabilities - self._spec.node_capabilities:
            return too_much(f"its nodes lack the capabilities {', '.join(sorted(missing))}")
        self._starting += 1
        try:
            machine = await self._booted(await self._launched(request))
        except Exception as error:
            return too_much(str(error) or type(error).__name__)
        finally:
            self._starting -= 1
        group = f"{self._name}/{next(self._numbers)}"
        self._instances[group] = machine
        slots = tuple(f"{group}/{slot}" for slot in range(self._workers))
        started = Answer(request, group, "start", "success", slots, self._spec.node_capabilities, (machine,))
        try:
            encode(started)
        except Malformed as error:
            await self._shutdown(group)
            return too_much(str(error))
        return started

    async def _prepared(self) -> Cluster:
        async with self._preparing:
            if self._cluster is None:
                self._cluster = await self._provider.prepare(self._spec, self._offer, self._identity)
            return self._cluster

    async def _launched(self, request: str) -> Instance:
        """Launch a machine; one whose launch has an unknown outcome is terminated."""
        async with self._launching:
            tags = {**self._identity.tags, "skyward-request": f"{self._identity.id}-{request}"}
            cluster = replace(await self._prepared(), tags=tags)
            try:
                self._cluster, machines = await self._provider.provision(cluster, 1)
            except SkywardError:
                raise
            except Exception:
                found = await self._provider.find(cluster)
                await self._provider.terminate(cluster, [each.id for each in found if each.id not in self._machines])
                raise
            if not machines:
                raise SkywardError("its provider returned no machine")
            self._machines.add(machines[0].id)
            return machines[0]

    async def _booted(self, machine: Instance) -> Instance:
        """Wait until a machine runs; otherwise terminate it."""
        boot = asyncio.create_task(until_running(machine, self._state_of, self._boot_within))
        self._boots.add(boot)
        try:
            return await boot
        except BaseException as error:
            await self._terminate([machine.id])
            if boot.cancelled() and isinstance(error, asyncio.CancelledError):
                raise SkywardError("it is ending") from None
            raise
        finally:
            self._boots.discard(boot)

    async def _state_of(self, machine: str) -> Instance | None:
        assert self._cluster is not None
        self._cluster, found = await self._provider.get_instance(self._cluster, machine)
        return found

    async def _terminate(self, machines: Sequence[str]) -> None:
        assert self._cluster is not None
        await self._provider.terminate(self._cluster, machines)
        self._machines -= set(machines)

    async def drop_ended(self) -> None:
        """Drop the groups whose machine has ended by itself, so that the controller learns of it."""
        for group, instance in tuple(self._instances.items()):
            if isinstance(instance.access, LocalAccess):  # its worker's connection tells
                continue
            try:
                found = await self._state_of(instance.id)
            except Exception as error:  # it may answer the next time
                _logger.info("the machine of %s is not known: %s", group, error)
                continue
            if (found is None or found.status == "exited") and self._instances.pop(group, None) is not None:
                self._machines.discard(instance.id)
                self._forget(group)

    def _forget(self, group: str) -> None:
        """Remember a group as one that has ended."""
        self._ended[group] = None
        if len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)

    def abort_boots(self) -> None:
        """Wait for no machine any more; those that do not run yet are terminated."""
        for boot in self._boots:
            boot.cancel()

    async def _shutdown(self, group: str) -> tuple[Status, str]:
        if not group:
            return "id_not_specified", "the command names no group"
        if group in self._ended:
            return "group_shutdown", ""
        instance = self._instances.get(group)
        if instance is None or self._cluster is None:
            return "id_not_found", f"there is no group {group}"
        try:
            if isinstance(instance.access, LocalAccess):
                await asyncio.to_thread(_end_processes, instance.access.directory)
            await self._terminate([instance.id])
        except Exception as error:
            return "unknown_action", _short(f"its machine could not be terminated: {error or type(error).__name__}")
        self._instances.pop(group, None)
        self._forget(group)
        return "success", ""

    async def end(self) -> None:
        """End every group, and tear down their cluster. Idempotent, also after a cancelled call.

        Raises:
            ExceptionGroup: some groups could not be ended, after three attempts.
        """
        for _ in range(3):
            done = await asyncio.gather(*(self._shutdown(group) for group in self.ids))
            if not self._instances:
                break
        left = [RuntimeError(reason) for status, reason in done if status == "unknown_action"]
        if self._cluster is not None:
            if not left:  # launched, but never a group
                found = await self._provider.find(self._cluster)
                if machines := {*self._machines, *(each.id for each in found)}:
                    await self._terminate([*machines])
            await self._provider.teardown(self._cluster)
            self._cluster = None  # only now: a cancelled teardown must be repeated
            self._identity.key_file.unlink(missing_ok=True)
        if left:
            raise ExceptionGroup(f"groups of {self._name} are left", left)


def _short(reason: str) -> str:
    return "".join(each for each in reason[:_REASON] if each.isprintable() or each == "\n")


def _end_processes(directory: str) -> None:
    """Kill the processes of a local machine, found by an environment variable. No effect except on Linux."""
    mark = f"SKYWARD_SCRATCH={directory}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's process, or gone
            if mark in (entry / "environ").read_bytes().split(b"\0") and int(entry.name) != os.getpid():
                os.kill(int(entry.name), signal.SIGKILL)
