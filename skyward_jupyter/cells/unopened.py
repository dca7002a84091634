"""What came back from a node and cannot be opened here, and modules that a cell imported there.

Both have their names in the notebook, so the next `%%sky` cell can use them; used here, they say what is missing.
"""

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any, NoReturn

from skyward.errors import MissingModuleError, UsageError
from skyward.wire.objects.notebook import Nested
from skyward.wire.payloads.payload import Packed
from skyward.worker.tasks.missing_modules import pip_name

__all__ = ["LazyModule", "StayedBehind", "UnopenedValue", "module_here"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class UnopenedValue(Nested):
    """A value of a node that this side cannot open. It travels to nodes as it came.

    Attributes:
        reason: why it cannot be opened.
        module: the module that is missing here, if that is why.
    """

    packed: Packed
    reason: str
    module: str | None = None
    needs: frozenset[str] = frozenset()
    classes: tuple[str, ...] = ()
    name: str | None = None
    seeds: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        return f"<value of a node, {self.packed.nbytes:,} bytes: {self.reason}>"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__") or name.startswith(("_repr_", "_ipython_")):  # asked by machinery, not by the user
            raise AttributeError(name)
        self._refuse()

    def __call__(self, *_: object, **__: object) -> NoReturn:
        self._refuse()

    def others(self, names: Mapping[str, Any]) -> list[str]:
        """The names of other values that came with this one: they may refer to one another, so they stay together."""
        return [
            name
            for name, value in names.items()
            if isinstance(value, UnopenedValue) and value is not self and value.packed is self.packed
        ]

    def become(self, new: "UnopenedValue") -> None:
        """Stand for what the value is after a cell has changed it, for everyone who refers to this object."""
        for each in fields(self):
            object.__setattr__(self, each.name, getattr(new, each.name))

    def _refuse(self) -> NoReturn:
        raise MissingModuleError(f"this value cannot be used here: {self.reason}. It can be used in a %%sky cell.")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StayedBehind:
    """Stands for the value of a cell that was displayed and did not come back.

    Attributes:
        reason: why it did not.
    """

    reason: str

    def __repr__(self) -> str:
        return f"<a value that did not come back from its node: {self.reason}>"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__") or name.startswith(("_repr_", "_ipython_")):  # asked by machinery, not by the user
            raise AttributeError(name)
        raise UsageError(
            f"this value did not come back from its node: {self.reason}. Assign it to a name in its %%sky cell."
        )


class LazyModule(ModuleType):
    """A module that a cell imported on a node: imported here when it is first used here."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name.startswith(("_repr_", "_ipython_")):
            raise AttributeError(name)
        try:
            module = importlib.import_module(self.__name__)
        except ModuleNotFoundError as error:
            missing = error.name or self.__name__
            raise MissingModuleError(
                f"module {missing!r} is not installed here; "
                f"use it in a %%sky cell, or install it with `%pip install {pip_name(missing)}`",
                name=missing,
            ) from error
        self.__dict__.update(module.__dict__)
        return getattr(module, name)

    def __dir__(self) -> list[str]:
        try:
            return dir(importlib.import_module(self.__name__))
        except ImportError:
            return []

    def __repr__(self) -> str:
        return f"<module {self.__name__!r}, imported on a node>"

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (self.__name__,)


def module_here(name: str) -> ModuleType:
    """The module `name`; if it is not loaded yet, one that loads it on first use, so that no cell waits for it."""
    return sys.modules.get(name) or LazyModule(name)
