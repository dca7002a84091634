"""What is heard of the nodes of a pool besides results: their output, and what they use of their machines."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from skyward.errors import UsageError
from skyward.events.metrics import NodeMetrics
from skyward.events.output import Follower, Logs, StreamName, Wanted
from skyward.process import background
from skyward.values.validation import shown

if TYPE_CHECKING:
    from skyward.control.act.pool import Pool

__all__ = ["Heard"]


class Heard(ABC):
    """The part of a pool's face that reads."""

    _pool: "Pool | None"

    @abstractmethod
    def _ready(self) -> "Pool":
        """The open pool."""

    def logs(
        self,
        task: int | None = None,
        node: int | None = None,
        *,
        stream: StreamName | None = None,
        since: int = 0,
        tail: int | None = None,
    ) -> Logs:
        """What tasks and nodes have written, the oldest first; also after the pool was closed.

        The log holds 16 million characters; `dropped` of what comes says how much of the pool's output is not there
        any more.

        Args:
            task: only of the task of this number (`Run.tasks`); 0 for what nodes have written by themselves.
            node: only of the node of this rank.
            stream: only of this one.
            since: only from this offset of the stream on; for one stream of one task, or of one node itself.
            tail: the last so many pieces at most.

        Raises:
            UsageError: there is no such stream, or `since` is given without saying of which one.
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
        """An iterator over what there is in the log, as `logs` gives it, and then over what is written, as it comes.

        It ends with the pool; with `task=`, with that task.

        Raises:
            UsageError: there is no such stream, or `since` is given without saying of which one.
            PoolClosedError: the pool is not open.
        """
        return background.call(partial(self._ready().follow, _wanted(task, node, stream, since), tail))

    def start_log(self, node: int) -> str:
        """What the node of a rank has said while it started, the last few times, a line for each phase; where one
        failed, all that it printed. Empty where it was never started.
        """
        return "" if self._pool is None else background.call(partial(self._pool.boots.log, node))

    def metrics(self, node: int | None = None) -> Mapping[int, tuple[NodeMetrics, ...]]:
        """What nodes have used of their machines in the last five minutes, the oldest first, by rank.

        Args:
            node: only the node of this rank.
        """
        told = {} if self._pool is None else background.call(self._pool.metrics)
        return told if node is None else {rank: history for rank, history in told.items() if rank == node}


def _wanted(task: int | None, node: int | None, stream: StreamName | None, since: int) -> Wanted:
    if stream is not None and not (isinstance(stream, str) and stream in ("stdout", "stderr")):
        raise UsageError(f"stream must be 'stdout' or 'stderr', but got {shown(stream)}.")
    if since and (stream is None or not (task or (task == 0 and node is not None))):
        raise UsageError(
            "since= is an offset of one stream: say which, `task=N, stream='stdout'`, or `task=0, node=N, stream=...` "
            "for what the node wrote by itself."
        )
    return Wanted(task, node, stream, since)
