"""The places of volumes: mounts by programs, and the paths at which tasks see them.

The mounts of a worker are in a folder of their own, its space, and never below a folder that is removed with the node:
removing a folder with everything below it would delete the objects of a writable bucket. Tasks see a volume at its own
path, which is a bind mount of the folder in the space, or a symbolic link to it where the process may not mount.
Replacing either is atomic, so that no task sees an empty folder while a mount is made again.

What was made is on record in the space, so that the supervisor of the worker can remove it after a crash.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from skyward.worker.volumes.locks import is_locked
from skyward.worker.volumes.spaces import spaces_folder

__all__ = ["PlaceError", "Space", "base_folder", "clear_abandoned", "clear_space", "mounts_below"]

_RECORD, _LOCK = "record", "lock"
_BIND, _REMOUNT, _READ_ONLY, _RECURSIVE = 4096, 32, 1, 16384
_DETACH, _NO_FOLLOW = 2, 8
_UNMOUNT_WITHIN = 5.0


class PlaceError(Exception):
    """A volume cannot be placed at its path; the message is the reason, with the fix."""


def base_folder() -> Path:
    """Return the folder of all spaces of this user, outside of what is removed with a node.

    Raises:
        PlaceError: another user owns it.
    """
    folder = Path(spaces_folder())
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if found.st_uid != os.geteuid() or folder.is_symlink():
        raise PlaceError(f"{folder} belongs to another user, and would hold the volumes: remove it")
    return folder


class Space:
    """The mounts and placed paths of one worker.

    Args:
        name: name of its folder; unique on the machine.
    """

    def __init__(self, name: str) -> None:
        self.folder = base_folder() / name
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self._lock = os.open(self.folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._made = 0
        self._placed: set[Path] = set()

    def new_folder(self) -> Path:
        """Make an empty folder for a mount, and return it."""
        self._made += 1
        folder = self.folder / f"m{self._made}"
        folder.mkdir(mode=0o700)
        return folder

    def read_only(self, folder: Path) -> Path:
        """Return a path of a folder by which nothing can be written to it; itself if this process may not mount."""
        shown = self.new_folder()
        may_mount = sys.platform == "linux" and os.geteuid() == 0
        return shown if may_mount and not _bind_mount(folder, shown, read_only=True) else folder

    def place(self, folder: Path, at: Path, *, read_only: bool, link: bool = False) -> None:
        """Show a folder at another path, in place of what this space showed there before.

        Args:
            folder: the folder.
            at: absolute path.
            read_only: whether the path is read-only, if it is a bind mount.
            link: whether to make a symbolic link even where a bind mount is possible.

        Raises:
            PlaceError: something else is there, or the path cannot be made.
        """
        if at not in self._placed:
            self._check_free(at)
        try:
            at.parent.mkdir(parents=True, exist_ok=True)
            if link or not self._bind(folder, at, read_only=read_only):
                self._link(folder, at)
        except OSError as error:
            user = f"user {os.geteuid()}"
            raise PlaceError(
                f"{at} cannot be made on the node ({error.strerror or error}): {user} needs a path that it may create, "
                "such as one below /tmp or its home"
            ) from error
        self._placed.add(at)

    def remove_folder(self, folder: Path) -> None:
        """Remove a folder of `new_folder`, whose mount is dead."""
        _unmount(folder)
        with contextlib.suppress(OSError):
            folder.rmdir()

    def clear(self) -> None:
        """Remove all places and mounts. Idempotent."""
        clear_space(self.folder)
        with contextlib.suppress(OSError):
            os.close(self._lock)

    def _check_free(self, at: Path) -> None:
        if at.is_symlink():
            space = self._space_of(Path(os.readlink(at)))
            if space is None:
                raise PlaceError(f"{at} is a symbolic link on the node: give the volume a mount of its own")
            if is_locked(space / _LOCK):
                raise PlaceError(
                    f"{at} is a volume of another node on the same machine: give each pool mounts of its own, and each "
                    "node a machine"
                )
            at.unlink()  # of a worker that has ended
            return
        if not at.exists():
            return
        if not at.is_dir():
            raise PlaceError(f"{at} is a file on the node: give the volume a mount of its own")
        if os.path.ismount(at):
            raise PlaceError(f"{at} is a mount point on the node already: give the volume a mount of its own")
        if any(at.iterdir()):
            raise PlaceError(
                f"{at} is a folder with files on the node, which the volume would hide: give the volume a mount of its "
                "own"
            )

    def _space_of(self, path: Path) -> Path | None:
        """Return the space that a path is in; None if it is in none."""
        spaces = self.folder.parent
        return spaces / path.relative_to(spaces).parts[0] if path.is_relative_to(spaces) else None

    def _bind(self, folder: Path, at: Path, *, read_only: bool) -> bool:
        """Bind a folder to a path; return whether this process may."""
        if sys.platform != "linux" or os.geteuid() != 0 or os.path.islink(at):
            return False
        is_new = at not in self._placed
        if is_new and not at.exists():
            at.mkdir()
            self._note(f"folder {at}")
        self._note(f"bind {at}")
        if code := _bind_mount(folder, at, read_only=read_only):
            if code in (errno.EPERM, errno.EACCES, errno.ENOSYS):
                return False
            raise OSError(code, os.strerror(code))
        return True

    def _link(self, folder: Path, at: Path) -> None:
        if os.path.isdir(at) and not os.path.islink(at):  # these return False for a dead mount, too
            at.rmdir()  # it is empty, or it fails
        self._note(f"link {at}")
        new = at.with_name(f".{at.name}.skyward-{os.getpid()}")
        new.unlink(missing_ok=True)
        new.symlink_to(folder)
        new.rename(at)

    def _note(self, line: str) -> None:
        with (self.folder / _RECORD).open("a") as record:
            record.write(f"{line}\n")
            record.flush()


def clear_space(folder: Path) -> None:
    """Remove the places and mounts of a space, and its folder. Idempotent. Deletes no file of a volume."""
    for line in _lines(folder / _RECORD):
        kind, _, path = line.partition(" ")
        at = Path(path)
        _remove_place(at)
        if kind == "folder":
            with contextlib.suppress(OSError):
                at.rmdir()
    for mount in mounts_below(folder):
        _unmount(mount)
    if mounts_below(folder):
        return
    with contextlib.suppress(OSError):
        for each in folder.iterdir():
            if each.is_dir() and not each.is_symlink():
                each.rmdir()  # never with its content
            else:
                each.unlink()
        folder.rmdir()


def clear_abandoned() -> None:
    """Remove what killed workers have left on this machine."""
    for folder in tuple(base_folder().iterdir()):
        if not is_locked(folder / _LOCK):
            clear_space(folder)


def mounts_below(folder: Path) -> list[Path]:
    """Return the mount points below a folder, the innermost first."""
    found = []
    for line in _lines(Path("/proc/self/mounts")):
        point = Path(line.split(" ")[1].encode().decode("unicode_escape"))
        if point.is_relative_to(folder):
            found.append(point)
    return sorted(found, key=lambda path: len(path.parts), reverse=True)


def _lines(file: Path) -> Iterator[str]:
    with contextlib.suppress(OSError):
        yield from reversed(file.read_text().splitlines())


def _remove_place(at: Path) -> None:
    if os.path.islink(at):
        with contextlib.suppress(OSError):
            at.unlink()
        return
    while at in mounts_below(at):
        if not _unmount(at):
            return


def _unmount(point: Path) -> bool:
    """Detach a mount, in use or not. Return whether that succeeded."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(point), _DETACH | _NO_FOLLOW) == 0:
        return True
    program = shutil.which("fusermount3") or shutil.which("fusermount")
    if program is None:
        return False
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        command = [program, "-u", "-z", str(point)]
        return subprocess.run(command, capture_output=True, timeout=_UNMOUNT_WITHIN, check=False).returncode == 0
    return False


def _bind_mount(folder: Path, at: Path, *, read_only: bool) -> int:
    """Show a folder at another; return the error number, or 0. A mount that cannot be made read-only is removed."""
    code = _mount(folder, at, _BIND | _RECURSIVE)
    if not code and read_only and (code := _mount(folder, at, _BIND | _REMOUNT | _READ_ONLY)):
        _unmount(at)
    return code


def _mount(source: Path, target: Path, flags: int) -> int:
    """Mount a folder at another; return the error number, or 0."""
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.mount(os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(flags), None)
    return 0 if done == 0 else ctypes.get_errno()
