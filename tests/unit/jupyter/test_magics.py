"""`%%sky` and `%sky` in a plain IPython shell, on a pool that runs cells in this process."""

import os
import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import skyward as sky
from skyward.config import Config
from skyward.errors import NodeLostError, NodeStartError, SpecError, TaskTimeoutError, UsageError
from skyward.events.decisions import DecisionEvent, DecisionInputs
from skyward.events.metrics import NodeMetrics
from skyward.functions.target import current_pool
from skyward.journal import PoolRecord
from skyward.providers import InstanceType, Offer
from skyward.specs import Needs, Nodes
from skyward.views.settings import shown_value
from skyward_jupyter import load_ipython_extension, unload_ipython_extension
from skyward_jupyter.running.run import NO_LIMIT
from skyward_kernel.commands.registry import COMMANDS
from skyward_kernel.pools import PoolManager
from tests.unit.jupyter.conftest import FakeCompute, FakeRun, Notebook, Ran
from tests.unit.listed_cloud import ListedCloud

pytestmark = pytest.mark.unit

type Pools = type[FakeCompute]


def test_cell_runs_on_a_pool_and_its_variables_are_returned(notebook: Notebook, compute: Pools) -> None:
    notebook("x = 20")
    ran = notebook("%%sky --nodes 2\nprint('hello')\ny = x + 1")
    assert ran.error is None
    assert ran.out == "hello\n"
    assert notebook["y"] == 21
    assert compute.made[0].spec.nodes == Nodes(2)
    notebook("%%sky\ny += 1")
    assert notebook["y"] == 22
    assert len(compute.made) == 1


def test_options_set_nodes_and_timeout(notebook: Notebook, compute: Pools) -> None:
    for line in ("", "--on head", "--on 1", "--timeout 5m"):
        notebook(f"%%sky {line}\n1")
    assert [on for _, on in compute.made[0].sent] == ["one", "head", 1, "one"]
    assert [pending.timeout for pending, _ in compute.made[0].sent] == [NO_LIMIT, NO_LIMIT, NO_LIMIT, 300]


def test_variables_of_the_notebook_are_expanded_in_options(notebook: Notebook, compute: Pools) -> None:
    notebook("n, kind = 3, 'big'")
    assert notebook("%%sky --nodes {n} --pool $kind\n1").error is None
    assert (compute.made[0].name, compute.made[0].spec.nodes) == ("big", Nodes(3))


def test_inputs_and_outputs_can_be_restricted(notebook: Notebook) -> None:
    notebook("x, y = 1, 2")
    assert "UsageError" in notebook("%%sky -i x\nz = x + y").shown_error
    notebook("%%sky -i x,y -o a\na = x + y\nb = 5")
    assert notebook["a"] == 3
    assert "b" not in notebook.shell.user_ns
    assert "--no-capture" in notebook("%%sky --no-capture\nz = x").shown_error


def test_on_all_returns_lists_and_labels_output(notebook: Notebook) -> None:
    ran = notebook("%%sky --nodes 2 --on all\nprint('hi')\nz = 5")
    assert ran.out == "[node 0] hi\n"
    assert notebook["z"] == [5, 5]


def test_map_returns_values_and_variables_in_order(notebook: Notebook) -> None:
    notebook("xs = [1, 2, 3]")
    ran = notebook("%%sky --map xs\nsquare = xs**2\nsquare + 1")
    assert ran.result == [2, 5, 10]
    assert notebook["square"] == [1, 4, 9]
    assert notebook["xs"] == [1, 2, 3]
    assert not [name for name in notebook.shell.user_ns if "skyward" in name]


def test_map_with_restricted_variables_returns_the_result(notebook: Notebook) -> None:
    notebook("xs, k = [1, 2], 10")
    assert notebook("%%sky --map xs -i k -o twice\ntwice = xs * 2\nxs + k").result == [11, 12]
    assert notebook["twice"] == [2, 4]
    assert notebook("%%sky --map xs --no-capture\n(xs,\n xs)").result == [(1, 1), (2, 2)]


def test_map_without_a_last_expression_returns_none(notebook: Notebook) -> None:
    notebook("xs = [1, 2]")
    assert notebook("%%sky --map xs\ny = xs").result is None
    assert notebook("%%sky --map xs\nxs;").result is None
    assert notebook("%%sky --map xs\nprint(xs)").result is None


