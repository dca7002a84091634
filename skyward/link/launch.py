"""Starting the worker process of a node on its machine, and ending it."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from skyward.bootstrap import Facts, PhaseEvent, Plan, read_facts
from skyward.errors import NodeStartError
from skyward.journal import WorkerEntry
from skyward.link.connection.hello import Hello, WorkerProcess
from skyward.link.connection.programs import run_here
from skyward.link.connection.transport import run_to_completion
from skyward.link.ssh.worker import SSHWorker
from skyward.providers.protocol import Access, ExecAccess, LocalAccess, SSHAccess
from skyward.wire.transport.secrets import PASS_VARIABLE

__all__ = ["LocalWorker", "enter_worker", "start_worker"]

_LOG_LINES = 20

_STOP_WITHIN = 8.0
"""Seconds that the supervisor of a worker has to end all of it; its own limit is 5."""


async def start_worker(
    access: Access,
    environment: Mapping[str, str],
    within: float,
    plan: Plan | None = None,
    report: Callable[[PhaseEvent], None] | None = None,
) -> WorkerProcess:
    """The worker, listening, in the environment of `plan`; `report` is told how the making of that goes.

    Where a machine is this one, or its access names an interpreter, it has its environment already.

    Raises:
        NodeStartError: the environment could not be made, or the worker did not come up `within` so many seconds. The
            message ends with the last lines of the log.
    """
    match access:
        case LocalAccess():
            return await LocalWorker.start(access, environment, within)
        case SSHAccess() | ExecAccess():
            return await SSHWorker.start(access, environment, within, plan, report)


async def enter_worker(access: Access, worker: WorkerEntry, within: float) -> WorkerProcess:
    """A worker that another process has started, and left behind.

    Raises:
        NodeStartError: it is gone, or its machine did not answer `within` so many seconds.
    """
    match access:
        case LocalAccess():
            raise NodeStartError("a local worker ends with the process that started it")
        case SSHAccess() | ExecAccess():
            return await SSHWorker.enter(access, worker, within)


_lifelines: set[int] = set()
"""The ends of pipes that keep the workers of this process alive. Only it may hold them."""


def _let_go() -> None:
    """Close them in a process that was forked from this one, which would keep the workers alive after its parent."""
    for lifeline in _lifelines:
        with contextlib.suppress(OSError):
            os.close(lifeline)
    _lifelines.clear()


os.register_at_fork(after_in_child=_let_go)


class LocalWorker:
    """A worker that is a child process of ours. It ends when we do: its standard input is a pipe that only we hold."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        hello: Hello,
        lifeline: int,
        python: str,
        environ: Mapping[str, str],
    ) -> None:
        self.hello = hello
        self._process = process
        self._lifeline = lifeline
        self._python = python
        self._environ = environ

    @classmethod
    async def start(cls, access: LocalAccess, environment: Mapping[str, str], within: float) -> "LocalWorker":
        """See `start_worker`."""
        directory = Path(access.directory)
        log = directory / "worker.log"
        env = {**os.environ, **environment, "SKYWARD_HOST": access.host, "SKYWARD_SCRATCH": access.directory}
        env["SKYWARD_METRICS_SCOPE"] = "processes"  # the machine is not its own
        env["SKYWARD_SHARED_FILES"] = "1"  # nor is its disk: cells run in the notebook's folder
        env.pop("SKYWARD_LEASE", None)  # it ends with its standard input, at once
        # An environment of its own has Skyward, behind packages that it has in other versions than this process.
        source = _source_root() if access.python == sys.executable else ""
        path = os.pathsep.join(filter(None, (environment.get("PYTHONPATH"), source, os.environ.get("PYTHONPATH"))))
        if path:
            env["PYTHONPATH"] = path
        its_end, lifeline = os.pipe()
        _lifelines.add(lifeline)
        try:
            with log.open("wb") as errors:
                process = await asyncio.create_subprocess_exec(
                    access.python, "-m", "skyward.worker.supervisor",
                    stdin=its_end, stdout=asyncio.subprocess.PIPE, stderr=errors,
                    cwd=directory, env=env, start_new_session=True,
                )  # fmt: skip  # one option a line would hide the command
        except BaseException:
            _close(lifeline)
            raise
        finally:
            os.close(its_end)
        env.pop(PASS_VARIABLE, None)
        worker = cls(process, Hello("", "", process.pid), lifeline, access.python, env)
        try:
            worker.hello = await _hear(process, within)
        except BaseException as error:
            ended = process.returncode is not None
            await run_to_completion(worker.stop())
            if isinstance(error, TimeoutError):
                raise _failed(f"the worker said nothing for {within:.0f} s after it was started", log) from None
            if isinstance(error, ValueError):
                why = _status(process.returncode) if ended and process.returncode is not None else "said nothing"
                raise _failed(f"the worker ended as it started ({why})", log) from None
            raise
        return worker

    async def exited(self) -> str:
        """Why it ended, once it has."""
        status = await self._process.wait()
        return f"its process was {_status(status)}" if status < 0 else f"its process ended with {_status(status)}"

    async def answers(self) -> bool:
        """Return True: the machine is this one."""
        return True

    async def facts(self) -> Facts | None:
        """What its environment is made of, found out now; None where it is that of this process."""
        if self._python == sys.executable:
            return None
        with contextlib.suppress(OSError, LookupError, ValueError):
            words = (self._python, "-c", "from skyward.bootstrap.facts import facts; print(facts())")
            return read_facts(json.loads((await run_here(words, environ=self._environ)).out.splitlines()[-1]))
        return None

    async def reach(self, address: str) -> str:
        """The address itself: it is of this machine."""
        return address

    def dial(self, address: str) -> str:
        """The address itself."""
        return address

    async def stop(self) -> bool:
        """End it and every process that comes from it. Twice does no harm."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(_STOP_WITHIN):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        await _sweep(self._process.pid)
        _close(self._lifeline)  # not before: a worker that sees its end removes the folder of its pool
        return True

    async def leave(self) -> None:
        """End it: it cannot be without us."""
        await self.stop()


async def _sweep(group: int) -> None:
    """End what is left of a process group whose first process, the outer supervisor of a worker, is gone.

    The inner supervisor is of this group: where the outer one was killed, it has the time to end what has left it.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_WITHIN):
                while True:
                    os.killpg(group, 0)
                    await asyncio.sleep(0.01)
        os.killpg(group, signal.SIGKILL)


