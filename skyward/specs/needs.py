"""What a task asks of the node that it runs on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from skyward.errors import SpecError
from skyward.values import FrozenMap, Value, number, of_type

__all__ = ["NOTHING", "Needs", "Resources", "capability_set", "resource_map"]

type Resources = Mapping[str, float]
"""Amounts by name, such as {"CPU": 4, "GPU": 1}. Names are the user's own; amounts may be fractions."""


def resource_map(given: object, name: str = "resources") -> FrozenMap[str, float]:
    """`given` as amounts by name, without zeros.

    Raises:
        SpecError: it is no mapping of names to amounts.
    """
    if not isinstance(given, Mapping):
        raise SpecError(f"{name} must be amounts by name, as in `{name}={{'GPU': 1}}`, but got {given!r}.")
    for key, amount in given.items():
        of_type(key, f"a name in {name}", str, f"{name}={{'GPU': 1}}")
        number(amount, f"{name}[{key!r}]", zero=True)
    return FrozenMap({key: float(amount) for key, amount in sorted(given.items()) if amount})


def capability_set(given: object, name: str = "capabilities") -> frozenset[str]:
    """`given` as a set of names, in lower case.

    Raises:
        SpecError: it is no collection of names.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise SpecError(f"{name} must be a set of names, as in `{name}={{'gpu'}}`, but got {given!r}.")
    names = tuple(given)
    for each in names:
        of_type(each, f"an entry of {name}", str, f"{name}={{'gpu'}}")
    return frozenset(each.lower() for each in names)


@dataclass(frozen=True, slots=True)
class Needs(Value):
    """What a task holds while it runs, beside the slot that every task takes.

    Attributes:
        resources: amounts of the node's resources.
        capabilities: what the node must be able to do; it may be able to do more.

    Raises:
        SpecError: a name is no text, or an amount no number of at least 0.
    """

    resources: FrozenMap[str, float] = field(default_factory=FrozenMap)
    capabilities: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if type(self.resources) is not FrozenMap:
            self._set(resources=resource_map(self.resources))
        if type(self.capabilities) is not frozenset:
            self._set(capabilities=capability_set(self.capabilities))

    def fit(self, free: Resources, capabilities: frozenset[str]) -> bool:
        """Whether a node with this much free, and able to do this, can take the task."""
        return self.capabilities <= capabilities and all(
            free.get(name, 0.0) + 1e-9 >= amount for name, amount in self.resources.items()
        )

    def __bool__(self) -> bool:
        return bool(self.resources or self.capabilities)

    def __str__(self) -> str:
        parts = [f"{amount:g} {name}" for name, amount in self.resources.items()]
        parts += [f"a node that can {name!r}" for name in sorted(self.capabilities)]
        return " and ".join(parts) or "a slot"


NOTHING = Needs()
"""A slot on any node."""
