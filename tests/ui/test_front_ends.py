"""The widget outside of JupyterLab: in a real Notebook 7, and in a minimal host of widgets."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward_jupyter.view.widget import PoolWidget
from tests.ui.host import Host, connect_comms
from tests.ui.lab import OUT
from tests.ui.notebook7 import Notebook7

pytestmark = [pytest.mark.ui, pytest.mark.timeout(240)]

MAXIMUM = re.compile(r"^Maximum nodes of pool")
REASON = re.compile(r"[0-9] tasks? (waits?|of) ")
"""The label of the number input, beside a slider."""

CELL = """%%sky
import os, time
print("begun")
while not os.path.exists({go!r}): time.sleep(0.01)
print("over")"""


def outputs(path: Path) -> list[dict[str, Any]]:
    """Return the displays of a saved notebook's cells, by MIME type; empty while the file is being written."""
    try:
        cells = json.loads(path.read_text())["cells"]
    except json.JSONDecodeError:
        return []
    return [each["data"] for cell in cells for each in cell.get("outputs", ()) if "data" in each]


def test_widget_and_panel_work_in_notebook_7(notebook7: Notebook7, server: tuple[str, Path], tmp_path: Path) -> None:
    page, view = notebook7.page, notebook7.page.locator(".skyward-Widget")
    saved = server[1] / notebook7.notebook
    notebook7.run("%load_ext skyward\npool = %sky up --nodes 1:4\npool")
    view.get_by_text("1 of 1\N{EN DASH}4 nodes").wait_for()
    notebook7.run(CELL.format(go=str(tmp_path / "go")), wait=False)
    page.locator(".jp-OutputArea-output", has_text="begun").wait_for()
    view.locator(".skyward-Node", has_text="busy").wait_for()
    most = view.get_by_label(MAXIMUM)
    most.fill("3")
    most.press("Enter")
    # The command is executed although the kernel is busy.
    view.get_by_text("1 of 1\N{EN DASH}3 nodes").wait_for()
    (tmp_path / "go").touch()
    page.locator(".jp-OutputArea-output", has_text="over").wait_for()
    page.get_by_text("node 0, local").wait_for()
    view.locator(".skyward-Counts-done", has_text="1").wait_for()

    notebook7.show()
    notebook7.pool().get_by_text("1 of 1\N{EN DASH}3 nodes").wait_for()
    notebook7.section("streams").get_by_text("over").wait_for()
    notebook7.see("notebook7")
    notebook7.save()
    notebook7.until(lambda: outputs(saved), "the saved notebook")
    forms = [set(each) for each in outputs(saved)]
    assert any({"text/html", "text/plain"} < each for each in forms), "viewers without widgets get a static form"

    view.get_by_role("button", name="Stop").click()
    static = page.locator(".skyward-static", has_text="closed")
    static.wait_for()
    notebook7.save()
    notebook7.until(lambda: "closed" in str(outputs(saved)), "the saved notebook with the static form")
    notebook7.reload()
    static.wait_for()
    assert view.count() == 0
    notebook7.see("notebook7-static")
    assert notebook7.troubles == []


@sky.function
def work(seconds: float) -> None:
    time.sleep(seconds)


@pytest.fixture
def host(browser: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    connect_comms(monkeypatch)
    page = browser.new_page(viewport={"width": 900, "height": 500})
    page.set_default_timeout(60_000)
    yield Host(page)
    page.close()


def colours(view: Any) -> tuple[str, str]:
    """Return the background and text colours of the view."""
    found = view.evaluate("view => [getComputedStyle(view).backgroundColor, getComputedStyle(view).color]")
    return found[0], found[1]


def test_widget_works_in_a_minimal_host(host: Host) -> None:
    view = host.page.locator(".skyward-Widget")
    with sky.Compute(name="demo", nodes=(1, 4), provider=sky.Local(hourly_price=3.2)) as pool:
        widget = PoolWidget(pool)
        host.open(widget)
        view.get_by_text("1 of 1\N{EN DASH}4 nodes").wait_for()
        most = view.get_by_label(MAXIMUM)
        most.fill("3")
        most.press("Enter")
        host.until(view.get_by_text("1 of 1\N{EN DASH}3 nodes").count, "the answer of the kernel")
        done = [work(0.2) > pool for _ in range(9)]
        host.until(view.get_by_text(REASON).count, "the decision")
        host.until(view.locator(".skyward-Counts-done", has_text="9").count, "the end of the tasks")
        assert all(each.result() is None for each in done)

        assert colours(view) == ("rgb(255, 255, 255)", "rgb(33, 33, 33)")
        host.page.emulate_media(color_scheme="dark")
        assert colours(view) == ("rgb(30, 30, 30)", "rgb(224, 224, 224)")
        host.page.evaluate("document.body.style.setProperty('--vscode-editor-background', '#123456')")
        assert colours(view)[0] == "rgb(18, 52, 86)"
        OUT.mkdir(exist_ok=True)
        host.page.screenshot(path=OUT / "widget-elsewhere.png")
    host.until(lambda: view.count() == 0, "the end of the view")
    assert host.troubles == []
    assert host.wanted == []


def test_widget_connects_when_the_kernel_becomes_available_later(host: Host) -> None:
    view = host.page.locator(".skyward-Widget")
    with sky.Compute(name="demo", nodes=(1, 4), provider=sky.Local()) as pool:
        host.open(PoolWidget(pool), connected=False)
        view.get_by_text("1 of 1\N{EN DASH}4 nodes").wait_for()
        pool.resize((1, 2))
        view.get_by_role("button", name="Stop").click()
        view.get_by_text("This view is not connected to a kernel.").wait_for()
        host.connect()
        host.until(view.get_by_text("1 of 1\N{EN DASH}2 nodes").count, "the current state of the pool")

        host.is_busy = True
        most = view.get_by_label(MAXIMUM)
        most.fill("3")
        most.press("Enter")
        view.get_by_text("Scaling to 1 to 3 nodes. Waiting for the running cell").wait_for()
        host.is_busy = False
        host.until(view.get_by_text("Scaling pool 'demo' to 1:3 nodes.").count, "the delayed command")
    assert host.troubles == []
