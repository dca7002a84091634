"""A worker on a machine that is entered over SSH, or by a command here that runs commands there.

It is no child of our connection: a link that is cut does not end it. What ends it is we, or its lease, when nobody has
spoken to it for so long that we must be gone (`worker.lease`).
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
from skyward.providers.protocol import RemoteAccess, SSHAccess

__all__ = ["SSHWorker", "StrayWorkerError", "end_stray", "end_workers"]

LEASE_BEYOND_GRACE = 30.0
"""Seconds that a worker waits for its client, at least, beyond those that the client waits for the machine."""

_FINISHES_WITHIN = 600.0
"""Seconds that a worker has for its tasks when its lease is over, and no more (`worker.lease`)."""

_LOG_LINES = 20
_STOP_WITHIN = 5.0
_WATCH_AGAIN = 0.2
_ANSWERS_WITHIN = 5.0
_STEADY_FOR = 5.0
_HEARD_WITHIN = 1.0
"""Seconds that a machine has to answer, that its connection must have been up for before it is asked, and in which a
worker is heard that has answered before its machine did."""

_LOOKS = 60
"""Looks, 20 ms apart, at whether a worker that was told to end has ended; then it is killed. As many looks more, at
whether its inner supervisor has ended the rest, are within `_STOP_WITHIN`."""

_MANY_LOOKS = 300
"""Such looks where nobody waits for the end of them. A supervisor gives up after 5 s."""

_ENDED = 3
"""Exit status of the script that starts a worker, where the worker has ended."""

_logger = logging.getLogger(__name__)

_BORN = """
born() {
  if boot=$(cat /proc/sys/kernel/random/boot_id); then
    echo "$boot $(sed 's/.*) //' "/proc/$1/stat" | cut -d ' ' -f 20)"
  else
    LC_ALL=C TZ=UTC ps -o lstart= -p "$1"
  fi
} 2>/dev/null
"""
"""When process $1 was started, and in which boot of the machine: its number may be another one's later."""

_SWEEP = """
sweep() {
  looks=0
  while kill -0 "-$1"; do
    if [ "$looks" -eq "$2" ]; then
      kill -KILL "-$1"
      return
    fi
    looks=$((looks + 1))
    sleep 0.02 || sleep 1
  done
} 2>/dev/null
"""
"""The end of process group $1, whose first process, the outer supervisor, is gone. The inner one, which is of this
group, is given the time of $2 looks to end what has left it."""

_WORKER = f"""
{_BORN}
{_SWEEP}
lives() {{
  read -r pid noted <"$node/pid" && [ -n "$noted" ] && [ "$(born "$pid")" = "$noted" ]
}} 2>/dev/null
end() {{
  looks=0
  while lives && [ "$looks" -lt {_LOOKS} ]; do
    kill -TERM "$pid"
    looks=$((looks + 1))
    sleep 0.02 || sleep 1
  done 2>/dev/null
  if lives; then kill -KILL "$pid"; sweep "$pid" {_LOOKS}; fi 2>/dev/null
  rm -rf "$node" || rm -rf "$node"  # the shell that waited for it may just have noted its end there
}}
"""
"""Whether the worker of $node is there, and the end of it. Another process that has its number now is left alone.
Its supervisors end all that comes from it; where they do not answer, their process group is killed."""

