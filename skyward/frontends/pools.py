"""Open pools, and those that other processes left. Import it in functions only: it loads the whole control plane."""

from skyward.control.act.tasks.run import Run, TaskOutcome, release_kept, stop_overdue
from skyward.control.act.tasks.settle import note_unsaved, unsaved_error
from skyward.control.observe.snapshot import KeptView, PoolSnapshot
from skyward.link.ssh.openssh import login
from skyward.pool.account.clouds import pool_fields
from skyward.pool.account.costs import costs
from skyward.pool.account.doctor import describe_health, doctor
from skyward.pool.account.offers import notes_on, survey_offers
from skyward.pool.attach import attach
from skyward.pool.compute import Compute, On, nodes_with, when_closed
from skyward.pool.health.computer import describe_findings, examine_computer
from skyward.pool.quotes import describe_quote, price_notes, quote
from skyward.pool.reaping.orphans import Orphan, orphans, refused_names
from skyward.pool.reaping.reap import describe_orphan, reap
from skyward.pool.reaping.sweep import describe_swept, sweep

__all__ = [
    "Compute",
    "KeptView",
    "On",
    "Orphan",
    "PoolSnapshot",
    "Run",
    "TaskOutcome",
    "attach",
    "costs",
    "describe_findings",
    "describe_health",
    "describe_orphan",
    "describe_quote",
    "describe_swept",
    "doctor",
    "examine_computer",
    "login",
    "nodes_with",
    "note_unsaved",
    "notes_on",
    "orphans",
    "pool_fields",
    "price_notes",
    "quote",
    "reap",
    "refused_names",
    "release_kept",
    "stop_overdue",
    "survey_offers",
    "sweep",
    "unsaved_error",
    "when_closed",
]
