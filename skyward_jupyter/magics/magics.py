"""`%%sky`, which runs a cell on nodes, and `%sky`, which looks after the pools."""

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
from skyward_jupyter.failures.presentation import presented
from skyward_jupyter.failures.tracebacks import Tracebacks
from skyward_jupyter.magics.panel import CellMarks
from skyward_jupyter.options.option_table import OPTIONS, POOL_OPTIONS, Option, explain
from skyward_jupyter.options.options import parse_cell, parse_words, split_expression
from skyward_jupyter.options.reading import count
from skyward_jupyter.options.shown_config import config_text
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
"""The magic that runs an expression. No subcommand of `%sky` can be mistaken for it, or it for one."""

COMMANDS = {
    "up": ("[NAME] [options]", "open a pool, and give it"),
    "down": ("[NAME | --all]", "close a pool, and give its machines back"),
    "status": ("[NAME]", "show pools, nodes, and cells in the background"),
    "pools": ("", "show the pools"),
    "decisions": ("[NAME]", "show why a pool has grown and shrunk"),
    "scale": ("[NAME] NODES [--wait]", "change how many nodes a pool has: 4, 2:16; with --wait, wait for them"),
    "attach": ("[NAME]", "take over a pool that a killed or restarted kernel has left"),
    "reap": ("[NAME ...]", "give back what killed kernels and scripts have left"),
    "kept": ("[NAME]", "show what nodes keep for later cells; with a name, give the handle of that"),
    "drop": ("NAME ...", "have the nodes forget what they keep under a name"),
    "drain": ("[NAME] NODE", "let a node finish its tasks and go; the pool has one less then"),
    "logs": ("[NAME] NODE", "show what a node said while it started, all of it where that failed"),
    "tasks": ("[NAME]", "show the tasks of a pool, and the cells that they come from"),
    "cancel": (
        "[CELL | --all | --task N | --cell N]",
        "stop a cell in the background, by its number in `%sky status`; a task, or all of a cell, by `%sky tasks`",
    ),
    "config": ("[NAME]", "show every setting of cells and of a pool, its value, and where that comes from"),
    "show": ("[CELL]", "show a cell in the background again: what it has put out, and how far it is; gives its handle"),
    "help": ("", "show this"),
}
"""The subcommands of `%sky`: what they take, and what they do."""

_METHODS = {"config": "config_"}
"""Subcommands whose methods are called otherwise: IPython has the name already."""

