"""Values kept on the nodes of a pool: their handles, their loss, and the placement of the tasks that use them."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakMethod

from skyward.control.act.tasks.task import BroadcastWork, Work
from skyward.control.decide import messages as plane
from skyward.errors import KeptLostError, NoGroupFitsError, UsageError
from skyward.formatting import joined, nodes_text
from skyward.kept.handles import forget, note
from skyward.kept.registry import KeptEntry, check_nodes, nodes_for, nodes_of_all
from skyward.process import background
from skyward.process.forked import is_forked
from skyward.wire.protocol.messages import ForgetValues

if TYPE_CHECKING:
    from skyward.control.act.nodes.node import Node
    from skyward.control.decide.plane import ControlPlane
    from skyward.functions.pending import PendingFunction
    from skyward.kept.handles import Kept
    from skyward.kept.keep import KeptInfo

__all__ = ["KeptValues", "keys_of"]


class _Start(Protocol):
    def __call__(self, pending: "PendingFunction[Any]", *, on: int) -> Any: ...


class KeptValues:
    """The kept values of one pool. Runs on the library's loop, except for the methods that handles call.

    Args:
        pool: name of the pool.
        control: returns the pool's control plane.
        tell: sends a message to the control plane.
        node_at: returns the node of a rank.
    """

    def __init__(
        self,
        pool: str,
        control: "Callable[[], ControlPlane]",
        tell: Callable[[plane.PlaneMessage], None],
        node_at: "Callable[[int], Node | None]",
    ) -> None:
        self._pool = pool
        self._control = control
        self._tell = tell
        self._node_at = node_at
        self._start: WeakMethod[Any] | None = None
        self._closed = False

    def start_with(self, start: _Start) -> None:
        """Set the bound method that starts tasks which fetch values: `Compute.start`."""
        self._start = WeakMethod(start)

    # Events of nodes.

    def add(self, node: "Node", info: "KeptInfo", task: int = 0) -> None:
        """Record a value that a node keeps."""
        entry = KeptEntry(info, node.rank, self._pool, task, time.monotonic())
        note(entry, self)
        self._tell(plane.KeptAdded(entry))

    def execute(self, effect: plane.ForgetKept | plane.KeptValuesLost) -> None:
        """Have a node forget values, or mark them as lost."""
        if isinstance(effect, plane.KeptValuesLost):
            forget(entry.key for entry in effect.entries)
            return
        forget(effect.keys)
        if (node := self._node_at(effect.rank)) is not None:
            node.tell(ForgetValues(effect.keys))
            node.flush()

    def task_failed(self, task: int, left: Sequence[str] = ()) -> None:
        """Release the values of a task that returns no handles of them, except the keys in `left`."""
        entries = self._control().kept.entries.values()
        if keys := tuple(entry.key for entry in entries if entry.task == task and entry.key not in left):
            self._tell(plane.ReleaseKept(keys))

    def close(self) -> None:
        """Mark all kept values as lost: the pool is closed."""
        self._closed = True
        entries = self._control().kept.entries
        forget(entries)
        for entry in entries.values():
            entry.lost = "its pool was closed"

    def leave(self) -> None:
        """Keep the values on their nodes when this process drops its handles: its pool is for another process now."""
        self._closed = True

    # Placement of the tasks that use kept values.

    def place(self, work: Work, target: int | None) -> int:
        """Return the node where a task runs: `target`, or the least busy node that keeps every value it uses.

        Raises:
            KeptLostError, NoGroupFitsError, UsageError: no node can run it.
        """
        ranks = nodes_for(_wanted(work.kept), self._pool)
        names = joined(dict.fromkeys(handle.name for handle in work.kept))
        if target is not None:
            if target not in ranks:
                raise UsageError(
                    f"{names} is kept on {nodes_text(ranks)}, so this cannot run on node {target}: do not pin the "
                    f"call to a node, or bring the value here with `.fetch()`."
                )
            return target
        tasks = self._control().tasks
        able = [rank for rank in ranks if tasks.could_hold(rank, work.needs)]
        if not able:
            raise NoGroupFitsError(
                f"{names} is kept on {nodes_text(ranks)}, which can never provide {work.needs}: request less, or keep "
                "it on another node."
            )
        return min(able, key=lambda rank: (tasks.backlog(rank), rank))

    def places(self, broadcast: BroadcastWork, chosen: tuple[int, ...] | None) -> tuple[tuple[int, ...], str]:
        """Return the nodes of a broadcast, and a notice if these are not all nodes.

        Args:
            broadcast: the broadcast to place.
            chosen: the nodes that the caller chose; None for all.

        Raises:
            KeptLostError, UsageError: no node can run it.
        """
        active = frozenset(self._control().tasks.ranks)
        names = joined(dict.fromkeys(handle.name for handle in broadcast.kept))
        if chosen is not None:
            check_nodes(_wanted(broadcast.kept), self._pool, chosen)
            return chosen, ""
        ranks = nodes_of_all(_wanted(broadcast.kept), self._pool, active)
        if not ranks & active:
            raise KeptLostError(f"No node that keeps {names} accepts tasks now. Run it again later.")
        others = active - ranks
        if not others:
            return tuple(sorted(ranks)), ""
        keep = "keeps" if len(others) == 1 else "keep"
        notice = f"{nodes_text(others)} {keep} no {names}, so tasks that use it run on {nodes_text(ranks)} only."
        return tuple(sorted(ranks)), notice

    def named(self, name: str) -> tuple[KeptEntry, ...]:
        """Return the entries of a name, by rank; of each node the latest."""
        found = {entry.node: entry for entry in self._control().kept.entries.values() if entry.name == name}
        return tuple(found[node] for node in sorted(found))

    # Methods that handles call, from any thread.

    def drop_kept(self, keys: Sequence[str]) -> None:
        """Drop values."""
        if not (self._closed or is_forked()):
            background.call_soon(self._tell, plane.ReleaseKept(tuple(keys)))

    def drop_kept_now(self, keys: Sequence[str]) -> None:
        """Drop values, and wait until the registry no longer lists them."""
        if not self._closed:
            background.call(lambda: self._tell(plane.ReleaseKept(tuple(keys))))

    def run_for_kept(self, pending: "PendingFunction[Any]", node: int) -> Any:
        """Run a task on a node and return its result.

        Raises:
            KeptLostError: the pool is closed.
        """
        start = None if self._start is None else self._start()
        if start is None or self._closed:
            raise KeptLostError(f"pool {self._pool!r} is closed, and its kept values are gone.")
        return start(pending, on=node).future.result()


def keys_of(handles: "Iterable[Kept[Any]]") -> tuple[str, ...]:
    """Return the keys of the values of `handles`."""
    return tuple(entry.key for handle in handles for entry in handle._entries)


def _wanted(handles: "Iterable[Kept[Any]]") -> list[Sequence[KeptEntry]]:
    return [handle._entries for handle in handles]
