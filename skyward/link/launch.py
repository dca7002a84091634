"""Start and end of a node's worker process on its machine."""

import asyncio
import contextlib
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from skyward.bootstrap import Facts, PhaseEvent, Plan, bake, read_facts
from skyward.errors import NodeStartError
from skyward.journal import WorkerEntry
from skyward.link.connection.hello import Hello, WorkerProcess
from skyward.link.connection.programs import run_here
from skyward.link.connection.transport import run_to_completion
from skyward.link.ssh.connect import SSHLink
from skyward.link.ssh.worker import SSHWorker
from skyward.process.exit_status import exit_text
from skyward.providers.protocol import Access, ExecAccess, LocalAccess, RemoteAccess, SSHAccess
from skyward.wire.transport.secrets import SECRETS_VARIABLE

__all__ = ["LocalWorker", "attach_worker", "bake_machine", "start_worker"]

_LOG_LINES = 20

_STOP_WITHIN = 8.0
"""Seconds that the supervisor of a worker has to end all of its processes; its own limit is 5."""

_AS_ROOT = 'if [ "$(id -u)" = 0 ]; then exec sh -s; else exec sudo -n sh -s; fi'

_FORGET_KEYS = r"""
set -eu
rm -f /etc/ssh/ssh_host_*
for home in /root /home/*; do
  rm -rf "$home/.ssh/authorized_keys" "$home/.ssh/authorized_keys2"
  rm -f "$home"/.*_history
done
rm -rf /etc/skyward /usr/local/sbin/skyward-watchdog /var/lib/cloud/scripts/per-boot/skyward-watchdog
rm -rf /var/lib/cloud/instance /var/lib/cloud/instances /var/lib/cloud/data /var/lib/cloud/sem
rm -f /var/log/cloud-init.log /var/log/cloud-init-output.log /var/lib/dbus/machine-id
if [ -f /etc/machine-id ]; then : >/etc/machine-id; fi
sync
"""
"""Script that removes what would tell machines of an image apart from others, or let its builder in: keys, histories,
and the data of cloud-init, which has both and then runs anew on each machine."""


async def start_worker(
    access: Access,
    environment: Mapping[str, str],
    within: float,
    plan: Plan | None = None,
    report: Callable[[PhaseEvent], None] | None = None,
) -> WorkerProcess:
    """Start the worker in the environment of `plan`, and return it once it listens; `report` gets the phase events.

    This machine, and one whose access names an interpreter, have their environment already.

    Raises:
        NodeStartError: the environment could not be made, or the worker did not start `within` so many seconds. The
            message ends with the last lines of the log.
    """
    match access:
        case LocalAccess():
            return await LocalWorker.start(access, environment, within)
        case SSHAccess() | ExecAccess():
            return await SSHWorker.start(access, environment, within, plan, report)


async def bake_machine(
    access: RemoteAccess,
    plan: Plan,
    within: float,
    report: Callable[[PhaseEvent], None] | None = None,
    *,
    is_rented: bool = False,
) -> Facts:
    """Make the environment of `plan` on a machine that an image is then made of; return its facts. Starts no worker.

    Args:
        access: the machine, entered as root so that every user of the image has the environment.
        plan: what to make: see `skyward.bootstrap.bake`.
        within: seconds that the machine has to answer.
        report: called with each phase event.
        is_rented: True if the machine ends with the image: its keys are removed, so that it cannot be entered again,
            and machines of the image have none of them.

    Raises:
        NodeStartError: the machine cannot be reached, or the environment cannot be made.
    """
    link = await SSHLink.open(access, within)
    try:
        facts = (await bake(link, plan, report)).facts
        if is_rented and isinstance(access, SSHAccess):
            done = await link.run(f"sh -c {shlex.quote(_AS_ROOT)}", _FORGET_KEYS.encode())
            if done.status:
                raise NodeStartError(f"the keys of {access.target} could not be removed: {done.err.strip()}")
        return facts
    except ConnectionError as error:
        raise NodeStartError(f"{access.target} was lost while it was prepared for an image: {error}") from None
    finally:
        await run_to_completion(link.close())


async def attach_worker(access: Access, worker: WorkerEntry, within: float) -> WorkerProcess:
    """Attach to a worker that another process has started.

    Raises:
        NodeStartError: the worker is gone, or its machine did not answer `within` so many seconds.
    """
    match access:
        case LocalAccess():
            raise NodeStartError("a local worker ends with the process that started it")
        case SSHAccess() | ExecAccess():
            return await SSHWorker.enter(access, worker, within)


_lifelines: set[int] = set()
"""Write ends of pipes that keep the workers of this process alive. No other process may hold them."""


