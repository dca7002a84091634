"""Input streams of tasks: elements that feeders have read are sent, in order, to the node that has the task."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from skyward.control.act.nodes.node import Node
from skyward.control.act.tasks.task import Work
from skyward.link.bulk import NodeFullError
from skyward.process import background
from skyward.wire.protocol.messages import Feed

__all__ = ["Feeding"]


class Feeding:
    """Sender of input stream elements to the tasks of a pool. Runs on the library's loop.

    Args:
        node_of: returns the node that a task was last sent to.
        not_fed: called when elements did not reach their node, with the reason.
        spawn: runs a coroutine for as long as the pool is open.
    """

    def __init__(
        self,
        node_of: Callable[[int], Node | None],
        not_fed: Callable[[Node, Work, ConnectionError | NodeFullError], None],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._node_of = node_of
        self._not_fed = not_fed
        self._spawn = spawn

    def begin(self, work: Work) -> None:
        """Start feeding a task that was sent to a node, for the first time or again."""
        for index, feeder in enumerate(work.feeders):
            feeder.start(partial(background.call_soon, self._feed_soon, work, index))
            self._feed_soon(work, index)  # elements read before go to the new node

    def _feed_soon(self, work: Work, index: int) -> None:
        self._spawn(self._feed(work, index))

    async def _feed(self, work: Work, index: int) -> None:
        """Send the elements that a feeder has read, once the node has the task."""
        feeder = work.feeders[index]
        async with feeder.order:
            node = self._node_of(work.task)
            if node is None or not await node.has(work.task) or self._node_of(work.task) is not node:
                return  # no element was taken: the next node gets them all
            items, last, failure = feeder.take()
            if not items and not last:
                return
            sent = [*items, failure] if failure is not None else items
            blobs = {key: view for each in sent for key, view in each.blobs.items()}
            payloads = tuple(item.payload for item in items)
            try:
                async with node.shipped(blobs):
                    node.tell(Feed(work.task, index, payloads, last, failure.payload if failure else None))
            except (ConnectionError, NodeFullError) as error:  # the task cannot continue without the elements taken
                node.stop_task(work.task)
                self._not_fed(node, work, error)
