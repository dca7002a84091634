"""Replication of blobs: one node gets a blob from the client, the others from nodes that have it or receive it.

Decides only; no I/O. The nodes that receive a blob form chains: each forwards it to one other node while it receives
it, so that a blob crosses each link once, and many nodes take little longer than one. When a link of a chain breaks,
the nodes behind it pull from another node; after two sources have failed a node, the client sends it.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

__all__ = [
    "CLIENT",
    "Have",
    "NotReplicated",
    "Pull",
    "ReplicationEffect",
    "ReplicationPlan",
    "Transfer",
    "WaitForPeers",
]

CLIENT = -1
"""The client as a source."""

_NOBODY = -2

MOST_TRIED = 2
"""Sources that may fail a node, for one blob, before the client sends it."""

CUT_OFF = 2
"""Unreachable sources after which a node that has reached none is not asked to pull from other nodes."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Send a blob from the client to a node."""

    node: int
    key: bytes


@dataclass(frozen=True, slots=True)
class Pull:
    """Have a node fetch a blob from another node."""

    node: int
    key: bytes
    source: int
    attempt: int


@dataclass(frozen=True, slots=True)
class WaitForPeers:
    """Wait: other nodes have the blob, but cannot exchange data yet. Call `hurry` after a timeout."""

    node: int
    key: bytes


@dataclass(frozen=True, slots=True)
class Have:
    """Report that a node has the blob."""

    node: int
    key: bytes


@dataclass(frozen=True, slots=True)
class NotReplicated:
    """Report that a node could not get the blob."""

    node: int
    key: bytes
    why: str


type ReplicationEffect = Transfer | Pull | WaitForPeers | Have | NotReplicated


@dataclass(slots=True)
class _Want:
    source: int = _NOBODY
    attempt: int = 0
    tried: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Blob:
    holders: dict[int, None] = field(default_factory=dict)
    wants: dict[int, _Want] = field(default_factory=dict)


