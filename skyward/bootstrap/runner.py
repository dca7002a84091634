"""Bootstraps a node: sends the script of a plan, then what the node lacks, and says how the phases go."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from skyward.bootstrap.events import Event, Missing, Phase, PhaseEvent, Ready, Waiting, read_event
from skyward.bootstrap.plan import Plan
from skyward.bootstrap.script import GRACE, command, limits, log_command, script
from skyward.bootstrap.send import contents, packs, receive_command
from skyward.errors import NodeStartError

__all__ = ["BootstrapError", "Done", "Executor", "bootstrap", "worker_environment"]

_LACKING = 75
"""Status of a script that has to be sent something first."""

_ATTEMPTS = 4
"""Runs of the script, where the connection breaks under it."""

_LINES = 20

_LOG_WITHIN = 10.0
"""Seconds that a node has to say all that a phase has printed that failed there."""


class BootstrapError(NodeStartError):
    """The environment of a node could not be made. The message names the phase and ends with its last lines.

    Attributes:
        phase: the one that failed; None where the node was not asked for any yet.
        lines: the last that it printed.
        late: whether its time was over.
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
    """What became of a command."""

    @property
    def status(self) -> int | None:
        """Its exit status; None where the host died before it had one."""

    @property
    def err(self) -> str:
        """What it wrote to standard error."""


class Executor(Protocol):
    """Runs commands on the node."""

    async def run(self, command: str, given: bytes = b"", on_line: Callable[[str], None] | None = None) -> Done:
        """Run a command with `given` as its standard input. `on_line` takes each line that it prints, at once.

        Raises:
            ConnectionError: the connection broke before the command ended. With an attribute `final` that is true it
                is lost for good; otherwise the next command may find it made again.
        """


async def bootstrap(executor: Executor, plan: Plan, report: Callable[[PhaseEvent], None] | None = None) -> Ready:
    """What the node has, once the environment of `plan` is there. `report` is told of each phase as it happens.

    May be run again after any failure, and goes on where the last one was cut. Where the environment is there already,
    it takes one command.

    Raises:
        BootstrapError: a phase failed or took too long, or the node was lost.
    """
    return await _Bootstrap(executor, plan, report or (lambda _: None)).run()


def worker_environment(plan: Plan, ready: Ready) -> dict[str, str]:
    """The variables that a worker is to be started with, by `ready.facts.executable -m skyward.worker`.

    They are those of the image, the way to what it includes, and what the worker holds while it lives: see `prune`.
    """
    variables = dict(ready.facts.variables)
    used = [plan.image_hash]
    if plan.includes.files:
        paths = (f"{ready.directory}/trees/{plan.includes.digest}", variables.get("PYTHONPATH"))
        variables["PYTHONPATH"] = ":".join(filter(None, paths))
        used.append(plan.includes.digest)
    variables["SKYWARD_USES"] = "\n".join(f"{ready.directory}/used/{name}" for name in used)
    return variables


class _Bootstrap:
    def __init__(self, executor: Executor, plan: Plan, report: Callable[[PhaseEvent], None]) -> None:
        self._executor = executor
        self._plan = plan
        self._report = report
        self._phase: Phase | None = None
        self._waiting = False
        self._clock: asyncio.Timeout | None = None
        self._heard: list[Event] = []
        self._noise: list[str] = []

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
                status, said = await self._run_script(start, text)
                if status == _LACKING:
                    await self._send(sent)
                    attempts -= 1
                    continue
            except ConnectionError as error:
                if getattr(error, "final", False) or attempts == _ATTEMPTS:
                    raise BootstrapError(f"the node was lost {self._where()}: {error}", self._phase) from None
                continue
            match self._heard:
                case [*_, Ready() as ready] if status == 0:
                    return ready
                case [*_, PhaseEvent(event="failed") as failed]:
                    raise _failure(failed, await self._whole_log(failed.phase))
            if status is None:
                raise BootstrapError(f"the node died {self._where()}", self._phase)
            raise BootstrapError(f"the bootstrap ended with status {status} {self._where()}", self._phase, said)

    async def _run_script(self, start: str, text: bytes) -> tuple[int | None, tuple[str, ...]]:
        """Its status, and the last lines of what it printed besides events."""
        self._heard, self._noise = [], []
        try:
            async with asyncio.timeout(None) as self._clock:
                done = await self._executor.run(start, text, self._hear)
        except TimeoutError:
            raise self._late(limits(self._plan)[self._phase] if self._phase else self._plan.timeout) from None
        finally:
            self._clock = None
        noise = [*self._noise, *done.err.splitlines()]
        return done.status, tuple(line for line in noise if line.strip())[-_LINES:]

    def _hear(self, line: str) -> None:
        event = read_event(line)
        match event:
            case None:
                self._noise = [*self._noise[-_LINES:], line.rstrip("\n")]
                return
            case PhaseEvent(event="started", phase=phase, deadline=deadline):
                self._phase, self._waiting = phase, False
                self._give(deadline + GRACE)  # where the node has no timeout(1), or is not itself any more
            case PhaseEvent(phase=phase):
                self._phase = phase
                self._give(None)
            case Waiting():
                self._waiting = True
        self._heard.append(event)
        if isinstance(event, PhaseEvent):
            self._report(event)

    def _give(self, seconds: float | None) -> None:
        """Let the script take so many more seconds to say something."""
        if self._clock is not None:
            self._clock.reschedule(None if seconds is None else asyncio.get_running_loop().time() + seconds)

    async def _send(self, sent: set[str]) -> None:
        """Send what the node said it lacks."""
        lacking = [event.digest for event in self._heard if isinstance(event, Missing)]
        known = contents(self._plan)
        again = [digest for digest in lacking if digest in sent or digest not in known]
        if again or not lacking:
            raise BootstrapError(f"the node still lacks {len(again)} of the files that it was sent")
        for pack in packs((digest, known[digest]) for digest in lacking):
            done = await self._executor.run(receive_command(self._plan), pack)
            if done.status is None:
                raise BootstrapError("the node died while it was sent files")
            if done.status:
                said = tuple(done.err.splitlines())[-_LINES:]
                raise BootstrapError(f"the node could not take files (status {done.status})", None, said)
        sent.update(lacking)

    async def _whole_log(self, phase: Phase) -> str:
        """All that a phase has printed, as far as it is kept; empty where it cannot be had any more."""
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
        message = f"the bootstrap was given up after {seconds:.0f} s {self._where()}"
        return BootstrapError(message, self._phase, late=True)


def _failure(event: PhaseEvent, log: str) -> BootstrapError:
    how = f"ran past its {event.deadline:.0f} s" if event.late else f"failed (status {event.status})"
    took = f" after {event.elapsed:.0f} s" if event.elapsed >= 1 and not event.late else ""
    return BootstrapError(
        f"bootstrap phase {event.phase!r} {how}{took}", event.phase, event.lines, log, late=event.late
    )