def test_error_under_map_shows_the_original_line(notebook: Notebook) -> None:
    notebook("xs = [1, 0]")
    ran = notebook("%%sky --map xs\n1 / xs")
    assert isinstance(ran.error, ZeroDivisionError)
    assert "----> 2 1 / xs\n" in ran.shown_error
    assert "1 of 2 runs failed" in ran.shown_error
    assert not [name for name in notebook.shell.user_ns if "skyward" in name]


def test_lost_task_under_map_keeps_the_values_of_the_others(notebook: Notebook, compute: Pools) -> None:
    notebook("xs = [1, 2]")
    notebook("%sky up")
    start = compute.made[0].start

    def second_is_lost(*args: object, **kwargs: object) -> object:
        run = start(*args, **kwargs)  # type: ignore[arg-type]
        if len(compute.made[0].runs) == 2:
            run.future = Future()
            run.future.set_exception(NodeLostError("did not finish: node 1 died.", subject="run_cell()"))
        return run

    compute.made[0].start = second_is_lost  # type: ignore[method-assign, assignment]
    ran = notebook("%%sky --map xs\ny = xs * 10")
    assert isinstance(ran.error, NodeLostError)
    assert ran.shown_error.startswith("NodeLostError: The cell did not finish: node 1 died.")
    assert notebook["y"][0] == 10
    assert isinstance(notebook["y"][1], NodeLostError)


def test_yielded_elements_are_shown_and_variables_are_bound(notebook: Notebook) -> None:
    ran = notebook("%%sky\nfor i in range(3):\n    yield {'step': i}")
    assert ran.out == "{'step': 0}\n{'step': 1}\n{'step': 2}\n"
    assert notebook["i"] == 2


def test_rich_elements_are_displayed(notebook: Notebook) -> None:
    notebook("class Rich:\n    def _repr_html_(self): return '<b>'\n    def __repr__(self): return 'rich'")
    assert notebook("%%sky\nyield Rich()").displays == ["rich"]


@pytest.mark.parametrize("option", ["--map xs", "--on all", "--on 0,1"])
def test_cell_that_yields_requires_a_single_node(notebook: Notebook, option: str) -> None:
    notebook("xs = [1]")
    shown = notebook(f"%%sky {option}\nyield xs").shown_error
    assert option.split()[0] in shown
    assert shown.startswith("UsageError: A cell that yields streams from one node into the notebook")


def test_error_of_the_cell_shows_only_the_traceback_of_the_node(notebook: Notebook) -> None:
    ran = notebook("%%sky\ndone = 1\n1 / 0")
    assert isinstance(ran.error, ZeroDivisionError)
    assert ran.shown_error.splitlines()[2:] == [
        "Cell In[1], line 3",
        "      2 done = 1",
        "----> 3 1 / 0",
        "",
        "ZeroDivisionError: division by zero",
    ]
    assert notebook["done"] == 1


def test_usage_error_is_one_line_and_opens_no_pool(notebook: Notebook, compute: Pools) -> None:
    ran = notebook("%%sky --node 2\n1")
    assert ran.shown_error.splitlines() == [
        "UsageError: %%sky has no option --node; did you mean --nodes?",
        "    %%sky --node 2",
        "          ^^^^^^",
    ]
    assert "Traceback" not in ran.out
    for cell in ("%%sky\n%lsmagic", "%%sky --map nothing\nnothing"):
        assert notebook(cell).shown_error.startswith("UsageError: ")
    notebook("import threading; lock = threading.Lock()")
    assert notebook("%%sky\nlock").shown_error.startswith("NotPicklableError: ")
    notebook("big = bytes(10_000)")
    assert notebook("%%sky --capture-limit 1KiB\nbig").shown_error.startswith("TooLargeError: ")
    assert compute.made == []


def test_mismatch_with_the_open_pool_is_rejected_before_sending(notebook: Notebook, compute: Pools) -> None:
    notebook("%%sky\n1")
    ran = notebook("%%sky --nodes 2\n1")
    assert isinstance(ran.error, SpecError)
    assert ran.shown_error == ("SpecError: Pool 'default' has --nodes 1, not 2: resize it with `%sky scale default 2`.")
    assert len(compute.made[0].sent) == 1


