"""The footer of a cell: its nodes, its duration and its cost."""

import pytest

from skyward_jupyter.display.footer import Footer
from tests.unit.jupyter.conftest import FakeCompute, Notebook

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("footer", "text"),
    [
        (Footer((3,), ("A100",), 12.4, 0.011), "node 3, A100, 12 s, $0.0110"),
        (Footer((0, 1, 2, 3), ("H100:8",), 200.0, 40.0), "4 nodes, H100:8, 3 min 20 s, $40.00"),
        (Footer((0, 5), ("T4", "local"), 7500.0), "2 nodes, T4 and local, 2 h 5 min"),
        (Footer((0,), ("local",), 0.04), "node 0, local, 0.0 s"),
        (Footer((0,), (), 1.0, failed=1), "node 0, 1.0 s, failed"),
        (Footer((0,), (), 1.0, failed=1, timed_out=1), "node 0, 1.0 s, timed out"),
        (Footer((0, 1), (), 1.0, tasks=4, failed=1, stopped=3), "2 nodes, 1.0 s, 1 of 4 failed, 3 stopped"),
        (Footer((0, 1), (), 1.0, tasks=4, failed=4, timed_out=4), "2 nodes, 1.0 s, 4 of 4 timed out"),
        (
            Footer((0, 1), (), 1.0, tasks=4, failed=3, timed_out=2),
            "2 nodes, 1.0 s, 1 of 4 failed, 2 timed out",
        ),
        (Footer((0, 1), (), 1.0, tasks=4, stopped=4), "2 nodes, 1.0 s"),
    ],
)
def test_footer_summarizes_nodes_time_and_cost(footer: Footer, text: str) -> None:
    assert str(footer) == text


@pytest.fixture
def shown(notebook: Notebook) -> Notebook:
    notebook.magics.footer = True
    return notebook


def test_footer_is_shown_below_the_output_of_the_cell(shown: Notebook) -> None:
    first, last = shown("%%sky --nodes 2 --on all\nx = 1\n42").displays[-2:], shown("%%sky\n1 / 0")
    assert first[-1].startswith("2 nodes, A100, 0.")
    assert first[-1].endswith(" s, $0.0011")
    assert isinstance(last.error, ZeroDivisionError)
    assert last.displays[-1].startswith("node 0, A100, ")
    assert last.err == ""


def test_map_and_stream_have_a_footer(shown: Notebook) -> None:
    shown("xs = [1, 2, 3]")
    (line,) = shown("%%sky --map xs\nxs * 2").displays
    assert line.endswith(" s, $0.0033"), "the costs of all three runs are added up"
    assert shown("%%sky\nyield 1").displays[-1].startswith("node 0, A100, ")


@pytest.mark.parametrize("line", ["--no-footer", "--quiet", "--dry-run"])
def test_footer_can_be_omitted_by_an_option(shown: Notebook, line: str) -> None:
    assert not [text for text in shown(f"%%sky {line}\nx = 1").displays if "A100" in text]


def test_footer_can_be_disabled_by_a_trait(shown: Notebook) -> None:
    shown("%config SkyMagics.footer = False")
    assert shown("%%sky\nx = 1").displays == []


def test_cell_that_reached_no_node_has_no_footer(shown: Notebook, compute: type[FakeCompute]) -> None:
    shown("%sky up")
    start = compute.made[0].start

    def nowhere(*args: object, **kwargs: object) -> object:
        run = start(*args, **kwargs)  # type: ignore[arg-type]
        run.nodes = []
        return run

    compute.made[0].start = nowhere  # type: ignore[method-assign, assignment]
    assert shown("%%sky\nx = 1").displays == []
