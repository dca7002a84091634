"""The log of a pool: what its nodes and tasks have written, bounded, each piece with its place in its stream.

Decides only; the pool tells it what came, from whom and when. A worker says where each piece begins in what it has sent
of that stream. So a piece that came before is known, and so is one that never came, whatever carried them. Where a task
runs again, or a node has a new machine, what the new worker says goes on where the stream was.
"""

import contextlib
from collections import deque
from dataclasses import replace

from skyward.events.output import Follower, LogEntry, Logs, Wanted, cut
from skyward.wire.protocol.messages import NOWHERE, Output

__all__ = ["Log"]

KEPT = 16 * 1024 * 1024
"""Characters that the log of a pool keeps, `_OVERHEAD` for each entry among them."""

_OVERHEAD = 200

_PIECE = 4096
"""Characters from which on an entry is not added to."""

_STREAMS = 8192
"""Streams whose lengths are remembered: those that were written to last."""

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
        self._heard: dict[tuple[int, _Stream], int] = {}
        self._followers: list[Follower] = []

    def add(self, node: int, source: int, output: Output, time: float) -> None:
        """A worker has written something.

        Args:
            node: its rank.
            source: its number, which no other worker of the pool ever had.
        """
        entry = self._placed(node, source, output, time)
        if not entry.text:
            return
        for follower in tuple(self._followers):
            follower.offer(entry)
        self._keep(entry)

    def _placed(self, node: int, source: int, output: Output, time: float) -> LogEntry:
        """The part of `output` that is new, at its place."""
        stream = _stream(node, output)
        length = self._lengths.pop(stream, None)
        known = self._heard.pop((source, stream), NOWHERE)
        start = 0 if length is None else length
        entry = LogEntry(time, node, output.task, output.stream, start, output.text)
        heard = NOWHERE
        if output.offset != NOWHERE:
            heard = output.offset + len(output.text)
            if length is None or known == NOWHERE:
                lost = output.offset if length is None else 0
            else:
                lost = output.offset - known
                heard = max(heard, known)
            if lost < 0:
                entry = replace(cut(entry, min(-lost, len(output.text))), offset=start)
            else:
                entry = replace(entry, offset=start + lost)
        _remember(self._lengths, stream, entry.end)
        _remember(self._heard, (source, stream), heard)
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
        self._open.pop(_other(stream), None)  # what comes there goes behind this one
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

    def read(self, wanted: Wanted, tail: int | None = None) -> Logs:
        """The entries as wanted, the last `tail` of them at most."""
        found: list[LogEntry] = []
        for entry in reversed(self._entries):
            if tail is not None and len(found) >= tail:
                break
            if (part := wanted.of(entry)) is not None:
                found.append(part)
        return Logs(tuple(reversed(found)), self._dropped)

    def follow(self, wanted: Wanted, tail: int | None, *, ended: bool) -> Follower:
        """What there is as wanted, at most `tail` of it, and what will be, unless it has `ended`."""
        follower = Follower(wanted, self._leave)
        for entry in self.read(wanted, tail):
            follower.offer(entry)
        if ended:
            follower.end()
        else:
            self._followers.append(follower)
        return follower

    def _leave(self, follower: Follower) -> None:
        with contextlib.suppress(ValueError):  # it has left before
            self._followers.remove(follower)

    def task_ended(self, task: int) -> None:
        """A task has ended for its caller: who follows it alone has heard it all."""
        if self._followers:
            for follower in [each for each in self._followers if each.wanted.task == task]:
                follower.close()

    def close(self) -> None:
        """Nobody will write any more. What there is can still be read."""
        for follower in tuple(self._followers):
            follower.close()


def _stream(node: int, written: Output | LogEntry) -> _Stream:
    """What is one stream: that of a task wherever it runs, or that of a node whatever its machine is."""
    return written.task, 0 if written.task else node, written.stream


def _other(stream: _Stream) -> _Stream:
    """The other stream of the same task, or node."""
    task, node, name = stream
    return task, node, "stderr" if name == "stdout" else "stdout"


def _remember[K](lengths: dict[K, int], key: K, length: int) -> None:
    """Note the length of a stream; that of the stream that was silent for longest is forgotten for it."""
    lengths[key] = length
    if len(lengths) > _STREAMS:
        del lengths[next(iter(lengths))]
