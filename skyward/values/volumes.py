"""Modes of volumes."""

from typing import Literal

__all__ = ["VolumeMode"]

type VolumeMode = Literal["auto", "mount", "copy", "sync"]
"""Way in which the files of a volume are on a node.

"mount" streams them: what is closed is in the store. "copy" fetches them before the first task, read-only. "sync" does
so, too, and uploads what tasks have changed when a task ends. "auto" is "mount" where that is possible, and "copy"
elsewhere, if the volume is read-only.
"""
