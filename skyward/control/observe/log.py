"""The log of a pool: bounded output of its nodes and tasks, each piece with its offset in its stream.

Bookkeeping only; the pool adds each piece with its worker and time. A worker sends the offset of each piece in its
stream, so duplicate and missing pieces are detected, whichever connection delivered them. When a task runs again, or a
node gets a new machine, the new worker's output continues the stream.
"""

import contextlib
from collections import deque
from dataclasses import replace

from skyward.events.output import Follower, LogEntry, Logs, OutputFilter, cut, end_output, offer
from skyward.wire.protocol.messages import UNKNOWN_OFFSET, Output

__all__ = ["Log"]

KEPT = 16 * 1024 * 1024
"""Characters that the log of a pool keeps, including `_OVERHEAD` for each entry."""

_OVERHEAD = 200

_PIECE = 4096
"""Characters from which an entry is not extended."""

_STREAMS = 8192
"""Streams whose lengths are remembered: the latest ones written to."""

type _Stream = tuple[int, int, str]


class Log:
    """The log of one pool. Lives on the library's loop."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._entries: deque[LogEntry] = deque()
        self._first = 0
        self._size = 0
        self._dropped = 0
        self._open: dict[_Stream, int] = {}
        self._lengths: dict[_Stream, int] = {}
        self._received: dict[tuple[int, _Stream], int] = {}
        self._followers: list[Follower] = []

    def add(self, node: int, source: int, output: Output, time: float) -> None:
        """Add output of a worker.

        Args:
            node: its rank.
            source: its number, unique among the workers of the pool.
        """
        entry = self._with_offset(node, source, output, time)
        if not entry.text:
            return
        for follower in tuple(self._followers):
            offer(follower, entry)
        self._keep(entry)

    def _with_offset(self, node: int, source: int, output: Output, time: float) -> LogEntry:
        """Return the new part of `output`, with its offset in the stream."""
        stream = _stream(node, output)
        length = self._lengths.pop(stream, None)
        known = self._received.pop((source, stream), UNKNOWN_OFFSET)
        start = 0 if length is None else length
        entry = LogEntry(time, node, output.task, output.stream, start, output.text)
        received = UNKNOWN_OFFSET
        if output.offset != UNKNOWN_OFFSET:
            received = output.offset + len(output.text)
            if length is None or known == UNKNOWN_OFFSET:
                lost = output.offset if length is None else 0
            else:
                lost = output.offset - known
                received = max(received, known)
            if lost < 0:
                entry = replace(cut(entry, min(-lost, len(output.text))), offset=start)
            else:
                entry = replace(entry, offset=start + lost)
        _remember(self._lengths, stream, entry.end)
        _remember(self._received, (source, stream), received)
        return entry

    def _keep(self, entry: LogEntry) -> None:
        stream = _stream(entry.node, entry)
        number = self._open.pop(stream, -1)
        if number >= self._first and self._entries[number - self._first].end == entry.offset:
            before = self._entries[number - self._first]
            entry = replace(before, text=before.text + entry.text)
            self._size -= len(before.text)
            self._entries[number - self._first] = entry
        else:
            number = self._first + len(self._entries)
            self._entries.append(entry)
            self._size += _OVERHEAD
        self._size += len(entry.text)
        self._open.pop(_other(stream), None)  # its next piece comes after this entry
        if len(entry.text) < _PIECE and not entry.text.endswith("\n"):
            self._open[stream] = number
        while self._size > self._kept and len(self._entries) > 1:
            self._drop()

    def _drop(self) -> None:
        oldest = self._entries.popleft()
        if self._open.get(stream := _stream(oldest.node, oldest)) == self._first:
            del self._open[stream]
        self._first += 1
        self._size -= len(oldest.text) + _OVERHEAD
        self._dropped += len(oldest.text)

    def read(self, wanted: OutputFilter, tail: int | None = None) -> Logs:
        """Return the matching entries, at most the last `tail`."""
        found: list[LogEntry] = []
        for entry in reversed(self._entries):
            if tail is not None and len(found) >= tail:
                break
            if (part := wanted.of(entry)) is not None:
                found.append(part)
        return Logs(tuple(reversed(found)), self._dropped)

    def follow(self, wanted: OutputFilter, tail: int | None, *, ended: bool) -> Follower:
        """Return a follower with at most `tail` matching entries, and later ones unless `ended`."""
        follower = Follower(wanted, self._remove)
        for entry in self.read(wanted, tail):
            offer(follower, entry)
        if ended:
            end_output(follower)
        else:
            self._followers.append(follower)
        return follower

    def _remove(self, follower: Follower) -> None:
        with contextlib.suppress(ValueError):  # already removed
            self._followers.remove(follower)

    def task_ended(self, task: int) -> None:
        """End the followers of a task that has ended."""
        if self._followers:
            for follower in [each for each in self._followers if each.task == task]:
                follower.close()

    def close(self) -> None:
        """End every follower. The entries can still be read."""
        for follower in tuple(self._followers):
            follower.close()


def _stream(node: int, written: Output | LogEntry) -> _Stream:
    """Return the key of a stream: of a task on any node, or of a node on any machine."""
    return written.task, 0 if written.task else node, written.stream


def _other(stream: _Stream) -> _Stream:
    """Return the other stream of the same task or node."""
    task, node, name = stream
    return task, node, "stderr" if name == "stdout" else "stdout"


def _remember[K](lengths: dict[K, int], key: K, length: int) -> None:
    """Store the length of a stream, and forget the stream that was silent for longest."""
    lengths[key] = length
    if len(lengths) > _STREAMS:
        del lengths[next(iter(lengths))]
