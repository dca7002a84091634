"""Who gets a blob from whom: one node from the client, each other one from a node that has it, or is getting it.

Decides and does nothing. The nodes that get a blob form chains: each passes on to one other what it receives while it
receives it, so that a blob crosses each link once, and many nodes take little longer than one. When a link of a chain
breaks, what comes after it is joined to another node; after two of those have failed a node, to the client.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

__all__ = ["CLIENT", "Effect", "GiveUp", "Have", "Pull", "ReplicationPlan", "Transfer", "Wait"]

CLIENT = -1
"""The client as a source."""

_NOBODY = -2

MOST_TRIED = 2
"""Other nodes that fail a node, of one blob, before the client sends it."""

CUT_OFF = 2
"""Other nodes that a node must have failed to reach, and never reached one, to be asked to reach no more of them."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """The client sends it."""

    node: int
    key: bytes


@dataclass(frozen=True, slots=True)
class Pull:
    """The node gets it from another."""

    node: int
    key: bytes
    source: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Others have it, but nodes cannot speak to each other yet: say `hurry` when that has taken too long."""

    node: int
    key: bytes


@dataclass(frozen=True, slots=True)
class Have:
    """The node has it now."""

    node: int
    key: bytes


@dataclass(frozen=True, slots=True)
class GiveUp:
    """It did not get there."""

    node: int
    key: bytes
    why: str


