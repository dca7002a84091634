"""The magics: `%%sky` runs a cell on nodes, `%sky` manages the pools."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from textwrap import dedent
from typing import TYPE_CHECKING, Any, cast

from IPython.core.magic import line_cell_magic, line_magic, magics_class, needs_local_scope, no_var_expand

from skyward.config import load
from skyward.errors import KeptLostError, SkywardError, UsageError
from skyward.formatting import count_text, nodes_text
from skyward.specs import Nodes
from skyward.values.validation import closest
from skyward.views.tables import (
    decision_table,
    kept_table,
    node_table,
    pool_table,
    recovered_table,
    task_table,
)
from skyward_jupyter.display.progress import Progress, meter, opening
from skyward_jupyter.failures.presentation import short_errors
from skyward_jupyter.failures.tracebacks import Tracebacks
from skyward_jupyter.magics.panel import CellMarks
from skyward_jupyter.options.cell_options import parse_cell, parse_words, split_expression
from skyward_jupyter.options.config_table import config_text
from skyward_jupyter.options.option_table import OPTIONS, POOL_OPTIONS, Option, explain
from skyward_jupyter.options.parsers import count
from skyward_jupyter.options.traits import ConfiguredMagics
from skyward_jupyter.options.underline import split_line, underlined
from skyward_jupyter.running.handle import cell_table
from skyward_jupyter.running.run import CellRunner
from skyward_kernel.commands import cancel_cell

if TYPE_CHECKING:
    from concurrent.futures import Future

    from IPython.core.interactiveshell import InteractiveShell

    from skyward.functions.target import Target
    from skyward.kept.handles import Kept
    from skyward.pool.compute import Compute
    from skyward_jupyter.running.handle import CellHandle
    from skyward_kernel.bridge import PanelBridge
    from skyward_kernel.pools import PoolManager

__all__ = ["COMMANDS", "EXPRESSION", "SkyMagics"]

EXPRESSION = "sky!"
"""Name of the magic that runs an expression. It cannot be confused with a subcommand of `%sky`."""

COMMANDS = {
    "up": ("[NAME] [options]", "open a pool and return it"),
    "down": ("[NAME | --all]", "close a pool and terminate its machines"),
    "status": ("[NAME]", "show pools, nodes, and cells in the background"),
    "pools": ("", "show the pools"),
    "decisions": ("[NAME]", "show why a pool was scaled up or down"),
    "scale": ("[NAME] NODES [--wait]", "change how many nodes a pool has: 4, 2:16; with --wait, wait for them"),
    "attach": ("[NAME]", "attach to the pool of a killed or restarted kernel"),
    "reap": ("[NAME ...]", "terminate the machines of killed kernels and scripts"),
    "kept": ("[NAME]", "show the values that nodes keep for later cells; with a name, return its handle"),
    "drop": ("NAME ...", "delete values that nodes keep, by name"),
    "drain": ("[NAME] NODE", "let a node finish its tasks, then terminate it; the pool shrinks by one"),
    "logs": ("[NAME] NODE", "show the startup log of a node, in full if the start failed"),
    "tasks": ("[NAME]", "show the tasks of a pool and the cells that sent them"),
    "cancel": (
        "[CELL | --all | --task N | --cell N]",
        "cancel a background cell by its number in `%sky status`, or tasks by their numbers in `%sky tasks`",
    ),
    "config": ("[NAME]", "show every setting of cells and of a pool, with its value and its source"),
    "show": ("[CELL]", "show the output and progress of a background cell again, and return its handle"),
    "help": ("", "show this help"),
}
"""The subcommands of `%sky`: their arguments, and a description."""

_METHODS = {"config": "config_"}
"""Methods of subcommands whose name is already taken by IPython."""

_ALL = Option(("--all",), "all", "every one")
_TASK = Option(("--task",), "task", "a task", "cell", "N", count, "the number of a task in `%sky tasks`")
_CELL = Option(("--cell",), "cell", "a cell", "cell", "N", count, "the number of a cell, as it stands beside it")
_WAIT = Option(("--wait",), "wait", "return when the nodes are active")
_POOL = next(option for option in OPTIONS if option.target == "pool")
_QUIET = next(option for option in OPTIONS if option.target == "quiet")


@magics_class
class SkyMagics(ConfiguredMagics):
    """The magics. Their traits are configured as `c.SkyMagics.NAME = value`."""

    def __init__(self, shell: "InteractiveShell", pools: "PoolManager") -> None:
        super().__init__(shell)
        self._pools = pools
        self._runner = CellRunner(shell, pools)
        self._in_scope: Target | None = None
        self.bridge: PanelBridge | None = None
        self.marks = CellMarks(shell)
        self.tracebacks = Tracebacks(shell)

    def put_in_scope(self, *_: object) -> None:
        """Make the default pool, while it is open, the target of `>> sky`. Called before each cell."""
        from skyward.functions.target import current_pool

        pool = self._pools.find(self._pool_name)
        if pool is not None or current_pool.get() is self._in_scope:
            current_pool.set(pool)
            self._in_scope = pool

    @line_cell_magic
    def sky(self, line: str, cell: str | None = None) -> Any:
        """Run a cell on the nodes of a pool: `%%sky [options]` on its first line.

        The variables that the cell reads are sent along; those that it assigns are returned to the notebook. Output
        appears as it is printed. `%sky up`, `down`, `status`, `pools`, `decisions`, `scale`, `drain`, `logs`, `tasks`,
        `attach`, `reap` and `cancel` manage the pools; `%sky config` shows all settings and their sources.
        """
        with short_errors():
            return self._command(line) if cell is None else self._cell(line, cell)

    def _cell(self, line: str, cell: str) -> Any:
        settings = self._settings
        with underlined("%%sky", line):
            options = parse_cell(line, settings.of_options)
        if options.help:
            return self.help([])
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
            settings = self._settings
            with underlined("%sky!", options_line):
                options = parse_cell(options_line, settings.of_options)
            if options.help:
                return self.help([])
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
        command, *rest = words
        if command in ("-h", "--help"):
            command = "help"
        if command not in COMMANDS:
            raise _unknown_command(command)
        run: Callable[[Sequence[str]], Any] = getattr(self, _METHODS.get(command, command))
        with underlined("%sky", line):
            return run(rest)

    # The subcommands.

    def up(self, words: Sequence[str]) -> Any:
        """Open a pool and return it."""
        names, given, asked = _words_of_pool(words, "up", (*POOL_OPTIONS, _QUIET))
        settings = self._settings
        name = _at_most_one(names, "up") or settings.pool
        compute = self._runner.open(name, asked, settings, quiet="quiet" in given)
        self.put_in_scope()
        return compute

    def down(self, words: Sequence[str]) -> None:
        """Close one pool, or all."""
        names, given, _ = _words_of_pool(words, "down", (_ALL,))
        name = _at_most_one(names, "down")
        if "all" in given:
            if name is not None:
                raise UsageError(f"%sky down takes a name or --all, but got both: leave {name!r} or --all out.")
            closed = self._pools.close_all()
            _say(f"Closed: {', '.join(closed)}." if closed else "There are no pools.")
            return
        name = name or self.default_pool
        self._pools.close(name)
        _say(f"Pool {name!r} is closed.")

    def status(self, words: Sequence[str]) -> None:
        """Show pools, their nodes, and cells in the background."""
        names, _, _ = _words_of_pool(words, "status")
        name = _at_most_one(names, "status")
        pools = [self._pools.get(each).snapshot() for each in ([name] if name else self._pools.names)]
        if not pools:
            _say("There are no pools. A cell with %%sky opens one.")
            return
        parts = [pool_table(pools)]
        for pool in pools:
            title = f"nodes of {pool.name}:\n" if len(pools) > 1 else ""
            parts.append(title + node_table(pool))
        cells = [handle for handle in self._runner.background if name in (None, handle.pool)]
        if cells:
            parts.append(cell_table(cells))
        _say("\n\n".join(parts))

    def pools(self, words: Sequence[str]) -> None:
        """Show the pools."""
        _none_of(parse_words(words, "pools", ())[0], "pools")
        names = self._pools.names
        if not names:
            _say("There are no pools. A cell with %%sky opens one.")
            return
        _say(pool_table(self._pools.get(name).snapshot() for name in names))

    def decisions(self, words: Sequence[str]) -> None:
        """Show why a pool was scaled up or down."""
        names, _, _ = _words_of_pool(words, "decisions")
        name = _at_most_one(names, "decisions") or self.default_pool
        events = self._pools.get(name).decisions()
        _say(decision_table(events) if events else f"There are no scaling decisions for pool {name!r} yet.")

    def scale(self, words: Sequence[str]) -> None:
        """Change how many nodes a pool has; with `--wait`, return when they are active."""
        found, given, _ = _words_of_pool(words, "scale", (_WAIT, _QUIET))
        match found:
            case [nodes] if "pool" not in given:
                name = self.default_pool
            case [name, nodes]:
                pass
            case _:
                raise UsageError("%sky scale takes the name of a pool and a number of nodes: `%sky scale default 4`.")
        wanted = self._pools.scale(name, Nodes.parse(nodes))
        if "wait" in given:
            count = self._runner.wait_for_nodes(name, wanted, self._settings, quiet="quiet" in given)
            _say(f"Pool {name!r} has {count_text(count)}.")
        else:
            _say(f"Scaling pool {name!r} to {count_text(wanted)}.")

    def attach(self, words: Sequence[str]) -> Any:
        """Attach to the pool of another kernel and return it."""
        names, _, _ = _words_of_pool(words, "attach")
        name = _at_most_one(names, "attach") or self.default_pool
        compute = self._pools.attach(name, opening=self.opening)
        self.put_in_scope()
        _say(f"Attached to pool {name!r}.\n{recovered_table(compute.recovered)}".rstrip())
        return compute

    def reap(self, words: Sequence[str]) -> None:
        """Terminate the orphaned machines of pools whose process is gone."""
        from skyward.pool.reap import describe_orphan, reap

        names, _, _ = _words_of_pool(words, "reap")
        _say("\n".join(describe_orphan(done) for done in reap(names)) or "Nothing is left behind.")

    def kept(self, words: Sequence[str]) -> "Kept[Any] | None":
        """Show the values that nodes keep, or return the handle of one."""
        names, _, _ = parse_words(words, "kept", ())
        if (name := _at_most_one(names, "kept")) is not None:
            return self._kept(name)
        rows = [(pool, view) for pool in self._pools.names for view in self._pools.get(pool).kept()]
        if not rows:
            _say("No node keeps anything. A cell with `%%sky --keep NAMES` has its node keep what it assigns.")
            return None
        _say(kept_table(rows, self._variables()))
        return None

    def drop(self, words: Sequence[str]) -> None:
        """Delete values that nodes keep, by name."""
        names, _, _ = parse_words(words, "drop", ())
        if not names:
            raise UsageError("%sky drop takes the names of kept values: `%sky drop model`; `%sky kept` lists them.")
        for handle in [self._kept(name) for name in names]:
            where = nodes_text(handle.nodes)
            handle.drop()
            _say(f"Dropped {handle.name} from {where}.")

    def _kept(self, name: str) -> "Kept[Any]":
        """Return the handle that a variable of the notebook holds, or else that of the value kept under the name."""
        from skyward.kept.handles import Kept

        value = None if self.shell is None else self.shell.user_ns.get(name)
        if isinstance(value, Kept) and not value.lost:
            return value
        for pool in self._pools.names:
            if any(view.name == name for view in self._pools.get(pool).kept()):
                return self._pools.get(pool).handle(name)
        if isinstance(value, Kept):
            raise KeptLostError(f"{name} is no longer kept: {value.lost}.")
        known = {view.name for pool in self._pools.names for view in self._pools.get(pool).kept()}
        raise UsageError(f"No node keeps anything called {name!r}; {closest(name, known)}")

    def _variables(self) -> dict[str, list[str]]:
        """Return the variables of the notebook that hold handles, by key of the kept value."""
        from skyward.kept.handles import Kept

        found: dict[str, list[str]] = {}
        for name, value in () if self.shell is None else self.shell.user_ns.items():
            if isinstance(value, Kept) and not name.startswith("_"):
                for key in value.keys:
                    found.setdefault(key, []).append(name)
        return found

    def drain(self, words: Sequence[str]) -> None:
        """Let a node finish its tasks, then terminate it."""
        name, node = self._node(words, "drain")
        self._pools.get(name).drain(node)
        _say(f"Draining node {node} of pool {name!r}: it terminates once its tasks are done.")

    def _node(self, words: Sequence[str], command: str) -> tuple[str, int]:
        """Return the pool and the rank that a command names."""
        found, given, _ = _words_of_pool(words, command)
        match found:
            case [node] if node.isdecimal() and "pool" not in given:
                return self.default_pool, int(node)
            case [name, node] if node.isdecimal():
                return name, int(node)
        takes = f"takes the name of a pool and the rank of a node: `%sky {command} default 3`"
        raise UsageError(f"%sky {command} {takes}.")

    def logs(self, words: Sequence[str]) -> None:
        """Show the startup log of a node."""
        name, node = self._node(words, "logs")
        _say(self._pools.get(name).start_log(node) or f"Node {node} of pool {name!r} was never started.")

    def tasks(self, words: Sequence[str]) -> None:
        """Show the tasks of a pool."""
        names, _, _ = _words_of_pool(words, "tasks")
        name = _at_most_one(names, "tasks") or self.default_pool
        found = self._pools.get(name).report().tasks
        _say(task_table(found) if found else f"Pool {name!r} has had no tasks yet.")

    def cancel(self, words: Sequence[str]) -> None:
        """Cancel one background cell or all, one task, or all tasks of a cell."""
        numbers, given, _ = parse_words(words, "cancel", (_ALL, _TASK, _CELL, _POOL))
        if "pool" in given and "task" not in given:
            raise UsageError("--pool names the pool of a task, so it goes with --task N.")
        if len(numbers) + len(given.keys() - {"pool"}) > 1:
            raise UsageError(f"%sky cancel takes one of {COMMANDS['cancel'][0]}.")
        if "task" in given:
            name, task = given.get("pool", self.default_pool), given["task"]
            if not self._pools.get(name).cancel([task]):
                raise UsageError(f"Pool {name!r} has no queued or running task {task}.")
            _say(f"Stopping task {task}.")
            return
        if "cell" in given:
            _say(cancel_cell(self._pools, given["cell"]))
            return
        number = _at_most_one(numbers, "cancel")
        running = [handle for handle in self._runner.background if not handle.done()]
        if not running:
            _say("No cell runs in the background.")
            return
        for handle in running if "all" in given else [_chosen(running, number)]:
            _say(f"Cell {handle.number}: {handle.cancel()}")

    def config_(self, words: Sequence[str]) -> None:
        """Show every setting with its value and its source."""
        names, _, _ = _words_of_pool(words, "config")
        name, config = _at_most_one(names, "config"), load()
        settings = self.sourced
        pools = [name] if name else dict.fromkeys([settings["pool"].value, *self._pools.names, *config.pools])
        _say(config_text(settings, config, pools, {each: self._pools.asked(each) for each in self._pools.names}))

    def show(self, words: Sequence[str]) -> "CellHandle | None":
        """Show a background cell again and return its handle."""
        names, _, _ = parse_words(words, "show", ())
        number = _at_most_one(names, "show")
        if not self._runner.background:
            _say("There are no cells in the background. `%%sky --noblock` starts one.")
            return None
        handle = self._runner.background[-1] if number is None else _chosen(self._runner.background, number)
        if handle.recorder is not None and self.shell is not None:
            handle.recorder.replay(self.shell.display_pub)
        return handle

    def help(self, words: Sequence[str]) -> None:
        """Show subcommands and options."""
        _none_of(parse_words(words, "help", ())[0], "help")
        _say(_help_text())

    def watch(self, futures: "Sequence[Future[Any]]") -> Progress:
        """Return a progress bar for a group that a plain cell waits for: `sky.gather(...) >> pool`.

        See `skyward.pool.progress`.
        """
        started = time.monotonic()

        def text() -> str:
            return meter(sum(future.done() for future in futures), len(futures), time.monotonic() - started)

        settings = self._display_settings
        shown = settings.show_progress and hasattr(self.shell, "kernel")
        return Progress(cast("InteractiveShell", self.shell), text, after=settings.progress_after, enabled=shown)

    def opening(self, pool: "Compute") -> Progress:
        """Return a progress line for a pool that code opens. See `PoolManager.observe`."""
        return opening(cast("InteractiveShell", self.shell), pool, self._display_settings)

    def pool_names(self) -> list[str]:
        """Return the names of the pools of the kernel and of the configuration files."""
        with suppress(SkywardError):
            return list(dict.fromkeys([*self._pools.names, *load().pools]))
        return self._pools.names


def _help_text() -> str:
    width = max(len(f"{name} {takes}") for name, (takes, _) in COMMANDS.items())
    commands = "\n".join(f"  %sky {f'{name} {takes}':{width}}  {what}" for name, (takes, what) in COMMANDS.items())
    cells = explain(option for option in OPTIONS if option.group == "cell")
    return (
        "%%sky [options] on the first line of a cell runs it on the nodes of a pool.\n"
        "%sky! [options] EXPRESSION runs one line there and returns its value.\n\n"
        f"How the cell runs:\n{cells}\n\n"
        f"The pool (applied when it is opened):\n{explain(POOL_OPTIONS)}\n\n"
        f"Commands (NAME may also be given as --pool NAME):\n{commands}"
    )


SkyMagics.sky.__doc__ = f"{dedent(f'        {SkyMagics.sky.__doc__}').strip()}\n\n{_help_text()}"  # for `%%sky?`


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


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


def _words_of_pool(
    words: Sequence[str], command: str, options: Sequence[Option] = ()
) -> tuple[list[str], dict[str, Any], Mapping[str, Any]]:
    """Parse the words of a command that takes a pool's name; the value of `--pool` becomes the first word."""
    names, given, asked = parse_words(words, command, (*options, _POOL))
    return [given["pool"], *names] if "pool" in given else names, given, asked


def _at_most_one(words: Sequence[str], command: str) -> str | None:
    if len(words) > 1:
        raise UsageError(f"%sky {command} takes {COMMANDS[command][0]}, but got {' '.join(words)!r}.")
    return words[0] if words else None


def _none_of(words: Sequence[str], command: str) -> None:
    if words:
        raise UsageError(f"%sky {command} takes no arguments, but got {' '.join(words)!r}.")


def _chosen(running: "Sequence[CellHandle]", number: str | None) -> "CellHandle":
    listed = ", ".join(str(handle.number) for handle in running)
    if number is None:
        if len(running) == 1:
            return running[0]
        raise UsageError(f"Several cells run in the background: name one of {listed}, or --all.")
    for handle in running:
        if str(handle.number) == number:
            return handle
    raise UsageError(f"There is no background cell {number!r}: name one of {listed}.")