def _close(lifeline: int) -> None:
    if lifeline in _lifelines:
        _lifelines.discard(lifeline)
        os.close(lifeline)


async def _hear(process: asyncio.subprocess.Process, within: float) -> Hello:
    """Read where the worker listens.

    Raises:
        TimeoutError: it said nothing `within` so many seconds.
        ValueError: it has ended, or it is no worker.
    """
    assert process.stdout is not None
    reading = asyncio.ensure_future(process.stdout.readline())
    ending = asyncio.ensure_future(process.wait())  # another process may hold its output, and live on
    try:
        async with asyncio.timeout(within):
            await asyncio.wait((reading, ending), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done() or not reading.result():
                await ending
                raise ValueError("the worker has ended")
    finally:
        reading.cancel()
        ending.cancel()
    words = json.loads(reading.result())
    return Hello(words["address"], words["bulk"], words["pid"], memory_gb=words.get("memory_gb", 0))


def _status(status: int) -> str:
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"status {status}"


def _failed(what: str, log: Path) -> NodeStartError:
    """Return the error for a worker that did not start, with the last lines of its log."""
    said = log.read_text(errors="replace")
    lines = said.splitlines()[-_LOG_LINES:]
    return NodeStartError("\n".join((f"{what}:" if lines else what, *lines)), said)


def _source_root() -> str:
    """The folder that `skyward` is imported from here, so that the worker runs the same source."""
    return str(Path(__file__).resolve().parents[2])
