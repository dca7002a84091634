"""Options of `sbatch` that a pool cannot be given: Skyward sets them itself, or its nodes would not work with them."""

from collections.abc import Mapping

from skyward.errors import SpecError
from skyward.values.validation import shown

__all__ = ["check_option"]

_OURS = "Skyward sets it itself"
_TAGS = "Skyward finds the jobs of a pool by it"
_ONE = "a node is one job with one task"
_OUTPUT = "a node has no output of its own, and that of tasks is shown by the client"
_STARTS = "the job would not start, and the pool would wait for it"
_SUBMITS = "it changes what `sbatch` does, so that no node would start"

_REFUSED: Mapping[str, tuple[str, str]] = {
    "account": (_OURS, "`account=` of sky.Slurm"),
    "array": (_ONE, "`nodes=` of the pool"),
    "chdir": (_OURS, "`scratch=` of sky.Slurm for the files of workers"),
    "clusters": ("the other commands would not find the job", "`host=` of sky.Slurm for a login node of that cluster"),
    "comment": (_TAGS, ""),
    "cpus-per-task": (_OURS, "`vcpus=` of the pool"),
    "error": (_OUTPUT, ""),
    "export": (_OURS, "`env=` of sky.Image"),
    "export-file": (_OURS, "`env=` of sky.Image"),
    "gres": (_OURS, "`gres=` of sky.Slurm"),
    "help": (_SUBMITS, ""),
    "hold": (_STARTS, ""),
    "input": (_OURS, ""),
    "job-name": (_TAGS, "`name=` of the pool"),
    "mem": (_OURS, "`memory_gb=` of the pool"),
    "nodes": (_ONE, "`nodes=` of the pool"),
    "ntasks": (_ONE, "`nodes=` of the pool"),
    "ntasks-per-node": (_ONE, "`nodes=` of the pool, or `concurrency=` of sky.Worker"),
    "output": (_OUTPUT, ""),
    "parsable": (_OURS, ""),
    "partition": (_OURS, "`partition=` of sky.Slurm"),
    "requeue": ("Skyward replaces a lost node itself", ""),
    "no-requeue": (_OURS, ""),
    "test-only": (_SUBMITS, "`skyward doctor`, or a dry run of the pool"),
    "time": (_OURS, "`time=` of sky.Slurm"),
    "usage": (_SUBMITS, ""),
    "version": (_SUBMITS, ""),
    "wait": ("the pool would wait for the end of its nodes", ""),
    "wrap": ("the job has a script of Skyward", ""),
}
"""Reasons why each is refused, and what to use instead; "" for nothing."""

_SHORT: Mapping[str, str] = {
    "A": "account", "D": "chdir", "H": "hold", "J": "job-name", "M": "clusters", "N": "nodes", "V": "version",
    "W": "wait", "a": "array", "c": "cpus-per-task", "e": "error", "h": "help", "i": "input",
    "n": "ntasks", "o": "output", "p": "partition", "t": "time",
}  # fmt: skip  # a table

_FLAGS = "HWQIOksvhV"
"""Short options without a value: further ones may follow in the same word."""

_UNIQUE = 3
"""Letters from which an abbreviation of a refused option is refused: `sbatch` takes unique ones."""

_OTHERS = (
    "mem-per-cpu", "mem-per-gpu", "mem-bind", "gres-flags", "time-min", "constraint", "exclusive", "exclude",
    "nodelist", "nodefile", "network", "nice", "reservation", "ntasks-per-core", "ntasks-per-socket", "ntasks-per-gpu",
    "cpus-per-gpu", "wait-all-nodes", "error-mode", "no-kill", "hint",
)  # fmt: skip
"""Options that begin like refused ones, and are allowed."""


def check_option(option: str) -> None:
    """Refuse an option that Skyward sets itself, or with which no pool works.

    Raises:
        SpecError: the option is refused; the message names the field to use instead, if there is one.
    """
    for name in _names(option):
        why, instead = _REFUSED[name]
        advice = f"; use {instead}" if instead else ""
        raise SpecError(f"options must not have --{name} ({shown(option)}), because {why}{advice}.")


def _names(option: str) -> list[str]:
    """Return the refused options that a word gives."""
    if option.startswith("--"):
        given = option[2:].partition("=")[0]
        if given in _REFUSED:
            return [given]
        if len(given) < _UNIQUE or any(other.startswith(given) for other in _OTHERS):
            return []
        return [name for name in _REFUSED if name.startswith(given)][:1]
    found = []
    for letter in option[1:]:
        if letter in _SHORT:
            found.append(_SHORT[letter])
        if letter not in _FLAGS:  # the rest is its value
            break
    return found
