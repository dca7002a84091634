"""Reasons of the default policy: sentences with the numbers that it decided by."""

from collections.abc import Mapping, Sequence
from math import inf

from skyward.formatting import count_text, joined
from skyward.scaling.offers import GroupOffer, WaitingWork
from skyward.scaling.snapshot import NodeLoad, Snapshot
from skyward.scaling.snapshot.fitting import at_once, usual_at_once
from skyward.scaling.snapshot.gang_text import gangs_wait
from skyward.scaling.snapshot.wording import idle_text, more_text, of_group
from skyward.scaling.snapshot.work import rough_text

__all__ = ["decision_reason", "idle_reason", "surplus_reason"]


def idle_reason(idle: float, keep: float, offer: GroupOffer, snapshot: Snapshot) -> str:
    """Return for how long nodes were idle, and why no longer."""
    if snapshot.given_idle_timeout(offer.group) is not None:
        return idle_text(idle, keep)
    kept = "a node without a price is kept"
    if offer.price > 0:
        kept = f"it is worth keeping a node that takes {rough_text(offer.boot)} to boot"
    shown, limit = rough_text(idle), rough_text(keep)
    return f"for {'' if shown == limit else f'{shown}, over '}the {limit} that {kept}"


def surplus_reason(node: NodeLoad, offer: GroupOffer) -> str:
    """Return why a node with tasks gets no more."""
    tasks = count_text(node.busy, "task")
    return (
        f"the other nodes have had room for the {tasks} of node {node.rank} for {rough_text(offer.boot)}, so it gets "
        "no more and leaves when they have ended"
    )


def decision_reason(
    snapshot: Snapshot,
    waiting: Sequence[WaitingWork],
    offers: dict[str, GroupOffer],
    is_short: bool,
    waited: float,
    desired: Mapping[str, int],
    cancelled: dict[str, int],
    why_removed: str,
) -> str:
    parts: list[str] = []
    launched = {name: offer.new - offer.for_gangs for name, offer in offers.items() if offer.new > offer.for_gangs}
    if snapshot.gangs:
        parts.append(_gangs_text(snapshot, sum(offer.for_gangs for offer in offers.values())))
    if waiting:
        parts.append(_work_text(snapshot, waiting, offers, is_short, waited, launched))
    for name, count in cancelled.items():
        verb = "is" if count == 1 else "are"
        parts.append(f"{count_text(count, 'booting node')}{of_group(name, snapshot)} {verb} not needed any more")
    if why_removed:
        parts.append(why_removed)
    before = snapshot.desired
    changed = {name: count for name, count in desired.items() if count != before[name]}
    if not parts:
        parts.append(f"{snapshot.inflight} of {_usable_slots(snapshot)} slots are busy and no task waits")
    if changed and len(offers) > 1:  # the log shows only the sum over all groups
        to = joined(f"{count_text(count)}{of_group(name, snapshot)}" for name, count in changed.items())
        parts.append(f"{to} {'is' if list(changed.values()) == [1] else 'are'} asked for")
    return "; ".join(parts)


def _gangs_text(snapshot: Snapshot, more: int) -> str:
    """Return the sentence about the waiting gangs."""
    waits = gangs_wait(snapshot)
    if more:
        return f"{waits}, so {more_text(more)}"
    if any(counts.booting for counts in snapshot.counts.values()):
        return f"{waits} until nodes have booted"
    return f"{waits} for slots that are in use"


