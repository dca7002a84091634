"""From an `Image` to an environment on a node that a worker can start in.

A `Plan` is everything that a node needs. `script` is the text that makes it so, `bootstrap` drives that over whatever
runs commands there, and `Mismatches` tells what differs from this process in the end.
"""

from skyward.bootstrap.compare import Mismatches, modules_in, words_in
from skyward.bootstrap.events import PHASES, Facts, Phase, PhaseEvent, Ready, read_events, read_facts
from skyward.bootstrap.here import HereSetup, set_up_here
from skyward.bootstrap.includes import Includes, check_includes, collect
from skyward.bootstrap.plan import Plan, PluginStep, client_settings
from skyward.bootstrap.runner import BootstrapError, Executor, bootstrap, worker_environment
from skyward.bootstrap.script import script
from skyward.bootstrap.source import Source, find_source

__all__ = [
    "PHASES",
    "BootstrapError",
    "Executor",
    "Facts",
    "HereSetup",
    "Includes",
    "Mismatches",
    "Phase",
    "PhaseEvent",
    "Plan",
    "PluginStep",
    "Ready",
    "Source",
    "bootstrap",
    "check_includes",
    "client_settings",
    "collect",
    "find_source",
    "modules_in",
    "read_events",
    "read_facts",
    "script",
    "set_up_here",
    "words_in",
    "worker_environment",
]
