"""The folder of a worker's mounts: outside of everything that is removed with a node. Imports nothing large."""

import os

__all__ = ["SPACE", "spaces_folder"]

SPACE = "SKYWARD_SPACE"
"""Variable with the name of the worker's folder there."""


def spaces_folder() -> str:
    """Return the folder in which the workers of this user have their mounts, a folder each."""
    user = os.geteuid()
    if user == 0 and os.access("/run", os.W_OK):
        return "/run/skyward"
    return f"{os.environ.get('TMPDIR') or '/tmp'}/skyward-{user}"
