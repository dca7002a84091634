"""The fields of a pool as a file may have them, read by the values that hold them: `Spec`, `Image`, `Options`, ..."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from skyward.errors import ProviderMissingError, SpecError
from skyward.provider import find_provider
from skyward.specs import Image, Nodes, Options, PipIndex, Spec, Volume, Worker
from skyward.values import closest

__all__ = ["PROVIDER", "read_field", "unknown_field"]

PROVIDER: Final = "provider"

_IN_CODE_ONLY = frozenset({"plugins", "image.metrics", "_given", "image", "worker"})
"""Fields whose values a file cannot hold."""

_OWNERS: Mapping[str, type[Any]] = {
    **{field.name: Spec for field in fields(Spec)},
    **{field.name: Options for field in fields(Options)},
    **{f"image.{field.name}": Image for field in fields(Image)},
    **{f"worker.{field.name}": Worker for field in fields(Worker)},
}
"""By its path, the value that a field is part of."""

_KNOWN = frozenset(_OWNERS) - _IN_CODE_ONLY

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
"""What the options of `%%sky` are called here, where that is another name."""


def unknown_field(path: str) -> str:
    """What is wrong with the name of a field, and which is meant; empty where there is one of that name."""
    if path in _KNOWN:
        return ""
    if path in _IN_CODE_ONLY:
        return "it can be given in code only; take it out of the file."
    name = path.replace("-", "_")
    meant = _MEANT.get(name.rpartition(".")[2], name)
    return "a pool has no such field; " + (f"did you mean {meant!r}?" if meant in _KNOWN else closest(path, _KNOWN))


def read_field(path: str, raw: Any, folder: Path) -> Any:
    """The value of a field as `sky.Compute` takes it.

    Args:
        path: of the field, such as "nodes" or "image.pip".
        raw: what is in the file.
        folder: of the file, which relative paths start from.

    Raises:
        SpecError: the value is not allowed.
    """
    if path == PROVIDER:
        return _provider(raw)
    owner, name = _OWNERS[path], path.rpartition(".")[2]
    try:
        return getattr(owner(**{name: _prepared(path, raw, folder)}), name)
    except (TypeError, AttributeError):
        raise SpecError(f"{name} cannot be {raw!r}.") from None


def _prepared(path: str, raw: Any, folder: Path) -> Any:
    """`raw` as the constructor of its owner takes it."""
    match path, raw:
        case "nodes", str():
            return Nodes.parse(raw)
        case "nodes", Mapping():
            return Nodes(**raw)
        case "volumes", list():
            return [Volume(**each) for each in raw]
        case "image.pip_indexes", list():
            return [PipIndex(**each) for each in raw]
        case "image.includes", list():
            return [str(folder / each) if isinstance(each, str) else each for each in raw]
    return raw


def _provider(raw: object) -> object:
    if not isinstance(raw, str):
        raise SpecError(f"provider must be a name, of a provider or of a `[providers.NAME]` table, but got {raw!r}.")
    try:
        return find_provider(raw)()
    except ProviderMissingError as error:
        raise SpecError(f"{error}") from None
    except TypeError:
        raise SpecError(
            f"provider {raw!r} needs settings: write a table `[providers.NAME]` with `type = {raw!r}` and them, and "
            "give its NAME here."
        ) from None
