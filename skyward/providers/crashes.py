"""Check that nothing is left of a client that is killed: its cloud is cleaned up as the reaper does it.

The clients are processes of their own, so the settings of the provider must be importable and picklable, as for the
journal.
"""

import asyncio
import itertools
import os
import pickle
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from skyward.providers.conformance import OWNER, conformance_identity
from skyward.providers.protocol import Cluster, Offer, ProviderConfig, SweepableProvider
from skyward.specs import Spec

__all__ = ["check_crashes", "serve"]

_PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class _Work:
    """The work of each client: it launches machines, and removes them.

    Attributes:
        spec, offer, machines: the machines.
        folder: a folder for key files, and the clusters that clients have got.
    """

    spec: Spec
    offer: Offer
    machines: int
    folder: Path

    @property
    def config(self) -> ProviderConfig:
        """The settings of the provider."""
        config: ProviderConfig = self.spec.provider  # type: ignore[assignment]  # check_crashes has set it
        return config

    def record(self, pool: str) -> Path:
        """Return the file with the cluster of a pool."""
        return self.folder / f"{pool}.cluster"


async def check_crashes(
    config: ProviderConfig,
    folder: Path,
    *,
    machines: int = 2,
    kills: int = 40,
    spec: Spec | None = None,
    choose: Callable[[Sequence[Offer]], Offer] = lambda offers: offers[0],
    left: Callable[[], Collection[object]] = tuple,
    settled: float = 0.2,
    within: float = 60.0,
) -> int:
    """Kill clients of a provider between `prepare` and `teardown`, and clean up after each as the reaper does.

    A client can be killed between operations, and wherever one waits: for an answer, the clock, or a thread. Return how
    many such steps a whole life has.

    Args:
        folder: a temporary folder for key files and clusters.
        machines: number of machines of each client.
        kills: number of clients that are killed, at most, at even intervals.
        spec: the machines to launch; its provider is replaced by `config`.
        choose: returns the offer to launch from. Its first market is used.
        left: returns what exists in a fake cloud, beside what the provider's `leftovers` lists.
        settled: seconds within which the cloud lists what a client requested before it was killed.
        within: seconds for the machines of a client to be gone.

    Raises:
        AssertionError: something is left.
    """
    offer = choose([offer async for offer in config.create_provider().offers()])
    spec = replace(spec or Spec(), provider=config, allocation=offer.markets[0])
    work = _Work(spec, offer, machines, folder)
    paths = os.pathsep.join(filter(None, sys.path))
    clients = await asyncio.create_subprocess_exec(
        sys.executable, "-c", f"from {__name__} import serve; serve()", stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip  # one option a line would hide the command
    assert clients.stdin is not None
    try:
        packed = pickle.dumps(work)
        clients.stdin.write(len(packed).to_bytes(8) + packed)
        status, steps = await _run(clients, work, "whole", -1, settled, within)
        assert not left(), f"something is left after the life of a client: {left()}"
        assert status == 0, "a client that is not killed fails; its traceback is on stderr"
        count = min(kills, steps)
        for at in sorted({steps * each // count for each in range(count)}):
            status, _ = await _run(clients, work, f"killed-{at}", at, settled, within)
            assert status in (0, -signal.SIGKILL), f"a client fails before its step {at}; see its traceback on stderr"
            assert not left(), f"something is left after a client was killed at step {at} of {steps}: {left()}"
        return steps
    finally:
        clients.stdin.close()
        await clients.wait()


async def _run(
    clients: asyncio.subprocess.Process, work: _Work, pool: str, at: int, settled: float, within: float
) -> tuple[int, int]:
    """Run a client that is killed at a step, clean up, and return its exit status and the number of its steps."""
    assert clients.stdin is not None
    assert clients.stdout is not None
    clients.stdin.write(f"{at} {pool}\n".encode())
    status, steps = map(int, (await clients.stdout.readline()).split())
    where = f"after a client was killed at step {at} of its life" if at >= 0 else "after the life of a client"
    await _reap(work, pool, settled, within, where)
    return status, steps


async def _reap(work: _Work, pool: str, settled: float, within: float, where: str) -> None:
    provider, identity = work.config.create_provider(), conformance_identity(pool, work.folder)
    if (record := work.record(pool)).exists():
        cluster: Cluster = pickle.loads(record.read_bytes())
    else:
        cluster = await provider.prepare(work.spec, work.offer, identity)
        cluster = replace(cluster, tags=identity.tags)
    began = time.monotonic()
    while True:
        if found := [each.id for each in await provider.find(cluster)]:
            assert time.monotonic() - began < within, f"machines are left {where}, although terminated: {found}"
            await provider.terminate(cluster, found)
        elif time.monotonic() - began >= settled:
            break
        await asyncio.sleep(_PAUSE)
    await provider.teardown(cluster)
    if isinstance(provider, SweepableProvider):
        left = await provider.leftovers(OWNER)
        assert not left, f"resources are left {where}: {[(each.kind, each.id) for each in left]}"


# In the process of the clients.


def serve() -> None:
    """Fork a client for each line on stdin; write its exit status and the number of its steps to stdout."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the provider prints
    commands = sys.stdin.buffer
    work: _Work = pickle.loads(commands.read(int.from_bytes(commands.read(8))))
    work.config.create_provider()  # its SDK is loaded once
    for line in commands:
        at, pool = line.decode().split()
        reading, writing = os.pipe()
        if not (client := os.fork()):
            _be_client(work, pool, int(at), writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as steps:
            counted = steps.read()
        status = os.waitstatus_to_exitcode(os.waitpid(client, 0)[1])
        answers.write(f"{status} {int(counted or b'0')}\n")


def _be_client(work: _Work, pool: str, at: int, steps: int) -> None:
    """Live as a client that is killed at a step; end this process."""
    try:
        taken = itertools.count()

        def step() -> None:
            if next(taken) == at:
                os.kill(os.getpid(), signal.SIGKILL)

        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            loop.set_task_factory(
                lambda loop, coroutine, **options: asyncio.Task(_stepped(coroutine, step), loop=loop, **options)
            )
            runner.run(_live(work, pool))
        os.write(steps, str(next(taken)).encode())
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


async def _live(work: _Work, pool: str) -> None:
    """Launch machines and remove them, with the cluster on record as in the journal, and a step between operations."""
    provider, identity = work.config.create_provider(), conformance_identity(pool, work.folder)
    cluster = await provider.prepare(work.spec, work.offer, identity)
    await asyncio.sleep(0)
    _record(work, pool, replace(cluster, tags=identity.tags))
    cluster = replace(cluster, tags={**identity.tags, "skyward-request": f"request-{pool}"})
    await asyncio.sleep(0)
    cluster, machines = await provider.provision(cluster, work.machines)
    await asyncio.sleep(0)
    _record(work, pool, replace(cluster, tags=identity.tags))
    await provider.get_instance(cluster, machines[0].id)
    for ids in (machines[:1], machines[1:]):
        await asyncio.sleep(0)
        await provider.terminate(cluster, [each.id for each in ids])
    await asyncio.sleep(0)
    await provider.teardown(cluster)


def _record(work: _Work, pool: str, cluster: Cluster) -> None:
    file = work.record(pool)
    partial = file.with_suffix(".partial")
    partial.write_bytes(pickle.dumps(cluster))
    partial.replace(file)


async def _stepped[T](coroutine: Coroutine[Any, Any, T], step: Callable[[], None]) -> T:
    step()
    result = await _Steps(coroutine, step)
    step()
    return result


class _Steps[T](Awaitable[T]):
    """Awaits a coroutine, and calls `step` whenever that waits."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], step: Callable[[], None]) -> None:
        self._coroutine = coroutine
        self._step = step

    def __await__(self) -> Generator[Any, Any, T]:
        error: BaseException | None = None
        while True:
            try:
                waited = self._coroutine.send(None) if error is None else self._coroutine.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            self._step()
            error = None
            try:
                yield waited
            except GeneratorExit:
                self._coroutine.close()
                raise
            except BaseException as thrown:  # such as the cancellation of its task
                error = thrown
