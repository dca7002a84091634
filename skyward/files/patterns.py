"""Relative paths and patterns for them. The same on every system: parts are separated by "/"."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from posixpath import normpath, splitext

__all__ = [
    "NEVER_SYNCED",
    "TEMPORARY",
    "Excludes",
    "Glob",
    "is_inside",
    "is_pattern",
    "is_relative",
    "literal",
    "parents",
    "version_name",
]

TEMPORARY = ".skyward-"
"""Prefix of the names of files that are being written."""

NEVER_SYNCED = (
    ".git",
    ".hg",
    ".svn",
    "__pycache__",
    "*.pyc",
    "*.pyo",
    ".venv",
    ".ipynb_checkpoints",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    "node_modules",
    "*.egg-info",
    ".DS_Store",
    f"{TEMPORARY}*",
)
"""Patterns that are excluded when a whole folder is selected."""


def is_relative(path: str) -> bool:
    """Return whether `path` is relative, normalised, and inside its folder.

    Every path received from the other side is checked with it.
    """
    return (
        path not in ("", ".", "..")
        and not path.startswith(("/", "../"))
        and "\0" not in path
        and "\\" not in path
        and normpath(path) == path
    )


def is_inside(path: str, folder: str) -> bool:
    """Return whether a relative path is in the relative `folder`, which may be "."."""
    return folder == "." or path.startswith(f"{folder}/")


def is_pattern(text: str) -> bool:
    """Return whether `text` contains a wildcard."""
    return any(character in text for character in "*?[")


def literal(path: str) -> str:
    """Return the pattern that matches exactly one path, as `--fetch` reads it.

    Commas separate patterns, and spaces around them are ignored, so "?" replaces both.
    """
    pattern = re.sub(r"([*?[])", r"[\1]", path)
    return re.sub(r"[,\n]|^\s|\s$", "?", pattern)


def parents(path: str) -> Iterator[str]:
    """Yield the folders that contain `path`, innermost first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def version_name(path: str, label: str, number: int = 1) -> str:
    """Return the name for another version of a file beside it: "out/a.png" with "node0" becomes "out/a.node0.png"."""
    folder, slash, name = path.rpartition("/")
    stem, suffix = splitext(name)
    return f"{folder}{slash}{stem}.{label}{f'-{number}' if number > 1 else ''}{suffix}"


@dataclass(frozen=True)
class Glob:
    """A pattern of relative paths.

    "*", "?" and "[...]" match within a part, "**" any number of parts; names that begin with "." are matched only by
    patterns that do. A matching folder matches as a whole.
    """

    text: str

    @cached_property
    def _parts(self) -> tuple[str, ...]:
        return tuple(part for part in self.text.split("/") if part not in ("", "."))

    @property
    def folder(self) -> str:
        """The folder that contains all matches: the parts before the first with a wildcard; "" if there are none."""
        fixed = []
        for part in self._parts[:-1]:
            if is_pattern(part):
                break
            fixed.append(part)
        return "/".join(fixed)

    def start(self) -> frozenset[int]:
        """Return the states of the match before the first part of a path; see `step`."""
        return self._skipped({0})

    def step(self, states: frozenset[int], name: str) -> frozenset[int]:
        """Return the states after one more part. Without any state left, nothing below the folder matches."""
        reached = set()
        for state in states:
            if state == len(self._parts):
                return frozenset({state})  # inside a matching folder
            part = self._parts[state]
            if part == "**":
                if not name.startswith("."):
                    reached.add(state)
            elif fnmatchcase(name, part) and (part.startswith(".") or not name.startswith(".")):
                reached.add(state + 1)
        return self._skipped(reached)

    def _skipped(self, states: Iterable[int]) -> frozenset[int]:
        """Return the states reachable without a part, because "**" may match no part."""
        found = set(states)
        for state in sorted(found):
            following = state
            while following < len(self._parts) and self._parts[following] == "**":
                following += 1
                found.add(following)
        return frozenset(found)

    def is_met(self, states: frozenset[int]) -> bool:
        """Return whether a path that ends here matches."""
        return len(self._parts) in states

    def matches(self, path: str) -> bool:
        """Return whether `path`, or a folder that it is in, matches."""
        states = self.start()
        for name in path.split("/"):
            if self.is_met(states):
                return True
            states = self.step(states, name)
        return self.is_met(states)


@dataclass(frozen=True, slots=True)
class Excludes:
    """Patterns of what is left out of a folder.

    A pattern without "/" is compared with each part of a path, any other with the whole path. "*" matches "/" too.
    """

    patterns: tuple[str, ...] = NEVER_SYNCED

    def skips(self, path: str) -> bool:
        """Return whether a path itself is excluded; its parent folders are not checked."""
        name = path.rpartition("/")[2]
        return any(fnmatchcase(path if "/" in each else name, each) for each in self.patterns)

    def skip_any(self, path: str) -> bool:
        """Return whether a path or one of its parent folders is excluded."""
        return self.skips(path) or any(map(self.skips, parents(path)))
