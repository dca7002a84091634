"""Environment variables that an image may not set, because the worker depends on them."""

import codecs
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from skyward.errors import SpecError

__all__ = ["check_values", "check_variables"]

_OURS: Final = re.compile(r"SKYWARD_.*|COMPUTE_POOL")


def _absolute_paths(value: str) -> bool:
    return all(part.startswith("/") for part in value.split(":"))


def _encoding(value: str) -> bool:
    encoding, _, errors = value.partition(":")
    try:
        return not encoding or bool(codecs.lookup(encoding) and codecs.lookup_error(errors or "strict"))
    except (LookupError, ValueError):
        return False


def _number(least: int, most: int, *words: str) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        return value in words or (value.isascii() and value.isdigit() and least <= int(value[:12]) <= most)

    return check


_PATHS = "must be absolute paths with ':' between them"
_BREAKING: Final[Mapping[str, tuple[Callable[[str], bool], str]]] = {
    "PATH": (_absolute_paths, _PATHS),
    "PYTHONPATH": (_absolute_paths, _PATHS),
    "PYTHONIOENCODING": (_encoding, "must be an encoding, such as 'utf-8'"),
    "PYTHONUTF8": (_number(0, 1, ""), "must be 0 or 1"),
    "PYTHONHASHSEED": (_number(0, 2**32 - 1, "", "random"), "must be 'random' or a number below 2**32"),
}
"""Variables that the node's interpreter reads when it starts, each with a check of its values and their rule."""

_NEVER: Final = {
    "PYTHONHOME": "choose the interpreter with Image(python=...)",
    "PYTHONPLATLIBDIR": "choose the interpreter with Image(python=...)",
    "PYTHONEXECUTABLE": "choose the interpreter with Image(python=...)",
}
"""Variables that keep an interpreter from finding its own library, each with the alternative."""


def check_variables(env: Mapping[str, str], computed: Iterable[str]) -> None:
    """Check that a worker can start with the variables `env`, and that `env` and `computed` set no reserved ones.

    Variables that affect only tasks, such as LD_PRELOAD, are not checked.

    Raises:
        SpecError: a variable is not allowed. The message has its name and not its value, which may be a secret.
    """
    for field, names in (("env", env), ("shell_vars", computed)):
        for name in names:
            if _OURS.fullmatch(name):
                raise SpecError(f"{field} must not set {name}, which is reserved for Skyward: use another name.")
            if name in _NEVER:
                raise SpecError(f"{field} must not set {name}, which keeps workers from starting: {_NEVER[name]}.")
    check_values("env", env)


def check_values(field: str, values: Mapping[str, str]) -> None:
    """Check that a worker can start with the variables that a field of an image sets.

    Raises:
        SpecError: it cannot. The message has the variable's name and not its value, which may be a secret.
    """
    for name, value in values.items():
        fits, rule = _BREAKING.get(name, (None, ""))
        if fits is not None and not fits(value):
            raise SpecError(f"{field} sets {name} to a value that keeps workers from starting: it {rule}.")