_START = """
set -u
umask 077
{node}
mkdir -p "$node/work" && cd "$node/work" && mkfifo ../life && head -c 65536 /dev/zero >../room && rm ../room || exit
export SKYWARD_SCRATCH="$node"
{exports}
{{
  {python} -m skyward.worker.supervisor >../hello 2>../log </dev/null 9>&- &
  echo "$! $(born $!)" >../pid
  wait $!
  status=$?
  rm ../pid
  sweep "$!" {looks}
  echo $status >../status
}} 9<>../life >/dev/null 2>&1 &
keeper=$!
gone() {{
  if read -r stat <"/proc/$keeper/stat"; then
    case "${{stat##*) }}" in [ZX]*) ;; *) return 1 ;; esac
  elif [ ! -d /proc/self ]; then
    ! kill -0 "$keeper"
  fi
}}
until [ -s ../hello ] && [ -s ../pid ]; do
  if [ -s ../status ] || gone; then
    echo "the worker ended as it started ($(cat ../status || echo gone)):"
    tail -c 65536 ../log
    exit {ended}
  fi
  sleep 0.02 || sleep 1
done 2>/dev/null
echo "${{SSH_CONNECTION:-}}"
cat ../hello
"""
"""A worker that could not say where it listens, for want of room, would be waited for: so room is tried first.
What a worker leaves of its process group ends with it. The shell that waits for it may be killed as well.
Descriptor 9 keeps the pipe `life` open for as long as the worker lives, so whoever reads it sees its end."""

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
lookout=$!
wait "$reader"
kill "$lookout"
cat status
"""
"""The pipe is opened for reading while it is surely open for writing too, which never waits, then read to its end.
It ends with the connection, which is the parent of this shell."""


_LOOK = """
{node}
lives || exit 4
echo "${{SSH_CONNECTION:-}}"
cat "$node/hello"
"""

_FACTS = "from skyward.bootstrap.facts import facts; print(facts())"

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


class StrayWorkerError(NodeStartError):
    """The machine was lost while its worker started, so the worker may run there.

    Attributes:
        directory: of the worker, as `SSHWorker` has it.
    """

    def __init__(self, message: str, log: str, directory: str) -> None:
        super().__init__(message, log)
        self.directory = directory


class SSHWorker:
    """The worker, and the link to its machine. `node` sets the shell's variable of that name to its directory."""

    def __init__(self, access: RemoteAccess, link: SSHLink, hello: Hello, node: str, python: str | None = None) -> None:
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
        """See `launch.start_worker`. Connecting has `within` seconds, unless the access says otherwise, and starting;
        the plan has its own.
        """
        answer_within = access.answer_within if isinstance(access, SSHAccess) else None
        link = await SSHLink.open(access, answer_within or within)
        node = (
            f"{root(access.directory)}; node=$root/nodes/{environment.get('SKYWARD_POOL', '')}.{secrets.token_hex(6)}"
        )
        try:
            python, variables = await _prepare(access, link, plan, report)
            if report is not None:
                report(PhaseEvent("started", "worker"))
            async with asyncio.timeout(within):
                hello = await _start(access, link, {**variables, **environment}, node, python)
            for sentence in Mismatches(Facts(hello.python, python, {}, {}), access.target).at_join():
                _logger.warning(sentence)
            return cls(access, link, hello, node, python)
        except BaseException as error:
            full = await full_disk(access, link, str(error)) if isinstance(error, NodeStartError | TimeoutError) else ""
            ended = await run_to_completion(_stop(access, link, node))
            if full:
                log = error.log if isinstance(error, NodeStartError) else ""
                raise NodeStartError(f"{full}:\n{error}" if isinstance(error, BootstrapError) else full, log) from None
            if not isinstance(error, TimeoutError | LinkError):
                raise
            late = f"the worker on {access.target} did not come up within {within:.0f} s"
            said = late if isinstance(error, TimeoutError) else str(error)
            raise (NodeStartError(said) if ended else StrayWorkerError(said, "", node)) from None

    @classmethod
    async def enter(cls, access: RemoteAccess, worker: WorkerEntry, within: float) -> Self:
        """A worker that another process has started.

        Raises:
            NodeStartError: it is not there any more.
        """
        link = await SSHLink.open(access, within)
        try:
            async with asyncio.timeout(within):
                done = await link.run("sh", (_WORKER + _LOOK.format(node=worker.directory)).encode())
                if done.status:
                    raise NodeStartError(f"the worker on {access.target} is gone: nobody spoke to it for too long")
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

    async def exited(self) -> str:
        """Why it ended, or was lost, once it has."""
        while not self._link.lost.done():
            try:
                done = await self._link.run("exec sh", _WATCH.format(node=self._node).encode())
            except LinkError:  # it is made again, or lost
                await asyncio.sleep(_WATCH_AGAIN)
            else:
                return _reason(done.out.strip())
        return self._link.lost.result()

    async def answers(self) -> bool:
        """Return whether its machine is reached now, and was for so long that the worker would have been heard."""
        since = self._link.since
        if asyncio.get_running_loop().time() - since < _STEADY_FOR:
            return False
        with contextlib.suppress(LinkError, TimeoutError):
            async with asyncio.timeout(_ANSWERS_WITHIN):
                await self._link.run("exec true")
            await asyncio.sleep(_HEARD_WITHIN)
            return self._link.since == since
        return False

    async def facts(self) -> Facts | None:
        """What its environment is made of, found out now; None where it cannot be."""
        if self._python is None:
            return None
        with contextlib.suppress(LinkError, LookupError, ValueError):
            done = await self._link.run("sh", f"exec {shlex.quote(self._python)} -c '{_FACTS}'".encode())
            return read_facts(json.loads(done.out.splitlines()[-1]))
        return None

    async def reach(self, address: str) -> str:
        """Where to connect here, as `host:port`, to reach another address of its machine, which may be its own."""
        return await self._link.tunnel(*_split(address), _interpreter(self.hello.pid))

    def dial(self, address: str) -> str:
        """Where to connect here now, as `host:port`, to reach an address that `reach` was called for, or its own."""
        return self._link.dial(*_split(address))

    async def stop(self) -> bool:
        """End it and every process of its session; False where it could not be reached. Twice does no harm."""
        return await run_to_completion(_stop(self._access, self._link, self._node))

    async def leave(self) -> None:
        """Let go of it; it runs on."""
        await run_to_completion(self._link.close())


