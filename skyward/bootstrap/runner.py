"""Bootstrap of a node: sends the script of a plan and the files that the node lacks, and reports the phases."""

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from skyward.bootstrap.events import (
    BootstrapEvent,
    ClientPhase,
    MachineNeeds,
    Missing,
    Phase,
    PhaseEvent,
    Ready,
    Unmade,
    Waiting,
    read_event,
)
from skyward.bootstrap.peers import SMALL, EnvironmentOffer, MachineKind
from skyward.bootstrap.plan import Helper, Plan, Supplies
from skyward.bootstrap.script import GRACE, command, limits, log_command, script
from skyward.bootstrap.send import contents, send_commands, sizes
from skyward.bootstrap.source import PackageSource
from skyward.caches.users import CACHES
from skyward.errors import NodeStartError
from skyward.formatting import size_text

__all__ = ["BootstrapError", "Done", "ScriptExecutor", "bake", "bootstrap", "worker_environment"]

_LACKING = 75
"""Status of a script that needs files from the client first."""

_NEEDING = 76
"""Status of a script on a machine that cannot fetch all it needs."""

_UNMADE = 77
"""Status of a script on a machine to which another node may send the environment."""

_ENDS_WITHIN = 1.0
"""Seconds that a script has to report its own failure when files could not be sent to it."""

_ATTEMPTS = 4
"""Runs of the script if the connection breaks during one."""

_LACKS_VERSION = re.compile(
    r"skyward-jupyter(\S*)? was not found|no version of skyward-jupyter|only skyward-jupyter.* available"
)
"""Messages of uv about a version of Skyward that no index has, without its line breaks."""

_LINES = 20

_LOG_WITHIN = 10.0
"""Seconds that a node has to return the log of a failed phase."""


class BootstrapError(NodeStartError):
    """Raised when the environment of a node cannot be made. The message names the phase and ends with its last lines.

    Attributes:
        phase: the failed phase; None if none had started.
        lines: its last lines of output.
        late: True if it ran past its deadline.
    """

    def __init__(
        self,
        message: str,
        phase: Phase | None = None,
        lines: tuple[str, ...] = (),
        log: str = "",
        *,
        late: bool = False,
    ) -> None:
        super().__init__("\n".join((f"{message}:" if lines else message, *lines)), log)
        self.phase = phase
        self.lines = lines
        self.late = late


class Done(Protocol):
    """Result of a command."""

    @property
    def status(self) -> int | None:
        """Exit status; None if the host died before the command ended."""

    @property
    def err(self) -> str:
        """Output on standard error."""


class ScriptExecutor(Protocol):
    """Interface that runs commands on the node."""

    async def run(self, command: str, stdin: bytes = b"", on_line: Callable[[str], None] | None = None) -> Done:
        """Run a command with `stdin` as its standard input. `on_line` gets each line of its output, at once.

        Raises:
            ConnectionError: the connection was lost before the command ended. If it has a true attribute `final`, it is
            lost
                permanently; otherwise the next command may find it reconnected.
        """


async def bootstrap(executor: ScriptExecutor, plan: Plan, report: Callable[[PhaseEvent], None] | None = None) -> Ready:
    """Make the environment of `plan`, and return its properties. `report` is called with each phase event.

    Idempotent: after a failure it continues where the last run was interrupted. If the environment exists already, it
    takes one command.

    Raises:
        BootstrapError: a phase failed or duration too long, or the node was lost.
    """
    return await _Bootstrap(executor, plan, report or (lambda _: None)).run()


