"""Files of cells in containers, where threads cannot have separate working directories."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import skyward as sky
from tests.containers.conftest import containers
from tests.containers.engine import Engine
from tests.notebook import Notebook, managed_pools, new_notebook
from tests.unit.files.folders import contents

pytestmark = [pytest.mark.containers, pytest.mark.timeout(240)]


@pytest.fixture
def notebook(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    """A notebook in `tmp_path`, with a container that runs two tasks at a time."""
    monkeypatch.chdir(tmp_path)
    provider, worker = containers(engine), sky.Worker(concurrency=2)
    with (
        managed_pools(provider=provider, nodes=1, vcpus=1, memory_gb=1.5, worker=worker) as pools,
        new_notebook(pools) as notebook,
    ):
        yield notebook


def test_files_are_sent_and_returned(notebook: Notebook, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("1\n2\n")
    last = notebook("%%sky\nopen('data.csv')").shown_error.splitlines()[-1]
    assert last == f"data.csv is here, in {tmp_path}, but not on node 0: send it with --file data.csv."
    notebook("xs = range(4)")
    cell = "from pathlib import Path\nn = Path(f'{xs}.txt').write_text(Path('data.csv').read_text() * xs)"
    ran = notebook(f"%%sky --map xs --file data.csv --fetch '*.txt'\n{cell}")
    assert ran.error is None
    assert contents(tmp_path) == {"data.csv": "1\n2\n", **{f"{x}.txt": "1\n2\n" * x for x in range(4)}}
