"""A page that hosts one widget without Jupyter, with the restrictions of VS Code and Colab."""

import queue
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import comm
from comm.base_comm import BaseComm

__all__ = ["POLICY", "Host", "KernelEnd"]

_SCRIPT: Final = Path(__file__).parent / "host.js"
_INSTALLED: Final = Path(sys.prefix) / "share" / "jupyter" / "nbextensions"
_PARTS: Final = {
    "/host.js": _SCRIPT,
    "/ipywidgets.js": _INSTALLED / "jupyter-js-widgets" / "extension.js",
    "/anywidget.js": _INSTALLED / "anywidget" / "index.js",
}
_ORIGIN: Final = "http://host.test"

POLICY: Final = "default-src 'none'; script-src 'self' blob:; style-src 'unsafe-inline'; img-src data:"
"""Content security policy with the minimum for anywidget: modules from blobs, and style elements."""

_PAGE: Final = f"""<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">
<body>{"".join(f'<script src="{path}"></script>' for path in _PARTS)}</body>"""


class KernelEnd(BaseComm):
    """The kernel's end of a widget's comm, whose other end is a page of this process."""

    ends: "list[KernelEnd]" = []  # noqa: RUF012  # all that were made since a test began

    def __init__(self, *args: Any, **fields: Any) -> None:
        self.opened: dict[str, Any] = {}
        self.sent: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        KernelEnd.ends.append(self)
        super().__init__(*args, **fields)

    def publish_msg(self, msg_type: str, data: Any = None, *_: Any, **__: Any) -> None:
        """Queue a message for the page, until the browser's thread delivers it."""
        if msg_type == "comm_open":
            self.opened = data["state"]
        elif msg_type == "comm_msg":
            self.sent.put(data)
        elif msg_type == "comm_close":
            self.sent.put({"method": "close"})


class Host:
    """A page that hosts a widget, and its kernel.

    Attributes:
        page: the page of the browser.
        wanted: URLs that the page has requested beyond its parts.
        troubles: errors that it has logged, including violations of its policy.
        is_busy: whether its kernel runs a cell, and does not process messages.
    """

    def __init__(self, page: Any) -> None:
        self.page = page
        self.wanted: list[str] = []
        self.troubles: list[str] = []
        self.is_busy = False
        self._sent: list[dict[str, Any]] = []
        self._end: KernelEnd | None = None
        page.on("console", lambda message: self.troubles.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.troubles.append(error.stack or str(error)))
        page.route("**/*", self._answer)
        page.expose_function("toKernel", lambda data: self._sent.append(data))
        page.goto(_ORIGIN)

    def _answer(self, route: Any) -> None:
        path = route.request.url.removeprefix(_ORIGIN)
        if path == "/":
            route.fulfill(body=_PAGE, content_type="text/html", headers={"Content-Security-Policy": POLICY})
        elif path in _PARTS:
            route.fulfill(body=_PARTS[path].read_text(), content_type="text/javascript")
        else:
            self.wanted.append(route.request.url)
            route.abort()

    def open(self, widget: Any, *, connected: bool = True) -> None:
        """Make the model of a widget in the page, and show it."""
        (end,) = (each for each in KernelEnd.ends if each.comm_id == widget.model_id)
        (layout,) = (each for each in KernelEnd.ends if each.comm_id == widget.layout.model_id)
        self._end = end
        self.page.evaluate(
            "([id, state, layout, connected]) => host.open(id, state, layout, connected)",
            [widget.model_id, end.opened, layout.opened, connected],
        )
        self.page.evaluate("host.show()")

    def connect(self) -> None:
        """Connect the page to the kernel, if it was opened without."""
        self.page.evaluate("host.connect()")

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Deliver the messages of page and kernel until a condition holds."""
        assert self._end is not None
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, f"waited for {what}, and the page shows {self.page.inner_text('body')}"
            while self._sent and not self.is_busy:
                self._end.handle_msg({"content": {"data": self._sent.pop(0)}, "buffers": []})
            while not self._end.sent.empty():
                self.page.evaluate("data => host.deliver(data)", self._end.sent.get())
            self.page.wait_for_timeout(20)  # lets the page send messages


def connect_comms(monkeypatch: Any) -> None:
    """Connect the widgets of this process to its pages, for the duration of a test."""
    monkeypatch.setattr(comm, "create_comm", KernelEnd)
    monkeypatch.setattr(KernelEnd, "ends", [])
