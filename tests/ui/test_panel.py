"""The side panel in a browser, against a real JupyterLab with real kernels and real nodes."""

from pathlib import Path

import pytest

from tests.ui.lab import Lab

pytestmark = [pytest.mark.ui, pytest.mark.timeout(240)]


def beats(path: Path) -> str:
    """A cell that runs for ever."""
    body = f"open({str(path)!r}, 'a').write('.')\n    print('beat')\n    time.sleep(0.1)"
    return f"%%sky\nimport time\nwhile True:\n    {body}"


def test_the_panel_appears_and_says_what_to_do(lab: Lab) -> None:
    lab.panel.get_by_text("This kernel has not loaded Skyward.").wait_for()
    lab.see("absent")
    lab.press("Insert %load_ext skyward")
    lab.page.keyboard.press("Shift+Enter")
    lab.panel.get_by_text("No pool yet.").wait_for()
    lab.see("no-pool")
    lab.press("+ New pool")
    lab.panel.get_by_label("name", exact=True).wait_for()
    lab.panel.locator(".skyward-Form-field", has_text="nodes").locator("input").first.fill("1:3")
    lab.panel.locator("code", has_text="%sky up default --nodes 1:3").wait_for()
    lab.see("form")
    lab.press("Open")
    lab.pool().get_by_text("ready").wait_for()
    lab.pool().get_by_text("1 of 1\N{EN DASH}3 nodes").wait_for()
    lab.page.locator(".skyward-Status", has_text="1 node").wait_for()
    lab.see("pool")


def test_it_is_live_while_a_cell_blocks_and_its_commands_work(lab: Lab, tmp_path: Path) -> None:
    lab.run("%load_ext skyward\n%sky up --nodes 1:4")
    lab.pool().get_by_text("ready").wait_for()
    lab.run(beats(tmp_path / "beat"), wait=False)
    task = lab.section("tasks").locator("li", has_text="import time")
    task.get_by_text("node 0").wait_for()
    task.get_by_role("button", name="[2]", exact=True).wait_for()
    lab.section("streams").get_by_text("beat").first.wait_for()
    lab.section("nodes").get_by_text("busy").wait_for()
    lab.see("busy")

    most = lab.panel.get_by_label("Most nodes of pool default")
    least = lab.panel.get_by_label("Fewest nodes of pool default")
    least.fill("2")
    least.press("Enter")
    lab.pool().get_by_text("2 of 2\N{EN DASH}4 nodes").wait_for()
    assert most.input_value() == "4"
    lab.section("decisions").get_by_text("resized to 2 to 4").wait_for()

    lab.panel.get_by_label("Most nodes", exact=True).focus()
    lab.page.keyboard.press("ArrowLeft")
    lab.pool().get_by_text("2 of 2\N{EN DASH}3 nodes").wait_for()
    lab.see("scaled")

    lab.press("Stop all tasks of cell")
    task.get_by_text("stopped").wait_for()
    lab.until_idle()
    assert "TaskCancelledError" in lab.page.locator(".jp-Notebook").inner_text()
    lab.see("cancelled")


def test_a_page_that_is_reloaded_while_a_cell_runs_has_everything_again(lab: Lab, tmp_path: Path) -> None:
    lab.run("%load_ext skyward\n%sky up --nodes 1")
    lab.run(beats(tmp_path / "beat"), wait=False)
    lab.section("tasks").get_by_text("node 0").wait_for()
    lab.reload()
    lab.section("tasks").get_by_text("node 0").wait_for()
    lab.section("streams").get_by_text("beat").first.wait_for()
    lab.see("reloaded")
    lab.press("Stop task")
    lab.section("tasks").get_by_text("stopped").wait_for()


def test_in_the_dark_and_narrow(lab: Lab) -> None:
    lab.run("%load_ext skyward\n%sky up --nodes 2")
    lab.pool().get_by_text("ready").wait_for()
    lab.run("%%sky --on all\nprint('hello')\n1")
    lab.section("streams").get_by_text("hello").first.wait_for()
    lab.page.evaluate("window.jupyterapp?.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
    lab.page.locator('body[data-jp-theme-light="false"]').wait_for(state="attached")
    lab.panel.locator(".skyward-Node").last.click()
    lab.panel.get_by_role("button", name="Drain").wait_for()
    lab.see("dark")
