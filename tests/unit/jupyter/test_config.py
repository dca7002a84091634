"""Effects of `skyward.toml`, the user's file and traits on cells and pools, and the output of `%sky config`."""

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets import TraitError
from traitlets.config import Config

from skyward.accelerators import parse_accelerator
from skyward.commands.reading import PLACES
from skyward.commands.table.pool_options import POOL_LABELS
from skyward.config.pools import configured_values
from skyward.functions.target import current_pool
from skyward.pool.compute import Compute
from skyward.specs import Image, Nodes
from skyward_jupyter.magics.sky_magics import SkyMagics
from skyward_kernel.pools import PoolManager
from tests.unit.config.conftest import Write, project, user
from tests.unit.jupyter.conftest import FakeCompute, Notebook

pytestmark = pytest.mark.unit

__all__ = ["project", "user"]  # fixtures

type Pools = type[FakeCompute]


@pytest.fixture(autouse=True)
def _progress_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enable progress: the environment of the tests may have disabled it."""
    monkeypatch.delenv("SKYWARD_PROGRESS", raising=False)


@pytest.fixture
def pools(compute: Pools) -> PoolManager:
    """Pools with configured defaults, like those of a kernel."""
    return PoolManager(compute, POOL_LABELS, configured_values)  # type: ignore[arg-type]  # a fake Compute


PROJECT = """
    [cells]
    pool = "train"
    timeout = "1h"

    [defaults]
    nodes = 2
    image.env = {TOKEN = "secret"}

    [pools.train]
    nodes = "2:8"
    accelerator = "A100"
    provider = "local"

    [pools.small]
    vcpus = 1
    """


def test_cell_uses_the_pool_of_the_file(notebook: Notebook, compute: Pools, project: Write) -> None:
    project(PROJECT)
    notebook("%%sky\nx = 1")
    notebook("%%sky --pool small --nodes 3 --pip numpy\nx = 1")
    notebook("%%sky --pool other --timeout 5\nx = 1")
    train, small, other = compute.made
    assert (train.name, train.spec.nodes, train.spec.accelerator) == ("train", Nodes(2, 8), parse_accelerator("A100"))
    assert (small.spec.nodes, small.spec.vcpus) == (Nodes(3), 1)
    assert small.spec.image == Image(pip=["numpy"], env={"TOKEN": "secret"})
    assert other.spec.nodes == Nodes(2)
    assert [pool.sent[0][0].timeout for pool in compute.made] == [3600, 3600, 5]


def test_open_pool_is_unaffected_by_changes_of_the_file(notebook: Notebook, compute: Pools, project: Write) -> None:
    project(PROJECT)
    notebook("%%sky\nx = 1")
    project(PROJECT.replace("2:8", "4:8"))
    assert notebook("%%sky\nx = 2").error is None
    assert len(compute.made) == 1
    notebook("%sky down")
    notebook("%%sky\nx = 3")
    assert compute.made[1].spec.nodes == Nodes(4, 8)


def test_commands_use_the_default_pool_of_cells(notebook: Notebook, compute: Pools, project: Write) -> None:
    project(PROJECT)
    notebook("%sky up")
    notebook.magics.put_in_scope()
    assert current_pool.get() is not None
    assert notebook("%sky scale 3").out == "Scaling pool 'train' to 3 nodes.\n"
    assert notebook("%sky down").out == "Pool 'train' is closed.\n"


def test_invalid_file_stops_cells_but_pools_can_be_closed(notebook: Notebook, compute: Pools, project: Write) -> None:
    project(PROJECT)
    notebook("%%sky\nx = 1")
    path = project("[cells]\npool = = 1")
    assert notebook("%%sky\nx = 2").shown_error == (
        f"SpecError: {path} is not TOML: invalid value (at line 2, column 8). Fix or remove the file."
    )
    assert notebook("x").result == 1
    assert notebook("%sky down").out == "Pool 'train' is closed.\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("timeout = 'soon'", "timeout takes seconds, or a duration such as '90s' or '1h', but got 'soon'."),
        ("on = '2:2'", f"on takes {PLACES}, but got '2:2'."),
        ("on = true", f"on takes {PLACES}, but got True."),
        ("by_node = 1", "by_node takes true or false, but got 1."),
        ("quiet = 'no'", "quiet takes true or false, but got 'no'."),
        ("retries = -1", "retries takes a whole number, but got -1."),
        ("timeout = 0", "timeout takes seconds, or a duration such as '90s' or '1h', but got 0."),
        ("footer = 'no'", "footer takes true or false, but got 'no'."),
        ("pool = 3", "pool takes the name of a pool, but got 3."),
        ("footers = true", "cells have no such setting; did you mean 'footer'?"),
        ("capture-limit = 3", "cells have no such setting; did you mean 'capture_limit'?"),
    ],
)
def test_invalid_setting_is_named(notebook: Notebook, project: Write, line: str, message: str) -> None:
    project(f"[cells]\n{line}")
    key = line.partition(" ")[0]
    assert notebook("%%sky\n1").shown_error == f"SpecError: skyward.toml:2, cells.{key}: {message}"


def test_traits_override_files_and_files_override_defaults(
    shell: InteractiveShell, pools: PoolManager, project: Write, user: Write
) -> None:
    shell.config = Config(SkyMagics={"progress_after": 2.0, "footer": True})
    project("[cells]\nfooter = false\ncapture_limit = '1MB'\nprogress_after = 9")
    mine = user("[cells]\ncapture_limit = 5\ninterrupt_grace = 3")
    notebook = Notebook(shell, SkyMagics(shell, pools))
    shell.register_magics(notebook.magics)
    notebook("%config SkyMagics.timeout = 20")
    sourced = {name: (each.value, each.source) for name, each in notebook.magics.sourced.items()}
    assert sourced == {
        "pool": ("default", "default"),
        "on": ("one", "default"),
        "by_node": (False, "default"),
        "quiet": (False, "default"),
        "retries": (0, "default"),
        "timeout": (20.0, "c.SkyMagics.timeout"),
        "footer": (True, "c.SkyMagics.footer"),
        "capture_limit": (1_000_000, "skyward.toml:3"),
        "show_progress": (True, "default"),
        "progress_after": (2.0, "c.SkyMagics.progress_after"),
        "interrupt_grace": (3.0, f"{mine}:3"),
    }


def test_config_shows_every_setting_and_its_source(
    notebook: Notebook, project: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = project(PROJECT)
    monkeypatch.setenv("SKYWARD_PROGRESS", "off")
    notebook("%%sky --pip numpy\nx = 1")
    first, cells, train, small = notebook("%sky config").out.split("\n\n")
    assert first == f"read: {path}"
    rows = [line.split(None, 2) for line in (*cells.splitlines(), *train.splitlines(), *small.splitlines())]
    for row in (
        ["cells", "value", "from"],
        ["pool", "train", "skyward.toml:3"],
        ["timeout", "3600", "skyward.toml:4"],
        ["footer", "False", "c.SkyMagics.footer"],
        ["show_progress", "False", "SKYWARD_PROGRESS"],
        ["progress_after", "0.5", "default"],
        ["--nodes", "2:8", "skyward.toml:11"],
        ["--gpu", "A100-80GB", "skyward.toml:12"],
        ["--pip", "numpy", "given when it was opened"],
        ["--env", "TOKEN", "skyward.toml:8"],
        ["--provider", "local", "skyward.toml:13"],
        ["--ttl", "600", "default"],
        ["--vcpus", "1", "skyward.toml:16"],
    ):
        assert row in rows, row
    assert "secret" not in notebook("%sky config small").out
    assert small.splitlines()[0].split() == ["pool", "'small'", "value", "from"]
    assert len(small.splitlines()) == 4


def test_config_of_an_attached_pool_shows_no_secret(
    notebook: Notebook, compute: Pools, project: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = Compute(name="left", nodes=2, image=Image(env={"TOKEN": "secret"}, pip=["numpy"]), budget=5)
    monkeypatch.setattr("skyward.frontends.pools.attach", lambda _, budget: left)
    notebook("pool = %sky attach left")
    rows = [line.split(None, 2) for line in notebook("%sky config left").out.splitlines()]
    for row in (["--nodes", "2"], ["--env", "TOKEN"], ["--pip", "numpy"], ["--budget", "5"]):
        assert [*row, "given when it was opened"] in rows, row
    assert ["--ttl", "600", "default"] in rows
    assert "secret" not in str(rows)


def test_config_without_files_says_so(notebook: Notebook, project: Write) -> None:
    out = notebook("%sky config").out
    assert out.startswith("There is no skyward.toml here or above, and no ~/.skyward/defaults.toml.\n\ncells ")


def test_dry_run_includes_the_settings_of_the_file(notebook: Notebook, project: Write) -> None:
    project(PROJECT)
    out = notebook("%%sky --dry-run --budget 5\n1").out
    assert out == (
        "It would open pool 'train' with --nodes 2:8, --env TOKEN, --gpu A100-80GB, --provider local, "
        "--budget 5. Nothing was sent.\n"
    )


def test_file_sets_nodes_and_retries_of_cells(notebook: Notebook, compute: Pools, project: Write) -> None:
    project("[cells]\non = '0,2'\nretries = 2\nquiet = true\nfooter = true")
    notebook("%sky up --nodes 3")
    assert notebook("%%sky\nx = 1").displays == []
    assert notebook["x"] == [1, 1]
    notebook("%%sky --on 1 --retries 0\nx = 1")
    assert notebook["x"] == 1
    assert [(on, pending.retries.times) for pending, on in compute.made[0].sent] == [((0, 2), 2), (1, 0)]


@pytest.mark.parametrize(("value", "where"), [("'0:2'", (0, 1)), ("1", 1), ("'gpu'", "gpu"), ("'ALL'", "all")])
def test_trait_sets_the_nodes_of_cells(notebook: Notebook, value: str, where: object) -> None:
    notebook(f"%config SkyMagics.on = {value}")
    assert notebook.magics.sourced["on"].value == where
    with pytest.raises(TraitError, match=r"^on takes one, all, head, .*, but got '1:0'\.$"):
        notebook.magics.on = "1:0"
    assert notebook.magics.sourced["on"].value == where
