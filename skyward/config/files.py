"""Where the user's files are, what is in them, and on which line."""

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from skyward.errors import SpecError

__all__ = ["PROJECT_FILE", "USER_FILE", "File", "Found", "find_files"]

PROJECT_FILE: Final = "skyward.toml"
"""The name of a project's file: the nearest one, from the working directory upwards, counts."""

USER_FILE: Final = "~/.skyward/defaults.toml"
"""The user's own file, unless the environment variable SKYWARD_DEFAULTS names another; empty, it stands for none."""


@dataclass(frozen=True, slots=True)
class File:
    """One file that was read."""

    path: Path
    text: str
    tables: Mapping[str, Any]

    def where(self, key: Sequence[str | int]) -> str:
        """Where a key stands, for people: `skyward.toml:7`, with as much of the path as it takes to find it."""
        line = self.line(key)
        return f"{_short(self.path)}{'' if line is None else f':{line}'}"

    def line(self, key: Sequence[str | int]) -> int | None:
        """The line on which a key begins; None where it is not in the file.

        TOML itself says where each statement ends: the text up to there is TOML, and has the key for the first time.
        """
        lines = self.text.splitlines()
        begins = 0
        for end in range(1, len(lines) + 1):
            try:
                tables = tomllib.loads("\n".join(lines[:end]))
            except tomllib.TOMLDecodeError:
                continue  # in the middle of a statement
            if _has(tables, key):
                statement = lines[begins:end]
                blank = next((n for n, line in enumerate(statement) if line.strip() and line.lstrip()[0] != "#"), 0)
                return begins + blank + 1
            begins = end
        return None


def _has(tables: object, key: Sequence[str | int]) -> bool:
    found: Any = tables
    for part in key:
        there = range(len(found)) if isinstance(found, list) else found if isinstance(found, Mapping) else ()
        if part not in there:
            return False
        found = found[part]
    return True


def find_files(start: Path | None = None) -> tuple[File, ...]:
    """The files there are, the one that gives way first.

    Args:
        start: the directory to look upwards from; the working directory if None.

    Raises:
        SpecError: one of them cannot be read, or is not TOML; or the working directory was deleted.
    """
    files = []
    user = os.environ.get("SKYWARD_DEFAULTS", USER_FILE)
    if user and (file := _read(Path(user).expanduser())):
        files.append(file)
    try:
        here = (start or Path.cwd()).absolute()
    except FileNotFoundError:
        raise SpecError(
            "The working directory was deleted: change to one that exists, with %cd or os.chdir()."
        ) from None
    for folder in (here, *here.parents):
        if file := _read(folder / PROJECT_FILE):
            files.append(file)
            break
    return tuple(files)


def _read(path: Path) -> File | None:
    """The file of that path; None where there is none."""
    try:
        state = path.stat()
        return _parsed(path, state.st_mtime_ns, state.st_size)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise SpecError(f"{path} cannot be read ({reason}): let it be read, or move it away.") from None


@lru_cache(maxsize=8)
def _parsed(path: Path, changed: int, size: int) -> File:
    """The file as it was when it was `changed` last."""
    try:
        text = path.read_bytes().decode()
        return File(path, text, tomllib.loads(text))
    except UnicodeDecodeError:
        raise SpecError(f"{path} is not UTF-8 text: save it as such, or move it away.") from None
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path} is not TOML: {_lowered(str(error))}. Mend it there, or move the file away.") from None


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _short(path: Path) -> str:
    """`path` from the working directory, or from the home directory, where it is below one of them."""
    for base, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(base):
            return f"{prefix}{path.relative_to(base).as_posix()}"
    return str(path)


@dataclass(frozen=True, slots=True)
class Found:
    """A value of a file.

    Attributes:
        value: as it was written, or, of a pool, as `sky.Compute` takes it.
        file: the file that it is in.
        key: the tables that lead to it, and its name; a number for a table of a list.
    """

    value: Any
    file: File
    key: tuple[str | int, ...]

    @property
    def where(self) -> str:
        """Where it stands: `skyward.toml:7`."""
        return self.file.where(self.key)

    def wrong(self, why: str) -> SpecError:
        """The error that the value is wrong."""
        return SpecError(f"{self.where}, {self.name}: {why}")

    @property
    def name(self) -> str:
        """The key as people write it: `pools.train.groups.gpu[1].vcpus`."""
        return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.key)[1:]
