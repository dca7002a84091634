"""Files of cells in containers, where threads cannot have separate working directories."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import skyward as sky
from skyward_jupyter.magics.magics import SkyMagics
from skyward_kernel.commands.pool_options import POOL_LABELS
from skyward_kernel.pools import PoolManager
from tests.containers.conftest import containers
from tests.containers.engine import Engine
from tests.unit.files.sides import contents
from tests.unit.jupyter.conftest import Notebook, new_shell

pytestmark = [pytest.mark.containers, pytest.mark.timeout(240)]


@pytest.fixture
def notebook(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    """A notebook in `tmp_path`, with a container that runs two tasks at a time."""
    monkeypatch.chdir(tmp_path)
    fields = {"provider": containers(engine), "nodes": 1, "vcpus": 1, "memory_gb": 1.5, "worker": sky.Worker(2)}
    pools = PoolManager(lambda **more: sky.Compute(**{**fields, **more}), POOL_LABELS)
    with new_shell() as shell:
        magics = SkyMagics(shell, pools)
        magics.footer = False
        shell.register_magics(magics)
        try:
            yield Notebook(shell, magics)
        finally:
            pools.close_all()


def test_files_are_sent_and_returned(notebook: Notebook, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("1\n2\n")
    last = notebook("%%sky\nopen('data.csv')").shown_error.splitlines()[-1]
    assert last == f"data.csv is here, in {tmp_path}, but not on node 0: send it with --file data.csv."
    notebook("xs = range(4)")
    cell = "from pathlib import Path\nn = Path(f'{xs}.txt').write_text(Path('data.csv').read_text() * xs)"
    ran = notebook(f"%%sky --map xs --file data.csv --fetch '*.txt'\n{cell}")
    assert ran.error is None
    assert contents(tmp_path) == {"data.csv": "1\n2\n", **{f"{x}.txt": "1\n2\n" * x for x in range(4)}}
