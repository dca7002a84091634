"""TAB completion after `%%sky` and `%sky`."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from skyward import accelerators
from skyward.providers.protocol import provider_names
from skyward.scaling.registry import POLICIES
from skyward_jupyter.options.option_table import OPTIONS, POOL_OPTIONS, Option

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["completer", "offered", "register", "unregister"]

_HOOK = "complete_command"
_KEYS = ("%%sky", "%sky", "%sky!")
_LAST_OPTION = re.compile(r"(?:^|\s)(-[-\w]+)[=\s]\s*['\"]?[^\s'\"]*$")
_VARIABLES = frozenset({"map", "inputs", "outputs"})
_PATHS = frozenset({"files", "sync", "fetch"})
_START_OF_PATH = re.compile(r".*[\s='\"]")
"""Everything before the path that is being typed."""

_OF_POOLS = frozenset(
    {"up", "down", "status", "decisions", "scale", "attach", "reap", "drain", "logs", "tasks", "config"}
)
"""Subcommands that take the name of a pool."""

_POOL = next(option for option in OPTIONS if option.target == "pool")


def offered(
    text: str, commands: Iterable[str], pools: Callable[[], Iterable[str]], variables: Callable[[], Iterable[str]]
) -> list[str]:
    """Return the words that may follow at the cursor; the caller filters them by the word that is being typed.

    Args:
        text: the line up to the cursor. It begins with `%%sky`, `%sky` or `%sky!`, which takes the options of `%%sky`.
        commands: the subcommands of `%sky`.
        pools: returns the names of pools.
        variables: returns the names of the notebook's variables.
    """
    magic, _, rest = text.lstrip().partition(" ")
    words = rest.split()
    finished = words if rest.endswith(" ") else words[:-1]
    options: tuple[Option, ...] = OPTIONS
    if magic == "%sky":
        if not finished:
            return list(commands)
        own = POOL_OPTIONS if finished[0] == "up" else ()
        options = (_POOL, *own) if finished[0] in _OF_POOLS else own
    found = _LAST_OPTION.search(rest)
    option = next((each for each in options if found is not None and found[1] in each.flags), None)
    if option is not None and option.target in _PATHS:
        return _entries(_START_OF_PATH.sub("", rest))
    if option is not None and option.metavar:
        return _values(option, pools, variables)
    given = set(finished)
    unused = [each for each in options if each.merge is not None or not given.intersection(each.flags)]
    names = pools() if magic == "%sky" and finished[0] in _OF_POOLS and len(finished) == 1 else ()
    return [*names, *(flag for each in unused for flag in each.flags if flag.startswith("--"))]


def _values(option: Option, pools: Callable[[], Iterable[str]], variables: Callable[[], Iterable[str]]) -> list[str]:
    listed: Mapping[str, Callable[[], Iterable[str]]] = {
        "pool": pools,
        "provider": provider_names,
        "accelerator": accelerators.names,
        "policy": lambda: POLICIES,
        **dict.fromkeys(_VARIABLES, variables),
    }
    return list(listed[option.target]() if option.target in listed else option.choices)


def _entries(begun: str) -> list[str]:
    """Return the entries of the folder of `begun`, a partial path in the notebook's folder."""
    folder = os.path.dirname(begun)
    try:
        with os.scandir(folder or ".") as entries:
            found = [(os.path.join(folder, entry.name), entry.is_dir()) for entry in entries if entry.name[0] != "."]
    except OSError:
        return []
    return sorted(f"{path}/" if is_folder else path for path, is_folder in found)


def completer(commands: Iterable[str], pools: Callable[[], Iterable[str]]) -> Callable[[Any, Any], list[str]]:
    """Return a completer as IPython calls it: with the shell and the line."""

    def complete(shell: "InteractiveShell", event: Any) -> list[str]:
        def variables() -> list[str]:
            hidden = shell.user_ns_hidden
            return [name for name in shell.user_ns if not name.startswith("_") and name not in hidden]

        text: str = event.text_until_cursor
        found = offered(text, commands, pools, variables)
        return [word for word in found if word.startswith(event.symbol)]

    return complete


def register(shell: "InteractiveShell", complete: Callable[[Any, Any], list[str]]) -> None:
    """Register `complete` for TAB after the magics."""
    for key in _KEYS:
        shell.set_hook(_HOOK, complete, str_key=key)  # type: ignore[no-untyped-call]  # IPython's


def unregister(shell: "InteractiveShell") -> None:
    """Unregister the completer. Idempotent."""
    for key in _KEYS:
        shell.strdispatchers[_HOOK].strs.pop(key, None)