def test_pool_that_fails_to_open_reports_the_reason(notebook: Notebook, compute: Pools) -> None:
    compute.fail = NodeStartError("node 0 did not start: no room")
    assert notebook("%%sky\n1").shown_error == "NodeStartError: node 0 did not start: no room"


@pytest.mark.parametrize(
    "cell", ["\n   \n# off for now\n", "\n   \n", " --nodes 2 --map xs\n# x = xs", " --noblock\n#"]
)
def test_cell_without_code_does_nothing(notebook: Notebook, compute: Pools, cell: str) -> None:
    assert notebook(f"%%sky{cell}") == Ran("", "", None)
    assert compute.made == []


def test_options_of_a_cell_without_code_are_validated(notebook: Notebook) -> None:
    assert isinstance(notebook("%%sky --nodes x\n# off").error, UsageError)


def test_cell_without_code_can_keep_existing_variables(notebook: Notebook, compute: Pools) -> None:
    notebook("model = [1]")
    assert notebook("%%sky --keep model\n# on its node from now on").error is None
    assert len(compute.made[0].sent) == 1


def test_cell_requests_resources_and_capabilities(notebook: Notebook, compute: Pools) -> None:
    notebook("%%sky --resources CPU=4 --timeout 5m\n1")
    notebook("xs = [1, 2]")
    notebook("%%sky --capabilities gpu --map xs\nxs")
    asked = [(pending.needs, pending.timeout) for pending, _ in compute.made[0].sent]
    assert asked == [(Needs({"CPU": 4}), 300), *[(Needs({}, {"gpu"}), NO_LIMIT)] * 2]
    assert notebook("%%sky --dry-run --resources GPU=1\n1").out == (
        "It would run on pool 'default', which is open. It would ask for 1 GPU. Nothing was sent.\n"
    )


def test_timeout_message_names_the_cell(notebook: Notebook, compute: Pools) -> None:
    notebook("%sky up")

    def timed_out(*_: object, runs: list[object], **__: object) -> None:
        run = FakeRun(lambda: None, [0], hold=True)
        run.future.set_exception(
            TaskTimeoutError(
                "ran past its timeout of 1 s on node 0 and was stopped there.",
                subject="run_cell()",
                fix="Give it more with timeout=, or .with_timeout().",
            )
        )
        runs.append(run)

    compute.made[0].start = timed_out  # type: ignore[method-assign, assignment]
    assert notebook("%%sky --timeout 1\n1").shown_error == (
        "TaskTimeoutError: The cell ran past its timeout of 1 s on node 0 and was stopped there. "
        "Give it more with --timeout, or leave out --timeout."
    )


def test_dry_run_shows_the_plan_and_does_nothing(notebook: Notebook, compute: Pools) -> None:
    notebook("data = list(range(1000))")
    ran = notebook("%%sky --dry-run --nodes 2:8 --pip numpy,torch --env KEY=secret\ntotal = sum(data)")
    assert "data" in ran.displays[0]
    assert "returned: total" in ran.displays[0]
    assert ran.out == (
        "It would open pool 'default' with --nodes 2:8, --pip numpy,torch, --env KEY. Nothing was sent.\n"
    )
    assert compute.made == []
    notebook("%sky up")
    out = notebook("%%sky --dry-run --map data\ndata").out
    assert out == "It would run on pool 'default', which is open. It would run 1000 times. Nothing was sent.\n"
    assert notebook("%%sky --dry-run\n1").out == "It would run on pool 'default', which is open. Nothing was sent.\n"
    assert compute.made[0].sent == []


@pytest.mark.parametrize(
    ("limit", "plan"),
    [
        (
            "",
            "It would open pool 'default' with --nodes 1:4, --provider cloud, --gpu A100-80GB. It would launch 1 to 4 "
            "nodes from cloud big here spot (A100:2, 8 vCPUs, 32 GiB) at $1.00 per hour each, $1.00 to $4.00 per hour "
            "in all; 1 other offer fits. Nothing was sent.\n",
        ),
        (
            " --max-cost 0.5",
            "It could launch no machine now: No offer fits the spec: of 1 offer from cloud, max_hourly_cost ",
        ),
    ],
)
def test_dry_run_tells_what_would_be_launched_and_for_how_much(
    notebook: Notebook, compute: Pools, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str, plan: str
) -> None:
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path))
    kind = InstanceType("big", 8, 32, "A100", 2)
    cloud = ListedCloud((Offer("id", kind, 1.0, 3.0, region="here"),))
    monkeypatch.setattr(Config, "provider", lambda *_: cloud)
    out = notebook(f"%%sky --dry-run --provider cloud --nodes 1:4 --gpu A100{limit}\n1").out
    assert plan in out
    assert compute.made == []


