"""Suggested fixes for a module that a node lacks, based on its origin on this machine.

A package is suggested without reservation only if it is known to provide the module: a malicious package of the same
name might be installed otherwise.
"""

import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path

from skyward.bootstrap.names import normalised, requirement_name
from skyward.errors import MissingModuleError
from skyward.wire.payloads.modules import is_local_file
from skyward.worker.tasks.missing_modules import KNOWN_PACKAGES, pip_name

__all__ = ["with_fix"]


def with_fix(error: BaseException) -> BaseException:
    """Return `error`, or, if a node lacks a module, a copy whose message includes the fix."""
    if not isinstance(error, MissingModuleError) or not error.name:
        return error
    advised = MissingModuleError(f"{error}; {_fix(error.name, error.packages or ())}", name=error.name)
    advised.packages = error.packages
    advised.__cause__ = error.__cause__
    return advised


def _fix(module: str, present: Iterable[str]) -> str:
    top = module.partition(".")[0]
    own = _own_file(top)
    if own is not None:
        path = _shown(own)
        return (
            f"it is your own, {path}: import it at the top of the script or notebook, so that it travels with the "
            f"function, or send it with `--include {shlex.quote(path)}` on the cell, or Image(includes=[{path!r}]) in "
            "code"
        )
    installed = _distributions(module, top)
    package = installed[0] if len(set(installed)) == 1 else pip_name(module)
    if given := next((each for each in present if requirement_name(each) == normalised(package)), ""):
        return (
            f"Image.pip has {given!r}, which is installed on the node and does not provide this module: check the "
            "module's name"
        )
    if installed or module in KNOWN_PACKAGES or top in KNOWN_PACKAGES:
        return f"add it with `--pip {package}` on the cell, or Image(pip=[{package!r}]) in code"
    return (
        f"it is not installed on this machine either, so check the name first; if you mean the package {package!r}, "
        f"add it with `--pip {package}` on the cell, or Image(pip=[{package!r}]) in code"
    )


def _distributions(module: str, top: str) -> Sequence[str]:
    """Return the installed distributions that provide a module. Searches all only if the likely one does not."""
    try:
        if find_spec(top) is None:
            return []
    except (ImportError, ValueError):  # loaded without a `__spec__`
        pass
    try:
        likely = distribution(pip_name(module))
    except (PackageNotFoundError, ValueError):
        return packages_distributions().get(top, [])
    return [likely.name] if _provides(likely, top) else packages_distributions().get(top, [])


def _provides(found: Distribution, top: str) -> bool:
    """Return whether a distribution has a module or a package of this name."""
    listed = (found.read_text("top_level.txt") or "").split()
    return top in listed or any(file.parts[0] in (top, f"{top}.py") for file in found.files or ())


def _own_file(name: str) -> Path | None:
    """Return the user's own file or folder of a module: next to the script or notebook, or on the import path."""
    loaded = getattr(sys.modules.get(name), "__file__", None)
    if isinstance(loaded, str) and is_local_file(loaded):
        return _without_init(Path(loaded))
    for folder in dict.fromkeys([os.getcwd(), *_script_folder(), *sys.path]):
        for path in (Path(folder, f"{name}.py"), Path(folder, name, "__init__.py")):
            if is_local_file(str(path)):
                return _without_init(path)
        if any(is_local_file(str(path)) for path in Path(folder, name).glob("*.py")):
            return Path(folder, name)
    return None


def _script_folder() -> list[str]:
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return [os.path.dirname(os.path.abspath(file))] if isinstance(file, str) else []


def _without_init(path: Path) -> Path:
    return path.parent if path.name == "__init__.py" else path


def _shown(path: Path) -> str:
    """Return a path for `includes`: relative if it is inside the working directory."""
    here, full = Path.cwd(), Path(os.path.abspath(path))
    return f"./{full.relative_to(here)}" if full.is_relative_to(here) else str(full)
