"""The script that makes the environment of a plan on a node."""

import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files

from skyward.bootstrap.events import PHASES, Phase
from skyward.bootstrap.names import normalised, requirement_name
from skyward.bootstrap.plan import Plan

__all__ = ["GRACE", "command", "limits", "log_command", "script"]

GRACE = 20.0
"""Seconds past a deadline in which the script itself reports the timeout, before its caller gives it up."""

_SHORT: Mapping[Phase, int] = {"env": 60, "uv": 300, "skyward": 180, "includes": 300, "worker": 60}
"""Time limits, in seconds, of phases that are short for any image; the others have the whole time."""

_REFERENCE = re.compile(r"(\$\{[A-Za-z_][A-Za-z0-9_]*\})")
_END = "END_OF_THIS"

_LOG_BYTES = 256 * 1024


def limits(plan: Plan) -> dict[Phase, int]:
    """Return the time limit of each phase, in seconds."""
    whole = max(1, round(plan.timeout))
    return {phase: min(_SHORT.get(phase, whole), whole) for phase in PHASES}


def script(plan: Plan) -> str:
    """Return POSIX shell text that makes the environment of `plan`, or checks that it exists. Deterministic.

    It has to be run from a file, as `command` does. A truncated script does nothing. It ends with status 75 if it needs
    files that the client must send first.
    """
    return "\n".join([*_settings(plan), "", *_functions(plan), "", _fixed_part()])


def command(plan: Plan, text: str) -> str:
    """Return the command that receives the script `text` of `plan` on standard input, stores it and runs it."""
    name = f'"$root/run/{hashlib.sha256(text.encode()).hexdigest()[:12]}.sh"'
    steps = f'mkdir -p "$root/run" && cat >{name}.$$ && mv -f {name}.$$ {name} && exec sh {name}'
    return f"sh -c {shlex.quote(f'umask 077; {root(plan.directory)}; {steps}')}"


def log_command(plan: Plan, phase: Phase) -> str:
    """Return the command that prints the log of a phase, or the end of a long log."""
    steps = f'tail -c {_LOG_BYTES} "$root/logs/{plan.image_hash}/{phase}"'
    return f"sh -c {shlex.quote(f'{root(plan.directory)}; {steps}')}"


def root(directory: str | None) -> str:
    """Return shell text that assigns our directory on the node to `root`."""
    if directory is None:
        return 'if [ "$(id -u)" = 0 ]; then root=/opt/skyward; else root=$HOME/.skyward; fi'
    if directory.startswith("~/"):
        return f"root=$HOME/{shlex.quote(directory[2:])}"
    return f"root={shlex.quote(directory)}"


@cache
def _fixed_part() -> str:
    return files("skyward.bootstrap").joinpath("node.sh").read_text(encoding="utf-8")


def _settings(plan: Plan) -> Iterator[str]:
    names = [*plan.env, *(name for name in plan.shell_vars if name not in plan.env)]
    local = plan.on_client
    values = {
        "image_hash": plan.image_hash,
        "python": plan.python,
        "minor": ".".join(plan.python.split(".")[:2]),
        "timeout": str(max(1, round(plan.timeout))),
        "tree": plan.includes.digest,
        "wheel": plan.source.digest,
        "wheel_name": plan.source.requirement if plan.source.wheel else "",
        "skyward": "" if plan.source.wheel else plan.source.requirement,
        "apt": " ".join(plan.apt),
        "git": "yes" if _needs_git(plan) else "",
        "plugins": " ".join(step.name for step in plan.plugins),
        "names": " ".join(names),
        "client": local.python if local is not None else "",
        "layered": str(files("skyward.bootstrap").joinpath("layer.py")) if local is not None and local.layered else "",
        "source": local.source if local is not None else "",
        **{f"limit_{phase}": str(seconds) for phase, seconds in limits(plan).items()},
    }
    yield "#!/bin/sh"
    yield "# shellcheck disable=SC2016,SC2317  # values are quoted as they are, and phases called by their names"
    yield f"# The environment {plan.image_hash} for Skyward's workers on this machine."
    yield root(plan.directory)
    yield from (f"{name}={_quoted(value)}" for name, value in values.items())


def _quoted(value: str) -> str:
    """Quote as `shlex.quote` does, but always with quotes: shellcheck takes "a-b" for a subtraction."""
    return "'" + value.replace("'", "'\"'\"'") + "'"


def _needs_git(plan: Plan) -> bool:
    return any("git+" in requirement for requirement in (*plan.pip, plan.source.requirement))


def _functions(plan: Plan) -> Iterator[str]:
    packages, rest = _split(plan)
    yield from _function("settings", (f"export {name}={shlex.quote(value)}" for name, value in plan.settings.items()))
    exports = (f"export {name}={shlex.quote(value)}" for name, value in plan.env.items())
    yield from _function("fixed_variables", (f"printf '%s\\n' {shlex.quote(line)}" for line in exports))
    computed = (f"compute {name} {shlex.quote(text)}" for name, text in plan.shell_vars.items())
    yield from _function("computed_variables", computed)
    yield from _function("project", _heredoc(_project(plan, packages), expand=True))
    yield from _function("requirements", _heredoc("\n".join(rest), expand=True))
    yield from _function("manifest", _heredoc(plan.includes.manifest.rstrip("\n"), expand=False))
    steps = (f"plugin {shlex.quote(step.name)} {shlex.quote(step.commands)}" for step in plan.plugins)
    yield from _function("plugin_steps", steps)


def _function(name: str, body: Iterable[str]) -> list[str]:
    return [f"{name}() {{", *(body or ()), ":", "}"]


def _heredoc(text: str, *, expand: bool) -> list[str]:
    """Return commands that print `text`. With `expand`, `${NAME}` in it is the value of that variable."""
    if not text:
        return []
    if not expand:
        return [f"cat <<'{_END}'", text, _END]
    parts = _REFERENCE.split(text)
    parts[::2] = [re.sub(r"[\\$`]", r"\\\g<0>", part) for part in parts[::2]]
    return [f"cat <<{_END}", "".join(parts), _END]


def _split(plan: Plan) -> tuple[dict[str, str], list[str]]:
    """Return the requirements that have an index of their own, by name, and all others."""
    indexed = {normalised(name) for index in plan.pip_indexes for name in index.packages}
    named: dict[str, str] = {}
    rest: list[str] = []
    for requirement in plan.pip:
        name = requirement_name(requirement)
        if name in indexed and name not in named:
            named[name] = requirement
        else:
            rest.append(requirement)
    return named, [*rest, *plan.source.dependencies]


def _project(plan: Plan, packages: Mapping[str, str]) -> str:
    """Return a project file for uv: it has no other means to take a package from one index only."""
    listed = ", ".join(json.dumps(requirement) for requirement in packages.values())
    lines = ["[project]", 'name = "skyward-node"', 'version = "0"', f"dependencies = [{listed}]"]
    sources = []
    for number, index in enumerate(plan.pip_indexes):
        lines += ["", "[[tool.uv.index]]", f'name = "index{number}"', f"url = {json.dumps(index.url)}"]
        if index.packages:
            lines.append("explicit = true")
        names = (name for name in map(normalised, index.packages) if name in packages)
        sources += [f'{name} = {{ index = "index{number}" }}' for name in names]
    if sources:
        lines += ["", "[tool.uv.sources]", *dict.fromkeys(sources)]
    return "\n".join(lines)