_ALL = Option(("--all",), "all", "every one")
_TASK = Option(("--task",), "task", "a task", "cell", "N", count, "the number of a task in `%sky tasks`")
_CELL = Option(("--cell",), "cell", "a cell", "cell", "N", count, "the number of a cell, as it stands beside it")
_WAIT = Option(("--wait",), "wait", "return when the nodes are there")
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
        """Make the default pool, while it is open, the one that `>> sky` is for. Called before each cell."""
        from skyward.functions.target import current_pool

        pool = self._pools.find(self._pool_name)
        if pool is not None or current_pool.get() is self._in_scope:
            current_pool.set(pool)
            self._in_scope = pool

    @line_cell_magic
    def sky(self, line: str, cell: str | None = None) -> Any:
        """Run a cell on the nodes of a pool: `%%sky [options]` on its first line.

        The variables that the cell reads go along; those that it assigns come back. Output appears as it is printed.
        `%sky up`, `down`, `status`, `pools`, `decisions`, `scale`, `drain`, `logs`, `tasks`, `attach`, `reap` and
        `cancel` look after the pools; `%sky config` shows what holds for both, and who says so.
        """
        with presented():
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
        """Run one line of Python on a node, and give its value: `%sky! [options] torch.cuda.mem_get_info()`.

        The options are those of `%%sky`, in front of the expression: `%sky! --on all os.uname().nodename` gives a list.
        `x = %sky! f(data)` assigns the value. In a function it has the function's variables.
        """
        assert self.shell is not None
        local = {} if local_ns is self.shell.user_ns else dict(local_ns)
        with presented():
            options_line, code = split_expression(line)
            settings = self._settings
            with underlined("%sky!", options_line):
                options = parse_cell(options_line, settings.of_options)
            if options.help:
                return self.help([])
            if not code:
                raise UsageError("%sky! takes an expression: `%sky! torch.cuda.is_available()`.")
            return self._runner.run(code, options, settings, gives=True, local=local)

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
        """Open a pool; the pool."""
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
        """Show why a pool has grown and shrunk."""
        names, _, _ = _words_of_pool(words, "decisions")
        name = _at_most_one(names, "decisions") or self.default_pool
        events = self._pools.get(name).decisions()
        _say(decision_table(events) if events else f"Nothing was decided about pool {name!r} yet.")

    def scale(self, words: Sequence[str]) -> None:
        """Change how many nodes a pool has; with `--wait`, return when they are there."""
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
            _say(f"Pool {name!r} goes to {count_text(wanted)}.")

    def attach(self, words: Sequence[str]) -> Any:
        """Take over a pool that another kernel has left; the pool."""
        names, _, _ = _words_of_pool(words, "attach")
        name = _at_most_one(names, "attach") or self.default_pool
        compute = self._pools.attach(name, opening=self.opening)
        self.put_in_scope()
        _say(f"Pool {name!r} is this kernel's now.\n{recovered_table(compute.recovered)}".rstrip())
        return compute

    def reap(self, words: Sequence[str]) -> None:
        """Give back what is left of pools whose process is gone."""
        from skyward.pool.reap import reap, told

        names, _, _ = _words_of_pool(words, "reap")
        _say("\n".join(told(done) for done in reap(names)) or "Nothing is left behind.")

    def kept(self, words: Sequence[str]) -> "Kept[Any] | None":
        """Show what nodes keep; or the handle of one of these values."""
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
        """Have the nodes forget what they keep under some names."""
        names, _, _ = parse_words(words, "drop", ())
        if not names:
            raise UsageError("%sky drop takes the names of what nodes keep: `%sky drop model`; `%sky kept` lists them.")
        for handle in [self._kept(name) for name in names]:
            where = nodes_text(handle.nodes)
            handle.drop()
            _say(f"{handle.name} is not kept on {where} any more.")

    def _kept(self, name: str) -> "Kept[Any]":
        """The handle that a name of the notebook stands for, or else of what is kept under a name."""
        from skyward.kept.handles import Kept

        value = None if self.shell is None else self.shell.user_ns.get(name)
        if isinstance(value, Kept) and not value.lost:
            return value
        for pool in self._pools.names:
            if any(view.name == name for view in self._pools.get(pool).kept()):
                return self._pools.get(pool).handle(name)
        if isinstance(value, Kept):
            raise KeptLostError(f"{name} is not kept any more: {value.lost}.")
        known = {view.name for pool in self._pools.names for view in self._pools.get(pool).kept()}
        raise UsageError(f"No node keeps anything called {name!r}; {closest(name, known)}")

    def _variables(self) -> dict[str, list[str]]:
        """By key of what is kept, the names of the notebook that stand for it."""
        from skyward.kept.handles import Kept

        found: dict[str, list[str]] = {}
        for name, value in () if self.shell is None else self.shell.user_ns.items():
            if isinstance(value, Kept) and not name.startswith("_"):
                for entry in value.entries:
                    found.setdefault(entry.key, []).append(name)
        return found

    def drain(self, words: Sequence[str]) -> None:
        """Let a node finish its tasks and go."""
        name, node = self._node(words, "drain")
        self._pools.get(name).drain(node)
        _say(f"Node {node} of pool {name!r} finishes its tasks and goes.")

    def _node(self, words: Sequence[str], command: str) -> tuple[str, int]:
        """The pool and the rank that a command names."""
        found, given, _ = _words_of_pool(words, command)
        match found:
            case [node] if node.isdecimal() and "pool" not in given:
                return self.default_pool, int(node)
            case [name, node] if node.isdecimal():
                return name, int(node)
        takes = f"takes the name of a pool and the rank of a node: `%sky {command} default 3`"
        raise UsageError(f"%sky {command} {takes}.")

    def logs(self, words: Sequence[str]) -> None:
        """Show what a node said while it started."""
        name, node = self._node(words, "logs")
        _say(self._pools.get(name).start_log(node) or f"Node {node} of pool {name!r} was never started.")

    def tasks(self, words: Sequence[str]) -> None:
        """Show the tasks of a pool."""
        names, _, _ = _words_of_pool(words, "tasks")
        name = _at_most_one(names, "tasks") or self.default_pool
        found = self._pools.get(name).report().tasks
        _say(task_table(found) if found else f"Pool {name!r} has had no tasks yet.")

    def cancel(self, words: Sequence[str]) -> None:
        """Stop one cell in the background, or all; or one task, or all of a cell."""
        numbers, given, _ = parse_words(words, "cancel", (_ALL, _TASK, _CELL, _POOL))
        if "pool" in given and "task" not in given:
            raise UsageError("--pool says where a task is, so it goes with --task N.")
        if len(numbers) + len(given.keys() - {"pool"}) > 1:
            raise UsageError(f"%sky cancel takes one of {COMMANDS['cancel'][0]}.")
        if "task" in given:
            name, task = given.get("pool", self.default_pool), given["task"]
            if not self._pools.get(name).cancel([task]):
                raise UsageError(f"Pool {name!r} has no task {task}, or it is over.")
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
        """Show every setting, its value, and where that comes from."""
        names, _, _ = _words_of_pool(words, "config")
        name, config = _at_most_one(names, "config"), load()
        settings = self.sourced
        pools = [name] if name else dict.fromkeys([settings["pool"].value, *self._pools.names, *config.pools])
        _say(config_text(settings, config, pools, {each: self._pools.asked(each) for each in self._pools.names}))

    def show(self, words: Sequence[str]) -> "CellHandle | None":
        """Show a cell in the background again; its handle."""
        names, _, _ = parse_words(words, "show", ())
        number = _at_most_one(names, "show")
        if not self._runner.background:
            _say("There are no cells in the background. `%%sky --noblock` starts one.")
            return None
        handle = self._runner.background[-1] if number is None else _chosen(self._runner.background, number)
        if handle.tape is not None and self.shell is not None:
            handle.tape.replay(self.shell.display_pub)
        return handle

    def help(self, words: Sequence[str]) -> None:
        """Show subcommands and options."""
        _none_of(parse_words(words, "help", ())[0], "help")
        _say(_help_text())

    def watch(self, futures: "Sequence[Future[Any]]") -> Progress:
        """A bar for a group that a plain cell waits for: `sky.gather(...) >> pool`. See `skyward.pool.progress`."""
        started = time.monotonic()

        def text() -> str:
            return meter(sum(future.done() for future in futures), len(futures), time.monotonic() - started)

        settings = self._display_settings
        shown = settings.show_progress and hasattr(self.shell, "kernel")
        return Progress(cast("InteractiveShell", self.shell), text, after=settings.progress_after, enabled=shown)

    def opening(self, pool: "Compute") -> Progress:
        """Progress of a pool that code opens. See `PoolManager.observe`."""
        return opening(cast("InteractiveShell", self.shell), pool, self._display_settings)

    def pool_names(self) -> list[str]:
        """The pools there are, and those that a file describes."""
        with suppress(SkywardError):
            return list(dict.fromkeys([*self._pools.names, *load().pools]))
        return self._pools.names


