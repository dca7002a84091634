"""Starting the worker process of a node on its machine, and ending it."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

from skyward.bootstrap import PhaseEvent, Plan
from skyward.errors import NodeStartError
from skyward.journal import WorkerEntry
from skyward.link.hello import Hello, WorkerProcess
from skyward.link.ssh_worker import SSHWorker
from skyward.provider import Access, ExecAccess, LocalAccess, SSHAccess

__all__ = ["LocalWorker", "enter_worker", "start_worker"]

_LOG_LINES = 20


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


class LocalWorker:
    """A worker that is a child process of ours. It ends when we do: its standard input is a pipe that only we hold."""

    def __init__(self, process: asyncio.subprocess.Process, hello: Hello, log: Path) -> None:
        self.hello = hello
        self._process = process
        self._log = log

    @classmethod
    async def start(cls, access: LocalAccess, environment: Mapping[str, str], within: float) -> "LocalWorker":
        """See `start_worker`."""
        directory = Path(access.directory)
        log = directory / "worker.log"
        env = {**os.environ, **environment, "SKYWARD_HOST": access.host, "SKYWARD_SCRATCH": access.directory}
        env["SKYWARD_METRICS_SCOPE"] = "processes"  # the machine is not its own
        env.pop("SKYWARD_LEASE", None)  # it ends with its standard input, at once
        env["PYTHONPATH"] = os.pathsep.join([_source_root(), *filter(None, [env.get("PYTHONPATH")])])
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                access.python, "-m", "skyward.worker",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
                cwd=directory, env=env, start_new_session=True,
            )  # fmt: skip  # one option a line would hide the command
        try:
            return cls(process, await _hear(process, within), log)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            if isinstance(error, (TimeoutError, ValueError)):
                raise _did_not_come_up(process, within, log) from None
            raise

    async def exited(self) -> str:
        """Why it ended, once it has."""
        status = await self._process.wait()
        if status < 0:
            return f"its process was killed by {signal.Signals(-status).name}"
        return f"its process ended with status {status}"

    async def facts(self) -> None:
        """Nothing: it is the environment of this process."""

    async def reach(self, address: str) -> str:
        """The address itself: it is of this machine."""
        return address

    async def stop(self) -> bool:
        """End it and every process of its session. Twice does no harm."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        return True

    async def leave(self) -> None:
        """End it: it cannot be without us."""
        await self.stop()


async def _hear(process: asyncio.subprocess.Process, within: float) -> Hello:
    if process.stdout is None:
        raise ValueError("the worker has no standard output")
    async with asyncio.timeout(within):
        words = json.loads(await process.stdout.readline())
    return Hello(words["address"], words["bulk"], words["pid"], words["address"])


def _did_not_come_up(process: asyncio.subprocess.Process, within: float, log: Path) -> NodeStartError:
    said = log.read_text(errors="replace")
    if process.returncode == -signal.SIGKILL and not said:
        return NodeStartError(f"the worker said nothing for {within:.0f} s after it was started")
    lines = said.splitlines()[-_LOG_LINES:]
    return NodeStartError("\n".join((f"the worker ended as it started (status {process.returncode}):", *lines)), said)


def _source_root() -> str:
    """The folder that `skyward` is imported from here, so that the worker runs the same source."""
    return str(Path(__file__).resolve().parents[2])
