"""Skyward: run Python functions on ephemeral nodes. `import skyward as sky`.

Public names load on first use, so the import is fast and loads no other module.
"""

TYPE_CHECKING = False  # type checkers know the name; importing `typing` would take longer than the rest of this module
if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from skyward import accelerators, errors, events, time
    from skyward.accelerators import Accelerator
    from skyward.control.act.tasks.streams import Stream
    from skyward.control.act.tasks.task import TaskFuture
    from skyward.errors import (
        BudgetExhaustedError,
        CollectionError,
        CollectionLostError,
        CollectionUnavailableError,
        IllegalTransitionError,
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
        OnNodeError,
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
    from skyward.functions.function import SkyFunction, function, main
    from skyward.functions.pending import PendingFunction, PendingFunctionGroup, gather
    from skyward.functions.target import sky
    from skyward.kept.handles import Kept
    from skyward.kept.keep import keep
    from skyward.pool.attach import attach
    from skyward.pool.compute import Compute
    from skyward.pool.reap import reap
    from skyward.pool.resource_requests import request_resources
    from skyward.pool.watch import watch
    from skyward.specs import Image, Nodes, Options, PipIndex, Spec, Volume, Worker
    from skyward.task.collections import barrier, counter, dict, lock, queue, set
    from skyward.task.instance import InstanceInfo, instance_info, is_head
    from skyward.task.output import silent, stderr, stdout
    from skyward.task.sharding import shard
    from skyward_providers.adapter import Adapter  # circular: entry points, found by name
    from skyward_providers.container import Container  # circular: entry points, found by name
    from skyward_providers.local import Local  # circular: entry points, found by name
    from skyward_providers.ssh import SSH  # circular: entry points, found by name

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
    "IllegalTransitionError",
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
    "OnNodeError",
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
    "accelerators": ("Accelerator",),
    "control.act.tasks.streams": ("Stream",),
    "control.act.tasks.task": ("TaskFuture",),
    "functions.function": ("SkyFunction", "function", "main"),
    "functions.pending": ("PendingFunction", "PendingFunctionGroup", "gather"),
    "functions.target": ("sky",),
    "kept.handles": ("Kept",),
    "kept.keep": ("keep",),
    "pool.attach": ("attach",),
    "pool.compute": ("Compute",),
    "pool.reap": ("reap",),
    "pool.resource_requests": ("request_resources",),
    "pool.watch": ("watch",),
    "specs": ("Image", "Nodes", "Options", "PipIndex", "Spec", "Volume", "Worker"),
    "task.collections": ("barrier", "counter", "dict", "lock", "queue", "set"),
    "task.instance": ("InstanceInfo", "instance_info", "is_head"),
    "task.output": ("silent", "stderr", "stdout"),
    "task.sharding": ("shard",),
}
"""Public names of each module, except modules and errors."""

_MODULES = ("accelerators", "errors", "events", "time")
_PROVIDERS = {"Adapter": "adapter", "Container": "container", "Local": "local", "SSH": "ssh"}


def _load(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"skyward.{name}")
    if name in _PROVIDERS:
        return import_module("skyward.providers.protocol").find_provider(_PROVIDERS[name])
    home = next((home for home, names in _HOMES.items() if name in names), "errors")
    return getattr(import_module(f"skyward.{home}"), name)


class _MissingName(AttributeError):
    """AttributeError with a hint, built only when the message is read: the import system often drops the error."""

    def __init__(self, name: str) -> None:
        super().__init__(name, name=name, obj=None)  # without `obj`: Python would add its own suggestion

    def __str__(self) -> str:
        from skyward.published_names import suggestion

        (name,) = self.args
        hint = suggestion(name, __all__)
        return f"module 'skyward' has no attribute {name!r}" + (f": {hint}" if hint else "")


_MissingName.__name__ = _MissingName.__qualname__ = AttributeError.__name__  # shown in tracebacks
_MissingName.__module__ = AttributeError.__module__


if not TYPE_CHECKING:  # type checkers would accept any name

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


def load_ipython_extension(shell: "InteractiveShell") -> None:
    """Add `%%sky` and `%sky` to IPython: `%load_ext skyward`."""
    from importlib import import_module

    import_module("skyward_jupyter").load_ipython_extension(shell)  # circular: IPython's own call


def unload_ipython_extension(shell: "InteractiveShell") -> None:
    """Remove `%%sky` and `%sky` from IPython: `%unload_ext skyward`."""
    from importlib import import_module

    import_module("skyward_jupyter").unload_ipython_extension(shell)  # circular: IPython's own call
