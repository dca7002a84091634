"""Context in which commands run: the pools of the kernel, and the notebook, if a cell runs the command."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from skyward.errors import UsageError
from skyward_kernel.pools import DEFAULT_POOL, PoolManager

if TYPE_CHECKING:
    from skyward.frontends.configuration import Nodes
    from skyward.frontends.pools import Compute

__all__ = ["BackgroundCell", "Context", "Notebook"]


class BackgroundCell(Protocol):
    """A cell that runs in the background, or has run there."""

    @property
    def number(self) -> int:
        """Its number in `%sky status`."""

    @property
    def pool(self) -> str:
        """Name of its pool."""

    @property
    def code(self) -> str:
        """Its first line."""

    @property
    def status(self) -> str:
        """Its state."""

    @property
    def amount(self) -> str:
        """The number of its elements so far, in words; empty for a cell that does not yield."""

    @property
    def remaining(self) -> str:
        """The effect that its `result()` would have once it has ended, as a phrase; empty once that was called."""

    def done(self) -> bool:
        """Return whether it has finished."""

    def cancel(self) -> str:
        """Stop the work, and return a sentence on the outcome."""


class Notebook(Protocol):
    """The notebook in which a command runs."""

    @property
    def default_pool(self) -> str:
        """Pool of commands that do not name one."""

    @property
    def cells(self) -> Sequence[BackgroundCell]:
        """The cells in the background, oldest first."""

    @property
    def variables(self) -> Mapping[str, Any]:
        """The variables of the notebook."""

    def open(self, name: str | None, asked: Mapping[str, Any], *, quiet: bool) -> "Compute":
        """Return the pool of a name, or the default pool; open it first if necessary, and show the progress."""

    def attach(self, name: str, *, budget: float | None) -> "Compute":
        """Attach to an orphaned pool, show the progress, and return it. `budget`: another one for it, or None."""

    def wait_for_nodes(self, name: str, nodes: "Nodes", group: str | None, *, quiet: bool) -> int:
        """Wait until a pool, or a group of it, has as many nodes as requested, and return their number."""

    def replay(self, number: int) -> None:
        """Show the output and progress of a background cell again."""

    def config(self, name: str | None) -> str:
        """Return every setting of cells, and of a pool or of all, with its value and its source, as text."""

    def help(self) -> str:
        """Return the help: the options of cells and pools, and the commands."""


@dataclass(frozen=True, slots=True)
class Context:
    """Context of a command.

    Attributes:
        pools: the pools of the kernel.
        notebook: the notebook whose cell runs the command; None for the panel and the live view of a pool.
    """

    pools: PoolManager
    notebook: Notebook | None = None

    @property
    def default_pool(self) -> str:
        """Pool of commands that do not name one."""
        return DEFAULT_POOL if self.notebook is None else self.notebook.default_pool

    def shown(self, pool: str | None) -> list[str]:
        """Return the names of the pools that a command shows: that of its argument, or all; the default one if none."""
        return [pool] if pool else self.pools.names or [self.default_pool]

    def only(self, pool: str | None) -> str:
        """Return the pool that a command shows a part of: that of its argument, the default one, or the only one."""
        names = self.pools.names
        return pool or (names[0] if len(names) == 1 else self.default_pool)

    @property
    def cells(self) -> Sequence[BackgroundCell]:
        """The cells in the background, oldest first."""
        return () if self.notebook is None else self.notebook.cells

    @property
    def variables(self) -> Mapping[str, Any]:
        """The variables of the notebook."""
        return {} if self.notebook is None else self.notebook.variables

    def in_notebook(self) -> Notebook:
        """Return the notebook.

        Raises:
            UsageError: the command does not run in a cell.
        """
        if self.notebook is None:
            raise UsageError("This command runs in a cell of a notebook: insert its %sky line there.")
        return self.notebook
