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
from skyward.bootstrap.peers import PROCESSORS, EnvironmentOffer
from skyward.bootstrap.plan import Plan, Supplies

__all__ = ["GRACE", "command", "fetch_limit", "limits", "log_command", "made_of", "script"]

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


def fetch_limit(plan: Plan) -> int:
    """Return the seconds in which another node has to send the environment; the rest is left to make it."""
    return max(1, round(plan.timeout) // 2)


def script(
    plan: Plan,
    supplies: Supplies | None = None,
    index: str | None = None,
    *,
    asks: bool = False,
    offer: EnvironmentOffer | None = None,
) -> str:
    """Return POSIX shell text that makes the environment of `plan`, or checks that it exists. Deterministic.

    It has to be run from a file, as `command` does. A truncated script does nothing. It reports files that the client
    has to send meanwhile, or ends with status 75 if its first phases need them. With `index`, the address of the usual
    package index or "", it ends with status 76 if the machine cannot fetch packages: then it can be run again with
    `supplies`. If it `asks`, it ends with status 77 on a machine without packages, which may have an `offer` of another
    node; the offer is tried before anything else is fetched.
    """
    settings = (*_settings(plan, supplies, index), f"ask={"'yes'" if asks else "''"}", *_offered(plan, offer))
    return "\n".join([*settings, "", *_functions(plan, supplies), "", _fixed_part()])


def command(plan: Plan, text: str, step: str = "") -> str:
    """Return the command that receives the script `text` of `plan` on standard input, stores it and runs it, or a step.

    The step "bake" ends the preparation of an image of a machine.
    """
    name = f'"$root/run/{hashlib.sha256(text.encode()).hexdigest()[:12]}.sh"'
    steps = f'mkdir -p "$root/run" && cat >{name}.$$ && mv -f {name}.$$ {name} && exec sh {name} {step}'.rstrip()
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


def _settings(plan: Plan, supplies: Supplies | None, index: str | None) -> Iterator[str]:
    names = [*plan.env, *(name for name in plan.shell_vars if name not in plan.env)]
    local, packages = plan.on_client, _packages(supplies)
    values = {
        "image_hash": plan.image_hash,
        "python": plan.python,
        "minor": ".".join(plan.python.split(".")[:2]),
        "timeout": str(max(1, round(plan.timeout))),
        "tree": plan.includes.digest,
        "wheel": plan.source.digest,
        "wheel_name": plan.source.requirement if plan.source.wheel else "",
        "skyward": "" if plan.source.wheel else packages.skyward if packages else plan.source.requirement,
        "apt": " ".join(plan.apt),
        "git": "yes" if packages is None and _needs_git(plan) else "",
        "helped": "" if index is None else "yes",
        "index": index or "",
        "sample": plan.source.dependencies[0] if plan.source.dependencies else "",
        "supplied": "" if supplies is None else "all" if supplies.has_packages else "tools",
        "plugins": " ".join(step.name for step in plan.plugins),
        "names": " ".join(names),
        "computed": " ".join(plan.shell_vars),
        "client": local.python if local is not None else "",
        "layered": str(files("skyward.bootstrap").joinpath("layer.py")) if local is not None and local.layered else "",
        "source": local.source if local is not None else "",
        "limit_fetch": str(fetch_limit(plan)),
        **{f"limit_{phase}": str(seconds) for phase, seconds in limits(plan).items()},
    }
    yield "#!/bin/sh"
    yield "# shellcheck disable=SC2016,SC2317  # values are quoted as they are, and phases called by their names"
    yield f"# The environment {plan.image_hash} for Skyward's workers on this machine."
    yield root(plan.directory)
    yield from (f"{name}={_quoted(value)}" for name, value in values.items())


def _offered(plan: Plan, offer: EnvironmentOffer | None) -> Iterator[str]:
    yield f"peer={_quoted('' if offer is None else offer.node)}"
    values = {
        "address": "" if offer is None else offer.request.address,
        "port": "" if offer is None else str(offer.port),
        "token": "" if offer is None else offer.request.token,
        "key": "" if offer is None else offer.request.key,
        "size": "0" if offer is None else str(offer.size),
        "python": "" if offer is None else offer.python,
        "base": "" if offer is None else offer.base,
        "executable": "" if offer is None else offer.executable,
        "made_of": "" if offer is None else made_of(plan, offer.variables),
    }
    yield from (f"peer_{name}={_quoted(value)}" for name, value in values.items())


def made_of(plan: Plan, variables: Mapping[str, str]) -> str:
    """Return the SHA-256 of the requirements, with the values that variables have on a node."""
    packages, rest = _split(plan)
    texts = (_project(plan, packages), "\n".join(rest))
    expanded = (_REFERENCE.sub(lambda found: variables.get(found[0][2:-1], ""), text) for text in texts if text)
    return hashlib.sha256("".join(f"{text}\n" for text in expanded).encode()).hexdigest()


def _packages(supplies: Supplies | None) -> Supplies | None:
    """Return the supplies if packages are among them."""
    return supplies if supplies is not None and supplies.has_packages else None


def _quoted(value: str) -> str:
    """Quote as `shlex.quote` does, but always with quotes: shellcheck takes "a-b" for a subtraction."""
    return "'" + value.replace("'", "'\"'\"'") + "'"


def _needs_git(plan: Plan) -> bool:
    return any("git+" in requirement for requirement in (*plan.pip, plan.source.requirement))


def _functions(plan: Plan, supplies: Supplies | None) -> Iterator[str]:
    packages, rest = _split(plan)
    yield from _function("settings", (f"export {name}={shlex.quote(value)}" for name, value in plan.settings.items()))
    exports = (f"export {name}={shlex.quote(value)}" for name, value in plan.env.items())
    yield from _function("fixed_variables", (f"printf '%s\\n' {shlex.quote(line)}" for line in exports))
    computed = (f"compute {name} {shlex.quote(text)}" for name, text in plan.shell_vars.items())
    yield from _function("computed_variables", computed)
    sent = _packages(supplies)
    if sent is None:
        yield from _function("project", _heredoc(_project(plan, packages), expand=True))
        yield from _function("requirements", _heredoc("\n".join(rest), expand=True))
    else:
        yield from _function("project", ())
        yield from _function("requirements", _heredoc("\n".join(sent.requirements), expand=False))
    yield from _function("supplies", _heredoc(supplies.manifest if supplies is not None else "", expand=False))
    yield from _function("manifest", _heredoc(plan.includes.manifest.rstrip("\n"), expand=False))
    steps = (f"plugin {shlex.quote(step.name)} {shlex.quote(step.commands)}" for step in plan.plugins)
    yield from _function("plugin_steps", steps)
    yield from _function("processors", (PROCESSORS,))


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
