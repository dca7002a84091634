"""What the nodes of a pool keep for later tasks: where each value is, and until when its node counts as busy.

Decides and does nothing. A value is known by the key that its node gave it, is on one node, and never moves. Its node
counts as busy while a task uses the value, and for `keep_for` seconds after it was kept or used last.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from skyward.errors import KeptLostError, UsageError
from skyward.formatting import joined, nodes_text
from skyward.kept.keep import KeptInfo

__all__ = ["KeptBook", "KeptEntry", "check_nodes", "nodes_for", "nodes_of_all"]


@dataclass(slots=True, eq=False)
class KeptEntry:
    """A value that a node keeps.

    Attributes:
        info: what its node tells of it.
        node: rank of its node.
        pool: name of its pool.
        task: the number of the task that kept it.
        used_at: when it was kept or used last, in seconds of a steady clock.
        users: tasks that use it and have not ended.
        lost: why it is not kept any more; empty while it is.
    """

    info: KeptInfo
    node: int
    pool: str
    task: int = 0
    used_at: float = 0.0
    users: int = 0
    lost: str = ""

    @property
    def key(self) -> str:
        """Its own key."""
        return self.info.key

    @property
    def name(self) -> str:
        """What the user calls it."""
        return self.info.name

    @property
    def until(self) -> float:
        """When its node ceases to count as busy for it, unless a task uses it then."""
        return self.used_at + self.info.keep_for

    def holds_node(self, now: float) -> bool:
        """Return whether its node counts as busy for it."""
        return self.users > 0 or now < self.until


@dataclass
class KeptBook:
    """The values that the nodes of a pool keep."""

    entries: dict[str, KeptEntry] = field(default_factory=dict)

    def add(self, entry: KeptEntry) -> None:
        """Note a value."""
        self.entries[entry.key] = entry

    def began(self, keys: Iterable[str], now: float) -> None:
        """Note that a task which uses these values was submitted."""
        for entry in self._known(keys):
            entry.users += 1
            entry.used_at = now

    def ended(self, keys: Iterable[str], now: float) -> None:
        """Note that a task which used these values is over."""
        for entry in self._known(keys):
            entry.users -= 1
            entry.used_at = now

    def drop(self, keys: Iterable[str]) -> dict[int, tuple[str, ...]]:
        """Forget these values at the user's wish; by node, the keys that it is to forget."""
        found: dict[int, list[str]] = {}
        for entry in self._known(dict.fromkeys(keys)):
            del self.entries[entry.key]
            entry.lost = "it was dropped"
            found.setdefault(entry.node, []).append(entry.key)
        return {node: tuple(its) for node, its in found.items()}

    def leave(self, node: int, reason: str) -> tuple[KeptEntry, ...]:
        """Forget what the node of a rank kept, which is gone; the values."""
        gone = tuple(self.of(node))
        for entry in gone:
            del self.entries[entry.key]
            entry.lost = f"node {node} is gone: {reason}"
        return gone

    def of(self, node: int) -> list[KeptEntry]:
        """Return what a node keeps, the oldest first."""
        return [entry for entry in self.entries.values() if entry.node == node]

    def names(self, node: int) -> str:
        """Return what a node keeps, by name, as people list things."""
        return joined(dict.fromkeys(entry.name for entry in self.of(node)))

    def holding(self, now: float) -> dict[int, str]:
        """Return the ranks of the nodes that count as busy for what they keep, and its names."""
        found: dict[int, dict[str, None]] = {}
        for entry in self.entries.values():
            if entry.holds_node(now):
                found.setdefault(entry.node, {})[entry.name] = None
        return {node: joined(names) for node, names in sorted(found.items())}

    def _known(self, keys: Iterable[str]) -> list[KeptEntry]:
        return [entry for key in keys if (entry := self.entries.get(key)) is not None]


