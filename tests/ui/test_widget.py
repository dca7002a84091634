"""A pool as a widget in a browser, in a real JupyterLab with a real kernel and real nodes."""

import re
from pathlib import Path

import pytest

from tests.ui.lab import Lab

pytestmark = [pytest.mark.ui, pytest.mark.timeout(240)]

REASON = re.compile(r"[0-9] tasks? (waits?|of) ")

LOAD = """import time
import skyward as sky

@sky.function
def work(seconds):
    time.sleep(seconds)
"""
OPEN = "sky.Compute(name='demo', nodes=(1, 4), provider=sky.Local(hourly_price=3.2), budget=5.0).open()"


def test_widget_is_live_below_its_cell_and_becomes_static_when_the_pool_closes(lab: Lab, tmp_path: Path) -> None:
    view = lab.page.locator(".skyward-Widget")
    lab.run(f"{LOAD}\npool = {OPEN}")
    # The cell that shows the widget blocks the kernel, so updates must arrive without being requested.
    wait = f"import os\nwhile not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)"
    lab.run(f"sky.watch(pool)\ndone = sky.gather(*(work(2) for _ in range(24))) >> pool\n{wait}", wait=False)
    view.get_by_text("\N{RIGHTWARDS ARROW} 4").first.wait_for()
    view.get_by_text(REASON).first.wait_for()
    view.locator(".skyward-Node", has_text="busy").first.wait_for()
    view.get_by_text("$12.80/h").wait_for()
    lab.see("widget")
    # Commands are executed while the cell runs.
    most = view.get_by_label("Maximum nodes of pool demo")
    most.fill("3")
    most.press("Enter")
    view.get_by_text("of 1\N{EN DASH}3 nodes").wait_for()
    (tmp_path / "go").touch()
    lab.until_idle()
    view.locator(".skyward-Counts-done", has_text="24").wait_for()

    lab.page.evaluate("window.jupyterapp?.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
    lab.page.locator('body[data-jp-theme-light="false"]').wait_for(state="attached")
    lab.page.locator("#jupyterlab-splash").wait_for(state="detached")
    lab.see("widget-dark")

    lab.run("waiting = work(600) > pool")
    view.locator(".skyward-Counts-running", has_text="1").wait_for()
    view.get_by_role("button", name="Stop").click()
    view.get_by_text("1 unfinished task will be lost.").wait_for()
    lab.see("widget-question")
    view.locator(".skyward-Question").get_by_role("button", name="Stop").click()
    static = lab.page.locator(".skyward-static")
    static.get_by_text("closed").wait_for()
    view.wait_for(state="detached")
    lab.see("widget-static")
    lab.run("import threading\nprint([t.name for t in threading.enumerate() if t.name == 'skyward-panel'], 'left')")
    lab.page.get_by_text("[] left").wait_for()


def test_reloaded_page_shows_the_widget_again(lab: Lab) -> None:
    view = lab.page.locator(".skyward-Widget")
    lab.run(f"{LOAD}\npool = {OPEN}\npool")
    view.get_by_text("1 of 1\N{EN DASH}4 nodes").wait_for()
    lab.save()
    lab.page.locator(".jp-mod-dirty").first.wait_for(state="detached")
    lab.reload()
    lab.until_ready()
    view.get_by_text("1 of 1\N{EN DASH}4 nodes").wait_for()
    lab.run("pool.resize((2, 4))")
    view.get_by_text("2 of 2\N{EN DASH}4 nodes").wait_for()
    lab.run("pool.close()")
    view.locator(".skyward-Pool .skyward-State", has_text="closed").wait_for()
