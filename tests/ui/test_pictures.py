"""The pictures of the documentation: made here, from a fixed scenario on local nodes, in light and dark.

SKYWARD_PICTURES=update make ui        writes them to docs/_static/pictures
"""

import os
import shutil
import struct
from pathlib import Path

import pytest

from tests.ui.lab import OUT, Lab

pytestmark = [pytest.mark.ui, pytest.mark.timeout(240)]

PICTURES = Path(__file__).parents[2] / "docs" / "_static" / "pictures"
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}

SETTINGS = """[providers.cloud]
type = "local"
hourly_price = 1.5

[pools.train]
provider = "cloud"
nodes = "2:4"
budget = 20
"""

CELLS = (
    "%load_ext skyward\nrates = [0.1, 0.01]",
    "%%sky --pool train --map rates\nloss = round(rates ** 2, 4)",
    "loss",
    "%%sky --pool train\nfor step in range(1, 5):\n    yield {'step': step, 'loss': 1 / step}",
)
"""Cells of the notebook in the pictures."""


def test_pictures_of_the_panel(lab: Lab, server: tuple[str, Path]) -> None:
    (server[1] / "skyward.toml").write_text(SETTINGS)
    try:
        for code in CELLS:
            lab.run(code)
        lab.pool("train").wait_for()
        lab.section("tasks").get_by_text("done").first.wait_for()
        for name, theme in THEMES.items():
            lab.command("apputils:change-theme", theme=theme)
            lab.page.locator(f"body[data-jp-theme-name='{theme}']").wait_for(state="attached")
            lab.page.mouse.move(1270, 890)
            take(lab.page, f"panel-{name}.png")
            take(lab.panel, f"side-panel-{name}.png")
    finally:
        (server[1] / "skyward.toml").unlink()


def take(what: object, name: str) -> None:
    """Take a picture; the committed one must have about its size, so that pages lay out the same."""
    OUT.mkdir(exist_ok=True)
    what.screenshot(path=OUT / name, animations="disabled", caret="hide")  # type: ignore[attr-defined]
    committed = PICTURES / name
    if os.environ.get("SKYWARD_PICTURES") == "update":
        committed.parent.mkdir(exist_ok=True)
        shutil.copy(OUT / name, committed)
    assert size(committed) == size(OUT / name), f"run SKYWARD_PICTURES=update make ui, and look at {committed}"


def size(picture: Path) -> tuple[int, int]:
    """Return width and height of a PNG file."""
    width, height = struct.unpack(">II", picture.read_bytes()[16:24])
    return width, height
