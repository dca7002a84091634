"""How a pool behaves, whatever its nodes are like."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict

from skyward.specs.nodes import Worker
from skyward.values import limits
from skyward.values.validation import Value, choice, number, of_type, seconds, whole

if TYPE_CHECKING:
    from skyward.scaling.snapshot import Policy

__all__ = ["Console", "OptionFields", "Options", "Selection"]

type Selection = Literal["cheapest", "first"]
type Console = Literal["rich", "minimal", "log", "silent"]


class OptionFields(TypedDict, total=False):
    """The fields of `Options`, as keywords."""

    selection: Selection
    worker: Worker | None
    provision_timeout: float | None
    ssh_timeout: float | None
    bootstrap_timeout: float | None
    provision_retry_delay: float | None
    max_provision_attempts: int | None
    ssh_retry_interval: float | None
    default_compute_timeout: float
    autoscale_cooldown: float
    autoscale_idle_timeout: float
    reconcile_tick_interval: float
    shutdown_timeout: float
    console: bool | Console
    logging: bool
    cluster: bool | None
    retry_on_interruption: int
    policy: "str | Policy"
    budget: float | None
    max_nodes: int | None
    upscaling_speed: float | None
    max_concurrent_launches: int
    metrics_interval: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(Value):
    """How a pool behaves. Times are in seconds; None leaves a choice to the provider, and then to Skyward.

    Attributes:
        selection: among several specs, the "cheapest" offer or that of the "first" spec with one.
        worker: how each node runs tasks.
        provision_timeout: for a machine to run.
        ssh_timeout: for a machine to answer.
        bootstrap_timeout: for a machine to be set up.
        provision_retry_delay: between attempts to get machines.
        max_provision_attempts: how often to try.
        ssh_retry_interval: between attempts to connect.
        default_compute_timeout: that a task may run, where it does not say so itself. Not for generator functions:
            a stream takes as long as its reader; a timeout of its own limits it as a whole, pauses included.
        autoscale_cooldown: between decisions to shrink.
        autoscale_idle_timeout: without a task before the pool shrinks to its minimum.
        reconcile_tick_interval: between checks that there are as many nodes as there should be.
        shutdown_timeout: that closing the pool may take.
        console: how progress is shown on standard error: "rich" (a status line on a terminal), "minimal" (a few lines),
            "log" (to the logger `skyward.events`) or "silent"; True for what suits the terminal, pipe or notebook.
        logging: whether events and warnings are written to `logs/skyward.log` in the data directory of Skyward.
        cluster: whether nodes form a cluster; False runs each on its own, without collections.
        retry_on_interruption: how often a task is queued again after its node was lost.
        policy: what decides how many nodes there are: the name of a policy, such as "binpack", or an object like one.
        budget: the most that the pool may cost, USD in all; its nodes are given back before it is passed.
        max_nodes: the most nodes, over all groups; None for no limit but that of each group.
        upscaling_speed: nodes that may be launched at a time, per node that runs; at least one may. None for no limit.
        max_concurrent_launches: the most nodes that are asked for at a time.
        metrics_interval: between looks of a node at what it uses of its machine; None for no looks.

    Raises:
        SpecError: a field has a value that is not allowed.
    """

    selection: Selection = "cheapest"
    worker: Worker = field(default_factory=Worker)
    provision_timeout: float | None = None
    ssh_timeout: float | None = None
    bootstrap_timeout: float | None = None
    provision_retry_delay: float | None = None
    max_provision_attempts: int | None = None
    ssh_retry_interval: float | None = None
    default_compute_timeout: float = 300.0
    autoscale_cooldown: float = 30.0
    autoscale_idle_timeout: float = 60.0
    reconcile_tick_interval: float = 15.0
    shutdown_timeout: float = 120.0
    console: bool | Console = True
    logging: bool = True
    cluster: bool | None = True
    retry_on_interruption: int = 3
    policy: "str | Policy" = "pressure"
    budget: float | None = None
    max_nodes: int | None = None
    upscaling_speed: float | None = None
    max_concurrent_launches: int = 100
    metrics_interval: float | None = 2.0

    # Which fields were given: a knob given here and on Compute is an error even where the values are equal.
    _given: frozenset[str] = field(init=False, repr=False, compare=False)

    def __new__(cls, *args: Any, **given: Any) -> Self:
        self = super(Options, cls).__new__(cls, *args, **given)
        object.__setattr__(self, "_given", frozenset(given))
        return self

    def __post_init__(self) -> None:
        choice(self.selection, "selection", Selection)
        if self.worker is None:
            self._set(worker=Worker())
        of_type(self.worker, "worker", Worker, "worker=sky.Worker(concurrency=2)")
        for name in ("provision_timeout", "ssh_timeout", "bootstrap_timeout"):
            seconds(getattr(self, name), name, optional=True)
        for name in ("ssh_retry_interval", "metrics_interval"):
            seconds(getattr(self, name), name, optional=True, least=limits.INTERVAL)
        seconds(self.reconcile_tick_interval, "reconcile_tick_interval", least=limits.INTERVAL)
        seconds(self.provision_retry_delay, "provision_retry_delay", zero=True, optional=True)
        if self.max_provision_attempts is not None:
            whole(self.max_provision_attempts, "max_provision_attempts", least=1)
        for name in ("default_compute_timeout", "shutdown_timeout"):
            seconds(getattr(self, name), name)
        for name in ("autoscale_cooldown", "autoscale_idle_timeout"):
            seconds(getattr(self, name), name, zero=True)
        if not isinstance(self.console, bool):
            choice(self.console, "console", Console)
        of_type(self.logging, "logging", bool, "logging=False")
        if self.cluster is not None:
            of_type(self.cluster, "cluster", bool, "cluster=False")
        whole(self.retry_on_interruption, "retry_on_interruption", least=0)
        _check_policy(self.policy)
        number(self.budget, "budget", optional=True, most=limits.USD)
        number(self.upscaling_speed, "upscaling_speed", optional=True, most=limits.NODES)
        if self.max_nodes is not None:
            whole(self.max_nodes, "max_nodes", least=1, most=limits.NODES)
        whole(self.max_concurrent_launches, "max_concurrent_launches", least=1, most=limits.NODES)


def _check_policy(policy: object) -> None:
    """Check that `policy` is one, or the name of one. The policies are loaded for any but the default."""
    if policy == "pressure":
        return
    from skyward.scaling.registry import find_policy

    find_policy(policy)
