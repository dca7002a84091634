"""What `--file`, `--sync` and `--fetch` mean in the notebook's folder. Nothing is sent before all of it is right."""

import difflib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from posixpath import normpath

from skyward.errors import TooLargeError, UsageError
from skyward.files.disk import Listing, TooManyFilesError, below, matching
from skyward.files.patterns import NEVER_SYNCED, Excludes, Glob, is_inside, is_pattern
from skyward.files.request import Root
from skyward.formatting import option_text, size_text

__all__ = ["FILE_LIMIT", "IGNORE_FILE", "Asked", "Choice", "choose", "sizes"]

FILE_LIMIT = 1 << 30
"""Bytes of files that a cell may take along, and bring home, unless the user raises it."""

IGNORE_FILE = ".skyignore"
"""Says in a folder what `--sync` leaves out of it: a pattern a line."""

_MOST = 100_000
"""Files of a folder that can be synced."""

_LOOKED_AT = 5_000
"""Files among which a similar name is looked for."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What stands on the line of a cell about files.

    Attributes:
        files: of `--file`.
        sync: of `--sync`.
        fetch: of `--fetch`.
        excludes: of `--exclude`.
        limit: of `--file-limit`.
    """

    files: tuple[str, ...] = ()
    sync: tuple[str, ...] = ()
    fetch: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """What goes along and comes home. Paths are relative to the notebook's folder.

    Attributes:
        folder: the notebook's folder.
        files: the files of `--file`, but those that are synced.
        roots: the folders of `--sync`.
        synced: the files of these.
        fetch: the patterns of `--fetch`.
        matching: the files here that they match.
        limit: bytes that may go along, and that may come home.
    """

    folder: str
    files: Listing = field(default_factory=dict)
    roots: tuple[Root, ...] = ()
    synced: Listing = field(default_factory=dict)
    fetch: tuple[str, ...] = ()
    matching: Listing = field(default_factory=dict)
    limit: int = FILE_LIMIT

    @property
    def sent(self) -> Listing:
        """All that goes along, sorted by path."""
        return dict(sorted({**self.synced, **self.files}.items()))

    @property
    def nbytes(self) -> int:
        """Bytes of all that goes along."""
        return sum(status.st_size for status in self.sent.values())