type Effect = Transfer | Pull | Wait | Have | GiveUp


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
    """The nodes of a pool and the blobs that they have and get. Each method returns what to do, in order."""

    def __init__(self) -> None:
        self._blobs: dict[bytes, _Blob] = {}
        self._open: set[int] = set()
        self._hopeless: set[int] = set()
        self._unreached: dict[int, set[int]] = {}
        self._reaches: set[int] = set()
        self._attempts = count(1)

    # What the nodes say.

    def want(self, node: int, key: bytes) -> list[Effect]:
        """A node that does not have a blob is to get it."""
        blob = self._blobs.setdefault(key, _Blob())
        blob.holders.pop(node, None)
        blob.wants[node] = _Want()
        return [*self._place(node, key)]

    def has(self, node: int, key: bytes) -> None:
        """A node has had it before anybody asked for it here."""
        self._blobs.setdefault(key, _Blob()).holders[node] = None

    def sent(self, node: int, key: bytes, why: str = "") -> list[Effect]:
        """The client has sent it; or `why` it could not."""
        want = self._want(node, key)
        if want is None or want.source != CLIENT:
            return []
        return self._arrived(node, key) if not why else self._gave_up(node, key, why)

    def fetched(self, node: int, key: bytes, attempt: int, why: str = "", *, reached: bool = True) -> list[Effect]:
        """A node has it from another; or `why` not, and whether it reached that one at all."""
        want = self._want(node, key)
        if want is None or want.attempt != attempt:
            return []  # it was told to get it elsewhere meanwhile
        if reached:
            self._reaches.add(node)
        else:
            self._unreached.setdefault(node, set()).add(want.source)
        if not why:
            return self._arrived(node, key)
        want.tried.add(want.source)
        return [*self._place(node, key)]

    def opened(self, node: int) -> list[Effect]:
        """A node can get blobs from others now, and give."""
        self._open.add(node)
        return [effect for key in self._blobs for effect in self._place_waiting(key)]

    def closed(self, node: int) -> list[Effect]:
        """A node will never get blobs from others."""
        self._hopeless.add(node)
        return [effect for key in self._blobs for effect in self._place_waiting(key)]

    def hurry(self, node: int, key: bytes) -> list[Effect]:
        """A node has waited for long enough."""
        want = self._want(node, key)
        if want is None or want.source != _NOBODY:
            return []
        want.source = CLIENT
        return [Transfer(node, key), *self._place_waiting(key)]

    def dropped(self, node: int, key: bytes) -> list[Effect]:
        """A node is to forget it. What others were getting from there comes from elsewhere."""
        blob = self._blobs.get(key)
        if blob is None or node not in blob.holders:
            return []
        del blob.holders[node]
        effects = [*self._move_children(node, key)]
        self._tidy(key)
        return effects

    def lost(self, node: int) -> list[Effect]:
        """A node is gone, or is about to be."""
        self._open.discard(node)
        self._hopeless.discard(node)
        self._reaches.discard(node)
        self._unreached.pop(node, None)
        for unreached in self._unreached.values():
            unreached.discard(node)
        effects: list[Effect] = []
        for key, blob in tuple(self._blobs.items()):
            blob.holders.pop(node, None)
            if blob.wants.pop(node, None) is not None:
                effects.append(GiveUp(node, key, "the node is gone"))
            effects.extend(self._move_children(node, key))
            self._tidy(key)
        return effects

    # Looking at it.

    def source(self, node: int, key: bytes) -> int | None:
        """Where a node is getting a blob from; None where it is not getting it, or waits for where to get it."""
        want = self._want(node, key)
        return None if want is None or want.source == _NOBODY else want.source

    def holders(self, key: bytes) -> frozenset[int]:
        """The nodes that have a blob."""
        blob = self._blobs.get(key)
        return frozenset() if blob is None else frozenset(blob.holders)

    # Deciding.

    def _want(self, node: int, key: bytes) -> _Want | None:
        blob = self._blobs.get(key)
        return None if blob is None else blob.wants.get(node)

    def _arrived(self, node: int, key: bytes) -> list[Effect]:
        blob = self._blobs[key]
        del blob.wants[node]
        blob.holders[node] = None
        return [Have(node, key), *self._place_waiting(key)]

    def _gave_up(self, node: int, key: bytes, why: str) -> list[Effect]:
        del self._blobs[key].wants[node]
        effects: list[Effect] = [GiveUp(node, key, why), *self._move_children(node, key)]
        self._tidy(key)
        return effects

    def _tidy(self, key: bytes) -> None:
        blob = self._blobs[key]
        if not blob.holders and not blob.wants:
            del self._blobs[key]

    def _move_children(self, node: int, key: bytes) -> Iterator[Effect]:
        """Place anew what was getting a blob from a node, and what waited for that."""
        for child, want in tuple(self._blobs[key].wants.items()):
            if want.source == node:
                yield from self._place(child, key)
        yield from self._place_waiting(key)

    def _place_waiting(self, key: bytes) -> Iterator[Effect]:
        """Place what waits, as far as it need not wait any more."""
        for node, want in tuple(self._blobs[key].wants.items()):
            if want.source == _NOBODY:
                yield from (effect for effect in self._place(node, key) if not isinstance(effect, Wait))

    def _place(self, node: int, key: bytes) -> Iterator[Effect]:
        """Find where a node gets a blob from."""
        blob = self._blobs[key]
        want = blob.wants[node]
        want.source, want.attempt = _NOBODY, 0
        if self._may_pull(node, want):
            if sources := list(self._offers(blob, node, want)):
                want.source, want.attempt = self._best(blob, sources), next(self._attempts)
                yield Pull(node, key, want.source, want.attempt)
                return
            if self._worth_waiting(blob, node, want):
                yield Wait(node, key)
                return
        want.source = CLIENT
        yield Transfer(node, key)

    def _may_pull(self, node: int, want: _Want) -> bool:
        cut_off = node not in self._reaches and len(self._unreached.get(node, ())) >= CUT_OFF
        return node not in self._hopeless and not cut_off and len(want.tried) < MOST_TRIED

    def _offers(self, blob: _Blob, node: int, want: _Want) -> Iterator[int]:
        """The nodes that a node could get a blob from now."""
        if node not in self._open:
            return
        behind = self._behind(blob, node)
        for each in self._having(blob):
            if each in self._open and each not in behind and self._is_new(node, each, want):
                yield each

    def _worth_waiting(self, blob: _Blob, node: int, want: _Want) -> bool:
        """Whether nothing but an open port is missing, and no other node would wait behind it."""
        return self._behind(blob, node) == {node} and any(
            each != node
            and each not in self._hopeless
            and self._is_new(node, each, want)
            and not (node in self._open and each in self._open)
            for each in self._having(blob)
        )

    def _is_new(self, node: int, source: int, want: _Want) -> bool:
        return source not in want.tried and source not in self._unreached.get(node, ())

    def _having(self, blob: _Blob) -> Iterator[int]:
        """The nodes that have it, then those that are getting it."""
        yield from blob.holders
        yield from (each for each, want in blob.wants.items() if want.source != _NOBODY)

    def _behind(self, blob: _Blob, node: int) -> set[int]:
        """A node and those that get the blob from it, directly or not: it cannot get it from them."""
        found = {node}
        grown = True
        while grown:
            more = {each for each, want in blob.wants.items() if want.source in found} - found
            found |= more
            grown = bool(more)
        return found

    def _best(self, blob: _Blob, sources: list[int]) -> int:
        """The one that gives to the fewest others: of this blob, then of all. Those that have it go first."""
        here = Counter(want.source for want in blob.wants.values())
        everywhere = Counter(want.source for each in self._blobs.values() for want in each.wants.values())
        return min(sources, key=lambda each: (here[each], everywhere[each]))
