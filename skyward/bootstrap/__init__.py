"""From an `Image` to an environment on a node in which a worker can start.

A `Plan` describes everything that a node needs. `script` returns shell text that creates it, `bootstrap` runs the
script through any command executor, and `Mismatches` reports how the result differs from this process.
"""

from skyward.bootstrap.client_environment import check_requirements, has_own_environment
from skyward.bootstrap.compare import Mismatches, modules_in, words_in
from skyward.bootstrap.events import PHASES, Facts, Phase, PhaseEvent, Ready, read_events, read_facts
from skyward.bootstrap.includes import Includes, check_includes, collect
from skyward.bootstrap.local import SharedSetup
from skyward.bootstrap.plan import Plan, client_settings
from skyward.bootstrap.requirements import check_remote_requirements
from skyward.bootstrap.runner import BootstrapError, ScriptExecutor, bake, bootstrap, worker_environment
from skyward.bootstrap.script import script
from skyward.bootstrap.source import PackageSource, find_source

__all__ = [
    "PHASES",
    "BootstrapError",
    "Facts",
    "Includes",
    "Mismatches",
    "PackageSource",
    "Phase",
    "PhaseEvent",
    "Plan",
    "Ready",
    "ScriptExecutor",
    "SharedSetup",
    "bake",
    "bootstrap",
    "check_includes",
    "check_remote_requirements",
    "check_requirements",
    "client_settings",
    "collect",
    "find_source",
    "has_own_environment",
    "modules_in",
    "read_events",
    "read_facts",
    "script",
    "words_in",
    "worker_environment",
]
