"""The magics: `%%sky` runs a cell on nodes, `%sky` manages the pools."""

import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from textwrap import dedent
from typing import TYPE_CHECKING, Any, cast

from IPython.core.magic import line_cell_magic, line_magic, magics_class, needs_local_scope, no_var_expand

from skyward.errors import SkywardError, UsageError
from skyward.frontends.commands import parse, split_line, underlined
from skyward.frontends.configuration import load
from skyward_jupyter.display.progress import Progress, meter, opening
from skyward_jupyter.failures.presentation import short_errors
from skyward_jupyter.failures.tracebacks import Tracebacks
from skyward_jupyter.magics.access import NotebookAccess, help_of_magics
from skyward_jupyter.magics.panel import CellMarks
from skyward_jupyter.options.cell_options import parse_cell, split_expression
from skyward_jupyter.options.option_table import OPTIONS
from skyward_jupyter.options.traits import ConfiguredMagics
from skyward_jupyter.running.run import CellRunner
from skyward_kernel.commands.context import Context
from skyward_kernel.commands.registry import COMMANDS

if TYPE_CHECKING:
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

    from IPython.core.interactiveshell import InteractiveShell

    from skyward.frontends.calls import Target
    from skyward.frontends.pools import Compute
    from skyward_kernel.panel.bridge import PanelBridge
    from skyward_kernel.pools import PoolManager

__all__ = ["EXPRESSION", "SkyMagics"]

EXPRESSION = "sky!"
"""Name of the magic that runs an expression. It cannot be confused with a subcommand of `%sky`."""


@magics_class
class SkyMagics(ConfiguredMagics):
    """The magics. Their traits are configured as `c.SkyMagics.NAME = value`."""

    def __init__(self, shell: "InteractiveShell", pools: "PoolManager") -> None:
        super().__init__(shell)
        self._pools = pools
        self._runner = CellRunner(shell, pools)
        self._context = Context(pools, NotebookAccess(shell, self, self._runner, self.put_in_scope))
        self._in_scope: Target | None = None
        self.bridge: PanelBridge | None = None
        self.marks = CellMarks(shell)
        self.tracebacks = Tracebacks(shell)

    def put_in_scope(self, *_: object) -> None:
        """Make the default pool, while it is open, the target of `>> sky`. Called before each cell."""
        from skyward.frontends.calls import current_pool

        pool = self._pools.find(self._pool_name)
        if pool is not None or current_pool.get() is self._in_scope:
            current_pool.set(pool)
            self._in_scope = pool

    @line_cell_magic
    def sky(self, line: str, cell: str | None = None) -> Any:
        """Run a cell on the nodes of a pool: `%%sky [options]` on its first line.

        The variables that the cell reads are sent along; those that it assigns are returned to the notebook. Output
        appears as it is printed. `%sky up`, `down`, `scale` and the other commands below manage the pools.
        """
        with short_errors():
            return self._command(line) if cell is None else self._cell(line, cell)

    def _cell(self, line: str, cell: str) -> Any:
        settings = self.settings
        with underlined("%%sky", line):
            options = parse_cell(line, settings.of_options)
        if options.help:
            return self._run("help")
        if not _has_code(cell) and not (options.keep or options.files or options.sync or options.fetch):
            return None
        return self._runner.run(cell, options, settings)

    @no_var_expand
    @needs_local_scope
    @line_magic(EXPRESSION)  # type: ignore[arg-type]  # IPython's types do not have the form with a name
    def expression(self, line: str, local_ns: Mapping[str, Any]) -> Any:
        """Run one line of Python on a node and return its value: `%sky! [options] torch.cuda.mem_get_info()`.

        It takes the options of `%%sky`, before the expression: `%sky! --on all os.uname().nodename` returns a list.
        `x = %sky! f(data)` assigns the value. In a function, the expression can read the function's variables.
        """
        assert self.shell is not None
        local = {} if local_ns is self.shell.user_ns else dict(local_ns)
        with short_errors():
            options_line, code = split_expression(line)
            settings = self.settings
            with underlined("%sky!", options_line):
                options = parse_cell(options_line, settings.of_options)
            if options.help:
                return self._run("help")
            if not code:
                raise UsageError("%sky! takes an expression: `%sky! torch.cuda.is_available()`.")
            return self._runner.run(code, options, settings, returns_value=True, local=local)

    def _command(self, line: str) -> Any:
        with underlined("%sky", line):
            words = split_line(line)
        if not words:
            raise UsageError(
                f"%sky takes a subcommand: {', '.join(COMMANDS)}; "
                "to run a cell on nodes, write %%sky on its first line."
            )
        if another := _ANOTHER.search(line):
            raise UsageError(f"A line has one command: write `{another[1].strip()}` on a line of its own.")
        name, *rest = words
        if name in ("-h", "--help"):
            name = "help"
        if name not in COMMANDS:
            raise _unknown_command(name)
        with underlined("%sky", line):
            return self._run(name, rest)

    def _run(self, name: str, words: Sequence[str] = ()) -> Any:
        """Run a command, print its answer, and return the value."""
        command = COMMANDS[name]
        outcome = command.run(self._context, parse(command, words, elsewhere=OPTIONS))
        if outcome.printed:
            sys.stdout.write(f"{outcome.printed}\n")
        return outcome.value

    def watch(self, futures: "Sequence[Future[Any]]") -> Progress:
        """Return a progress bar for a group that a plain cell waits for: `sky.gather(...) >> pool`.

        See `skyward.pool.hooks`.
        """
        started = time.monotonic()

        def text() -> str:
            return meter(sum(future.done() for future in futures), len(futures), time.monotonic() - started)

        settings = self.display_settings
        shown = settings.show_progress and hasattr(self.shell, "kernel")
        return Progress(cast("InteractiveShell", self.shell), text, after=settings.progress_after, enabled=shown)

    def opening(self, pool: "Compute") -> "AbstractContextManager[None]":
        """Return the context that shows the progress of a pool that code opens. See `PoolManager.observe`."""
        return opening(cast("InteractiveShell", self.shell), pool, self.display_settings)

    def pool_names(self) -> list[str]:
        """Return the names of the pools of the kernel and of the configuration files."""
        with suppress(SkywardError):
            return list(dict.fromkeys([*self._pools.names, *load().pools]))
        return self._pools.names

    def cell_numbers(self) -> list[int]:
        """Return the numbers of the background cells, oldest first."""
        return [cell.number for cell in self._runner.background]


SkyMagics.sky.__doc__ = f"{dedent(f'        {SkyMagics.sky.__doc__}').strip()}\n\n{help_of_magics()}"  # for `%%sky?`


_ANOTHER = re.compile(r";\s*(%%?sky\b.*)")


def _has_code(cell: str) -> bool:
    return any(line.strip() and not line.lstrip().startswith("#") for line in cell.splitlines())


def _unknown_command(command: str) -> UsageError:
    if command.startswith("-"):
        return UsageError(
            f"%sky takes a subcommand before {command}: `%sky up {command} ...` opens a pool; "
            "to run a cell on nodes, write %%sky on its first line."
        )
    close = get_close_matches(command, COMMANDS, n=1)
    hint = f"did you mean `%sky {close[0]}`?" if close else f"there are {', '.join(COMMANDS)}."
    return UsageError(f"%sky has no subcommand {command!r}; {hint}")
