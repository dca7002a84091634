"""Open pools, and those that other processes left. Import it in functions only: it loads the whole control plane."""

from skyward.control.act.tasks.run import Run, TaskOutcome, release_kept
from skyward.control.observe.snapshot import KeptView, PoolSnapshot
from skyward.link.ssh.openssh import login
from skyward.pool.attach import attach
from skyward.pool.compute import Compute, On, nodes_with, when_closed
from skyward.pool.reap import Orphan, describe_orphan, orphans, reap, refused_names

__all__ = [
    "Compute",
    "KeptView",
    "On",
    "Orphan",
    "PoolSnapshot",
    "Run",
    "TaskOutcome",
    "attach",
    "describe_orphan",
    "login",
    "nodes_with",
    "orphans",
    "reap",
    "refused_names",
    "release_kept",
    "when_closed",
]
