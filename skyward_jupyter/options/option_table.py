"""Table of the options of `%%sky`, from which they are parsed, explained and completed."""

from collections.abc import Iterable, Sequence

from skyward.frontends.commands import (
    FETCH,
    FILE,
    FILE_LIMIT,
    ON,
    POOL_OPTION,
    POOL_OPTIONS,
    SYNC,
    TIMEOUT,
    Option,
    lifetime,
    size,
)
from skyward.frontends.configuration import GANG_PLACEMENTS
from skyward_jupyter.options import parsers as reading

__all__ = ["CELL_OPTIONS", "OPTIONS"]


def _joined(parts: Sequence[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for part in parts for item in part))


CELL_OPTIONS: tuple[Option, ...] = (
    POOL_OPTION,
    ON,
    Option(
        ("--map",),
        "map",
        "run the cell once for each element of NAME; inside, NAME is the element",
        "NAME",
        reading.identifier,
        "the name of a variable",
    ),
    Option(
        ("--gang",),
        "gang",
        "run the cell N times, all at once or not at all; `sky.instance_info().gang.rank` is 0 to N - 1",
        "N",
        reading.gang_size,
        "a positive number of runs, such as 4",
    ),
    Option(
        ("--placement",),
        "placement",
        "where the runs of --gang go: on few nodes, on many, all on one node, or each on its own",
        "|".join(GANG_PLACEMENTS),
        reading.placement,
        ", ".join(GANG_PLACEMENTS[:-1]) + f" or {GANG_PLACEMENTS[-1]}",
        GANG_PLACEMENTS,
    ),
    Option(
        ("--resources",),
        "resources",
        "run on a node with these resources free, and reserve them meanwhile",
        "NAME=N",
        reading.amounts,
        "amounts, such as CPU=4,GPU=1",
    ),
    Option(
        ("--capabilities",),
        "capabilities",
        "run on a node with these capabilities",
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
        "N",
        reading.retries,
        "a whole number",
    ),
    TIMEOUT,
    Option(
        ("-i", "--in"),
        "inputs",
        "send only these variables",
        "NAMES",
        reading.names,
        "names of variables, such as x,y",
        merge=_joined,
    ),
    Option(
        ("-o", "--out"),
        "outputs",
        "return only these variables",
        "NAMES",
        reading.names,
        "names of variables, such as x,y",
        merge=_joined,
    ),
    Option(
        ("--keep",),
        "keep",
        "keep these variables on their node; the notebook gets handles, and cells that read them run on that node",
        "NAMES",
        reading.names,
        "names of variables, such as model,conn",
        merge=_joined,
    ),
    Option(
        ("--keep-for",),
        "keep_for",
        "how long after its last use a kept variable protects its node from scaling down; 1h if not given",
        "SECONDS",
        lifetime,
        "a duration, such as 90, 90s, 5m or 1h",
    ),
    Option(("--no-capture",), "capture", "send no variables", constant=False),
    Option(
        ("--capture-limit",),
        "capture_limit",
        "maximum size of the variables of a cell",
        "SIZE",
        size,
        "a size, such as 512MiB or 2GiB",
    ),
    FILE,
    SYNC,
    FETCH,
    FILE_LIMIT,
    Option(("--dry-run",), "dry_run", "show what would be sent, and send nothing"),
    Option(("--no-footer",), "footer", "do not show where the cell ran and what it cost", constant=False),
    Option(("--quiet",), "quiet", "show no progress, no manifest and no footer"),
    Option(("-h", "--help"), "help", "show this list"),
)
"""The options for how a cell runs. Their targets are fields of `CellOptions`."""

OPTIONS: tuple[Option, ...] = (POOL_OPTION, *POOL_OPTIONS, *CELL_OPTIONS[1:])
"""All options of `%%sky`."""
