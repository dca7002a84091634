"""Collections that the nodes of a pool and the client share: `sky.dict`, `set`, `counter`, `queue`, `barrier`, `lock`.

On a node, `sky.dict("cache")`; on the client, `pool.dict("cache")`, or `sky.dict("cache")` for the pool in scope. The
same name is the same collection everywhere. A collection comes to be with its first use, and ends with its pool.

What a name stands for is kept on up to three nodes, so it survives the loss of one of three; see each for what it does
meanwhile. Where all nodes that kept it are gone at the same time, its content is lost: the pool had one node, which
died; or it was idle and went down to no node. The first operation on a "strong" collection after that, of a task or of
the client, raises `CollectionLostError`; then the collection works again, empty. An "eventual" one is empty without
that. Barriers and locks have no content: who waits for one goes on waiting in the new nodes.

An operation of the client on a pool that has no node starts one, and keeps the pool from being idle meanwhile.
Operations have a second form for `await`, as `get_async` is that of `get`.
"""

from skyward.task.collections.barrier_lock import Barrier, Lock
from skyward.task.collections.counter_queue import Counter, Queue
from skyward.task.collections.dict_set import Dict, Set
from skyward.task.collections.opener import opener
from skyward.wire.collections.requests import Consistency

__all__ = [
    "Barrier",
    "Counter",
    "Dict",
    "Lock",
    "Queue",
    "Set",
    "barrier",
    "counter",
    "dict",
    "lock",
    "queue",
    "set",
]


def dict(name: str, *, consistency: Consistency | None = None) -> Dict:
    """The dict of this name. See `Dict`.

    Args:
        consistency: "strong", the default, or "eventual"; None for that of its first use.

    Raises:
        NoClusterError: the nodes of the pool form no cluster.
        SpecError: not a name, or not a consistency.
        NoPoolError: this is the client, and no pool is in scope.
    """
    found: Dict = opener("dict").dict(name, consistency=consistency)
    return found


def set(name: str, *, consistency: Consistency | None = None) -> Set:
    """The set of this name. See `Set`, and `dict` for the rest."""
    found: Set = opener("set").set(name, consistency=consistency)
    return found


def counter(name: str, *, consistency: Consistency | None = None) -> Counter:
    """The counter of this name, 0 at first. See `Counter`, and `dict` for the rest."""
    found: Counter = opener("counter").counter(name, consistency=consistency)
    return found


def queue(name: str) -> Queue:
    """The queue of this name. See `Queue`, and `dict` for the rest."""
    found: Queue = opener("queue").queue(name)
    return found


def barrier(name: str, n: int) -> Barrier:
    """The barrier of this name, for `n` parties. See `Barrier`, and `dict` for the rest."""
    found: Barrier = opener("barrier").barrier(name, n)
    return found


def lock(name: str, timeout: float | None = 30) -> Lock:
    """The lock of this name. See `Lock`, and `dict` for the rest.

    Args:
        timeout: seconds that `acquire` waits before it raises `TimeoutError`; None for as long as it takes.
    """
    found: Lock = opener("lock").lock(name, timeout)
    return found
