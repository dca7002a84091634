"""Discovery and parsing of the user's files, with line numbers."""

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from skyward.errors import SpecError

__all__ = ["PROJECT_FILE", "USER_FILE", "ConfigValue", "File", "find_files"]

PROJECT_FILE: Final = "skyward.toml"
"""Name of a project's file: the nearest one, from the working directory upwards, applies."""

USER_FILE: Final = "~/.skyward/defaults.toml"
"""The user's own file. The environment variable SKYWARD_DEFAULTS replaces it; if empty, there is none."""


@dataclass(frozen=True, slots=True)
class File:
    """Parsed file. Its content may have secrets, so `repr` leaves it out."""

    path: Path
    text: str = field(repr=False)
    tables: Mapping[str, Any] = field(repr=False)

    def where(self, key: Sequence[str | int]) -> str:
        """Return the location of a key for users: `skyward.toml:7`, with a shortened path."""
        line = self.line(key)
        return f"{_short(self.path)}{'' if line is None else f':{line}'}"

    def line(self, key: Sequence[str | int]) -> int | None:
        """Return the line on which a key begins; None if it is not in the file.

        Finds the shortest prefix of the file that is valid TOML and has the key: its last statement defines the key.
        """
        lines = self.text.splitlines()
        start = 0
        for end in range(1, len(lines) + 1):
            try:
                tables = tomllib.loads("\n".join(lines[:end]))
            except tomllib.TOMLDecodeError:
                continue  # in the middle of a statement
            if _has(tables, key):
                statement = lines[start:end]
                blank = next((n for n, line in enumerate(statement) if line.strip() and line.lstrip()[0] != "#"), 0)
                return start + blank + 1
            start = end
        return None


def _has(tables: object, key: Sequence[str | int]) -> bool:
    found: Any = tables
    for part in key:
        keys = range(len(found)) if isinstance(found, list) else found if isinstance(found, Mapping) else ()
        if part not in keys:
            return False
        found = found[part]
    return True


def find_files(start: Path | None = None) -> tuple[File, ...]:
    """Return the existing files, lowest precedence first.

    Args:
        start: directory to search upwards from; the working directory if None.

    Raises:
        SpecError: a file cannot be read or is not TOML, or the working directory was deleted.
    """
    files = []
    user = os.environ.get("SKYWARD_DEFAULTS", USER_FILE)
    if user and (file := _read(Path(user).expanduser())):
        files.append(file)
    try:
        folder = (start or Path.cwd()).absolute()
    except FileNotFoundError:
        raise SpecError(
            "The working directory was deleted: change to one that exists, with %cd or os.chdir()."
        ) from None
    for parent in (folder, *folder.parents):
        if file := _read(parent / PROJECT_FILE):
            files.append(file)
            break
    return tuple(files)


def _read(path: Path) -> File | None:
    """Return the parsed file at that path; None if there is none."""
    try:
        state = path.stat()
        return _parsed(path, state.st_mtime_ns, state.st_size)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise SpecError(f"{path} cannot be read ({reason}): fix its permissions, or remove it.") from None


@lru_cache(maxsize=8)
def _parsed(path: Path, changed: int, size: int) -> File:
    """Return the parsed file; `changed` and `size` are the cache key of its content."""
    try:
        text = path.read_bytes().decode()
        return File(path, text, tomllib.loads(text))
    except UnicodeDecodeError:
        raise SpecError(f"{path} is not UTF-8 text: save it as UTF-8, or remove it.") from None
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path} is not TOML: {_lowered(str(error))}. Fix or remove the file.") from None


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _short(path: Path) -> str:
    """Return `path` relative to the working directory or the home directory, if it is below one of them."""
    for base, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(base):
            return f"{prefix}{path.relative_to(base).as_posix()}"
    return str(path)


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """Value in a file. It may be a secret, so `repr` leaves it out.

    Attributes:
        value: the value as written, or, for a pool, as `sky.Compute` takes it.
        file: the file.
        key: names of the enclosing tables and of the value; a number for a table in a list.
    """

    value: Any = field(repr=False)
    file: File
    key: tuple[str | int, ...]

    @property
    def where(self) -> str:
        """Location of the value: `skyward.toml:7`."""
        return self.file.where(self.key)

    def wrong(self, why: str) -> SpecError:
        """Return an error about the value, with its location."""
        return SpecError(f"{self.where}, {self.name}: {why}")

    @property
    def name(self) -> str:
        """Dotted key: `pools.train.groups.gpu[1].vcpus`."""
        return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.key)[1:]
