"""Plugins of a node: their parts in one process, around the process and around each of its tasks."""

import importlib
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from json import loads  # tasks may replace the attributes of the module

from skyward.errors import MissingModuleError, PluginError
from skyward.task.instance import InstanceInfo, instance_info
from skyward.task.on_node import Meeting, OnNode, TaskInfo
from skyward.wire.protocol.messages import AtMeeting, PluginPart, Submit
from skyward.worker.events.context import Port
from skyward.worker.tasks.jobs import Job
from skyward.worker.tasks.missing_modules import missing_module, pip_name

__all__ = ["NO_PLUGINS", "Plugins", "is_final"]

_MARGIN = 600.0
"""Seconds that a member of a collective waits longer than its client, which knows who is missing: another one may need
a new process first."""


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    on_node: OnNode


class Plugins:
    """The parts of plugins in one process, the outermost first.

    Args:
        parts: the plugins.
        fixed: names of variables that the user has set, which plugins leave alone.

    Raises:
        PluginError: one cannot be imported, or made from its settings.
    """

    def __init__(self, parts: Sequence[PluginPart] = (), fixed: Sequence[str] = ()) -> None:
        self._parts = tuple(_Part(part.name, _load(part)) for part in parts)
        self._fixed = frozenset(fixed)
        self._entered = ExitStack()

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def once(self) -> bool:
        """True if a process that was in a collective can be in no other one."""
        return any(part.on_node.once for part in self._parts)

    def environment(self, info: InstanceInfo, worker: int) -> dict[str, str]:
        """Return the variables for the process of a slot.

        Raises:
            PluginError: a plugin cannot tell.
        """
        found: dict[str, str] = {}
        for part in self._parts:
            try:
                wanted: Mapping[str, str] = part.on_node.environment(info, worker)
                found |= {name: value for name, value in wanted.items() if name not in self._fixed}
            except Exception as error:
                raise _failure(part.name, "could not choose its variables", info.node, error) from error
        return found

    def enter(self, info: InstanceInfo) -> None:
        """Enter the contexts around this process. If one fails, those before it are left.

        Raises:
            PluginError: a plugin could not be started.
        """
        with ExitStack() as entering:
            for part in self._parts:
                try:
                    entering.enter_context(part.on_node.around_process(info))
                except Exception as error:
                    raise _failure(part.name, "could not start", info.node, error) from error
            self._entered = entering.pop_all()

    def leave(self) -> None:
        """Leave the contexts around this process, in reverse order."""
        self._entered.close()

    def follows_loss(self, error: BaseException) -> bool:
        """Return whether a member of a collective raised `error` because another one was lost or had failed."""
        found = error.__cause__ if isinstance(error, PluginError) and error.__cause__ is not None else error
        return any(part.on_node.follows_loss(found) for part in self._parts)

    def around[T](self, job: Job, port: Port, node: int, call: Callable[[], T]) -> T:
        """Return the result of `call`, which is run inside the contexts of all plugins.

        A member of a collective waits for the others before.

        Raises:
            PluginError: a plugin could not prepare the task, or finish it. In the second case, an error of `call`
                comes first, with a note.
        """
        if not self._parts:
            return call()
        return self._inside(0, self._info(job, port, node), node, call)

    def _inside[T](self, place: int, info: TaskInfo, node: int, call: Callable[[], T]) -> T:
        if place == len(self._parts):
            return call()
        part = self._parts[place]
        try:
            context = part.on_node.around_task(info)
            context.__enter__()
        except Exception as error:
            raise _failure(part.name, "could not prepare the task", node, error) from error
        try:
            result = self._inside(place + 1, info, node, call)
        except BaseException as error:
            try:
                context.__exit__(type(error), error, error.__traceback__)
            except BaseException as leaving:
                if leaving is not error:
                    kind = f"{type(leaving).__name__}: {leaving}"
                    error.add_note(f"Plugin {part.name!r} could not finish the task either: {kind}")
            raise
        try:
            context.__exit__(None, None, None)
        except Exception as error:
            raise _failure(part.name, "could not finish the task", node, error) from error
        return result

    def _info(self, job: Job, port: Port, node: int) -> TaskInfo:
        """Return the task as plugins see it, once all members of its collective are there."""
        submit = job.submit
        if submit.collective is None or submit.share is None:
            return TaskInfo(task=submit.task, attempt=submit.attempt)
        (position, count), (local, local_count) = submit.share, submit.collective.local
        listener = _listener(instance_info()) if position == 0 else None
        try:
            meeting = _meet(job, port, submit, listener, node)
        except BaseException:
            if listener is not None:
                listener.close()
            raise
        return TaskInfo(
            task=submit.task,
            attempt=submit.attempt,
            position=position,
            count=count,
            local_position=local,
            local_count=local_count,
            meeting=meeting,
            generation=submit.collective.generation,
            within=submit.collective.within,
        )


NO_PLUGINS = Plugins()


def is_final(error: PluginError) -> bool:
    """Return whether a plugin cannot be started in any other process of the node either: it lacks a package."""
    return isinstance(error.__cause__, ModuleNotFoundError)


def _load(part: PluginPart) -> OnNode:
    module, _, name = part.path.partition(":")
    node = os.environ.get("SKYWARD_NODE", "?")
    try:
        made: OnNode = getattr(importlib.import_module(module), name)(**loads(part.settings))
    except Exception as error:
        raise _failure(part.name, f"could not be loaded from {part.path}", int(node), error) from error
    return made


def _failure(name: str, what: str, node: int, error: Exception) -> PluginError:
    """Return the error of a plugin, in one sentence."""
    if isinstance(error, ModuleNotFoundError) and not isinstance(error, MissingModuleError):
        missing = missing_module(error, node)
        package = pip_name(missing.name or "")
        has_image = missing.packages is not None
        fix = f"add it with Image(pip=[{package!r}])" if has_image else f"install {package} in {sys.prefix} there"
        return PluginError(f"plugin {name!r} {what}: {missing}; {fix}.", plugin=name)
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return PluginError(f"plugin {name!r} {what} on node {node}: {text}", plugin=name)


def _meet(job: Job, port: Port, submit: Submit, listener: socket.socket | None, node: int) -> Meeting:
    """Report that this member is ready; return the place of the meeting once all are."""
    assert submit.collective is not None
    here = "" if listener is None else "{}:{}".format(*listener.getsockname()[:2])
    port.emit(AtMeeting(submit.task, here))
    within = submit.collective.within
    try:
        address, _, number = job.wait_for_meeting(within + _MARGIN).rpartition(":")
    except TimeoutError:
        raise PluginError(f"the members of the collective did not meet within {within:g} s (node {node})") from None
    return Meeting(address, int(number), listener)


def _listener(info: InstanceInfo) -> socket.socket:
    """Return a socket that is bound to a free port of this node's private address, and does not listen."""
    addresses = {peer.node: peer.private_ip for peer in info.peers if peer.private_ip}
    own = addresses.pop(info.node, "127.0.0.1")
    try:
        return _bound(own)
    except OSError:  # the address that others use is not one of this machine's interfaces
        return _bound(_address_towards(next(iter(addresses.values()), own)))


def _bound(address: str) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # so that a framework can take the port over
        bound.bind((address, 0))
    except BaseException:
        bound.close()
        raise
    return bound


def _address_towards(peer: str) -> str:
    """Return the address of this machine from which it reaches another one. Nothing is sent."""
    with socket.socket(socket.AF_INET6 if ":" in peer else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, 9))
        return str(probe.getsockname()[0])