def choose(asked: Asked, folder: str) -> Choice:
    """What is asked for, in the notebook's folder.

    Raises:
        UsageError: a file is not there, or is no file, or is outside of the folder.
        TooLargeError: it is more than the limit.
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
    choice = Choice(folder, own, roots, synced, fetch, here, asked.limit or FILE_LIMIT)
    _check_size(choice)
    return choice


def _check_size(choice: Choice) -> None:
    if choice.nbytes > choice.limit:
        largest, status = max(choice.sent.items(), key=lambda each: each[1].st_size)
        raise TooLargeError(
            f"the files of the cell are {size_text(choice.nbytes)}, which is over the limit of "
            f"{size_text(choice.limit)}; the largest is {largest} ({size_text(status.st_size)}). Leave it out, or "
            "raise the limit with --file-limit."
        )


def _files(text: str, folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """The files that one `--file` names: one, those of a pattern, or several with commas between them."""
    path = _relative("--file", text, folder)
    if (status := _status(folder, path)) is not None:
        if stat.S_ISDIR(status.st_mode):
            fix = option_text("--sync", path)
            raise UsageError(f"--file {text}: it is a folder, and --file sends files: write {fix}.")
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"--file {text}: it is neither a file nor a folder, so it cannot be sent.")
        if not os.access(os.path.join(folder, path), os.R_OK):
            raise UsageError(f"--file {text}: it cannot be read; check its permissions.")
        yield path, status
    elif is_pattern(path) and (found := _matches(folder, path)):
        yield from found.items()
    elif len(parts := _parted(text, folder)) > 1:
        for part in parts:
            yield from _files(part, folder)
    else:
        what = "no file matches it" if is_pattern(path) else "there is no such file"
        raise UsageError(f"--file {text}: {what} in {folder}. {_hint(path, folder)}")


def _matches(folder: str, pattern: str) -> Listing:
    """The files that match a pattern as a shell has it: a folder that matches is none of them."""
    glob, depth = Glob(pattern), pattern.count("/")
    found = matching(folder, glob)
    return {path: status for path, status in found.items() if "**" in pattern or path.count("/") == depth}


def _hint(path: str, folder: str) -> str:
    """What was meant instead of a path that does not exist."""
    try:
        known: Sequence[str] = list(below(folder, ".", Excludes(), _LOOKED_AT))
    except (OSError, TooManyFilesError):
        known = [entry for entry in os.listdir(folder) if not entry.startswith(".")]
    above, name = os.path.split(path)
    elsewhere = [each for each in known if os.path.basename(each) == name]
    beside = [each for each in known if os.path.dirname(each) == above]
    alike = [*difflib.get_close_matches(path, beside), *difflib.get_close_matches(path, known)]
    close = list(dict.fromkeys([*elsewhere, *alike]))[:2]
    if not close:
        return "Paths are taken from the notebook's folder; %cd changes it."
    return f"Did you mean {' or '.join(close)}?"


def _roots(asked: Asked, folder: str) -> tuple[Root, ...]:
    """The folders of `--sync`; one that is inside another is part of it."""
    roots: dict[str, Root] = {}
    for text in chain.from_iterable(_parted(given, folder) for given in asked.sync):
        path = _relative("--sync", text, folder, whole=True)
        status = _status(folder, path)
        if status is None:
            close = difflib.get_close_matches(path, _folders(folder), n=1)
            hint = f"Did you mean {close[0]}?" if close else "Make it first, or name another."
            raise UsageError(f"--sync {text}: there is no such folder in {folder}. {hint}")
        if not stat.S_ISDIR(status.st_mode):
            fix = option_text("--file", path)
            raise UsageError(f"--sync {text}: it is a file, and --sync takes a folder: write {fix}.")
        _check_stays_inside("--sync", text, path, folder)
        ignored = _ignored(os.path.join(folder, path))
        roots[path] = Root(path, Excludes((*NEVER_SYNCED, *ignored, *asked.excludes)))
    return tuple(
        root for path, root in roots.items() if not any(path != each and is_inside(path, each) for each in roots)
    )


def _parted(text: str, folder: str) -> list[str]:
    """The names in `text`, with commas between them, unless it is the name of something itself."""
    if "," not in text or os.path.lexists(os.path.join(folder, text)):
        return [text]
    return [part.strip() for part in text.split(",") if part.strip()]


def _folders(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir()]


def _ignored(folder: str) -> tuple[str, ...]:
    """The patterns of the ignore file of a folder."""
    path = os.path.join(folder, IGNORE_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except FileNotFoundError:
        return ()
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not text: write one pattern on each line.") from None
    if negated := [line for line in lines if line.startswith("!")]:
        raise UsageError(f"{path}: {negated[0]} would take something in again, which cannot be: leave the line out.")
    return tuple(line.strip("/") for line in lines if line and not line.startswith("#"))


def _below(folder: str, root: Root) -> Listing:
    try:
        return below(folder, root.path, root.excludes, _MOST)
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
    """A path from the notebook's folder, in its shortest form.

    Raises:
        UsageError: it leads out of it; or it is the folder itself, and not `whole`.
    """
    path = normpath(text)
    if os.path.isabs(text) or text.startswith("~"):
        full = normpath(os.path.expanduser(text))
        if is_inside(full, folder.rstrip("/")) or (whole and full == folder):
            inside = os.path.relpath(full, folder)
            raise UsageError(
                f"{option} {text}: write the path from the notebook's folder, as the cell does on the node: "
                f"{option_text(option, inside)}."
            )
        raise _outside(option, text, folder)
    if path == ".." or path.startswith("../"):
        raise _outside(option, text, folder)
    if path == "." and not whole:
        raise UsageError(f"{option} {text}: it is a folder, and --file sends files: write --sync .")
    return path


def _outside(option: str, text: str, folder: str) -> UsageError:
    fix = {
        "--file": "copy or link it into the folder",
        "--sync": "copy it into the folder, or change to a folder above it with %cd",
        "--fetch": "have the cell write below its working folder",
    }[option]
    return UsageError(
        f"{option} {text}: it is outside of the notebook's folder {folder}, and has no place in the folder of a cell: "
        f"{fix}."
    )


def _check_stays_inside(option: str, text: str, path: str, folder: str) -> None:
    """Refuse a folder that is a link to somewhere else: what comes home stays in the notebook's folder."""
    real, home = os.path.realpath(os.path.join(folder, path)), os.path.realpath(folder)
    if real != home and not is_inside(real, home.rstrip("/")):
        raise UsageError(
            f"{option} {text}: {path} is a link to {real}, outside of the notebook's folder, and nothing is written "
            "there: use a folder of its own."
        )


def _status(folder: str, path: str) -> os.stat_result | None:
    try:
        return os.stat(os.path.join(folder, path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:  # a name that is too long, NUL in it, a circle of links
        raise UsageError(f"{path} cannot be looked at: {error}.") from None


def sizes(listing: Mapping[str, os.stat_result]) -> str:
    """Files with their sizes, as one line."""
    shown = [f"{path} ({size_text(status.st_size)})" for path, status in list(listing.items())[:5]]
    more = [f"{len(listing) - 5} more"] if len(listing) > 5 else []
    return ", ".join([*shown, *more])
