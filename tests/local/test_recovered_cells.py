"""Cells of a killed kernel: a new kernel, or a script, gets what they computed."""

import sys
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from tests.local.kernel import Kernel, started
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.usefixtures("own_journal"),
    pytest.mark.local,
    pytest.mark.timeout(180),
    pytest.mark.skipif(sys.platform != "linux", reason="nodes outlive their client on Linux"),
]

OPEN = """
import numpy
import skyward as sky
image = sky.Image(env={{"GO": "{go}"}})
worker = sky.Worker(concurrency=8)
pool = sky.Compute(provider=sky.Local(outlives=True), image=image, name="left", ttl=60, worker=worker).open()
d = {{"a": 1}}
array = numpy.zeros(3)
"""

WAIT = """
import os, time
open(os.environ["GO"] + "-{name}", "w").close()
while not os.path.exists(os.environ["GO"]):
    time.sleep(0.01)
"""

ASSIGNS = """
d["b"] = 2
{wait}
weights = [1, 2, 3]
pair = [weights, d]
view = array[:2]
def double(n):
    return 2 * n
len(weights)
"""

CELLS = {
    "assigns": ASSIGNS,
    "fails": '{wait}\nbefore = {{1, 2}}\n{{}}["missing"]',
    "stopped": "early = 1\n{wait}\nwhile True:\n    time.sleep(0.01)",
    "yields": "{wait}\nfor number in range(3):\n    yield [number]\ntotal = number",
}
SEVERAL = "{wait}\nsquare = several * several\nsquare + 1"


def killed_kernel(kernel: Kernel, go: Path) -> None:
    """Run the cells in a kernel and kill it while they run; then let them end."""
    opened = kernel(OPEN.format(go=go))
    assert "error" not in opened.types, opened.error
    for name, code in CELLS.items():
        sent = kernel("%%sky --pool left --noblock\n" + code.format(wait=WAIT.format(name=name)))
        assert "error" not in sent.types, sent.error
    kernel("several = [3, 4]")
    several = SEVERAL.format(wait=WAIT.format(name="several").replace('several"', 'several" + str(several)'))
    sent = kernel(f"%%sky --pool left --noblock --map several\n{several}")
    assert "error" not in sent.types, sent.error
    names = [*CELLS, "several3", "several4"]
    wait_for(lambda: all(Path(f"{go}-{name}").exists() for name in names), "the cells to run")
    kernel.kill_and_restart()
    go.touch()


def test_restarted_kernel_binds_what_its_cells_computed(tmp_path: Path) -> None:
    with started() as kernel:
        killed_kernel(kernel, tmp_path / "go")
        kernel("pool = %sky attach left\nassigns, fails, stopped, yields, three, four = pool.recovered")
        assigns = kernel("assigns.result(30)")
        assert assigns.data == ["3"]
        assert assigns.text("stderr") == (
            "pair and view refer to objects of the former process, which are gone: placeholders are in their places.\n"
            "The cell changed d in place. These changes are lost: it was in the memory of the former process, which is "
            "gone.\n"
        )
        bound = kernel("print(weights, pair[0] is weights, pair[1], view, double(4))")
        gone = "<an object of the former process, which is gone>"
        assert bound.text() == f"[1, 2, 3] True {gone} {gone} 8\n"
        kernel("weights = 'rebound'")
        assert kernel("assigns.result(), weights").data == ["(3, 'rebound')"], "a second call bound them again"
        assert kernel("fails.result(30)").error[0] == "KeyError"
        assert kernel("before, fails.state, type(fails.future.exception())").data == ["({1, 2}, 'failed', KeyError)"]
        assert kernel("fails.variables()").data == ["{'before': {1, 2}}"]
        assert kernel("list(yields.items()), total").data == ["([[0], [1], [2]], 2)"]
        assert kernel("three.result(30), four.result(30), 'square' in globals()").data == [
            "({'square': 9, '_': 10}, {'square': 16, '_': 17}, False)"
        ], "one run of several was bound as if it were the whole cell"
        stopped = "\n".join(kernel("stopped.cancel()\nstopped.result(30)").error[1])
        assert "TaskCancelledError" in stopped
        assert "The cell was cancelled on node 0." in stopped
        assert kernel("stopped.variables()").data == ["{'early': 1}"]
        refused = kernel("assigns.items()").error[1]
        assert refused[-1].endswith("This cell yields no elements: take the result with `.result()`."), refused


def test_script_gets_what_the_cells_of_a_killed_kernel_computed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with started() as kernel:
        killed_kernel(kernel, tmp_path / "go")
    with sky.attach("left") as pool:
        assigns, fails, stopped, yields, three, _ = pool.recovered
        found = assigns.result(30)
        assert found.keys() == {"weights", "pair", "view", "double", "_"}
        assert (found["weights"], found["double"](4), found["_"]) == ([1, 2, 3], 8, 3)
        assert assigns.variables() is found
        assert "The cell changed d in place. These changes are lost" in capsys.readouterr().err
        with pytest.raises(KeyError, match="missing") as raised:
            fails.result(30)
        assert raised.value.__notes__ == [".variables() has what the cell had assigned before: before."]
        assert fails.variables() == {"before": {1, 2}}
        stopped.cancel()
        with pytest.raises(sky.TaskCancelledError, match=r"The cell was cancelled on node 0\.") as ended:
            stopped.result(30)
        assert ended.value.__notes__ == [".variables() has what the cell had assigned when it was stopped."]
        assert stopped.variables() == {"early": 1}
        assert list(yields.items()) == [[0], [1], [2]]
        assert yields.result()["total"] == 2
        assert twice(three.future) >> pool == {"square": 9, "_": 10, "twice": 20}


@sky.function
def twice(found: Any) -> dict[str, int]:
    return {**found, "twice": 2 * found["_"]}
