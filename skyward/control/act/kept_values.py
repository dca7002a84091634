"""The shell of what the nodes of a pool keep: from the events of nodes to handles, and where their users run."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakMethod

from skyward.control.act.tasks.task import BroadcastWork, Work
from skyward.control.decide import messages as plane
from skyward.errors import KeptLostError, NoGroupFitsError, UsageError
from skyward.formatting import joined, nodes_text
from skyward.kept.book import KeptEntry, check_nodes, nodes_for, nodes_of_all
from skyward.kept.handles import forget, note
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
    """What the nodes of one pool keep. Lives on the library's loop, but for what handles call.

    Args:
        pool: its name.
        control: gives its control plane.
        tell: tells that.
        node_at: gives the node of a rank.
    """

    def __init__(
        self,
        pool: str,
        control: "Callable[[], ControlPlane]",
        tell: Callable[[plane.Message], None],
        node_at: "Callable[[int], Node | None]",
    ) -> None:
        self._pool = pool
        self._control = control
        self._tell = tell
        self._node_at = node_at
        self._start: WeakMethod[Any] | None = None
        self._closed = False

    def start_with(self, start: _Start) -> None:
        """Have tasks that fetch values started by a method, `Compute.start`."""
        self._start = WeakMethod(start)

    # What nodes say, and what became of them.

    def keeps(self, node: "Node", info: "KeptInfo", task: int = 0) -> None:
        """A node keeps a value from now on."""
        entry = KeptEntry(info, node.rank, self._pool, task, time.monotonic())
        note(entry, self)
        self._tell(plane.Keep(entry))

    def carry_out(self, effect: plane.Forget | plane.Unkept) -> None:
        """Tell a node to forget values, or note that they are lost."""
        if isinstance(effect, plane.Unkept):
            forget(entry.key for entry in effect.entries)
            return
        forget(effect.keys)
        if (node := self._node_at(effect.rank)) is not None:
            node.tell(ForgetValues(effect.keys))
            node.flush()

    def task_failed(self, task: int, left: Sequence[str] = ()) -> None:
        """Release what a task has kept that returns no handle of it; `left`: what it has left, as it was stopped."""
        entries = self._control().kept.entries.values()
        if keys := tuple(entry.key for entry in entries if entry.task == task and entry.key not in left):
            self._tell(plane.Release(keys))

    def close(self) -> None:
        """The pool is closed, and its nodes are gone."""
        self._closed = True
        entries = self._control().kept.entries
        forget(entries)
        for entry in entries.values():
            entry.lost = "its pool was closed"

    # Where tasks run that use what is kept.

    def place(self, work: Work, target: int | None) -> int:
        """Return the node where a task runs: `target`, or of those that have what it uses the one with least to do.

        Raises:
            KeptLostError, NoGroupFitsError, UsageError: it can run nowhere.
        """
        ranks = nodes_for(_wanted(work.kept), self._pool)
        names = joined(dict.fromkeys(handle.name for handle in work.kept))
        if target is not None:
            if target not in ranks:
                raise UsageError(
                    f"{names} is kept on {nodes_text(ranks)}, so this cannot run on node {target}: leave out where to "
                    f"run, or bring it here with `.fetch()`."
                )
            return target
        tasks = self._control().tasks
        able = [rank for rank in ranks if tasks.could_hold(rank, work.needs)]
        if not able:
            raise NoGroupFitsError(
                f"{names} is kept on {nodes_text(ranks)}, where {work.needs} can never be had: ask for less, or keep "
                "it on another node."
            )
        return min(able, key=lambda rank: (tasks.backlog(rank), rank))

    def places(self, broadcast: BroadcastWork, chosen: tuple[int, ...] | None) -> tuple[tuple[int, ...], str]:
        """Return the nodes of a broadcast, and what to say where these are not all that there are.

        Args:
            broadcast: it.
            chosen: the only nodes that it is for; None for all.

        Raises:
            KeptLostError, UsageError: it can run nowhere.
        """
        there = frozenset(self._control().tasks.ranks)
        names = joined(dict.fromkeys(handle.name for handle in broadcast.kept))
        if chosen is not None:
            check_nodes(_wanted(broadcast.kept), self._pool, chosen)
            return chosen, ""
        ranks = nodes_of_all(_wanted(broadcast.kept), self._pool, there)
        if not ranks & there:
            raise KeptLostError(f"No node that keeps {names} takes tasks now. Run it again later.")
        others = there - ranks
        if not others:
            return tuple(sorted(ranks)), ""
        keep = "keeps" if len(others) == 1 else "keep"
        said = f"{nodes_text(others)} {keep} no {names}, so what uses it runs on {nodes_text(ranks)} only."
        return tuple(sorted(ranks)), said

    def named(self, name: str) -> tuple[KeptEntry, ...]:
        """Return what nodes keep under a name, by rank; of each node what it kept last."""
        found = {entry.node: entry for entry in self._control().kept.entries.values() if entry.name == name}
        return tuple(found[node] for node in sorted(found))

    # What handles call, from any thread.

    def drop_kept(self, keys: Sequence[str]) -> None:
        """Have the nodes forget values."""
        if not (self._closed or is_forked()):
            background.call_soon(self._tell, plane.Release(tuple(keys)))

    def drop_kept_now(self, keys: Sequence[str]) -> None:
        """Have the nodes forget values, and return when they are no more on record."""
        if not self._closed:
            background.call(lambda: self._tell(plane.Release(tuple(keys))))

    def run_for_kept(self, pending: "PendingFunction[Any]", node: int) -> Any:
        """The result of a task that runs on a node.

        Raises:
            KeptLostError: the pool is closed.
        """
        start = None if self._start is None else self._start()
        if start is None or self._closed:
            raise KeptLostError(f"pool {self._pool!r} is closed, and what its nodes kept is gone.")
        return start(pending, on=node).future.result()


def keys_of(handles: "Iterable[Kept[Any]]") -> tuple[str, ...]:
    """Return the keys of all that handles stand for."""
    return tuple(entry.key for handle in handles for entry in handle.entries)


def _wanted(handles: "Iterable[Kept[Any]]") -> list[Sequence[KeptEntry]]:
    return [handle.entries for handle in handles]
