"""JAX on nodes: the members of a collective are the processes of one distributed system."""

import re
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Final

from skyward.plugins.nodes.collective_variables import (
    address_towards,
    network_variables,
    proxy_variables,
    set_variables,
)
from skyward.task.instance import InstanceInfo
from skyward.task.on_node import Meeting, OnNode, TaskInfo

__all__ = ["JaxNode", "held"]

_LONGEST: Final = 7 * 24 * 3600
"""Seconds for which a member may end before the others: JAX aborts the process after them."""

_STATUS: Final = re.compile(r"(ABORTED|CANCELLED|DEADLINE_EXCEEDED|FAILED_PRECONDITION|INTERNAL|UNAVAILABLE|UNKNOWN): ")
_LOST: Final = re.compile(
    r"Connection (closed by peer|reset by peer|refused)|Broken pipe|Socket closed|Timed out waiting|heartbeat timeout"
    r"|coordination service|Coordination ?Service|tasks are unhealthy|remote process (exited|has exited)"
    r"|ncclRemoteError|NCCL communicator was aborted"
)
"""Texts of XLA, gloo and NCCL about another member."""


class JaxNode(OnNode):
    """The part of the plugin `jax` that runs on nodes."""

    once = True

    @contextmanager
    def around_process(self, node: InstanceInfo) -> Iterator[None]:
        """Import JAX, which takes seconds, before the first task."""
        import jax  # noqa: F401  # for the tasks

        yield

    def around_task(self, task: TaskInfo) -> AbstractContextManager[Any]:
        """Return the context of the distributed system; outside of a collective there is none."""
        return nullcontext() if task.meeting is None else _distributed(task, task.meeting)

    def follows_loss(self, error: BaseException) -> bool:
        """Return whether `error` says that another member is gone."""
        text = str(error)
        return (
            isinstance(error, RuntimeError | ValueError)  # JAX's own derives from the first; gloo's are of the second
            and _STATUS.match(text) is not None
            and _LOST.search(text) is not None
        )


@contextmanager
def _distributed(task: TaskInfo, meeting: Meeting) -> Iterator[None]:
    """Be a process of the distributed system of a collective.

    After an error it is not shut down, since that waits for the other members: the process is to be ended.
    """
    import jax
    from jax.extend.backend import clear_backends

    clear_backends()  # of a former task: JAX refuses to begin after the first computation
    place = f"{meeting.address}:{meeting.port}"
    variables = {**network_variables(meeting.address), **proxy_variables(meeting.address)}
    with set_variables(variables), _gloo_on(address_towards(meeting.address)):
        with held(meeting.listener):
            jax.distributed.initialize(
                place,
                task.count,
                task.position,
                local_device_ids=[task.local_position] if task.local_count > 1 else None,
                initialization_timeout=max(1, round(task.within)),
                coordinator_bind_address=place,
                shutdown_timeout_seconds=_LONGEST,
            )
        yield
        jax.distributed.shutdown()


@contextmanager
def held(listener: socket.socket | None) -> Iterator[None]:
    """Hold the port of the first member until JAX listens on it, or, if it cannot be shared, until just before."""
    if listener is None:
        yield
        return
    with listener:
        if not listener.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT):
            listener.close()
        yield


@contextmanager
def _gloo_on(address: str | None) -> Iterator[None]:
    """Let gloo, which connects CPUs, listen on an address: JAX takes that of the host's name, and has no setting."""
    from jaxlib import _jax

    make = getattr(_jax, "make_gloo_tcp_collectives", None)
    if make is None or address is None:
        yield
        return
    _jax.make_gloo_tcp_collectives = partial(make, hostname=address)
    try:
        yield
    finally:
        _jax.make_gloo_tcp_collectives = make
