"""The worker process of a node: `python -m skyward.worker.supervisor`, configured by its environment.

The worker listens on `SKYWARD_HOST`, at `SKYWARD_PORT` or at any free port, and prints its addresses on standard output
as one line of JSON. It ends on request, or when the process that started it is gone: when standard input reaches its
end, or, with a lease, when no message of the pool has arrived for that long and the running tasks have finished.

Environment:
    SKYWARD_NODE_ID, SKYWARD_HOST, SKYWARD_PORT, SKYWARD_WORKERS_PER_NODE, SKYWARD_WORKER_EXECUTOR: as they say.
    SKYWARD_METRICS: seconds between samples of the machine.
    SKYWARD_METRICS_SCOPE: scope of the samples, the machine or the worker's processes.
    SKYWARD_LEASE: seconds of the lease.
    SKYWARD_BACKLOG: bytes of task output that may wait on disk while no client listens.
    SKYWARD_SCRATCH: directory to remove where the process that started the worker is gone and cannot remove it.
    SKYWARD_SHARED_FILES: set where the worker has the disk of its client.
    SKYWARD_PLUGINS: set where plugins are around the tasks: no task runs before the client has told which.
    SKYWARD_CACHES: folder for the caches of frameworks.
    SKYWARD_LOCKS: files to hold a shared lock on, one a line.
    SKYWARD_PIP: requirements that were installed for the worker, as JSON.
    SKYWARD_APT: system packages that were requested and not installed.
    SKYWARD_SECRETS: secrets that authenticate the worker and its client to each other. Removed once they are read, so
        that no task inherits them.
"""

import asyncio
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Thread  # tasks may replace the attributes of the module
from typing import Literal

from casty import ActorSystem, Cluster, Runtime

from skyward.caches.users import use_caches
from skyward.kept.keep import set_store
from skyward.process.background import new_event_loop
from skyward.process.clock import clock
from skyward.process.switch_interval import short_switch_interval
from skyward.task.collections.base import install_collections
from skyward.wire.payloads.pickler import track_classes_by_call
from skyward.wire.protocol.mailbox import LIMITS, receive_with
from skyward.wire.protocol.messages import Commands, Exchange, ReclaimNotice
from skyward.wire.transport.secrets import SECRETS_VARIABLE, take
from skyward.wire.transport.trust import NodeSecrets, presented
from skyward.worker.blobs.bulk import BulkServer
from skyward.worker.events.backlog import Backlog
from skyward.worker.events.context import current_task_number
from skyward.worker.events.flush import run_exit_functions
from skyward.worker.events.output import capture_descriptors
from skyward.worker.events.streams import replace_streams
from skyward.worker.machine.hardware import gpus, memory_gb, vcpus
from skyward.worker.machine.notices import start_watching_notices
from skyward.worker.machine.sampling import start_sampling
from skyward.worker.runtime.agent import Agent
from skyward.worker.runtime.connection_limit import ConnectionLimit, raise_descriptor_limit
from skyward.worker.runtime.directory_lock import hold
from skyward.worker.runtime.lease import Lease
from skyward.worker.supervisor import BEAT, beat
from skyward.worker.tasks.folder import remember
from skyward.worker.tasks.threads import bind_threads

_EXIT_WITHIN = 2.0
"""Seconds until a worker that was asked to end exits, whatever its tasks do."""

_FLUSH_WITHIN = 300.0
"""Seconds until the volumes of a worker must be flushed once its lease is over."""

_read, _write = os.read, os.write  # tasks may replace the attributes of the module


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a worker, from its environment."""

    node: int
    host: str
    port: int
    slots: int
    processes: bool
    secrets: NodeSecrets
    scratch: Path | None
    lease: float | None
    metrics: float
    scope: Literal["machine", "processes"]
    backlog: int
    notices: str
    has_plugins: bool

    @classmethod
    def from_environment(cls) -> "Settings":
        """Read the environment, and remove the secrets from it."""
        env = os.environ
        return cls(
            node=int(env["SKYWARD_NODE_ID"]),
            host=env.get("SKYWARD_HOST", "127.0.0.1"),
            port=int(env.get("SKYWARD_PORT", "0")),
            slots=int(env.get("SKYWARD_WORKERS_PER_NODE", "1")),
            processes=env.get("SKYWARD_WORKER_EXECUTOR", "thread") == "process",
            secrets=NodeSecrets.read(take(SECRETS_VARIABLE)),
            scratch=Path(env["SKYWARD_SCRATCH"]) if "SKYWARD_SCRATCH" in env else None,
            lease=float(env["SKYWARD_LEASE"]) if "SKYWARD_LEASE" in env else None,
            metrics=float(env.get("SKYWARD_METRICS", "0")),
            scope="processes" if env.get("SKYWARD_METRICS_SCOPE") == "processes" else "machine",
            backlog=int(env.get("SKYWARD_BACKLOG", "0")),
            notices=env.get("SKYWARD_NOTICES", ""),
            has_plugins=bool(env.get("SKYWARD_PLUGINS")),
        )


def _ignore(_: object) -> None:
    """Discard the engine's own reports: they are not output of a task."""


