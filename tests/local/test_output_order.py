"""Standard output and error in the order of their writes: in cells of a real kernel, and in tasks."""

import itertools
from collections.abc import Iterator

import pytest

import skyward as sky
from skyward.reporting.screen import BURST
from tests.local.conftest import Recorder
from tests.local.kernel import Cell, Kernel, started
from tests.unit.reporting.test_interleave import screen

pytestmark = [pytest.mark.local, pytest.mark.notebooks]

BAR = "from tqdm import tqdm\nfor i in tqdm(range(8), mininterval=0): pass\nprint('end')"
"""A progress bar of tqdm, which ends on stderr with an unflushed newline; then a line on stdout."""

ALTERNATING = "import sys\nfor i in range({}): print(i, file=(sys.stdout, sys.stderr)[i % 2])"


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started() as kernel:
        kernel("threads = %sky up --nodes 2")
        kernel("processes = %sky up processes --executor process")
        kernel("xs = [1]")
        yield kernel


def written(cell: Cell) -> list[tuple[str, str]]:
    """Return the text of a cell in order, with adjacent pieces of one stream joined."""
    pieces = [(out["name"], out["text"]) for out in cell.outputs if out["type"] == "stream"]
    groups = itertools.groupby(pieces, key=lambda piece: piece[0])
    return [(name, "".join(text for _, text in group)) for name, group in groups]


def shows_bar_then_end(cell: Cell) -> bool:
    (first, bar), last = written(cell)
    lines = screen(bar).split("\n")
    return first == "stderr" and len(lines) == 1 and lines[0].startswith("100%|") and last == ("stdout", "end\n")


@pytest.mark.parametrize("options", ["", "--map xs", "--pool processes", "--on head"])
def test_bar_is_complete_before_the_next_line(kernel: Kernel, options: str) -> None:
    cell = kernel(f"%%sky {options}\nx = xs\n{BAR}")
    assert shows_bar_then_end(cell), cell.outputs


def test_bars_of_all_nodes_are_complete_before_the_next_lines(kernel: Kernel) -> None:
    cell = kernel(f"%%sky --on all\n{BAR}")
    lines = [line for line in screen("".join(text for _, text in written(cell))).split("\n") if line]
    for node in (0, 1):
        bar, end = (line for line in lines if line.startswith(f"[node {node}]"))
        assert bar.startswith(f"[node {node}] 100%|")
        assert end == f"[node {node}] end"
    assert len(lines) == 4
    assert {name for name, text in written(cell) if "end\n" in text} == {"stdout"}


def test_background_bar_is_shown_in_order_also_again(kernel: Kernel) -> None:
    cell = kernel(f"%%sky --noblock\n{BAR}")
    kernel("handle = _\nhandle.result()")
    assert shows_bar_then_end(cell), cell.outputs
    again = kernel("%sky show 1")
    assert shows_bar_then_end(again), again.outputs


@pytest.mark.parametrize("pool", ["threads", "processes"])
def test_bar_of_a_task_is_complete_before_the_next_line(kernel: Kernel, pool: str) -> None:
    body = BAR.replace("\n", "\n    ")
    kernel(f"import skyward as sky\n@sky.function\ndef work():\n    {body}")
    cell = kernel(f"work() >> {pool}")
    assert shows_bar_then_end(cell), cell.outputs


@pytest.mark.parametrize("options", ["", "--pool processes"])
def test_alternating_lines_arrive_in_order(kernel: Kernel, options: str) -> None:
    cell = kernel(f"%%sky {options}\n{ALTERNATING.format(200)}")
    assert written(cell) == [(("stdout", "stderr")[i % 2], f"{i}\n") for i in range(200)]


def test_many_alternating_lines_keep_their_order(kernel: Kernel) -> None:
    count = 20 * BURST
    cell = kernel(f"%%sky\n{ALTERNATING.format(count)}")
    numbers = [line for _, text in written(cell) for line in text.split("\n") if line.isdigit()]
    assert numbers == [str(i) for i in range(count)]
    assert "too fast to be shown separately" in cell.text()
    assert len(cell.outputs) < count / 2


@sky.function
def alternate(lines: int) -> None:
    import sys

    for i in range(lines):
        print(i, file=(sys.stdout, sys.stderr)[i % 2])


def test_sink_gets_the_output_of_a_task_in_order(each_executor: sky.Compute) -> None:
    sink = Recorder()
    run = each_executor.start(alternate(2000), sink=sink)
    run.future.result(30)
    groups = itertools.groupby(sink.written, key=lambda piece: piece[1])
    joined = [(stream, "".join(text for _, _, text in group)) for stream, group in groups]
    assert joined == [(("stdout", "stderr")[i % 2], f"{i}\n") for i in range(2000)]
    assert each_executor.logs(run.tasks[0]).text == "".join(f"{i}\n" for i in range(2000))
