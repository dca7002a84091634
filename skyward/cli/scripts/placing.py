"""Nodes that a script or a command is to run on: checked before anything starts."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from skyward.errors import SpecError
from skyward.formatting import count_text, joined
from skyward.specs.placement import Several, target_of

if TYPE_CHECKING:
    from skyward.pool.compute import Compute
    from skyward.pool.reaping.recorded_pools import RecordedPool
    from skyward.specs.placement import On

__all__ = ["check_group", "check_new_nodes", "check_recorded_nodes"]


def check_new_nodes(on: "On", pool: "Compute") -> None:
    """Check a placement in a pool that is not open yet.

    Raises:
        SpecError: the pool will not start with such a node.
    """
    check_group(on, pool.name, pool.groups)
    starting = {name: max(each[0].nodes.min, each[0].nodes.threshold) for name, each in pool.groups.items()}
    group = on if isinstance(on, str) and on not in ("one", "head", "all") else None
    if group is not None and not starting[group]:
        raise SpecError(
            f"--on {group}: group {group!r} of pool {pool.name!r} starts with no nodes: give it at least one."
        )
    count = sum(starting.values())
    if missing := [rank for rank in _ranks(on, pool) if rank >= count]:
        highest = "" if count < 2 else f", of ranks 0 to {count - 1}"
        raise SpecError(
            f"--on {_text(on)}: Pool {pool.name!r} starts with {count_text(count) if count else 'no nodes'}{highest}, "
            f"so there is no node {_any_of(missing)}: give it at least "
            f"{count_text(max(missing) + 1)} with --nodes, or name others."
        )


def check_recorded_nodes(on: "On", pool: "RecordedPool") -> None:
    """Check a placement in a pool that a process has left.

    Raises:
        SpecError: the pool has no such node.
    """
    known = {each.rank for each in pool.machines if each.rank is not None}
    ranks = [0] if on == "head" else [] if isinstance(on, str) else [on] if isinstance(on, int) else list(on)
    # A lost node may be replaced, under its rank, once the pool is attached to.
    if known and (missing := [rank for rank in ranks if rank not in known and rank >= len(pool.machines)]):
        has = "its nodes are" if len(known) > 1 else "its only node is"
        raise SpecError(
            f"--on {_text(on)}: Pool {pool.name!r} has no node {_any_of(missing)}; {has} "
            f"{', '.join(map(str, sorted(known)))}."
        )


def check_group(on: "On", pool: str, groups: Collection[str]) -> None:
    """Check that a word names a group of a pool.

    Raises:
        SpecError: it does not.
    """
    if not isinstance(on, str) or on in ("one", "head", "all", *groups):
        return
    has = f"its groups are {joined(sorted(groups), most=10)}" if len(groups) > 1 else "it has no groups"
    raise SpecError(
        f"--on {on}: Pool {pool!r} has no group of that name; {has}. Write one, head, all, or ranks, such as 3 or 0:4."
    )


def _ranks(on: "On", pool: "Compute") -> tuple[int, ...]:
    match target_of(on, pool.name, pool.groups):
        case int(rank):
            return (rank,)
        case Several(ranks=tuple(ranks)):
            return ranks
        case _:
            return ()


def _any_of(ranks: Sequence[int]) -> str:
    return " or ".join(map(str, ranks[:3]))


def _text(on: "On") -> str:
    return str(on) if isinstance(on, str | int) else ",".join(map(str, on))
