"""`%%sky` end to end in a plain IPython shell, on real worker processes."""

from collections.abc import Iterator

import pytest

import skyward as sky
from skyward_kernel.pools import PoolManager
from tests.notebook import Notebook, new_notebook
from tests.waiting import wait_for

pytestmark = pytest.mark.local


@pytest.fixture
def notebook(pools: PoolManager) -> Iterator[Notebook]:
    with new_notebook(pools) as notebook:
        notebook.magics.interrupt_grace = 20.0
        assert notebook("%sky up --nodes 2").error is None
        yield notebook


def test_cell_acts_as_if_it_ran_in_the_notebook(notebook: Notebook) -> None:
    notebook("import os\nx = 20\nhere = os.getpid()")
    ran = notebook("%%sky\nimport os\nprint('hello')\ny = x + 1\nthere = os.getpid()\ny * 2")
    assert (ran.out, ran.displays) == ("hello\n", ["42"])
    assert notebook["y"] == 21
    assert notebook["there"] != notebook["here"]


def test_functions_and_classes_of_the_notebook_are_sent(notebook: Notebook) -> None:
    notebook("class Point:\n    def __init__(self, x): self.x = x\ndef double(p): return Point(p.x * 2)\np = Point(4)")
    assert notebook("%%sky\nq = double(p)").error is None
    assert isinstance(notebook["q"], notebook["Point"])
    assert notebook["q"].x == 8


def test_on_selects_all_nodes_or_one(notebook: Notebook) -> None:
    ran = notebook("%%sky --on all\nimport skyward as sky\nrank = sky.instance_info().node\nprint('rank', rank)\nrank")
    assert sorted(ran.out.splitlines()) == ["[node 0] 0", "[node 0] rank 0", "[node 1] 1", "[node 1] rank 1"]
    assert notebook["rank"] == [0, 1]
    for line, rank in (("--on head", 0), ("--on 1", 1)):
        notebook(f"%%sky {line}\nimport skyward as sky\nrank = sky.instance_info().node")
        assert notebook["rank"] == rank
    assert notebook("%%sky --on 7\n1").shown_error == "UsageError: Pool 'default' has no node 7; its nodes are 0, 1."


def test_failure_on_one_node_is_raised_and_counted(notebook: Notebook) -> None:
    ran = notebook("%%sky --on all\nimport skyward as sky\nrank = sky.instance_info().node\n1 / rank")
    assert isinstance(ran.error, ZeroDivisionError)
    assert "[node 1] 1.0" in ran.out
    *_, counted, where = ran.shown_error.splitlines()
    assert counted.startswith("1 of 2 runs failed")
    assert where == "Raised on node 0."


def test_map_returns_values_and_variables_of_many_elements_in_order(notebook: Notebook) -> None:
    notebook("xs = range(200)")
    ran = notebook("%%sky --map xs\nodd = xs % 2\nxs * xs")
    assert ran.result == [x * x for x in range(200)]
    assert notebook["odd"] == [0, 1] * 100
    assert notebook["xs"] == range(200)


def test_stream_displays_its_elements(notebook: Notebook) -> None:
    ran = notebook("%%sky\ntotal = 0\nfor i in range(5):\n    total += i\n    yield i\nlast = i")
    assert ran.out == "0\n1\n2\n3\n4\n"
    assert (notebook["total"], notebook["last"]) == (10, 4)


def test_failing_stream_shows_its_elements(notebook: Notebook) -> None:
    ran = notebook("%%sky\nyield 1\nyield 2\nraise ValueError('no more')")
    assert ran.out.startswith("1\n2\n")
    assert isinstance(ran.error, ValueError)
    assert ran.shown_error.splitlines()[-2] == "ValueError: no more"


def test_timeout_stops_the_cell(notebook: Notebook) -> None:
    shown = notebook("%%sky --timeout 0.2s --on 1\nimport time\ntime.sleep(30)").shown_error
    assert shown == (
        "TaskTimeoutError: The cell ran past its timeout of 0.2 s on node 1 and was stopped there. "
        "Give it more with --timeout, or leave out --timeout."
    )


def test_handle_waits_for_its_cell_and_binds_its_variables(notebook: Notebook) -> None:
    handle = notebook("%%sky --noblock\nz = 6 * 7").result
    assert handle.result(20) is None
    assert (notebook["z"], handle.status, handle.done()) == (42, "done", True)


def test_handle_cancels_its_cell(notebook: Notebook) -> None:
    handle = notebook("%%sky --noblock --on 0\nimport time\ntime.sleep(60)").result
    assert handle.cancel() in ("the work on node 0 was stopped.", "the work had not started on any node.")
    assert handle.done()
    assert handle.status == "cancelled"


def test_module_of_a_cell_missing_on_the_node_is_explained(notebook: Notebook) -> None:
    shown = notebook("%%sky\nimport a_module_that_is_nowhere").shown_error
    assert shown.startswith("MissingModuleError: ")
    assert "--pip" in shown


@pytest.mark.parametrize("call", ["input('name? ')", "sys.stdin.readline()", "list(sys.stdin)"])
def test_input_on_a_node_is_refused(notebook: Notebook, call: str) -> None:
    ran = notebook(f"%%sky\nimport sys\n{call}")
    assert isinstance(ran.error, EOFError)
    assert ran.shown_error.splitlines()[-2] == (
        "EOFError: A node has no keyboard, so nothing can be read from standard input there. "
        "Call input() in the notebook, and pass the answer in a variable."
    )


