"""What the nodes of a pool say, brought to the tasks it is about."""

import asyncio
import pickle
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from skyward.console import ConsoleSink
from skyward.control import plane_messages as plane
from skyward.control import task_messages as tasks
from skyward.control.log import Log
from skyward.control.work import Arrived, Work
from skyward.errors import RemoteError
from skyward.wire.failure import capture_failure
from skyward.wire.messages import Blob, Display, Drop, Event, Finished, Need, Output, Started, Yielded
from skyward.wire.payload import blobs_of, encode

if TYPE_CHECKING:
    from skyward.control.node import Node
    from skyward.control.work import Sink

__all__ = ["Hearing"]


class Hearing:
    """Takes the events of nodes. Lives on the library's loop.

    Args:
        works: the tasks that are not over, by number.
        node_at: the node of a rank.
        tell: tells the control plane.
        delivered: is told that part of a task's stream has arrived.
        wrote: takes what is printed: the node, the task or 0, the stream and the text.

    Attributes:
        arrived: what came of those that are about to end.
        sink: takes what nodes print that is of no task, or of one that is over.
        log: keeps what all of them print.
        closing: whether the pool ends, and nothing but what is printed counts any more.
    """

    def __init__(
        self,
        works: dict[int, Work],
        node_at: "Callable[[int], Node | None]",
        tell: Callable[[plane.Message], None],
        delivered: Callable[[int], None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        wrote: Callable[[int, int, Literal["stdout", "stderr"], str], None],
    ) -> None:
        self.works = works
        self.arrived: dict[int, Arrived] = {}
        self.sink: Sink = ConsoleSink(label=True)
        self.log = Log()
        self.closing = False
        self._node_at = node_at
        self._tell = tell
        self._delivered = delivered
        self._spawn = spawn
        self._wrote = wrote

    def heard(self, node: "Node", event: Event) -> None:
        """An event of a node. One that is leaving has only its last words to say."""
        if (self.closing or self._node_at(node.rank) is not node) and not isinstance(event, Output | Display):
            return
        work = self.works.get(event.task)
        match event:
            case Finished():
                self._on_finished(node, event, work)
            case Output(task, stream, text):
                self.log.add(node.rank, node.machine, event, time.time())
                self._wrote(node.rank, task, stream, text)
                (self.sink if work is None else work.sink).output(node.rank, stream, text)
            case Yielded(_, items) if work is not None and work.stream is not None:
                work.yielded += len(items)
                work.stream.arrive(items)
                self._delivered(event.task)
            case Started():
                self._tell(tasks.Started(event.task))
            case Need(_, index, count) if work is not None and work.feeders:
                work.feeders[index].grant(count)
            case Display(_, payload) if work is not None and isinstance(payload.data, bytes):
                data, metadata, display_id, update = pickle.loads(payload.data)
                work.sink.display(node.rank, data, metadata, display_id, update)
            case _:
                pass  # of a task that is over here

    def close(self) -> None:
        """Nobody will say anything any more."""
        self.works.clear()
        self.log.close()

    def _on_finished(self, node: "Node", event: Finished, work: Work | None) -> None:
        payload = event.payload
        if isinstance(payload.data, Blob) or (payload.buffers and blobs_of([payload])):
            self._spawn(self._fetch_result(node, event, blobs_of([payload])))
        else:
            self._ended(node, event, Arrived(payload), work)

    async def _fetch_result(self, node: "Node", event: Finished, blobs: list[Blob]) -> None:
        """Bring a large result here before its task counts as ended: if the node dies meanwhile, it runs again."""
        fetched = {}
        try:
            for blob in blobs:
                fetched[blob.key] = await asyncio.wrap_future(node.fetch(blob))
        except ConnectionError:
            self._tell(tasks.Ended(event.task, node.rank, "lost", event.seconds))
            return
        except Exception as error:
            event, arrived = replace(event, outcome="error"), _not_brought(error)
        else:
            arrived = Arrived(event.payload, fetched)
        node.tell(Drop(tuple(blob.key for blob in blobs)))
        self._ended(node, event, arrived, self.works.get(event.task))

    def _ended(self, node: "Node", event: Finished, arrived: Arrived, work: Work | None) -> None:
        if work is not None:
            work.seconds = event.seconds
            self.arrived[event.task] = arrived
        self._tell(tasks.Ended(event.task, node.rank, event.outcome, event.seconds))


def _not_brought(error: Exception) -> Arrived:
    """What a task ends with whose result is there, and cannot be had here. It would be no different the next time."""
    kind = type(error).__name__
    failed = RemoteError(f"What came of the task could not be brought here: {kind}: {error}.", kind)
    failed.__cause__ = error
    outgoing = encode(capture_failure(failed))
    return Arrived(outgoing.payload, outgoing.blobs)
