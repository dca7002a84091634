"""Resolution of `--file`, `--sync` and `--fetch` in the notebook's folder. Checked before anything is sent."""

import difflib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from posixpath import normpath

from skyward.errors import TooLargeError, UsageError
from skyward.files.disk import Listing, TooManyFilesError, list_files, matching
from skyward.files.patterns import NEVER_SYNCED, Excludes, Glob, is_inside, is_pattern
from skyward.files.request import FilesRoot
from skyward.formatting import option_text, size_text

__all__ = ["FILE_LIMIT", "IGNORE_FILE", "FileChoice", "FileOptions", "choose", "sizes"]

FILE_LIMIT = 1 << 30
"""Default limit on the bytes of files that a cell sends, and on those that it returns."""

IGNORE_FILE = ".skyignore"
"""File in a folder with patterns of files that `--sync` leaves out, one on each line."""

_MOST = 100_000
"""Most files in a folder that can be synced."""

_LOOKED_AT = 5_000
"""Most files that are searched for a similar name."""


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The options for files on the line of a cell.

    Attributes:
        files: `--file`.
        sync: `--sync`.
        fetch: `--fetch`.
        excludes: `--exclude`.
        limit: `--file-limit`.
    """

    files: tuple[str, ...] = ()
    sync: tuple[str, ...] = ()
    fetch: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class FileChoice:
    """The files to send and to return. Paths are relative to the notebook's folder.

    Attributes:
        folder: the notebook's folder.
        files: the files of `--file`, without those in synced folders.
        roots: the folders of `--sync`.
        synced: the files in these folders.
        fetch: the patterns of `--fetch`.
        matching: the local files that match these patterns.
        limit: most bytes to send, and to return.
    """

    folder: str
    files: Listing = field(default_factory=dict)
    roots: tuple[FilesRoot, ...] = ()
    synced: Listing = field(default_factory=dict)
    fetch: tuple[str, ...] = ()
    matching: Listing = field(default_factory=dict)
    limit: int = FILE_LIMIT

    @property
    def sent(self) -> Listing:
        """All files to send, sorted by path."""
        return dict(sorted({**self.synced, **self.files}.items()))

    @property
    def nbytes(self) -> int:
        """Bytes of all files to send."""
        return sum(status.st_size for status in self.sent.values())


def choose(asked: FileOptions, folder: str) -> FileChoice:
    """Resolve the options in the notebook's folder.

    Raises:
        UsageError: a file does not exist, is not a regular file, or is outside the folder.
        TooLargeError: the files exceed the limit.
    """
    try:
        roots = _roots(asked, folder)
        synced = {path: status for root in roots for path, status in _below(folder, root).items()}
        files = {path: status for text in asked.files for path, status in _files(text, folder)}
        patterns = [part.strip() for text in asked.fetch for part in text.split(",") if part.strip()]
        fetch = tuple(dict.fromkeys(_pattern(text, folder) for text in patterns))
        here = {path: status for text in fetch for path, status in matching(folder, Glob(text)).items()}
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}.") from None
    own = {path: status for path, status in files.items() if path not in synced}
    choice = FileChoice(folder, own, roots, synced, fetch, here, asked.limit or FILE_LIMIT)
    _check_size(choice)
    return choice


def _check_size(choice: FileChoice) -> None:
    if choice.nbytes > choice.limit:
        largest, status = max(choice.sent.items(), key=lambda each: each[1].st_size)
        raise TooLargeError(
            f"the files to send are {size_text(choice.nbytes)}, which is over the limit of "
            f"{size_text(choice.limit)}; the largest is {largest} ({size_text(status.st_size)}). Leave it out, or "
            "raise the limit with --file-limit."
        )


def _files(text: str, folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files of one `--file`: a path, a pattern, or a list separated by commas."""
    path = _relative("--file", text, folder)
    if (status := _status(folder, path)) is not None:
        if stat.S_ISDIR(status.st_mode):
            fix = option_text("--sync", path)
            raise UsageError(f"--file {text}: it is a folder, but --file sends files: write {fix}.")
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"--file {text}: it is neither a file nor a folder, so it cannot be sent.")
        if not os.access(os.path.join(folder, path), os.R_OK):
            raise UsageError(f"--file {text}: it cannot be read; check its permissions.")
        yield path, status
    elif is_pattern(path) and (found := _matches(folder, path)):
        yield from found.items()
    elif len(parts := _split(text, folder)) > 1:
        for part in parts:
            yield from _files(part, folder)
    else:
        what = "no file matches it" if is_pattern(path) else "no such file"
        raise UsageError(f"--file {text}: {what} in {folder}. {_hint(path, folder)}")


def _matches(folder: str, pattern: str) -> Listing:
    """Return the files that match a pattern as in a shell, without those in matching folders."""
    glob, depth = Glob(pattern), pattern.count("/")
    found = matching(folder, glob)
    return {path: status for path, status in found.items() if "**" in pattern or path.count("/") == depth}


