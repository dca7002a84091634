"""A worker on a machine that is entered over SSH, or by a local command that runs commands there.

It is not a child of our connection: a broken link does not end it. We end it, or its lease does, when it has not heard
from its client for so long that the client must be gone (`skyward.worker.runtime.lease`).
"""

import asyncio
import contextlib
import json
import logging
import re
import secrets
import shlex
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Self

from skyward.bootstrap import (
    BootstrapError,
    Facts,
    Mismatches,
    PhaseEvent,
    Plan,
    bootstrap,
    read_facts,
    worker_environment,
)
from skyward.bootstrap.script import root
from skyward.errors import NodeStartError
from skyward.journal import WorkerEntry
from skyward.link.connection.hello import Hello
from skyward.link.connection.transport import LinkError, run_to_completion
from skyward.link.ssh.connect import SSHLink
from skyward.link.ssh.disk import full_disk
from skyward.process.exit_status import exit_text
from skyward.providers.protocol import RemoteAccess, SSHAccess

__all__ = [
    "FINISHES_WITHIN",
    "WORKER_FUNCTIONS",
    "EnvironmentSender",
    "OrphanWorkerError",
    "SSHWorker",
    "end_orphan",
    "end_workers",
    "lease_of",
]

LEASE_BEYOND_GRACE = 30.0
"""Seconds that a worker's lease exceeds the client's own grace for the machine, at least."""

FINISHES_WITHIN = 600.0
"""Longest time, in seconds, that a worker has for its tasks after its lease (`skyward.worker.runtime.lease`)."""

_LOG_LINES = 20
_STOP_WITHIN = 5.0
_WATCH_AGAIN = 0.2
_ANSWER_WITHIN = 5.0
_STEADY_FOR = 5.0
_ANSWER_ARRIVES_WITHIN = 1.0
"""Seconds that a machine has to answer, that its connection must have been up before it is asked, and in which a
worker's earlier answer must arrive."""

_CHECKS = 60
"""Checks, 20 ms apart, whether a worker that was asked to end has ended; then it is killed. As many more checks,
whether its inner supervisor has ended the rest, are within `_STOP_WITHIN`."""

_MANY_CHECKS = 300
"""Number of such checks where no client waits for the result. A supervisor gives up after 5 s."""

_ENDED = 3
"""Exit status of the start script if the worker has ended."""

_logger = logging.getLogger(__name__)

_START_TIME = """
start_time() {
  if boot=$(cat /proc/sys/kernel/random/boot_id); then
    echo "$boot $(sed 's/.*) //' "/proc/$1/stat" | cut -d ' ' -f 20)"
  else
    LC_ALL=C TZ=UTC ps -o lstart= -p "$1"
  fi
} 2>/dev/null
"""
"""Start time of process $1, and boot of the machine: its number may be reused later."""

_SWEEP = """
sweep() {
  checks=0
  while kill -0 "-$1"; do
    if [ "$checks" -eq "$2" ]; then
      kill -KILL "-$1"
      return
    fi
    checks=$((checks + 1))
    sleep 0.02 || sleep 1
  done
} 2>/dev/null
"""
"""End of process group $1, whose first process, the outer supervisor, is gone. The inner one, which is in this group,
gets the time of $2 checks to end processes that have left the group."""

WORKER_FUNCTIONS = f"""
{_START_TIME}
{_SWEEP}
lives() {{
  read -r pid noted <"$node/pid" && [ -n "$noted" ] && [ "$(start_time "$pid")" = "$noted" ]
}} 2>/dev/null
end() {{
  checks=0
  while lives && [ "$checks" -lt {_CHECKS} ]; do
    kill -TERM "$pid"
    checks=$((checks + 1))
    sleep 0.02 || sleep 1
  done 2>/dev/null
  if lives; then kill -KILL "$pid"; sweep "$pid" {_CHECKS}; fi 2>/dev/null
  rm -rf "$node" || rm -rf "$node"  # the waiting shell may just have written its status there
}}
"""
"""Check for the worker of $node, and its end. Another process that has reused its number is not touched. Its
supervisors end all of its descendants; if they do not answer, their process group is killed."""

_KEEP = """
  {python} -m skyward.worker.supervisor >../hello 2>../log </dev/null 9>&- &
  echo "$! $(start_time $!)" >../pid
  wait $!
  status=$?
  rm ../pid
  sweep "$!" {checks}
  echo $status >../status
"""
"""The worker, and the shell that waits for it. The remaining process group of a worker ends with it, also if that shell
was killed."""

