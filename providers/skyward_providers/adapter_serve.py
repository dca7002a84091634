"""A worker adapter for any provider: connects to a controller, starts and ends groups for it, and ends all at its exit.

The process that the user starts runs a second one, which does the work: if the first is killed, the second notices,
ends the groups and exits. So even SIGKILL leaves no groups behind.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn

from skyward.control.act.machines.booting import BOOT_TIMEOUT
from skyward.errors import SkywardError, SpecError
from skyward.journal import Claim
from skyward.link.adapters.registry import SILENCE
from skyward.link.adapters.server import AuthenticationError, MessageStream, dial
from skyward.market import SpecOffers, no_offer_fits, rank
from skyward.providers.protocol import ProviderConfig, acts_on, find_provider
from skyward.specs import Spec
from skyward.values.validation import FrozenMap, shown
from skyward.wire.protocol.adapter import (
    Answer,
    Goodbye,
    Heartbeat,
    Malformed,
    ShutdownWorkerGroup,
    StartWorkerGroup,
    UnknownCommand,
)
from skyward_providers.adapter import TOKEN_VARIABLE, keys_of, parse_address
from skyward_providers.adapter_groups import Groups

__all__ = ["main", "serve"]

GRACE = 30.0
"""Seconds without a controller after which the groups are ended."""

_HEARTBEAT = 2.0
_LOOK_EVERY = 10.0
"""Seconds between questions whether machines still exist."""

_RETRY = 0.2
_RETRY_MOST = 2.0


async def serve(
    provider: ProviderConfig,
    *,
    connect: str,
    token: str,
    max_groups: int = -1,
    workers_per_group: int = 1,
    spec: Spec | None = None,
    grace: float = GRACE,
    heartbeat: float = _HEARTBEAT,
    stop: "asyncio.Future[str] | None" = None,
    say: Callable[[str], object] = lambda _: None,
) -> None:
    """Run an adapter for `provider`, for one controller after another, until `stop` has a result or this is cancelled.

    Every group is ended before this returns or raises.

    Args:
        provider: settings of the provider.
        connect: "host:port" of the controller.
        token: secret shared with the controller.
        max_groups: maximum number of groups; -1 for no limit.
        workers_per_group: slots of a node.
        spec: spec of each node, with its maximum price.
        grace: seconds without a controller after which the groups are ended.
        heartbeat: seconds between heartbeats.
        stop: future whose result, a reason, ends the adapter.
        say: called with messages about the progress.

    Raises:
        AuthenticationError: the controller does not accept the token.
        SkywardError: the provider has no offer that fits.
    """
    host, port = parse_address(connect, "connect")
    client, spec = provider.create_provider(), spec or Spec()
    listed, acted_on = [each async for each in client.offers()], acts_on(provider)
    asked = [SpecOffers(spec, provider.name, listed, acted_on.fields, acted_on.lacks)]
    ranking = rank(asked)
    if not ranking.candidates:
        raise no_offer_fits(asked, ranking, {})
    best = ranking.candidates[0]
    offer, spec, price = best.offer, replace(spec, allocation=best.market), best.hourly_price or 0.0
    name = f"{provider.name}-{os.urandom(4).hex()}"
    kind = offer.instance_type
    resources = {"CPU": kind.vcpus, "memory": kind.memory_gb, "GPU": kind.accelerator_count, **spec.node_resources}
    boot_within = float(getattr(provider, "boot_timeout", BOOT_TIMEOUT))
    claim = Claim.new(f"{name}-{os.urandom(5).hex()}")  # what is left of a killed process is swept
    identity = replace(claim.identity, derive=keys_of(token))  # so the controller has its keys too
    groups = Groups(name, identity, client, spec, offer, max_groups, workers_per_group, boot_within)
    announcement = Heartbeat(
        name,
        max_groups,
        workers_per_group,
        spec.node_capabilities,
        FrozenMap({key: float(amount) for key, amount in resources.items() if amount}),
        price,
    )
    session = _Session(groups, announcement, host, port, token, grace, heartbeat, say)
    work = asyncio.create_task(session.run())
    try:
        ends: list[asyncio.Future[Any]] = [work] if stop is None else [work, stop]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    finally:
        reason = stop.result() if stop is not None and stop.done() and not stop.cancelled() else "it ended"
        try:
            await session.end(reason, work)
        except BaseException:
            claim.release()
            raise
        claim.end()


class _Session:
    """Successive connections of one adapter to its controller."""

    def __init__(
        self,
        groups: Groups,
        announcement: Heartbeat,
        host: str,
        port: int,
        token: str,
        grace: float,
        heartbeat: float,
        say: Callable[[str], object],
    ) -> None:
        self._groups = groups
        self._announcement = announcement
        self._controller = (host, port, token)
        self._grace = grace
        self._heartbeat = heartbeat
        self._say = say
        self._lines: MessageStream | None = None
        self._working: set[asyncio.Task[None]] = set()
        self._last_message_at = 0.0
        self._over = False

    async def run(self) -> NoReturn:
        """Connect and serve, repeatedly."""
        loop, wait = asyncio.get_running_loop(), _RETRY
        while True:
            try:
                lines = await dial(*self._controller)
            except OSError:
                pass
            else:
                await self._talk(lines)
                wait = _RETRY
            if self._groups.has_anything and (self._over or loop.time() > self._last_message_at + self._grace):
                if self._groups.ids:
                    why = "it has released them" if self._over else f"it has been gone for {self._grace:g} s"
                    self._say(f"ending the {len(self._groups.ids)} groups of the controller: {why}")
                await self._end_groups()
            await asyncio.sleep(wait)
            wait = min(wait * 1.5, _RETRY_MOST)

    async def _talk(self, lines: MessageStream) -> None:
        """Serve one connection until it ends."""
        loop = asyncio.get_running_loop()
        self._lines, self._last_message_at, self._over = lines, loop.time(), False
        self._say(f"{self._announcement.adapter_id} is connected to {self._controller[0]}:{self._controller[1]}")
        beating = loop.create_task(self._beat(lines))
        why = "it ended"
        try:
            while True:
                async with asyncio.timeout(SILENCE):  # a controller echoes every heartbeat
                    message = await lines.read()
                self._last_message_at = loop.time()
                match message:
                    case StartWorkerGroup() | ShutdownWorkerGroup() | UnknownCommand():
                        self._obey(message)
                    case Goodbye(reason, ends_groups):
                        why, self._over = reason, ends_groups
                        break
        except (OSError, TimeoutError, Malformed) as error:
            why = str(error) or "the controller is silent"
        finally:
            self._lines = None
            beating.cancel()
            await lines.close()
        self._say(f"the connection to the controller ended: {why}")

    async def _beat(self, lines: MessageStream) -> None:
        looked_at = asyncio.get_running_loop().time()
        while True:
            if (now := asyncio.get_running_loop().time()) > looked_at + _LOOK_EVERY:
                looked_at = now
                await self._groups.drop_ended()
            lines.send(replace(self._announcement, worker_group_ids=self._groups.ids))
            await asyncio.sleep(self._heartbeat)

    def _obey(self, command: StartWorkerGroup | ShutdownWorkerGroup | UnknownCommand) -> None:
        async def work() -> None:
            await self._groups.obey(command, self._answer)

        task = asyncio.get_running_loop().create_task(work())
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    def _answer(self, answer: Answer) -> None:
        """Send an answer. Without a connection, the controller repeats its command in the next one."""
        if answer.reason:
            self._say(f"{answer.command} {answer.worker_group_id}: {answer.status}, {answer.reason}")
        if self._lines is not None:
            self._lines.send(answer)

    async def _end_groups(self) -> None:
        """End every group, including those that are being started."""
        self._groups.abort_boots()
        await asyncio.gather(*self._working, return_exceptions=True)
        await self._groups.end()

    async def end(self, reason: str, work: "asyncio.Task[NoReturn]") -> None:
        """Send `Goodbye`; terminate all groups."""
        if self._lines is not None:
            self._lines.hang_up(reason, ends_groups=True)
        work.cancel()
        await asyncio.wait([work])
        await self._end_groups()


# The command.


class _Parser(argparse.ArgumentParser):
    """Argument parser that reports an error in one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"adapter: {message}; --help shows every option.\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m skyward_providers.adapter",
        description="Offer the machines of a provider to a pool in another process, for as long as it needs them.",
        epilog=f"The token is taken from the environment variable {TOKEN_VARIABLE}.",
    )
    parser.add_argument("--connect", metavar="HOST:PORT", required=True, help="address at which the pool listens")
    parser.add_argument("--provider", metavar="NAME", default="local", help="provider of the machines (local)")
    parser.add_argument("--setting", metavar="NAME=JSON", action="append", default=[], help="a setting of the provider")
    parser.add_argument("--spec", metavar="NAME=JSON", action="append", default=[], help="a field of their spec")
    parser.add_argument("--max-groups", metavar="N", type=int, default=-1, help="maximum number of groups (no limit)")
    parser.add_argument("--workers", metavar="N", type=int, default=1, help="slots of each group (1)")
    parser.add_argument("--grace", metavar="S", type=float, default=GRACE, help="seconds that groups outlive the pool")
    parser.add_argument("--keep", action="store_true", help=argparse.SUPPRESS)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return its exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    given = _parser().parse_args(words)
    try:
        if not os.environ.get(TOKEN_VARIABLE):
            raise SpecError(f"set {TOKEN_VARIABLE} to the token of the pool.")
        if given.max_groups < -1 or given.workers < 1 or not given.grace >= 0:
            raise SpecError("--max-groups must be at least 0, --workers at least 1, and --grace no less than 0.")
        provider = find_provider(given.provider)(**_values(given.setting, "--setting"))
        spec = Spec(**_values(given.spec, "--spec"))
        return asyncio.run(_keep(given, provider, spec)) if given.keep else _front(words)
    except (SkywardError, AuthenticationError) as error:
        _say(str(error))
        return 2


