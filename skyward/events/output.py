"""Output of nodes and tasks as values: pieces of text, each with its offset in its stream."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self, cast, overload

from skyward.errors import UsageError
from skyward.process.conditions import LockedCondition
from skyward.values.validation import shown

__all__ = ["Follower", "LogEntry", "Logs", "OutputFilter", "StreamName", "cut", "end_output", "offer"]

type StreamName = Literal["stdout", "stderr"]

WAITING = 4 * 1024 * 1024
"""Characters that are buffered for a slow reader of live output."""

_LOOK_EVERY = 1.0
"""Seconds between checks for the end of the program."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A piece of one stream of output: whole lines, unless the last one was not completed soon.

    Attributes:
        time: Unix time at which it arrived at the client.
        node: rank of the node that wrote it.
        task: number of the task; 0 for the node itself, and if the task is unknown.
        stream: the stream that it was written to.
        text: the output.
        offset: characters of this stream of the task, over all its attempts, before this piece. The streams of a node
            itself continue when its machine is replaced. If an offset is not the end of the previous piece, the
            output in between is lost, or no longer kept.

    Example:
        >>> for entry in pool.logs():
        ...     print(entry.who, entry.text)
    """

    time: float
    node: int
    task: int
    stream: StreamName
    offset: int
    text: str

    @property
    def end(self) -> int:
        """Offset of the next piece of the stream."""
        return self.offset + len(self.text)

    @property
    def who(self) -> str:
        """Label of the writer, for people."""
        return f"node {self.node}, task {self.task}" if self.task else f"node {self.node}"

    def __str__(self) -> str:
        return "\n".join(f"[{self.who}] {line}" for line in self.text.removesuffix("\n").split("\n"))


@dataclass(frozen=True, slots=True)
class OutputFilter:
    """Filter of entries; None for any. `since`: the first offset in each stream."""

    task: int | None = None
    node: int | None = None
    stream: StreamName | None = None
    since: int = 0

    @classmethod
    def checked(cls, task: int | None, node: int | None, stream: object, since: int) -> Self:
        """Return the filter of these arguments of a user.

        Raises:
            UsageError: there is no such stream, or `since` is given without a single stream.
        """
        if stream is not None and not (isinstance(stream, str) and stream in ("stdout", "stderr")):
            raise UsageError(f"stream must be 'stdout' or 'stderr', but got {shown(stream)}.")
        if since and (stream is None or not (task or (task == 0 and node is not None))):
            raise UsageError(
                "since= is an offset in one stream: name it, `task=N, stream='stdout'`, or "
                "`task=0, node=N, stream=...` for output of the node itself."
            )
        return cls(task, node, cast("StreamName | None", stream), since)

    def of(self, entry: LogEntry) -> LogEntry | None:
        """Return the part of `entry` that matches; None if none does."""
        if (
            (self.task is not None and entry.task != self.task)
            or (self.node is not None and entry.node != self.node)
            or (self.stream is not None and entry.stream != self.stream)
            or (self.since and entry.end <= self.since)
        ):
            return None
        return cut(entry, self.since - entry.offset) if entry.offset < self.since else entry


def cut(entry: LogEntry, characters: int) -> LogEntry:
    """Return `entry` without its first `characters`."""
    offset, text = entry.offset + characters, entry.text[characters:]
    return LogEntry(entry.time, entry.node, entry.task, entry.stream, offset, text)


@dataclass(frozen=True, slots=True)
class Logs(Sequence[LogEntry]):
    """Entries, oldest first; `print` shows each line with its writer.

    Attributes:
        entries: the entries.
        dropped: characters, of any task, that the pool wrote and its bounded log no longer has.

    Example:
        >>> logs = pool.logs(node=0, stream="stdout")
        >>> print(logs.text)
    """

    entries: tuple[LogEntry, ...] = ()
    dropped: int = 0

    @property
    def text(self) -> str:
        """The text of all entries, as a terminal would show it."""
        return "".join(entry.text for entry in self.entries)

    @overload
    def __getitem__(self, index: int) -> LogEntry: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[LogEntry, ...]: ...
    def __getitem__(self, index: int | slice) -> LogEntry | tuple[LogEntry, ...]:
        return self.entries[index]

    def __len__(self) -> int:
        return len(self.entries)

    def __str__(self) -> str:
        notes = [f"({self.dropped:,} characters before this are no longer kept)"] if self.dropped else []
        return "\n".join((*notes, *map(str, self.entries)))


@dataclass(eq=False)
class Follower:
    """Live output, until the pool is closed, or the one task that is followed has ended.

    An iterator for one thread, and a context manager. A reader that is too slow misses the oldest pieces, which
    shows in the offset of the next one.

    Attributes:
        dropped: characters that it missed.

    Example:
        >>> with pool.follow(node=0) as output:
        ...     future = train(10) > pool  # then `for entry in output: ...`
    """

    _wanted: OutputFilter
    _leave: Callable[["Follower"], None]
    dropped: int = 0
    _waiting: deque[LogEntry] = field(default_factory=deque)
    _size: int = 0
    _ended: bool = False
    _changed: LockedCondition = field(default_factory=LockedCondition)

    @property
    def task(self) -> int | None:
        """Number of the task that it follows; None for any."""
        return self._wanted.task

    def __iter__(self) -> Iterator[LogEntry]:
        return self

    def __next__(self) -> LogEntry:
        with self._changed.lock:
            while not self._waiting and not self._ended:
                self._changed.wait(_LOOK_EVERY)
                # Pools are closed only after every non-daemon thread has ended, and this may be one.
                self._ended = self._ended or not threading.main_thread().is_alive()
            if not self._waiting:
                raise StopIteration
            entry = self._waiting.popleft()
            self._size -= len(entry.text)
            return entry

    def close(self) -> None:
        """Stop following. Idempotent."""
        end_output(self)
        self._leave(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def offer(follower: Follower, entry: LogEntry) -> None:
    """Add a piece to what a follower reads."""
    part = follower._wanted.of(entry)
    if part is None:
        return
    with follower._changed.lock:
        follower._waiting.append(part)
        follower._size += len(part.text)
        while follower._size > WAITING and len(follower._waiting) > 1:
            missed = len(follower._waiting.popleft().text)
            follower._size -= missed
            follower.dropped += missed
        follower._changed.notify()


def end_output(follower: Follower) -> None:
    """Add no more pieces."""
    with follower._changed.lock:
        follower._ended = True
        follower._changed.notify()