_IN_BACKGROUND = """
export SKYWARD_SCRATCH="$node"
{exports}
{{
  {keep}
}} 9<>../life >/dev/null 2>&1 &
keeper=$!
"""
"""Start in the background. Descriptor 9 keeps the pipe `life` open as long as the worker lives, so a reader of the pipe
sees its end."""

_BY_STARTER = """
printf %s {script} >{starter}/{id}.part && mv {starter}/{id}.part {starter}/{id}.start || exit
until read -r keeper <../keeper; do
  if [ ! -d {starter} ]; then
    echo 'the process that starts workers on the machine has ended'
    exit {ended}
  fi
  sleep 0.02 || sleep 1
done 2>/dev/null
"""
"""Start by the machine's starter, with a script that is renamed once it is complete."""

_STARTED = """
rm "$0"
set -u
umask 077
{node}
cd "$node/work" || exit
echo $$ >../keeper
exec 9<>../life >/dev/null 2>&1
export SKYWARD_SCRATCH="$node"
{exports}
{keep}
"""
"""The script for the starter. It has the secrets of the worker, so its file is removed."""

_START = """
set -u
umask 077
{node}
mkdir -p "$node/work" && cd "$node/work" && mkfifo ../life && head -c 65536 /dev/zero >../room && rm ../room || exit
if ! [ -e "$root/began" ]; then
  if [ -e "${{HOME:-}}/.ssh/authorized_keys" ]; then cp "${{HOME:-}}/.ssh/authorized_keys" "$root/authorized_keys"; fi
  : >"$root/began"
fi
{start}
gone() {{
  if read -r stat <"/proc/$keeper/stat"; then
    case "${{stat##*) }}" in [ZX]*) ;; *) return 1 ;; esac
  elif [ ! -d /proc/self ]; then
    ! kill -0 "$keeper"
  fi
}}
until [ -s ../hello ] && [ -s ../pid ]; do
  if [ -s ../status ] || gone; then
    echo "the worker ended during startup ($(cat ../status || echo gone)):"
    tail -c 65536 ../log
    exit {ended}
  fi
  sleep 0.02 || sleep 1
done 2>/dev/null
echo "${{SSH_CONNECTION:-}}"
cat ../hello
"""
"""Start of a worker. Disk space is tested first: one that cannot write its addresses would be waited for in vain.

The file `began` is as old as the use of the machine: what is newer may be of its tasks (`skyward.link.ssh.handover`).
"""

_WATCH = """
{node}
cd "$node" 2>/dev/null || exit 4
exec 8<>life 7<life 8>&-
cat <&7 &
reader=$!
{{
  trap 'kill "$pause"; exit' TERM
  while kill -0 "$PPID" || [ -d "/proc/$PPID" ]; do
    sleep 5 &
    pause=$!
    wait "$pause"
  done
  kill "$reader"
}} >/dev/null 2>&1 7<&- &
watcher=$!
wait "$reader"
kill "$watcher"
cat status
"""
"""Watch over a worker. The pipe is opened for reading while it is also open for writing, which never blocks, then read
to its end. The script ends with the connection, which is the parent of this shell."""


_ATTACH = """
{node}
lives || exit 4
echo "${{SSH_CONNECTION:-}}"
cat "$node/hello"
"""

_FACTS = "from skyward.bootstrap.facts import facts; print(facts())"

_SEND = """
command -v ionice >/dev/null 2>&1 && idle='ionice -c 3' || idle=
exec nice -n 19 $idle {python} -P -m skyward.bootstrap.peers.serve
"""
"""Program that sends an environment, which must not slow down the tasks of its node."""

_END = """
{root}
for node in "$root/nodes/{pool}".*; do
  if [ -d "$node" ]; then end; fi
done
"""

_STOP = """
{node}
end
"""


class OrphanWorkerError(NodeStartError):
    """Raised when the machine was lost while its worker started, so that the worker may still run there.

    Attributes:
        directory: directory of the worker, as in `SSHWorker`.
    """

    def __init__(self, message: str, log: str, directory: str) -> None:
        super().__init__(message, log)
        self.directory = directory


