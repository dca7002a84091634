"""The caches of frameworks: the variables that move them into Skyward's directory on a machine.

    python -m skyward.caches.frameworks FOLDER

prints shell text that sets the variables, for the set-up steps of plugins. Only what is certainly a cache is moved.
`XDG_CACHE_HOME` is not, since other programs have rules of their own for what is there; nor `NLTK_DATA`, a search path
of corpora that people also place by hand.
"""

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CONTAINERS", "cache_variables", "main"]


@dataclass(frozen=True, slots=True)
class FrameworkCache:
    """The cache of one framework.

    Attributes:
        variable: variable with its folder.
        folder: name of the folder.
        containers: folders in it whose entries are used, and removed, one by one; any other folder is so as a whole.
        unless_set: variables that decide on the folder, too.
        unless_exists: file below the home with settings of the user, which the framework would not find any more.
    """

    variable: str
    folder: str
    containers: tuple[str, ...] = ()
    unless_set: tuple[str, ...] = ()
    unless_exists: str = ""


_FRAMEWORKS = (
    FrameworkCache("HF_HOME", "huggingface", ("hub", "datasets"), unless_set=("XDG_CACHE_HOME",)),
    FrameworkCache("TORCH_HOME", "torch", ("hub", "hub/checkpoints"), unless_set=("XDG_CACHE_HOME",)),
    FrameworkCache("KERAS_HOME", "keras", ("models", "datasets"), unless_exists=".keras/keras.json"),
    FrameworkCache("SCIKIT_LEARN_DATA", "scikit-learn"),
)

CONTAINERS = ("", *(str(Path(each.folder, inner)) for each in _FRAMEWORKS for inner in ("", *each.containers)))
"""Folders of the cache whose entries are removed one by one, relative to it."""

_HUB_LOGIN, _HUB_LOGIN_VARIABLE = ".cache/huggingface/token", "HF_TOKEN_PATH"
"""The file with the login of the Hugging Face Hub, which is below `HF_HOME` unless a variable names it."""


def cache_variables(folder: Path, environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return the variables that move caches of frameworks into a folder, without those that are set already.

    A login at the Hugging Face Hub stays in the home, and is still found.
    """
    found = {
        each.variable: str(folder / each.folder)
        for each in _FRAMEWORKS
        if not any(name in environ for name in (each.variable, *each.unless_set))
        if not (each.unless_exists and (home / each.unless_exists).exists())
    }
    if "HF_HOME" in found and _HUB_LOGIN_VARIABLE not in environ and (home / _HUB_LOGIN).exists():
        found[_HUB_LOGIN_VARIABLE] = str(home / _HUB_LOGIN)
    return found


def _exports(folder: Path) -> Iterator[str]:
    for name, value in cache_variables(folder, os.environ, Path(os.path.expanduser("~"))).items():
        yield f"export {name}={shlex.quote(value)}\n"


def main(folder: str) -> None:
    """Print the variables as shell text."""
    sys.stdout.writelines(_exports(Path(folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])