async def bake(executor: ScriptExecutor, plan: Plan, report: Callable[[PhaseEvent], None] | None = None) -> Ready:
    """Make the environment of `plan` part of an image of a machine, on a machine that the image is then made of.

    As root, it is made in `/opt/skyward`, where every user of a machine of the image has it at once, without a network.
    What only made it is removed: caches, logs, and files that were sent. The values of variables in `Image.env` and
    `Image.shell_vars` are removed, too; such an environment is completed on each machine of the image, for root only.

    Raises:
        BootstrapError: see `bootstrap`.
    """
    ready = await bootstrap(executor, plan, report)
    text = script(plan)
    done = await executor.run(command(plan, text, "bake"), text.encode())
    if done.status:
        raise BootstrapError("the environment could not be prepared for an image", None, tuple(done.err.splitlines()))
    return ready


def worker_environment(plan: Plan, ready: Ready) -> dict[str, str]:
    """Return the variables for a worker, started as `ready.facts.executable -m skyward.worker.supervisor`.

    They are those of the image, the path of its included files, the marks that the worker locks: see `prune`, and the
    folder for the caches of frameworks, which on the client's machine are those of the user.
    """
    variables = dict(ready.facts.variables)
    used = [plan.image_hash]
    if plan.includes.files:
        paths = (f"{ready.directory}/trees/{plan.includes.digest}", variables.get("PYTHONPATH"))
        variables["PYTHONPATH"] = ":".join(filter(None, paths))
        used.append(plan.includes.digest)
    if plan.on_client is None:
        variables["SKYWARD_CACHES"] = f"{ready.directory}/{CACHES}"
    variables["SKYWARD_LOCKS"] = "\n".join(f"{ready.directory}/used/{name}" for name in used)
    return variables


