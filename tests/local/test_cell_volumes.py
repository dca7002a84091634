"""Cells and scripts whose files cannot be uploaded to a volume: their own errors, variables and statuses come first."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import skyward as sky
from skyward_kernel.pools import PoolManager
from tests.fakes.storage import ACCESS_KEY, SECRET_KEY, FaultyProxy, Mistake
from tests.fakes.storage.proxy import xml_error
from tests.notebook import Notebook, managed_pools, new_notebook
from tests.object_store import Bucket, object_store
from tests.tmux import terminal_in
from tests.waiting import wait_for

pytestmark = [pytest.mark.local, pytest.mark.timeout(300)]

WRITE = "import os\n(sky.volume('/data') / f'new{os.environ[\"SKYWARD_NODE\"]}.txt').write_text('text')\n"
NOT_UPLOADED = "1 file could not be uploaded: s3://doomed/train/new0.txt; "
SCRIPT = """
import sys
import skyward as sky
(sky.volume("/data") / "new.txt").write_text("text")
print("written")
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def store() -> Iterator[Bucket]:
    """Bucket that is there when nodes start."""
    with object_store(name="doomed") as bucket:
        yield bucket


@pytest.fixture(scope="module")
def folder(store: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Working folder with a table of the store."""
    made = tmp_path_factory.mktemp("volumes")
    (made / "skyward.toml").write_text(storage_table(store.store.url))
    return made


def storage_table(url: str) -> str:
    """Return the table of a store for skyward.toml."""
    keys = f'access_key = "{ACCESS_KEY}"\nsecret_key = "{SECRET_KEY}"\n'
    return f'[storages.mine]\nendpoint = "{url}"\npath_style = true\n{keys}'


@pytest.fixture(scope="module")
def pools(store: Bucket, folder: Path) -> Iterator[PoolManager]:
    """Pools of a notebook, with one whose nodes cannot upload any more."""
    with pytest.MonkeyPatch.context() as patch, managed_pools() as pools:
        patch.chdir(folder)
        patch.setenv("SKYWARD_CACHE_DIR", str(folder / "cache"))
        with new_notebook(pools) as notebook:
            assert notebook("%sky up --nodes 2 --volume mine://doomed/train:/data:sync").error is None
            assert notebook("%%sky --on all\nimport skyward as sky").error is None
        store.store.client.delete_bucket(Bucket=store.name)
        yield pools
        store.store.client.create_bucket(Bucket=store.name)
        assert pools.close_all()


@pytest.fixture
def notebook(pools: PoolManager) -> Iterator[Notebook]:
    with new_notebook(pools) as notebook:
        notebook("import skyward as sky")
        yield notebook


def notes(error: BaseException | None) -> str:
    return "\n".join(getattr(error, "__notes__", ()))


def volume_error(error: BaseException | None) -> sky.VolumeError:
    """Check that an error is about files that could not be uploaded, as a cell has it, and return it."""
    assert isinstance(error, sky.VolumeError)
    assert str(error).startswith("The cell has ended on node 0, but ")
    assert str(error).endswith(" The variables of the cell were returned.")
    assert "error.value" not in str(error)
    return error


def test_cell_raises_its_own_error_with_a_note_on_its_files(notebook: Notebook) -> None:
    ran = notebook(f"%%sky --on 0\n{WRITE}got = 5\nraise KeyError('mine')")
    assert isinstance(ran.error, KeyError)
    assert "raise KeyError('mine')" in ran.shown_error
    assert f"Beside this error, {NOT_UPLOADED}" in notes(ran.error)
    assert ran.shown_error.count(NOT_UPLOADED) == 1
    assert notebook["got"] == 5


def test_cell_without_an_error_binds_its_variables_and_tells_of_its_files(notebook: Notebook) -> None:
    ran = notebook(f"%%sky --on 0\n{WRITE}val = 2\nval * 10")
    assert volume_error(ran.error).value == 20
    assert NOT_UPLOADED in str(ran.error)
    assert notebook["val"] == 2
    assert ran.shown_error.startswith("VolumeError: The cell has ended on node 0")


def test_expression_has_its_value_in_the_error(notebook: Notebook) -> None:
    ran = notebook("%sky! --on 0 (sky.volume('/data') / 'new0.txt').write_text('text')")
    assert volume_error(ran.error).value == 4


def test_cell_on_all_nodes_binds_its_lists(notebook: Notebook) -> None:
    ran = notebook(f"%%sky --on all\n{WRITE}node = int(os.environ['SKYWARD_NODE'])")
    volume_error(ran.error)
    assert "On node 1, 1 file could not be uploaded: s3://doomed/train/new1.txt; " in notes(ran.error)
    assert notebook["node"] == [0, 1]


def test_cell_on_all_nodes_raises_its_own_error(notebook: Notebook) -> None:
    ran = notebook(f"%%sky --on all\n{WRITE}node = int(os.environ['SKYWARD_NODE'])\nassert node == 1, 'own'")
    assert isinstance(ran.error, AssertionError)
    assert f"Beside this error, on node 0, {NOT_UPLOADED}" in notes(ran.error)
    assert notebook["node"][1] == 1


def test_map_binds_its_lists(notebook: Notebook) -> None:
    notebook("items = [1, 2, 3]")
    ran = notebook(f"%%sky --map items\n{WRITE}tenfold = items * 10")
    assert isinstance(ran.error, sky.VolumeError)
    assert notebook["tenfold"] == [10, 20, 30]


def test_other_runs_of_a_gang_go_on(notebook: Notebook, tmp_path: Path) -> None:
    go = tmp_path / "go"
    handle = notebook(
        f"%%sky --gang 2 --noblock\nimport os, time\nnode = int(os.environ['SKYWARD_NODE'])\n"
        f"if node == 0:\n    (sky.volume('/data') / 'new0.txt').write_text('text')\n"
        f"while node == 1 and not os.path.exists({str(go)!r}):\n    time.sleep(0.01)\nover = node"
    ).result
    wait_for(lambda: handle.progress == (1, 2), "the end of the run on node 0")
    go.touch()
    ran = notebook("_.result()")
    volume_error(ran.error)
    assert sorted(notebook["over"]) == [0, 1]


def test_background_cell_binds_its_variables(notebook: Notebook) -> None:
    notebook(f"%%sky --noblock --on 0\n{WRITE}late = 7\nlate + 1")
    ran = notebook("_.result()")
    assert volume_error(ran.error).value == 8
    assert notebook["late"] == 7


@pytest.mark.parametrize("options", ["", "--noblock"])
def test_stream_ends_with_the_error_after_its_elements(notebook: Notebook, options: str) -> None:
    ran = notebook(f"%%sky --on 0 {options}\n{WRITE}for i in range(3):\n    yield i\nlast = i")
    if options:
        ran = notebook("found = []\nfor each in _: found.append(each)")
        assert notebook["found"] == [0, 1, 2]
    else:
        assert ran.out == "0\n1\n2\n"
    volume_error(ran.error)
    assert notebook["last"] == 2


def test_stream_raises_its_own_error(notebook: Notebook) -> None:
    ran = notebook(f"%%sky --on 0\n{WRITE}yield 1\nraise ValueError('no more')")
    assert isinstance(ran.error, ValueError)
    assert f"Beside this error, {NOT_UPLOADED}" in notes(ran.error)


def test_function_raises_the_error_with_its_value(pools: PoolManager) -> None:
    @sky.function
    def run_cell() -> int:
        """Write a file; its name is that of the function that runs cells."""
        return (sky.volume("/data") / "new0.txt").write_text("text")

    with pytest.raises(sky.VolumeError, match=r"run_cell\(\) has ended.* What it returned is in `error.value`") as own:
        run_cell() >> pools.get("default")
    assert own.value.value == 4


@pytest.mark.parametrize(("status", "exits"), [(0, 1), (3, 3)])
@pytest.mark.parametrize("nodes", [1, 2])
def test_script_keeps_its_output_and_its_status(tmp_path: Path, nodes: int, status: int, exits: int) -> None:
    with object_store(name="doomed") as bucket, FaultyProxy(bucket.store.url) as proxy:
        proxy.add(Mistake("PUT", "new.txt", status=403, body=xml_error("AccessDenied")))
        (tmp_path / "skyward.toml").write_text(storage_table(proxy.url))
        (tmp_path / "writing.py").write_text(SCRIPT)
        options = f"--quiet --nodes {nodes} --on {'all' if nodes > 1 else 'one'}"
        with terminal_in(tmp_path, SKYWARD_CACHE_DIR=str(tmp_path / "cache")) as terminal:
            command = f"skyward run writing.py {options} --volume mine://doomed/train:/data:sync -- {status}"
            done = terminal.run(command, to_files=True)
    assert done.status == exits
    assert done.text.count("written\n") == nodes
    for node in range(nodes):
        ended = (
            f"skyward run: writing.py has ended on node {node}, but 1 file could not be uploaded: s3://doomed/train/"
        )
        assert done.errors.count(ended) == 1
    assert "run_script" not in done.errors
