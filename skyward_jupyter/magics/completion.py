"""TAB completion after `%%sky` and `%sky`."""

import os
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from skyward import accelerators
from skyward.errors import SkywardError
from skyward.frontends.commands import Values, complete_command, complete_options
from skyward.frontends.configuration import POLICIES, provider_names
from skyward_jupyter.options.option_table import OPTIONS
from skyward_kernel.commands.registry import COMMANDS

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from skyward.frontends.pools import Orphan, PoolSnapshot
    from skyward_kernel.pools import PoolManager

__all__ = ["completer", "offered", "register", "unregister", "values"]

_HOOK = "complete_command"
_KEYS = ("%%sky", "%sky", "%sky!")
_VARIABLES = frozenset({"map", "inputs", "outputs", "keep"})
_PATHS = frozenset({"files", "sync", "fetch"})
_START_OF_PATH = re.compile(r".*[\s='\"]")
"""Everything before the path that is being typed."""


def offered(text: str, values: Values) -> list[str]:
    """Return the words that may follow at the cursor; the caller filters them by the word that is being typed.

    Args:
        text: the line up to the cursor. It begins with `%%sky`, `%sky` or `%sky!`, which takes the options of `%%sky`.
        values: lists the values of arguments and options.
    """
    magic, _, rest = text.lstrip().partition(" ")
    if magic != "%sky":
        return complete_options(OPTIONS, rest, values)
    name, space, rest = rest.lstrip().partition(" ")
    if not space:
        return list(COMMANDS)
    return complete_command(COMMANDS[name], rest, values) if name in COMMANDS else []


def values(
    pools: "PoolManager", pool_names: Callable[[], Iterable[str]], variables: Callable[[], Iterable[str]]
) -> Values:
    """Return the functions that list the values of arguments and options.

    Args:
        pools: the pools of the kernel.
        pool_names: returns the names of pools, configured ones included.
        variables: returns the names of the notebook's variables.
    """

    def shown() -> "list[PoolSnapshot]":
        found = [pools.peek(name) for name in pools.names]
        return [pool.snapshot() for pool in found if pool is not None]

    def ranks(rest: str) -> list[str]:
        """Return the ranks of the nodes of the pool that the line names, or of all pools."""
        words = rest.split()
        named = [pool for pool in shown() if pool.name in words]
        return list(dict.fromkeys(f"{node.rank}" for pool in named or shown() for node in pool.nodes))

    return {
        "pool": lambda _: pool_names(),
        "orphan": lambda _: [orphan.name for orphan in _orphans() if orphan.machines],
        "node": ranks,
        "kept": lambda _: [view.name for pool in shown() for node in pool.nodes for view in node.kept],
        "command": lambda _: COMMANDS,
        "provider": lambda _: provider_names(),
        "accelerator": lambda _: accelerators.names(),
        "policy": lambda _: POLICIES,
        **dict.fromkeys(_VARIABLES, lambda _: variables()),
        **dict.fromkeys(_PATHS, lambda rest: _entries(_START_OF_PATH.sub("", rest))),
    }


def _orphans() -> "Iterable[Orphan]":
    from skyward.frontends.pools import orphans  # loads the engine, so it is imported late

    try:
        return orphans()
    except SkywardError:
        return ()  # the command itself says why the journal cannot be read


def _entries(begun: str) -> list[str]:
    """Return the entries of the folder of `begun`, a partial path in the notebook's folder."""
    folder = os.path.dirname(begun)
    try:
        with os.scandir(folder or ".") as entries:
            found = [(os.path.join(folder, entry.name), entry.is_dir()) for entry in entries if entry.name[0] != "."]
    except OSError:
        return []
    return sorted(f"{path}/" if is_folder else path for path, is_folder in found)


def completer(pools: "PoolManager", pool_names: Callable[[], Iterable[str]]) -> Callable[[Any, Any], list[str]]:
    """Return a completer as IPython calls it: with the shell and the line."""

    def complete(shell: "InteractiveShell", event: Any) -> list[str]:
        def variables() -> list[str]:
            hidden = shell.user_ns_hidden
            return [name for name in shell.user_ns if not name.startswith("_") and name not in hidden]

        text: str = event.text_until_cursor
        found = offered(text, values(pools, pool_names, variables))
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
