"""The first nodes for what waits: of a pool that has none, and of groups that its policy overlooks. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skyward.control.decide.machines.reconciler import Reconciler
from skyward.control.decide.prospects.groups import Prospects
from skyward.control.decide.prospects.total import within_total
from skyward.control.decide.tasks.manager import TaskManager
from skyward.formatting import count_text, joined
from skyward.scaling.snapshot import Group, Snapshot
from skyward.scaling.snapshot.fitting import cheapest
from skyward.scaling.snapshot.gang_placement import gang_nodes
from skyward.scaling.snapshot.gang_text import gangs_wait
from skyward.scaling.snapshot.wording import of_group
from skyward.values.needs import Needs

__all__ = ["FirstNodes"]


@dataclass(frozen=True, slots=True)
class FirstNodes:
    """Chooses the first nodes of one pool.

    Attributes:
        groups: the groups, by name, with their present bounds.
        max_nodes: maximum over all groups; None for no limit but theirs.
    """

    groups: Mapping[str, Group]
    tasks: TaskManager
    reconciler: Reconciler
    prospects: Prospects
    max_nodes: int | None

    def for_task(self, needs: Needs, now: float) -> tuple[Mapping[str, int], str] | None:
        """Return the desired nodes with the first one, which can hold `needs`, and why it is none of other groups."""
        blocked = self.prospects.blocked([needs], now)
        group = cheapest(self.prospects.limited(blocked), needs)
        if group is None:
            return None
        after = {**self.reconciler.desired, group.name: 1}
        if (head := self.reconciler.head) is not None:  # it still drains, and is needed as long as there is any node
            after = within_total({**after, head: 1}, {head: 1}, (), self.max_nodes)
        return after, "".join(f", because group {name!r} {each.why}" for name, each in blocked.items())

    def for_gangs(self, snapshot: Snapshot) -> tuple[Mapping[str, int], str] | None:
        """Return the desired nodes with those that the waiting gangs need, and why; None if they need none."""
        needed = gang_nodes(snapshot).launch
        if not needed:
            return None
        after = {**self.reconciler.desired, **needed}
        if (head := self.reconciler.head) is not None:  # it still drains, and is needed as long as there is any node
            least = {head: max(1, needed.get(head, 0))}
            after = within_total({**after, **least}, least, needed, self.max_nodes)
        more = joined(f"{count_text(count)}{of_group(name, snapshot)}" for name, count in needed.items())
        are = "is" if sum(needed.values()) == 1 else "are"
        return after, f"{gangs_wait(snapshot)} and the pool has no nodes, so {more} {are} launched"

    def possible(self, now: float) -> list[Needs]:
        """Return the waiting shapes that a group could hold, those first for which a node can be launched now."""
        able = [group for group in self.groups.values() if group.max]
        obstacles = self.prospects.obstacles(now)
        free = [group for group in able if group.name not in obstacles]
        shapes = [needs for needs in self.tasks.shapes() if any(group.can_hold(needs) for group in able)]
        return sorted(shapes, key=lambda needs: (not any(group.can_hold(needs) for group in free), str(needs)))

    def overlooked(self, groups: Sequence[Group]) -> dict[str, int]:
        """Return the nodes without which waiting tasks could start nowhere, by group: one for each such shape.

        Some policies do not look at the needs of tasks: they launch no node of the only group that fits, or remove it.

        Args:
            groups: the groups as a policy sees them.
        """
        needed: dict[str, int] = {}
        if len(groups) == 1:
            return needed
        for needs in self.tasks.shapes():
            able = [group for group in groups if group.can_hold(needs)]
            there = {group.name: count for group in able if (count := self.reconciler.effective(group.name))}
            if not there and (group := cheapest(able, needs)) is not None and group.can_launch:
                needed[group.name] = 1
            elif sum(there.values()) == 1:
                needed |= there
        return needed