@dataclass(frozen=True, slots=True)
class EnvironmentSender:
    """Access to the environment that was made for a worker, to send it to other machines.

    Attributes:
        link: link to its machine.
        environment: identity of the environment.
        executable: path of its interpreter.
        variables: its variables, with their values on that machine.
    """

    link: SSHLink
    environment: str
    executable: str
    variables: Mapping[str, str] = field(repr=False)

    async def send(self, request: bytes, on_line: Callable[[str], None]) -> None:
        """Have the machine send the environment once; `on_line` gets each line that it says.

        Raises:
            LinkError: the connection was lost before that ended.
        """
        command = _SEND.format(python=shlex.quote(self.executable))
        await self.link.run(f"sh -c {shlex.quote(command)}", request, on_line)


class SSHWorker:
    """The worker, and the link to its machine. `node` is shell text that sets the variable `node` to its directory.

    Attributes:
        environment: the environment that was made for it; None if it was there before, or by another process.
    """

    def __init__(self, access: RemoteAccess, link: SSHLink, hello: Hello, node: str, python: str | None = None) -> None:
        self.environment: EnvironmentSender | None = None
        self.hello = hello
        self._python = python
        self._access = access
        self._link = link
        self._node = node

    @classmethod
    async def start(
        cls,
        access: RemoteAccess,
        environment: Mapping[str, str],
        within: float,
        plan: Plan | None,
        report: Callable[[PhaseEvent], None] | None,
    ) -> Self:
        """Start a worker, as `launch.start_worker` describes.

        Connecting and starting have `within` seconds each, unless the access limits the former; the plan has its own
        limit.
        """
        answer_within = access.answer_within if isinstance(access, SSHAccess) else None
        link = await SSHLink.open(access, answer_within or within)
        name = f"{environment.get('SKYWARD_POOL', '')}.{secrets.token_hex(6)}"
        place = root(_starter(access) or access.directory)
        node = f"{place}; node=$root/nodes/{name}"
        try:
            python, variables, made = await _prepare(access, link, plan, report)
            if report is not None:
                report(PhaseEvent("started", "worker"))
            async with asyncio.timeout(within):
                hello = await _start(access, link, {**variables, **environment}, node, python)
            for sentence in Mismatches(Facts(hello.python, python, {}, {}), access.target).at_join():
                _logger.warning(sentence)
            worker = cls(access, link, hello, node, python)
            worker.environment = made
            return worker
        except BaseException as error:
            full, log = "", None
            try:
                if isinstance(error, NodeStartError | TimeoutError):
                    full = await full_disk(access, link, str(error))
                if isinstance(error, TimeoutError):
                    log = await _log(link, node)
            finally:  # also if the start is cancelled meanwhile
                ended = await run_to_completion(_stop(access, link, node))
            if full:
                log = error.log if isinstance(error, NodeStartError) else ""
                raise NodeStartError(f"{full}:\n{error}" if isinstance(error, BootstrapError) else full, log) from None
            if not isinstance(error, TimeoutError | LinkError):
                raise
            message = _not_up(access.target, within, log) if isinstance(error, TimeoutError) else str(error)
            if ended:
                raise NodeStartError(message, log or "") from None
            raise OrphanWorkerError(message, log or "", node) from None

    @classmethod
    async def enter(cls, access: RemoteAccess, worker: WorkerEntry, within: float) -> Self:
        """Attach to a worker that another process has started.

        Raises:
            NodeStartError: the worker is gone, or its machine cannot be reached.
        """
        link = await SSHLink.open(access, within)
        try:
            async with asyncio.timeout(within):
                done = await link.run("sh", (WORKER_FUNCTIONS + _ATTACH.format(node=worker.directory)).encode())
                if done.status:
                    raise NodeStartError(f"the worker on {access.target} is gone: its lease has expired")
                python = _interpreter(json.loads(done.out.splitlines()[-1])["pid"])
                await link.tunnel(*_split(worker.address), python)
                bulk = await link.socket(*_split(worker.bulk), python)
        except (TimeoutError, LinkError) as error:
            await run_to_completion(link.close())
            raise NodeStartError(str(error) or f"{access.target} did not answer within {within:.0f} s") from None
        except BaseException:
            await run_to_completion(link.close())
            raise
        return cls(access, link, _hello(done.out, bulk, worker.directory), worker.directory)

    @property
    def unreachable(self) -> bool:
        """True while the connection to its machine is broken."""
        return self._link.since == inf

    async def exited(self) -> str:
        """Wait until it ends, or is lost, and return the reason."""
        while not self._link.lost.done():
            try:
                done = await self._link.run("exec sh", _WATCH.format(node=self._node).encode())
            except LinkError:  # the connection is made again, or lost
                await asyncio.sleep(_WATCH_AGAIN)
            else:
                return _reason(done.out.strip())
        return self._link.lost.result()

    async def answers(self) -> bool:
        """Return whether its machine has been reachable for so long that a live worker would have answered."""
        since = self._link.since
        if asyncio.get_running_loop().time() - since < _STEADY_FOR:
            return False
        with contextlib.suppress(LinkError, TimeoutError):
            async with asyncio.timeout(_ANSWER_WITHIN):
                await self._link.run("exec true")
            await asyncio.sleep(_ANSWER_ARRIVES_WITHIN)
            return self._link.since == since
        return False

    async def facts(self) -> Facts | None:
        """Return the facts of its environment, read now; None if they cannot be read."""
        if self._python is None:
            return None
        with contextlib.suppress(LinkError, LookupError, ValueError):
            done = await self._link.run("sh", f"exec {shlex.quote(self._python)} -c '{_FACTS}'".encode())
            return read_facts(json.loads(done.out.splitlines()[-1]))
        return None

    async def reach(self, address: str) -> str:
        """Make another address of its machine reachable; return the `host:port` to connect to here."""
        return await self._link.tunnel(*_split(address), _interpreter(self.hello.pid))

    def dial(self, address: str) -> str:
        """Return the `host:port` to connect to here, now, for its own address or one given to `reach`."""
        return self._link.dial(*_split(address))

    async def stop(self) -> bool:
        """End the worker and all of its descendants; return False if it could not be reached. Idempotent."""
        return await run_to_completion(_stop(self._access, self._link, self._node))

    async def leave(self) -> None:
        """Disconnect; the worker keeps running."""
        await run_to_completion(self._link.close())


