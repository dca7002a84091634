"""The volumes of a node, for code inside a task."""

import json
import os
import re
from pathlib import Path

from skyward.errors import NotOnNodeError, SpecError

__all__ = ["VOLUMES", "note_missing", "volume"]

VOLUMES = "SKYWARD_VOLUMES"
"""Variable with the real path of each volume by its mount, as JSON."""


def volume(mount: str) -> Path:
    """Return the path of a volume on the node that runs this task: its mount, or, on a local node, a folder of its own.

    Raises:
        NotOnNodeError: this process is no node.
        SpecError: the pool has no volume at this mount; the message lists those that it has.

    Example:
        @sky.function
        def count_images() -> int:
            return len(list(sky.volume("/data").glob("*.png")))
    """
    if "SKYWARD_NODE" not in os.environ:
        raise NotOnNodeError(
            f"sky.volume({mount!r}) is the path of a volume on a node, so it works only in a task; "
            "on this machine, use the storage: sky.Storage(...).download(...)"
        )
    paths: dict[str, str] = json.loads(os.environ.get(VOLUMES, "{}"))
    wanted = "/" + mount.strip("/")
    if wanted not in paths:
        known = ", ".join(map(repr, sorted(paths))) or "none"
        raise SpecError(f"The pool has no volume at {mount!r}; it has: {known}. Add it to `volumes=`, or `--volume`.")
    return Path(paths[wanted])


def note_missing(error: BaseException) -> None:
    """Add a note to an error about a path that does not exist, if it is below a mount whose files are elsewhere."""
    text = str(error)
    if not isinstance(error, FileNotFoundError) and not re.search("No such file|does not exist", text):
        return
    paths: dict[str, str] = json.loads(os.environ.get(VOLUMES, "{}"))
    for mount, path in paths.items():
        is_named = re.search(rf"(?<![\w./-]){re.escape(mount)}(?![\w.-])", text)
        if path != mount and is_named and not os.path.lexists(mount):
            error.add_note(
                f"Local nodes have the volume at {mount!r} in a folder of their own: take its path from "
                f"sky.volume({mount!r}), which works on any node."
            )
