"""Support of the magics for the JupyterLab side panel: the form of a new pool, and the origin of tasks."""

import contextlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from skyward.config import load
from skyward.control.observe.origin import Origin, current_origin
from skyward.errors import SpecError, UsageError
from skyward.providers.protocol import provider_names
from skyward_jupyter.options.cell_options import parse_words
from skyward_jupyter.options.option_table import POOL_OPTIONS
from skyward_kernel.bridge import PanelBridge, PoolForm
from skyward_kernel.protocol import FormField

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from skyward.pool.reap import Orphan
    from skyward_kernel.pools import PoolManager

__all__ = ["CellMarks", "connect", "fields", "open_pool", "read_options"]

_LONGEST = 80


def connect(shell: "InteractiveShell", pools: "PoolManager") -> PanelBridge | None:
    """Return a bridge between the pools and the panels that watch this kernel; None in a terminal."""
    kernel: Any = getattr(shell, "kernel", None)
    if getattr(kernel, "comm_manager", None) is None:
        return None
    form = PoolForm(fields(), read_options, lambda name, options: open_pool(pools, name, options))
    return PanelBridge(kernel, pools, form, _orphans)


def fields() -> tuple[FormField, ...]:
    """Return the fields of the form of a new pool: the options of `%sky up`."""
    configured: tuple[str, ...] = ()
    with contextlib.suppress(SpecError):  # an invalid file is reported where it is used
        configured = load().providers
    choices = {"--provider": tuple(dict.fromkeys((*configured, *provider_names())))}
    return tuple(
        FormField(each.name, each.metavar, each.help, choices.get(each.name, each.choices), each.takes)
        for each in POOL_OPTIONS
    )


def _orphans() -> "Iterable[Orphan]":
    from skyward.pool.reap import orphans  # loads the engine, so it is imported late

    return orphans()


def read_options(options: Mapping[str, str]) -> Mapping[str, Any]:
    """Parse options of `%sky up` into values by the dotted path of a field of `Compute`.

    Raises:
        UsageError: an option is unknown or has a wrong value.
    """
    words = [word for flag, text in options.items() if text.strip() for word in (flag, text.strip())]
    return parse_words(words, "up", POOL_OPTIONS)[2]


def open_pool(pools: "PoolManager", name: str, options: Mapping[str, str]) -> None:
    """Open a pool as `%sky up NAME` does with these options.

    Raises:
        UsageError: an option is unknown or has a wrong value, or the pool already exists.
        ProvisioningError: its machines could not be provisioned.
    """
    if not name.strip() or name.startswith("-"):
        raise UsageError("A pool needs a name.")
    asked = read_options(options)
    if name in pools.names:
        raise UsageError(f"There is a pool {name!r} already: choose another name.")
    pools.get_or_open(name, asked)


class CellMarks:
    """Tracker of the current cell, which is recorded as the origin of the tasks that it sends.

    IPython counts a cell before or after it runs, depending on its version. The final number of a finished cell tells
    which; the first one is the cell of `%load_ext`.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._counted: int = shell.execution_count
        self._ahead = 0

    def before(self, info: Any) -> None:
        """Set the origin to the cell that begins. Called in its context."""
        self._counted = self._shell.execution_count
        lines = (line.strip() for line in (getattr(info, "raw_cell", None) or "").splitlines())
        code = next((line for line in lines if line and not line.startswith("%%")), "")
        cell = getattr(info, "cell_id", None) or ""
        current_origin.set(Origin(self._counted - self._ahead, cell, code[:_LONGEST]))

    def after(self, result: Any) -> None:
        """Compare the number of the finished cell with the predicted one."""
        if number := getattr(result, "execution_count", None):
            self._ahead = self._counted - number