async def end_workers(access: RemoteAccess, pool: str, within: float) -> None:
    """End every worker of a pool on one machine, including those of other clients.

    Raises:
        NodeStartError: the machine cannot be reached.
    """
    link = await SSHLink.open(access, within)
    try:
        async with asyncio.timeout(within):
            await link.run("sh", (WORKER_FUNCTIONS + _END.format(root=root(access.directory), pool=pool)).encode())
    except (LinkError, TimeoutError) as error:
        raise NodeStartError(f"{access.target} did not answer: {error}") from None
    finally:
        await run_to_completion(link.close())


async def end_orphan(access: RemoteAccess, node: str, lease: float) -> None:
    """End a worker that could not be reached when it had to end, once it can be; stop trying when its lease is over.

    Args:
        access: its machine.
        node: see `SSHWorker`.
        lease: seconds of the pool's lease.
    """
    until = time.monotonic() + lease_of(access, lease) + FINISHES_WITHIN
    with contextlib.suppress(NodeStartError):
        while (within := until - time.monotonic()) > 0:
            if await run_to_completion(_stop(access, await SSHLink.open(access, within), node)):
                _logger.info("ended the worker on %s, which had been replaced", access.target)
                return


async def _log(link: SSHLink, node: str) -> str | None:
    """Return the end of a worker's log; None if its machine does not answer."""
    with contextlib.suppress(LinkError, TimeoutError):
        async with asyncio.timeout(_ANSWER_WITHIN):
            return (await link.run("sh", f'{node}\ntail -c 65536 "$node/log"'.encode())).out.strip()
    return None


def _not_up(target: str, within: float, log: str | None) -> str:
    """Return that a worker did not come up in time, and what its log, as `_log` returns it, says about it."""
    sentence = f"the worker on {target} did not come up within {within:.0f} s (`bootstrap_timeout`)"
    if log is None:
        return f"{sentence}, and the machine does not answer any more"
    return "\n".join((f"{sentence}:", *log.splitlines()[-_LOG_LINES:])) if log else f"{sentence}, and printed nothing"


