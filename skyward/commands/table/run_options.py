"""Options for where work runs and which files go with it: those of `skyward run` and of `%%sky`."""

from collections.abc import Iterable, Sequence

from skyward.commands import reading
from skyward.commands.option import Option

__all__ = ["FETCH", "FILE", "FILE_LIMIT", "ON", "SYNC", "TIMEOUT"]


def _joined(parts: Sequence[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for part in parts for item in part))


ON = Option(
    ("--on",),
    "on",
    "nodes to run on: one, all, the head, those with these ranks, or a group of the pool",
    "one|all|head|RANKS|GROUP",
    reading.place,
    reading.PLACES,
    ("one", "all", "head"),
)
TIMEOUT = Option(
    ("--timeout",),
    "timeout",
    "stop the work after this time",
    "SECONDS",
    reading.duration,
    "a duration, such as 90, 90s, 5m or 1h",
)
FILE = Option(
    ("--file",),
    "files",
    "copy this file to the folder of the work; may be a pattern, and repeated",
    "PATH",
    reading.path,
    "a file in this folder, such as data.csv or 'data/*.csv'",
    merge=_joined,
)
SYNC = Option(
    ("--sync",),
    "sync",
    "copy this folder to the node, and its changes back; --exclude leaves files out",
    "DIR",
    reading.path,
    "a folder in this folder, such as data",
    merge=_joined,
)
FETCH = Option(
    ("--fetch",),
    "fetch",
    "copy these files back to this folder when the work ends; may be repeated",
    "PATTERN",
    reading.path,
    "a pattern of files in the folder of the work, such as 'out/*.png'",
    merge=_joined,
)
FILE_LIMIT = Option(
    ("--file-limit",),
    "file_limit",
    "maximum size of the files, in each direction; 1 GiB if not given",
    "SIZE",
    reading.size,
    "a size, such as 512MiB or 2GiB",
)
