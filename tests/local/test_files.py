"""The files of a cell: local nodes run it in the notebook's folder, other nodes are sent the files."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward.files.disk import CHUNK
from skyward.pool.compute import nodes_with
from skyward.wire.payloads.digest import content_address
from skyward_kernel.pools import PoolManager
from tests.local.kernel import started
from tests.local.separate_disks import SeparateDisks
from tests.notebook import Notebook, managed_pools, new_notebook
from tests.unit.files.folders import contents
from tests.waiting import wait_for

pytestmark = pytest.mark.local


@pytest.fixture(scope="module")
def here() -> Iterator[PoolManager]:
    """A pool of two local nodes with two slots each."""
    with managed_pools(nodes=2, worker=sky.Worker(concurrency=2)) as pools:
        yield pools


@pytest.fixture(scope="module", params=["thread", "process"])
def elsewhere(request: pytest.FixtureRequest) -> Iterator[PoolManager]:
    """A pool of two nodes with separate folders and two slots each."""
    with managed_pools(provider=SeparateDisks(), nodes=2, worker=sky.Worker(2, request.param)) as pools:
        yield pools


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The notebook's folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def local(here: PoolManager, folder: Path) -> Iterator[Notebook]:
    """A notebook in `folder` with local nodes."""
    with new_notebook(here) as notebook:
        yield notebook


@pytest.fixture
def notebook(elsewhere: PoolManager, folder: Path) -> Iterator[Notebook]:
    """A notebook in `folder` with nodes on other disks."""
    with new_notebook(elsewhere) as notebook:
        yield notebook


# Local nodes.


def test_cell_reads_and_writes_in_the_notebooks_folder(local: Notebook, folder: Path) -> None:
    (folder / "data.csv").write_text("a,b\n1,2\n")
    ran = local("%%sky\nimport pandas as pd\nframe = pd.read_csv('data.csv')\nframe.to_csv('copy.csv', index=False)")
    assert ran.error is None
    assert local["frame"].to_dict("list") == {"a": [1], "b": [2]}
    assert (folder / "copy.csv").read_text() == "a,b\n1,2\n"


def test_folder_is_that_of_the_kernel_when_the_cell_is_sent(local: Notebook, folder: Path) -> None:
    (folder / "sub").mkdir()
    local("%%sky --on all\nimport os\nwhere = os.getcwd()")
    assert local["where"] == [str(folder)] * 2
    os.chdir(folder / "sub")
    local("%%sky --on all\nimport os\nwhere = os.getcwd()")
    assert local["where"] == [str(folder / "sub")] * 2


def test_chdir_ends_with_the_cell(local: Notebook, folder: Path) -> None:
    ran = local("%%sky --on all\nimport os\nos.chdir('/')")
    assert ran.err == (
        "The cell changed its working directory to /. This has no effect on the next cell, which starts in "
        "the notebook's folder again; %cd changes that folder.\n"
    )
    local("%%sky --on all\nimport os\nwhere = os.getcwd()")
    assert local["where"] == [str(folder)] * 2


def test_concurrent_cells_in_one_process_have_their_own_folders(local: Notebook, folder: Path) -> None:
    """Each keeps its folder after the other has left it."""
    cell = """%%sky --noblock --on 0
import os, time
open('begun', 'w').close()
while not os.path.exists('go'):
    time.sleep(0.01)
if {leaves}:
    os.chdir('/')
open(os.path.join({start!r}, 'left'), 'w').close()
while not os.path.exists(os.path.join({start!r}, 'end')):
    time.sleep(0.01)
