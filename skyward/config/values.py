"""Fields of a pool in files, validated by the values that have them: `Spec`, `Image`, `Options`, ..."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from skyward.commands.reading import lifetime
from skyward.errors import ProviderMissingError, SpecError
from skyward.plugins.registry import make_plugin
from skyward.providers.protocol import find_provider
from skyward.specs import Image, Nodes, Options, PipIndex, Spec, Volume, Worker
from skyward.specs.options import TARGETS
from skyward.specs.plugin import Plugin
from skyward.values.validation import closest

__all__ = ["GROUPS", "OWNERS", "PATHS", "PROVIDER", "is_of_nodes", "read_field", "unknown_field"]

PROVIDER: Final = "provider"
GROUPS: Final = "groups"

_NOT_YET: Final = {
    "image.metrics": "metrics cannot be chosen yet; `metrics_interval` sets how often nodes are measured.",
}
"""Fields without effect so far, and their error messages."""

OWNERS: Mapping[str, type[Any]] = {
    **{field.name: Spec for field in fields(Spec)},
    **{field.name: Options for field in fields(Options)},
    **{f"image.{field.name}": Image for field in fields(Image)},
    **{f"worker.{field.name}": Worker for field in fields(Worker)},
}
"""Class that has the field, by path."""

PATHS = frozenset({*OWNERS, GROUPS}) - {"_given", "image", "worker", *_NOT_YET}
"""Keys of a `[pools.NAME]` table."""

_MEANT = {
    "gpu": "accelerator",
    "memory": "memory_gb",
    "disk": "disk_gb",
    "arch": "architecture",
    "max_cost": "max_hourly_cost",
    "timeout": "default_compute_timeout",
    "concurrency": "worker.concurrency",
    "executor": "worker.executor",
    "include": "image.includes",
    "exclude": "image.excludes",
    **{name: f"image.{name}" for name in ("pip", "apt", "python", "env", "includes", "excludes")},
}
"""Names of the options of `%%sky` that differ here."""


_SECONDS: Final = frozenset({
    "ttl", "idle_timeout", "warm", "image.bootstrap_timeout", "provision_timeout", "ssh_timeout", "bootstrap_timeout",
    "ssh_retry_interval", "metrics_interval", "reconcile_tick_interval", "provision_retry_delay",
    "default_compute_timeout", "shutdown_timeout", "autoscale_cooldown", "autoscale_idle_timeout",
    "target_wait", "consolidate_within",
})  # fmt: skip  # one name a line says no more
"""Fields in seconds, which may be written as durations: `ttl = "10m"`."""


_MAY_HAVE_SECRETS: Final = ("plugins", "image.env", "image.shell_vars", "image.pip", "image.pip_indexes")
"""Fields whose values errors do not show."""


def is_of_nodes(path: str) -> bool:
    """Return whether a field describes nodes, and so may differ by group, rather than the pool as a whole."""
    return path in PATHS and OWNERS.get(path, Options) is not Options


def unknown_field(path: str, *, of_group: bool = False) -> str:
    """Return the error about an unknown field, with a suggestion; empty if the field exists."""
    known = frozenset(filter(is_of_nodes, PATHS)) if of_group else PATHS
    if path in known:
        return ""
    if path in _NOT_YET:
        return _NOT_YET[path]
    if path in PATHS:
        return "it applies to the whole pool; write it above the groups."
    name = path.replace("-", "_")
    meant = _MEANT.get(name.rpartition(".")[2], name)
    owner = "group" if of_group else "pool"
    return f"a {owner} has no such field; " + (f"did you mean {meant!r}?" if meant in known else closest(path, known))


def read_field(path: str, raw: Any, folder: Path) -> Any:
    """Return the value of a field as `sky.Compute` takes it.

    Args:
        path: path of the field, such as "nodes" or "image.pip".
        raw: value in the file.
        folder: folder of the file, the base of relative paths.

    Raises:
        SpecError: the value is not allowed.
    """
    if path == PROVIDER:
        return _provider(raw)
    owner, name = OWNERS[path], path.rpartition(".")[2]
    try:
        return getattr(owner(**{name: _prepared(path, raw, folder)}), name)
    except (TypeError, AttributeError):
        if path in _MAY_HAVE_SECRETS:
            raise SpecError(
                f"{name} has a value of the wrong type: check what it contains, which is not shown here as it may be "
                "secret."
            ) from None
        raise SpecError(f"{name} cannot be {raw!r}.") from None


def _prepared(path: str, raw: Any, folder: Path) -> Any:
    """Return `raw` as the constructor of its class takes it."""
    match path, raw:
        case "nodes", str():
            return Nodes.parse(raw)
        case "nodes", Mapping():
            return Nodes(**raw)
        case "plugins", list():
            return [each for item in raw for each in _listed(item)]
        case "plugins", Mapping():
            return _of_table(raw)
        case "plugins", _:
            raise SpecError(
                f"plugins must be a list, as in `plugins = ['torch']`, or a table, but it is of type {_kind(raw)}."
            )
        case "volumes", list():
            return [Volume.parse(each) if isinstance(each, str) else Volume(**each) for each in raw]
        case "image.pip_indexes", list():
            return [PipIndex(**each) for each in raw]
        case "image.includes", list():
            return [str(folder / each) if isinstance(each, str) else each for each in raw]
        case "decision_log", str():
            return str(folder / Path(raw).expanduser())
        case "target_wait", str():
            return raw if raw in TARGETS else _seconds(path, raw, '"fast", "balanced", "cheap", ')
        case _, str() if path in _SECONDS:
            return _seconds(path, raw)
    return raw


def _listed(item: object) -> list[Plugin]:
    """Return the plugins of an item of a list: a name, or a table as in `plugins = ["torch", {mig = {...}}]`."""
    if isinstance(item, str):
        return [make_plugin(item)]
    if not isinstance(item, Mapping):
        raise SpecError(f"plugins must have names and tables of plugins, but it has a value of type {_kind(item)}.")
    return _of_table(item)


def _of_table(table: Mapping[str, object]) -> list[Plugin]:
    return [_plugin(name, given) for name, given in table.items() if given is not False]


def _plugin(name: str, given: object) -> Plugin:
    """Return a plugin from its entry in a table: `torch = true`, or `torch = {backend = "gloo"}`.

    Raises:
        SpecError: it is neither. The error does not show it, since settings may have secrets.
    """
    if given is True:
        return make_plugin(name)
    if not isinstance(given, Mapping):
        raise SpecError(f"plugins.{name} must be true, or a table of its settings, but it is of type {_kind(given)}.")
    return make_plugin(name, given)


def _kind(value: object) -> str:
    return type(value).__name__


def _seconds(path: str, raw: str, names: str = "") -> float:
    """Return a duration in seconds.

    Args:
        names: the names that the field may have instead, for the error.
    """
    try:
        return lifetime(raw)
    except SpecError:
        raise
    except ValueError:
        name = path.rpartition(".")[2]
        raise SpecError(
            f"{name} must be {names}seconds, or a duration such as '90s' or '2h', but got {raw!r}."
        ) from None


def _provider(raw: object) -> object:
    if not isinstance(raw, str):
        raise SpecError(f"provider must be the name of a provider or of a `[providers.NAME]` table, but got {raw!r}.")
    try:
        return find_provider(raw)()
    except ProviderMissingError as error:
        raise SpecError(f"{error}") from None
    except TypeError:
        raise SpecError(
            f"provider {raw!r} needs settings: write them in a table `[providers.NAME]` with `type = {raw!r}`, and use "
            "NAME here."
        ) from None