def test_killed_worker_is_named(notebook: Notebook) -> None:
    notebook("%sky up fragile")
    ran = notebook("%%sky --pool fragile\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    assert ran.shown_error.startswith("NodeLostError: The cell did not finish: node 0 died")
    assert notebook("%%sky --pool fragile\n1").displays == ["1"]
    notebook("%sky down fragile")


def test_data_that_a_node_holds_is_not_sent_again(notebook: Notebook) -> None:
    notebook("big = bytes(17 << 20)")
    first = notebook("%%sky --on all\nn = len(big)").displays[0]
    again = notebook("%%sky --on all\nn = len(big)").displays[0]
    assert "17.0 MiB in all, 17.0 MiB to send" in first
    assert "17.0 MiB in all, 0 B to send" in again


def test_scale_adds_nodes(notebook: Notebook) -> None:
    notebook("%sky up grows")
    assert notebook("%sky scale grows 2").out == "Scaling pool 'grows' to 2 nodes.\n"
    assert "2 (2" not in notebook("%sky status grows").out
    assert notebook("%%sky --pool grows --nodes 2\n1").error is None
    assert notebook("%%sky --pool grows --nodes 1\n1").shown_error.startswith("SpecError: Pool 'grows' has --nodes 2")
    notebook("%sky down grows")


def test_group_of_a_pool_is_scaled_and_waited_for(notebook: Notebook, pools: PoolManager) -> None:
    groups = {name: sky.Spec(vcpus=1, nodes=(0, 2), provider=sky.Local()) for name in ("cpu", "gpu")}
    pools.get_or_open("mixed", {"groups": groups, "autoscale_idle_timeout": 600.0})
    for nodes, group, has in (("1:2", "gpu", "1 node"), ("2:2", "cpu", "2 nodes")):
        ran = notebook(f"%sky scale mixed {nodes} --group {group} --wait --quiet")
        assert ran.out == f"Group {group!r} of pool 'mixed' has {has}.\n"
    assert sorted(node.group for node in pools.get("mixed").snapshot().nodes) == ["cpu", "cpu", "gpu"]
    assert "resized to between 1 and 2 nodes of 'gpu'" in notebook("%sky decisions mixed").out
    assert "  2  cpu  " in notebook("%sky status mixed").out
    assert notebook("%sky scale mixed 1").shown_error.endswith("`%sky scale mixed 1 --group cpu`.")
    notebook("%sky down mixed")


def test_update_changes_the_variables_of_nodes_which_are_replaced(notebook: Notebook, pools: PoolManager) -> None:
    cell = "import os\nstage = os.environ.get('STAGE')"
    notebook("%sky up changes --env STAGE=first")
    ran = notebook("%sky update changes --env STAGE=second")
    assert ran.out == (
        "New nodes of pool 'changes' have --env STAGE with other settings; 1 node is replaced. Until `%sky status` "
        "shows no outdated node, cells may still run on one.\n"
    )
    wait_for(
        lambda: not any(node.outdated for node in pools.get("changes").snapshot().nodes), "the node to be replaced"
    )
    assert notebook(f"%%sky --pool changes\n{cell}").error is None
    assert notebook["stage"] == "second"
    assert notebook("%sky update changes --env STAGE=second").out.endswith("Pool 'changes' is not changed.\n")
    notebook("%sky down changes")


def test_nodes_that_are_to_be_replaced_are_shown_as_outdated(notebook: Notebook) -> None:
    notebook("%sky up changes")
    ran = notebook("%%sky --pool changes --noblock\nimport time\ntime.sleep(50)")
    assert ran.error is None
    notebook("%sky update changes --env STAGE=second")
    assert ", outdated" in notebook("%sky status changes").out
    notebook("%sky down changes")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "",
            "UsageError: %sky update takes the options that change, such as `%sky update default --pip numpy,torch`: "
            "each takes the place of what the pool has now.",
        ),
        ("--group gpu --env A=1", "SpecError: Pool 'default' has no group 'gpu'; it has default."),
        ("--provider local,aws", "SpecError: pool.update takes one provider, which all nodes are launched with: "),
        ("none --env A=1", "UsageError: There is no pool 'none'; there is 'default'."),
        ("--nodes 3", "UsageError: --nodes is an option of %%sky, and %sky update does not take it: leave it out."),
    ],
)
def test_update_that_cannot_be_made_changes_nothing(
    notebook: Notebook, pools: PoolManager, line: str, message: str
) -> None:
    before = pools.get().groups
    assert notebook(f"%sky update {line}").shown_error.startswith(message)
    assert pools.get().groups == before


def test_options_set_process_slots_and_the_environment(notebook: Notebook) -> None:
    cell = "import os\nos.environ['COLOUR']"
    ran = notebook(f"%%sky --pool processes --executor process --concurrency 2 --env COLOUR=green\n{cell}")
    assert ran.displays == ["'green'"]
    notebook("%sky down processes")


def test_cell_uses_its_streams_as_a_script_does(notebook: Notebook) -> None:
    ran = notebook(
        "%%sky\nimport sys, os, io, contextlib, subprocess\nprint('a\\udc80')\n"
        "sys.stdout.buffer.write(b'b\\n')\nos.write(1, b'c\\n')\nprint('d')\n!echo e\n"
        "with contextlib.redirect_stdout(io.StringIO()) as out: print('f')\n"
        "sys.stdout = io.TextIOWrapper(sys.stdout.buffer)\nprint('g', end='')\nf = out.getvalue()"
    )
    assert (ran.error, ran.out, notebook["f"]) == (None, "a\\udc80\nb\nc\nd\ne\ng", "f\n")
    assert notebook("%%sky\nprint('next')").out == "next\n"


def test_lines_without_a_newline_are_shown(notebook: Notebook) -> None:
    ran = notebook("%%sky --on all\nfor n in range(3): print(f'\\r{n}', end='')")
    assert sorted(ran.out.splitlines()) == ["[node 0] 2", "[node 1] 2"]
