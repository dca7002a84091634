"""Bootstrap of a node: sends the script of a plan and the files that the node lacks, and reports the phases."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from skyward.bootstrap.events import BootstrapEvent, Missing, Phase, PhaseEvent, Ready, Waiting, read_event
from skyward.bootstrap.plan import Plan
from skyward.bootstrap.script import GRACE, command, limits, log_command, script
from skyward.bootstrap.send import contents, packs, receive_command
from skyward.errors import NodeStartError

__all__ = ["BootstrapError", "Done", "ScriptExecutor", "bootstrap", "worker_environment"]

_LACKING = 75
"""Status of a script that needs files from the client first."""

_ATTEMPTS = 4
"""Runs of the script if the connection breaks during one."""

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


def worker_environment(plan: Plan, ready: Ready) -> dict[str, str]:
    """Return the variables for a worker, started as `ready.facts.executable -m skyward.worker.supervisor`.

    They are those of the image, the path of its included files, and the marks that the worker locks: see `prune`.
    """
    variables = dict(ready.facts.variables)
    used = [plan.image_hash]
    if plan.includes.files:
        paths = (f"{ready.directory}/trees/{plan.includes.digest}", variables.get("PYTHONPATH"))
        variables["PYTHONPATH"] = ":".join(filter(None, paths))
        used.append(plan.includes.digest)
    variables["SKYWARD_LOCKS"] = "\n".join(f"{ready.directory}/used/{name}" for name in used)
    return variables


class _Bootstrap:
    def __init__(self, executor: ScriptExecutor, plan: Plan, report: Callable[[PhaseEvent], None]) -> None:
        self._executor = executor
        self._plan = plan
        self._report = report
        self._phase: Phase | None = None
        self._waiting = False
        self._clock: asyncio.Timeout | None = None
        self._events: list[BootstrapEvent] = []
        self._other_output: list[str] = []

    async def run(self) -> Ready:
        text = script(self._plan)
        try:
            async with asyncio.timeout(self._plan.timeout + GRACE):
                return await self._until_ready(command(self._plan, text), text.encode())
        except TimeoutError:
            raise self._late(self._plan.timeout) from None

    async def _until_ready(self, start: str, text: bytes) -> Ready:
        sent: set[str] = set()
        attempts = 0
        while True:
            attempts += 1
            try:
                status, lines = await self._run_script(start, text)
                if status == _LACKING:
                    await self._send(sent)
                    attempts -= 1
                    continue
            except ConnectionError as error:
                if getattr(error, "final", False) or attempts == _ATTEMPTS:
                    raise BootstrapError(f"the node was lost {self._where()}: {error}", self._phase) from None
                continue
            match self._events:
                case [*_, Ready() as ready] if status == 0:
                    return ready
                case [*_, PhaseEvent(event="failed") as failed]:
                    raise _failure(failed, await self._whole_log(failed.phase))
            if status is None:
                raise BootstrapError(f"the node died {self._where()}", self._phase)
            raise BootstrapError(f"the bootstrap ended with status {status} {self._where()}", self._phase, lines)

    async def _run_script(self, start: str, text: bytes) -> tuple[int | None, tuple[str, ...]]:
        """Run the script; return its status, and the last lines of its output besides events."""
        self._events, self._other_output = [], []
        try:
            async with asyncio.timeout(None) as self._clock:
                done = await self._executor.run(start, text, self._handle_line)
        except TimeoutError:
            raise self._late(limits(self._plan)[self._phase] if self._phase else self._plan.timeout) from None
        finally:
            self._clock = None
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
        self._events.append(event)
        if isinstance(event, PhaseEvent):
            self._report(event)

    def _extend_time(self, seconds: float | None) -> None:
        """Set the time, in seconds from now, in which the script must report again; None for no limit."""
        if self._clock is not None:
            self._clock.reschedule(None if seconds is None else asyncio.get_running_loop().time() + seconds)

    async def _send(self, sent: set[str]) -> None:
        """Send the contents that the node reported as missing."""
        lacking = [event.digest for event in self._events if isinstance(event, Missing)]
        known = contents(self._plan)
        again = [digest for digest in lacking if digest in sent or digest not in known]
        if again or not lacking:
            raise BootstrapError(f"the node still lacks {len(again)} of the files that were sent to it")
        for pack in packs((digest, known[digest]) for digest in lacking):
            done = await self._executor.run(receive_command(self._plan), pack)
            if done.status is None:
                raise BootstrapError("the node died while files were sent to it")
            if done.status:
                lines = tuple(done.err.splitlines())[-_LINES:]
                raise BootstrapError(f"the node could not receive files (status {done.status})", None, lines)
        sent.update(lacking)

    async def _whole_log(self, phase: Phase) -> str:
        """Return the log of a phase, as far as it is kept; "" if it cannot be read any more."""
        lines: list[str] = []
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(_LOG_WITHIN):
                await self._executor.run(log_command(self._plan, phase), b"", lines.append)
        return "\n".join(lines)

    def _where(self) -> str:
        if self._waiting:
            return "while it waited for another bootstrap of the same environment"
        return f"in phase {self._phase!r}" if self._phase else "before its first phase"

    def _late(self, seconds: float) -> BootstrapError:
        message = f"the bootstrap timed out after {seconds:.0f} s {self._where()}"
        return BootstrapError(message, self._phase, late=True)


def _failure(event: PhaseEvent, log: str) -> BootstrapError:
    outcome = f"exceeded its limit of {event.deadline:.0f} s" if event.late else f"failed (status {event.status})"
    duration = f" after {event.elapsed:.0f} s" if event.elapsed >= 1 and not event.late else ""
    return BootstrapError(
        f"bootstrap phase {event.phase!r} {outcome}{duration}", event.phase, event.lines, log, late=event.late
    )
