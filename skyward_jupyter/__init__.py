"""The IPython extension with the magics `%%sky` and `%sky`, loaded with `%load_ext skyward`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load_ipython_extension", "unload_ipython_extension"]

_NAME = "SkyMagics"


def load_ipython_extension(shell: "InteractiveShell") -> None:
    """Add the magics to `shell`. Idempotent."""
    from skyward.frontends.calls import register_with_joblib, watch_with
    from skyward.frontends.commands import POOL_LABELS
    from skyward.frontends.configuration import conflict
    from skyward_jupyter.cells.cell import EmptyBody
    from skyward_jupyter.display.figures import draw_figures
    from skyward_jupyter.magics.completion import completer, register
    from skyward_jupyter.magics.panel import connect
    from skyward_jupyter.magics.sky_magics import SkyMagics
    from skyward_kernel.pools import resident

    if _NAME not in shell.magics_manager.registry:
        pools = resident(POOL_LABELS)
        magics = SkyMagics(shell, pools)
        shell.register_magics(magics)
        shell.input_transformers_cleanup.append(EmptyBody())
        shell.events.register("pre_run_cell", magics.put_in_scope)
        shell.events.register("pre_run_cell", magics.marks.before)
        shell.events.register("post_run_cell", magics.marks.after)
        watch_with(magics.watch)
        pools.observe(magics.opening)
        register_with_joblib()
        draw_figures(shell)
        register(shell, completer(shell, pools, magics.pool_names, magics.cell_numbers))
        magics.bridge = connect(shell, pools)
        if sentence := conflict():
            sys.stderr.write(f"Skyward: {sentence}\n")


def unload_ipython_extension(shell: "InteractiveShell") -> None:
    """Remove the magics from `shell` and close the pools that they have opened. Idempotent."""
    from skyward.frontends.calls import open_with, watch_with
    from skyward.frontends.cells import bind_with
    from skyward_jupyter.cells.cell import EmptyBody
    from skyward_jupyter.display.figures import leave_figures
    from skyward_jupyter.magics.completion import unregister
    from skyward_jupyter.magics.sky_magics import EXPRESSION
    from skyward_kernel.pools import resident

    manager = shell.magics_manager
    magics = manager.registry.pop(_NAME, None)
    if magics is None:
        return
    for transform in [each for each in shell.input_transformers_cleanup if isinstance(each, EmptyBody)]:
        shell.input_transformers_cleanup.remove(transform)
    shell.events.unregister("pre_run_cell", magics.put_in_scope)
    shell.events.unregister("pre_run_cell", magics.marks.before)
    shell.events.unregister("post_run_cell", magics.marks.after)
    magics.tracebacks.remove()
    leave_figures(shell)
    unregister(shell)
    watch_with(None)
    open_with(None)
    bind_with(None)
    if magics.bridge is not None:
        magics.bridge.close()
    for kind in ("line", "cell"):
        for name in ("sky", EXPRESSION):
            manager.magics[kind].pop(name, None)
    if magics in shell.configurables:
        shell.configurables.remove(magics)
    resident().stop_observing()
    resident().close_all()
    magics.put_in_scope()
