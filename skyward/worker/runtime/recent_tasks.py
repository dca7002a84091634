"""The tasks that a node was sent lately: what a client can be told of that did not send them."""

import itertools
from collections.abc import Iterable

from skyward.wire.protocol.messages import Code, Feed, Known, Submit

__all__ = ["Recent"]

REMEMBERED = 8192
"""Tasks that a new client can be told of at least, those that came last."""


class Recent:
    """Those tasks, each with what it is, by number. Lives on the engine's loop."""

    def __init__(self) -> None:
        self._tasks: dict[int, tuple[str, bool, set[int], str]] = {}

    def submitted(self, submit: Submit, code: Code) -> None:
        """A task came."""
        self._tasks[submit.task] = (code.name, submit.stream, set(range(submit.inputs)), submit.label)
        if len(self._tasks) > 2 * REMEMBERED:
            for task in tuple(itertools.islice(self._tasks, REMEMBERED)):
                del self._tasks[task]

    def fed(self, feed: Feed) -> None:
        """Elements for a task came, perhaps the last of their input."""
        if feed.last and feed.task in self._tasks:
            self._tasks[feed.task][2].discard(feed.index)

    @property
    def last(self) -> int:
        """The highest number of them."""
        return max(self._tasks, default=0)

    def known(self, wanted: Iterable[int]) -> tuple[Known, ...]:
        """Those of the `wanted` tasks that are remembered, in the order in which they came."""
        wanted = set(wanted)
        tasks = ((task, *what) for task, what in self._tasks.items() if task in wanted)
        return tuple(Known(task, name, stream, tuple(fed), label) for task, name, stream, fed, label in tasks)
