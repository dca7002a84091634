"""A notebook without a kernel: IPython's shell in this process, with the magics."""

import atexit
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import skyward as sky
from skyward.commands.table.pool_options import POOL_LABELS
from skyward.frontends.calls import open_with
from skyward.frontends.cells import bind_with
from skyward.functions.target import current_pool
from skyward.pool.hooks import observe_with
from skyward_jupyter.magics.sky_magics import SkyMagics
from skyward_kernel.pools import PoolManager

__all__ = ["Notebook", "Ran", "add_magics", "managed_pools", "new_notebook", "new_shell"]


@dataclass
class Ran:
    """The outcome of a cell."""

    out: str
    err: str
    error: BaseException | None
    result: Any = None
    displays: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)

    @property
    def shown_error(self) -> str:
        """The error as IPython shows it."""
        (shown,) = self.shown
        return shown


class Notebook:
    """A plain IPython shell with the magics."""

    def __init__(self, shell: InteractiveShell, magics: SkyMagics) -> None:
        self.shell = shell
        self.magics = magics

    def __call__(self, source: str) -> Ran:
        """Run one cell."""
        displays: list[str] = []
        shown: list[str] = []
        shell: Any = self.shell
        publish, show = self.shell.display_pub.publish, shell._showtraceback
        self.shell.display_pub.publish = lambda data, *_, **__: displays.append(data["text/plain"])  # type: ignore[method-assign]
        shell._showtraceback = lambda _, __, parts: shown.append("\n".join(parts))
        out, err = io.StringIO(), io.StringIO()
        try:
            with redirect_stdout(out), redirect_stderr(err):
                ran = shell.run_cell(source, store_history=True)
        finally:
            self.shell.display_pub.publish = publish  # type: ignore[method-assign]
            shell._showtraceback = show
        error = ran.error_in_exec or ran.error_before_exec
        return Ran(out.getvalue(), err.getvalue(), error, ran.result, displays, shown)

    def __getitem__(self, name: str) -> Any:
        return self.shell.user_ns[name]


def add_magics(shell: InteractiveShell, pools: PoolManager) -> Notebook:
    """Register the magics in a shell, without footers, which their own tests turn on."""
    magics = SkyMagics(shell, pools)
    magics.footer = False
    shell.register_magics(magics)
    return Notebook(shell, magics)


@contextmanager
def new_shell() -> Iterator[InteractiveShell]:
    """Make a fresh shell, which is IPython's singleton within the context."""
    hooks = sys.displayhook, sys.excepthook
    scope = current_pool.set(None)
    main = sys.modules["__main__"]
    InteractiveShell.clear_instance()
    shell: Any = InteractiveShell.instance(colors="nocolor", config=Config(HistoryManager={"enabled": False}))
    atexit.unregister(shell.atexit_operations)
    try:
        yield shell
    finally:
        observe_with(None)  # in case the extension was loaded
        open_with(None)
        bind_with(None)
        shell.atexit_operations()
        InteractiveShell.clear_instance()
        sys.displayhook, sys.excepthook = hooks
        current_pool.reset(scope)
        sys.modules["__main__"] = main


@contextmanager
def new_notebook(pools: PoolManager) -> Iterator[Notebook]:
    """Make a notebook with these pools, in a fresh shell."""
    with new_shell() as shell:
        yield add_magics(shell, pools)


@contextmanager
def managed_pools(**fields: Any) -> Iterator[PoolManager]:
    """Manage the pools of notebooks, whose default fields are these; close all of them at the end."""
    pools = PoolManager(lambda **more: sky.Compute(**{**fields, **more}), POOL_LABELS)
    try:
        yield pools
    finally:
        pools.close_all()