where = os.getcwd()
"""
    handles = []
    for name, leaves in (("one", True), ("two", False)):
        (folder / name).mkdir()
        os.chdir(folder / name)
        handles.append(local(cell.format(leaves=leaves, start=str(folder / name))).result)
    for file in ("begun", "left"):
        for name in ("one", "two"):
            wait_for((folder / name / file).exists, f"{name}/{file}")
        for name in ("one", "two"):
            (folder / name / {"begun": "go", "left": "end"}[file]).touch()
    handles[1].result(20)
    assert local["where"] == str(folder / "two")
    handles[0].result(20)
    assert local["where"] == "/"


def test_functions_start_in_the_folder_of_their_node_as_before(local: Notebook, here: PoolManager) -> None:
    @sky.function
    def where() -> str:
        return os.getcwd()

    local("%%sky --on all\n1")
    assert len({*(where() @ here.get())}) == 2


def test_file_options_do_nothing_on_a_shared_folder(local: Notebook, folder: Path) -> None:
    (folder / "data.csv").write_text("1")
    ran = local("%%sky --file data.csv --sync . --fetch '*.txt'\nopen('out.txt', 'w').write(open('data.csv').read())")
    assert (ran.error, ran.err) == (None, "")
    assert contents(folder) == {"data.csv": "1", "out.txt": "1"}


def test_missing_folder_is_reported(local: Notebook, folder: Path) -> None:
    (folder / "sub").mkdir()
    os.chdir(folder / "sub")
    (folder / "sub").rmdir()
    shown = local("%%sky\n1").shown_error
    os.chdir(folder)
    assert shown == "SpecError: The working directory was deleted: change to one that exists, with %cd or os.chdir()."


def test_folder_follows_the_notebook_in_a_kernel(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub/data.csv").write_text("x\n7\n")
    with started() as kernel:
        assert "sub" in kernel("%cd sub").text()
        assert kernel("%%sky\nimport pandas as pd\nint(pd.read_csv('data.csv').x[0])").data[-1] == "7"
        assert "data.csv" in kernel("%%sky --file dat.csv\n1").error[1][-1]


# Nodes on other disks.


def test_missing_file_is_reported_with_the_option_that_sends_it(notebook: Notebook, folder: Path) -> None:
    (folder / "data.csv").write_text("a\n1\n")
    cell = "import pandas as pd\nn = int(pd.read_csv('data.csv').a.sum())"
    ran = notebook(f"%%sky --on 1\n{cell}")
    assert isinstance(ran.error, FileNotFoundError)
    assert ran.shown_error.splitlines()[-1] == (
        f"data.csv is here, in {folder}, but not on node 1: send it with --file data.csv."
    )
    assert notebook(f"%%sky --on 1 --file data.csv\n{cell}").error is None
    assert notebook["n"] == 1


def test_files_of_a_stream_that_raises_are_returned(notebook: Notebook, folder: Path) -> None:
    (folder / "data.csv").touch()
    ran = notebook("%%sky --on 1 --fetch begun\nn = open('begun', 'w').write('1')\nyield 1\nopen('data.csv')")
    assert (folder / "begun").read_text() == "1"
    assert ran.shown_error.splitlines()[-1].endswith("send it with --file data.csv.")


def test_files_are_on_every_node_by_content(notebook: Notebook, folder: Path, elsewhere: PoolManager) -> None:
    data = os.urandom(20 << 20)
    (folder / "big.bin").write_bytes(data)
    cell = "%%sky --on all --file big.bin\nimport hashlib\nd = hashlib.sha256(open('big.bin', 'rb').read()).hexdigest()"
    assert notebook(cell).error is None
    assert notebook["d"] == [hashlib.sha256(data).hexdigest()] * 2
    chunks = [memoryview(data)[:CHUNK], memoryview(data)[CHUNK:]]
    assert [nodes_with(elsewhere.get(), content_address(chunk)) for chunk in chunks] == [{0, 1}, {0, 1}]


def test_map_sends_the_files_and_returns_those_of_each_element(notebook: Notebook, folder: Path) -> None:
    (folder / "factor").write_text("3")
    notebook("xs = range(6)")
    cell = "with open(f'out/{xs}.txt', 'w') as f: f.write(str(xs * int(open('factor').read())))"
    (folder / "out").mkdir()
    ran = notebook(f"%%sky --map xs --file factor --fetch 'out/*.txt'\n{cell}")
    assert ran.error is None
    assert contents(folder) == {"factor": "3", **{f"out/{x}.txt": str(3 * x) for x in range(6)}}


def test_on_all_names_differing_files_by_node(notebook: Notebook, folder: Path) -> None:
    cell = "import skyward as sky\nwith open('log.txt', 'w') as f: f.write(str(sky.instance_info().node))"
    ran = notebook(f"%%sky --on all --fetch log.txt\n{cell}")
    assert "Fetched log.node0.txt and log.node1.txt (2 B)." in ran.err
    assert contents(folder) == {"log.node0.txt": "0", "log.node1.txt": "1"}


def test_files_written_before_an_error_are_returned(notebook: Notebook, folder: Path) -> None:
    ran = notebook("%%sky --fetch model.pt\nwith open('model.pt', 'w') as f: f.write('half')\nn = 1\n1 / 0")
    assert isinstance(ran.error, ZeroDivisionError)
    assert contents(folder) == {"model.pt": "half"}
    assert notebook["n"] == 1


def test_files_of_a_stream_are_returned_after_its_last_element(notebook: Notebook, folder: Path) -> None:
    ran = notebook("%%sky --fetch '*.txt'\nfor i in range(3):\n    open(f's{i}.txt', 'w').write('1')\n    yield i")
    assert ran.out == "0\n1\n2\n"
    assert contents(folder).keys() == {"s0.txt", "s1.txt", "s2.txt"}


def test_files_of_a_stopped_cell_are_returned(notebook: Notebook, folder: Path) -> None:
    ran = notebook(
        "%%sky --timeout 1s --fetch 'a*'\nimport time\nn = open('a', 'w').write('half')\nwhile True: time.sleep(0.01)"
    )
    assert type(ran.error).__name__ == "TaskTimeoutError"
    assert contents(folder) == {"a": "half"}
    assert notebook["n"] == 4


def test_files_of_a_background_cell_are_returned_with_its_result(notebook: Notebook, folder: Path) -> None:
    (folder / "a").write_text("1")
    handle = notebook("%%sky --noblock --file a --fetch b\nopen('b', 'w').write(open('a').read() + '2')").result
    (folder / "a").write_text("later")
    handle._sent.wait(20)
    assert not (folder / "b").exists()
    handle.result(20)
    assert (folder / "b").read_text() == "12"


def test_folder_is_the_same_on_both_sides(notebook: Notebook, folder: Path) -> None:
    for path in ("project/a.py", "project/b.txt", "project/.git/x", "other"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("1")
    cell = "import os\nos.remove('project/b.txt')\nwith open('project/c.txt', 'w') as f: f.write('2')"
    ran = notebook(f"%%sky --on 0 --sync project\n{cell}")
    assert ran.error is None
    assert contents(folder).keys() == {"project/a.py", "project/.git/x", "project/c.txt", "other"}
    notebook("%%sky --on 1 --sync project\nimport os\nnames = sorted(os.listdir('project'))")
    assert notebook["names"] == ["a.py", "c.txt"]


def test_notice_names_files_left_on_the_node(notebook: Notebook) -> None:
    cell = "from pathlib import Path\nn = Path('model.bin').write_text"
    ran = notebook(f"%%sky --on 0\n{cell}('1')")
    assert ran.err == "Left on node 0, and lost when the pool closes: model.bin. Fetch such files with --fetch.\n"
    quiet = notebook(f"%%sky --on 0 --quiet\n{cell}('12')")
    assert quiet.err == ""
    assert "Fetched model.bin (2 B)." in notebook("%%sky --on 0 --fetch model.bin\n1").err


def test_invalid_file_options_are_refused_before_a_pool_opens(notebook: Notebook, folder: Path) -> None:
    (folder / "data.csv").touch()
    assert notebook("%%sky --pool another --file dat.csv\n1").shown_error == (
        f"UsageError: --file dat.csv: no such file in {folder}. Did you mean data.csv?"
    )
    assert "another" not in notebook("%sky pools").out


def test_dry_run_lists_the_files(notebook: Notebook, folder: Path) -> None:
    (folder / "data.csv").write_text("12345")
    ran = notebook("%%sky --dry-run --file data.csv\n1")
    assert ran.displays[0].splitlines()[-1] == "files: data.csv (5 B)"


def test_file_changes_between_two_concurrent_cells(notebook: Notebook, folder: Path) -> None:
    """Each cell has the content at the time it was sent."""

    def run(node: int) -> Any:
        return notebook(f"%%sky --noblock --on {node} --file a\nt{node} = open('a').read()").result

    (folder / "a").write_text("one")
    first = run(0)
    (folder / "a").write_text("two")
    second = run(1)
    first.result(20)
    second.result(20)
    assert (notebook["t0"], notebook["t1"]) == ("one", "two")
