"""`--plot` in a browser: drawn in place, and readable in both themes."""

from pathlib import Path

import pytest

from tests.ui.lab import Lab

pytestmark = [pytest.mark.ui, pytest.mark.timeout(240)]

BACKGROUND = "element => getComputedStyle(element.closest('.jp-Notebook') ?? document.body).backgroundColor"


def brightness(colour: str) -> float:
    """Return the brightness of a computed colour, `rgb(r, g, b)` or `rgba(r, g, b, a)`, from 0 to 255."""
    parts = [float(part) for part in colour.partition("(")[2].rstrip(")").split(",")]
    return sum(parts[:3]) / 3


def test_plot_is_updated_in_place_and_readable_in_both_themes(lab: Lab, tmp_path: Path) -> None:
    go = tmp_path / "go"
    lab.command("apputils:change-theme", theme="JupyterLab Light")  # another test may have set the dark one
    lab.page.locator('body[data-jp-theme-light="true"]').wait_for(state="attached")
    lab.run("%load_ext skyward\npool = %sky up")
    lab.run(
        f"%%sky --plot\nimport os, time\nyield {{'loss': 1.5}}\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
        "for i in range(50):\n    yield {'loss': 1 / (i + 1), 'accuracy': i / 50}",
        wait=False,
    )
    picture = lab.page.locator(".jp-OutputArea-output svg[aria-label*=element]")
    picture.get_by_text("loss 1.5").wait_for()
    go.touch()
    picture.get_by_text("accuracy 0.98").wait_for()
    lab.until_idle()
    assert picture.count() == 1
    lab.see("plot")

    text = picture.get_by_text("element", exact=True)
    ink = "element => getComputedStyle(element).fill"
    assert brightness(text.evaluate(BACKGROUND)) - brightness(text.evaluate(ink)) > 100

    lab.command("apputils:change-theme", theme="JupyterLab Dark")
    lab.page.locator('body[data-jp-theme-light="false"]').wait_for(state="attached")
    lab.page.locator("#jupyterlab-splash").wait_for(state="detached")
    lab.page.wait_for_function(
        "() => getComputedStyle(document.querySelector('svg[aria-label*=element] text')).fill.match(/\\d+/)[0] > 150"
    )
    assert brightness(text.evaluate(ink)) - brightness(text.evaluate(BACKGROUND)) > 100
    lab.see("plot-dark")
    lab.command("apputils:change-theme", theme="JupyterLab Light")
    lab.page.locator('body[data-jp-theme-light="true"]').wait_for(state="attached")
