"""A driver of Notebook 7 in a browser."""

from typing import Any

from tests.ui.lab import Lab

__all__ = ["Notebook7"]

_IDLE = """() => {
    const context = window.jupyterapp?.shell?.currentWidget?.sessionContext;
    const kernel = context?.isReady && context.session?.kernel;
    return kernel && kernel.connectionStatus === 'connected' && kernel.status === 'idle';
}"""


class Notebook7(Lab):
    """A page of Notebook 7 with one notebook.

    Attributes:
        troubles: errors of our code that the page has logged. Notebook 7.6 logs errors of its own as it starts.
    """

    def __init__(self, page: Any, address: str, notebook: str) -> None:
        super().__init__(page, address, notebook)
        self.troubles: list[str] = []
        page.on(
            "console", lambda logged: self._note(f"{logged.text} {logged.location}") if logged.type == "error" else None
        )
        page.on("pageerror", lambda error: self._note(error.stack or str(error)))

    def _note(self, trouble: str) -> None:
        """Record an error if it is of our code; the widget's module is a blob."""
        if any(ours in trouble for ours in ("skyward", "blob:", "anywidget")):
            self.troubles.append(trouble)

    def open(self) -> None:
        """Open the notebook."""
        self.page.goto(f"{self._address}/notebooks/{self.notebook}")
        self.until_ready()

    def show(self) -> None:
        """Show the panel from the menu: there is no side bar."""
        self.page.locator(".lm-MenuBar-item", has_text="View").click()
        for item in ("Left Sidebar", "Show Skyward"):
            self.page.locator(".lm-Menu-item", has_text=item).click()
        self.panel.wait_for()

    def until_idle(self) -> None:
        """Wait until the kernel is idle: there is no status bar that shows it."""
        self.page.wait_for_function(_IDLE)

    def reload(self) -> None:
        """Reload the page."""
        self.page.reload()
        self.until_ready()
