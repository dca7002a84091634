"""Mixin of a pool with its telemetry: output of tasks and nodes, and resource usage."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from skyward.errors import UsageError
from skyward.events.metrics import NodeMetrics
from skyward.events.output import Follower, Logs, OutputFilter, StreamName
from skyward.process import background
from skyward.values.validation import shown

if TYPE_CHECKING:
    from skyward.control.act.pool import Pool

__all__ = ["Telemetry"]


class Telemetry(ABC):
    """Mixin of a pool with its output and resource usage."""

    _pool: "Pool | None"

    @abstractmethod
    def _ready(self) -> "Pool":
        """Return the open pool."""

    def logs(
        self,
        task: int | None = None,
        node: int | None = None,
        *,
        stream: StreamName | None = None,
        since: int = 0,
        tail: int | None = None,
    ) -> Logs:
        """Return the output of tasks and nodes, oldest first; also after the pool was closed.

        The log holds 16 million characters; `dropped` of the result is the number of characters that were dropped.

        Args:
            task: only output of the task of this number (`Run.tasks`); 0 for output of the nodes themselves.
            node: only output of the node of this rank.
            stream: only this stream.
            since: only output from this offset of the stream on; for one stream of one task, or of one node itself.
            tail: maximum number of pieces, the last ones.

        Raises:
            UsageError: there is no such stream, or `since` is given without a single stream.
        """
        wanted = _wanted(task, node, stream, since)
        return Logs() if self._pool is None else background.call(partial(self._pool.log.read, wanted, tail))

    def follow(
        self,
        task: int | None = None,
        node: int | None = None,
        *,
        stream: StreamName | None = None,
        since: int = 0,
        tail: int | None = None,
    ) -> Follower:
        """Return an iterator over the log, as `logs` returns it, and then over new output as it arrives.

        It ends with the pool; with `task=`, with that task.

        Raises:
            UsageError: there is no such stream, or `since` is given without a single stream.
            PoolClosedError: the pool is not open.
        """
        return background.call(partial(self._ready().follow, _wanted(task, node, stream, since), tail))

    def start_log(self, node: int) -> str:
        """Return the startup log of the node of a rank, for its last few starts: a line per phase, and all output of a
        failed phase. Empty if the node was never started.
        """
        return "" if self._pool is None else background.call(partial(self._pool.startups.log, node))

    def metrics(self, node: int | None = None) -> Mapping[int, tuple[NodeMetrics, ...]]:
        """Return the resource usage of nodes in the last five minutes, oldest first, by rank.

        Args:
            node: only the node of this rank.
        """
        usage = {} if self._pool is None else background.call(self._pool.metrics)
        return usage if node is None else {rank: history for rank, history in usage.items() if rank == node}


def _wanted(task: int | None, node: int | None, stream: StreamName | None, since: int) -> OutputFilter:
    if stream is not None and not (isinstance(stream, str) and stream in ("stdout", "stderr")):
        raise UsageError(f"stream must be 'stdout' or 'stderr', but got {shown(stream)}.")
    if since and (stream is None or not (task or (task == 0 and node is not None))):
        raise UsageError(
            "since= is an offset in one stream: name it, `task=N, stream='stdout'`, or `task=0, node=N, stream=...` "
            "for output of the node itself."
        )
    return OutputFilter(task, node, stream, since)
