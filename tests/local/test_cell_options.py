"""Options of cells, in a real kernel: ranks, expressions, `--local`, magics, retries, figures, waiting."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from skyward.reporting.interleave import last_version
from tests.local.kernel import Cell, Kernel, started

pytestmark = [pytest.mark.local, pytest.mark.notebooks]


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started() as kernel:
        kernel("import skyward as sky\npool = %sky up --nodes 3")
        yield kernel


def test_on_with_ranks_runs_the_cell_on_those_nodes(kernel: Kernel) -> None:
    cell = kernel("%%sky --on 0,2\nrank = sky.instance_info().node\nprint('hi')")
    shown = map(last_version, cell.text().split("\n"))  # a line may be shown before its end was written
    assert sorted(filter(str.strip, shown)) == ["[node 0] hi", "[node 2] hi"]
    assert kernel("rank").data == ["[0, 2]"]
    assert kernel("%%sky --on 0:2\nsky.instance_info().node").types.count("error") == 0
    assert kernel("_").data == ["[0, 1]"]
    name, lines = kernel("%%sky --on 0:5\n1").error
    assert name == "UsageError"
    assert "has no node 3 or 4; its nodes are 0, 1, 2." in lines[0]


def test_expression_is_the_value_of_the_cell(kernel: Kernel) -> None:
    kernel("n = 20")
    assert kernel("%sky! n + 1").data == ["21"]
    assert kernel("_").data == ["21"]
    kernel("ranks = %sky! --on all sky.instance_info().node")
    assert kernel("ranks").data == ["[0, 1, 2]"]
    assert kernel("%sky! 1 / 0").error[0] == "ZeroDivisionError"


def test_expression_in_a_function_has_its_variables(kernel: Kernel) -> None:
    kernel("p = 100\ndef fn(p):\n    r = %sky! p + 1\n    return r")
    assert kernel("fn(4)").data == ["5"]
    kernel("def every(q):\n    r = %sky! --on all q.append(1) or len(q)\n    return r, q")
    cell = kernel("every([])")
    assert cell.data == ["([1, 1, 1], [])"]
    assert cell.text("stderr").startswith("q changed on nodes 0, 1 and 2, in a separate copy for each run; here it is ")


def test_changes_of_all_nodes_leave_an_object_unchanged(kernel: Kernel) -> None:
    kernel("d = {'n': 0}\nclass Acc: tot = 0")
    cell = kernel("%%sky --on all\nd['n'] += 1; Acc.tot += 1")
    assert cell.text("stderr").startswith("d and Acc changed on nodes 0, 1 and 2, in a separate copy for each run; ")
    assert kernel("d, Acc.tot").data == ["({'n': 0}, 0)"]


def test_names_in_strings_are_found_on_the_node(kernel: Kernel) -> None:
    kernel("alpha = 1\ndef look(name): return globals().get(name, 'missing')")
    cell = kernel("%%sky\ngot = [globals().get('alpha'), look('alpha'), eval('alpha + 1'), 'nothing' in dir()]\ngot")
    assert cell.data == ["[1, 1, 2, False]"]
    assert cell.text("stderr") == ""
    notice = kernel("%%sky\nnames = sorted(globals())").text("stderr")
    assert notice.startswith("line 2: globals() finds only those variables of the notebook that the cell reads")
    assert notice.count("\n") == 1


def test_cell_without_code_sends_nothing(kernel: Kernel) -> None:
    assert kernel("%%sky --pool never\n# off for now").outputs == []
    assert kernel("%%sky --pool never").outputs == []
    assert "never" not in kernel("%sky pools").text()


def test_local_cell_is_a_plain_one(kernel: Kernel) -> None:
    cell = kernel("%%sky --local\nimport os\nhere = os.getpid()\nprint('out')\nhere > 0")
    assert cell.types == ["stream", "execute_result"]
    assert kernel("here == os.getpid()").data == ["True"]
    name, lines = kernel("%%sky --local\n\n1 / 0").error
    assert name == "ZeroDivisionError"
    assert "skyward" not in "".join(lines)


def test_magics_run_on_the_node_and_bind_in_the_notebook(kernel: Kernel) -> None:
    kernel("import os\ndef node(): return os.environ.get('SKYWARD_NODE') is not None")
    assert kernel("%%sky\n%time there = node()").text().startswith("CPU times: user ")
    assert kernel("there").data == ["True"]
    assert "per loop" in kernel("%%sky\n%%timeit -n 2 -r 2\nnode()").text()
    cell = kernel("%%sky\n%%bash\necho $((6 * 7))\necho oops >&2")
    assert (cell.text(), cell.text("stderr")) == ("42\n", "oops\n")
    ran = kernel("%%sky\nclass Shows:\n    def _ipython_display_(self): print('ipd')\ndisplay(Shows())\nShows()")
    assert (ran.text(), ran.data) == ("ipd\nipd\n", [])
    name, lines = kernel("%%sky\n%%time\n\nlate = 1\n1 / 0").error
    assert name == "ZeroDivisionError"
    assert "line 5" in "".join(lines)
    assert kernel("late").data == ["1"]


def test_cell_that_raises_is_retried(kernel: Kernel, tmp_path: Path) -> None:
    kernel(f"log = {str(tmp_path / 'log')!r}")
    cell = kernel(
        "%%sky --retries 3\nopen(log, 'a').write('.')\nk = len(open(log).read())\nif k < 3: raise ValueError(k)\nk"
    )
    assert cell.data == ["3"]
    assert cell.text("stderr") == "The cell was retried 2 times, the last time because it raised ValueError: 2.\n"
    assert kernel("k").data == ["3"]
    cell = kernel("%%sky --retries 1\nopen(log, 'a').write('.')\n1 / 0")
    assert cell.error[0] == "ZeroDivisionError"
    assert (tmp_path / "log").read_text() == "....."
    kernel("%%sky --retries 5\nopen(log, 'a').write('.')\nraise SystemExit(1)")
    assert (tmp_path / "log").read_text() == "......"


def test_returned_figure_is_a_picture(kernel: Kernel) -> None:
    pytest.importorskip("matplotlib")
    kernel("%%sky\nfrom matplotlib.figure import Figure\nfig = Figure()\nfig.subplots().plot([1, 2]);")
    (shown,) = kernel("fig").outputs
    assert set(shown["data"]) == {"text/plain", "image/png"}
    (shown,) = kernel("%sky! fig").outputs
    assert set(shown["data"]) == {"text/plain", "image/png"}
    assert kernel("import sys; 'matplotlib.pyplot' in sys.modules").data == ["False"]


def test_defaults_apply_to_every_cell(kernel: Kernel) -> None:
    kernel("%config SkyMagics.on = 'all'")
    kernel("%%sky\nrank = sky.instance_info().node")
    assert kernel("rank").data == ["[0, 1, 2]"]
    assert kernel("%%sky --on 1\nsky.instance_info().node").data == ["1"]
    kernel("%config SkyMagics.on = 'one'")


def test_scale_can_wait_and_an_interrupt_ends_only_the_wait(kernel: Kernel) -> None:
    assert kernel("%sky scale 4 --wait").text() == "Pool 'default' has 4 nodes.\n"
    assert kernel("sum(node.state == 'active' for node in pool.snapshot().nodes)").data == ["4"]
    kernel("slow = sky.Compute(name='slow', provider=sky.Local(boot_time=600), nodes=(0, 2))\nslow.open();")

    def waits(cell: Cell) -> bool:
        return any("Pool 'slow': 0 of 1 node ready" in text for text in cell.data)

    name, lines = kernel("%sky scale slow 1:2 --wait", interrupt_when=waits).error
    assert name == "KeyboardInterrupt"
    assert lines == ["Interrupted: pool 'slow' keeps scaling to 1:2 nodes."]
    assert kernel("slow.snapshot().desired").data == ["1"]
    kernel("slow.close()")


def test_interrupted_cell_is_not_retried(kernel: Kernel, tmp_path: Path) -> None:
    log = tmp_path / "runs"
    cell = kernel(
        f"%%sky --retries 3\nimport time\nopen({str(log)!r}, 'a').write('.')\nwhile True: time.sleep(0.01)",
        interrupt_when=lambda _: log.exists(),
    )
    assert cell.error[0] == "KeyboardInterrupt"
    assert kernel("%%sky --on all\n1").types.count("error") == 0  # every node has a free slot
    assert log.read_text() == "."


def test_gang_runs_the_cell_several_times_at_once(kernel: Kernel) -> None:
    cell = kernel("%%sky --gang 3 --placement strict_spread\ninfo = sky.instance_info()\nrank = info.gang.rank\nrank")
    assert cell.data[-1] == "[0, 1, 2]", "the value follows the progress, if that was shown"
    assert kernel("rank, sorted(each.node for each in info)").data == ["([0, 1, 2], [0, 1, 2])"]
    kernel("values = %sky! --gang 2 sky.shard([1, 2, 3, 4])")
    assert kernel("values").data == ["[[1, 3], [2, 4]]"]


def test_error_of_one_run_of_a_gang_stops_the_others(kernel: Kernel) -> None:
    cell = kernel(
        "%%sky --gang 2\nimport time\nif sky.instance_info().gang.rank: raise ValueError('one failed')\n"
        "while True: time.sleep(0.01)"
    )
    assert cell.error[0] == "ValueError"


def test_timeout_of_a_gang_is_a_timeout_whichever_run_reaches_it_first(kernel: Kernel) -> None:
    cell = kernel("%%sky --gang 2 --timeout 1\nreached = 1\nimport time\nwhile True: time.sleep(0.01)")
    name, lines = cell.error
    assert name == "TaskTimeoutError"
    assert "past its timeout of 1 s" in lines[0]
    assert kernel("reached").data == ["[1, 1]"]


def test_footer_of_a_gang_that_timed_out_counts_every_run(kernel: Kernel) -> None:
    """One run is told to stop by the timeout, and stops the others: each of them ran past it."""
    kernel("%config SkyMagics.footer = True")
    for _ in range(3):
        cell = kernel("%%sky --gang 3 --timeout 0.5\nimport time\nwhile True: time.sleep(0.01)")
        assert cell.error[0] == "TaskTimeoutError"
        assert cell.data[-1].endswith(", 3 of 3 timed out")
    cell = kernel(
        "%%sky --gang 3\nimport time\nif not sky.instance_info().gang.rank: 1 / 0\nwhile True: time.sleep(0.01)"
    )
    assert cell.error[0] == "ZeroDivisionError"
    assert cell.data[-1].endswith(", 1 of 3 failed, 2 stopped")
    kernel("%config SkyMagics.footer = False")


def test_lines_of_runs_of_a_gang_on_one_node_are_told_apart(kernel: Kernel) -> None:
    cell = kernel("%%sky --pool wide --concurrency 2 --gang 2\nprint('rank', sky.instance_info().gang.rank)")
    shown = sorted(filter(str.strip, map(last_version, cell.text().split("\n"))))
    assert [line.partition(", ")[2] for line in shown] == ["rank 0] rank 0", "rank 1] rank 1"]
    assert {line.partition(", ")[0] for line in shown} == {"[node 0"}


def test_gang_that_does_not_fit_is_refused(kernel: Kernel) -> None:
    name, lines = kernel("%%sky --gang 40\n1").error
    assert name == "NoGroupFitsError"
    assert "40 tasks at once" in lines[0]
    assert not any("runs failed" in line for line in lines), "it never ran"
    assert kernel("%%sky --gang 2 --on all\n1").error[0] == "UsageError"
    assert kernel("%%sky --gang 2\nyield 1").error[0] == "UsageError"
    name, lines = kernel("%%sky --gang 2 --by-node\n1").error
    assert name == "UsageError"
    assert "cannot be combined with --gang" in lines[0]