async def _stop(access: RemoteAccess, link: SSHLink, node: str) -> bool:
    """End the processes of a node's directory, and close the link; return whether the worker could be ended."""
    ended = False
    try:
        if not link.lost.done():
            async with asyncio.timeout(_STOP_WITHIN):
                await link.run("sh", (WORKER_FUNCTIONS + _STOP.format(node=node)).encode())
                ended = True
    except (LinkError, TimeoutError) as error:
        _logger.info("the worker on %s is out of reach: %s", access.target, error)
    await link.close()
    return ended


def _starter(access: RemoteAccess) -> str:
    return getattr(access, "starter", "")  # only an `ExecAccess` has one, and not that of an older journal


def lease_of(access: RemoteAccess, wanted: float) -> float:
    """Return the lease of a worker in seconds: longer than the client's own grace for its machine."""
    return max(wanted, access.grace + LEASE_BEYOND_GRACE)


async def _prepare(
    access: RemoteAccess, link: SSHLink, plan: Plan | None, report: Callable[[PhaseEvent], None] | None
) -> tuple[str, dict[str, str], EnvironmentSender | None]:
    """Make the environment; return the interpreter of the worker, its variables, and how to send what was made."""
    if access.python is not None:
        return access.python, {}, None
    if plan is None:
        raise NodeStartError(f"{access.target} has no environment for the worker: set `python='/path/to/python'`")
    ready = await bootstrap(link, plan, report)
    facts = ready.facts
    made = EnvironmentSender(link, plan.image_hash, facts.executable, facts.variables)
    return facts.executable, worker_environment(plan, ready), made


async def _start(access: RemoteAccess, link: SSHLink, environment: Mapping[str, str], node: str, python: str) -> Hello:
    """Start the worker, and return its addresses."""
    lease = lease_of(access, float(environment.get("SKYWARD_LEASE", 0)))
    variables = {"SKYWARD_HOST": "127.0.0.1", **environment, "SKYWARD_LEASE": f"{lease:g}"}
    exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
    keep = _KEEP.strip().format(python=shlex.quote(python), checks=_MANY_CHECKS)
    if starter := _starter(access):
        started = _START_TIME + _SWEEP + _STARTED.format(node=node, exports=exports, keep=keep)
        words = {"script": shlex.quote(started), "starter": shlex.quote(starter), "id": secrets.token_hex(6)}
        start = _BY_STARTER.format(**words, ended=_ENDED)
    else:
        start = _IN_BACKGROUND.format(exports=exports, keep=keep)
    script = _START_TIME + _SWEEP + _START.format(node=node, start=start, ended=_ENDED)
    done = await link.run("sh", script.encode())  # as input: other users of the machine can read command lines
    if done.status:
        output = (done.out + done.err).strip()
        head, *lines = output.splitlines() or [f"the worker did not start (status {done.status})"]
        head = head if lines else head.removesuffix(":")
        if done.status == _ENDED:
            head = re.sub(r"\((.*)\)", lambda found: f"({_ended(found[1])})", head)
        raise NodeStartError("\n".join((head, *lines[-_LOG_LINES:])), output)
    words = json.loads(done.out.splitlines()[-1])
    interpreter = _interpreter(words["pid"])
    await link.tunnel(*_split(words["address"]), interpreter)
    return _hello(done.out, await link.socket(*_split(words["bulk"]), interpreter), node)


def _hello(output: str, bulk: str, node: str) -> Hello:
    """Parse a machine's output about its worker, in the last two lines; `bulk` is the tunnel to its bulk path."""
    connection, hello = output.splitlines()[-2:]
    words = json.loads(hello)
    return Hello(
        words["address"],
        bulk,
        words["pid"],
        "".join(connection.split()[2:3]),
        words["bulk"],
        node,
        words["vcpus"],
        words["memory_gb"],
        words["gpus"],
        words["python"],
    )


def _interpreter(pid: int) -> str:
    """Return the interpreter that runs a process of the machine, for tunnels that need one."""
    return f"/proc/{pid}/exe"


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _reason(status: str) -> str:
    """Return the reason of a worker's end, from the status that its shell noted."""
    if not status.isdigit():
        return "its machine was restarted"
    ended = _ended(status)
    return f"its process was {ended}" if ended.startswith("killed") else exit_text(int(status))


def _ended(status: str) -> str:
    """Describe the end of a process, from the status that a shell noted."""
    if not status.isdigit():
        return "killed, with the shell that waited for it"
    number = int(status)
    if number > 128:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(number - 128).name}"
    return f"status {number}"
