"""Notebook 7 as someone at the keyboard has it: JupyterLab's parts in another frame."""

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
        troubles: errors of ours that the page has told of. Notebook 7.6 has some of its own as it starts.
    """

    def __init__(self, page: Any, address: str, notebook: str) -> None:
        super().__init__(page, address, notebook)
        self.troubles: list[str] = []
        page.on("console", lambda told: self._note(f"{told.text} {told.location}") if told.type == "error" else None)
        page.on("pageerror", lambda error: self._note(error.stack or str(error)))

    def _note(self, trouble: str) -> None:
        """The widget's module is a blob, which anywidget loads."""
        if any(ours in trouble for ours in ("skyward", "blob:", "anywidget")):
            self.troubles.append(trouble)

    def open(self) -> None:
        """Open the notebook."""
        self.page.goto(f"{self._address}/notebooks/{self.notebook}")
        self.until_ready()

    def show(self) -> None:
        """Show the panel, from the menu: there is no bar at the side."""
        self.page.locator(".lm-MenuBar-item", has_text="View").click()
        for item in ("Left Sidebar", "Show Skyward"):
            self.page.locator(".lm-Menu-item", has_text=item).click()
        self.panel.wait_for()

    def until_idle(self) -> None:
        """Wait until the kernel has nothing to do: there is no status bar that says so."""
        self.page.wait_for_function(_IDLE)

    def reload(self) -> None:
        """Load the page again."""
        self.page.reload()
        self.until_ready()
