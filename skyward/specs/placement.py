"""Placement of a task: `pool.start(on=...)`, `%%sky --on`."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from operator import index
from typing import Final

from skyward.errors import UsageError
from skyward.values.validation import closest, shown

__all__ = ["ALL", "On", "Several", "target_of"]

type On = str | int | Iterable[int]
"""One node: "one" (any), "head" or a rank. Several nodes: "all", ranks, or the name of a group of the pool."""

_TAKES = "on must be 'one', 'all', 'head', a rank, a list or range of ranks, or the name of a group"


@dataclass(frozen=True, slots=True)
class Several:
    """Several nodes: those of `ranks`, those of `group`, or all."""

    ranks: tuple[int, ...] | None = None
    group: str | None = None


ALL: Final = Several()
"""Every node."""


def target_of(on: On, pool: str, groups: Collection[str]) -> int | Several | None:
    """Return the rank or the nodes on which a task runs, in the pool of that name; None for any one node.

    Raises:
        UsageError: `on` is not a placement, or names a group that the pool does not have.
    """
    if isinstance(on, str):
        match on:
            case "one":
                return None
            case "head":
                return 0
            case "all":
                return ALL
            case _ if on in groups:
                return Several(group=on)
            case _ if len(groups) > 1:
                raise UsageError(f"Pool {pool!r} has no group {on!r}; {closest(on, groups)}")
        raise UsageError(f"{_TAKES}, but got {on!r}; pool {pool!r} has no groups.")
    try:
        if isinstance(on, Iterable):
            if ranks := tuple(sorted({_rank(rank) for rank in on})):
                return Several(ranks)
        else:
            return _rank(on)
    except TypeError:
        pass
    raise UsageError(f"{_TAKES}, but got {shown(on)}.")


def _rank(value: object) -> int:
    if isinstance(value, (bool, str)):
        raise TypeError(value)
    return index(value)  # type: ignore[arg-type]  # raises TypeError for other types
