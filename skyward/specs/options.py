"""Options of a pool, independent of its machines."""

import os
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypedDict

from skyward.errors import SpecError
from skyward.specs.nodes import Worker
from skyward.values import limits
from skyward.values.validation import Value, choice, number, of_type, seconds, shown, whole

if TYPE_CHECKING:
    from skyward.scaling.snapshot import Policy, TargetWait

__all__ = ["TARGETS", "Console", "OptionFields", "Options", "Selection"]

type Selection = Literal["cheapest", "first"]
type Console = Literal["rich", "minimal", "log", "silent"]


TARGETS: Final = ("cheap", "balanced", "fast")
"""Names of targets of the waiting time."""


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
    autoscale_idle_timeout: float | None
    target_wait: "TargetWait"
    waiting_cost: float | None
    consolidate_within: float
    reconcile_tick_interval: float
    shutdown_timeout: float
    console: bool | Console
    logging: bool
    cluster: bool | None
    retry_on_interruption: int
    policy: "str | Policy"
    budget: float | None
    warn_above: float | None
    max_nodes: int | None
    upscaling_speed: float | None
    max_concurrent_launches: int
    metrics_interval: float | None
    decision_log: "str | PathLike[str] | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(Value):
    """Behaviour of a pool. Times are in seconds; None takes the default of the provider, or else of Skyward.

    Attributes:
        selection: with several specs, the "cheapest" offer, or an offer of the "first" spec that has one.
        worker: settings of the worker of each node.
        provision_timeout: time for a machine to start.
        ssh_timeout: time for a machine to accept a connection.
        bootstrap_timeout: time for the setup of a machine.
        provision_retry_delay: time between attempts to launch machines.
        max_provision_attempts: maximum number of attempts at one offer.
        ssh_retry_interval: time between attempts to connect.
        default_compute_timeout: timeout of tasks that set none. It does not apply to generator functions: a stream
            takes as long as its reader; its own timeout covers the whole stream, including pauses.
        autoscale_cooldown: minimum time between decisions to scale down.
        autoscale_idle_timeout: time without a task before a node may be removed; None for the policy's own: `adaptive`
            keeps a node for about as long as it takes to boot, other policies for 60 s.
        target_wait: how long tasks may wait beyond the boot of a node: "fast" (not at all), "balanced" (about as long
            as a boot takes), "cheap" (15 minutes), or a time.
        waiting_cost: USD that an hour of a waiting task costs you: idle nodes are kept longer, as far as the wait for
            another boot would cost more; None to count only the price of nodes.
        consolidate_within: time within which cheaper nodes that take over the work of dearer ones must have paid for
            the time in which both run, for `adaptive` to launch them; 0 for never. No task is stopped for it.
        reconcile_tick_interval: time between checks of the number of nodes.
        shutdown_timeout: maximum time for closing the pool.
        console: progress on standard error: "rich" (a status line on a terminal), "minimal" (a few lines), "log" (to
            the logger `skyward.events`) or "silent"; True selects by terminal, pipe or notebook.
        logging: True to write events and warnings to `logs/skyward.log` in the data directory of Skyward.
        cluster: True for nodes that form a cluster; False for separate nodes, without collections.
        retry_on_interruption: how many times a task is requeued after its node was lost.
        policy: scaling policy: its name, such as "binpack", the form of Scaler, "allocate=capability; scaling=vanilla",
            or an object that implements `Policy`.
        budget: maximum total cost of the pool, USD; its nodes are terminated before the budget is exceeded.
        warn_above: USD per hour of all nodes above which a pool warns before it launches the first one; None for never.
        max_nodes: maximum number of nodes over all groups; None for only the limits of the groups.
        upscaling_speed: nodes launched at a time, per running node, at least one; None for no limit.
        max_concurrent_launches: maximum number of nodes requested at a time.
        metrics_interval: time between measurements of a node; None for none.
        decision_log: file to which each evaluation of the scaling policy is appended, with its inputs, for
            `skyward simulate --replay`; None for none.

    Raises:
        SpecError: a field has a value that is not allowed.

    Example:
        >>> sky.Compute(nodes=(0, 8), options=sky.Options(policy="binpack", budget=20))
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
    autoscale_idle_timeout: float | None = None
    target_wait: "TargetWait" = "balanced"
    waiting_cost: float | None = None
    consolidate_within: float = 600.0
    reconcile_tick_interval: float = 15.0
    shutdown_timeout: float = 120.0
    console: bool | Console = True
    logging: bool = True
    cluster: bool | None = True
    retry_on_interruption: int = 3
    policy: "str | Policy" = "adaptive"
    budget: float | None = None
    warn_above: float | None = 10.0
    max_nodes: int | None = None
    upscaling_speed: float | None = None
    max_concurrent_launches: int = 100
    metrics_interval: float | None = 2.0
    decision_log: "str | PathLike[str] | None" = None

    # Fields given explicitly: an option given both here and on Compute is an error, even if the values are equal.
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
        seconds(self.autoscale_cooldown, "autoscale_cooldown", zero=True)
        seconds(self.autoscale_idle_timeout, "autoscale_idle_timeout", zero=True, optional=True)
        _check_target(self.target_wait)
        number(self.waiting_cost, "waiting_cost", zero=True, optional=True, most=limits.USD)
        seconds(self.consolidate_within, "consolidate_within", zero=True)
        if not isinstance(self.console, bool):
            choice(self.console, "console", Console)
        of_type(self.logging, "logging", bool, "logging=False")
        if self.cluster is not None:
            of_type(self.cluster, "cluster", bool, "cluster=False")
        whole(self.retry_on_interruption, "retry_on_interruption", least=0)
        _check_policy(self.policy)
        number(self.budget, "budget", optional=True, most=limits.USD)
        number(self.warn_above, "warn_above", optional=True, most=limits.USD)
        number(self.upscaling_speed, "upscaling_speed", optional=True, most=limits.NODES)
        if self.max_nodes is not None:
            whole(self.max_nodes, "max_nodes", least=1, most=limits.NODES)
        whole(self.max_concurrent_launches, "max_concurrent_launches", least=1, most=limits.NODES)
        _check_decision_log(self.decision_log)


def _check_decision_log(path: object) -> None:
    """Check that `path` is the path of a file, or None."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if text is not None and (not isinstance(text, str) or not text.strip() or "\0" in text):
        raise SpecError(f"decision_log must be a file, as in `decision_log='decisions.jsonl'`, but got {shown(path)}.")


def _check_target(target: object) -> None:
    """Check that `target` is a time, or the name of one."""
    if not isinstance(target, str):
        seconds(target, "target_wait", zero=True)
    elif target not in TARGETS:
        raise SpecError(
            f"target_wait must be 'cheap', 'balanced' or 'fast', or a number of seconds, but got {target!r}."
        )


def _check_policy(policy: object) -> None:
    """Check that `policy` is a policy or the name of one. The default loads no policies."""
    if policy == "adaptive":
        return
    from skyward.scaling.registry import find_policy

    find_policy(policy)
