"""The user's own files for the nodes, by content: a file that a node has is not sent again.

A set of files is a manifest, path -> digest, and has a digest of its own. A node stores each content once, and each set
as a folder of its own: files deleted or renamed here are absent there, and no pool changes the files of another.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path, PurePosixPath

from skyward.errors import SpecError

__all__ = ["IncludedFile", "Includes", "check_includes", "collect"]


@dataclass(frozen=True, slots=True)
class IncludedFile:
    """One file: its path below the folder of the set, its SHA-256 in hex, and its path here."""

    path: str
    digest: str
    executable: bool
    origin: Path


@dataclass(frozen=True)
class Includes:
    """A set of files, sorted by path."""

    files: tuple[IncludedFile, ...] = ()

    @cached_property
    def manifest(self) -> str:
        """One line for each file: digest, "x" or "-" for executable or not, path."""
        return "".join(f"{file.digest} {'x' if file.executable else '-'} {file.path}\n" for file in self.files)

    @cached_property
    def digest(self) -> str:
        """Identity of the set, in hex; "" where it is empty."""
        return hashlib.sha256(self.manifest.encode(errors="surrogateescape")).hexdigest() if self.files else ""


def check_includes(includes: Sequence[str], cwd: Path | None = None) -> None:
    """Check that every include names an existing file or folder.

    Raises:
        SpecError: one does not.
    """
    here = Path(cwd or Path.cwd())
    for include in includes:
        _existing(include, here)


def collect(
    includes: Sequence[str], excludes: Sequence[str] = (), cwd: Path | None = None, search_path: Sequence[str] = ()
) -> Includes:
    """Return the files that `includes` name, except those that `excludes` match.

    A file goes where an import finds it: to its path relative to the folder of `search_path`, or `cwd`, that contains
    it. A file in none of them goes by its own name. A pattern without "/" is matched against each part of a path below
    the include, any other pattern against the whole path.

    Raises:
        SpecError: an include does not exist, or two files would have the same path on a node.
    """
    here = Path(cwd or Path.cwd())
    entries = {Path(os.path.normpath(here / entry)) for entry in ("", *search_path)}
    roots = sorted(entries, key=lambda root: len(root.parts), reverse=True)
    patterns = [pattern.rstrip("/") for pattern in excludes]
    found: dict[str, IncludedFile] = {}
    for include in includes:
        given = _existing(include, here)
        place = _place(given, roots)
        for path, origin in _files(given, patterns):
            file = _read(str(place / path), origin)
            known = found.setdefault(file.path, file)
            if known.digest != file.digest:
                raise SpecError(
                    f"Image.includes would put both {known.origin} and {file.origin} at {file.path!r} on a node; "
                    "rename one of them, or include the folder above it."
                )
    for path, file in found.items():
        for parent in PurePosixPath(path).parents:
            if str(parent) in found:
                clash = found[str(parent)]
                raise SpecError(
                    f"Image.includes would create {clash.origin} as a file, and {file.origin} in a folder of that name."
                )
    return Includes(tuple(found[path] for path in sorted(found)))


def _existing(include: str, here: Path) -> Path:
    try:
        given = Path(os.path.normpath(here / Path(include).expanduser()))
        if given.exists():
            return given
    except (OSError, RuntimeError, ValueError) as error:  # a name that is too long, an unknown user, or a NUL byte
        raise SpecError(f"Image.includes names {include!r}, which cannot be read: {error}.") from None
    raise SpecError(f"Image.includes names {include!r}, but there is no such file or folder in {here}.")


def _place(given: Path, roots: Sequence[Path]) -> PurePosixPath:
    for root in roots:
        if given.is_relative_to(root) and root != Path(root.anchor):
            return PurePosixPath(given.relative_to(root).as_posix())
    return PurePosixPath(given.name)


def _files(given: Path, patterns: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yield the files in `given`, each with its path below it; a file itself has the path ".". Links are followed."""
    if given.is_file():
        yield ".", given
        return
    waiting: list[tuple[Path, str, tuple[str, ...]]] = [(given, "", (os.path.realpath(given),))]
    while waiting:
        folder, prefix, above = waiting.pop()
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            path = prefix + entry.name
            if _excluded(path, entry.name, patterns):
                continue
            if entry.is_file():
                yield path, Path(entry.path)
            elif entry.is_dir():
                real = os.path.realpath(entry.path)
                if real not in above:  # otherwise a link to a folder that contains it
                    waiting.append((Path(entry.path), f"{path}/", (*above, real)))


def _excluded(path: str, name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path if "/" in pattern else name, pattern) for pattern in patterns)


def _read(path: str, origin: Path) -> IncludedFile:
    if "\n" in path:
        raise SpecError(f"Image.includes cannot send {path!r}: its name has a line break.")
    try:
        with origin.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            return IncludedFile(path, digest, bool(os.fstat(stream.fileno()).st_mode & 0o100), origin)
    except OSError as error:
        raise SpecError(f"Image.includes names a file that cannot be read: {error}.") from None
