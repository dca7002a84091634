"""The installation of Skyward that a data directory belongs to. Its id tags all that its pools create at providers.

What carries the id and is not in the journal is swept. So a directory that was copied to another machine, such as a new
laptop, gets an id of its own there: otherwise each of the two would remove what the other one has launched since.
"""

import contextlib
import hashlib
import logging
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from skyward.errors import JournalError

__all__ = ["Installation", "data_directory", "owner_id", "this_installation"]

_MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))

_UNKNOWN = "-"
"""The id of a machine that has none, in the file."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Installation:
    """An installation.

    Attributes:
        id: its unique id.
        machine: digest of the id of its machine; "" if it has none.
        inode: number of its file.
        since: time at which it became one of its own, as a copy; 0 if it is none. Older pools are of the other one.
    """

    id: str
    machine: str
    inode: int
    since: float = 0.0


def data_directory() -> Path:
    """Return the journal's directory, and create it if needed: `SKYWARD_DATA_DIR`, or "skyward" in the user's data.

    Raises:
        JournalError: the directory cannot be created.
    """
    given = os.environ.get("SKYWARD_DATA_DIR")
    path = Path(given).expanduser() if given else _users()
    try:
        (path / "pools").mkdir(parents=True, exist_ok=True, mode=0o700)
        return path
    except OSError as error:
        raise JournalError(
            f"Skyward records the machines it launches in {path}, which cannot be created ({error.strerror}); "
            "name another directory in the environment variable SKYWARD_DATA_DIR."
        ) from error


def _users() -> Path:
    from platformdirs import user_data_path

    return user_data_path("skyward")


def owner_id() -> str:
    """Return the id of this installation, created at first use. It tags all that the pools of this journal create.

    Raises:
        JournalError: it cannot be read or created.
    """
    return this_installation().id


def this_installation() -> Installation:
    """Return this installation, which is recorded at first use.

    Raises:
        JournalError: its file cannot be read or created.
    """
    file, machine = data_directory() / "owner", _machine()
    try:
        found = _recorded(file, machine, 0.0)
        if not _is_copied(found, file, machine):
            return found
        own = file.with_name(f"owner-{machine}")  # the other one keeps its file, if both machines share the directory
        if not own.exists():
            _logger.warning(
                "The data directory %s was copied from another machine: its pools belong to that one, and are "
                "reaped here only by name.", file.parent,
            )  # fmt: skip  # one sentence
        return _recorded(own, machine, time.time())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is damaged"
        raise JournalError(
            f"The id of this installation, {file}, cannot be read ({reason}); make the file readable, or name "
            "another directory in the environment variable SKYWARD_DATA_DIR."
        ) from error


def _recorded(file: Path, machine: str, since: float) -> Installation:
    """Return the installation in a file, which is created with a new one if there is none."""
    if not file.exists():
        partial = file.with_name(f".owner.{secrets.token_hex(4)}")
        partial.touch(mode=0o600)
        new = Installation(secrets.token_hex(10), machine, partial.stat().st_ino, since)
        partial.write_text(f"{new.id}\n{new.machine or _UNKNOWN} {new.inode} {new.since}\n")
        with contextlib.suppress(FileExistsError):
            os.link(partial, file)
        partial.unlink()
    id, *others = file.read_text().split()
    where, inode, when = others or (_UNKNOWN, "0", "0")  # a file may have the id only
    return Installation(id, "" if where == _UNKNOWN else where, int(inode), float(when))


def _is_copied(found: Installation, file: Path, machine: str) -> bool:
    """Return whether an installation is of another machine, and its file a copy: machines may share one directory."""
    is_elsewhere = bool(machine and found.machine) and machine != found.machine
    return is_elsewhere and file.stat().st_ino != found.inode


def _machine() -> str:
    """Return a digest of the id of this machine; "" if it has none, as in most containers."""
    for file in _MACHINE_IDS:
        with contextlib.suppress(OSError):
            if len(text := file.read_text().strip()) == 32:
                return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
    return ""