def _hint(path: str, folder: str) -> str:
    """Return a hint for a path that does not exist."""
    try:
        known: Sequence[str] = list(list_files(folder, ".", Excludes(), _LOOKED_AT))
    except (OSError, TooManyFilesError):
        known = [entry for entry in os.listdir(folder) if not entry.startswith(".")]
    above, name = os.path.split(path)
    elsewhere = [each for each in known if os.path.basename(each) == name]
    beside = [each for each in known if os.path.dirname(each) == above]
    alike = [*difflib.get_close_matches(path, beside), *difflib.get_close_matches(path, known)]
    close = list(dict.fromkeys([*elsewhere, *alike]))[:2]
    if not close:
        return "Paths are relative to that folder."
    return f"Did you mean {' or '.join(close)}?"


def _roots(asked: FileOptions, folder: str) -> tuple[FilesRoot, ...]:
    """Return the folders of `--sync`, without those inside another one."""
    roots: dict[str, FilesRoot] = {}
    for text in chain.from_iterable(_split(given, folder) for given in asked.sync):
        path = _relative("--sync", text, folder, whole=True)
        status = _status(folder, path)
        if status is None:
            close = difflib.get_close_matches(path, _folders(folder), n=1)
            hint = f"Did you mean {close[0]}?" if close else "Create it first, or name another."
            raise UsageError(f"--sync {text}: no such folder in {folder}. {hint}")
        if not stat.S_ISDIR(status.st_mode):
            fix = option_text("--file", path)
            raise UsageError(f"--sync {text}: it is a file, but --sync takes a folder: write {fix}.")
        _check_stays_inside("--sync", text, path, folder)
        ignored = _ignored(os.path.join(folder, path))
        roots[path] = FilesRoot(path, Excludes((*NEVER_SYNCED, *ignored, *asked.excludes)))
    return tuple(
        root for path, root in roots.items() if not any(path != each and is_inside(path, each) for each in roots)
    )


def _split(text: str, folder: str) -> list[str]:
    """Split `text` at commas, unless a file or folder has this name."""
    if "," not in text or os.path.lexists(os.path.join(folder, text)):
        return [text]
    return [part.strip() for part in text.split(",") if part.strip()]


def _folders(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir()]


def _ignored(folder: str) -> tuple[str, ...]:
    """Return the patterns in the ignore file of a folder."""
    path = os.path.join(folder, IGNORE_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except FileNotFoundError:
        return ()
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not text: write one pattern on each line.") from None
    if negated := [line for line in lines if line.startswith("!")]:
        raise UsageError(f"{path}: {negated[0]} is a negated pattern, which is not supported: remove the line.")
    return tuple(line.strip("/") for line in lines if line and not line.startswith("#"))


def _below(folder: str, root: FilesRoot) -> Listing:
    try:
        return list_files(folder, root.path, root.excludes, _MOST)
    except TooManyFilesError:
        raise UsageError(
            f"--sync {root.path}: the folder has more than {_MOST:,} files. Name a smaller one, or leave some out with "
            f"--exclude or a file {IGNORE_FILE} in it."
        ) from None


def _pattern(text: str, folder: str) -> str:
    path = _relative("--fetch", text, folder, whole=True)
    _check_stays_inside("--fetch", text, Glob(path).folder, folder)
    return path


def _relative(option: str, text: str, folder: str, *, whole: bool = False) -> str:
    """Return a normalized path relative to the notebook's folder.

    Raises:
        UsageError: the path is outside the folder; or it is the folder itself without `whole`.
    """
    path = normpath(text)
    if os.path.isabs(text) or text.startswith("~"):
        full = normpath(os.path.expanduser(text))
        if is_inside(full, folder.rstrip("/")) or (whole and full == folder):
            inside = os.path.relpath(full, folder)
            raise UsageError(
                f"{option} {text}: write the path relative to the working folder, as the code does: "
                f"{option_text(option, inside)}."
            )
        raise _outside(option, text, folder)
    if path == ".." or path.startswith("../"):
        raise _outside(option, text, folder)
    if path == "." and not whole:
        raise UsageError(f"{option} {text}: it is a folder, but --file sends files: write --sync .")
    return path


def _outside(option: str, text: str, folder: str) -> UsageError:
    fix = {
        "--file": "copy or link it into the folder",
        "--sync": "copy it into the folder, or work in a folder above it",
        "--fetch": "write it below the working folder",
    }[option]
    return UsageError(f"{option} {text}: it is outside the working folder {folder}, and has no place on a node: {fix}.")


def _check_stays_inside(option: str, text: str, path: str, folder: str) -> None:
    """Refuse a folder that is a link out of the notebook's folder, so that returned files stay inside."""
    real, home = os.path.realpath(os.path.join(folder, path)), os.path.realpath(folder)
    if real != home and not is_inside(real, home.rstrip("/")):
        raise UsageError(
            f"{option} {text}: {path} is a link to {real}, outside the working folder, and nothing is written "
            "there: use a real folder."
        )


def _status(folder: str, path: str) -> os.stat_result | None:
    try:
        return os.stat(os.path.join(folder, path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:  # a name that is too long or contains NUL, or circular links
        raise UsageError(f"{path} cannot be read: {error}.") from None


def sizes(listing: Mapping[str, os.stat_result]) -> str:
    """Format files with their sizes in one line."""
    shown = [f"{path} ({size_text(status.st_size)})" for path, status in list(listing.items())[:5]]
    more = [f"{len(listing) - 5} more"] if len(listing) > 5 else []
    return ", ".join([*shown, *more])
