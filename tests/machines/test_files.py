"""Files of cells on machines over SSH."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from skyward_kernel.pools import PoolManager
from tests.machines.conftest import hosts
from tests.machines.machine import Network
from tests.notebook import Notebook, managed_pools, new_notebook
from tests.unit.files.folders import contents

pytestmark = pytest.mark.machines


@pytest.fixture(scope="module")
def pools(shared_network: Network) -> Iterator[PoolManager]:
    with managed_pools(provider=hosts(shared_network), nodes=2) as pools:
        yield pools


@pytest.fixture
def notebook(pools: PoolManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    """A notebook in `tmp_path`."""
    monkeypatch.chdir(tmp_path)
    with new_notebook(pools) as notebook:
        yield notebook


def test_file_is_sent_once_per_content(notebook: Notebook, shared_network: Network, tmp_path: Path) -> None:
    data = os.urandom(30 << 20)
    (tmp_path / "big.bin").write_bytes(data)
    cell = "%%sky --on 0 --file big.bin\nfrom pathlib import Path\nsize = Path('big.bin').stat().st_size"
    received = [sum(machine.received for machine in shared_network.machines)]
    for _ in range(2):
        assert notebook(cell).error is None
        assert notebook["size"] == len(data)
        received.append(sum(machine.received for machine in shared_network.machines))
    first, second = received[1] - received[0], received[2] - received[1]
    assert first > len(data)
    assert second < 1 << 20
    (tmp_path / "big.bin").write_bytes(data[:-1] + b"x")  # the last of three chunks changes
    assert notebook(cell).error is None
    third = sum(machine.received for machine in shared_network.machines) - received[2]
    assert third < 20 << 20


def test_machine_has_no_files_of_the_notebook_until_they_are_sent(notebook: Notebook, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a\n1\n2\n")
    cell = "import pandas as pd\ntotal = int(pd.read_csv('data.csv').a.sum())"
    last = notebook(f"%%sky --on 1\n{cell}").shown_error.splitlines()[-1]
    assert last == f"data.csv is here, in {tmp_path}, but not on node 1: send it with --file data.csv."
    ran = notebook(f"%%sky --on all --file data.csv\n{cell}")
    assert (ran.error, notebook["total"]) == (None, [3, 3])


def test_files_that_cells_write_are_returned_from_all_machines(notebook: Notebook, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    cell = """
import os
from pathlib import Path
import skyward as sky
rank = sky.instance_info().node
done = [Path(f"out/{name}").write_text(text) for name, text in ((f"{rank}.txt", "own"), ("log.txt", str(rank)))]
big = Path("out/big").write_bytes(bytes(40 << 20))
"""
    ran = notebook(f"%%sky --on all --fetch 'out/*'\n{cell}")
    assert ran.error is None
    assert (tmp_path / "out/big").stat().st_size == 40 << 20
    (tmp_path / "out/big").unlink()
    assert contents(tmp_path) == {
        "out/0.txt": "own",
        "out/1.txt": "own",
        "out/log.node0.txt": "0",
        "out/log.node1.txt": "1",
    }


def test_folder_is_synced_with_both_machines(notebook: Notebook, tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"project/{number % 7}").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"project/{number % 7}/{number}.txt").write_text(str(number))
    (tmp_path / "project/.skyignore").write_text("*.tmp\n")
    cell = """
import os
from pathlib import Path
os.remove("project/0/0.txt")
n = [Path("project/1/1.txt").write_text("changed"), Path("project/new.txt").write_text("new"),
     Path("project/x.tmp").write_text("no")]
"""
    assert notebook(f"%%sky --on 0 --sync project\n{cell}").error is None
    here = contents(tmp_path)
    assert (here["project/1/1.txt"], here["project/new.txt"]) == ("changed", "new")
    assert "project/0/0.txt" not in here
    assert "project/x.tmp" not in here
    look = "found = {str(p): p.read_text() for p in Path('project').rglob('*') if p.is_file()}"
    assert notebook(f"%%sky --on 1 --sync project\nfrom pathlib import Path\n{look}").error is None
    assert notebook["found"] == here


def test_map_sends_and_returns_files_on_all_machines(notebook: Notebook, tmp_path: Path) -> None:
    (tmp_path / "factor").write_text("3")
    notebook("xs = range(5)")
    cell = "from pathlib import Path\nn = Path(f'{xs}.txt').write_text(str(xs * int(Path('factor').read_text())))"
    assert notebook(f"%%sky --map xs --file factor --fetch '*.txt'\n{cell}").error is None
    assert contents(tmp_path) == {"factor": "3", **{f"{x}.txt": str(3 * x) for x in range(5)}}


def test_file_becomes_a_folder_and_files_that_cannot_be_placed_are_not_lost(notebook: Notebook, tmp_path: Path) -> None:
    (tmp_path / "e").mkdir()
    for name in ("f", "deleted", "edited"):
        (tmp_path / "e" / name).write_text("old")
    blocks = "from pathlib import Path\nn = Path('way').write_text('of a cell')"
    assert notebook(f"%%sky --on 0 --sync e\n{blocks}").error is None
    (tmp_path / "e/f").unlink()
    (tmp_path / "e/deleted").unlink()
    (tmp_path / "e/edited").write_text("an hour of work")
    (tmp_path / "e/f").mkdir()
    (tmp_path / "e/f/x").write_text("folder")
    (tmp_path / "way").mkdir()
    (tmp_path / "way/y").write_text("in its way")
    wanted = {"e/edited": "an hour of work", "e/f/x": "folder", "way/y": "in its way"}
    failed = notebook("%%sky --on 0 --sync e --file way/y\n1")
    assert "way/y cannot be put in place on node 0: way is not a folder there." in failed.shown_error
    assert contents(tmp_path) == wanted
    look = "found = {str(p): p.read_text() for p in Path('e').rglob('*') if p.is_file()}"
    assert notebook(f"%%sky --on 0 --sync e\nfrom pathlib import Path\n{look}").error is None
    assert contents(tmp_path) == wanted
    assert notebook["found"] == {"e/edited": "an hour of work", "e/f/x": "folder"}
    turns = """
import os, shutil
from pathlib import Path
shutil.rmtree("e/f")
os.remove("e/edited")
os.makedirs("e/edited/empty")
n = Path("e/edited/result").write_text("new"), Path("e/f").write_text("file")
"""
    assert notebook(f"%%sky --on 0 --sync e\n{turns}").error is None
    assert contents(tmp_path) == {"e/edited/result": "new", "e/f": "file", "way/y": "in its way"}
    assert (tmp_path / "e/edited/empty").is_dir()