def _work_text(
    snapshot: Snapshot,
    waiting: Sequence[WaitingWork],
    offers: dict[str, GroupOffer],
    is_short: bool,
    waited: float,
    launched: dict[str, int],
) -> str:
    """Return the sentence about the waiting tasks.

    Args:
        waited: seconds for which tasks of unknown length have waited; 0 if no boot has passed since they came.
    """
    count = sum(each.demand.count for each in waiting)
    tasks = f"{count:,} task" if count == 1 else f"{count:,} tasks"
    boot = min(offer.boot for offer in offers.values())
    if all(not each.known for each in waiting):
        they_wait = "waits" if count == 1 else "wait"
        if (pause := _pause(offers, snapshot)) is not None:
            return f"{tasks} of unknown length {they_wait}, and no node can be launched {_until(pause)}"
        if launched:
            new = sum(launched.values())
            more = count_text(new, "more node")
            if waited:
                booting = sum(counts.booting for counts in snapshot.counts.values())
                more += f", so that {booting + new} boot" if booting else ""
                more += f" after a wait of {rough_text(waited)}"
            return f"{tasks} of unknown length: {more}, until one has ended or run for a boot, {rough_text(boot)}"
        return f"{tasks} of unknown length {they_wait} until one has ended or run for a boot, {rough_text(boot)}"
    known = [each for each in waiting if each.known]
    if unknown := count - sum(each.demand.count for each in known):
        tasks = f"{unknown:,} {'task' if unknown == 1 else 'tasks'} of unknown length and {count - unknown:,}"
        count -= unknown
    work = sum(each.demand.count * each.seconds for each in known)
    slots = _slots_for(known, snapshot)
    nodes = sum(counts.active for counts in snapshot.counts.values())
    what = f"{tasks} of about {rough_text(work / count)}"
    needed = "needs" if count == 1 and not unknown else "need"
    end = _end(snapshot, work, slots)
    if not slots:
        there = "no node that can run them is up yet" if nodes else "no node is up yet"
    else:
        there = f"with {count_text(nodes)} they end in {rough_text(end)}"
    wait = min(offer.wait for offer in offers.values())
    if launched:
        return f"{what} {needed} {rough_text(work)} of slots; {there}" + (
            f", {_too_late(waiting, end, boot, wait)}" if slots else ""
        )
    booting = sum(counts.booting for counts in snapshot.counts.values())
    coming = f", and {count_text(booting)} {'boots' if booting == 1 else 'boot'}" if booting else ""
    if is_short and (pause := _pause(offers, snapshot)) is not None:
        return f"{what} {needed} {rough_text(work)} of slots; {there}, and no node can be launched {_until(pause)}"
    if is_short and booting == 0:
        return f"{what} {needed} {rough_text(work)} of slots; {there}, and no more nodes may be launched"
    one = "one node" if nodes <= 1 else f"{nodes} nodes"
    return f"{what} {needed} {rough_text(work / max(1.0, slots))} on {one}{coming}; a boot takes {rough_text(boot)}"


def _pause(offers: Mapping[str, GroupOffer], snapshot: Snapshot) -> float | None:
    """Return the seconds until a node can be launched, infinity if unknown; None if one can be now, or boots."""
    if any(counts.booting > counts.unrequested for counts in snapshot.counts.values()):
        return None
    with_room = [offer for offer in offers.values() if snapshot.counts[offer.group.name].active < offer.group.max]
    if any(offer.pause <= 0 and offer.group.can_launch for offer in with_room):
        return None
    if not with_room and all(offer.group.can_launch for offer in offers.values()):
        return None  # the maximum is reached
    return min((offer.pause for offer in with_room if offer.pause > 0), default=inf)


def _until(pause: float) -> str:
    """Return for how long no node can be launched, as the end of a sentence."""
    return "now" if pause == inf else f"for the next {rough_text(pause)}"


def _too_late(waiting: Sequence[WaitingWork], end: float, boot: float, wait: float) -> str:
    """Return why the nodes that are up do not suffice, as the end of a sentence."""
    target = f"the target of {rough_text(wait)}" if wait else "no target beyond it"
    limits = f"a boot of {rough_text(boot)} and {target}"
    if end > boot + wait:
        return f"more than {limits} together"
    longest = max(each.demand.waited for each in waiting)
    if longest > boot + wait:
        return f"but the oldest has waited for {rough_text(longest)}, more than {limits} together"
    return f"but not all of them start within {limits} together"


def _usable_slots(snapshot: Snapshot) -> int:
    """Return how many tasks such as those that run can run at once on the nodes that are up."""
    found = 0
    for group in snapshot.groups:
        counts = snapshot.counts[group.name]
        usual = usual_at_once(group, counts.shapes, counts.busy - sum(counts.shapes.values()))
        found += max(counts.busy, round(counts.active * (group.slots if usual is None else usual)))
    return found


def _slots_for(known: Sequence[WaitingWork], snapshot: Snapshot) -> float:
    """Return how many of the waiting tasks run at once on the nodes that are up, on average over their run times.

    Shapes that no node is up for are left out, unless there is none for any of them: then it is 0.
    """
    work = rounds = 0.0
    for each in known:
        slots = sum(snapshot.counts[g.name].active * at_once(g, each.demand.needs) for g in snapshot.groups)
        if slots:
            work += each.demand.count * each.seconds
            rounds += each.demand.count * each.seconds / slots
    return work / rounds if rounds else 0.0


def _end(snapshot: Snapshot, work: float, slots: float) -> float:
    """Return the seconds until the waiting tasks end on nodes that run so many of them at once."""
    running = sum(each.count * max(0.0, (each.seconds or 0.0) - each.age) for each in snapshot.running if each.seconds)
    return (work + running) / max(1.0, slots)
