"""What the side panel of JupyterLab needs of the magics: the form of a new pool, and which cell runs."""

import contextlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from skyward.config import load
from skyward.control.observe.origin import Origin, current_origin
from skyward.errors import SpecError, UsageError
from skyward.providers.protocol import provider_names
from skyward_jupyter.options.option_table import POOL_OPTIONS
from skyward_jupyter.options.options import parse_words
from skyward_kernel.bridge import PanelBridge, PoolForm
from skyward_kernel.protocol import FormField

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from skyward.pool.reap import Orphan
    from skyward_kernel.pools import PoolManager

__all__ = ["CellMarks", "connect", "fields", "open_pool", "read_options"]

_LONGEST = 80


def connect(shell: "InteractiveShell", pools: "PoolManager") -> PanelBridge | None:
    """The bridge from the pools to the panels that watch this kernel; None in a terminal."""
    kernel: Any = getattr(shell, "kernel", None)
    if getattr(kernel, "comm_manager", None) is None:
        return None
    form = PoolForm(fields(), read_options, lambda name, options: open_pool(pools, name, options))
    return PanelBridge(kernel, pools, form, _orphans)


def fields() -> tuple[FormField, ...]:
    """The fields of a new pool: the options of `%sky up`."""
    configured: tuple[str, ...] = ()
    with contextlib.suppress(SpecError):  # a file is wrong: that is said where it is used
        configured = load().providers
    choices = {"--provider": tuple(dict.fromkeys((*configured, *provider_names())))}
    return tuple(
        FormField(each.name, each.metavar, each.help, choices.get(each.name, each.choices), each.takes)
        for each in POOL_OPTIONS
    )


def _orphans() -> "Iterable[Orphan]":
    from skyward.pool.reap import orphans  # with it comes the engine, which is loaded when it is needed

    return orphans()


def read_options(options: Mapping[str, str]) -> Mapping[str, Any]:
    """What the options of `%sky up` ask of a pool: dotted paths of fields of `Compute` to values.

    Raises:
        UsageError: an option is unknown or has a wrong value.
    """
    words = [word for flag, text in options.items() if text.strip() for word in (flag, text.strip())]
    return parse_words(words, "up", POOL_OPTIONS)[2]


def open_pool(pools: "PoolManager", name: str, options: Mapping[str, str]) -> None:
    """Open a pool as `%sky up NAME` does with these options.

    Raises:
        UsageError: an option is unknown or has a wrong value, or the pool is there already.
        ProvisioningError: it cannot have its machines.
    """
    if not name.strip() or name.startswith("-"):
        raise UsageError("A pool needs a name.")
    asked = read_options(options)
    if name in pools.names:
        raise UsageError(f"There is a pool {name!r} already: choose another name.")
    pools.get_or_open(name, asked)


class CellMarks:
    """Has what a cell sends say that it came from it.

    IPython counts a cell before it runs, or after, as its version goes. Which of the two shows in the number that a
    cell has in the end, that of `%load_ext` first of all.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._counted: int = shell.execution_count
        self._ahead = 0

    def before(self, info: Any) -> None:
        """A cell begins. Called in its context."""
        self._counted = self._shell.execution_count
        lines = (line.strip() for line in (getattr(info, "raw_cell", None) or "").splitlines())
        code = next((line for line in lines if line and not line.startswith("%%")), "")
        cell = getattr(info, "cell_id", None) or ""
        current_origin.set(Origin(self._counted - self._ahead, cell, code[:_LONGEST]))

    def after(self, result: Any) -> None:
        """A cell is over."""
        if number := getattr(result, "execution_count", None):
            self._ahead = self._counted - number
