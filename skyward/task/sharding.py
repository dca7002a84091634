"""`sky.shard`: the part of some data that belongs to the node that asks.

Every node computes the same permutation and takes its own places of it, so nothing is coordinated. NumPy, PyTorch and
pandas are used through the data itself, and never imported.
"""

import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from operator import index
from typing import Any, overload

from skyward.errors import NotOnNodeError, SpecError
from skyward.task.instance import current_share, instance_info

__all__ = ["shard"]


@overload
def shard[T](
    data: T,
    /,
    *,
    shuffle: bool = False,
    seed: int = 0,
    drop_last: bool = False,
    node: int | None = None,
    total_nodes: int | None = None,
) -> T: ...
@overload
def shard[A, B](
    a: A,
    b: B,
    /,
    *,
    shuffle: bool = False,
    seed: int = 0,
    drop_last: bool = False,
    node: int | None = None,
    total_nodes: int | None = None,
) -> tuple[A, B]: ...
@overload
def shard[A, B, C](
    a: A,
    b: B,
    c: C,
    /,
    *,
    shuffle: bool = False,
    seed: int = 0,
    drop_last: bool = False,
    node: int | None = None,
    total_nodes: int | None = None,
) -> tuple[A, B, C]: ...
@overload
def shard(
    *data: Any,
    shuffle: bool = False,
    seed: int = 0,
    drop_last: bool = False,
    node: int | None = None,
    total_nodes: int | None = None,
) -> Any: ...
def shard(
    *data: Any,
    shuffle: bool = False,
    seed: int = 0,
    drop_last: bool = False,
    node: int | None = None,
    total_nodes: int | None = None,
) -> Any:
    """This node's part of `data`: of the same type, and for several inputs a tuple of the same places of each.

    A list, tuple, array, tensor, series or frame gives one of its kind, any other sequence a list. Arrays and tensors
    are copied, along their first axis. In a broadcast the places are those of the nodes that it was sent to; a node
    that joins it later gets nothing.

    Args:
        data: one or more inputs of equal length n.
        shuffle: permute the places before they are dealt out, in the same way on every node.
        seed: of that permutation.
        drop_last: give each node one block of n // total_nodes places, and leave the rest out. Otherwise the places
            node, node + total_nodes, ...: parts differ in length by at most one.
        node: instead of the rank of this node.
        total_nodes: instead of the number of nodes.

    Raises:
        SpecError: the inputs differ in length or have no order, or `node` is not one of `total_nodes`.
        NotOnNodeError: this is not a node, and `node` and `total_nodes` are not both given.
    """
    if not data:
        raise SpecError("`sky.shard` needs data: `sky.shard(x)`, or `sky.shard(x, y)` for the same places of both.")
    rank, count = _position(node, total_nodes)
    lengths = [_length(item) for item in data]
    if len(set(lengths)) > 1:
        raise SpecError(
            f"`sky.shard` takes the same places of each input, but their lengths are {', '.join(map(str, lengths))}: "
            "shard them one by one, or make them equal."
        )
    places = _places(lengths[0], rank, count, shuffle, seed, drop_last)
    parts = tuple(_take(item, places) for item in data)
    return parts[0] if len(parts) == 1 else parts


def _position(node: int | None, total_nodes: int | None) -> tuple[int, int]:
    """(rank, count) of this node. Only a position of the node's own may lie past the end: it came late."""
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
            "`sky.shard` asks the node it runs on for its place: call it inside a `@sky.function` that was sent to a "
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
        raise SpecError(f"`sky.shard` needs data with an order, but got a {kind}: pass a list of it.")
    shape = getattr(data, "shape", None)
    try:
        # Sparse matrices have a shape, and no length.
        return int(shape[0]) if isinstance(shape, Sequence) and shape else len(data)
    except TypeError:
        raise SpecError(f"`sky.shard` needs data with a length, but got a {kind}: pass a list or an array.") from None


def _places(length: int, rank: int, count: int, shuffle: bool, seed: int, drop_last: bool) -> slice | list[int]:
    """The places of `rank`: a slice, or the indices themselves where they are shuffled."""
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


def _take(data: Any, places: slice | list[int]) -> Any:
    match data:
        case list() | tuple():
            return _of_items(data, places, tuple if isinstance(data, tuple) else list)
        case _ if _made_by(data, "numpy"):
            part = data[places]
            return part.copy() if isinstance(places, slice) else part
        case _ if _made_by(data, "torch") and hasattr(data, "clone"):
            part = data[places]
            return part.clone() if isinstance(places, slice) else part
        case _ if hasattr(data, "iloc"):
            return data.iloc[places]
        case _ if _made_by(data, "datasets") and hasattr(data, "select"):
            return data.select(range(len(data))[places] if isinstance(places, slice) else places)
        case _ if getattr(data, "shape", None):
            return data[places if isinstance(places, slice) else _as_array(places)]
        case _:
            return _of_items(data, places, list)


def _of_items(data: Any, places: slice | list[int], kind: Callable[[Iterable[Any]], Any]) -> Any:
    return kind(map(data.__getitem__, range(len(data))[places] if isinstance(places, slice) else places))


def _as_array(places: list[int]) -> Any:
    """`places` as other array libraries take them: JAX refuses a list."""
    numpy = sys.modules.get("numpy")
    return numpy.asarray(places, dtype=int) if numpy else places


def _made_by(data: Any, package: str) -> bool:
    return any(base.__module__.partition(".")[0] == package for base in type(data).__mro__)
