"""Pools that code opens in a notebook: all views, magics and controls include them, and either side can close them."""

from collections.abc import Iterator

import pytest

from tests.local.kernel import Kernel, started
from tests.local.test_panel import Panel, panel

__all__ = ["panel"]

pytestmark = [pytest.mark.local, pytest.mark.notebooks]


@pytest.fixture(scope="module")
def running() -> Iterator[Kernel]:
    with started() as kernel:
        kernel("import os\nimport skyward as sky\n%config SkyMagics.progress_after = 0.0")
        yield kernel


@pytest.fixture
def kernel(running: Kernel) -> Iterator[Kernel]:
    """A kernel without pools."""
    yield running
    running("%sky down --all")


def test_pool_of_code_is_known_to_every_magic(kernel: Kernel) -> None:
    opening = kernel("print('before')\npool = sky.Compute(name='train', nodes=2)\n_ = pool.open()")
    assert opening.text() == "before\n"
    assert opening.data[0].startswith("Opening pool 'train': 0 of 2 nodes ready, ")
    last = [out["data"]["text/plain"] for out in opening.outputs if out["type"] == "update_display_data"][-1]
    assert last.startswith("Pool 'train': 2 nodes ready in ")
    status = kernel("%sky status").text()
    assert status.splitlines()[1].split()[:6] == ["train", "ready", "local", "2", "of", "2"]
    cell = kernel("%%sky --pool train --on all\nimport os\nwho = os.getpid()")
    assert cell.types == []
    assert kernel("sorted(who) == sorted(sky.function(os.getpid)() @ pool)").data == ["True"]
    assert kernel("%%sky --pool train --nodes 2\n1").data == ["1"]
    assert kernel("%%sky --pool train --nodes 3 --vcpus 64\n1").error == (
        "SpecError",
        [
            "SpecError: Pool 'train' has --nodes 2, not 3; --vcpus none, not 64: close it with `%sky down train` and "
            "run this again to replace it, or use another pool with `--pool NAME`."
        ],
    )
    assert kernel("%sky scale train 1\npool.requested_nodes").data == ["Nodes(min=1, max=None, desired=None)"]
    kernel("pool.resize((1, 3))")
    assert kernel("%%sky --pool train --nodes 1:3\n1").data == ["1"]
    assert "run_cell" not in kernel("%sky tasks train").text()
    assert kernel("%sky down train\npool").data[0].startswith("train: closed")


def test_closing_in_code_closes_the_pool_of_the_kernel(kernel: Kernel) -> None:
    kernel("pool = sky.Compute(name='train').open()\npool.close()")
    assert kernel("%sky status").text() == "There are no pools. A cell with %%sky opens one.\n"
    inside = kernel("with pool:\n    %sky pools")
    assert inside.text().splitlines()[1].split()[:2] == ["train", "ready"]
    assert kernel("%sky pools").text() == "There are no pools. A cell with %%sky opens one.\n"
    kernel("made = %sky up made\nmade.close()")
    assert kernel("%sky pools").text() == "There are no pools. A cell with %%sky opens one.\n"


def test_second_pool_of_a_name_is_refused(kernel: Kernel) -> None:
    kernel("pool = sky.Compute(name='train').open()")
    name, shown = kernel("sky.Compute(name='train').open()").error
    assert name == "UsageError"
    assert "There is a pool 'train' in this kernel already" in shown[-1]
    assert kernel("%sky pools").text().count("train") == 1
    kernel("with sky.Compute() as unnamed:\n    name = unnamed.name\n    %sky pools")
    assert kernel("name[:5]").data == ["'pool-'"]


def test_pool_named_default_is_used_by_cells(kernel: Kernel) -> None:
    kernel("pool = sky.Compute(name='default').open()\n@sky.function\ndef who():\n    return os.getpid()")
    kernel("%%sky\nimport os\nhere = os.getpid()")
    assert kernel("here == who() >> sky").data == ["True"], "it is not the current pool"


def test_pools_of_code_are_known_before_loading_and_stay_after_unloading_the_extension() -> None:
    with started() as kernel:
        kernel("import skyward as sky\n%unload_ext skyward\npool = sky.Compute(name='train').open()")
        assert kernel("%load_ext skyward\n%sky pools").text().splitlines()[1].split()[:2] == ["train", "ready"]
        kernel("made = %sky up made")
        kernel("%unload_ext skyward")
        assert kernel("pool.is_open, made.is_open").data == ["(True, False)"]


def test_restart_leaves_pools_of_code_except_those_of_a_with_block() -> None:
    outlives = "provider=sky.Local(outlives=True), ttl=300"
    with started() as kernel:
        kernel("import skyward as sky\nfrom skyward_kernel.pools import resident")
        kernel(f"left = sky.Compute(name='left', {outlives}).open()\nheld = sky.Compute(name='held', {outlives})")
        kernel("held.__enter__()")
        assert kernel("resident().leave()").data == ["['left']"]
        kernel("held.close()")
        kernel.kill_and_restart()
        kernel("%config SkyMagics.progress_after = 0.0")
        refused = kernel("import skyward as sky\nwith sky.Compute(name='left'): sky.attach('left')").error
        assert refused[0] == "UsageError"
        assert "There is a pool 'left' in this kernel already: " in refused[1][-1]
        cell = kernel("pool = sky.attach('left')")
        assert cell.data[0].startswith("Opening pool 'left': ")
        assert kernel("%sky pools").text().splitlines()[1].split()[:2] == ["left", "ready"]
        again = kernel("%sky attach left").error[1][-1]
        assert again == ("UsageError: This kernel has pool 'left' already: use it, there is nothing to attach to.")
        kernel("pool.close()")


def test_panel_shows_a_pool_of_code_while_the_cell_that_opens_it_runs(panel: Panel) -> None:
    cell = panel.run(
        "import skyward as sky, time\nwith sky.Compute(name='train') as pool:\n    while pool.is_open: time.sleep(0.01)"
    )
    panel.until(lambda: panel.rows("pools", name="train", state="ready"), "the pool")
    assert panel.rows("nodes", pool="train", state="active")
    stopped = panel.run_command("down", pool="train")
    answer = {"id": stopped, "text": "Pool 'train' is closed."}
    panel.until(lambda: any(answer.items() <= message.items() for message in panel.messages), "the end of the pool")
    panel.until(lambda: cell in panel.idle, "the end of the cell")
    assert cell not in panel.errors
    panel.until(lambda: not panel.rows("pools", name="train"), "the panel to be updated")


def test_kept_values_survive_a_restart_that_drops_their_handles() -> None:
    with started() as kernel:
        kernel("import skyward as sky\nfrom skyward_kernel.pools import resident")
        kernel("left = sky.Compute(name='left', provider=sky.Local(outlives=True), ttl=300).open()")
        kernel("%%sky --pool left --keep model\nmodel = {'a': 1}")
        assert kernel("resident().leave()").data == ["['left']"]
        kernel("import gc\ndel model\ngc.collect()\nleft.snapshot()")
        kernel.kill_and_restart()
        kernel("import skyward as sky\npool = sky.attach('left')")
        kernel("model = %sky kept model")
        assert kernel("model.fetch()").data == ["{'a': 1}"]
        kernel("pool.close()")
