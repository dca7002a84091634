"""The files of a cell: local nodes run it in the notebook's folder, other nodes get what is sent."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward.files.disk import CHUNK
from skyward.wire.payloads.digest import content_address
from skyward_jupyter.magics.magics import SkyMagics
from skyward_jupyter.options.option_table import POOL_LABELS
from skyward_kernel.pools import PoolManager
from tests.local.conftest import Wait
from tests.local.elsewhere import Elsewhere
from tests.local.kernel import started
from tests.unit.files.sides import contents
from tests.unit.jupyter.conftest import Notebook, new_shell

pytestmark = [pytest.mark.local, pytest.mark.timeout(120)]


def pools_of(**fields: Any) -> Iterator[PoolManager]:
    pools = PoolManager(lambda **more: sky.Compute(**{**fields, **more}), POOL_LABELS)
    yield pools
    pools.close_all()


@pytest.fixture(scope="module")
def here() -> Iterator[PoolManager]:
    """A pool of two local nodes, with two slots each."""
    yield from pools_of(nodes=2, worker=sky.Worker(concurrency=2))


@pytest.fixture(scope="module", params=["thread", "process"])
def elsewhere(request: pytest.FixtureRequest) -> Iterator[PoolManager]:
    """A pool of two nodes whose files are their own, with two slots each."""
    yield from pools_of(provider=Elsewhere(), nodes=2, worker=sky.Worker(2, request.param))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The notebook's folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def notebook_on(pools: PoolManager) -> Iterator[Notebook]:
    with new_shell() as shell:
        magics = SkyMagics(shell, pools)
        magics.footer = False
        shell.register_magics(magics)
        yield Notebook(shell, magics)


@pytest.fixture
def local(here: PoolManager, folder: Path) -> Iterator[Notebook]:
    """A notebook in `folder` with local nodes."""
    yield from notebook_on(here)


@pytest.fixture
def notebook(elsewhere: PoolManager, folder: Path) -> Iterator[Notebook]:
    """A notebook in `folder` with nodes elsewhere."""
    yield from notebook_on(elsewhere)


# Local nodes.


def test_a_cell_reads_and_writes_in_the_notebooks_folder(local: Notebook, folder: Path) -> None:
    (folder / "data.csv").write_text("a,b\n1,2\n")
    ran = local("%%sky\nimport pandas as pd\nframe = pd.read_csv('data.csv')\nframe.to_csv('copy.csv', index=False)")
    assert ran.error is None
    assert local["frame"].to_dict("list") == {"a": [1], "b": [2]}
    assert (folder / "copy.csv").read_text() == "a,b\n1,2\n"


def test_the_folder_is_that_of_the_kernel_as_the_cell_is_sent(local: Notebook, folder: Path) -> None:
    (folder / "sub").mkdir()
    local("%%sky --on all\nimport os\nwhere = os.getcwd()")
    assert local["where"] == [str(folder)] * 2
    os.chdir(folder / "sub")
    local("%%sky --on all\nimport os\nwhere = os.getcwd()")
    assert local["where"] == [str(folder / "sub")] * 2


def test_what_a_cell_changes_to_ends_with_the_cell(local: Notebook, folder: Path) -> None:
    ran = local("%%sky --on all\nimport os\nos.chdir('/')")
    assert ran.err == (
        "The cell changed its working directory to /. That ended with the cell: the next one starts in the notebook's "
        "folder again, which %cd changes.\n"
    )
    local("%%sky --on all\nimport os\nwhere = os.getcwd()")
    assert local["where"] == [str(folder)] * 2


def test_cells_at_the_same_time_in_one_process_have_folders_of_their_own(
    local: Notebook, folder: Path, wait_for: Wait
) -> None:
    """Each has its own also after the other has left its folder."""
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


def test_the_options_do_nothing_where_the_folder_is_the_same(local: Notebook, folder: Path) -> None:
    (folder / "data.csv").write_text("1")
    ran = local("%%sky --file data.csv --sync . --fetch '*.txt'\nopen('out.txt', 'w').write(open('data.csv').read())")
    assert (ran.error, ran.err) == (None, "")
    assert contents(folder) == {"data.csv": "1", "out.txt": "1"}


def test_a_folder_that_is_gone_is_told(local: Notebook, folder: Path) -> None:
    (folder / "sub").mkdir()
    os.chdir(folder / "sub")
    (folder / "sub").rmdir()
    shown = local("%%sky\n1").shown_error
    os.chdir(folder)
    assert shown == "SpecError: The working directory was deleted: change to one that exists, with %cd or os.chdir()."


def test_in_a_kernel_the_folder_follows_the_notebook(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub/data.csv").write_text("x\n7\n")
    with started() as kernel:
        assert "sub" in kernel("%cd sub").text()
        assert kernel("%%sky\nimport pandas as pd\nint(pd.read_csv('data.csv').x[0])").data[-1] == "7"
        assert "data.csv" in kernel("%%sky --file dat.csv\n1").error[1][-1]


# Nodes elsewhere.


def test_a_file_that_is_missing_is_told_with_the_option_that_sends_it(notebook: Notebook, folder: Path) -> None:
    (folder / "data.csv").write_text("a\n1\n")
    cell = "import pandas as pd\nn = int(pd.read_csv('data.csv').a.sum())"
    ran = notebook(f"%%sky --on 1\n{cell}")
    assert isinstance(ran.error, FileNotFoundError)
    assert ran.shown_error.splitlines()[-1] == (
        f"data.csv is here, in {folder}, and not on node 1: send it with --file data.csv."
    )
    assert notebook(f"%%sky --on 1 --file data.csv\n{cell}").error is None
    assert notebook["n"] == 1


def test_files_of_a_stream_that_raises_come_home_too(notebook: Notebook, folder: Path) -> None:
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
    assert [elsewhere.get().holds(content_address(chunk)) for chunk in chunks] == [{0, 1}, {0, 1}]


def test_map_has_the_files_and_brings_home_what_each_element_wrote(notebook: Notebook, folder: Path) -> None:
    (folder / "factor").write_text("3")
    notebook("xs = range(6)")
    cell = "with open(f'out/{xs}.txt', 'w') as f: f.write(str(xs * int(open('factor').read())))"
    (folder / "out").mkdir()
    ran = notebook(f"%%sky --map xs --file factor --fetch 'out/*.txt'\n{cell}")
    assert ran.error is None
    assert contents(folder) == {"factor": "3", **{f"out/{x}.txt": str(3 * x) for x in range(6)}}


def test_on_all_names_what_differs_by_node(notebook: Notebook, folder: Path) -> None:
    cell = "import skyward as sky\nwith open('log.txt', 'w') as f: f.write(str(sky.instance_info().node))"
    ran = notebook(f"%%sky --on all --fetch log.txt\n{cell}")
    assert "Fetched log.node0.txt and log.node1.txt (2 B)." in ran.err
    assert contents(folder) == {"log.node0.txt": "0", "log.node1.txt": "1"}


def test_what_a_cell_wrote_before_it_raised_comes_home(notebook: Notebook, folder: Path) -> None:
    ran = notebook("%%sky --fetch model.pt\nwith open('model.pt', 'w') as f: f.write('half')\nn = 1\n1 / 0")
    assert isinstance(ran.error, ZeroDivisionError)
    assert contents(folder) == {"model.pt": "half"}
    assert notebook["n"] == 1


def test_files_of_a_stream_come_home_after_its_last_element(notebook: Notebook, folder: Path) -> None:
    ran = notebook("%%sky --fetch '*.txt'\nfor i in range(3):\n    open(f's{i}.txt', 'w').write('1')\n    yield i")
    assert ran.out == "0\n1\n2\n"
    assert contents(folder).keys() == {"s0.txt", "s1.txt", "s2.txt"}


def test_files_of_a_cell_that_was_stopped_come_home(notebook: Notebook, folder: Path) -> None:
    ran = notebook(
        "%%sky --timeout 1s --fetch 'a*'\nimport time\nn = open('a', 'w').write('half')\nwhile True: time.sleep(0.01)"
    )
    assert type(ran.error).__name__ == "TaskTimeoutError"
    assert contents(folder) == {"a": "half"}
    assert notebook["n"] == 4


def test_files_of_a_cell_in_the_background_come_home_with_its_result(notebook: Notebook, folder: Path) -> None:
    (folder / "a").write_text("1")
    handle = notebook("%%sky --noblock --file a --fetch b\nopen('b', 'w').write(open('a').read() + '2')").result
    (folder / "a").write_text("later")
    handle._sent.wait(20)
    assert not (folder / "b").exists()
    handle.result(20)
    assert (folder / "b").read_text() == "12"


def test_a_folder_is_the_same_on_both_sides(notebook: Notebook, folder: Path) -> None:
    for path in ("project/a.py", "project/b.txt", "project/.git/x", "other"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("1")
    cell = "import os\nos.remove('project/b.txt')\nwith open('project/c.txt', 'w') as f: f.write('2')"
    ran = notebook(f"%%sky --on 0 --sync project\n{cell}")
    assert ran.error is None
    assert contents(folder).keys() == {"project/a.py", "project/.git/x", "project/c.txt", "other"}
    notebook("%%sky --on 1 --sync project\nimport os\nnames = sorted(os.listdir('project'))")
    assert notebook["names"] == ["a.py", "c.txt"]


def test_a_line_tells_what_stays_on_the_node(notebook: Notebook) -> None:
    cell = "from pathlib import Path\nn = Path('model.bin').write_text"
    ran = notebook(f"%%sky --on 0\n{cell}('1')")
    assert ran.err == "Left on node 0, and lost when the pool closes: model.bin. Bring such files home with --fetch.\n"
    quiet = notebook(f"%%sky --on 0 --quiet\n{cell}('12')")
    assert quiet.err == ""
    assert "Fetched model.bin (2 B)." in notebook("%%sky --on 0 --fetch model.bin\n1").err


def test_what_is_wrong_is_refused_before_a_pool_opens(notebook: Notebook, folder: Path) -> None:
    (folder / "data.csv").touch()
    assert notebook("%%sky --pool another --file dat.csv\n1").shown_error == (
        f"UsageError: --file dat.csv: there is no such file in {folder}. Did you mean data.csv?"
    )
    assert "another" not in notebook("%sky pools").out


def test_a_dry_run_lists_the_files(notebook: Notebook, folder: Path) -> None:
    (folder / "data.csv").write_text("12345")
    ran = notebook("%%sky --dry-run --file data.csv\n1")
    assert ran.displays[0].splitlines()[-1] == "files: data.csv (5 B)"


def test_a_file_changes_between_two_cells_at_once(notebook: Notebook, folder: Path) -> None:
    """Each cell has the content that was there as it was sent."""

    def run(node: int) -> Any:
        return notebook(f"%%sky --noblock --on {node} --file a\nt{node} = open('a').read()").result

    (folder / "a").write_text("one")
    first = run(0)
    (folder / "a").write_text("two")
    second = run(1)
    first.result(20)
    second.result(20)
    assert (notebook["t0"], notebook["t1"]) == ("one", "two")
