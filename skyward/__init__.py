"""Skyward: run Python functions on ephemeral nodes. `import skyward as sky`.

Public names load on first use, so the import is fast and loads no other module.
"""

TYPE_CHECKING = False  # type checkers know the name; importing `typing` would take longer than the rest of this module
if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from skyward import accelerators, errors, events, plugins, providers, scaling, time
    from skyward.accelerators import Accelerator
    from skyward.control.act.recovered_tasks import RecoveredTask
    from skyward.control.act.tasks.future import TaskFuture
    from skyward.control.act.tasks.run import Run, TaskOutcome
    from skyward.control.act.tasks.streams import Stream
    from skyward.control.observe.costs import CellCost
    from skyward.control.observe.origin import Origin
    from skyward.control.observe.snapshot import (
        KeptView,
        NodeView,
        OutputView,
        PoolReport,
        PoolSnapshot,
        StartupFailureView,
        TaskView,
    )
    from skyward.errors import (
        BudgetExhaustedError,
        CollectionError,
        CollectionLostError,
        CollectionUnavailableError,
        CredentialsError,
        IllegalTransitionError,
        InputLostError,
        JournalError,
        KeptElsewhereError,
        KeptLostError,
        LockLostError,
        MissingModuleError,
        NoCapacityError,
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
        PluginError,
        PoolClosedError,
        ProviderMissingError,
        ProvisioningError,
        QuotaError,
        RateLimitError,
        RemoteError,
        RemoteTraceback,
        SkywardError,
        SlotsHeldError,
        SpecError,
        StorageError,
        TaskCancelledError,
        TaskError,
        TaskExitError,
        TaskTimeoutError,
        TooLargeError,
        UsageError,
        VolumeError,
    )
    from skyward.events.decisions import DecisionEvent, DecisionInputs
    from skyward.events.metrics import GPUMetrics, NodeMetrics
    from skyward.events.output import Follower, LogEntry, Logs
    from skyward.events.volumes import VolumeState
    from skyward.functions.decorator import SkyFunction, function, main
    from skyward.functions.pending import PendingFunction, PendingFunctionGroup, gang, gather
    from skyward.functions.target import sky
    from skyward.journal.costs import MachineCosts
    from skyward.journal.images import BuiltImage
    from skyward.kept.handles import Kept
    from skyward.kept.keep import keep
    from skyward.market.survey import MachineOffer
    from skyward.pool.account.doctor import CloudHealth, doctor
    from skyward.pool.account.images import build_image, delete_image, images
    from skyward.pool.account.offers import offers
    from skyward.pool.attach import attach
    from skyward.pool.compute import Compute
    from skyward.pool.executor import PoolExecutor
    from skyward.pool.reaping.costs import costs
    from skyward.pool.reaping.orphans import Orphan, orphans
    from skyward.pool.reaping.reap import Reaped, reap
    from skyward.pool.reaping.sweep import Swept, sweep
    from skyward.pool.resource_requests import request_resources
    from skyward.specs import Image, Nodes, Options, PipIndex, Spec, Storage, Volume, Worker
    from skyward.specs.retries import Retries
    from skyward.storage.listing import ObjectEntry
    from skyward.storage.location import BucketLocation
    from skyward.task import collections
    from skyward.task.collections import barrier, counter, dict, lock, queue, set
    from skyward.task.instance import AcceleratorInfo, GangInfo, InstanceInfo, NetworkInfo, Peer, instance_info, is_head
    from skyward.task.output import OutputRule, silent, stderr, stdout
    from skyward.task.sharding import shard
    from skyward.task.volumes import volume
    from skyward.views.live import watch
    from skyward_providers.adapter import Adapter  # circular: entry points, found by name
    from skyward_providers.aws import AWS  # circular: entry points, found by name
    from skyward_providers.container import Container  # circular: entry points, found by name
    from skyward_providers.fargate import Fargate  # circular: entry points, found by name
    from skyward_providers.gcp import GCP  # circular: entry points, found by name
    from skyward_providers.hyperstack import Hyperstack  # circular: entry points, found by name
    from skyward_providers.kubernetes import Kubernetes  # circular: entry points, found by name
    from skyward_providers.lambda_cloud import Lambda  # circular: entry points, found by name
    from skyward_providers.local import Local  # circular: entry points, found by name
    from skyward_providers.runpod import RunPod  # circular: entry points, found by name
    from skyward_providers.slurm import Slurm  # circular: entry points, found by name
    from skyward_providers.ssh import SSH  # circular: entry points, found by name
    from skyward_providers.vastai import VastAI  # circular: entry points, found by name
    from skyward_providers.verda import Verda  # circular: entry points, found by name

    __version__: str

