"""`sky.shard`: the calling node's part of some data.

Every node computes the same permutation and takes its own positions of it, so no coordination is needed. NumPy,
PyTorch and pandas are used through the data itself, and never imported.
"""

import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from operator import index
from typing import Any, TypedDict, Unpack, overload

from skyward.errors import NotOnNodeError, SpecError
from skyward.task.instance import current_share, instance_info

__all__ = ["shard"]


class ShardOptions(TypedDict, total=False):
    """Keywords of `sky.shard`."""

    shuffle: bool
    seed: int
    drop_last: bool
    node: int | None
    total_nodes: int | None


@overload
def shard[T](data: T, /, **options: Unpack[ShardOptions]) -> T: ...
@overload
def shard[A, B](a: A, b: B, /, **options: Unpack[ShardOptions]) -> tuple[A, B]: ...
@overload
def shard[A, B, C](a: A, b: B, c: C, /, **options: Unpack[ShardOptions]) -> tuple[A, B, C]: ...
@overload
def shard(*data: Any, **options: Unpack[ShardOptions]) -> Any: ...
def shard(
    *data: Any,
    shuffle: bool = False,
    seed: int = 0,
    drop_last: bool = False,
    node: int | None = None,
    total_nodes: int | None = None,
) -> Any:
    """Return this node's part of `data`, of the same type; for several inputs, a tuple of the same positions of each.

    A list, tuple, array, tensor, series or frame gives one of its kind, any other sequence a list. Arrays and tensors
    are copied, along their first axis. In a broadcast, the positions are divided among the nodes that it was sent to; a
    node that joins it later gets nothing. If a plugin makes it a collective, they are divided among all its processes;
    in a gang, among its members.

    Args:
        data: one or more inputs of equal length n.
        shuffle: permute the positions before they are divided, in the same way on every node.
        seed: seed of that permutation.
        drop_last: give each node one block of n // total_nodes positions, and drop the rest. Otherwise a node gets the
            positions node, node + total_nodes, ...: parts differ in length by at most one.
        node: overrides the rank of this node.
        total_nodes: overrides the number of nodes.

    Raises:
        SpecError: the inputs differ in length or have no order, or `node` is not less than `total_nodes`.
        NotOnNodeError: this is not a node, and `node` and `total_nodes` are not both given.

    Example:
        @sky.function
        def train(x: list[float], y: list[int]) -> float:
            x, y = sky.shard(x, y, shuffle=True)
            return fit(x, y)
    """
    if not data:
        raise SpecError("`sky.shard` needs data: `sky.shard(x)`, or `sky.shard(x, y)` for the same positions of both.")
    rank, count = _position(node, total_nodes)
    lengths = [_length(item) for item in data]
    if len(set(lengths)) > 1:
        raise SpecError(
            f"`sky.shard` needs inputs of equal length, but their lengths are {', '.join(map(str, lengths))}: "
            "shard them one by one, or make them equal."
        )
    positions = _positions(lengths[0], rank, count, shuffle, seed, drop_last)
    parts = tuple(_take(item, positions) for item in data)
    return parts[0] if len(parts) == 1 else parts


def _position(node: int | None, total_nodes: int | None) -> tuple[int, int]:
    """Return (rank, count) of this node. Its own rank may be past the end, if it joined a broadcast late."""
    own: tuple[int, int] | None = None
    if node is None or total_nodes is None:
        own = current_share.get()
        if own is None:
            own = _own_position()
    rank = _whole(node, "node", 0) if node is not None else (own or (0, 0))[0]
    count = _whole(total_nodes, "total_nodes", 1) if total_nodes is not None else (own or (0, 0))[1]
    if node is not None and rank >= count:
        raise SpecError(f"node must be less than total_nodes ({count}), counted from 0, but got {node}.")
    return rank, count


def _own_position() -> tuple[int, int]:
    try:
        info = instance_info()
    except NotOnNodeError:
        raise NotOnNodeError(
            "`sky.shard` needs the rank of the node it runs on: call it inside a `@sky.function` that was sent to a "
            "pool, or give both `node=` and `total_nodes=`."
        ) from None
    return info.node, info.total_nodes


def _whole(value: Any, name: str, least: int) -> int:
    try:
        number = index(value)
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise SpecError(f"{name} must be a whole number of at least {least}, but got {value!r}.")
    return number


def _length(data: Any) -> int:
    kind = type(data).__name__
    if isinstance(data, (Mapping, Set)):
        raise SpecError(f"`sky.shard` needs data with an order, but got a {kind}: convert it to a list.")
    shape = getattr(data, "shape", None)
    try:
        # Sparse matrices have a shape but no length.
        return int(shape[0]) if isinstance(shape, Sequence) and shape else len(data)
    except TypeError:
        raise SpecError(f"`sky.shard` needs data with a length, but got a {kind}: pass a list or an array.") from None


def _positions(length: int, rank: int, count: int, shuffle: bool, seed: int, drop_last: bool) -> slice | list[int]:
    """Return the positions of `rank`: a slice, or the shuffled indices."""
    if rank >= count:
        return slice(0, 0)
    block = length // count
    mine = slice(rank * block, (rank + 1) * block) if drop_last else slice(rank, length, count)
    if not shuffle:
        return mine
    if seed is None:
        raise SpecError("`sky.shard(shuffle=True)` needs a seed that all nodes share, but got None: leave it at 0.")
    order = list(range(length))
    random.Random(seed).shuffle(order)
    return order[mine]


def _take(data: Any, positions: slice | list[int]) -> Any:
    match data:
        case list() | tuple():
            return _of_items(data, positions, tuple if isinstance(data, tuple) else list)
        case _ if _made_by(data, "numpy"):
            part = data[positions]
            return part.copy() if isinstance(positions, slice) else part
        case _ if _made_by(data, "torch") and hasattr(data, "clone"):
            part = data[positions]
            return part.clone() if isinstance(positions, slice) else part
        case _ if hasattr(data, "iloc"):
            return data.iloc[positions]
        case _ if _made_by(data, "datasets") and hasattr(data, "select"):
            return data.select(range(len(data))[positions] if isinstance(positions, slice) else positions)
        case _ if getattr(data, "shape", None):
            return data[positions if isinstance(positions, slice) else _as_array(positions)]
        case _:
            return _of_items(data, positions, list)


def _of_items(data: Any, positions: slice | list[int], kind: Callable[[Iterable[Any]], Any]) -> Any:
    return kind(map(data.__getitem__, range(len(data))[positions] if isinstance(positions, slice) else positions))


def _as_array(positions: list[int]) -> Any:
    """Return `places` as an array, for array libraries that refuse a list, such as JAX."""
    numpy = sys.modules.get("numpy")
    return numpy.asarray(positions, dtype=int) if numpy else positions


def _made_by(data: Any, package: str) -> bool:
    return any(base.__module__.partition(".")[0] == package for base in type(data).__mro__)
