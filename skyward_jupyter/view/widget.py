"""Live view of a pool as a widget for JupyterLab, Notebook, VS Code and Colab. Requires anywidget."""

import asyncio
import contextlib
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anywidget
import traitlets

from skyward.frontends.calls import background
from skyward.frontends.views import mime_bundle
from skyward_jupyter.view.live import LiveView
from skyward_kernel.panel.protocol import VIEW_TARGET

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from skyward.frontends.pools import Compute

__all__ = ["PoolWidget", "show"]

_FRONT = Path(__file__).parent / "front"
_VIEW: Final = "application/vnd.jupyter.widget-view+json"

_SHOWN: Final = "the cell that showed it"
"""Placeholder viewer until the cell has ended: only then can the kernel receive "look" of a front end."""

GRACE: Final = 20.0
"""Seconds after the cell until the placeholder leaves. Front ends without widgets never send "look"."""


class PoolWidget(anywidget.AnyWidget):
    """Widget with the live view of a pool. One widget serves all displays of the pool, and ends with it.

    Attributes:
        first: the initial tables of a view.
        key: identifies the widget to the kernel when a view opens a comm of its own.
    """

    _esm = (_FRONT / "pool.js").read_text("utf-8")
    _css = (_FRONT / "pool.css").read_text("utf-8")
    first = traitlets.Dict().tag(sync=True)
    key = traitlets.Unicode().tag(sync=True)

    def __init__(self, pool: "Compute") -> None:
        from skyward.frontends.pools import when_closed  # loads the engine, so it is imported late

        self._pool = pool
        self._live = LiveView(pool, self._send_live)
        self._displays: list[Any] = []
        self._pages: set[str] = set()
        self._waiting: Future[None] | None = None
        self._over = threading.Event()
        super().__init__(first=self._live.state(), key=uuid.uuid4().hex)
        self.on_msg(lambda _, message, __: self.received(message))
        when_closed(pool, self.end)

    @property
    def is_over(self) -> bool:
        """True once the widget has ended."""
        return self._over.is_set()

    def shown(self, display: Any, shell: Any) -> None:
        """Register a display of the widget by the current cell of `shell`."""
        self._displays.append(display)
        self._live.look(_SHOWN)

        def ended(*_: object) -> None:
            shell.events.unregister("post_run_cell", ended)
            if self._waiting is None and not self.is_over:
                self._waiting = background.run(self._wait_for_front_ends())

        shell.events.register("post_run_cell", ended)

    def end(self) -> None:
        """Replace the displays by a static view of the pool's last state, and close. Idempotent."""
        if self._over.is_set():
            return
        self._over.set()
        _widgets.pop(self._pool, None)
        self._live.end()
        if self._waiting is not None:
            self._waiting.cancel()
        last = mime_bundle(self._pool.report())
        for display in self._displays:
            with contextlib.suppress(Exception):  # a kernel that shuts down may have closed its channels
                display.update(last, raw=True)
        if len(self._pages) > 1:
            # A page that was loaded after the cell ran cannot tell which output to replace: the widget stays open.
            self.first = self._live.state()
            self.send({"kind": "snapshot", "tables": self.first})
        else:
            self._close()

    def close(self) -> None:
        """End the widget; ipywidgets calls this method."""
        self.end()
        self._close()

    def _close(self) -> None:
        self.layout.close()  # a widget of its own, which ipywidgets does not close
        super().close()

    async def _wait_for_front_ends(self) -> None:
        await asyncio.sleep(GRACE)
        self._waiting = None
        await asyncio.to_thread(self._live.leave, _SHOWN)

    def received(self, message: object) -> None:
        """Handle a message of a view. It may run beside a cell, and must return quickly."""
        match message:
            case {"kind": "look", "page": str(page)} if not self.is_over:
                if len(self._pages) < 2:
                    self._pages.add(page)
                self._live.received(message)
                self._live.leave(_SHOWN)
            case _:
                self._live.received(message)

    def _send_live(self, message: dict[str, Any]) -> None:
        if not self._over.is_set():
            self.send(message)


_widgets: "dict[Compute, PoolWidget]" = {}


def show(pool: "Compute", shell: Any) -> None:
    """Display a pool below the current cell of `shell`, with a static form for viewers without widgets."""
    from IPython.display import display

    shell.kernel.comm_manager.register_target(VIEW_TARGET, _opened)
    widget = _widgets.get(pool)
    if widget is None:
        widget = _widgets[pool] = PoolWidget(pool)
    view = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    shown = display({**mime_bundle(pool.report()), _VIEW: view}, raw=True, display_id=True)  # type: ignore[no-untyped-call]  # as IPython has it
    widget.shown(shown, shell)


def _opened(comm: Any, message: "Mapping[str, Any]") -> None:
    """Connect the comm of a view to its widget. Nothing is sent on it: see `skyward_kernel.panel.bridge`."""
    data = message["content"].get("data")
    key = data.get("view") if isinstance(data, dict) else None
    widget = next((each for each in list(_widgets.values()) if each.key == key), None)
    if widget is None:
        comm.close()
    else:
        comm.on_msg(lambda received: widget.received(received["content"].get("data")))
