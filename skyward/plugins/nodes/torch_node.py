"""PyTorch on nodes: the members of a collective are one process group."""

import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any, Final

from skyward.plugins.nodes.collective_variables import network_variables, set_variables
from skyward.task.instance import InstanceInfo
from skyward.task.on_node import Meeting, OnNode, TaskInfo

__all__ = ["TorchNode", "is_loss_of_peer", "process_group", "single_process"]

_LOST: Final = re.compile(
    r"Connection (closed by peer|reset by peer|refused)|Broken pipe|Socket closed|Timed out waiting \d+ms for"
    r"|remote process (exited|has exited)|ncclRemoteError|NCCL communicator was aborted"
)
"""Texts of gloo and NCCL about another member, in errors of no particular type."""

_FIRST_PAUSE: Final = 0.001
_LONGEST_PAUSE: Final = 0.05
"""Seconds between looks at whether the first member listens."""


class TorchNode(OnNode):
    """The part of the plugin `torch` that runs on nodes.

    Args:
        backend: backend of process groups; None for NCCL with a GPU, and gloo without.
        timeout: seconds that a collective operation may take; None for PyTorch's default.
    """

    def __init__(self, *, backend: str | None = None, timeout: float | None = None) -> None:
        self._backend = backend
        self._timeout = timeout
        self._worker = 0

    @contextmanager
    def around_process(self, node: InstanceInfo) -> Iterator[None]:
        """Import PyTorch, which takes seconds, before the first task."""
        import torch.distributed  # noqa: F401  # for the tasks

        self._worker = node.worker
        yield

    def around_task(self, task: TaskInfo) -> AbstractContextManager[Any]:
        """Return the context of the process group; outside of a collective, one of the GPU of this process."""
        if task.meeting is None:
            return single_process(self._worker)
        return process_group(task, task.meeting, self._backend, self._timeout)

    def follows_loss(self, error: BaseException) -> bool:
        """Return whether `error` says that another member is gone."""
        return is_loss_of_peer(error)


@contextmanager
def single_process(worker: int) -> Iterator[None]:
    """Select the GPU of a process by its index on the node; say how to get a process group where PyTorch misses one.

    The first GPU is selected already. To select it again would begin to use it, also for a task that does not.
    """
    import torch

    chosen = worker % torch.cuda.device_count() if worker and torch.cuda.is_available() else 0
    try:
        with torch.cuda.device(chosen) if chosen else nullcontext():
            yield
    except (RuntimeError, ValueError) as error:
        if "process group has not been initialized" in str(error):
            error.add_note("Only a broadcast has a process group: send the function with `@` in place of `>>`.")
        raise


@contextmanager
def process_group(
    task: TaskInfo, meeting: Meeting, backend: str | None = None, timeout: float | None = None
) -> Iterator[None]:
    """Be a member of the process group of a collective, with the variables and the device that `torchrun` would give.

    Raises:
        DistStoreError: members are missing at the deadline of `task`.
        DistNetworkError: the first member cannot be reached.
    """
    import torch
    from torch import distributed

    has_gpu = torch.cuda.is_available()
    device = torch.cuda.device(task.local_position % torch.cuda.device_count()) if has_gpu else nullcontext()
    with set_variables({**network_variables(meeting.address), **_variables(task, meeting)}), device:
        store = _meet(task, meeting)
        try:
            distributed.init_process_group(
                backend or ("nccl" if has_gpu else "gloo"),
                store=store,
                rank=task.position,
                world_size=task.count,
                timeout=None if timeout is None else timedelta(seconds=timeout),
            )
            _wait_for_connections(task, store)
            yield
            _part(task, store)
        finally:
            if distributed.is_initialized():
                distributed.destroy_process_group()
            del store  # closes the port, unless an error keeps this frame


def _wait_for_connections(task: TaskInfo, store: Any) -> None:
    """Wait until all members have connected: one that ended its group before would break the connections of others."""
    store.set(f"in/{task.position}", "")
    store.wait([f"in/{position}" for position in range(task.count)], timedelta(seconds=task.within))


def is_loss_of_peer(error: BaseException) -> bool:
    """Return whether an error of PyTorch says that another member of the group is gone."""
    from torch import distributed

    if isinstance(error, distributed.DistError):
        return True
    return isinstance(error, RuntimeError) and _LOST.search(str(error)) is not None


def _variables(task: TaskInfo, meeting: Meeting) -> Mapping[str, str]:
    """Return the variables of `torchrun`, without those that make PyTorch look for its store."""
    return {
        "RANK": str(task.position),
        "WORLD_SIZE": str(task.count),
        "LOCAL_RANK": str(task.local_position),
        "LOCAL_WORLD_SIZE": str(task.local_count),
        "GROUP_RANK": str(task.node_position),
        "GROUP_WORLD_SIZE": str(task.node_count),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(task.position),
        "ROLE_WORLD_SIZE": str(task.count),
        "MASTER_ADDR": meeting.address,
        "MASTER_PORT": str(meeting.port),
    }


def _meet(task: TaskInfo, meeting: Meeting) -> Any:
    """Return the store of the group, once every member has come. The first one waits, and tells the others."""
    from torch import distributed

    is_first = task.position == 0
    within = timedelta(seconds=task.within)
    if not is_first:
        _wait_for_listener(task, meeting)
    store = distributed.TCPStore(
        meeting.address,
        meeting.port,
        task.count,
        is_first,
        within,
        wait_for_workers=False,  # its error would have a number, and no names
        master_listen_fd=meeting.listener.detach() if is_first and meeting.listener is not None else None,
    )
    met = distributed.PrefixStore(task.generation, store)
    met.set(f"come/{task.position}", "")
    if not is_first:
        met.wait(["all"], 2 * within)  # the first one may have come that much later
        return met
    keys = [f"come/{position}" for position in range(task.count)]
    try:
        met.wait(keys, within)
    except distributed.DistStoreError:
        missing = ", ".join(str(position) for position, key in enumerate(keys) if not met.check([key]))
        raise distributed.DistStoreError(
            f"Members {missing} of 0 to {task.count - 1} did not come to {meeting.address}:{meeting.port} within "
            f"{task.within:g} s."
        ) from None
    met.set("all", "")
    return met


def _wait_for_listener(task: TaskInfo, meeting: Meeting) -> None:
    """Wait until the first member listens: PyTorch, once refused, tries again only after 0.3 to 0.8 s.

    Raises:
        DistNetworkError: it does not listen at the deadline of `task`.
    """
    from torch import distributed

    deadline, pause = time.monotonic() + task.within, _FIRST_PAUSE
    while (left := deadline - time.monotonic()) > 0:
        try:
            with socket.create_connection((meeting.address, meeting.port), left):
                return
        except OSError:
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)
    raise distributed.DistNetworkError(
        f"Member 0 of 0 to {task.count - 1} does not listen at {meeting.address}:{meeting.port} "
        f"after {task.within:g} s."
    )


def _part(task: TaskInfo, store: Any) -> None:
    """Keep the store of the first member open until the others have ended, or for as long as they had to come.

    NCCL's threads of the others ask it until then.
    """
    from torch import distributed

    store.set(f"gone/{task.position}", "")
    if task.position == 0:
        with suppress(distributed.DistError):  # one takes longer
            store.wait([f"gone/{position}" for position in range(task.count)], timedelta(seconds=task.within))
