"""The volumes of a node, for code inside a task."""

import json
import os
from pathlib import Path

from skyward.errors import NotOnNodeError, SpecError

__all__ = ["VOLUMES", "volume"]

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
