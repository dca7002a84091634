"""Lines that belong to no task in a real kernel: below the cell that runs, or ran last, not below that of the pool."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.storage import ACCESS_KEY, SECRET_KEY
from tests.local.kernel import Cell, Kernel, started
from tests.object_store import object_store
from tests.waiting import wait_for

pytestmark = [pytest.mark.local, pytest.mark.notebooks]


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    with started() as kernel:
        yield kernel


@pytest.fixture
def opener(kernel: Kernel) -> Cell:
    """The cell that opened the pool, which has ended."""
    cell = kernel("%%sky --nodes 2\n1")
    assert cell.data[-1] == "1"
    return cell


def test_write_conflict_is_shown_before_the_end_of_the_cell_that_wrote(kernel: Kernel, tmp_path: Path) -> None:
    with object_store() as bucket:
        keys = f'access_key = "{ACCESS_KEY}"\nsecret_key = "{SECRET_KEY}"\n'
        table = f'[storages.mine]\nendpoint = "{bucket.store.url}"\npath_style = true\n{keys}'
        (tmp_path / "skyward.toml").write_text(table)
        cache = str(tmp_path / "cache")
        kernel(f"import os\nos.chdir({str(tmp_path)!r})\nos.environ['SKYWARD_CACHE_DIR'] = {cache!r}")
        volume = f"mine://{bucket.name}/train:/data:sync"
        opened = kernel(f"%%sky --nodes 2 --volume {volume} --on all\nimport skyward as sky, os, pathlib, time")
        assert "error" not in opened.types
        for name in ("first.txt", "second.txt"):
            cell = kernel(
                f"%%sky --on all\nme, folder = os.environ['SKYWARD_NODE'], pathlib.Path({str(tmp_path)!r})\n"
                f"written = (sky.volume('/data') / {name!r}).write_text(me)\n(folder / f'{name}-{{me}}').touch()\n"
                f"while not ((folder / '{name}-0').exists() and (folder / '{name}-1').exists()):\n"
                "    time.sleep(0.01)"
            )
            assert name in cell.text("stderr")
        assert ".txt" not in opened.text("stderr")
        kernel("%sky down default")


def test_lost_node_is_shown_below_the_cell_that_runs(kernel: Kernel, opener: Cell) -> None:
    cell = kernel("%%sky --on 1\nimport os\nos.kill(os.getpid(), 9)")
    assert "error" in cell.types
    assert "node 1 was lost" in cell.text("stderr")
    assert "node 1" not in opener.text("stderr")


def test_output_of_a_thread_after_its_task_is_shown_below_the_cell_that_runs(
    kernel: Kernel, opener: Cell, tmp_path: Path
) -> None:
    go, over = tmp_path / "go", tmp_path / "over"
    begun = kernel(
        "%%sky --on 0\nimport os, threading, time\n"
        f"def late():\n    while not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
        f"    print('of the thread', flush=True)\n    open({str(over)!r}, 'w').close()\n"
        "threading.Thread(target=late, daemon=True).start()\ndel late"
    )
    cell = kernel(
        f"%%sky --on 0\nimport os, time\nopen({str(go)!r}, 'w').close()\n"
        f"while not os.path.exists({str(over)!r}): time.sleep(0.01)"
    )
    assert "of the thread" in cell.text()
    assert "of the thread" not in opener.text() + begun.text()


def test_line_between_cells_is_shown_below_the_cell_that_ran_last(kernel: Kernel, opener: Cell, tmp_path: Path) -> None:
    go = tmp_path / "go"
    kernel(
        "%%sky --on 0\nimport os, threading, time\n"
        f"def late():\n    while not os.path.exists({str(go)!r}): time.sleep(0.01)\n    print('between cells')\n"
        "threading.Thread(target=late, daemon=True).start()\ndel late"
    )
    last = kernel("1 + 1")
    kernel.complete("impor")  # a request of a front end that is no cell
    go.touch()

    def is_shown() -> bool:
        kernel.listen()
        return "between cells" in last.text()

    wait_for(is_shown, "the line below the last cell")
    assert "between cells" not in opener.text()
