"""The maximum number of nodes over all groups: limits of changes. Decides only; no I/O."""

from collections.abc import Iterable, Mapping

from skyward.formatting import count_text
from skyward.scaling.snapshot import Group

__all__ = ["over_total", "within_total"]


def over_total(
    groups: Mapping[str, Group], bounds: Mapping[str, tuple[int, int]], head: str | None, max_nodes: int | None
) -> str:
    """Return why these bounds exceed the maximum over all groups, and what to do; empty if they do not.

    Args:
        bounds: those that change, by group.
        head: group of node 0, which stays as long as any other node.
    """
    if max_nodes is None:
        return ""
    least = {name: bounds[name][0] if name in bounds else group.min for name, group in groups.items()}
    if head is not None and any(least.values()) and not least[head]:
        least[head] = 1
        if sum(least.values()) == max_nodes + 1:
            return (
                f"the pool may have at most {count_text(max_nodes)} in total (max_nodes), and node 0, of group "
                f"{head!r}, stays as long as any other; ask for fewer nodes"
            )
    if sum(least.values()) <= max_nodes:
        return ""
    others = sum(count for name, count in least.items() if name not in bounds)
    beside = f", and its other groups have at least {others} of them" if others else ""
    fix = "ask for fewer nodes" + (", or lower the minimum of another group first" if others else "")
    return f"the pool may have at most {count_text(max_nodes)} in total (max_nodes){beside}; {fix}"


def within_total(
    wanted: Mapping[str, int], least: Mapping[str, int], first: Iterable[str], max_nodes: int | None
) -> dict[str, int]:
    """Return the wanted nodes, by group, reduced to the maximum over all groups, but not below `least`.

    Args:
        first: groups that are reduced last.
    """
    after = dict(wanted)
    if max_nodes is None:
        return after
    spared = list(first)
    for name in [*(name for name in reversed(after) if name not in spared), *spared]:
        excess = sum(after.values()) - max_nodes
        if excess > 0:
            after[name] -= max(0, min(excess, after[name] - least.get(name, 0)))
    return after