def nodes_for(wanted: Sequence[Sequence[KeptEntry]], pool: str) -> frozenset[int]:
    """Return the nodes of a pool where one task finds all of these values; each may be on several nodes.

    Raises:
        KeptLostError: one is on no node any more.
        UsageError: one is kept in another pool, or no node has all of them.
    """
    places: list[tuple[str, frozenset[int]]] = []
    for entries in wanted:
        name = entries[0].name
        _check_pool(entries, pool)
        there = frozenset(entry.node for entry in entries if not entry.lost)
        if not there:
            raise KeptLostError(f"{name} is not kept any more: {entries[0].lost}. Run what made it again.")
        places.append((name, there))
    common = frozenset.intersection(*(there for _, there in places))
    if not common:
        if len(places) > 1 and len({name for name, _ in places}) == 1:
            every = nodes_text(frozenset[int]().union(*(there for _, there in places)))
            raise UsageError(
                f"{len(places)} values of the name {places[0][0]} are kept on {every}, so no node has all of them. Use "
                "one of them at a time, such as each with `--map`, or bring them here with `fetch()` of each."
            )
        each = joined(f"{name} is kept on {nodes_text(there)}" for name, there in places)
        raise UsageError(
            f"{each}, so no node has all of them. Make them in one cell, or bring one of them here with "
            f"`{places[0][0]}.fetch()`."
        )
    return common


def nodes_of_all(wanted: Sequence[Sequence[KeptEntry]], pool: str, ranks: Iterable[int]) -> frozenset[int]:
    """Return the nodes of a broadcast that uses these values, of each of which every node has its own.

    Args:
        ranks: the nodes there are.

    Raises:
        KeptLostError: what one of its nodes kept is lost.
        UsageError: one is kept in another pool, on one node of several, or no node has all of them.
    """
    ranks = frozenset(ranks)
    for entries in wanted:
        _check_pool(entries, pool)
        name = entries[0].name
        if lost := [entry for entry in entries if entry.lost]:
            where = joined(str(entry.node) for entry in lost)
            raise KeptLostError(f"{name} of node {where} is not kept any more: {lost[0].lost}. Run what made it again.")
        if len(entries) == 1 and len(ranks) > 1:
            raise UsageError(
                f"{name} is kept on node {entries[0].node} only, and the pool has {len(ranks)} nodes: run this on one "
                f"node, make {name} on all of them (`%%sky --on all --keep {name}`; in a script, what keeps it with "
                f"`@ pool`), or bring it here with `{name}.fetch()`."
            )
    return nodes_for(wanted, pool)


def check_nodes(wanted: Sequence[Sequence[KeptEntry]], pool: str, ranks: Iterable[int]) -> None:
    """Check that each of these nodes of a pool has its own of all of these values.

    Raises:
        KeptLostError: what one of them kept is lost.
        UsageError: one of them keeps none, or it is kept in another pool.
    """
    ranks = frozenset(ranks)
    for entries in wanted:
        _check_pool(entries, pool)
        name = entries[0].name
        if lost := [entry for entry in entries if entry.lost and entry.node in ranks]:
            where = joined(str(entry.node) for entry in lost)
            raise KeptLostError(f"{name} of node {where} is not kept any more: {lost[0].lost}. Run what made it again.")
        there = frozenset(entry.node for entry in entries if not entry.lost)
        if others := ranks - there:
            raise UsageError(
                f"{name} is kept on {nodes_text(there)}, so this cannot run on {nodes_text(others)}: run it only where "
                f"it is kept, or bring it here with `{name}.fetch()`."
            )


def _check_pool(entries: Sequence[KeptEntry], pool: str) -> None:
    for entry in entries:
        if entry.pool and entry.pool != pool:  # of a value that was lost before anyone asked, it is not known
            raise UsageError(
                f"{entry.name} is kept in pool {entry.pool!r}, so it cannot be used in pool {pool!r}: run this there, "
                f"or bring it here with `{entry.name}.fetch()`."
            )
