"""Collections that the nodes of a pool and the client share: `sky.dict`, `set`, `counter`, `queue`, `barrier`, `lock`.

On a node, `sky.dict("cache")`; on the client, `pool.dict("cache")`, or `sky.dict("cache")` for the pool in scope. The
same name is the same collection everywhere. A collection is created at first use, and ends with its pool.

A collection is replicated to up to three nodes, so it survives the loss of one of three; each class says what happens
meanwhile. If all nodes with a copy are lost (the only node died, or an idle pool scaled to zero), the content is lost;
if nodes are lost before the others have new copies, which takes a few seconds, part of it may be. The next operation on
a "strong" collection, from a task or the client, raises `CollectionLostError`; after that the collection works again,
with what is left. An "eventual" collection is empty without an error. Barriers and locks
have no content: their waiters keep waiting on the new nodes.

An operation of the client on a pool without nodes starts one, and keeps the pool from being idle meanwhile. Operations
have an async form, such as `get_async` for `get`.
"""

from skyward.task.collections.barrier_lock import Barrier, Lock
from skyward.task.collections.counter_queue import Counter, Queue
from skyward.task.collections.dict_set import Dict, Set
from skyward.task.collections.factory import current_factory
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
    """Return the dict of this name. See `Dict`.

    Args:
        consistency: "strong", the default, or "eventual"; None for that of its first use.

    Raises:
        NoClusterError: the nodes of the pool form no cluster.
        SpecError: invalid name or consistency.
        NoPoolError: this is the client, and no pool is in scope.

    Example:
        @sky.function
        def remember(key: str, value: float) -> None:
            sky.dict("results")[key] = value
    """
    found: Dict = current_factory("dict").dict(name, consistency=consistency)
    return found


def set(name: str, *, consistency: Consistency | None = None) -> Set:
    """Return the set of this name. See `Set`; arguments and errors are those of `dict`.

    Example:
        @sky.function
        def is_new(url: str) -> bool:
            seen = sky.set("seen")
            if url in seen:
                return False
            seen.add(url)
            return True
    """
    found: Set = current_factory("set").set(name, consistency=consistency)
    return found


def counter(name: str, *, consistency: Consistency | None = None) -> Counter:
    """Return the counter of this name; it starts at 0. See `Counter`; arguments and errors are those of `dict`.

    Example:
        @sky.function
        def step() -> int:
            return sky.counter("steps").increment()
    """
    found: Counter = current_factory("counter").counter(name, consistency=consistency)
    return found


def queue(name: str) -> Queue:
    """Return the queue of this name. See `Queue`; errors are those of `dict`.

    Example:
        @sky.function
        def work() -> None:
            jobs = sky.queue("jobs")
            while (job := jobs.get(timeout=5)) is not None:
                process(job)
    """
    found: Queue = current_factory("queue").queue(name)
    return found


def barrier(name: str, n: int) -> Barrier:
    """Return the barrier of this name, for `n` parties. See `Barrier`; errors are those of `dict`.

    Example:
        @sky.function
        def epoch() -> None:
            sky.barrier("epoch", sky.instance_info().total_nodes).wait(timeout=60)
    """
    found: Barrier = current_factory("barrier").barrier(name, n)
    return found


def lock(name: str, timeout: float | None = 30) -> Lock:
    """Return the lock of this name. See `Lock`; errors are those of `dict`.

    Args:
        timeout: seconds that `acquire` waits before it raises `TimeoutError`; None to wait without a limit.

    Example:
        @sky.function
        def publish(row: str) -> None:
            with sky.lock("table"):
                append(row)
    """
    found: Lock = current_factory("lock").lock(name, timeout)
    return found
