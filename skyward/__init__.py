"""Skyward: run Python functions on ephemeral nodes. `import skyward as sky`.

Public names load when they are first used, so that the import is fast and brings nothing along.
"""

import sys
from types import ModuleType

TYPE_CHECKING = False  # the type checkers know the name; importing `typing` for it would cost more than all of this
if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from skyward import accelerators, errors, events, time
    from skyward.accelerators import Accelerator
    from skyward.attaching import attach
    from skyward.collections import barrier, counter, dict, lock, queue, set
    from skyward.compute import Compute
    from skyward.control.streams import Stream
    from skyward.control.work import TaskFuture
    from skyward.errors import (
        BudgetExhaustedError,
        CollectionError,
        CollectionLostError,
        CollectionUnavailableError,
        IllegalMoveError,
        InputLostError,
        JournalError,
        KeptElsewhereError,
        KeptLostError,
        LockLostError,
        MissingModuleError,
        NoClusterError,
        NodeErrors,
        NodeLostError,
        NodeStartError,
        NoGroupFitsError,
        NoOffersError,
        NoPoolError,
        NotOnNodeError,
        NotPicklableError,
        OperatorError,
        PayloadError,
        PoolClosedError,
        ProviderMissingError,
        ProvisioningError,
        RemoteError,
        RemoteTraceback,
        SkywardError,
        SlotsHeldError,
        SpecError,
        TaskCancelledError,
        TaskError,
        TaskExitError,
        TaskTimeoutError,
        TooLargeError,
        UsageError,
    )
    from skyward.function import SkyFunction, function, main
    from skyward.instance import InstanceInfo, instance_info, is_head
    from skyward.kept import Kept
    from skyward.output import silent, stderr, stdout
    from skyward.pending import PendingFunction, PendingFunctionGroup, gather
    from skyward.reaping import reap
    from skyward.requests import request_resources
    from skyward.sharding import shard
    from skyward.shelf import keep
    from skyward.shown import watch
    from skyward.specs import Image, Nodes, Options, PipIndex, Spec, Volume, Worker
    from skyward.target import sky
    from skyward_providers.adapter import Adapter
    from skyward_providers.container import Container
    from skyward_providers.local import Local
    from skyward_providers.ssh import SSH

    __version__: str

__all__ = [
    "SSH",
    "Accelerator",
    "Adapter",
    "BudgetExhaustedError",
    "CollectionError",
    "CollectionLostError",
    "CollectionUnavailableError",
    "Compute",
    "Container",
    "IllegalMoveError",
    "Image",
    "InputLostError",
    "InstanceInfo",
    "JournalError",
    "Kept",
    "KeptElsewhereError",
    "KeptLostError",
    "Local",
    "LockLostError",
    "MissingModuleError",
    "NoClusterError",
    "NoGroupFitsError",
    "NoOffersError",
    "NoPoolError",
    "NodeErrors",
    "NodeLostError",
    "NodeStartError",
    "Nodes",
    "NotOnNodeError",
    "NotPicklableError",
    "OperatorError",
    "Options",
    "PayloadError",
    "PendingFunction",
    "PendingFunctionGroup",
    "PipIndex",
    "PoolClosedError",
    "ProviderMissingError",
    "ProvisioningError",
    "RemoteError",
    "RemoteTraceback",
    "SkyFunction",
    "SkywardError",
    "SlotsHeldError",
    "Spec",
    "SpecError",
    "Stream",
    "TaskCancelledError",
    "TaskError",
    "TaskExitError",
    "TaskFuture",
    "TaskTimeoutError",
    "TooLargeError",
    "UsageError",
    "Volume",
    "Worker",
    "accelerators",
    "attach",
    "barrier",
    "counter",
    "dict",
    "errors",
    "events",
    "function",
    "gather",
    "instance_info",
    "is_head",
    "keep",
    "lock",
    "main",
    "queue",
    "reap",
    "request_resources",
    "set",
    "shard",
    "silent",
    "sky",
    "stderr",
    "stdout",
    "time",
    "watch",
]

_HOMES = {
    "Accelerator": "accelerators",
    "attach": "attaching",
    "barrier": "collections",
    "counter": "collections",
    "dict": "collections",
    "lock": "collections",
    "queue": "collections",
    "set": "collections",
    "Compute": "compute",
    "Stream": "control.streams",
    "TaskFuture": "control.work",
    "SkyFunction": "function",
    "function": "function",
    "main": "function",
    "InstanceInfo": "instance",
    "instance_info": "instance",
    "is_head": "instance",
    "Kept": "kept",
    "keep": "shelf",
    "silent": "output",
    "stderr": "output",
    "stdout": "output",
    "PendingFunction": "pending",
    "PendingFunctionGroup": "pending",
    "gather": "pending",
    "reap": "reaping",
    "request_resources": "requests",
    "shard": "sharding",
    "watch": "shown",
    "Image": "specs",
    "Nodes": "specs",
    "Options": "specs",
    "PipIndex": "specs",
    "Spec": "specs",
    "Volume": "specs",
    "Worker": "specs",
    "sky": "target",
}
"""The module of each public name, of those that are neither a module nor an error."""

_MODULES = ("accelerators", "errors", "events", "time")
_PROVIDERS = {"Adapter": "adapter", "Container": "container", "Local": "local", "SSH": "ssh"}


def _load(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"skyward.{name}")
    if name in _PROVIDERS:
        return import_module("skyward.provider").find_provider(_PROVIDERS[name])
    return getattr(import_module(f"skyward.{_HOMES.get(name, 'errors')}"), name)


class _MissingName(AttributeError):
    """Says what is meant by a name that is not public, once somebody reads it: the import system asks, and does not."""

    def __init__(self, name: str) -> None:
        super().__init__(name, name=name, obj=None)  # without `obj`, from which Python would make a guess of its own

    def __str__(self) -> str:
        from skyward.published_names import meant

        (name,) = self.args
        instead = meant(name, __all__)
        return f"module 'skyward' has no attribute {name!r}" + (f": {instead}" if instead else "")


_MissingName.__name__ = _MissingName.__qualname__ = AttributeError.__name__  # as a traceback shows it
_MissingName.__module__ = AttributeError.__module__


if not TYPE_CHECKING:  # the type checkers would take every name for public

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            globals()[name] = found = version("skyward-jupyter")
            return found
        if name not in __all__:
            raise _MissingName(name)
        value = globals()[name] = _load(name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)


_NOT_MODULES = frozenset((*_HOMES, "compute", "metrics"))
"""Names of modules that are not attributes of the package: public names of their own, or names that people mean
something else by.
"""


class _Door(ModuleType):
    """Keeps `sky.function` the decorator when the import system binds the module of the same name."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _NOT_MODULES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[object, ...]:  # a task that uses `sky` imports it on its node, as with any module
        return __import__, (self.__name__,)


sys.modules[__name__].__class__ = _Door


def load_ipython_extension(shell: "InteractiveShell") -> None:
    """Add `%%sky` and `%sky` to IPython: `%load_ext skyward`."""
    from importlib import import_module

    import_module("skyward_jupyter").load_ipython_extension(shell)


def unload_ipython_extension(shell: "InteractiveShell") -> None:
    """Take them away: `%unload_ext skyward`."""
    from importlib import import_module

    import_module("skyward_jupyter").unload_ipython_extension(shell)