def _help_text() -> str:
    width = max(len(f"{name} {takes}") for name, (takes, _) in COMMANDS.items())
    commands = "\n".join(f"  %sky {f'{name} {takes}':{width}}  {what}" for name, (takes, what) in COMMANDS.items())
    cells = explain(option for option in OPTIONS if option.group == "cell")
    return (
        "%%sky [options] on the first line of a cell runs it on the nodes of a pool.\n"
        "%sky! [options] EXPRESSION runs one line there, and gives its value.\n\n"
        f"How the cell runs:\n{cells}\n\n"
        f"What the pool is made of (when it is opened):\n{explain(POOL_OPTIONS)}\n\n"
        f"Pools (their NAME may be given as --pool NAME, too):\n{commands}"
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
    """As `parse_words`, for a command that takes the name of a pool: with `--pool NAME`, that is the first word."""
    names, given, asked = parse_words(words, command, (*options, _POOL))
    return [given["pool"], *names] if "pool" in given else names, given, asked


def _at_most_one(words: Sequence[str], command: str) -> str | None:
    if len(words) > 1:
        raise UsageError(f"%sky {command} takes {COMMANDS[command][0]}, but got {' '.join(words)!r}.")
    return words[0] if words else None


def _none_of(words: Sequence[str], command: str) -> None:
    if words:
        raise UsageError(f"%sky {command} takes nothing more, but got {' '.join(words)!r}.")


def _chosen(running: "Sequence[CellHandle]", number: str | None) -> "CellHandle":
    listed = ", ".join(str(handle.number) for handle in running)
    if number is None:
        if len(running) == 1:
            return running[0]
        raise UsageError(f"Several cells run in the background: name one of {listed}, or --all.")
    for handle in running:
        if str(handle.number) == number:
            return handle
    raise UsageError(f"There is no cell {number!r} in the background; there is {listed}.")
