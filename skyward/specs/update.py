"""Updates of the spec of an open pool: the fields that may change, and the specs that a group has had."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

from skyward.accelerators import Accelerator
from skyward.errors import SpecError
from skyward.specs.image import Image
from skyward.specs.nodes import Worker
from skyward.specs.plugin_order import image_of, processes
from skyward.specs.spec import Allocation, Architecture, Spec
from skyward.specs.volume import Volume
from skyward.values.validation import closest

__all__ = ["SpecHistory", "UpdateFields", "changed_fields", "updated"]


class UpdateFields(TypedDict, total=False):
    """The fields of `Spec` that may change while a pool is open, as keywords."""

    provider: object | None
    accelerator: Accelerator | str | None
    vcpus: float | None
    memory_gb: float | None
    disk_gb: float | None
    architecture: Architecture | None
    allocation: Allocation
    image: Image
    region: str | None
    max_hourly_cost: float | None
    volumes: Iterable[Volume]
    resources: Mapping[str, float]
    capabilities: Iterable[str]


_FIXED = {
    "nodes": "the number of nodes is not part of an update: use `pool.resize(nodes)`.",
    "plugins": "plugins are entered when a pool is opened, so they cannot change on an open pool: open another one.",
    "ttl": "the lease of the nodes, ttl, cannot change on an open pool: open another one.",
    "warm": "warm cannot change on an open pool: open another one.",
    "idle_timeout": "idle_timeout belongs to the policy, and cannot change on an open pool: open another one.",
    "worker": "the slots of its nodes, `worker=`, cannot change on an open pool: open another one.",
    "concurrency": "the slots of its nodes, `worker=`, cannot change on an open pool: open another one.",
    "policy": "the scaling policy cannot change on an open pool: open another one.",
    "max_nodes": "bounds change with `pool.resize((2, 8))`; max_nodes cannot change on an open pool: open another one.",
    "name": "the name of an open pool cannot change: open another one.",
    "budget": "the budget is not part of an update: use `pool.set_budget(budget)`.",
    "env": "variables belong to the image: write `image=sky.Image(env={'NAME': 'value'})`.",
    "pip": "packages belong to the image: write `image=sky.Image(pip=['numpy'])`.",
}
"""Fields that an update does not have, and what to do instead."""


def updated(specs: Sequence[Spec], fields: Mapping[str, Any], worker: Worker) -> tuple[Spec, ...]:
    """Return the specs of a group with other values of `fields`, for an open pool.

    Raises:
        SpecError: a field is unknown, cannot change, or has a value that is not allowed.
    """
    if not fields:
        raise SpecError("pool.update takes the fields that change, such as `image=sky.Image(pip=['numpy'])`.")
    for name in fields:
        if name in _FIXED:
            raise SpecError(f"pool.update got {name!r}: {_FIXED[name]}")
        if name not in UpdateFields.__optional_keys__:
            raise SpecError(f"pool.update has no argument {name!r}; {closest(name, UpdateFields.__optional_keys__)}")
    if isinstance(fields.get("provider"), list | tuple):
        raise SpecError(
            "pool.update takes one provider, which all nodes are launched with: alternatives cannot be added to an "
            "open pool. Write `provider=sky.AWS()`, or open another pool with a list."
        )
    found: list[Spec] = []
    for spec in specs:
        if spec.plugins and "accelerator" in fields:
            raise SpecError(
                "The accelerator cannot change on an open pool with plugins, which have prepared its environment for "
                "the present one: open another pool."
            )
        new = replace(spec, **fields)
        new = replace(new, image=image_of(new.plugins, new.image, new))
        for plugin in new.plugins:
            plugin.check(new, worker)
        if processes(new) != processes(spec):
            raise SpecError("The plugins would ask for another number of processes of each node: open another pool.")
        if new not in found:  # alternatives may differ in a field that is now the same
            found.append(new)
    return tuple(found)


def changed_fields(before: Sequence[Spec], after: Sequence[Spec]) -> tuple[str, ...]:
    """Return the names of the fields in which specs differ from those before, in their order."""
    names = UpdateFields.__annotations__
    return tuple(name for name in names if [getattr(s, name) for s in before] != [getattr(s, name) for s in after])


@dataclass
class SpecHistory:
    """The specs that a group has had, or was to have, while its pool is open.

    Each spec has a position of its own, which tells the machines of different specs apart. Specs that the group had
    before get the positions that they had, so that their nodes are not outdated when they are taken again. Specs of an
    update that failed keep theirs, so that what was found for them is never taken for what belongs to others.

    Attributes:
        specs: the specs by the position of the first of them, with those of updates that failed.
        first: position of the first of the present specs.
    """

    specs: dict[int, tuple[Spec, ...]] = field(default_factory=dict)
    first: int = 0

    @property
    def present(self) -> tuple[Spec, ...]:
        """The present specs."""
        return self.specs[self.first]

    def first_at(self, position: int) -> int:
        """Return the position of the first of the specs of which one has this position."""
        return max(first for first in self.specs if first <= position)

    def position_of(self, specs: tuple[Spec, ...]) -> int:
        """Return the position of the first of these specs; new ones get the next free positions."""
        for first, each in self.specs.items():
            if each == specs:
                return first
        first = max(first + len(each) for first, each in self.specs.items())
        self.specs[first] = specs
        return first

    def take(self, specs: tuple[Spec, ...]) -> None:
        """Make these the present specs."""
        self.add(self.position_of(specs), specs)

    def add(self, first: int, specs: tuple[Spec, ...]) -> None:
        """Make these the present specs; `first`: position of the first of them."""
        self.specs[first], self.first = specs, first
