"""The user's own files for the nodes, by content: a file that a node holds is not sent again.

A set of files is a manifest, path -> digest, and has a digest of its own. On the node each content is kept once, and
each set is a folder of its own: what is deleted or renamed here is so there, and no pool changes what another runs.
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
    """One file: where it goes below the folder of the set, its SHA-256 in hex, and where it is here."""

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
    """Check that every include names a file or folder.

    Raises:
        SpecError: one does not.
    """
    here = Path(cwd or Path.cwd())
    for include in includes:
        _existing(include, here)


def collect(
    includes: Sequence[str], excludes: Sequence[str] = (), cwd: Path | None = None, search_path: Sequence[str] = ()
) -> Includes:
    """The files that `includes` name, less those that `excludes` match.

    A file goes where an import finds it here: below the folder of `search_path`, or below `cwd`, that it is in. What is
    in none of them goes by its own name. A pattern without "/" is matched against each part of a path below what was
    included, another one against the path as a whole.

    Raises:
        SpecError: an include names nothing, or two of them would be the same path on a node.
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
                    f"Image.includes would make {clash.origin} a file, and {file.origin} one in a folder of that name."
                )
    return Includes(tuple(found[path] for path in sorted(found)))


def _existing(include: str, here: Path) -> Path:
    try:
        given = Path(os.path.normpath(here / Path(include).expanduser()))
        if given.exists():
            return given
    except (OSError, RuntimeError, ValueError) as error:  # a name that is too long, an unknown user, or NUL in it
        raise SpecError(f"Image.includes names {include!r}, which cannot be read: {error}.") from None
    raise SpecError(f"Image.includes names {include!r}, and there is no such file or folder in {here}.")


def _place(given: Path, roots: Sequence[Path]) -> PurePosixPath:
    for root in roots:
        if given.is_relative_to(root) and root != Path(root.anchor):
            return PurePosixPath(given.relative_to(root).as_posix())
    return PurePosixPath(given.name)


def _files(given: Path, patterns: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """The files in `given`, each with its path below it; that of a file itself is ".". Links are followed."""
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
                if real not in above:  # a link to a folder that it is in
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
