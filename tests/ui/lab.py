"""JupyterLab as someone at the keyboard has it."""

from pathlib import Path
from typing import Any

__all__ = ["OUT", "Lab"]

OUT = Path(__file__).parent / "out"
"""Where pictures go."""


class Lab:
    """A page of JupyterLab with one notebook.

    Attributes:
        page: the page of the browser.
        panel: the side panel.
    """

    def __init__(self, page: Any, address: str, notebook: str) -> None:
        self.page = page
        self._address = address
        self._notebook = notebook
        self.panel = page.locator(".skyward-Panel")

    def open(self) -> None:
        """Open the notebook, and the panel beside it."""
        self.page.goto(f"{self._address}/lab/tree/{self._notebook}?reset")
        self.until_ready()
        self.page.locator('.jp-SideBar [data-id="skyward-panel"]').click()
        self.panel.wait_for()

    def until_ready(self) -> None:
        """Wait until the notebook is there and its kernel idle: keys that are pressed before are lost."""
        self.page.locator(".jp-Notebook .jp-Cell").first.wait_for()
        self.until_idle()

    def until_idle(self) -> None:
        """Wait until the kernel has nothing to do."""
        self.page.locator("#jp-main-statusbar", has_text="| Idle").wait_for()

    def reload(self) -> None:
        """Load the page again, whatever the kernel does."""
        self.page.reload()
        self.page.locator(".jp-Notebook .jp-Cell").first.wait_for()
        self.panel.wait_for()

    def run(self, code: str, *, wait: bool = True) -> None:
        """Run a cell."""
        cell = self.page.locator(".jp-Notebook .jp-CodeCell").last.locator(".cm-content")
        cell.click()
        self.page.keyboard.insert_text(code)
        self.page.keyboard.press("Shift+Enter")
        if wait:
            self.until_idle()

    def section(self, name: str) -> Any:
        """A part of the panel."""
        return self.panel.locator(f'[data-section="{name}"]')

    def pool(self, name: str = "default") -> Any:
        """The card of a pool."""
        return self.panel.locator(f'[data-pool="{name}"]')

    def press(self, label: str) -> None:
        """Press the button with this label; its first, where there are several."""
        self.panel.get_by_role("button", name=label).first.click()

    def see(self, name: str) -> None:
        """Take a picture."""
        OUT.mkdir(exist_ok=True)
        self.page.screenshot(path=OUT / f"{name}.png")
