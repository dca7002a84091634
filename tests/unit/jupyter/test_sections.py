"""Output of `--by-node`: a section for each node, the head's first."""

from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from skyward_jupyter.display.sections import NodeSections
from tests.unit.jupyter.conftest import Notebook

pytestmark = pytest.mark.unit


class Shown:
    """Publisher that records displays."""

    def __init__(self) -> None:
        self.data: list[dict[str, str]] = []
        self.updates: list[bool] = []

    def publish(self, data: Any, metadata: Any, transient: Any = None, update: bool = False) -> None:
        self.data.append(data)
        self.updates.append(update)


@pytest.fixture
def shown(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> Shown:
    shown = Shown()
    monkeypatch.setattr(shell, "display_pub", shown)
    return shown


def test_each_node_has_a_section_with_the_head_first(shell: InteractiveShell, shown: Shown) -> None:
    sections = NodeSections(shell)
    sections.output(1, "stdout", "10%\r")
    sections.output(0, "stdout", "from the \x1b[31mhead\x1b[0m & <all>\n")
    sections.output(1, "stdout", "100%\n")
    sections.output(1, "stderr", "careful\n")
    sections.display(0, {"text/plain": "a figure", "image/png": "aGk="}, {}, None, update=False)
    assert shown.data == [], "a terminal shows it at the end"
    sections.finish()
    sections.finish()
    (data,) = shown.data
    assert data["text/plain"] == "node 0 (head):\nfrom the head & <all>\na figure\nnode 1:\n100%\ncareful"
    assert data["text/html"] == (
        '<details open><summary style="cursor:pointer">node 0 (head)</summary>'
        "<pre>from the head &amp; &lt;all&gt;\n</pre>"
        '<img src="data:image/png;base64,aGk="></details>'
        '<details open><summary style="cursor:pointer">node 1</summary><pre>100%\n</pre>'
        '<pre style="color:var(--jp-error-color1,#b71c1c)">careful\n</pre></details>'
    )


def test_only_the_head_is_unfolded_for_many_nodes(shell: InteractiveShell, shown: Shown) -> None:
    sections = NodeSections(shell)
    for node in range(9):
        sections.output(node, "stdout", "hello\n")
    sections.finish()
    page = shown.data[0]["text/html"]
    assert page.startswith("<details open>")
    assert (page.count("<details open>"), page.count("<details>")) == (1, 8)


def test_notebook_display_is_updated_at_a_limited_rate(
    shell: InteractiveShell, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "kernel", object(), raising=False)
    sections = NodeSections(shell)
    for line in range(100):
        sections.output(0, "stdout", f"{line}\n")
    assert 1 <= len(shown.data) < 50, "not once per line"
    sections.finish()
    assert shown.data[-1]["text/plain"].endswith("\n99")
    assert shown.updates == [False, *[True] * (len(shown.updates) - 1)]


def test_by_node_shows_a_section_for_each_node(notebook: Notebook) -> None:
    ran = notebook("%%sky --nodes 2 --on all --by-node\nprint('hi')\nx = 1")
    assert ran.out == ""
    assert ran.displays == ["node 0 (head):\nhi"]
    assert notebook("%%sky --by-node\n1").shown_error.startswith("UsageError: --by-node is about the output of several")
    notebook("%%sky --on all --by-node --noblock\nprint('again')\nx = 1")
    assert notebook("%sky show").displays[0] == "node 0 (head):\nagain"
