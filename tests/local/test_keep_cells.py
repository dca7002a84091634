"""`%%sky --keep`: values of a cell stay on its node, and later cells use them as if they were in the notebook."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import skyward as sky
from skyward_kernel.pools import PoolManager
from tests.local.kernel import started
from tests.notebook import Notebook, new_notebook
from tests.waiting import wait_for

pytestmark = pytest.mark.local

NET = """
import threading
RATE = 2
def helper(x): return x * RATE
class Net:
    scale = 10
    def __init__(self):
        self.w, self.lock = 0, threading.Lock()
    def step(self):
        self.w += helper(1)
        return self.w, self.scale
"""


@pytest.fixture
def notebook(pools: PoolManager) -> Iterator[Notebook]:
    """A separate notebook on a pool of three nodes, without kept values before and after."""
    with new_notebook(pools) as notebook:
        assert notebook("%sky up --nodes 3").error is None
        notebook(NET)
        yield notebook
        notebook.shell.reset(new_session=False)  # type: ignore[no-untyped-call]  # of IPython
        for source in ("1 / 0", "1", "2", "3"):  # IPython keeps the last error and the last results
            notebook(source)
    pool = pools.find("default")
    assert pool is not None

    def empty() -> bool:
        gc.collect()
        return not pool.kept()

    wait_for(empty, "the kept values to be freed")


def here(notebook: Notebook, name: str) -> sky.Kept[object]:
    """Return the handle bound to a name."""
    value = notebook[name]
    assert isinstance(value, sky.Kept)
    return value


def test_later_cell_uses_the_object_itself(notebook: Notebook) -> None:
    made = notebook("%%sky --keep model\nmodel = Net()\nprint(id(model))").out
    assert here(notebook, "model").kind == "Net"
    assert notebook("%%sky\nprint(id(model))").out == made
    assert notebook("%%sky\nr = model.step()\nwith model.lock: pass").error is None
    assert notebook("%%sky\nr = model.step()").error is None
    assert notebook["r"] == (4, 10)


def test_two_names_of_one_object_are_one_handle(notebook: Notebook) -> None:
    notebook("%%sky --keep model\nmodel = Net()\nother = model\nplain = 5")
    assert notebook["other"] is notebook["model"]
    assert notebook["plain"] == 5
    assert notebook("%%sky\nprint(other is model)").out == "True\n"


def test_several_unpicklable_values_are_kept(notebook: Notebook) -> None:
    ran = notebook(
        "%%sky --keep connection,numbers,lock\nimport sqlite3, threading\n"
        "connection = sqlite3.connect(':memory:')\nconnection.execute('create table t (x)')\n"
        "numbers = (n * n for n in range(9))\nlock = threading.Lock()\nlock.acquire()"
    )
    assert ran.error is None
    notebook("%%sky\nconnection.execute('insert into t values (7)')\na, b = next(numbers), next(numbers)")
    ran = notebook("%%sky\nprint(connection.execute('select x from t').fetchall(), next(numbers), lock.locked())")
    assert (ran.out, notebook["a"], notebook["b"]) == ("[(7,)] 4 True\n", 0, 1)


def test_kept_object_is_an_instance_of_the_current_class_of_the_notebook(notebook: Notebook) -> None:
    notebook("%%sky --keep model\nmodel = Net()")
    notebook("RATE = 100\nNet.scale = 11")
    ran = notebook("%%sky\nprint(model.step(), isinstance(model, Net), type(model) is Net)\nNet.scale = 12")
    assert ran.out == "(100, 11) True True\n"
    assert notebook["Net"].scale == 12
    notebook("Net.twice = lambda self: 2 * self.w\ndel Net.scale")
    assert notebook("%%sky\nprint(model.twice(), hasattr(model, 'scale'))").out == "200 False\n"


def test_class_defined_by_the_cell_is_the_notebooks_class(notebook: Notebook) -> None:
    notebook("%%sky --keep model\nclass Own:\n    x = 1\n    def me(self): return RATE\nmodel = Own()")
    assert notebook("%%sky\nprint(isinstance(model, Own), model.me())").out == "True 2\n"
    notebook("RATE = 3\nOwn.x = 5")
    assert notebook("%%sky\nprint(model.x, model.me())").out == "5 3\n"


def test_kept_object_stores_instances_of_notebook_classes(notebook: Notebook) -> None:
    notebook("import enum\nclass Sub:\n    n = 1\n    def rate(self): return RATE")
    notebook("class Color(enum.Enum):\n    RED = 1\n    def rate(self): return self.value * RATE")
    notebook("%%sky --keep m\nm = {}")
    notebook("%%sky\nclass Own: pass\nm['s'], m['c'], m['o'] = Sub(), Color.RED, Own()")
    ran = notebook("%%sky\nprint(isinstance(m['s'], Sub), m['c'] == Color.RED, isinstance(m['o'], Own), m['c'].rate())")
    assert ran.out == "True True True 2\n"
    copy = notebook["m"].fetch()
    assert "  fetch\n" in notebook("%sky tasks").out
    assert copy["c"] is notebook["Color"].RED
    assert (type(copy["s"]), type(copy["o"])) == (notebook["Sub"], notebook["Own"])
    notebook("RATE, Sub.n = 5, 7")
    assert notebook("%%sky\nprint(m['s'].rate(), m['s'].n, m['c'].rate())").out == "5 7 5\n"
    notebook("class Sub: pass")
    assert notebook("%%sky\nprint(isinstance(m['s'], Sub), m['s'].rate())").out == "False 5\n"


def test_concurrent_cells_share_one_class(notebook: Notebook, tmp_path: Path) -> None:
    notebook("%sky up wide --concurrency 2")
    notebook("class M:\n    total = 1\nimport pathlib, time")
    notebook(f"folder = pathlib.Path({str(tmp_path)!r})")
    notebook("%%sky --pool wide --keep kept\nkept = M()")
    handle = notebook(
        "%%sky --pool wide --noblock\nM.total += 5\n(folder / 'begun').touch()\n"
        "while not (folder / 'go').exists(): time.sleep(0.01)\nM.total += 5\nfound = M.total, type(kept) is M"
    ).result
    notebook("%%sky --pool wide\nwhile not (folder / 'begun').exists(): time.sleep(0.01)\nM.total, kept")
    (tmp_path / "go").touch()
    handle.result(20)
    assert notebook["found"] == (11, True)
    assert notebook["M"].total == 11
    notebook("M.total = 3")
    assert notebook("%%sky --pool wide\nprint(M.total, type(kept).total)").out == "3 3\n"
    notebook("%sky down wide")


def test_kept_function_sees_the_current_names_of_the_notebook(notebook: Notebook) -> None:
    notebook("%%sky --keep f\ndef outer(n):\n    def inner(x): return helper(x) + n\n    return inner\nf = outer(1)")
    assert notebook("%%sky\nprint(f(10))").out == "21\n"
    notebook("RATE = 5")
    assert notebook("%%sky\nprint(f(10))").out == "51\n"


def test_container_of_a_kept_value_is_returned_with_its_handle_and_sent_back_unchanged(notebook: Notebook) -> None:
    notebook("class Trainer: pass\ntr = Trainer()")
    notebook("%%sky --keep model\nmodel = Net()\ntr.model, tr.epoch, pairs = model, 1, [(model, 'a')]")
    assert notebook["tr"].model is notebook["model"] is notebook["pairs"][0][0]
    ran = notebook("%%sky\nprint(tr.model is model, pairs[0][0] is model)\ntr.epoch += 1\nmodel.w = 9")
    assert ran.out == "True True\n"
    assert (notebook["tr"].epoch, notebook["tr"].model) == (2, notebook["model"])
    assert notebook("%%sky\nprint(tr.model.w)").out == "9\n"


def test_value_of_the_notebook_moves_to_its_node(notebook: Notebook) -> None:
    notebook("data = list(range(10))\nsame = data\nnumber = 7")
    notebook("%%sky --keep data,number\ndata.append(10)")
    assert notebook["same"] is notebook["data"]
    assert here(notebook, "number").kind == "int"
    ran = notebook("%%sky\ndata.append(11)\ncopy = data[:]\nprint(len(same), number)\nalso = data")
    assert (ran.out, notebook["copy"][-1]) == ("12 7\n", 11)
    assert notebook["also"] is notebook["data"]


def test_object_replaced_by_the_cell_keeps_its_other_names(notebook: Notebook) -> None:
    notebook("raw = [1, 2, 3]\ndf = raw\nempty, other = (), ()\nmodel = Net\nmade = notes = []")
    notebook("%%sky --keep df\ndf = [x * 2 for x in df]")
    notebook("%%sky --keep model,empty\nmodel, empty = model(), [1]")
    assert (notebook["raw"], notebook["other"]) == ([1, 2, 3], ())
    assert isinstance(notebook["Net"], type)
    assert here(notebook, "df").fetch() == [2, 4, 6]
    notebook("%%sky --keep made\nfirst, made = made, made")
    assert notebook["notes"] is notebook["made"] is notebook["first"] is here(notebook, "made")


def test_value_that_a_cell_does_not_mention_is_sent_to_be_kept(notebook: Notebook) -> None:
    notebook("data = {'a': 1}")
    assert notebook("%%sky --keep data\npass").error is None
    assert notebook("%%sky\nprint(data)").out == "{'a': 1}\n"
    assert here(notebook, "data").fetch() == {"a": 1}


def test_copied_part_of_a_kept_object_is_reported(notebook: Notebook) -> None:
    notebook("import logging\ndata, other, log = [1], {'a': [2]}, logging.getLogger('x')")
    ran = notebook("%%sky --keep m\nhistory = []\nm = Net()\nm.h, m.d, m.o, m.log = history, data, other['a'], log")
    notice = "history, data and other are part of m, which is kept on node "
    assert ran.err.startswith(notice)
    assert ran.err.endswith(
        ": here they are copies, and a change on one side does not show on the other. "
        "Keep both with --keep m,history,data,other.\n"
    )
    ran = notebook("%%sky\nw, part, n = m.w, m.d, len(m.d)\nlater = [3]\nm.later = later")
    assert ran.err.startswith("part and later are part of m, which is kept on node ")
    assert notebook("%%sky --keep m,history\nm = Net()\nm.h = history = []").err == ""
    assert notebook("%%sky\nhistory.append(1)\nprint(m.h is history, m.h)").out == "True [1]\n"


def test_copy_of_a_kept_object_with_references_in_the_notebook_is_reported(notebook: Notebook) -> None:
    notebook("data, inner, alone = [1], [2], [3]\nsame, holder, outer = data, [data], [inner]")
    assert notebook("%%sky --keep alone\nalone.append(1)").err == ""
    ran = notebook("%%sky --keep data,outer\ndata.append(1)\nouter[0].append(1)")
    assert ran.err.startswith("data and outer are kept on node ")
    assert ran.err.endswith(" from now on. Another notebook object still holds the copies from before the cell.\n")
    assert notebook["same"] is notebook["data"]
    assert (notebook["holder"], notebook["inner"]) == ([[1]], [2])


def test_copied_part_of_a_kept_array_is_reported(notebook: Notebook) -> None:
    notebook("import numpy as np")
    notebook("%%sky --keep model\nmodel = {'w': np.zeros(9), 'v': np.zeros(9)}")
    ran = notebook("%%sky\npiece = model['w'][2:5]\nown = model['v'] + 1")
    assert ran.err.startswith("piece is part of model, which is kept on node ")


def test_kept_containers_in_new_ones_are_handles(notebook: Notebook) -> None:
    notebook("%%sky --keep numbers,table\nnumbers, table = [1], {'k': (1, 2)}\nlater = {'n': numbers}")
    assert notebook["later"]["n"] is notebook["numbers"]
    assert notebook("%%sky\nholder = [numbers, {'t': table}, (numbers, 1)]").err == ""
    held = notebook["holder"]
    assert held[0] is held[2][0] is notebook["numbers"]
    assert held[1]["t"] is notebook["table"]
    ran = notebook("%%sky\nholder.append(5)\nnumbers.append(2)\nprint(holder[0] is numbers, holder[1]['t'] is table)")
    assert (ran.out, ran.err) == ("True True\n", "")
    assert notebook["holder"] is held
    assert held[3] == 5
    assert notebook("%%sky\nprint(later['n'])").out == "[1, 2]\n"
    assert notebook["numbers"].fetch() == [1, 2]


def test_kept_value_keeps_nothing_else_of_its_cell_alive(notebook: Notebook) -> None:
    notebook(
        "import gc, weakref\nimport numpy as np\nclass Data(dict): pass\ndata, base, table = Data(), Data(), np.ones(9)"
    )
    notebook("class User:\n    def get(self): return base['n']\nbase['n'] = 4")
    notebook(
        "%%sky --on 0 --keep user,refs\nown = Data()\nuser = User()\n"
        "refs = [weakref.ref(data), weakref.ref(own), weakref.ref(table)]"
    )
    ran = notebook("%%sky\ngc.collect()\nprint([ref() is None for ref in refs], user.get())")
    assert ran.out == "[True, True, True] 4\n"


def test_value_kept_by_a_call_is_as_one_kept_by_an_option(notebook: Notebook) -> None:
    notebook("%%sky --on 0 --keep s,os\nimport os, skyward as sky\nmade = Net()\ns = sky.keep(made, 'net')")
    assert [here(notebook, name).kind for name in ("s", "os", "made")] == ["Net", "module", "Net"]
    ran = notebook("%%sky\nprint(isinstance(s, Net), s is made, s.step(), os.path.sep)")
    assert ran.out == "True True (2, 10) /\n"
    notebook("RATE = 5")
    assert notebook("%%sky\nprint(s.step())").out == "(7, 10)\n"


def test_kept_function_uses_kept_names(notebook: Notebook) -> None:
    notebook("%%sky --on 0 --keep zz\nzz = 3")
    notebook("%%sky --on 0 --keep fn\ndef fn(x): return x + zz")
    assert notebook("%%sky\nprint(fn(3))").out == "6\n"
    notebook("zz = 10")
    assert notebook("%%sky\nprint(fn(3))").out == "13\n"


def test_another_value_replaces_the_kept_one(notebook: Notebook) -> None:
    notebook("%%sky --keep model\nmodel = Net()")
    notebook("%%sky\nmodel = model.step()")
    assert notebook["model"] == (2, 10)


def test_each_node_of_on_all_has_its_own_value(notebook: Notebook) -> None:
    notebook("%%sky --on all --keep shard\nimport skyward as sky\nrank = sky.instance_info().node\nshard = [rank]")
    assert notebook["rank"] == [0, 1, 2]
    assert here(notebook, "shard").nodes == (0, 1, 2)
    ran = notebook("%%sky --on all\nshard.append(len(shard))\nprint(shard)\nshard = shard")
    assert sorted(ran.out.splitlines()) == [f"[node {rank}] [{rank}, 1]" for rank in range(3)]
    assert here(notebook, "shard").nodes == (0, 1, 2)
    ran = notebook("%%sky\nimport skyward as sky\nprint(shard[0] == sky.instance_info().node)")
    assert ran.out == "True\n"
    assert notebook("%%sky --on 2\nprint(shard)").out == "[2, 1]\n"
    assert here(notebook, "shard").fetch() == [[0, 1], [1, 1], [2, 1]]


def test_each_of_some_nodes_has_its_own_value(notebook: Notebook) -> None:
    notebook("%%sky --on 0,2 --keep shard\nimport skyward as sky\nshard = [sky.instance_info().node]")
    assert here(notebook, "shard").nodes == (0, 2)
    ran = notebook("%%sky --on 0,2\nprint(shard)")
    assert sorted(ran.out.splitlines()) == ["[node 0] [0]", "[node 2] [2]"]
    shown = notebook("%%sky --on 0,1\nprint(shard)").shown_error
    assert shown.startswith("UsageError: shard is kept on nodes 0 and 2, so this cannot run on node 1: run it only")
    ran = notebook("%%sky --on all\nprint(shard)")
    assert sorted(ran.out.splitlines()) == ["[node 0] [0]", "[node 2] [2]"]
    assert "node 1 keeps no shard, so tasks that use it run on nodes 0 and 2 only." in ran.err


def test_map_has_a_handle_for_each_run(notebook: Notebook) -> None:
    notebook("numbers = [1, 2, 3, 4]")
    notebook("%%sky --map numbers --keep made\nmade = {'n': numbers}")
    assert [handle.fetch() for handle in notebook["made"]] == [{"n": n} for n in (1, 2, 3, 4)]
    notebook("%%sky --map made\ntenfold = made['n'] * 10")
    assert notebook["tenfold"] == [10, 20, 30, 40]
    first = notebook["made"][0]
    assert str(notebook("made[0]['n']").error).startswith(f"made[0] is kept on node {first.nodes[0]}. Use it in")
    assert notebook("%%sky\nprint(made)").shown_error == (
        "UsageError: 4 values named made are kept on nodes 0, 1 and 2, so no node has all of them. Use one "
        "of them at a time, such as each with `--map`, or copy each here with its `fetch()`."
    )


def test_values_of_two_nodes_in_one_cell_are_refused(notebook: Notebook) -> None:
    notebook("%%sky --on 0 --keep one\none = Net()")
    notebook("%%sky --on 1 --keep other\nother = Net()")
    assert notebook("%%sky\nprint(one, other)").shown_error == (
        "UsageError: one is kept on node 0 and other is kept on node 1, so no node has all of them. Make them in one "
        "cell, or copy one of them here with `one.fetch()`."
    )
    shown = notebook("%%sky --on 2\nprint(one)").shown_error
    assert shown.startswith("UsageError: one is kept on node 0, so this cannot run on node 2")
    shown = notebook("%%sky --on all\nprint(one)").shown_error
    assert shown.startswith("UsageError: one is kept on node 0 only, and the pool has 3 nodes")


def test_name_that_the_cell_does_not_bind_is_refused(notebook: Notebook) -> None:
    shown = notebook("%%sky --keep modle\nmodel = Net()").shown_error
    assert shown.startswith(
        "UsageError: --keep modle: the cell does not assign modle, and modle is not defined in the notebook"
    )
    ran = notebook("%%sky --keep model\nif RATE > 1000: model = 1")
    assert "there is nothing to keep, because the cell did not bind it. Assign it in the cell, or leave it" in ran.err


def test_failed_cell_keeps_its_values(notebook: Notebook) -> None:
    ran = notebook("%%sky --keep model\nmodel = Net()\nmodel.step()\n1 / 0")
    assert isinstance(ran.error, ZeroDivisionError)
    assert notebook("%%sky\nprint(model.w)").out == "2\n"


def test_stopped_cell_keeps_its_values(notebook: Notebook, tmp_path: Path) -> None:
    ran = notebook("%%sky --keep model --timeout 0.5s\nimport time\nmodel = Net()\nmodel.step()\ntime.sleep(60)")
    assert isinstance(ran.error, sky.TaskTimeoutError)
    assert notebook("%%sky\nprint(model.w)").out == "2\n"
    notebook(f"import os, pathlib, time\nfolder = pathlib.Path({str(tmp_path)!r})")
    handle = notebook(
        "%%sky --on all --noblock --keep shard\nshard = [1]\n(folder / str(os.getpid())).touch()\ntime.sleep(60)"
    ).result
    wait_for(lambda: len(list(tmp_path.iterdir())) == 3, "all nodes to be busy")
    handle.cancel()
    with pytest.raises(sky.TaskCancelledError):
        handle.result(20)
    assert here(notebook, "shard").nodes == (0, 1, 2)
    assert notebook("%%sky --on 1\nprint(shard)").out == "[1]\n"


def test_stream_and_background_cell_keep_values_too(notebook: Notebook) -> None:
    notebook("%%sky --keep model\nmodel = Net()\nyield 1\nmodel.step()")
    assert notebook("%%sky\nprint(model.w)").out == "2\n"
    handle = notebook("%%sky --noblock --keep other\nother = Net()\nother.w = model.w").result
    handle.result(20)
    assert notebook("%%sky\nprint(other.w)").out == "2\n"


def test_fetched_value_is_of_the_notebooks_class(notebook: Notebook) -> None:
    notebook("class Point:\n    def __init__(self, x): self.x = x\n    def double(self): return helper(self.x)")
    notebook("%%sky --keep point,model\npoint, model = Point(4), Net()")
    point = notebook["point"].fetch()
    assert isinstance(point, notebook["Point"])
    assert point.double() == 8
    with pytest.raises(
        sky.NotPicklableError, match=r"^model cannot be sent back from the node: model\.lock is of type"
    ):
        notebook["model"].fetch()


def test_use_in_the_notebook_raises_its_location(notebook: Notebook) -> None:
    notebook("%%sky --on 1 --keep model\nmodel = Net()")
    ran = notebook("model.step()")
    assert isinstance(ran.error, sky.KeptElsewhereError)
    assert str(ran.error).startswith("model is kept on node 1. Use it in a %%sky cell or in a task, or copy it here")
    assert notebook("model").out.startswith("Out[5]: <Kept model: Net, 48 B, on node 1 of pool 'default'")


def test_manifest_shows_the_node_of_a_kept_value(notebook: Notebook) -> None:
    notebook("%%sky --on 1 --keep model\nmodel = Net()")
    manifest = notebook("%%sky --dry-run\nmodel").displays[0]
    (line,) = (line for line in manifest.splitlines() if line.startswith("model"))
    assert line.split()[:2] == ["model", "Net"]
    assert line.endswith("kept on node 1")


def test_kept_values_are_listed_and_dropped(notebook: Notebook) -> None:
    assert notebook("%sky kept").out.startswith("There are no kept values.")
    notebook("%%sky --on 1 --keep model,data\nmodel, data = Net(), bytes(1000)\nsame = data")
    rows = [line.split() for line in notebook("%sky kept").out.splitlines()]
    assert rows[0] == ["name", "type", "size", "pool", "node", "kept", "until", "variables"]
    assert [row[:6] for row in rows[1:]] == [
        ["model", "Net", "48", "B", "default", "1"],
        ["data", "bytes", "1.0", "KiB", "default", "1"],
    ]
    assert [row[7:] for row in rows[1:]] == [["model"], ["data"]]
    assert "model 48 B, data 1.0 KiB" in notebook("%sky status").out
    assert notebook("again = %sky kept model").error is None
    assert notebook["again"] is notebook["model"]
    assert notebook("%sky drop model data").out == (
        "Dropped model from node 1 of pool 'default'.\nDropped data from node 1 of pool 'default'.\n"
    )
    shown = notebook("%%sky\nmodel.step()").shown_error
    assert shown == "KeptLostError: model is no longer kept: it was dropped. Rerun the code that made it."
    assert notebook("%sky drop model").shown_error == "KeptLostError: model is no longer kept: it was dropped."
    assert notebook("%sky drop").shown_error.startswith("UsageError: %sky drop takes the names of kept values")
    assert notebook("%sky drop data2").shown_error.startswith("UsageError: No kept value named 'data2'")


def test_name_that_several_pools_keep_needs_the_pool(notebook: Notebook) -> None:
    notebook("%sky up other")
    notebook("%%sky --on 0 --keep data\ndata = [1]")
    notebook("first = data")
    notebook("%%sky --pool other --keep data\ndata = [2]")
    pools = "UsageError: Pools 'other' and 'default'"
    refused = f"{pools} keep a value named 'data': name one, as in `%sky {{}} data --pool other`."
    assert notebook("%sky drop data").shown_error == refused.format("drop")
    assert notebook("x = %sky kept data").shown_error == refused.format("kept")
    assert notebook("x = %sky kept data --pool default").error is None
    assert notebook["x"] is notebook["first"]
    assert notebook("%sky drop data,data --pool default").out == "Dropped data from node 0 of pool 'default'.\n"
    assert notebook("%sky kept --pool default").out.startswith("There are no kept values on pool 'default'.")
    assert notebook("%sky drop data").out == "Dropped data from node 0 of pool 'other'.\n"
    assert notebook("%sky drop nothing").shown_error == "UsageError: No kept value named 'nothing'; there are none."
    notebook("%sky down other")


def test_value_deleted_in_the_notebook_is_freed_on_the_node(notebook: Notebook, pools: PoolManager) -> None:
    notebook("%%sky --keep model\nmodel = Net()")
    pool = pools.find("default")
    assert pool is not None
    assert pool.kept()
    notebook("del model")
    wait_for(lambda: not pool.kept(), "the node to drop the model")
    notebook("%%sky --keep model\nmodel = Net()")
    notebook("%%sky\ndel model")
    wait_for(lambda: not pool.kept(), "the node to drop the model that a cell has deleted")


def test_keep_for_sets_the_time(notebook: Notebook, pools: PoolManager) -> None:
    notebook("%%sky --keep model --keep-for 2h\nmodel = Net()")
    pool = pools.find("default")
    assert pool is not None
    (view,) = pool.kept()
    assert view.until - pool.snapshot().at == pytest.approx(7200, abs=60)
    assert "--keep-for is how long" in notebook("%%sky --keep-for 2h\n1").shown_error
    assert "--keep-for is how long" in notebook("%%sky --keep-for 1h\n1").shown_error


def test_process_slots_cannot_keep_values_of_cells(notebook: Notebook) -> None:
    ran = notebook("%%sky --pool processes --executor process --keep model\nmodel = 1")
    assert ran.shown_error.startswith(
        "UsageError: --keep model: the tasks of pool 'processes' run in separate processes"
    )
    notebook("%sky down processes")


def test_lost_node_is_reported_at_once_and_on_use(notebook: Notebook) -> None:
    notebook("%sky up fragile --nodes 2")
    notebook("%%sky --pool fragile --on 1 --keep model\nimport os\nmodel, pid = Net(), os.getpid()")
    os.kill(notebook["pid"], signal.SIGKILL)
    wait_for(lambda: here(notebook, "model").lost, "the node to be lost")
    shown = notebook("%%sky --pool fragile\nmodel.step()").shown_error
    assert shown.startswith("KeptLostError: model is no longer kept: node 1 is gone: its process was killed by SIGK")
    notebook("%%sky --pool fragile --on 1 --keep model\nmodel = Net()")
    ran = notebook("%%sky --pool fragile\nimport os, signal\nmodel.step()\nos.kill(os.getpid(), signal.SIGKILL)")
    assert ran.shown_error.startswith("KeptLostError: The cell uses model, which was lost with its node: node 1 died")
    notebook("%sky down fragile")


def test_notebook_value_of_another_pool_is_refused(notebook: Notebook) -> None:
    notebook("%%sky --keep model\nmodel = Net()")
    shown = notebook("%%sky --pool second\nmodel").shown_error
    assert shown.startswith("UsageError: model is kept in pool 'default', so it cannot be used in pool 'second'")
    notebook("%sky down second")


@pytest.mark.skipif(sys.platform != "linux", reason="nodes outlive their client on Linux")
def test_after_a_restart_an_object_is_fetched_with_its_class() -> None:
    net = "class Net:\n    rate = 2\n    def __init__(self): self.w = 1\n    def step(self): return self.w * factor"
    with started() as kernel:
        kernel(
            "import skyward as sky\npool = sky.Compute(provider=sky.Local(outlives=True), name='lab', ttl=300).open()"
        )
        kernel(f"factor = 10\n{net}")
        kernel("%%sky --pool lab --keep net,fn\nnet = Net()\ndef fn(): return net.step()")
        kernel.kill_and_restart()
        kernel("pool = %sky attach lab")
        kernel("a = %sky kept net\nf = %sky kept fn\ncopy = a.fetch()")
        assert kernel("type(copy).__name__, copy.w, copy.rate").data == ["('Net', 1, 2)"]
        assert kernel("%%sky --pool lab\nprint(a.step(), f())").text() == "10 10\n"
        kernel(f"factor = 3\n{net}")
        assert kernel("copy = a.fetch()\ncopy.w, copy.step(), isinstance(copy, Net)").data == ["(1, 3, False)"]
        assert kernel("%%sky --pool lab\nprint(a.step(), isinstance(a, Net))").text() == "3 False\n"
        kernel("pool.close()")
