"""Plugins: values that extend the environment of nodes and wrap their tasks."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from skyward.errors import SpecError
from skyward.values import limits
from skyward.values.validation import FrozenMap, Value, choice, of_type, seconds, shown, whole

if TYPE_CHECKING:
    from skyward.pool.compute import Compute  # circular: what a plugin is entered with
    from skyward.specs.image import Image
    from skyward.specs.nodes import Worker
    from skyward.specs.spec import Spec  # circular: a spec has plugins, whose methods take it

__all__ = ["Plugin", "PluginStep", "Requires"]


@dataclass(frozen=True, slots=True)
class PluginStep:
    """A plugin's set-up of a machine: commands for `sh`, run at each bootstrap, so they must be idempotent.

    Attributes:
        name: name in the log of the set-up.
        commands: the commands.

    Example:
        >>> sky.plugins.PluginStep("cache", 'mkdir -p "$HOME/.cache/models"')
    """

    name: str
    commands: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Requires(Value):
    """Requirements of a plugin on its pool.

    Attributes:
        executor: "process" if each task must have a process of its own; None for any executor.
        together: True if the members of a broadcast work together: none may be missing, and all end with one.
        accelerator: True if each node must have an accelerator.
        same_devices: True if members that work together need devices of one kind: no pool may have accelerators on
            some nodes only.
        procs_per_node: processes of each node that work together: a number, or "auto" for one per accelerator, or one
            on a node without any; None for one.
        restarts: times that a broadcast of functions that work together is run again after one of them was lost.
        meeting_timeout: seconds that they have to meet before they begin, once each has a process.

    Raises:
        SpecError: a field has a value that is not allowed.
    """

    executor: Literal["process"] | None = None
    together: bool = False
    accelerator: bool = False
    same_devices: bool = False
    procs_per_node: int | Literal["auto"] | None = None
    restarts: int = 0
    meeting_timeout: float = 60.0

    def __post_init__(self) -> None:
        choice(self.executor, "executor", Literal["process"], optional=True)
        of_type(self.together, "together", bool, "together=True")
        of_type(self.accelerator, "accelerator", bool, "accelerator=True")
        of_type(self.same_devices, "same_devices", bool, "same_devices=True")
        if self.procs_per_node != "auto" and self.procs_per_node is not None:
            if isinstance(self.procs_per_node, str):
                raise SpecError(
                    "procs_per_node must be a number of processes, 'auto' for one per accelerator, or None, but got "
                    f"{shown(self.procs_per_node)}."
                )
            whole(self.procs_per_node, "procs_per_node", least=1, most=limits.CONCURRENCY)
        whole(self.restarts, "restarts", least=0)
        seconds(self.meeting_timeout, "meeting_timeout")


class Plugin(Value):
    """Base of plugins. A subclass is a frozen dataclass with slots; plugins with equal fields are equal.

    Nothing of a plugin travels but its name and its settings: the part that runs on nodes is found there by its path.

    Attributes:
        name: name of the plugin, as `plugins = ["torch"]` and `--plugin torch` take it.
        after: names of plugins that come first, if the pool has them.
        excludes: names of plugins that the pool must not have.
        requirement: the package that provides the plugin, which nodes need too; None for those of Skyward.
        changes_machine: True if `steps` changes the machine for all later pools, so that none without an equal plugin
            may take it over while it is warm.
        on_node: path of the part that runs on nodes, `"package.module:Class"`, whose instances are made from
            `settings`; see `OnNode`. None if nothing runs there.

    Example:
        >>> @dataclass(frozen=True, slots=True, kw_only=True)
        ... class Wandb(sky.plugins.Plugin):
        ...     name = "wandb"
        ...     requirement = "skyward-wandb"
        ...     project: str = "experiments"
    """

    __slots__ = ()

    name: ClassVar[str]
    after: ClassVar[frozenset[str]] = frozenset()
    excludes: ClassVar[frozenset[str]] = frozenset()
    requirement: ClassVar[str | None] = None
    changes_machine: ClassVar[bool] = False
    on_node: ClassVar[str | None] = None

    def requires(self) -> Requires:
        """Return what the plugin requires of its pool."""
        return Requires()

    def check(self, spec: "Spec", worker: "Worker") -> None:
        """Check that nodes of a spec, with these options of workers, can have the plugin. No machine is rented yet.

        Raises:
            SpecError: they cannot; the message says what to change.
        """

    def image(self, image: "Image", spec: "Spec") -> "Image":
        """Return the environment with what the plugin needs. Called again, it must change nothing."""
        return image

    def steps(self, spec: "Spec") -> tuple[PluginStep, ...]:
        """Return the set-up of a machine."""
        return ()

    def settings(self) -> Mapping[str, Any]:
        """Return the values that `on_node` is made from: JSON, and secrets as `Secret`."""
        return FrozenMap()

    def around_pool(self, pool: "Compute") -> AbstractContextManager[None]:
        """Return a context that is entered once the pool is ready, and left before its machines are terminated.

        The pool may be opened and closed on different threads: state of a thread is for `around_block`.
        """
        return nullcontext()

    def around_block(self, pool: "Compute") -> AbstractContextManager[None]:
        """Return a context that is entered and left with each `with` block of the pool, on the thread of the block.

        The pool may have been open before, and may be closed before the block ends. An `async with` block does not
        enter it: its thread runs other coroutines, too.
        """
        return nullcontext()