async def _listen(settings: Settings, agent: Agent, announce: int, ended: asyncio.Event) -> None:
    """Serve the engine until `ended`; write the addresses to descriptor `announce` once it listens."""
    receive_with(agent.receive if settings.lease is None else _leased(settings, agent, settings.lease))
    agent.replies.beat()
    bulk = BulkServer(settings.host, settings.secrets.key, agent.store, agent.incoming)
    async with contextlib.AsyncExitStack() as stack:
        with presented(settings.secrets.credentials) as tls:
            cluster = Cluster(bind=f"{settings.host}:{settings.port}", tls=tls, limits=LIMITS)
            system = ActorSystem(cluster=cluster, runtime=Runtime(threads=1), observer=_ignore)
            await stack.enter_async_context(system)
        address = system.node.address or ""
        ConnectionLimit(lambda: (address, agent.cluster.address)).start()
        hello = {
            "address": address,
            "bulk": bulk.address,
            "pid": os.getpid(),
            "python": sys.version.split()[0],
            "vcpus": vcpus(),
            "memory_gb": memory_gb(),
            "gpus": gpus(),
        }
        with os.fdopen(announce, "w") as out:
            out.write(json.dumps(hello) + "\n")
        await ended.wait()


def _leased(settings: Settings, agent: Agent, seconds: float) -> Callable[[Commands | Exchange], None]:
    """Return the receiver of messages for a worker with a lease, which each message renews."""
    descriptor = os.environ.pop(BEAT, None)
    lease = Lease(
        seconds,
        lambda: agent.idle,
        lambda: _leave(agent, settings.scratch),
        renewed=lambda: None if descriptor is None else _beat(int(descriptor), lease.longest),
    )
    agent.set_lease = lease.change
    lease.start()

    def receive(message: Commands | Exchange) -> None:
        lease.renew()
        agent.receive(message)

    return receive


def _beat(descriptor: int, longest: float) -> None:
    """Tell the supervisor that the lease was renewed, and how many seconds from now the worker may have tasks."""
    with contextlib.suppress(OSError):
        _write(descriptor, beat(longest))


def _take_lifeline() -> int:
    """Return a descriptor that ends with the process that started us; standard input is empty for tasks from now on."""
    lifeline = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return lifeline


def _end_with_parent(agent: Agent, lifeline: int, scratch: Path | None) -> None:
    """End the worker when `lifeline` ends."""
    while _read(lifeline, 4096):
        continue
    _leave(agent, scratch)


def _leave(agent: Agent, scratch: Path | None) -> None:
    """End the worker, and remove its files."""
    if scratch is not None:
        shutil.rmtree(scratch, ignore_errors=True)
        with contextlib.suppress(OSError):  # not empty while other nodes of the pool exist
            scratch.parent.rmdir()
    agent.stop()
    Thread(target=_exit_in, args=(_EXIT_WITHIN, agent), name="skyward-exit", daemon=True).start()


def _exit_in(seconds: float, agent: Agent) -> None:
    clock.sleep(seconds)
    agent.wait_for_volumes(_FLUSH_WITHIN)
    os._exit(0)


def main() -> None:
    """Run the worker to its end."""
    settings = Settings.from_environment()
    remember()
    raise_descriptor_limit()
    hold(os.environ.pop("SKYWARD_LOCKS", ""))
    use_caches(os.environ.pop("SKYWARD_CACHES", ""))
    os.environ["SKYWARD_NODE"] = str(settings.node)
    os.environ["COMPUTE_POOL"] = (
        ""  # so that setting it later adds no variable, which would crash a process that is being started
    )
    announce = os.dup(1)
    loop = new_event_loop()
    backlog = Backlog(settings.backlog, settings.scratch)
    agent = Agent(
        loop,
        settings.node,
        settings.slots,
        backlog,
        processes=settings.processes,
        has_plugins=settings.has_plugins,
        scratch=settings.scratch,
    )
    set_store(agent.kept)
    install_collections(agent.cluster, current_task_number)
    bind_threads()
    track_classes_by_call()
    descriptors, agent.drain = capture_descriptors(agent.emit_output, agent.alone)
    replace_streams(agent.emit_output, agent.alone, agent.drain, descriptors.restore)
    ended = asyncio.Event()
    engine = Thread(
        target=loop.run_until_complete,
        args=(_listen(settings, agent, announce, ended),),
        name="skyward-engine",
        daemon=True,
    )
    engine.start()
    lifeline = _take_lifeline()
    if settings.lease is None:
        watch = (agent, lifeline, settings.scratch)
        Thread(target=_end_with_parent, args=watch, name="skyward-parent", daemon=True).start()
    if settings.metrics:
        start_sampling(settings.metrics, settings.scope, agent.emit_metrics)
    if settings.notices:
        start_watching_notices(settings.notices, lambda seconds: agent.emit_notice(ReclaimNotice(seconds)))
    agent.serve()
    run_exit_functions()
    agent.part()
    loop.call_soon_threadsafe(ended.set)
    engine.join(timeout=2.0)
    os._exit(0)  # a task's own threads must not keep the node alive


def run() -> None:
    """Run the worker with a short thread switch interval."""
    with short_switch_interval():
        main()


if __name__ == "__main__":
    run()
