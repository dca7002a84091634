"""Access of commands to the notebook: see `skyward_kernel.commands.context.Notebook`."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skyward.frontends.commands import POOL_OPTIONS, explain, help_text
from skyward.frontends.configuration import load
from skyward_jupyter.display.progress import opening
from skyward_jupyter.options.config_table import config_text
from skyward_jupyter.options.option_table import CELL_OPTIONS
from skyward_kernel.commands.registry import COMMANDS

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from IPython.core.interactiveshell import InteractiveShell

    from skyward.frontends.configuration import Nodes
    from skyward.frontends.pools import Compute
    from skyward_jupyter.options.traits import ConfiguredMagics
    from skyward_jupyter.running.handle import CellHandle
    from skyward_jupyter.running.run import CellRunner

__all__ = ["NotebookAccess", "help_of_magics"]


class NotebookAccess:
    """The notebook of a shell, as commands use it.

    Args:
        shell: the shell.
        magics: the settings.
        runner: runs the cells of the notebook.
        opened: called when a command has opened a pool.
    """

    def __init__(
        self, shell: "InteractiveShell", magics: "ConfiguredMagics", runner: "CellRunner", opened: Callable[[], object]
    ) -> None:
        self._shell = shell
        self._magics = magics
        self._runner = runner
        self._opened = opened

    @property
    def default_pool(self) -> str:
        """Pool of commands that do not name one."""
        return self._magics.default_pool

    @property
    def cells(self) -> "Sequence[CellHandle]":
        """The cells in the background, oldest first."""
        return self._runner.background

    @property
    def variables(self) -> Mapping[str, Any]:
        """The variables of the notebook."""
        found: Mapping[str, Any] = self._shell.user_ns
        return found

    def open(self, name: str | None, asked: Mapping[str, Any], *, quiet: bool) -> "Compute":
        """Return the pool of a name, or the default pool; open it first if necessary, and show the progress."""
        settings = self._magics.settings
        compute = self._runner.open(name or settings.pool, asked, settings, quiet=quiet)
        self._opened()
        return compute

    def attach(self, name: str, *, budget: float | None) -> "Compute":
        """Attach to an orphaned pool, show the progress, and return it. `budget`: another one for it, or None."""

        def shown(pool: "Compute") -> "AbstractContextManager[None]":
            return opening(self._shell, pool, self._magics.display_settings)

        compute = self._runner.pools.attach(name, budget=budget, opening=shown)
        self._opened()
        return compute

    def wait_for_nodes(self, name: str, nodes: "Nodes", group: str | None, *, quiet: bool) -> int:
        """Wait until a pool, or a group of it, has as many nodes as requested, and return their number."""
        return self._runner.wait_for_nodes(name, nodes, group, self._magics.settings, quiet=quiet)

    def replay(self, number: int) -> None:
        """Show the output and progress of a background cell again."""
        handle = next(each for each in self.cells if each.number == number)
        if handle.recorder is not None:
            handle.recorder.replay(self._shell.display_pub)

    def config(self, name: str | None) -> str:
        """Return every setting of cells, and of a pool or of all, with its value and its source, as text."""
        config, settings, pools = load(), self._magics.sourced, self._runner.pools
        names = [name] if name else dict.fromkeys([settings["pool"].value, *pools.names, *config.pools])
        return config_text(settings, config, names, {each: pools.asked(each) for each in pools.names})

    def help(self) -> str:
        """Return the help: the options of cells and pools, and the commands."""
        return help_of_magics()


def help_of_magics() -> str:
    """Return the help of `%%sky`, `%sky!` and `%sky`."""
    return (
        "%%sky [options] on the first line of a cell runs it on the nodes of a pool.\n"
        "%sky! [options] EXPRESSION runs one line there and returns its value.\n\n"
        f"How the cell runs:\n{explain(CELL_OPTIONS)}\n\n"
        f"The pool (applied when it is opened):\n{explain(POOL_OPTIONS)}\n\n"
        f"Commands (NAME may also be given as --pool NAME):\n{help_text(COMMANDS.values())}"
    )