def test_dry_run_tells_what_the_pool_would_say_of_its_price(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path))
    cloud = ListedCloud((Offer("id", InstanceType("big", 8, 32, "A100", 2), None, 30.0, region="here"),))
    monkeypatch.setattr(Config, "provider", lambda *_: cloud)
    line = "%%sky --dry-run --provider cloud --nodes 1:4 --gpu A100"
    out = notebook(f"{line} --budget 0.4\n1").out
    assert "But it could not be opened: it cannot afford its first nodes with a budget of $0.40, which must" in out
    assert "may cost $120.00 per hour, which is above the limit of $10.00" in out
    assert "cannot afford" not in notebook(f"{line} --budget 0.6\n1").out


def test_dry_run_without_credentials_says_how_to_give_them(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [each for each in os.environ if each.startswith(("RUNPOD_", "AWS_", "VAST_", "GOOGLE_", "CLOUDSDK_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    out = notebook("%%sky --dry-run --gpu A100\n1").out
    assert "It could launch no machine now: No provider has credentials" in out
    assert "set RUNPOD_API_KEY" in out
    assert "Nothing was sent." in out


def test_providers_are_shown_by_name() -> None:
    assert shown_value("provider", (sky.RunPod(), sky.Local())) == "runpod,local"
    assert shown_value("provider", sky.RunPod()) == "runpod"
    assert shown_value("provider", None) == "local"


def test_large_manifest_is_shown_before_sending(notebook: Notebook) -> None:
    notebook("big = bytes(20_000_000)")
    assert "big" in notebook("%%sky\nn = len(big)").displays[0]
    assert notebook("%%sky --quiet\nn = len(big)").displays == []


# The line magic.


@pytest.mark.parametrize(
    ("by_place", "by_option"),
    [
        ("scale train 3", "scale 3 --pool train"),
        ("scale train 3", "scale --pool=train 3"),
        ("status train", "status --pool train"),
        ("decisions train", "decisions --pool train"),
        ("tasks train", "tasks --pool train"),
        ("config train", "config --pool train"),
        ("reap train", "reap --pool train"),
        ("down train", "down --pool train"),
        ("drain train x", "drain --pool train x"),
        ("drain train", "drain --pool train"),
        ("scale train", "scale --pool train x"),
    ],
)
def test_pool_is_named_by_position_or_by_option(notebook: Notebook, by_place: str, by_option: str) -> None:
    ran = []
    for line in (by_place, by_option):
        notebook("pool = %sky up --pool train --nodes 1:4")
        done = notebook(f"%sky {line}")
        ran.append((done.out, type(done.error), notebook("%sky pools").out))
    assert ran[0] == ran[1]


def test_pool_named_twice_is_rejected(notebook: Notebook, compute: Pools) -> None:
    notebook("pool = %sky up --pool train")
    assert [pool.name for pool in compute.made] == ["train"]
    shown = notebook("%sky down other --pool train").shown_error
    assert shown.startswith("UsageError: %sky down takes [NAME | --all], but got 'train other'.")
    shown = notebook("%sky scale other 3 --pool train").shown_error
    assert shown.startswith("UsageError: %sky scale takes the name of a pool and a number of nodes")


def test_scaling_a_pool_without_budget_says_that_it_waits(
    notebook: Notebook, compute: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook("%sky up")
    failure = "has reached its budget of $5.00; raise the budget to continue"
    spent = replace(compute.made[0].snapshot(), budget_exhausted=True, failure=failure)
    monkeypatch.setattr(compute, "snapshot", lambda _: spent)
    assert notebook("%sky scale 3").out == f"Pool 'default' {failure}.\n"


def test_budget_of_an_open_pool_is_raised_by_opening_it_again(notebook: Notebook, compute: Pools) -> None:
    notebook("%sky up b --budget 0.5 --nodes 1")
    assert notebook("%sky up b --budget 1").out == "The budget of pool 'b' is $1.00 now.\n"
    (pool,) = compute.made
    assert pool.options.budget == 1.0
    assert notebook("%sky up b --budget 0.5").shown_error.startswith("SpecError: Pool 'b' has --budget 1, not 0.5:")
    refused = notebook("%sky up b --budget 2 --vcpus 4").shown_error
    assert refused.startswith("SpecError: Pool 'b' has --vcpus")
    assert pool.options.budget == 1.0
    pool.alive = False
    notebook("%%sky --pool b\n1")
    assert compute.made[1].options.budget == 1.0, "the pool that replaces it has the raised one"


def test_open_pool_without_budget_gets_one_by_opening_it_again(notebook: Notebook, compute: Pools) -> None:
    notebook("%sky up b")
    assert notebook("%sky up b --budget 1").out == "The budget of pool 'b' is $1.00 now.\n"
    (pool,) = compute.made
    assert pool.options.budget == 1.0
    pool.alive = False
    notebook("%%sky --pool b\n1")
    assert compute.made[1].options.budget == 1.0, "the pool that replaces it has it, too"
    compute.made[1].alive = False
    notebook("%sky up b --budget 2")
    assert compute.made[2].options.budget == 2.0, "a pool that does not work is replaced by one with this budget"


def test_pools_are_opened_listed_scaled_and_closed(notebook: Notebook, compute: Pools) -> None:
    assert notebook("%sky pools").out == "There are no pools. A cell with %%sky opens one.\n"
    assert notebook("pool = %sky up train --nodes 2:4\npool").result is compute.made[0]
    assert notebook("%sky pools").out == (
        "pool   state  provider  nodes            queued  running  done  failed\n"
        "train  ready  local     2 of 2 (2 to 4)       0        0     0       0\n"
    )
    assert notebook("%sky scale train 3").out == "Scaling pool 'train' to 3 nodes.\n"
    assert notebook("%sky status train").out == (
        "pool   state  provider  nodes   queued  running  done  failed\n"
        "train  ready  local     3 of 3       0        0     0       0\n"
        "\n"
        "node  state  tasks   address\n"
        "   0  idle   0 of 1  127.0.0.1\n"
        "   1  idle   0 of 1  127.0.0.2\n"
        "   2  idle   0 of 1  127.0.0.3\n"
    )
    notebook("%sky up")
    assert "nodes of default:\n" in notebook("%sky status").out
    assert notebook("%sky scale 1").out == "Scaling pool 'default' to 1 node.\n"
    assert notebook("%sky down train").out == "Pool 'train' is closed.\n"
    assert notebook("%sky down --all").out == "Closed: default.\n"
    assert notebook("%sky down --all").out == "There are no pools.\n"


def test_status_shows_utilization_of_nodes(notebook: Notebook, compute: Pools) -> None:
    notebook("%sky up --nodes 3")
    compute.made[0].metrics = {
        0: NodeMetrics("machine", cpu=3.0, cpus=4.0, memory=2_500_000_000, memory_total=16_000_000_000),
        1: NodeMetrics("processes", cpu=0.1, cpus=2.0),
    }
    assert notebook("%sky status default").out.endswith(
        "node  state  tasks   cpu  memory               address\n"
        "   0  idle   0 of 1  75%  2.3 GiB of 14.9 GiB  127.0.0.1\n"
        "   1  idle   0 of 1  5%                        127.0.0.2\n"
        "   2  idle   0 of 1                            127.0.0.3\n"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "%sky",
            f"%sky takes a subcommand: {', '.join(COMMANDS)}; to run a cell on nodes, write %%sky on its first line.",
        ),
        ("%sky stats", "%sky has no subcommand 'stats'; did you mean `%sky status`?"),
        ("%sky status; %sky pools", "A line has one command: write `%sky pools` on a line of its own."),
        ("%sky down a;%sky pools", "A line has one command: write `%sky pools` on a line of its own."),
        ("%%sky --on?\n1", "`%%sky?` explains --on; write it without the question mark here."),
        (
            "%sky 1 + 1",
            f"%sky has no subcommand '1'; there are {', '.join(COMMANDS)}.",
        ),
        (
            "%sky --nodes 2",
            "%sky takes a subcommand before --nodes: `%sky up --nodes ...` opens a pool; "
            "to run a cell on nodes, write %%sky on its first line.",
        ),
        ("%sky up a b", "%sky up takes [NAME] [options], but got 'a b'."),
        ("%sky up --map xs", "--map is an option of %%sky, and %sky up does not take it: leave it out."),
        (
            "%sky up --nodes x",
            "--nodes x: nodes must be N, MIN:MAX or DESIRED/MIN:MAX, such as 4, 2:16 or 3/2:16, but ",
        ),
        ("%sky up 'my pool'", "name must be letters, digits, '-', '_' and '.', at most 63 of them, such as 'training'"),
        ("%sky down nothing", "There is no pool 'nothing'; open it with `%sky up nothing`."),
        ("%sky down a --all", "%sky down takes a name or --all, but got both: leave 'a' or --all out."),
        ("%sky status a b", "%sky status takes [NAME], but got 'a b'."),
        ("%sky pools a", "%sky pools takes no arguments, but got 'a'."),
        ("%sky scale", "%sky scale takes the name of a pool and a number of nodes: `%sky scale default 4`."),
        ("%sky scale a few", "nodes must be N, MIN:MAX or DESIRED/MIN:MAX, such as 4, 2:16 or 3/2:16, but got 'few'."),
        ("%sky scale a 4", "There is no pool 'a'; open it with `%sky up a`."),
        ("%sky help scal", "%sky has no subcommand 'scal'; did you mean 'scale'?"),
        ("%sky help up down", "%sky help takes [COMMAND], but got 'up down'."),
    ],
)
def test_usage_error_of_the_line_magic_is_one_line(notebook: Notebook, line: str, message: str) -> None:
    shown = notebook(line).shown_error
    assert shown.partition(": ")[2].startswith(message)
    assert len(shown.splitlines()) in (1, 3), "a sentence, and possibly the line with the wrong words underlined"


def test_reaping_an_unknown_pool_names_those_of_the_journal(
    notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path))
    assert notebook("%sky reap").out == "No orphaned machines.\n"
    record = PoolRecord.new("train", {}, None, 600)
    shown = notebook("%sky reap nope train").out.splitlines()
    assert shown[0] == "No pool 'nope'; the journal has train."
    assert shown[1].startswith(f"Pool 'train' is not orphaned: process {os.getpid()} on ")
    record.end()


def test_decisions_are_shown_with_reasons_newest_first(
    notebook: Notebook, compute: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook("%sky up")
    none = "There are no scaling decisions for pool 'default' since this kernel opened it, or attached to it.\n"
    assert notebook("%sky decisions").out == none
    monkeypatch.setattr(time, "localtime", time.gmtime)
    sizes = {"default": 1}, {"default": 3}
    grew = DecisionEvent(0.0, "policy", "pressure", DecisionInputs(queued=2), *sizes, "2 queued")
    held = replace(grew, at=61.0, after=grew.before, reason="idle", held_back="cooldown for 20 s more")
    compute.made[0].decided = [grew, held]
    assert notebook("%sky decisions default").out == (
        "time      by      nodes   reason\n"
        "00:01:01  policy  1 -> 1  idle (held back: cooldown for 20 s more)\n"
        "00:00:00  policy  1 -> 3  2 queued\n"
    )


def test_commands_that_show_pools_need_no_name(notebook: Notebook, compute: Pools) -> None:
    compute.report = lambda self: SimpleNamespace(tasks=[])  # type: ignore[attr-defined]
    compute.start_log = lambda self, node: f"log of {self.name} {node}"  # type: ignore[attr-defined]
    assert notebook("%sky tasks").shown_error.startswith("UsageError: There is no pool 'default'")
    notebook("%sky up other")
    assert notebook("%sky tasks").out == "Pool 'other' has had no tasks yet.\n"
    none = "There are no scaling decisions for pool 'other' since this kernel opened it, or attached to it.\n"
    assert notebook("%sky decisions").out == none
    assert notebook("%sky logs 0").out == "log of other 0\n"
    notebook("%sky up more")
    assert notebook("%sky logs 0").shown_error.startswith("UsageError: There is no pool 'default'")
    assert notebook("%sky logs more 0").out == "log of more 0\n"
    assert notebook("%sky tasks").out == "Pool 'other' has had no tasks yet.\nPool 'more' has had no tasks yet.\n"
    event = DecisionEvent(
        0.0, "policy", "pressure", DecisionInputs(queued=2), {"default": 1}, {"default": 3}, "2 queued"
    )
    for pool in compute.made:
        pool.decided = [event]
    titles = [line for line in notebook("%sky decisions").out.splitlines() if line.endswith(":")]
    assert titles == ["decisions of other:", "decisions of more:"]
    assert notebook("%sky decisions more").out.startswith("time ")


@pytest.mark.parametrize("cell", ["%sky help", "%sky --help", "%%sky --help\n1"])
def test_help_lists_options_and_commands(notebook: Notebook, cell: str) -> None:
    out = notebook(cell).out
    for word in ("--nodes", "--map", "--noblock", "%sky up", "%sky cancel", "--capture-limit"):
        assert word in out


@pytest.mark.parametrize("line", ["%sky help scale", "%sky scale --help", "%sky scale a 4 -h"])
def test_help_of_a_command_has_its_usage_and_options(notebook: Notebook, line: str) -> None:
    assert notebook(line).out == (
        "%sky scale [NAME] NODES [--group NAME] [--wait] [--quiet]\n"
        "  change how many nodes a pool has: 4, 2:16; with --wait, wait for them\n"
        "  example: %sky scale default 4\n"
        "\n"
        "Options:\n"
        "  --group NAME  the group whose nodes change, in a pool of several\n"
        "  --wait        return when the nodes are active\n"
        "  --quiet       show no progress\n"
        "  --pool NAME   the name of the pool\n"
    )


def test_help_of_up_lists_the_options_of_pools_and_opens_none(notebook: Notebook, compute: Pools) -> None:
    out = notebook("%sky up --help").out
    assert out.startswith("%sky up [NAME] [options]\n")
    assert "--nodes" in out
    assert "--map" not in out
    assert compute.made == []


# The extension.


def test_loading_and_unloading_are_idempotent(
    shell: InteractiveShell, pools: PoolManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skyward_kernel.pools._resident", pools)
    untyped: Any = shell
    for _ in range(2):
        load_ipython_extension(shell)
    pool = pools.get_or_open()
    assert "sky" in shell.magics_manager.magics["cell"]
    assert untyped.transform_cell("%%sky --on all") == "get_ipython().run_cell_magic('sky', '--on all', '\\n')\n"
    assert shell.check_complete("%%sky")[0] == "incomplete"
    for _ in range(2):
        unload_ipython_extension(shell)
    assert not pool.is_open
    assert "sky" not in shell.magics_manager.magics["cell"]
    assert "sky" not in shell.magics_manager.magics["line"]
    assert untyped.transform_cell("%%sky") == "get_ipython().run_cell_magic('sky', '', '')\n"
    load_ipython_extension(shell)
    assert "sky" in shell.magics_manager.magics["line"]


def test_default_pool_is_in_scope_while_it_is_open(
    shell: InteractiveShell, pools: PoolManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skyward_kernel.pools._resident", pools)
    load_ipython_extension(shell)
    notebook = Notebook(shell, shell.magics_manager.registry["SkyMagics"])
    shell.user_ns["current_pool"] = current_pool
    assert notebook("current_pool.get()").result is None
    assert notebook("%sky up\ncurrent_pool.get()").result is pools.find()
    assert notebook("current_pool.get()").result is pools.find()
    notebook("%sky down")
    assert notebook("current_pool.get()").result is None


def test_interrupted_wait_for_a_pool_opened_by_code_does_not_stop_its_opening(
    notebook: Notebook, pools: PoolManager, compute: type[FakeCompute], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: FakeCompute) -> None:
        raise KeyboardInterrupt

    pools.observe()
    compute(name="train").open()
    compute.made[0].is_open = False  # as while code is opening it
    monkeypatch.setattr(compute, "open", interrupted)
    shown = notebook("%%sky --pool train\n1").shown_error
    assert shown == "Interrupted: pool 'train' is still being opened by other code."
    assert pools.names == ["train"]


def test_settings_are_traits(notebook: Notebook) -> None:
    notebook.magics.capture_limit = 100
    notebook("big = bytes(10_000)")
    assert notebook("%%sky\nbig").shown_error.startswith("TooLargeError: ")
    assert notebook("%%sky --capture-limit 1MB\nn = len(big)").error is None
