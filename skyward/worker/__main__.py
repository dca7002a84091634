"""The worker process of a node: `python -m skyward.worker`, configured by its environment.

It listens on `SKYWARD_HOST`, at `SKYWARD_PORT` or wherever it can, and says where on one line of standard output, as
JSON. It ends when told to, or when whoever started it is gone. That is so when its standard input ends; or, with a
lease, when no message of the pool has come for so long, and what was running then is finished.

Environment: SKYWARD_NODE_ID, SKYWARD_HOST, SKYWARD_PORT, SKYWARD_WORKERS_PER_NODE, SKYWARD_WORKER_EXECUTOR;
SKYWARD_METRICS, seconds between looks at the machine, and SKYWARD_METRICS_SCOPE, of what; SKYWARD_LEASE, its seconds;
SKYWARD_BACKLOG, bytes of what tasks print that may wait on the disk while nobody listens; SKYWARD_SCRATCH, a directory
to remove when whoever started it is gone and cannot; SKYWARD_USES, files to hold, one a line; and SKYWARD_TOKEN, which
is forgotten as soon as it is read, so that no task inherits it.
"""

import asyncio
import contextlib
import hmac
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from casty import ActorSystem, Cluster, Runtime

from skyward.collections.base import set_here
from skyward.wire.brisk import brisk
from skyward.wire.loop import new_event_loop
from skyward.wire.mailbox import LIMITS, receive_with
from skyward.wire.messages import Commands, Exchange
from skyward.worker.agent import Agent
from skyward.worker.backlog import Backlog
from skyward.worker.bulk import BulkServer
from skyward.worker.context import current_task_number
from skyward.worker.ending import run_exit_functions
from skyward.worker.hardware import memory_gb, vcpus
from skyward.worker.lease import Lease
from skyward.worker.output import capture_descriptors, replace_streams
from skyward.worker.sampling import start_sampling
from skyward.worker.uses import hold


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment says."""

    node: int
    host: str
    port: int
    slots: int
    processes: bool
    token: bytes
    scratch: Path | None
    lease: float | None
    metrics: float
    scope: Literal["machine", "processes"]
    backlog: int

    @classmethod
    def from_environment(cls) -> "Settings":
        """Read the environment, and take the secret out of it."""
        env = os.environ
        return cls(
            node=int(env["SKYWARD_NODE_ID"]),
            host=env.get("SKYWARD_HOST", "127.0.0.1"),
            port=int(env.get("SKYWARD_PORT", "0")),
            slots=int(env.get("SKYWARD_WORKERS_PER_NODE", "1")),
            processes=env.get("SKYWARD_WORKER_EXECUTOR", "thread") == "process",
            token=bytes.fromhex(env.pop("SKYWARD_TOKEN")),
            scratch=Path(env["SKYWARD_SCRATCH"]) if "SKYWARD_SCRATCH" in env else None,
            lease=float(env["SKYWARD_LEASE"]) if "SKYWARD_LEASE" in env else None,
            metrics=float(env.get("SKYWARD_METRICS", "0")),
            scope="processes" if env.get("SKYWARD_METRICS_SCOPE") == "processes" else "machine",
            backlog=int(env.get("SKYWARD_BACKLOG", "0")),
        )


def _ignore(_: object) -> None:
    """What the engine reports of itself is no output of a task."""


async def _listen(settings: Settings, agent: Agent, announce: int, ended: asyncio.Event) -> None:
    """Serve the engine until `ended`; says where on descriptor `announce` once it does."""
    receive_with(agent.receive if settings.lease is None else _leased(settings, agent, settings.lease))
    agent.replies.beat()
    bulk = BulkServer(settings.host, settings.token, agent.store, agent.arrivals)
    cluster = Cluster(bind=f"{settings.host}:{settings.port}", limits=LIMITS)
    async with ActorSystem(cluster=cluster, runtime=Runtime(threads=1), observer=_ignore) as system:
        hello = {
            "address": system.node.address,
            "bulk": bulk.address,
            "pid": os.getpid(),
            "python": sys.version.split()[0],
            "vcpus": vcpus(),
            "memory_gb": memory_gb(),
        }
        with os.fdopen(announce, "w") as out:
            out.write(json.dumps(hello) + "\n")
        await ended.wait()


def _leased(settings: Settings, agent: Agent, seconds: float) -> Callable[[Commands | Exchange], None]:
    """What takes the messages of a worker with a lease: each that proves to be of the pool renews it."""
    lease = Lease(seconds, lambda: agent.idle, lambda: _leave(agent, settings.scratch))
    lease.start()

    def receive(message: Commands | Exchange) -> None:
        if hmac.compare_digest(message.token, settings.token):
            lease.renew()
        agent.receive(message)

    return receive


def _take_lifeline() -> int:
    """The descriptor that ends with whoever started us. What tasks read from standard input ends at once."""
    lifeline = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return lifeline


def _end_with_parent(agent: Agent, lifeline: int, scratch: Path | None) -> None:
    """Leave when `lifeline` ends."""
    while os.read(lifeline, 4096):
        continue
    _leave(agent, scratch)


def _leave(agent: Agent, scratch: Path | None) -> None:
    """End the worker, and leave nothing behind."""
    if scratch is not None:
        shutil.rmtree(scratch, ignore_errors=True)
        with contextlib.suppress(OSError):  # other nodes of the pool are still there, and the last one succeeds
            scratch.parent.rmdir()
    agent.stop()
    threading.Timer(2.0, os._exit, (0,)).start()


def main() -> None:
    """Run the worker to its end."""
    settings = Settings.from_environment()
    hold(os.environ.pop("SKYWARD_USES", ""))
    os.environ["SKYWARD_NODE"] = str(settings.node)
    os.environ["COMPUTE_POOL"] = (
        ""  # so that setting it later adds none, which a process being started would not survive
    )
    if settings.lease is not None:
        os.setsid()  # whoever started it leaves it behind
    announce = os.dup(1)
    loop = new_event_loop()
    backlog = Backlog(settings.backlog, settings.scratch)
    agent = Agent(loop, settings.token, settings.node, settings.slots, backlog, processes=settings.processes)
    set_here(agent.cluster, current_task_number)
    replace_streams(agent.emit_output, agent.alone)
    agent.drain = capture_descriptors(agent.emit_output, agent.alone)
    ended = asyncio.Event()
    engine = threading.Thread(
        target=loop.run_until_complete,
        args=(_listen(settings, agent, announce, ended),),
        name="skyward-engine",
        daemon=True,
    )
    engine.start()
    lifeline = _take_lifeline()
    if settings.lease is None:
        watch = (agent, lifeline, settings.scratch)
        threading.Thread(target=_end_with_parent, args=watch, name="skyward-parent", daemon=True).start()
    if settings.metrics:
        start_sampling(settings.metrics, settings.scope, agent.emit_metrics)
    agent.start()
    agent.serve()
    run_exit_functions()
    agent.part()
    loop.call_soon_threadsafe(ended.set)
    engine.join(timeout=2.0)
    os._exit(0)  # a task's own threads must not keep the node alive


if __name__ == "__main__":
    with brisk():
        main()
