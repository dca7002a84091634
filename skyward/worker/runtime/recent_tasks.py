"""The tasks that a node received lately, to report them to a client that did not send them."""

import itertools
from collections.abc import Iterable

from skyward.wire.protocol.messages import Code, Feed, KnownTask, Submit

__all__ = ["RecentTasks"]

REMEMBERED = 8192
"""Number of recent tasks that a new client can learn about, at least."""


class RecentTasks:
    """Recent tasks by number, with their names, streams and open inputs. Lives on the engine's loop."""

    def __init__(self) -> None:
        self._tasks: dict[int, tuple[str, bool, set[int], str]] = {}

    def submitted(self, submit: Submit, code: Code) -> None:
        """Note a submitted task."""
        self._tasks[submit.task] = (code.name, submit.stream, set(range(submit.inputs)), submit.label)
        if len(self._tasks) > 2 * REMEMBERED:
            for task in tuple(itertools.islice(self._tasks, REMEMBERED)):
                del self._tasks[task]

    def fed(self, feed: Feed) -> None:
        """Note elements for a task, and the end of an input."""
        if feed.last and feed.task in self._tasks:
            self._tasks[feed.task][2].discard(feed.index)

    @property
    def last(self) -> int:
        """The highest task number; 0 if there is none."""
        return max(self._tasks, default=0)

    def known(self, wanted: Iterable[int]) -> tuple[KnownTask, ...]:
        """Return those of the `wanted` tasks that are remembered, in order of arrival."""
        wanted = set(wanted)
        tasks = ((task, *record) for task, record in self._tasks.items() if task in wanted)
        return tuple(KnownTask(task, name, stream, tuple(fed), label) for task, name, stream, fed, label in tasks)
