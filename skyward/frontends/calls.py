"""Calls, values that nodes keep, and what a process has once: the event loop, and the hooks of pools.

It loads little: what needs the control plane is in `skyward.frontends.pools`.
"""

from skyward.control.act.tasks.stopping import stop_all
from skyward.control.observe.origin import Origin, current_origin
from skyward.functions.pending import PendingFunction
from skyward.functions.target import Target, current_pool
from skyward.kept.handles import Kept, call, open_with, renew
from skyward.kept.keep import KEEP_FOR
from skyward.pool.hooks import observe_with, opened, watch_with
from skyward.pool.joblib_registration import register_with_joblib
from skyward.pool.reaping.orphans import has_pools
from skyward.process import background
from skyward.process.conditions import LockedCondition
from skyward.process.forked import is_forked
from skyward.process.thread_events import ThreadEvent

__all__ = [
    "KEEP_FOR",
    "Kept",
    "LockedCondition",
    "Origin",
    "PendingFunction",
    "Target",
    "ThreadEvent",
    "background",
    "call",
    "current_origin",
    "current_pool",
    "has_pools",
    "is_forked",
    "observe_with",
    "open_with",
    "opened",
    "register_with_joblib",
    "renew",
    "stop_all",
    "watch_with",
]
