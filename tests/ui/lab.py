"""A driver of JupyterLab in a browser."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.waiting import wait_for

__all__ = ["OUT", "Lab"]

OUT = Path(__file__).parent / "out"
"""Folder of the screenshots."""

# A condition of the browser: the prompt of a cell is empty until the kernel was asked to run it.
_SENT = "cell => cell.querySelector('.jp-InputPrompt').textContent !== '[ ]:'"


class Lab:
    """A page of JupyterLab with one notebook.

    Attributes:
        page: the page of the browser.
        notebook: the name of its file.
        panel: the side panel.
    """

    def __init__(self, page: Any, address: str, notebook: str) -> None:
        self.page = page
        self._address = address
        self.notebook = notebook
        self.panel = page.locator(".skyward-Panel")

    def open(self) -> None:
        """Open the notebook and the panel."""
        self.page.goto(f"{self._address}/lab/tree/{self.notebook}?reset")
        self.show()

    def show(self) -> None:
        """Show the panel once the notebook is ready."""
        self.until_ready()
        self.toggle()
        self.panel.wait_for()

    def until_ready(self) -> None:
        """Wait until the notebook is loaded and its kernel idle: earlier key presses are lost."""
        self.page.locator(".jp-Notebook .jp-Cell").first.wait_for()
        self.until_idle()

    def until_idle(self) -> None:
        """Wait until the kernel is idle."""
        self.page.locator("#jp-main-statusbar", has_text="| Idle").wait_for()

    @contextmanager
    def second_tab(self) -> Iterator["Lab"]:
        """Open the same notebook in another tab of the browser."""
        page = self.page.context.browser.new_page(viewport=self.page.viewport_size)
        other = Lab(page, self._address, self.notebook)
        try:
            page.goto(f"{self._address}/lab/workspaces/second/tree/{self.notebook}?reset")
            other.show()
            yield other
        finally:
            page.close()

    def open_another(self) -> None:
        """Open another notebook, with a kernel of its own, beside this one."""
        self.command("notebook:create-new", kernelName="python3", activate=True)
        self.page.locator(".lm-DockPanel-tabBar .lm-TabBar-tab.lm-mod-current", has_text="Untitled").wait_for()
        self.until_idle()

    def to_notebook(self) -> None:
        """Go back to the notebook that was opened first."""
        self.page.locator(".lm-DockPanel-tabBar .lm-TabBar-tab").first.click()

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until a condition outside the browser holds."""
        wait_for(condition, what)

    def reload(self) -> None:
        """Reload the page, also while the kernel is busy."""
        self.page.reload()
        self.page.locator(".jp-Notebook .jp-Cell").first.wait_for()
        self.panel.wait_for()

    def run(self, code: str, *, wait: bool = True) -> None:
        """Run a cell.

        A page that has just been loaded may move its cells or the focus, so the text is typed until the cell has it.
        """
        cells = self.page.locator(".jp-Notebook .jp-CodeCell")
        first = code.partition("\n")[0]

        def typed() -> bool:
            cells.last.locator(".cm-content").click()
            self.page.keyboard.press("Control+a")  # an earlier attempt may have typed it late
            self.page.keyboard.insert_text(code)
            return bool(cells.last.locator(".cm-line").first.text_content() == first)

        wait_for(typed, "the last cell to have the text")
        cell = cells.last.element_handle()
        self.page.keyboard.press("Shift+Enter")
        self.page.wait_for_function(_SENT, arg=cell)
        if wait:
            self.until_idle()

    def save(self) -> None:
        """Save the notebook, and wait until that is done."""
        self.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")

    def command(self, name: str, **arguments: Any) -> None:
        """Run a command of JupyterLab without waiting for it."""
        self.page.evaluate("([name, args]) => void window.jupyterapp.commands.execute(name, args)", [name, arguments])

    def restart(self) -> None:
        """Restart the kernel, as from the menu."""
        self.command("kernelmenu:restart")
        self.page.locator(".jp-Dialog .jp-mod-accept").click()

    def toggle(self) -> None:
        """Open or close the panel by a click on its icon."""
        self.page.locator('.jp-SideBar [data-id="skyward-panel"]').click()

    def until_wide(self, pixels: int) -> None:
        """Wait until the panel has a width, to within two pixels."""
        self.panel.wait_for()
        self.page.wait_for_function(
            "wide => Math.abs(document.querySelector('.skyward-Panel').offsetWidth - wide) <= 2", arg=pixels
        )

    def drag_edge(self, pixels: int) -> None:
        """Widen the panel by dragging its edge."""
        box = self.panel.bounding_box()
        assert box is not None, "the panel is not visible"
        edge, middle = box["x"] + box["width"] + 1, box["y"] + 300
        self.page.mouse.move(edge, middle)
        self.page.mouse.down()
        self.page.mouse.move(edge + pixels, middle, steps=4)
        self.page.mouse.up()

    def section(self, name: str) -> Any:
        """Return the locator of a section of the panel."""
        return self.panel.locator(f'[data-section="{name}"]')

    def pool(self, name: str = "default") -> Any:
        """Return the locator of the card of a pool."""
        return self.panel.locator(f'[data-pool="{name}"]')

    def press(self, label: str) -> None:
        """Press the first button with a label."""
        self.panel.get_by_role("button", name=label).first.click()

    def see(self, name: str) -> None:
        """Take a screenshot."""
        OUT.mkdir(exist_ok=True)
        self.page.screenshot(path=OUT / f"{name}.png")
