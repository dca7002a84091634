"""Descriptions of gangs and of the maximum size of a pool, for errors and reasons."""

from collections import Counter
from collections.abc import Sequence

from skyward.formatting import count_text, joined
from skyward.scaling.snapshot.values import GangDemand, Group, Snapshot
from skyward.values.needs import describe_resources

__all__ = ["gang_text", "gangs_wait", "maximum_text"]

_WHERE = {
    "pack": "",
    "spread": "",
    "strict_pack": " on one node",
    "strict_spread": ", each on a node of its own",
}


def gang_text(gang: GangDemand) -> str:
    """Return what a gang needs, for a sentence: "4 tasks at once (a gang with placement 'pack'), each with 1 GPU"."""
    size, needs = count_text(len(gang.needs), "task"), Counter(gang.needs)
    text = f"{size} at once{_WHERE[gang.placement]} (a gang with placement {gang.placement!r})"
    if not any(needs):
        return text
    if len(needs) == 1:
        return f"{text}, each with {next(iter(needs))}"
    return f"{text}: {joined(f'{count} with {each}' for each, count in needs.items())}"


def gangs_wait(snapshot: Snapshot) -> str:
    """Return that gangs wait, for a reason: "a gang of 4 tasks (placement 'pack') waits"."""
    oldest = snapshot.gangs[0]
    gang = f"of {count_text(len(oldest.needs), 'task')} (placement {oldest.placement!r})"
    return (
        f"a gang {gang} waits" if len(snapshot.gangs) == 1 else f"{len(snapshot.gangs)} gangs wait, the oldest {gang}"
    )


def maximum_text(groups: Sequence[Group], max_nodes: int | None = None) -> str:
    """Return the largest size of a pool, for a sentence: "2 nodes of 'default', each with 1 slot and 4 CPU"."""
    parts = []
    for group in groups:
        has = f" and {describe_resources(group.resources, group.capabilities)}"
        own = has if group.resources or group.capabilities else ""
        parts.append(f"{count_text(group.max)} of {group.name!r}, each with {count_text(group.slots, 'slot')}{own}")
    limit = "" if max_nodes is None else f" (at most {count_text(max_nodes)} in all)"
    return f"{'; '.join(parts)}{limit}"
