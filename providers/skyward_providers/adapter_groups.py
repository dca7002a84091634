"""The worker groups that an adapter has, each one machine of a provider. A command that comes twice is done once."""

import asyncio
import itertools
import os
import secrets
import signal
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from skyward.providers.protocol import Cluster, Instance, LocalAccess, Offer, Provider
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

_REMEMBERED = 1000
"""Answers and ended groups that are remembered, for commands that come again."""

_REASON = 1000

type Command = StartWorkerGroup | ShutdownWorkerGroup | UnknownCommand


class Groups:
    """The groups of one adapter.

    Args:
        name: of the adapter; begins the ids of groups.
        provider: where machines come from.
        spec: what they are like.
        offer: of the provider.
        most: groups at a time; -1 for no limit.
        workers: slots of a group.
    """

    def __init__(self, name: str, provider: Provider, spec: Spec, offer: Offer, most: int, workers: int) -> None:
        self._name = name
        self._provider = provider
        self._spec = spec
        self._offer = offer
        self._most = most
        self._workers = workers
        self._numbers = itertools.count(1)
        self._cluster: Cluster | None = None
        self._preparing = asyncio.Lock()
        self._instances: dict[str, Instance] = {}
        self._starting = 0
        self._working: set[str] = set()
        self._answers: OrderedDict[str, Answer] = OrderedDict()
        self._ended: OrderedDict[str, None] = OrderedDict()

    @property
    def ids(self) -> tuple[str, ...]:
        """The groups that there are."""
        return tuple(self._instances)

    @property
    def has_anything(self) -> bool:
        """Whether there is something to end."""
        return self._cluster is not None

    async def obey(self, command: Command, answer: Callable[[Answer], None]) -> None:
        """Do what a command says, and answer it. While it is being done, the same command does nothing."""
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
        if answer.status != "unknown_action":  # that is tried again
            self._answers[answer.request] = answer
            if len(self._answers) > _REMEMBERED:
                self._answers.popitem(last=False)
        return answer

    async def _do(self, command: Command) -> Answer:
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
            return too_much(f"it has {self._most} groups at most")
        if missing := capabilities - self._spec.node_capabilities:
            return too_much(f"its nodes cannot {', '.join(sorted(missing))}")
        self._starting += 1
        try:
            self._cluster, came = await self._provider.provision(await self._prepared(), 1)
        except Exception as error:
            return too_much(str(error) or type(error).__name__)
        finally:
            self._starting -= 1
        if not came:
            return too_much("its provider had no machine")
        group = f"{self._name}/{next(self._numbers)}"
        self._instances[group] = came[0]
        slots = tuple(f"{group}/{slot}" for slot in range(self._workers))
        started = Answer(request, group, "start", "success", slots, self._spec.node_capabilities, (came[0],))
        try:
            encode(started)
        except Malformed as error:
            await self._shutdown(group)
            return too_much(str(error))
        return started

    async def _prepared(self) -> Cluster:
        async with self._preparing:
            if self._cluster is None:
                self._cluster = await self._provider.prepare(
                    self._spec, self._offer, f"{self._name}-{secrets.token_hex(5)}"
                )
            return self._cluster

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
            await self._provider.terminate(self._cluster, [instance.id])
        except Exception as error:
            return "unknown_action", _short(f"it could not be ended: {error or type(error).__name__}")
        self._instances.pop(group, None)
        self._ended[group] = None
        if len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)
        return "success", ""

    async def end(self) -> None:
        """End every group, and remove what they shared. Twice does no harm; nor does a cancelled first time.

        Raises:
            ExceptionGroup: some could not be ended, whatever was tried.
        """
        for _ in range(3):
            done = await asyncio.gather(*(self._shutdown(group) for group in self.ids))
            if not self._instances:
                break
        left = [RuntimeError(reason) for status, reason in done if status == "unknown_action"]
        if self._cluster is not None:
            await self._provider.teardown(self._cluster)
            self._cluster = None  # not before: where this is cancelled, it is tried again
        if left:
            raise ExceptionGroup(f"groups of {self._name} are left", left)


def _short(reason: str) -> str:
    return "".join(each for each in reason[:_REASON] if each.isprintable() or each == "\n")


def _end_processes(directory: str) -> None:
    """End the worker of a local machine, which is all there is to that machine. Linux only: others do not say."""
    mark = f"SKYWARD_SCRATCH={directory}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it is not ours, or gone
            if mark in (entry / "environ").read_bytes().split(b"\0") and int(entry.name) != os.getpid():
                os.kill(int(entry.name), signal.SIGKILL)
