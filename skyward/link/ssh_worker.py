"""A worker on a machine that is entered over SSH.

It is no child of our connection: a link that is cut does not end it. What ends it is we, or its lease, when nobody has
spoken to it for so long that we must be gone (`worker.lease`).
"""

import asyncio
import contextlib
import json
import logging
import secrets
import shlex
import signal
from collections.abc import Mapping
from typing import Self

from skyward.errors import NodeStartError
from skyward.link.hello import Hello
from skyward.link.ssh import SSHLink
from skyward.link.ssh_transport import LinkError, to_the_end
from skyward.provider import SSHAccess

__all__ = ["SSHWorker"]

LEASE_BEYOND_GRACE = 30.0
"""Seconds that a worker waits for its client, at least, beyond those that the client waits for the machine."""

_STOP_WITHIN = 5.0

_logger = logging.getLogger(__name__)

_START = """
set -u
umask 077
{node}
mkdir -p "$node/work" && cd "$node/work" && mkfifo ../life || exit
export SKYWARD_SCRATCH="$node"
{exports}
{{
  sh -c 'echo $$ >../pid && exec "$0" -m skyward.worker' {python} >../hello 2>../log </dev/null 9>&-
  echo $? >../status
}} 9<>../life >/dev/null 2>&1 &
until [ -s ../hello ]; do
  if [ -s ../status ]; then
    echo "the worker ended as it started (status $(cat ../status)):"
    tail -n 20 ../log
    exit 3
  fi
  sleep 0.02 || sleep 1
done
echo "$SSH_CONNECTION"
cat ../hello
"""
"""Descriptor 9 keeps the pipe `life` open for as long as the worker lives, so whoever reads it sees its end."""

_WATCH = """
{node}
cd "$node" 2>/dev/null || exit 4
exec 8<>life 7<life 8>&-
cat <&7
cat status
"""
"""The pipe is opened for reading while it is surely open for writing too, which never waits, then read to its end."""


_STOP = """
{node}
pid=$(cat "$node/pid" 2>/dev/null) && {{ kill -KILL "-$pid" || kill -KILL "$pid"; }} 2>/dev/null
rm -rf "$node"
"""


class SSHWorker:
    """The worker, and the link to its machine. `node` sets the shell's variable of that name to its directory."""

    def __init__(self, access: SSHAccess, link: SSHLink, hello: Hello, node: str) -> None:
        self.hello = hello
        self._access = access
        self._link = link
        self._node = node

    @classmethod
    async def start(cls, access: SSHAccess, environment: Mapping[str, str], within: float) -> Self:
        """See `launch.start_worker`."""
        deadline = asyncio.get_running_loop().time() + within
        link = await SSHLink.open(access, within)
        node = f"{_root(access.directory)}; node=$root/nodes/{secrets.token_hex(6)}"
        try:
            async with asyncio.timeout_at(deadline):
                return cls(access, link, await _start(access, link, environment, node), node)
        except BaseException as error:
            await to_the_end(_stop(access, link, node))
            if isinstance(error, TimeoutError):
                raise NodeStartError(f"the worker on {access.target} did not come up within {within:.0f} s") from None
            if isinstance(error, LinkError):
                raise NodeStartError(str(error)) from None
            raise

    async def exited(self) -> str:
        """Why it ended, or was lost, once it has."""
        while not self._link.lost.done():
            with contextlib.suppress(LinkError):  # it is made again, or lost
                done = await self._link.run("sh", _WATCH.format(node=self._node).encode())
                return _reason(done.out.strip())
        return self._link.lost.result()

    async def stop(self) -> None:
        """End it and every process of its session. Twice does no harm."""
        await to_the_end(_stop(self._access, self._link, self._node))


async def _stop(access: SSHAccess, link: SSHLink, node: str) -> None:
    """End what runs in a node's directory, and the link."""
    try:
        if not link.lost.done():
            async with asyncio.timeout(_STOP_WITHIN):
                await link.run("sh", _STOP.format(node=node).encode())
    except (LinkError, TimeoutError) as error:
        _logger.info("the worker on %s is left to its lease: %s", access.target, error)
    await link.close()


async def _start(access: SSHAccess, link: SSHLink, environment: Mapping[str, str], node: str) -> Hello:
    """Where it listens, once it does."""
    if access.python is None:
        raise NodeStartError(f"{access.target} has no environment for the worker: name one, `python='/path/to/python'`")
    lease = max(float(environment.get("SKYWARD_LEASE", 0)), access.grace + LEASE_BEYOND_GRACE)
    variables = {"SKYWARD_HOST": "127.0.0.1", **environment, "SKYWARD_LEASE": f"{lease:g}"}
    script = _START.format(
        node=node,
        exports="\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items()),
        python=shlex.quote(access.python),
    )
    done = await link.run("sh", script.encode())  # as its input: what a command says, others on the machine can see
    if done.status:
        raise NodeStartError((done.out + done.err).strip() or f"the worker did not start (status {done.status})")
    connection, hello = done.out.splitlines()[-2:]
    words = json.loads(hello)
    address, bulk = words["address"], words["bulk"]
    dial, bulk_dial = [await link.tunnel(*_split(each)) for each in (address, bulk)]
    return Hello(address, bulk_dial, words["pid"], dial, connection.split()[2])


def _root(directory: str | None) -> str:
    """The shell's assignment of our directory on the machine to `root`."""
    if directory is None:
        return '[ "$(id -u)" = 0 ] && root=/opt/skyward || root=$HOME/.skyward'
    if directory.startswith("~/"):
        return f"root=$HOME/{shlex.quote(directory[2:])}"
    return f"root={shlex.quote(directory)}"


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _reason(status: str) -> str:
    """Why a worker ended whose shell noted `status`."""
    if not status.isdigit():
        return "its machine was restarted"
    number = int(status)
    if number > 128:
        with contextlib.suppress(ValueError):
            return f"its process was killed by {signal.Signals(number - 128).name}"
    return f"its process ended with status {number}"
