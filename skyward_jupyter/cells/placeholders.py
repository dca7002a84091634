"""Values from a node that cannot be unpickled here, and modules that a cell imported there.

Both are bound in the notebook, so that the next `%%sky` cell can use them. Using them here raises an error that names
what is missing.
"""

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any, NoReturn

from skyward.errors import MissingModuleError, UsageError
from skyward.frontends.cells import CellEnd, NestedPickle, Packed, pip_name, unpack_shared

__all__ = ["LazyModule", "NotReturned", "PackedValue", "module_here", "unpickle", "unpickle_failure"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PackedValue(NestedPickle):
    """A value from a node that cannot be unpickled here. It is sent to nodes unchanged.

    Attributes:
        reason: the reason why it cannot be unpickled.
        module: the module that is missing here, if that is the reason.
    """

    packed: Packed
    reason: str
    module: str | None = None
    needs: frozenset[str] = frozenset()
    classes: tuple[str, ...] = ()
    name: str | None = None
    seeds: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        return f"<value from a node, {self.packed.nbytes:,} bytes: {self.reason}>"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__") or name.startswith(("_repr_", "_ipython_")):  # not looked up by the user
            raise AttributeError(name)
        self._refuse()

    def __call__(self, *_: object, **__: object) -> NoReturn:
        self._refuse()

    def others(self, names: Mapping[str, Any]) -> list[str]:
        """Return the names of other values in the same pickle, which may refer to one another and stay together."""
        return [
            name
            for name, value in names.items()
            if isinstance(value, PackedValue) and value is not self and value.packed is self.packed
        ]

    def become(self, new: "PackedValue") -> None:
        """Replace the contents with the value after a cell has changed it, for all references to this object."""
        for each in fields(self):
            object.__setattr__(self, each.name, getattr(new, each.name))

    def _refuse(self) -> NoReturn:
        raise MissingModuleError(f"this value cannot be used here: {self.reason}. It can be used in a %%sky cell.")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NotReturned:
    """Placeholder for a displayed value of a cell that was not returned.

    Attributes:
        reason: the reason.
    """

    reason: str

    def __repr__(self) -> str:
        return f"<a value that was not returned from its node: {self.reason}>"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__") or name.startswith(("_repr_", "_ipython_")):  # not looked up by the user
            raise AttributeError(name)
        raise UsageError(
            f"this value was not returned from its node: {self.reason}. Assign it to a name in its %%sky cell."
        )


class LazyModule(ModuleType):
    """A module that a cell imported on a node. Imported here on first use."""

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
    """Return the module `name`; if it is not loaded yet, a lazy one, so that no cell waits for the import."""
    return sys.modules.get(name) or LazyModule(name)


def unpickle(packed: Packed, side: CellEnd, needs: frozenset[str] = frozenset(), classes: tuple[str, ...] = ()) -> Any:
    """Return the value of `packed`; a `PackedValue` if that fails here."""
    try:
        return unpack_shared(packed, side)
    except Exception as error:
        reason, module = unpickle_failure(error)
        return PackedValue(packed, reason, module, needs, classes)


def unpickle_failure(error: Exception) -> tuple[str, str | None]:
    """Return the reason why a value cannot be unpickled here, and the missing module, if that is the reason."""
    if isinstance(error, ModuleNotFoundError):
        module = (error.name or "").partition(".")[0]
        return f"module {module!r} is not installed here", module
    return f"it cannot be unpickled here ({type(error).__name__}: {error})", None