def _close_lifelines() -> None:
    """Close the lifelines in a forked process, which would keep the workers alive after its parent."""
    for lifeline in _lifelines:
        with contextlib.suppress(OSError):
            os.close(lifeline)
    _lifelines.clear()


os.register_at_fork(after_in_child=_close_lifelines)


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
        """Start a worker process, as `start_worker` describes."""
        directory = Path(access.directory)
        log = directory / "worker.log"
        env = {**os.environ, **environment, "SKYWARD_HOST": access.host, "SKYWARD_SCRATCH": access.directory}
        env["SKYWARD_METRICS_SCOPE"] = "processes"  # it shares the machine
        env["SKYWARD_SHARED_FILES"] = "1"  # and its disk: cells run in the notebook's folder
        env.pop("SKYWARD_LEASE", None)  # it ends as soon as its standard input does
        # A separate environment has Skyward, behind packages whose versions differ from this process.
        source = _source_root() if access.python == sys.executable else ""
        path = os.pathsep.join(filter(None, (environment.get("PYTHONPATH"), source, os.environ.get("PYTHONPATH"))))
        if path:
            env["PYTHONPATH"] = path
        worker_end, lifeline = os.pipe()
        _lifelines.add(lifeline)
        try:
            with log.open("wb") as errors:
                process = await asyncio.create_subprocess_exec(
                    access.python, "-m", "skyward.worker.supervisor",
                    stdin=worker_end, stdout=asyncio.subprocess.PIPE, stderr=errors,
                    cwd=directory, env=env, start_new_session=True,
                )  # fmt: skip  # one option a line would hide the command
        except BaseException:
            _close(lifeline)
            raise
        finally:
            os.close(worker_end)
        env.pop(SECRETS_VARIABLE, None)
        worker = cls(process, Hello("", "", process.pid), lifeline, access.python, env)
        try:
            worker.hello = await _read_hello(process, within)
        except BaseException as error:
            ended = process.returncode is not None
            await run_to_completion(worker.stop())
            if isinstance(error, TimeoutError):
                raise _failed(f"the worker printed nothing for {within:.0f} s after its start", log) from None
            if isinstance(error, ValueError):
                reason = _status(process.returncode) if ended and process.returncode is not None else "printed nothing"
                raise _failed(f"the worker ended during startup ({reason})", log) from None
            raise
        return worker

    @property
    def unreachable(self) -> bool:
        """False: there is no connection between a process and itself."""
        return False

    async def exited(self) -> str:
        """Wait for its end, and return the reason."""
        status = await self._process.wait()
        return f"its process was {_status(status)}" if status < 0 else exit_text(status)

    async def answers(self) -> bool:
        """Return True: the machine is this one."""
        return True

    async def facts(self) -> Facts | None:
        """Return the facts of its environment, read now; None if that is the environment of this process."""
        if self._python == sys.executable:
            return None
        with contextlib.suppress(OSError, LookupError, ValueError):
            words = (self._python, "-c", "from skyward.bootstrap.facts import facts; print(facts())")
            return read_facts(json.loads((await run_here(words, environ=self._environ)).out.splitlines()[-1]))
        return None

    async def reach(self, address: str) -> str:
        """Return the address itself, which is on this machine."""
        return address

    def dial(self, address: str) -> str:
        """Return the address itself."""
        return address

    async def stop(self) -> bool:
        """End the worker and all of its descendants. Idempotent."""
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
        _close(self._lifeline)  # not earlier: a worker that sees its end removes the folder of its pool
        return True

    async def leave(self) -> None:
        """End the worker: it cannot outlive this process."""
        await self.stop()


async def _sweep(group: int) -> None:
    """End the rest of a process group whose first process, the outer supervisor of a worker, is gone.

    The inner supervisor belongs to this group: if the outer one was killed, it gets time to end processes that have
    left the group.
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


async def _read_hello(process: asyncio.subprocess.Process, within: float) -> Hello:
    """Read the addresses at which the worker listens.

    Raises:
        TimeoutError: it printed nothing `within` so many seconds.
        ValueError: it has ended, or printed something else.
    """
    assert process.stdout is not None
    reading = asyncio.ensure_future(process.stdout.readline())
    ending = asyncio.ensure_future(process.wait())  # another process may hold its output open, and live on
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
    text = log.read_text(errors="replace")
    lines = text.splitlines()[-_LOG_LINES:]
    return NodeStartError("\n".join((f"{what}:" if lines else what, *lines)), text)


def _source_root() -> str:
    """Return the folder that `skyward` is imported from, so that the worker runs the same source."""
    return str(Path(__file__).resolve().parents[2])
