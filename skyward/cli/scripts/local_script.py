"""A script on this computer: its place, and the local modules that it imports."""

import ast
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from skyward.errors import SpecError
from skyward.wire.payloads.sources import ModuleSource, imported_names, source_bundle

__all__ = ["LocalScript"]


@dataclass(frozen=True, slots=True)
class LocalScript:
    """A script, with what it imports from this computer.

    Attributes:
        path: its path, as it was given.
        folder: the working folder here.
        beside: the files of modules below the script's folder, relative to the working folder.
        modules: sources of other local modules, by their paths below an entry of `sys.path`.
    """

    path: str
    folder: str
    beside: tuple[str, ...] = ()
    modules: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def at(cls, path: str) -> "LocalScript":
        """Return the script at a path. Nothing is imported or run.

        Raises:
            SpecError: there is no such script, it is no file, or it cannot be read.
        """
        folder = os.getcwd()
        if Path(path).is_dir():
            raise SpecError(f"{path} is a folder: give a file, such as the script in it.")
        is_device = os.path.abspath(path).startswith(("/dev/", "/proc/"))  # such as standard input, which is another
        if is_device or (Path(path).exists() and not Path(path).is_file()):
            raise SpecError(f"{path} is no file: give a file, since the script is read anew where it runs.")
        try:
            source = Path(path).read_bytes()
        except FileNotFoundError:
            raise SpecError(f"There is no script {path} in {folder}.") from None
        except OSError as error:
            raise SpecError(f"{path} cannot be read: {error.strerror}.") from None
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):  # Python says so where the script runs
            return cls(path, folder)
        home = str(Path(path).resolve().parent)
        with _importing_from(home):
            found = source_bundle(imported_names(tree))
        beside = [each for each in found.values() if each.filename and _entry(each) == home]
        inside = [name for each in beside if (name := _below(each.filename, folder)) is not None]
        others = {_path(each): each.source for each in found.values() if each.filename and each not in beside}
        outside = {_path(each): each.source for each in beside if _below(each.filename, folder) is None}
        return cls(path, folder, tuple(inside), {**others, **outside})

    @property
    def relative(self) -> str:
        """Its path relative to the working folder.

        Raises:
            SpecError: it is outside of that folder, so that a node would not find it.
        """
        found = _below(os.path.abspath(self.path), self.folder)
        if found is None:
            above = os.path.commonpath([os.path.abspath(self.path), self.folder])
            raise SpecError(
                f"{self.path} is outside of {self.folder}, whose files are sent to the node: run the command in a "
                f"folder above the script, such as {above}."
            )
        return found


@contextmanager
def _importing_from(folder: str) -> Iterator[None]:
    """Find modules as Python would for a script in a folder: there first."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _entry(module: ModuleSource) -> str:
    """Return the entry of `sys.path` that a module was found in."""
    return os.path.realpath(os.path.abspath(module.filename)).removesuffix(f"{os.sep}{_path(module)}")


def _path(module: ModuleSource) -> str:
    """Return the path of a module below its entry of `sys.path`."""
    parts = module.name.split(".")
    return "/".join([*parts, "__init__.py"]) if module.is_package else f"{'/'.join(parts)}.py"


def _below(path: str, folder: str) -> str | None:
    relative = os.path.relpath(os.path.realpath(path), os.path.realpath(folder))
    return None if relative == ".." or relative.startswith(f"..{os.sep}") else relative
