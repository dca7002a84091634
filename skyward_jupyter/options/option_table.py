"""Table of the options of `%%sky` and `%sky up`, from which they are parsed, explained and completed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from skyward.accelerators import parse_accelerator
from skyward.config import load
from skyward.specs import Image, Nodes, Options
from skyward.values.validation import FrozenMap
from skyward_jupyter.options import parsers as reading

__all__ = ["OPTIONS", "POOL_LABELS", "POOL_OPTIONS", "Option", "explain"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        flags: its spellings, the usual one first.
        target: the field that it sets: one of `CellOptions` or, for "pool" options, the dotted path of a field of
            `Compute`.
        help: its description in the list of options.
        group: "pool" for the properties of a pool, "cell" for how a cell runs.
        metavar: placeholder of its value; empty if it takes none.
        read: parses the value; raises `ValueError` if the text is invalid.
        takes: the values that it accepts, with an example, for error messages.
        choices: its values, if they can be listed.
        merge: combines several values, if the option may be repeated.
        constant: the value that it sets, if it takes none.
    """

    flags: tuple[str, ...]
    target: str
    help: str
    group: Literal["pool", "cell"] = "cell"
    metavar: str = ""
    read: Callable[[str], Any] = str
    takes: str = ""
    choices: tuple[str, ...] = ()
    merge: Callable[[Sequence[Any]], Any] | None = None
    constant: object = True

    @property
    def name(self) -> str:
        """The long flag, or the only one."""
        return next((flag for flag in self.flags if flag.startswith("--")), self.flags[0])


def _joined(parts: Sequence[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for part in parts for item in part))


def _pool(*flags: str, to: str, metavar: str, help: str, **details: Any) -> Option:
    return Option(flags, to, help, "pool", metavar, **details)


def _choice(*flags: str, to: str, choices: tuple[str, ...], help: str) -> Option:
    read = reading.one_of(*choices)
    takes = f"{', '.join(choices[:-1])} or {choices[-1]}"
    return Option(flags, to, help, "pool", "|".join(choices), read, takes, choices)


def _several(*flags: str, to: str, metavar: str, takes: str, help: str) -> Option:
    return _pool(*flags, to=to, metavar=metavar, help=help, read=reading.packages, takes=takes, merge=_joined)


