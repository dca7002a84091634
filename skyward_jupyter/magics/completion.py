"""TAB completion after `%%sky` and `%sky`."""

import os
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, completion_matcher

from skyward import accelerators
from skyward.errors import SkywardError
from skyward.frontends.commands import Values, complete_command, complete_options
from skyward.frontends.configuration import POLICIES, plugin_names, provider_names
from skyward_jupyter.options.option_table import OPTIONS
from skyward_kernel.commands.registry import COMMANDS

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from skyward import TaskView
    from skyward.frontends.pools import Orphan, PoolSnapshot
    from skyward_kernel.pools import PoolManager

__all__ = ["completer", "offered", "register", "unregister", "values"]

_LINE = re.compile(r"\s*(?:[\w\s.,*()\[\]]+=\s*)?(%sky(?:!|\s).*)", re.DOTALL)
_CELL_LINE = re.compile(r"\s*(%%sky\s.*)", re.DOTALL)
"""Lines up to the cursor, whose group is completed: `%sky down t`, `model = %sky kept m`; `%%sky --n` in line 0."""

_BEFORE_OTHERS = 1000.0
"""Priority of the completions: those of IPython and Jedi are not added to them."""

_OPTION_CELL = re.compile(r"--cell[=\s]\s*\S*$")
_MATCHER = "skyward"
_PLACES = next(option.choices for option in OPTIONS if option.target == "on")
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
    pools: "PoolManager",
    pool_names: Callable[[], Iterable[str]],
    variables: Callable[[], Iterable[str]],
    cells: Callable[[], Iterable[int]] = tuple,
) -> Values:
    """Return the functions that list the values of arguments and options.

    Args:
        pools: the pools of the kernel.
        pool_names: returns the names of pools, configured ones included.
        variables: returns the names of the notebook's variables.
        cells: returns the numbers of the background cells.
    """

    def shown() -> "list[PoolSnapshot]":
        found = [pools.peek(name) for name in pools.names]
        return [pool.snapshot() for pool in found if pool is not None]

    def named(rest: str) -> "list[PoolSnapshot]":
        """Return the pool that the line names, or all pools."""
        words, found = rest.replace("=", " ").split(), shown()
        return [pool for pool in found if pool.name in words] or found

    def ranks(rest: str) -> list[str]:
        return _unique(node.rank for pool in named(rest) for node in pool.nodes)

    def groups(rest: str) -> list[str]:
        """Return the groups of the pools that have several."""
        open_pools = (pools.peek(pool.name) for pool in named(rest))
        return _unique(name for pool in open_pools if pool is not None and len(pool.groups) > 1 for name in pool.groups)

    def places(rest: str) -> list[str]:
        return _unique((*_PLACES, *ranks(rest), *groups(rest)))

    def unfinished(rest: str) -> "list[TaskView]":
        found = (pools.peek(pool.name) for pool in named(rest))
        return [task for pool in found if pool is not None for task in pool.report().tasks if task.ended_at is None]

    def numbers(rest: str) -> list[str]:
        """Return the numbers of the background cells, or of the cells whose tasks have not ended for `--cell`."""
        if _OPTION_CELL.search(rest):
            return _unique(task.origin.number for task in unfinished(rest) if task.origin is not None)
        return _unique(cells())

    return {
        "pool": lambda _: pool_names(),
        "orphan": lambda _: [orphan.name for orphan in _orphans() if orphan.machines],
        "node": ranks,
        "on": places,
        "group": groups,
        "cell": numbers,
        "task": lambda rest: _unique(task.number for task in unfinished(rest)),
        "kept": lambda _: [view.name for pool in shown() for node in pool.nodes for view in node.kept],
        "command": lambda _: COMMANDS,
        "provider": lambda _: provider_names(),
        "accelerator": lambda _: accelerators.names(),
        "policy": lambda _: POLICIES,
        "plugins": lambda _: plugin_names(),
        **dict.fromkeys(_VARIABLES, lambda _: variables()),
        **dict.fromkeys(_PATHS, lambda rest: _entries(_START_OF_PATH.sub("", rest))),
    }


def _unique(words: Iterable[object]) -> list[str]:
    return list(dict.fromkeys(map(str, words)))


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


def completer(
    shell: "InteractiveShell",
    pools: "PoolManager",
    pool_names: Callable[[], Iterable[str]],
    cells: Callable[[], Iterable[int]],
) -> Callable[[CompletionContext], SimpleMatcherResult]:
    """Return a matcher of IPython's completer."""

    def variables() -> list[str]:
        hidden = shell.user_ns_hidden
        return [name for name in shell.user_ns if not name.startswith("_") and name not in hidden]

    def complete(context: CompletionContext) -> SimpleMatcherResult:
        text = context.text_until_cursor
        line = (None if context.cursor_line else _CELL_LINE.fullmatch(text)) or _LINE.fullmatch(text)
        found = [] if line is None else offered(line[1], values(pools, pool_names, variables, cells))
        words = [SimpleCompletion(word) for word in _unique(found) if word.startswith(context.token)]
        return {"completions": words, "suppress": True, "ordered": True}

    matcher: Callable[[CompletionContext], SimpleMatcherResult] = completion_matcher(
        identifier=_MATCHER, priority=_BEFORE_OTHERS, api_version=2
    )(complete)
    return matcher


def register(shell: "InteractiveShell", complete: Callable[[CompletionContext], SimpleMatcherResult]) -> None:
    """Register `complete` for TAB after the magics."""
    shell.Completer.custom_matchers.append(complete)


def unregister(shell: "InteractiveShell") -> None:
    """Unregister the completer. Idempotent."""
    matchers = shell.Completer.custom_matchers
    matchers[:] = [each for each in matchers if getattr(each, "matcher_identifier", "") != _MATCHER]
