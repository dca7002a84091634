"""The plugin for MPS: the processes of a node run on its GPUs at the same time, rather than in turns."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from skyward.errors import SpecError
from skyward.specs.plugin import Plugin, PluginStep, Requires
from skyward.values.validation import number, of_type

__all__ = ["Mps"]

_LIMIT = re.compile(r"[0-9]+=[1-9][0-9]*[MG](,[0-9]+=[1-9][0-9]*[MG])*")

_COMMANDS: Final = """\
set -eu
command -v nvidia-cuda-mps-control >/dev/null 2>&1 || {
  echo "MPS needs nvidia-cuda-mps-control of NVIDIA's driver, which is not on the PATH of this machine"
  exit 1
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mps(Plugin):
    """Let the processes of a node share its GPUs by NVIDIA's Multi-Process Service.

    Each node has a daemon of its own, with its own directory, which other pools on the machine do not use. The worker
    starts it before its first process, and the last process to leave ends it. It also ends with the worker, whatever
    ends that: the worker's supervisor ends all processes that descend from it. A step of the set-up could not tell the
    pool, nor its end, so the set-up only checks that the machine has MPS. Set `CUDA_MPS_PIPE_DIRECTORY` in `env` of the
    image to use a daemon that is there already.

    Attributes:
        active_thread_percentage: most of the threads of a GPU that each process uses, in percent; None for all.
        pinned_memory_limit: most memory of each GPU that a process uses, by number of the GPU, such as "0=2G,1=512M";
            None for any.

    Raises:
        SpecError: a field has a value that is not allowed.

    Example:
        >>> worker = sky.Worker(concurrency=4)
        >>> mps = sky.plugins.mps(active_thread_percentage=25)
        >>> sky.Compute(accelerator="A100", worker=worker, plugins=[mps])
    """

    name = "mps"
    excludes = frozenset({"mig"})
    on_node = "skyward.plugins.nodes.mps_node:MpsOnNode"

    active_thread_percentage: float | None = None
    pinned_memory_limit: str | None = None

    def __post_init__(self) -> None:
        number(self.active_thread_percentage, "active_thread_percentage", optional=True, most=100)
        if self.pinned_memory_limit is not None:
            of_type(self.pinned_memory_limit, "pinned_memory_limit", str, "pinned_memory_limit='0=2G'")
            if not _LIMIT.fullmatch(self.pinned_memory_limit):
                raise SpecError(
                    "pinned_memory_limit must have memory for each GPU, such as '0=2G,1=512M', but got "
                    f"{self.pinned_memory_limit!r}."
                )

    def requires(self) -> Requires:
        """Require an accelerator, and processes: threads of one process share a GPU as it is."""
        return Requires(executor="process", accelerator=True)

    def steps(self, spec: object) -> tuple[PluginStep, ...]:
        """Return the step that checks that the machine has MPS."""
        return (PluginStep("mps", _COMMANDS),)

    def settings(self) -> Mapping[str, Any]:
        """Return the limits."""
        return {
            "active_thread_percentage": self.active_thread_percentage,
            "pinned_memory_limit": self.pinned_memory_limit,
        }
