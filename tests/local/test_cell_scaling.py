"""Cells in a pool that scales."""

from pathlib import Path

import pytest

from tests.notebook import managed_pools, new_notebook
from tests.waiting import wait_for

pytestmark = pytest.mark.local


def test_run_time_of_one_cell_says_nothing_about_another(tmp_path: Path) -> None:
    """A quick cell ran before: a long one that waits behind another gets a node at once nevertheless."""
    go = tmp_path / "go"
    waiting = f"%%sky --noblock\nimport os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)"
    with managed_pools() as pools, new_notebook(pools) as notebook:
        assert notebook("%sky up --nodes 1:2").error is None
        assert notebook("%%sky\nquick = 1").error is None
        try:
            handles = [notebook(waiting).result for _ in range(2)]
            pool = pools.get()
            wait_for(lambda: len(pool.snapshot().nodes) == 2, "another node")
        finally:
            go.touch()
        for handle in handles:
            wait_for(handle.done, "the cell to end")
        assert "unknown length" in pool.decisions()[0].reason
        assert pools.close_all()