class ReplicationPlan:
    """The nodes of a pool, with the blobs that they have and receive. Each method returns effects, in order."""

    def __init__(self) -> None:
        self._blobs: dict[bytes, _Blob] = {}
        self._open: set[int] = set()
        self._hopeless: set[int] = set()
        self._unreached: dict[int, set[int]] = {}
        self._reaches: set[int] = set()
        self._attempts = count(1)

    # Reports.

    def want(self, node: int, key: bytes) -> list[ReplicationEffect]:
        """Request a blob for a node that does not have it."""
        blob = self._blobs.setdefault(key, _Blob())
        blob.holders.pop(node, None)
        blob.wants[node] = _Want()
        return [*self._place(node, key)]

    def has(self, node: int, key: bytes) -> None:
        """Record that a node already has a blob."""
        self._blobs.setdefault(key, _Blob()).holders[node] = None

    def sent(self, node: int, key: bytes, why: str = "") -> list[ReplicationEffect]:
        """Record that the client has sent a blob; `why` says why it could not."""
        want = self._want(node, key)
        if want is None or want.source != CLIENT:
            return []
        return self._arrived(node, key) if not why else self._gave_up(node, key, why)

    def fetched(
        self, node: int, key: bytes, attempt: int, why: str = "", *, reached: bool = True
    ) -> list[ReplicationEffect]:
        """Record that a node fetched a blob; `why` says why it could not, `reached` if its source answered at all."""
        want = self._want(node, key)
        if want is None or want.attempt != attempt:
            return []  # superseded by a later attempt
        if reached:
            self._reaches.add(node)
        else:
            self._unreached.setdefault(node, set()).add(want.source)
        if not why:
            return self._arrived(node, key)
        want.tried.add(want.source)
        return [*self._place(node, key)]

    def opened(self, node: int) -> list[ReplicationEffect]:
        """Record that a node can exchange blobs with other nodes."""
        self._open.add(node)
        return [effect for key in self._blobs for effect in self._place_waiting(key)]

    def closed(self, node: int) -> list[ReplicationEffect]:
        """Record that a node can never exchange blobs with other nodes."""
        self._hopeless.add(node)
        return [effect for key in self._blobs for effect in self._place_waiting(key)]

    def hurry(self, node: int, key: bytes) -> list[ReplicationEffect]:
        """Stop waiting: have the client send the blob."""
        want = self._want(node, key)
        if want is None or want.source != _NOBODY:
            return []
        want.source = CLIENT
        return [Transfer(node, key), *self._place_waiting(key)]

    def dropped(self, node: int, key: bytes) -> list[ReplicationEffect]:
        """Record that a node drops a blob; nodes that fetch it from there get another source."""
        blob = self._blobs.get(key)
        if blob is None or node not in blob.holders:
            return []
        del blob.holders[node]
        effects = [*self._move_children(node, key)]
        self._forget_unused(key)
        return effects

    def lost(self, node: int) -> list[ReplicationEffect]:
        """Remove a node that is lost, or is about to be."""
        self._open.discard(node)
        self._hopeless.discard(node)
        self._reaches.discard(node)
        self._unreached.pop(node, None)
        for unreached in self._unreached.values():
            unreached.discard(node)
        effects: list[ReplicationEffect] = []
        for key, blob in tuple(self._blobs.items()):
            blob.holders.pop(node, None)
            if blob.wants.pop(node, None) is not None:
                effects.append(NotReplicated(node, key, "the node is gone"))
            effects.extend(self._move_children(node, key))
            self._forget_unused(key)
        return effects

    # Queries.

    def source(self, node: int, key: bytes) -> int | None:
        """Return the node that a node fetches a blob from; None if it does not fetch it, or has no source yet."""
        want = self._want(node, key)
        return None if want is None or want.source == _NOBODY else want.source

    def holders(self, key: bytes) -> frozenset[int]:
        """Return the nodes that have a blob."""
        blob = self._blobs.get(key)
        return frozenset() if blob is None else frozenset(blob.holders)

    # Decisions.

    def _want(self, node: int, key: bytes) -> _Want | None:
        blob = self._blobs.get(key)
        return None if blob is None else blob.wants.get(node)

    def _arrived(self, node: int, key: bytes) -> list[ReplicationEffect]:
        blob = self._blobs[key]
        del blob.wants[node]
        blob.holders[node] = None
        return [Have(node, key), *self._place_waiting(key)]

    def _gave_up(self, node: int, key: bytes, why: str) -> list[ReplicationEffect]:
        del self._blobs[key].wants[node]
        effects: list[ReplicationEffect] = [NotReplicated(node, key, why), *self._move_children(node, key)]
        self._forget_unused(key)
        return effects

    def _forget_unused(self, key: bytes) -> None:
        blob = self._blobs[key]
        if not blob.holders and not blob.wants:
            del self._blobs[key]

    def _move_children(self, node: int, key: bytes) -> Iterator[ReplicationEffect]:
        """Find other sources for the nodes that fetched a blob from a node, and for those that wait."""
        for child, want in tuple(self._blobs[key].wants.items()):
            if want.source == node:
                yield from self._place(child, key)
        yield from self._place_waiting(key)

    def _place_waiting(self, key: bytes) -> Iterator[ReplicationEffect]:
        """Find sources for the nodes that wait, as far as there are any."""
        for node, want in tuple(self._blobs[key].wants.items()):
            if want.source == _NOBODY:
                yield from (effect for effect in self._place(node, key) if not isinstance(effect, WaitForPeers))

    def _place(self, node: int, key: bytes) -> Iterator[ReplicationEffect]:
        """Choose the source of a blob for a node."""
        blob = self._blobs[key]
        want = blob.wants[node]
        want.source, want.attempt = _NOBODY, 0
        if self._may_pull(node, want):
            if sources := list(self._sources(blob, node, want)):
                want.source, want.attempt = self._best(blob, sources), next(self._attempts)
                yield Pull(node, key, want.source, want.attempt)
                return
            if self._worth_waiting(blob, node, want):
                yield WaitForPeers(node, key)
                return
        want.source = CLIENT
        yield Transfer(node, key)

    def _may_pull(self, node: int, want: _Want) -> bool:
        cut_off = node not in self._reaches and len(self._unreached.get(node, ())) >= CUT_OFF
        return node not in self._hopeless and not cut_off and len(want.tried) < MOST_TRIED

    def _sources(self, blob: _Blob, node: int, want: _Want) -> Iterator[int]:
        """Return the nodes that a node can fetch a blob from now."""
        if node not in self._open:
            return
        behind = self._behind(blob, node)
        for each in self._holders_first(blob):
            if each in self._open and each not in behind and self._is_untried(node, each, want):
                yield each

    def _worth_waiting(self, blob: _Blob, node: int, want: _Want) -> bool:
        """Return whether only an open port is missing, and no other node would wait behind this one."""
        return self._behind(blob, node) == {node} and any(
            each != node
            and each not in self._hopeless
            and self._is_untried(node, each, want)
            and not (node in self._open and each in self._open)
            for each in self._holders_first(blob)
        )

    def _is_untried(self, node: int, source: int, want: _Want) -> bool:
        return source not in want.tried and source not in self._unreached.get(node, ())

    def _holders_first(self, blob: _Blob) -> Iterator[int]:
        """Return the nodes that have a blob, then those that are receiving it."""
        yield from blob.holders
        yield from (each for each, want in blob.wants.items() if want.source != _NOBODY)

    def _behind(self, blob: _Blob, node: int) -> set[int]:
        """Return a node and those that get the blob from it, directly or not: they cannot be its source."""
        found = {node}
        grown = True
        while grown:
            more = {each for each, want in blob.wants.items() if want.source in found} - found
            found |= more
            grown = bool(more)
        return found

    def _best(self, blob: _Blob, sources: list[int]) -> int:
        """Return the source with the fewest transfers: of this blob, then of all. Nodes that have the blob go first."""
        here = Counter(want.source for want in blob.wants.values())
        everywhere = Counter(want.source for each in self._blobs.values() for want in each.wants.values())
        return min(sources, key=lambda each: (here[each], everywhere[each]))
