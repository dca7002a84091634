"""The user's local modules: their detection, and their import by cells on a node."""

import gc
import importlib
import itertools
import json
import os
import random
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import cloudpickle
import numpy as np
import pytest

import skyward
from skyward.wire.payloads import modules
from skyward.wire.payloads.modules import is_local, local_modules, travelling_by_value
from skyward.wire.payloads.payload import pack
from skyward.wire.payloads.sources import ModuleSource, source_bundle
from tests.unit.jupyter.cells.conftest import CellHarness

pytestmark = pytest.mark.unit

type Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write modules into an import folder; they are removed from `sys.modules` afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def write(name: str, source: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        importlib.invalidate_caches()

    yield write
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


class TestLocalModules:
    @pytest.mark.parametrize("module", [json, os, sys, np, cloudpickle, pytest, skyward, types.ModuleType("made")])
    def test_installed_modules_are_not_local(self, module: types.ModuleType) -> None:
        assert not is_local(module)

    def test_modules_of_the_user_are_local(self, write: Write) -> None:
        write("mine_a.py", "")
        module = importlib.import_module("mine_a")
        assert is_local(module)
        assert module in local_modules()

    def test_later_imports_and_removals_are_detected(self, write: Write) -> None:
        local_modules()
        write("mine_b.py", "")
        module = importlib.import_module("mine_b")
        assert module in local_modules()
        del sys.modules["mine_b"]
        again = importlib.import_module("mine_b")
        json.__name__  # noqa: B018 - nothing else is loaded in between
        assert again in local_modules()
        assert module not in local_modules()

    def test_main_module_is_not_local(self) -> None:
        assert sys.modules["__main__"] not in local_modules()


def test_pickling_by_value_is_reference_counted(write: Write) -> None:
    write("mine_c.py", "def f(): return 1")
    module = importlib.import_module("mine_c")
    with travelling_by_value(), travelling_by_value():
        assert "mine_c" in cloudpickle.list_registry_pickle_by_value()
    assert "mine_c" not in cloudpickle.list_registry_pickle_by_value()
    cloudpickle.register_pickle_by_value(module)
    with travelling_by_value():
        pass
    assert "mine_c" in cloudpickle.list_registry_pickle_by_value()
    cloudpickle.unregister_pickle_by_value(module)


class TestSourceBundle:
    def test_bundle_follows_imports_without_running_code(self, write: Write) -> None:
        write("pkg_a/__init__.py", "raise SystemError('it was run')")
        write("pkg_a/one.py", "from . import two\nfrom .sub.deep import x\nimport json, other_a")
        write("pkg_a/two.py", "def f():\n    from ..pkg_a import three")
        write("pkg_a/three.py", "")
        write("pkg_a/unused.py", "")
        write("pkg_a/sub/deep.py", "x = 1")
        write("other_a.py", "import numpy, not_there")
        bundle = source_bundle(["pkg_a.one", "json", "numpy.linalg", "not_there"])
        assert list(bundle) == [
            "other_a", "pkg_a", "pkg_a.one", "pkg_a.sub", "pkg_a.sub.deep", "pkg_a.three", "pkg_a.two",
        ]  # fmt: skip
        assert bundle["pkg_a.sub"] == ModuleSource("pkg_a.sub", b"", "", True, b"")
        assert bundle["pkg_a"].is_package
        assert bundle["pkg_a.three"].filename.endswith("pkg_a/three.py")

    def test_bundle_has_the_current_sources_on_disk(self, write: Write) -> None:
        write("mine_d.py", "x = 1")
        first = source_bundle(["mine_d"])["mine_d"]
        write("mine_d.py", "x = 22")
        second = source_bundle(["mine_d"])["mine_d"]
        assert second.source == b"x = 22"
        assert first.digest != second.digest

    def test_module_with_a_syntax_error_is_bundled(self, write: Write) -> None:
        write("mine_e.py", "def (:")
        assert source_bundle(["mine_e"])["mine_e"].source == b"def (:"

    def test_editable_install_of_skyward_is_not_bundled(self, write: Write) -> None:
        write(
            "mine_h.py",
            "import skyward, skyward_jupyter.magics.sky_magics, skyward_kernel.pools, skyward_providers.local",
        )
        assert list(source_bundle(["mine_h"])) == ["mine_h"]

    def test_loaded_module_without_a_finder_is_bundled(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "hidden_a.py"
        path.write_text("x = 1")
        spec = importlib.util.spec_from_file_location("hidden_a", path)
        assert spec is not None
        monkeypatch.setitem(sys.modules, "hidden_a", importlib.util.module_from_spec(spec))
        assert source_bundle(["hidden_a"])["hidden_a"].source == b"x = 1"


class TestManifest:
    def test_manifest_names_the_sources(self, notebook: CellHarness, write: Write) -> None:
        write("mine_f.py", "import mine_g\nclass A: pass\ndef f(): return 1")
        write("mine_g.py", "")
        assert notebook.take("import mine_f").manifest.sources == ("mine_f", "mine_g")
        notebook.local("import mine_f\nfrom mine_f import f, A\na = [A()]")
        assert notebook.take("mine_f.f()").manifest.sources == ("mine_f", "mine_g")
        assert notebook.take("f()").manifest.sources == ("mine_f", "mine_g")
        assert notebook.take("a").manifest.sources == ("mine_f", "mine_g")
        assert notebook.take("1").request.sources is None


NODE = """
import pickle, sys
from skyward.worker.cells.cell import run_cell
for line in sys.stdin.buffer:
    request, captured = pickle.loads(bytes.fromhex(line.decode()))
    result = run_cell(request, captured)
    failed = result.failure is not None
    print("=", result.failure.render().replace("\\n", "|") if failed else pickle.dumps(result).hex(), flush=True)
"""


class Node:
    """A process without the notebook's modules."""

    def __init__(self, notebook: CellHarness) -> None:
        self._notebook = notebook
        self.notices: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-c", NODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/"
        )

    def sky(self, source: str) -> str:
        import pickle

        from skyward_jupyter.running.results import apply_result

        sent = self._notebook.take(source, is_next=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(pickle.dumps((sent.request, sent.values)).hex().encode() + b"\n")
        self._process.stdin.flush()
        printed = []
        while not (line := self._process.stdout.readline().decode()).startswith("= "):
            assert line, "the node died"
            printed.append(line)
        try:
            result = pickle.loads(bytes.fromhex(line[2:]))
            self.notices = apply_result(result, self._notebook.names, sent.originals).notices
        except ValueError:
            return line[2:].replace("|", "\n")
        return "".join(printed).strip()

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture
def node(notebook: CellHarness, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(os.path.dirname(skyward.__file__)))
    node = Node(notebook)
    yield node
    node.close()


def test_cells_import_local_modules_and_their_edits(notebook: CellHarness, node: Node, write: Write) -> None:
    write("lib_a/__init__.py", "from .core import Thing, value")
    write("lib_a/core.py", "class Thing:\n    def who(self): return value\nvalue = 1")
    notebook.local("from lib_a import Thing\nimport lib_a\nthing = Thing()")
    assert node.sky("print(thing.who(), lib_a.value, isinstance(thing, lib_a.Thing))\nback = Thing()") == "1 1 True"
    assert type(notebook["back"]) is notebook["Thing"]
    write("lib_a/core.py", "class Thing:\n    def who(self): return value * 10\nvalue = 2  # edited")
    assert node.sky("import lib_a.core\nprint(thing.who(), lib_a.core.value, lib_a.value)") == "20 2 2"


def test_edited_module_is_imported_again_with_a_notice(notebook: CellHarness, node: Node, write: Write) -> None:
    write("lib_w.py", "import lib_x\nst = []")
    write("lib_x.py", "z = 1")
    node.sky("import lib_w\nlib_w.st.append(1)")
    assert node.sky("import lib_w\nprint(lib_w.st)") == "[1]"
    assert node.notices == []
    write("lib_w.py", "import lib_x\nst = []  # edited")
    assert node.sky("import lib_w\nprint(lib_w.st)") == "[]"
    assert node.notices == [
        "lib_w has changed since node 0 imported it: imported again there, with new variables, as is lib_x."
    ]
    assert node.sky("import lib_w\nprint(lib_w.st)") == "[]"
    assert node.notices == []


def test_traceback_shows_lines_of_a_local_module(notebook: CellHarness, node: Node, write: Write) -> None:
    write("lib_b.py", "def fail():\n    raise KeyError('lines')")
    trace = node.sky("import lib_b\nlib_b.fail()")
    assert "lib_b.py\", line 2, in fail\n    raise KeyError('lines')" in trace
    write("lib_c.py", "def (:")
    assert "SyntaxError" in node.sky("import lib_c")


def test_values_of_local_modules_are_pickled_by_value_outside_cells(write: Write) -> None:
    write("lib_d.py", "def f(): return 5")
    module = importlib.import_module("lib_d")
    packed = pack(module.f)
    del sys.modules["lib_d"]
    assert packed.unpack()() == 5


class Growing(dict[str, ModuleType]):
    """`sys.modules` while another thread imports modules."""

    to_come = 3

    def __reversed__(self) -> Any:
        names = super().__reversed__()
        if self.to_come:
            self.to_come -= 1
            self[f"just_imported_{self.to_come}"] = ModuleType(f"just_imported_{self.to_come}")
        return names


def test_import_by_another_thread_does_not_disturb_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "sys", SimpleNamespace(modules=Growing(sys.modules)))
    with travelling_by_value():
        pass
    assert "just_imported_0" in modules._seen


def test_copies_of_local_module_objects_are_not_finalized_on_the_node(
    notebook: CellHarness, write: Write, tmp_path: Path
) -> None:
    write(
        "mine_final.py",
        "class A:\n    def __init__(self, path): self.path = path\n"
        "    def __del__(self):\n        with open(self.path, 'w'): pass\n",
    )
    notebook.names["folder"] = str(tmp_path)
    notebook.local("from mine_final import A\na = A(folder + '/a')")
    notebook.sky("a.n = 1\nb = A(folder + '/b')\nc = A(folder + '/c')\ndel c")
    gc.collect()
    assert [name for name in "abc" if (tmp_path / name).exists()] == ["c"]


@pytest.mark.parametrize(
    ("before", "cell"),
    [
        ("def f():\n    import random\n    return random.random()", "x = f()"),
        (
            "def f():\n    def g():\n        from random import random\n        return random()\n    return g()",
            "x = f()",
        ),
        (
            "class A:\n    def f(self):\n        import random\n        return random.random()\na = [A()]",
            "x = a[0].f()",
        ),
        ("def g():\n    import random\n    return random.random()\nf = {'g': g}", "x = f['g']()"),
        ("def g():\n    import random\n    return random.random()\ndef f(): return g()", "x = f()"),
        ("import numpy.random\ndef f():\n    import numpy.random as r\n    return r.rand()", "x = f()"),
        ("def f():\n    import lib_rand\n    return lib_rand.draw()", "x = f()"),
        ("import lib_rand", "x = lib_rand.draw()"),
        ("import lib_rand\nf = [lib_rand.draw]", "x = f[0]()"),
        ("import lib_rand\nf = [lib_rand.Dice()]", "x = f[0].roll()"),
        ("import lib_over", "x = lib_over.draw()"),
        ("", "import lib_over\nx = lib_over.draw()"),
    ],
)
def test_random_numbers_continue_for_all_generators(
    notebook: CellHarness, write: Write, before: str, cell: str
) -> None:
    write(
        "lib_rand.py",
        "def draw():\n    import random\n    return random.random()\nclass Dice:\n    roll = staticmethod(draw)",
    )
    write("lib_over.py", "from lib_rand import draw")
    notebook.local(before)

    def taken() -> bool:
        sent = [bytes(packed.data) for packed in notebook.take(cell, is_next=True).values]
        return any(b"process_wide_object" in data and b"random" in data for data in sent)

    assert taken()
    cell = "x = 1"
    assert not taken()


def test_random_numbers_of_a_function_continue(notebook: CellHarness, node: Node) -> None:
    notebook.local("import random\nrandom.seed(1)\ndef f():\n    import random\n    return random.random()")
    drawn = []
    for _ in range(2):
        random.seed(1)
        assert node.sky("x = f()") == ""
        drawn += [notebook["x"], random.random()]
    random.seed(1)
    assert drawn == 2 * [random.random(), random.random()]


NUMBERS = itertools.count()
STATE = """
import itertools, logging, random, types
import numpy as np
import pandas as pd
log = logging.getLogger(__name__)
cfg = {"a": {"b": 1}, "c": [1, (2, [3])]}
flag = True
class Conn:
    made = 0
    pool = {}
    def __init__(self): self.n = 1; self.me = self
    def use(self): type(self).made += 1
class Slotted:
    __slots__ = ("x",)
class Sub(dict): pass
inst, slotted, sub = Conn(), Slotted(), Sub()
names = types.SimpleNamespace(x=1)
small, large = np.zeros(5), np.zeros(2_000_000)
scalar = {"lr": np.float64(0.1), "nan": float("nan")}
frame = pd.DataFrame({"a": [1, 2]})
count = itertools.count()
rng, generator = random.Random(1), np.random.default_rng(1)
items = {1, 2}
def f(): return 1
"""


@pytest.mark.parametrize(
    ("cell", "changed"),
    [
        ("lib_s.cfg['a']['b'] = 2", "lib_s.cfg"),
        ("lib_s.cfg['a'] = 7", "lib_s.cfg"),
        ("lib_s.cfg['c'][1][1].append(4)", "lib_s.cfg"),
        ("lib_s.cfg['a'] = lib_s.cfg.pop('a')", "lib_s.cfg"),
        ("lib_s.flag = 1", "lib_s.flag"),
        ("lib_s.inst.n = 5", "lib_s.inst"),
        ("lib_s.slotted.x = 5", "lib_s.slotted"),
        ("lib_s.sub.x = 5", "lib_s.sub"),
        ("lib_s.sub['x'] = 5", "lib_s.sub"),
        ("lib_s.names.x = 2", "lib_s.names"),
        ("lib_s.small[1] = 2", "lib_s.small"),
        ("lib_s.scalar['lr'] *= 2", "lib_s.scalar"),
        ("lib_s.frame.loc[0, 'a'] = 2", "lib_s.frame"),
        ("lib_s.frame['b'] = 2", "lib_s.frame"),
        ("next(lib_s.count)", "lib_s.count"),
        ("lib_s.rng.random()", "lib_s.rng"),
        ("lib_s.generator.random()", "lib_s.generator"),
        ("lib_s.items.add(3); lib_s.items.discard(1)", "lib_s.items"),
        ("lib_s.Conn.made += 1", "lib_s.Conn.made"),
        ("lib_s.inst.use()", "lib_s.Conn.made"),
        ("lib_s.Conn.pool['x'] = 1", "lib_s.Conn.pool"),
        ("lib_s.Conn.__len__ = lambda self: 1", "lib_s.Conn.__len__"),
        ("del lib_s.Conn.use", "lib_s.Conn.use"),
        ("lib_s.f.calls = 1", "lib_s.f.calls"),
        ("lib_s.f = lambda: 2", "lib_s.f"),
        ("del lib_s.f", "lib_s.f"),
        ("lib_s.log.setLevel(40)", "the logger 'lib_s'"),
    ],
)
@pytest.mark.parametrize("is_known", [False, True])
def test_changes_in_a_local_module_are_reported(
    notebook: CellHarness, write: Write, cell: str, changed: str, is_known: bool
) -> None:
    name = f"lib_s{next(NUMBERS)}"
    write(f"{name}.py", STATE)
    if is_known:
        notebook.local(f"import {name}")
    expected = [f"The cell changed {changed} on node 0; here it is unchanged.".replace("lib_s", name)]
    assert notebook.sky(f"import {name}\n{cell}".replace("lib_s.", f"{name}.")) == expected


def test_use_of_a_local_module_is_not_reported(notebook: CellHarness, write: Write) -> None:
    write("lib_u.py", STATE)
    notebook.local("import lib_u")
    cell = "lib_u.log.warning(lib_u.frame.sum()); x = lib_u.frame.a[1] + lib_u.large.sum() + len(lib_u.cfg)"
    for _ in range(2):
        assert notebook.sky(f"{cell}; lib_u.f(); y = lib_u.frame.index.is_unique, lib_u.Conn().n") == []


def test_change_of_a_captured_logger_is_reported(notebook: CellHarness) -> None:
    notebook.local("import logging\nlg = logging.getLogger('test_of_cells')")
    try:
        expected = ["The cell changed the logger 'test_of_cells' on node 0; here it is unchanged."]
        assert notebook.sky("lg.setLevel(40)") == expected
        assert notebook.sky("lg.propagate = False") == expected
        assert notebook.sky("x = lg.level") == []
    finally:
        notebook["lg"].setLevel(0)
        notebook["lg"].propagate = True


@pytest.mark.parametrize(
    "before", ["import os\ndef f(): os.environ['OF_CELLS'] = str(len(os.environ['OF_CELLS']))", "import lib_env"]
)
def test_environment_variable_set_by_a_function_is_reported(
    notebook: CellHarness, write: Write, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    monkeypatch.setenv("OF_CELLS", "a")
    write("lib_env.py", "import os\ndef f(): os.environ['OF_CELLS'] = 'x'")
    notebook.local(f"{before}\nf = f if 'f' in dir() else lib_env.f")
    assert notebook.sky("f()") == ["The cell changed os.environ['OF_CELLS'] on node 0; here it is unchanged."]


def test_settings_of_a_library_not_imported_in_the_notebook_are_reported(
    notebook: CellHarness, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skyward_jupyter.cells.collector.settings_used_by", lambda _: ())
    node.sky("import pandas\npandas.set_option('display.max_rows', 7)")
    assert node.notices == ["The cell changed a setting of pandas on node 0; here it is unchanged."]
    node.sky("import pandas\npandas.set_option('display.max_rows', 7)")
    assert node.notices == []


def test_what_skyward_sets_while_a_cell_runs_is_not_told(
    notebook: CellHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It changes whenever a node joins or leaves."""
    monkeypatch.setenv("COMPUTE_POOL", "one node")
    assert notebook.sky("import os\nos.environ.__setitem__('COMPUTE_POOL', 'two nodes')") == []
