"""Options of a pool: those of `skyward up` and `skyward run`, of `%sky up`, and of `%%sky`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from skyward.commands import reading
from skyward.commands.option import Option
from skyward.specs import Nodes
from skyward.specs.options import TARGETS

__all__ = ["BUDGET", "POOL_LABELS", "POOL_OPTIONS", "UPDATE_OPTIONS", "read_pool_options"]

_UPDATED = frozenset(
    {
        *("accelerator", "allocation", "architecture", "disk_gb", "image", "max_hourly_cost", "memory_gb", "provider"),
        *("region", "vcpus", "volumes"),
    }
)
"""The fields, which have options, that may change while a pool is open: see `skyward.specs.update.UpdateFields`."""


def _joined(parts: Sequence[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for part in parts for item in part))


def _providers(text: str) -> object:
    """Return the settings of a provider, or of several as a tuple."""
    from skyward.config import load

    names = [name for each in text.split(",") if (name := each.strip())]
    found = tuple(map(load().provider, names or [text]))
    return found[0] if len(found) == 1 else found


def _volume(text: str) -> tuple[object, ...]:
    """Return a volume, with the storage of the table that it names."""
    from skyward.config import load
    from skyward.specs import Volume

    volume = Volume.parse(text)
    if isinstance(volume.storage, str):
        volume = replace(volume, storage=load().storage(volume.storage))
    return (volume,)


def _target(text: str) -> str | float:
    """Return a target of the waiting time: a name, or seconds."""
    return text if text in TARGETS else reading.lifetime(text)


def _accelerator(text: str) -> object:
    from skyward.accelerators import parse_accelerator

    return parse_accelerator(text)


def _policy(name: str) -> object:
    from skyward.specs import Options

    return Options(policy=name).policy


def _plugins(text: str) -> tuple[object, ...]:
    from skyward.plugins.registry import make_plugin

    return tuple(map(make_plugin, reading.packages(text)))


def _python(text: str) -> str | None:
    from skyward.specs import Image

    return Image(python=text).python


def _variables(pairs: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    from skyward.specs import FrozenMap

    return FrozenMap(pairs)


def _excludes(parts: Sequence[Iterable[str]]) -> tuple[str, ...]:
    from skyward.specs import Image

    return _joined([Image().excludes, *parts])


def _pool(*flags: str, to: str, metavar: str, help: str, **details: Any) -> Option:
    return Option(flags, to, help, metavar, **details)


def _choice(*flags: str, to: str, choices: tuple[str, ...], help: str) -> Option:
    read = reading.one_of(*choices)
    takes = f"{', '.join(choices[:-1])} or {choices[-1]}"
    return Option(flags, to, help, "|".join(choices), read, takes, choices)


def _several(*flags: str, to: str, metavar: str, takes: str, help: str) -> Option:
    return _pool(*flags, to=to, metavar=metavar, help=help, read=reading.packages, takes=takes, merge=_joined)


def _usd(flag: str, *, to: str, takes: str, help: str) -> Option:
    return _pool(flag, to=to, metavar="USD", help=help, read=reading.number, takes=f"USD {takes}")


def _gib(flag: str, *, to: str, such_as: int, help: str) -> Option:
    return _pool(
        flag, to=to, metavar="GIB", help=help, read=reading.gigabytes, takes=f"a number of GiB, such as {such_as}"
    )


def _lifetime(flag: str, *, to: str, help: str) -> Option:
    return _pool(
        flag, to=to, metavar="SECONDS", help=help, read=reading.lifetime, takes="a duration, such as 600, 10m or 1h"
    )


BUDGET = _usd("--budget", to="budget", takes="in total, such as 20", help="maximum total cost of the pool")

POOL_OPTIONS: tuple[Option, ...] = (
    _pool(
        "--nodes",
        to="nodes",
        metavar="N|MIN:MAX|DESIRED/MIN:MAX",
        help="number of nodes; with MAX, the pool scales with its work",
        read=Nodes.parse,
        takes="N, MIN:MAX or DESIRED/MIN:MAX, such as 4, 2:16 or 3/2:16",
    ),
    _pool(
        "--provider",
        to="provider",
        metavar="NAME,...",
        help="provider of the machines, or several; if not given, local processes, or with --gpu the cheapest cloud",
        read=_providers,
        takes="names of providers, such as local or aws,runpod, or of [providers.NAME] tables",
    ),
    _pool(
        "--gpu",
        "--accelerator",
        to="accelerator",
        metavar="NAME[:COUNT]",
        help="the accelerators of each node",
        read=_accelerator,
        takes="NAME or NAME:COUNT, such as A100 or H100:8",
    ),
    _pool("--vcpus", to="vcpus", metavar="N", help="virtual CPUs of each node", read=reading.number, takes="a number"),
    _gib("--memory", to="memory_gb", such_as=32, help="memory of each node"),
    _gib("--disk", to="disk_gb", such_as=100, help="disk of each node"),
    _choice("--arch", to="architecture", choices=("x86_64", "arm64"), help="architecture of the CPUs"),
    _choice(
        "--allocation",
        to="allocation",
        choices=("spot-if-available", "spot", "on-demand", "cheapest"),
        help="spot machines, which are cheaper and may be preempted, or on-demand ones",
    ),
    _pool("--region", to="region", metavar="NAME", help="region, as the provider names it", takes="a region"),
    _usd(
        "--max-cost",
        to="max_hourly_cost",
        takes="per node and hour, such as 2.50",
        help="maximum cost of one node per hour",
    ),
    BUDGET,
    _pool(
        "--idle",
        to="autoscale_idle_timeout",
        metavar="SECONDS",
        help="time without tasks before a node may be removed; about as long as a boot if not given",
        read=reading.duration,
        takes="a duration, such as 90, 10m or 1h",
    ),
    _pool(
        "--policy",
        to="policy",
        metavar="NAME",
        help="autoscaling policy; adaptive if not given",
        read=_policy,
        takes="the name of a policy, such as adaptive or binpack",
    ),
    _pool(
        "--target",
        to="target_wait",
        metavar="cheap|balanced|fast|SECONDS",
        help="how long tasks may wait beyond the boot of a node; balanced, about one boot, if not given",
        read=_target,
        takes="cheap, balanced, fast, or a duration, such as 90, 10m or 1h",
        choices=TARGETS,
    ),
    _usd(
        "--waiting-cost",
        to="waiting_cost",
        takes="per hour, such as 5",
        help="cost of an hour for which a task waits; idle nodes are kept longer for it",
    ),
    _pool(
        "--consolidate-within",
        to="consolidate_within",
        metavar="SECONDS",
        help="time within which cheaper nodes in place of dearer ones must pay; 10 minutes if not given, 0 for never",
        read=reading.lifetime,
        takes="a duration, such as 90, 10m or 1h, or 0",
    ),
    _pool(
        "--decision-log",
        to="decision_log",
        metavar="FILE",
        help="file to which each scaling decision is appended, for `skyward simulate --replay`",
        takes="the path of a file, such as decisions.jsonl",
    ),
    _lifetime("--ttl", to="ttl", help="time that nodes outlive the process that has the pool"),
    _lifetime(
        "--warm",
        to="warm",
        help="time for which rented machines are kept, and cost money, after the pool is closed, for the next pool",
    ),
    _pool(
        "--plugin",
        to="plugins",
        metavar="NAME,...",
        help="plugins for frameworks; may be repeated",
        read=_plugins,
        takes="names of plugins, such as torch or jax,keras",
        merge=_joined,
    ),
    _several("--pip", to="image.pip", metavar="PKG", takes="packages, such as numpy,torch", help="packages to install"),
    _several("--apt", to="image.apt", metavar="PKG", takes="packages, such as ffmpeg", help="system packages"),
    _pool(
        "--python",
        to="image.python",
        metavar="VERSION",
        help="Python version; the one here if not given",
        read=_python,
        takes="a version, such as 3.13",
    ),
    _pool(
        "--env",
        to="image.env",
        metavar="NAME=VALUE",
        help="an environment variable; may be repeated",
        read=reading.variable,
        takes="NAME=VALUE",
        merge=_variables,
        is_secret=True,
    ),
    _several(
        "--include", to="image.includes", metavar="PATH", takes="a folder or a .py file", help="a local path to send"
    ),
    _pool(
        "--exclude",
        to="image.excludes",
        metavar="PATTERN",
        help="files not to send from included folders or, with --sync, from synced ones",
        read=reading.packages,
        takes="a pattern, such as *.csv",
        merge=_excludes,
    ),
    _pool(
        "--volume",
        to="volumes",
        metavar="s3://BUCKET/PREFIX:/MOUNT",
        help="a bucket, or a part of it, as a folder of each node; may be repeated",
        read=_volume,
        takes="a bucket and a folder, such as s3://datasets/images:/data or s3://results:/out:rw",
        merge=_joined,
    ),
    _pool(
        "--concurrency",
        to="worker.concurrency",
        metavar="N",
        help="number of tasks that a node runs at a time",
        read=reading.count,
        takes="a positive whole number",
    ),
    _choice(
        "--executor",
        to="worker.executor",
        choices=("auto", "thread", "process"),
        help="threads, or a process for each task",
    ),
)
"""The options, whose targets are dotted paths of fields of `Compute`."""

UPDATE_OPTIONS = tuple(option for option in POOL_OPTIONS if option.target.partition(".")[0] in _UPDATED)
"""The options of fields that may change while a pool is open."""

POOL_LABELS: Mapping[str, str] = {option.target: option.name for option in POOL_OPTIONS}
"""Flags of the fields of a pool, by dotted path."""


def read_pool_options(texts: Mapping[str, str]) -> Mapping[str, Any]:
    """Parse the options of the form, texts by flag, into values by the dotted path of a field of `Compute`.

    Raises:
        UsageError: an option is unknown or has a wrong value.
    """
    from skyward.commands.messages import read_option_texts

    return read_option_texts(texts, POOL_OPTIONS, "%sky up")