def _values(pairs: Sequence[str], option: str) -> dict[str, Any]:
    """Parse NAME=JSON pairs to keyword arguments; a value that is not JSON is a text."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise SpecError(f"{option} must be NAME=JSON, but got {shown(pair)}.")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


def _say(text: str) -> None:
    with suppress(OSError, ValueError):
        sys.stderr.write(f"adapter: {text}\n")
        sys.stderr.flush()


def _front(words: Sequence[str]) -> int:
    """Run the worker process, and pass signals on as a request to stop."""
    received: list[int] = []
    keeper: subprocess.Popen[bytes] | None = None

    def stop(number: int, _: object) -> None:
        received.append(number)
        if keeper is not None and keeper.stdin is not None:
            with suppress(OSError, ValueError):
                keeper.stdin.write(b"stop")
                keeper.stdin.close()

    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, stop)
    command = [sys.executable, "-m", "skyward_providers.adapter", *words, "--keep"]
    keeper = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    if received:
        stop(received[0], None)
    status = keeper.wait()
    if status < 0:
        _say(f"The adapter was killed by {signal.Signals(-status).name}; its groups may still run: check the provider")
        return 1
    return status


async def _keep(given: argparse.Namespace, provider: ProviderConfig, spec: Spec) -> int:
    """Serve until the parent process sends a request to stop, or dies."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def end() -> str:
        return "it was told to stop" if await reader.read() else "its process was killed"

    stop = loop.create_task(end())
    try:
        await serve(
            provider,
            connect=given.connect,
            token=os.environ[TOKEN_VARIABLE],
            max_groups=given.max_groups,
            workers_per_group=given.workers,
            spec=spec,
            grace=given.grace,
            stop=stop,
            say=_say,
        )
    finally:
        stop.cancel()
        pipe.close()
    return 0