class _Bootstrap:
    def __init__(self, executor: ScriptExecutor, plan: Plan, report: Callable[[PhaseEvent], None]) -> None:
        self._executor = executor
        self._plan = plan
        self._report = report
        self._phase: Phase | None = None
        self._step: ClientPhase | None = None
        self._waiting = False
        self._clock: asyncio.Timeout | None = None
        self._events: list[BootstrapEvent] = []
        self._other_output: list[str] = []
        self._offer: EnvironmentOffer | None = None
        self._was_offered = False
        self._asks = True

    async def run(self) -> Ready:
        try:
            async with asyncio.timeout(self._plan.timeout + GRACE):
                helper = self._plan.helper
                return await self._until_ready(helper, await helper.index() if helper is not None else None)
        except TimeoutError:
            raise self._late(self._plan.timeout) from None

    async def _until_ready(self, helper: Helper | None, index: str | None) -> Ready:
        sent: set[str] = set()
        attempts = 0
        supplies: Supplies | None = None
        while True:
            asks = self._asks and self._plan.peers is not None and self._plan.peers.is_ready()
            text = script(self._plan, supplies, index, asks=asks, offer=self._offer)
            attempts += 1
            try:
                status, lines = await self._run_script(command(self._plan, text), text.encode(), sent)
                self._offer = None  # it is valid once
                if status in (_UNMADE, _NEEDING) and supplies is None and await self._ask_peers():
                    attempts -= 1
                    continue
                if status == _LACKING:
                    await self._send(sent, supplies)
                    attempts -= 1
                    continue
                if status == _NEEDING and helper is not None and (supplies is None or not supplies.has_packages):
                    supplies = await self._collect(helper)
                    attempts -= 1
                    continue
            except ConnectionError as error:
                self._offer = None
                if getattr(error, "final", False) or attempts == _ATTEMPTS:
                    raise BootstrapError(f"the node was lost {self._where()}: {error}", self._phase) from None
                continue
            match self._events:
                case [*_, Ready() as ready] if status == 0:
                    return ready
                case [*_, PhaseEvent(event="failed") as failed]:
                    raise _failure(failed, await self._whole_log(failed.phase), self._plan.source)
            if status is None:
                raise BootstrapError(f"the node died {self._where()}", self._phase)
            raise BootstrapError(f"the bootstrap ended with status {status} {self._where()}", self._phase, lines)

    async def _run_script(self, start: str, text: bytes, sent: set[str]) -> tuple[int | None, tuple[str, ...]]:
        """Run the script, and send what it lacks; return its status, and its last lines of output besides events."""
        self._events, self._other_output = [], []
        sending: asyncio.Task[None] | None = None

        def on_line(line: str) -> None:
            nonlocal sending
            self._handle_line(line)
            match self._events:
                case [*_, Missing(), PhaseEvent() | Waiting()] if sending is None:
                    sending = asyncio.ensure_future(self._send(sent, None))
                    sending.add_done_callback(on_sent)

        def on_sent(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and task.exception() is not None:
                asyncio.get_running_loop().call_later(_ENDS_WITHIN, running.cancel)

        running = asyncio.ensure_future(self._executor.run(start, text, on_line))
        try:
            async with asyncio.timeout(None) as self._clock:
                done = await running
                if sending is not None and done.status in (0, _NEEDING):
                    await sending
        except TimeoutError:
            raise self._late(
                limits(self._plan).get(self._phase, self._plan.timeout) if self._phase else self._plan.timeout
            ) from None
        except asyncio.CancelledError:
            if sending is not None and sending.done() and (error := sending.exception()) is not None:
                raise error from None
            raise
        finally:
            self._clock = None
            left = [task for task in (running, sending) if task is not None]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        other_output = [*self._other_output, *done.err.splitlines()]
        return done.status, tuple(line for line in other_output if line.strip())[-_LINES:]

    def _handle_line(self, line: str) -> None:
        event = read_event(line)
        match event:
            case None:
                self._other_output = [*self._other_output[-_LINES:], line.rstrip("\n")]
                return
            case PhaseEvent(event="started", phase=phase, deadline=deadline):
                self._phase, self._waiting = phase, False
                self._extend_time(deadline + GRACE)  # for a node without timeout(1), or one that hangs
            case PhaseEvent(phase=phase):
                self._phase = phase
                self._extend_time(None)
            case Waiting():
                self._waiting = True
        if self._offer is not None:
            event = _explained(event, self._offer)
        self._events.append(event)
        if isinstance(event, PhaseEvent):
            self._report(event)

    def _extend_time(self, seconds: float | None) -> None:
        """Set the time, in seconds from now, in which the script must report again; None for no limit."""
        if self._clock is not None:
            self._clock.reschedule(None if seconds is None else asyncio.get_running_loop().time() + seconds)

    async def _ask_peers(self) -> bool:
        """Ask for a node that sends the environment; return whether the script has to run again."""
        match self._events:
            case [*_, Unmade(kind, has_tools)]:
                self._asks = False
                self._offer = await self._find_offer(kind, SMALL if has_tools else 0, patient=False)
                return True
            case [*_, MachineNeeds(kind=kind)]:
                self._offer = await self._find_offer(kind, 0, patient=True)
        return self._offer is not None

    async def _find_offer(self, kind: MachineKind, least: int, *, patient: bool) -> EnvironmentOffer | None:
        """Return an offer, if there has not been one yet."""
        if self._plan.peers is None or self._was_offered:
            return None
        offer = await self._plan.peers.offer(kind, least, patient=patient)
        self._was_offered = offer is not None
        return offer

    async def _collect(self, helper: Helper) -> Supplies:
        """Collect what the machine cannot fetch."""
        match self._events:
            case [*_, MachineNeeds() as machine]:
                pass
            case _:
                raise BootstrapError("the machine cannot fetch packages")
        cannot = f"it cannot fetch {machine.lacking} ({machine.reason})"
        if machine.apt:
            raise BootstrapError(
                f"{cannot}, and this computer only sends packages of Python: install {machine.apt} on it"
            )
        with self._on_client("collect", f"set up from this computer: {cannot}"):
            try:
                return await helper.collect(self._plan, machine)
            except BootstrapError:
                raise
            except NodeStartError as error:
                advice = _advice(self._plan.source, f"{error}\n{error.log}")
                raise BootstrapError(f"{error}{advice}", None, (), error.log) from None

    @contextlib.contextmanager
    def _on_client(self, phase: ClientPhase, remark: str) -> Iterator[None]:
        """Report a phase on the client."""
        start = time.monotonic()
        self._step = phase
        self._report(PhaseEvent("started", phase, lines=(remark,)))
        yield
        self._report(PhaseEvent("completed", phase, time.monotonic() - start))
        self._step = None

    async def _send(self, sent: set[str], supplies: Supplies | None) -> None:
        """Send the contents that the node reported as missing."""
        lacking = [event.digest for event in self._events if isinstance(event, Missing)]
        known = contents(self._plan, supplies)
        again = [digest for digest in lacking if digest in sent or digest not in known]
        if again or not lacking:
            raise BootstrapError(f"the node still lacks {len(again)} of the files that were sent to it")
        parts = [(digest, known[digest]) for digest in lacking]
        if supplies is None:
            await self._transfer(parts, sent)
        else:
            with self._on_client("send", size_text(sizes(content for _, content in parts))):
                await self._transfer(parts, sent, compressed=True)

    async def _transfer(
        self, parts: list[tuple[str, bytes | Path]], sent: set[str], *, compressed: bool = False
    ) -> None:
        waiting = send_commands(self._plan, parts, compressed=compressed)
        while (each := await asyncio.to_thread(next, waiting, None)) is not None:
            done = await self._executor.run(each.command, each.data)
            if done.status is None:
                raise BootstrapError("the node died while files were sent to it")
            if done.status:
                lines = tuple(done.err.splitlines())[-_LINES:]
                raise BootstrapError(f"the node could not receive files (status {done.status})", None, lines)
            sent.update(each.completes)

    async def _whole_log(self, phase: Phase) -> str:
        """Return the log of a phase, as far as it is kept; "" if it cannot be read any more."""
        lines: list[str] = []
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(_LOG_WITHIN):
                await self._executor.run(log_command(self._plan, phase), b"", lines.append)
        return "\n".join(lines)

    def _where(self) -> str:
        if self._step is not None:
            return "while packages were " + ("collected on this computer" if self._step == "collect" else "sent to it")
        if self._waiting:
            return "while it waited for another bootstrap of the same environment"
        return f"in phase {self._phase!r}" if self._phase else "before its first phase"

    def _late(self, seconds: float) -> BootstrapError:
        message = f"the bootstrap timed out after {seconds:.0f} s {self._where()}"
        return BootstrapError(message, self._phase, late=True)


def _explained(event: BootstrapEvent, offer: EnvironmentOffer) -> BootstrapEvent:
    """Return an event of the phase `fetch` with a remark about the other node."""
    match event:
        case PhaseEvent(event="started", phase="fetch"):
            remark = f"from {offer.node}, {offer.request.address}: {size_text(offer.size)}"
        case PhaseEvent(event="completed", phase="fetch", lines=[reason, *_]):
            remark = f"not received from {offer.node}: {reason}; it is made here"
        case _:
            return event
    return replace(event, lines=(remark,))


def _failure(event: PhaseEvent, log: str, source: PackageSource) -> BootstrapError:
    outcome = f"exceeded its limit of {event.deadline:.0f} s" if event.late else f"failed (status {event.status})"
    duration = f" after {event.elapsed:.0f} s" if event.elapsed >= 1 and not event.late else ""
    advice = _advice(source, "\n".join((log, *event.lines)))
    return BootstrapError(
        f"bootstrap phase {event.phase!r} {outcome}{duration}{advice}", event.phase, event.lines, log, late=event.late
    )


def _advice(source: PackageSource, output: str) -> str:
    """Return what to do if the index does not have this version of Skyward, as the end of a sentence; else nothing."""
    if source.wheel or not _LACKS_VERSION.search(" ".join(output.split())):
        return ""
    return (
        f"; the package index has no {source.requirement}: "
        'sky.Image(skyward_source="local") sends the copy of this computer instead'
    )
