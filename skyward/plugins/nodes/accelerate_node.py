"""Accelerate on nodes: its variables, and a process group of PyTorch for the members of a collective."""

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from skyward.plugins.nodes.collective_variables import set_variables
from skyward.plugins.nodes.torch_node import is_loss_of_peer, process_group, single_process
from skyward.task.instance import InstanceInfo
from skyward.task.on_node import Meeting, OnNode, TaskInfo

__all__ = ["AccelerateNode"]


class AccelerateNode(OnNode):
    """The part of the plugin `accelerate` that runs on nodes.

    Args:
        variables: environment variables that Accelerate reads.
    """

    def __init__(self, *, variables: Mapping[str, str] | None = None) -> None:
        self._variables = variables or {}
        self._worker = 0

    def environment(self, node: InstanceInfo, worker: int) -> Mapping[str, str]:
        """Return the variables, which some programs read as they import Accelerate."""
        return self._variables

    @contextmanager
    def around_process(self, node: InstanceInfo) -> Iterator[None]:
        """Import Accelerate and PyTorch, which takes seconds, before the first task."""
        import accelerate  # noqa: F401  # for the tasks

        self._worker = node.worker
        yield

    def around_task(self, task: TaskInfo) -> AbstractContextManager[Any]:
        """Return the context of the members of a collective; outside of one, that of the GPU of this process."""
        return single_process(self._worker) if task.meeting is None else _accelerated(task, task.meeting)

    def follows_loss(self, error: BaseException) -> bool:
        """Return whether `error` says that another member is gone."""
        return is_loss_of_peer(error)


@contextmanager
def _accelerated(task: TaskInfo, meeting: Meeting) -> Iterator[None]:
    """Let Accelerate find the process group: that of the plugin `torch` if there is one."""
    import torch
    from torch import distributed

    chosen = torch.cuda.is_available() or "ACCELERATE_USE_CPU" in os.environ
    on_cpu = {} if chosen else {"ACCELERATE_USE_CPU": "true"}
    group = nullcontext() if distributed.is_initialized() else process_group(task, meeting)
    with group, set_variables(on_cpu):
        _forget()
        try:
            yield
        finally:
            _forget()


def _forget() -> None:
    """Make Accelerate look at the process group again: it keeps what it found in the process's former tasks."""
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