async def end_workers(access: RemoteAccess, pool: str, within: float) -> None:
    """End every worker of a pool on one machine, whoever started it.

    Raises:
        NodeStartError: the machine cannot be reached.
    """
    link = await SSHLink.open(access, within)
    try:
        async with asyncio.timeout(within):
            await link.run("sh", (_WORKER + _END.format(root=root(access.directory), pool=pool)).encode())
    except (LinkError, TimeoutError) as error:
        raise NodeStartError(f"{access.target} did not answer: {error}") from None
    finally:
        await run_to_completion(link.close())


async def end_stray(access: RemoteAccess, node: str, lease: float) -> None:
    """End a worker that was out of reach when it was to end, as soon as it is not; nothing, once it has ended itself.

    Args:
        node: as `SSHWorker` has it.
        lease: seconds of the pool's.
    """
    until = time.monotonic() + _lease(access, lease) + _FINISHES_WITHIN
    with contextlib.suppress(NodeStartError):
        while (within := until - time.monotonic()) > 0:
            if await run_to_completion(_stop(access, await SSHLink.open(access, within), node)):
                _logger.info("the worker on %s, which had been replaced, was ended", access.target)
                return


async def _stop(access: RemoteAccess, link: SSHLink, node: str) -> bool:
    """End what runs in a node's directory, and the link; whether that was possible."""
    ended = False
    try:
        if not link.lost.done():
            async with asyncio.timeout(_STOP_WITHIN):
                await link.run("sh", (_WORKER + _STOP.format(node=node)).encode())
                ended = True
    except (LinkError, TimeoutError) as error:
        _logger.info("the worker on %s is out of reach: %s", access.target, error)
    await link.close()
    return ended


def _lease(access: RemoteAccess, wanted: float) -> float:
    return max(wanted, access.grace + LEASE_BEYOND_GRACE)


async def _prepare(
    access: RemoteAccess, link: SSHLink, plan: Plan | None, report: Callable[[PhaseEvent], None] | None
) -> tuple[str, dict[str, str]]:
    """The interpreter of the worker, and variables that it needs."""
    if access.python is not None:
        return access.python, {}
    if plan is None:
        raise NodeStartError(f"{access.target} has no environment for the worker: name one, `python='/path/to/python'`")
    ready = await bootstrap(link, plan, report)
    return ready.facts.executable, worker_environment(plan, ready)


async def _start(access: RemoteAccess, link: SSHLink, environment: Mapping[str, str], node: str, python: str) -> Hello:
    """Where it listens, once it does."""
    lease = _lease(access, float(environment.get("SKYWARD_LEASE", 0)))
    variables = {"SKYWARD_HOST": "127.0.0.1", **environment, "SKYWARD_LEASE": f"{lease:g}"}
    script = (
        _BORN
        + _SWEEP
        + _START.format(
            node=node,
            exports="\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items()),
            python=shlex.quote(python),
            ended=_ENDED,
            looks=_MANY_LOOKS,
        )
    )
    done = await link.run("sh", script.encode())  # as its input: what a command says, others on the machine can see
    if done.status:
        said = (done.out + done.err).strip()
        head, *lines = said.splitlines() or [f"the worker did not start (status {done.status})"]
        head = head if lines else head.removesuffix(":")
        if done.status == _ENDED:
            head = re.sub(r"\((.*)\)", lambda found: f"({_ended(found[1])})", head)
        raise NodeStartError("\n".join((head, *lines[-_LOG_LINES:])), said)
    words = json.loads(done.out.splitlines()[-1])
    inside = _interpreter(words["pid"])
    await link.tunnel(*_split(words["address"]), inside)
    return _hello(done.out, await link.socket(*_split(words["bulk"]), inside), node)


def _hello(said: str, bulk: str, node: str) -> Hello:
    """What a machine `said` of its worker in the last two lines; `bulk` is the tunnel to its bulk path."""
    connection, hello = said.splitlines()[-2:]
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
        words["python"],
    )


def _interpreter(pid: int) -> str:
    """What runs a process of the machine, for tunnels that take it: its Python, wherever that is."""
    return f"/proc/{pid}/exe"


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _reason(status: str) -> str:
    """Return why a worker ended whose shell noted `status`."""
    if not status.isdigit():
        return "its machine was restarted"
    ended = _ended(status)
    return f"its process was {ended}" if ended.startswith("killed") else f"its process ended with {ended}"


def _ended(status: str) -> str:
    """Return how a process ended of which a shell noted `status`."""
    if not status.isdigit():
        return "killed, with the shell that waited for it"
    number = int(status)
    if number > 128:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(number - 128).name}"
    return f"status {number}"
