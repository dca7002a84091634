"""The records of a node about its working folders, which all slots share."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from skyward.files.disk import Versions, write
from skyward.process.clock import clock
from skyward.worker.tasks.folder import Directories

__all__ = ["FolderRecord", "locked", "working_folder"]


_RUNS = 64
"""Most recent cells that are recorded as having their files in place."""


@dataclass(slots=True)
class FolderRecord:
    """The known state of one working folder.

    Attributes:
        base: by path, the version that both sides had when the file was written to the node.
        runs: cells whose files are in place, latest last.
        versions: the last known versions of files, with the file status they belong to.
    """

    base: dict[str, bytes] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)
    versions: Versions = field(default_factory=Versions)

    @classmethod
    def load(cls, path: str) -> "FolderRecord":
        """Read a record; an empty one if the file does not exist."""
        try:
            with open(path) as file:
                found = json.load(file)
        except FileNotFoundError:
            return cls()
        looks = {name: (tuple(look), bytes.fromhex(version)) for name, (look, version) in found["looks"].items()}
        base = {name: bytes.fromhex(version) for name, version in found["base"].items()}
        return cls(base, found["runs"], Versions(looks))

    def save(self, path: str) -> None:
        """Write the record to a file."""
        looks = {name: (look, version.hex()) for name, (look, version) in self.versions.known.items()}
        base = {name: version.hex() for name, version in self.base.items()}
        _save(path, {"base": base, "runs": self.runs[-_RUNS:], "looks": looks})


def working_folder(around: Directories, notebook: str) -> str:
    """Return the folder on this node for a folder of the notebook; for the first one, the node's own directory."""
    path = os.path.join(around.own, "folders.json")
    with locked(around):
        try:
            with open(path) as file:
                known: dict[str, str] = json.load(file)
        except FileNotFoundError:
            known = {}
        if notebook not in known:
            name = os.path.join(around.own, f"work-{len(known) + 1}") if known else around.directory
            os.makedirs(name, exist_ok=True)
            known[notebook] = name
            _save(path, known)
    return known[notebook]


@contextlib.contextmanager
def locked(around: Directories) -> Iterator[None]:
    """Lock the records against the other slots of the node."""
    with open(os.path.join(around.own, "files.lock"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _save(path: str, value: object) -> None:
    write(path, [json.dumps(value).encode()], clock.time_ns(), is_executable=False)