OPTIONS: tuple[Option, ...] = (
    Option(("--pool",), "pool", "the pool to run on; it is opened on first use", "cell", "NAME", takes="a name"),
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
        metavar="NAME",
        help="provider of the machines; local processes if not given",
        read=lambda name: load().provider(name),
        takes="the name of a provider, such as local, or of a [providers.NAME] table",
    ),
    _pool(
        "--gpu",
        "--accelerator",
        to="accelerator",
        metavar="NAME[:COUNT]",
        help="the accelerators of each node",
        read=parse_accelerator,
        takes="NAME or NAME:COUNT, such as A100 or H100:8",
    ),
    _pool("--vcpus", to="vcpus", metavar="N", help="virtual CPUs of each node", read=reading.number, takes="a number"),
    _pool(
        "--memory",
        to="memory_gb",
        metavar="GIB",
        help="memory of each node",
        read=reading.gigabytes,
        takes="a number of GiB, such as 32",
    ),
    _pool(
        "--disk",
        to="disk_gb",
        metavar="GIB",
        help="disk of each node",
        read=reading.gigabytes,
        takes="a number of GiB, such as 100",
    ),
    _choice("--arch", to="architecture", choices=("x86_64", "arm64"), help="architecture of the CPUs"),
    _choice(
        "--allocation",
        to="allocation",
        choices=("spot-if-available", "spot", "on-demand", "cheapest"),
        help="spot machines, which are cheaper and may be preempted, or on-demand ones",
    ),
    _pool("--region", to="region", metavar="NAME", help="region, as the provider names it", takes="a region"),
    _pool(
        "--max-cost",
        to="max_hourly_cost",
        metavar="USD",
        help="maximum cost of one node per hour",
        read=reading.number,
        takes="USD per node and hour, such as 2.50",
    ),
    _pool(
        "--budget",
        to="budget",
        metavar="USD",
        help="maximum total cost of the pool",
        read=reading.number,
        takes="USD in total, such as 20",
    ),
    _pool(
        "--idle",
        to="autoscale_idle_timeout",
        metavar="SECONDS",
        help="time without tasks before the pool scales down; 60 if not given",
        read=reading.duration,
        takes="a duration, such as 90, 10m or 1h",
    ),
    _pool(
        "--policy",
        to="policy",
        metavar="NAME",
        help="autoscaling policy; pressure if not given",
        read=lambda name: Options(policy=name).policy,
        takes="the name of a policy, such as pressure or binpack",
    ),
    _pool(
        "--ttl",
        to="ttl",
        metavar="SECONDS",
        help="time that nodes outlive this kernel",
        read=reading.lifetime,
        takes="a duration, such as 600, 10m or 1h",
    ),
    _several("--pip", to="image.pip", metavar="PKG", takes="packages, such as numpy,torch", help="packages to install"),
    _several("--apt", to="image.apt", metavar="PKG", takes="packages, such as ffmpeg", help="system packages"),
    _pool(
        "--python",
        to="image.python",
        metavar="VERSION",
        help="Python version; that of this kernel if not given",
        read=lambda text: Image(python=text).python,
        takes="a version, such as 3.13",
    ),
    _pool(
        "--env",
        to="image.env",
        metavar="NAME=VALUE",
        help="an environment variable; may be repeated",
        read=reading.variable,
        takes="NAME=VALUE",
        merge=FrozenMap,
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
        merge=lambda parts: _joined([Image().excludes, *parts]),
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
    Option(
        ("--on",),
        "on",
        "nodes to run on: one, all, the head, those with these ranks, or a group of the pool",
        "cell",
        "one|all|head|RANKS|GROUP",
        reading.place,
        reading.PLACES,
        ("one", "all", "head"),
    ),
    Option(
        ("--map",),
        "map",
        "run the cell once for each element of NAME; inside, NAME is the element",
        "cell",
        "NAME",
        reading.identifier,
        "the name of a variable",
    ),
    Option(
        ("--resources",),
        "resources",
        "run on a node with these resources free, and reserve them meanwhile",
        "cell",
        "NAME=N",
        reading.amounts,
        "amounts, such as CPU=4,GPU=1",
    ),
    Option(
        ("--capabilities",),
        "capabilities",
        "run on a node with these capabilities",
        "cell",
        "NAMES",
        reading.capabilities,
        "names, such as gpu,highmem",
    ),
    Option(("--by-node",), "by_node", "with several nodes: one output section per node, the head's first"),
    Option(("--local",), "local", "run in the notebook itself, without a node, to try the cell out"),
    Option(("--plot",), "plot", "plot the numbers that the cell yields, or dicts or tuples of them, as they arrive"),
    Option(("--noblock",), "noblock", "run in the background and return a handle"),
    Option(
        ("--retries",),
        "retries",
        "run the cell again, up to N times, when it raises",
        "cell",
        "N",
        reading.retries,
        "a whole number",
    ),
    Option(
        ("--timeout",),
        "timeout",
        "stop the cell after this time",
        "cell",
        "SECONDS",
        reading.duration,
        "a duration, such as 90, 90s, 5m or 1h",
    ),
    Option(
        ("-i", "--in"),
        "inputs",
        "send only these variables",
        "cell",
        "NAMES",
        reading.names,
        "names of variables, such as x,y",
        merge=_joined,
    ),
    Option(
        ("-o", "--out"),
        "outputs",
        "return only these variables",
        "cell",
        "NAMES",
        reading.names,
        "names of variables, such as x,y",
        merge=_joined,
    ),
    Option(
        ("--keep",),
        "keep",
        "keep these variables on their node; the notebook gets handles, and cells that read them run on that node",
        "cell",
        "NAMES",
        reading.names,
        "names of variables, such as model,conn",
        merge=_joined,
    ),
    Option(
        ("--keep-for",),
        "keep_for",
        "how long after its last use a kept variable protects its node from scaling down; 1h if not given",
        "cell",
        "SECONDS",
        reading.lifetime,
        "a duration, such as 90, 90s, 5m or 1h",
    ),
    Option(("--no-capture",), "capture", "send no variables", constant=False),
    Option(
        ("--capture-limit",),
        "capture_limit",
        "maximum size of the variables of a cell",
        "cell",
        "SIZE",
        reading.size,
        "a size, such as 512MiB or 2GiB",
    ),
    Option(
        ("--file",),
        "files",
        "copy this file to the cell's folder; may be a pattern, and repeated",
        "cell",
        "PATH",
        reading.path,
        "a file in the notebook's folder, such as data.csv or 'data/*.csv'",
        merge=_joined,
    ),
    Option(
        ("--sync",),
        "sync",
        "copy this folder to the node, and its changes back; --exclude leaves files out",
        "cell",
        "DIR",
        reading.path,
        "a folder in the notebook's folder, such as data",
        merge=_joined,
    ),
    Option(
        ("--fetch",),
        "fetch",
        "copy these files to the notebook's folder when the cell ends; may be repeated",
        "cell",
        "PATTERN",
        reading.path,
        "a pattern of files in the cell's folder, such as 'out/*.png'",
        merge=_joined,
    ),
    Option(
        ("--file-limit",),
        "file_limit",
        "maximum size of the files of a cell, in each direction; 1 GiB if not given",
        "cell",
        "SIZE",
        reading.size,
        "a size, such as 512MiB or 2GiB",
    ),
    Option(("--dry-run",), "dry_run", "show what would be sent, and send nothing"),
    Option(("--no-footer",), "footer", "do not show where the cell ran and what it cost", constant=False),
    Option(("--quiet",), "quiet", "show no progress, no manifest and no footer"),
    Option(("-h", "--help"), "help", "show this list"),
)

POOL_OPTIONS = tuple(option for option in OPTIONS if option.group == "pool")
"""The options of the "pool" group."""

POOL_LABELS: Mapping[str, str] = {option.target: option.name for option in POOL_OPTIONS}
"""Flags of the fields of a pool, by dotted path."""


def explain(options: Iterable[Option] = OPTIONS) -> str:
    """Return the options as a help text."""
    heads = {option: f"{', '.join(option.flags)} {option.metavar}".rstrip() for option in options}
    width = min(30, max(map(len, heads.values())))
    lines = []
    for option, head in heads.items():
        gap = "\n  " + " " * width if len(head) > width else " " * (width - len(head))
        lines.append(f"  {head}{gap}  {option.help}")
    return "\n".join(lines)
