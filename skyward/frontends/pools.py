"""Pools of a process: opening, attaching and reaping them, their tasks, and values that they keep."""

from skyward.control.act.tasks.run import Run, TaskOutcome
from skyward.control.act.tasks.stopping import stop_all
from skyward.control.observe.origin import Origin, current_origin
from skyward.control.observe.snapshot import PoolSnapshot
from skyward.functions.pending import PendingFunction
from skyward.functions.target import Target, current_pool
from skyward.kept.handles import Kept, call, open_with, renew
from skyward.kept.keep import KEEP_FOR
from skyward.link.ssh.openssh import login
from skyward.pool.attach import attach
from skyward.pool.compute import Compute, On
from skyward.pool.hooks import observe_with, opened, watch_with
from skyward.pool.reap import Orphan, describe_orphan, orphans, reap
from skyward.process import background
from skyward.process.forked import is_forked
from skyward.process.thread_events import ThreadEvent

__all__ = [
    "KEEP_FOR",
    "Compute",
    "Kept",
    "On",
    "Origin",
    "Orphan",
    "PendingFunction",
    "PoolSnapshot",
    "Run",
    "Target",
    "TaskOutcome",
    "ThreadEvent",
    "attach",
    "background",
    "call",
    "current_origin",
    "current_pool",
    "describe_orphan",
    "is_forked",
    "login",
    "observe_with",
    "open_with",
    "opened",
    "orphans",
    "reap",
    "renew",
    "stop_all",
    "watch_with",
]
