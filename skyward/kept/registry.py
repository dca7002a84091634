"""Registry of the values that a pool's nodes keep for later tasks: the node of each, and until when it counts as busy.

Pure: it decides and performs no I/O. A value is identified by the key that its node gave it, is on one node, and never
moves. Its node counts as busy while a task uses the value, and for `keep_for` seconds after it was last kept or used.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from skyward.errors import RERUN, KeptLostError, UsageError
from skyward.formatting import joined, nodes_text
from skyward.kept.keep import KeptInfo

__all__ = ["KeptEntry", "KeptRegistry", "check_nodes", "nodes_for", "nodes_of_all"]


@dataclass(slots=True, eq=False)
class KeptEntry:
    """A value that a node keeps.

    Attributes:
        info: its description, as sent by the node.
        node: rank of its node.
        pool: name of its pool.
        task: number of the task that kept it.
        used_at: when it was last kept or used, in seconds of a monotonic clock.
        users: number of unfinished tasks that use it.
        lost: why it is no longer kept; empty while it is.
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
        """The key of the value."""
        return self.info.key

    @property
    def name(self) -> str:
        """The name that the user gave the value."""
        return self.info.name

    @property
    def until(self) -> float:
        """Time at which its node stops counting as busy for it, unless a task uses it then."""
        return self.used_at + self.info.keep_for

    def holds_node(self, now: float) -> bool:
        """Return whether its node counts as busy for it."""
        return self.users > 0 or now < self.until


@dataclass
class KeptRegistry:
    """The values that the nodes of a pool keep."""

    entries: dict[str, KeptEntry] = field(default_factory=dict)

    def add(self, entry: KeptEntry) -> None:
        """Register a value."""
        self.entries[entry.key] = entry

    def task_submitted(self, keys: Iterable[str], now: float) -> None:
        """Record that a task which uses these values was submitted."""
        for entry in self._known(keys):
            entry.users += 1
            entry.used_at = now

    def task_ended(self, keys: Iterable[str], now: float) -> None:
        """Record that a task which used these values has ended."""
        for entry in self._known(keys):
            entry.users -= 1
            entry.used_at = now

    def drop(self, keys: Iterable[str]) -> dict[int, tuple[str, ...]]:
        """Forget these values at the user's request. Return the keys that each node must forget, by rank."""
        found: dict[int, list[str]] = {}
        for entry in self._known(dict.fromkeys(keys)):
            del self.entries[entry.key]
            entry.lost = "it was dropped"
            found.setdefault(entry.node, []).append(entry.key)
        return {node: tuple(node_keys) for node, node_keys in found.items()}

    def node_lost(self, node: int, reason: str) -> tuple[KeptEntry, ...]:
        """Forget the values of a node that is gone. Return them."""
        gone = tuple(self.on_node(node))
        for entry in gone:
            del self.entries[entry.key]
            entry.lost = f"node {node} is gone: {reason}"
        return gone

    def on_node(self, node: int) -> list[KeptEntry]:
        """Return the values that a node keeps, oldest first."""
        return [entry for entry in self.entries.values() if entry.node == node]

    def names(self, node: int) -> str:
        """Return the names of the values that a node keeps, as text for a sentence."""
        return joined(dict.fromkeys(entry.name for entry in self.on_node(node)))

    def busy_nodes(self, now: float) -> dict[int, str]:
        """Return the names of the kept values that make nodes count as busy, by rank of the node."""
        if not self.entries:
            return {}
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
        KeptLostError: no node keeps one of them any more.
        UsageError: one is kept in another pool, or no node has all of them.
    """
    places: list[tuple[str, frozenset[int]]] = []
    for entries in wanted:
        name = entries[0].name
        _check_pool(entries, pool)
        kept_on = frozenset(entry.node for entry in entries if not entry.lost)
        if not kept_on:
            raise KeptLostError(f"{name} is no longer kept: {entries[0].lost}. {RERUN}")
        places.append((name, kept_on))
    common = frozenset.intersection(*(kept_on for _, kept_on in places))
    if not common:
        if len(places) > 1 and len({name for name, _ in places}) == 1:
            every = nodes_text(frozenset[int]().union(*(kept_on for _, kept_on in places)))
            raise UsageError(
                f"{len(places)} values named {places[0][0]} are kept on {every}, so no node has all of them. Use "
                "one of them at a time, such as each with `--map`, or copy each here with its `fetch()`."
            )
        each = joined(f"{name} is kept on {nodes_text(kept_on)}" for name, kept_on in places)
        raise UsageError(
            f"{each}, so no node has all of them. Make them in one cell, or copy one of them here with "
            f"`{places[0][0]}.fetch()`."
        )
    return common


def nodes_of_all(wanted: Sequence[Sequence[KeptEntry]], pool: str, ranks: Iterable[int]) -> frozenset[int]:
    """Return the nodes of a broadcast that uses these values, every one of which has its own copy of each value.

    Args:
        ranks: the current nodes of the pool.

    Raises:
        KeptLostError: a node lost its value.
        UsageError: one is kept in another pool or on one node of several, or no node has all of them.
    """
    ranks = frozenset(ranks)
    for entries in wanted:
        _check_pool(entries, pool)
        name = entries[0].name
        if lost := [entry for entry in entries if entry.lost]:
            where = joined(str(entry.node) for entry in lost)
            raise KeptLostError(f"{name} of node {where} is no longer kept: {lost[0].lost}. {RERUN}")
        if len(entries) == 1 and len(ranks) > 1:
            raise UsageError(
                f"{name} is kept on node {entries[0].node} only, and the pool has {len(ranks)} nodes: run this on one "
                f"node, make {name} on all of them (`%%sky --on all --keep {name}`; in a script, call what keeps it "
                f"with `@ pool`), or copy it here with `{name}.fetch()`."
            )
    return nodes_for(wanted, pool)


def check_nodes(wanted: Sequence[Sequence[KeptEntry]], pool: str, ranks: Iterable[int]) -> None:
    """Check that each of these nodes has its own copy of all of these values.

    Raises:
        KeptLostError: one of the nodes lost its value.
        UsageError: one of the nodes keeps none, or the value is kept in another pool.
    """
    ranks = frozenset(ranks)
    for entries in wanted:
        _check_pool(entries, pool)
        name = entries[0].name
        if lost := [entry for entry in entries if entry.lost and entry.node in ranks]:
            where = joined(str(entry.node) for entry in lost)
            raise KeptLostError(f"{name} of node {where} is no longer kept: {lost[0].lost}. {RERUN}")
        kept_on = frozenset(entry.node for entry in entries if not entry.lost)
        if others := ranks - kept_on:
            raise UsageError(
                f"{name} is kept on {nodes_text(kept_on)}, so this cannot run on {nodes_text(others)}: run it only "
                f"where it is kept, or copy it here with `{name}.fetch()`."
            )


def _check_pool(entries: Sequence[KeptEntry], pool: str) -> None:
    for entry in entries:
        if entry.pool and entry.pool != pool:  # unknown for a value that was lost before its first use here
            raise UsageError(
                f"{entry.name} is kept in pool {entry.pool!r}, so it cannot be used in pool {pool!r}: run this there, "
                f"or copy it here with `{entry.name}.fetch()`."
            )