__all__ = [
    "AWS",
    "GCP",
    "SSH",
    "Accelerator",
    "AcceleratorInfo",
    "Adapter",
    "BucketLocation",
    "BudgetExhaustedError",
    "BuiltImage",
    "CellCost",
    "CloudHealth",
    "CollectionError",
    "CollectionLostError",
    "CollectionUnavailableError",
    "Compute",
    "Container",
    "CredentialsError",
    "DecisionEvent",
    "DecisionInputs",
    "Fargate",
    "Follower",
    "GPUMetrics",
    "GangInfo",
    "Hyperstack",
    "IllegalTransitionError",
    "Image",
    "InputLostError",
    "InstanceInfo",
    "JournalError",
    "Kept",
    "KeptElsewhereError",
    "KeptLostError",
    "KeptView",
    "Kubernetes",
    "Lambda",
    "Local",
    "LockLostError",
    "LogEntry",
    "Logs",
    "MachineCosts",
    "MachineOffer",
    "MissingModuleError",
    "NetworkInfo",
    "NoCapacityError",
    "NoClusterError",
    "NoGroupFitsError",
    "NoOffersError",
    "NoPoolError",
    "NodeErrors",
    "NodeLostError",
    "NodeMetrics",
    "NodeStartError",
    "NodeView",
    "Nodes",
    "NotOnNodeError",
    "NotPicklableError",
    "ObjectEntry",
    "OnNodeError",
    "OperatorError",
    "Options",
    "Origin",
    "Orphan",
    "OutputRule",
    "OutputView",
    "PayloadError",
    "Peer",
    "PendingFunction",
    "PendingFunctionGroup",
    "PipIndex",
    "PluginError",
    "PoolClosedError",
    "PoolExecutor",
    "PoolReport",
    "PoolSnapshot",
    "ProviderMissingError",
    "ProvisioningError",
    "QuotaError",
    "RateLimitError",
    "Reaped",
    "RecoveredTask",
    "RemoteError",
    "RemoteTraceback",
    "Retries",
    "Run",
    "RunPod",
    "SkyFunction",
    "SkywardError",
    "SlotsHeldError",
    "Slurm",
    "Spec",
    "SpecError",
    "StartupFailureView",
    "Storage",
    "StorageError",
    "Stream",
    "Swept",
    "TaskCancelledError",
    "TaskError",
    "TaskExitError",
    "TaskFuture",
    "TaskOutcome",
    "TaskTimeoutError",
    "TaskView",
    "TooLargeError",
    "UsageError",
    "VastAI",
    "Verda",
    "Volume",
    "VolumeError",
    "VolumeState",
    "Worker",
    "accelerators",
    "attach",
    "barrier",
    "build_image",
    "collections",
    "costs",
    "counter",
    "delete_image",
    "dict",
    "doctor",
    "errors",
    "events",
    "function",
    "gang",
    "gather",
    "images",
    "instance_info",
    "is_head",
    "keep",
    "lock",
    "main",
    "offers",
    "orphans",
    "plugins",
    "providers",
    "queue",
    "reap",
    "request_resources",
    "scaling",
    "set",
    "shard",
    "silent",
    "sky",
    "stderr",
    "stdout",
    "sweep",
    "time",
    "volume",
    "watch",
]

_HOMES = {
    "accelerators": ("Accelerator",),
    "control.act.recovered_tasks": ("RecoveredTask",),
    "control.act.tasks.future": ("TaskFuture",),
    "control.act.tasks.run": ("Run", "TaskOutcome"),
    "control.act.tasks.streams": ("Stream",),
    "control.observe.costs": ("CellCost",),
    "control.observe.origin": ("Origin",),
    "control.observe.snapshot": (
        "KeptView",
        "NodeView",
        "OutputView",
        "PoolReport",
        "PoolSnapshot",
        "StartupFailureView",
        "TaskView",
    ),
    "events.decisions": ("DecisionEvent", "DecisionInputs"),
    "events.metrics": ("GPUMetrics", "NodeMetrics"),
    "events.output": ("Follower", "LogEntry", "Logs"),
    "functions.decorator": ("SkyFunction", "function", "main"),
    "functions.pending": ("PendingFunction", "PendingFunctionGroup", "gang", "gather"),
    "functions.target": ("sky",),
    "kept.handles": ("Kept",),
    "kept.keep": ("keep",),
    "market.survey": ("MachineOffer",),
    "pool.attach": ("attach",),
    "pool.compute": ("Compute",),
    "journal.costs": ("MachineCosts",),
    "journal.images": ("BuiltImage",),
    "pool.reaping.costs": ("costs",),
    "pool.account.doctor": ("CloudHealth", "doctor"),
    "pool.account.offers": ("offers",),
    "pool.reaping.orphans": ("Orphan", "orphans"),
    "pool.reaping.reap": ("Reaped", "reap"),
    "pool.account.images": ("build_image", "delete_image", "images"),
    "pool.reaping.sweep": ("Swept", "sweep"),
    "pool.resource_requests": ("request_resources",),
    "pool.executor": ("PoolExecutor",),
    "specs": ("Image", "Nodes", "Options", "PipIndex", "Spec", "Storage", "Volume", "Worker"),
    "specs.retries": ("Retries",),
    "storage.listing": ("ObjectEntry",),
    "storage.location": ("BucketLocation",),
    "task.collections": ("barrier", "counter", "dict", "lock", "queue", "set"),
    "task.volumes": ("volume",),
    "events.volumes": ("VolumeState",),
    "task.instance": ("AcceleratorInfo", "GangInfo", "InstanceInfo", "NetworkInfo", "Peer", "instance_info", "is_head"),
    "task.output": ("OutputRule", "silent", "stderr", "stdout"),
    "task.sharding": ("shard",),
    "views.live": ("watch",),
}
"""Public names of each module, except modules and errors."""

_MODULES = {
    "accelerators": "accelerators",
    "collections": "task.collections",
    "errors": "errors",
    "events": "events",
    "plugins": "plugins",
    "providers": "providers",
    "scaling": "scaling",
    "time": "time",
}
"""Public modules, by name."""

_PROVIDERS = {
    "AWS": "aws",
    "Adapter": "adapter",
    "Container": "container",
    "Fargate": "fargate",
    "GCP": "gcp",
    "Hyperstack": "hyperstack",
    "Kubernetes": "kubernetes",
    "Lambda": "lambda",
    "Local": "local",
    "RunPod": "runpod",
    "SSH": "ssh",
    "Slurm": "slurm",
    "VastAI": "vastai",
    "Verda": "verda",
}


def _load(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"skyward.{_MODULES[name]}")
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
