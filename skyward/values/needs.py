"""Resources and capabilities that a task requests of its node."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from skyward.errors import SpecError
from skyward.values.validation import FrozenMap, Value, number, of_type, shown

__all__ = ["NOTHING", "Needs", "Resources", "capability_set", "describe_resources", "resource_map"]

type Resources = Mapping[str, float]
"""Amounts by name, such as {"CPU": 4, "GPU": 1}. Any name is allowed; amounts may be fractions."""


def resource_map(given: object, name: str = "resources", *, zeros: bool = False) -> FrozenMap[str, float]:
    """Return `given` as amounts by name, sorted by name; zeros are dropped unless `zeros` is set.

    Raises:
        SpecError: it is not a mapping of names to amounts.
    """
    if not isinstance(given, Mapping):
        raise SpecError(f"{name} must be amounts by name, as in `{name}={{'GPU': 1}}`, but got {shown(given)}.")
    for key, amount in given.items():
        of_type(key, f"a name in {name}", str, f"{name}={{'GPU': 1}}")
        if not key.strip():
            raise SpecError(f"{name} must not have an empty name, as in `{name}={{'GPU': 1}}`, but got {key!r}.")
        number(amount, f"{name}[{key!r}]", zero=True)
    return FrozenMap({key: float(amount) for key, amount in sorted(given.items()) if amount or zeros})


def capability_set(given: object, name: str = "capabilities") -> frozenset[str]:
    """Return `given` as a set of names, in lower case; `{"gpu": 1}` is the same as `{"gpu"}`.

    Raises:
        SpecError: it is not a collection of names, or an amount is not 1.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise SpecError(f"{name} must be a set of names, as in `{name}={{'gpu'}}`, but got {shown(given)}.")
    if isinstance(given, Mapping):
        _check_amounts(given, name)
    names = tuple(given)
    for each in names:
        of_type(each, f"an entry of {name}", str, f"{name}={{'gpu'}}")
        if not each.strip():
            raise SpecError(f"{name} must not have an empty name, as in `{name}={{'gpu'}}`, but got {each!r}.")
    return frozenset(each.strip().lower() for each in names)


def _check_amounts(given: Mapping[object, object], name: str) -> None:
    """Check that every amount of a capability is 1: a node has it or does not.

    Raises:
        SpecError: an amount is not 1.
    """
    for each, amount in given.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float) or amount != 1:
            raise SpecError(
                f"{name}[{each!r}] must be 1, because a node has a capability or does not, but got {shown(amount)}; "
                f"for amounts, use resources, as in `resources={{{each!r}: 2}}`."
            )


def _amount_text(name: str, amount: float) -> str:
    """Return an amount of a resource with its unit, if it has one: "1 GPU", "16 GiB memory"."""
    return f"{amount:g} GiB memory" if name == "memory" else f"{amount:g} {name}"


def describe_resources(resources: Resources, capabilities: Iterable[str]) -> str:
    """Return the resources of a node for a sentence: "4 CPU, 1 GPU and capability 'gpu'"."""
    amounts = ", ".join(_amount_text(name, amount) for name, amount in sorted(resources.items()))
    names = [repr(name) for name in sorted(capabilities)]
    able = f" and {'capability' if len(names) == 1 else 'capabilities'} {', '.join(names)}" if names else ""
    return f"{amounts or 'no resources'}{able}"


@dataclass(frozen=True, slots=True)
class Needs(Value):
    """Resources that a task holds while it runs, in addition to its slot, and the capabilities it requires.

    Attributes:
        resources: amounts of the node's resources.
        capabilities: capabilities that the node must have, at least.

    Raises:
        SpecError: a name is not a string, or an amount not a number of at least 0.
    """

    resources: Resources = field(default_factory=FrozenMap)
    capabilities: frozenset[str] = frozenset()

    if TYPE_CHECKING:

        def __init__(self, resources: Resources = ..., capabilities: Iterable[str] = ()) -> None: ...

    def __post_init__(self) -> None:
        if type(self.resources) is not FrozenMap:
            self._set(resources=resource_map(self.resources))
        if type(self.capabilities) is not frozenset:
            self._set(capabilities=capability_set(self.capabilities))

    def fit(self, free: Resources, capabilities: frozenset[str]) -> bool:
        """Return whether a node with these free resources and capabilities can take the task."""
        return self.capabilities <= capabilities and all(
            free.get(name, 0.0) + 1e-9 >= amount for name, amount in self.resources.items()
        )

    def __bool__(self) -> bool:
        return bool(self.resources or self.capabilities)

    def __str__(self) -> str:
        parts = [_amount_text(name, amount) for name, amount in self.resources.items()]
        parts += [f"capability {name!r}" for name in sorted(self.capabilities)]
        return " and ".join(parts) or "a slot"


NOTHING = Needs()
"""Needs of a task that takes only a slot, on any node."""
