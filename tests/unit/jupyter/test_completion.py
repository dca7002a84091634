"""TAB completion and `?` of `%%sky` and `%sky`."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

from skyward.control.observe.origin import Origin
from skyward.errors import JournalError
from skyward.frontends.pools import Orphan
from skyward_jupyter import load_ipython_extension, unload_ipython_extension
from skyward_jupyter.magics.completion import offered, values
from skyward_jupyter.options.option_table import OPTIONS
from skyward_kernel.commands.registry import COMMANDS
from skyward_kernel.pools import PoolManager
from tests.unit.config.conftest import Write, project
from tests.unit.kernel.conftest import node, snapshot, task

pytestmark = pytest.mark.unit

__all__ = ["project"]  # a fixture

FLAGS = {flag for option in OPTIONS for flag in option.flags if flag.startswith("--")}


def words(text: str) -> set[str]:
    listed = values(PoolManager(), lambda: ["default", "train"], lambda: ["xs", "model"])
    return set(
        offered(
            text, {**listed, "node": lambda _: ["0", "1"], "kept": lambda _: ["table"], "orphan": lambda _: ["left"]}
        )
    )


@pytest.mark.parametrize(
    ("text", "some", "none_of"),
    [
        ("%%sky ", FLAGS, {"train", "up"}),
        ("%%sky --nodes 2 --n", FLAGS - {"--nodes"}, {"--nodes"}),
        ("%%sky --pip numpy --p", {"--pip", "--plugin", "--policy", "--provider"}, set()),
        ("%%sky --on ", {"one", "all", "head"}, FLAGS),
        ("%%sky --on=a", {"one", "all", "head"}, FLAGS),
        ("%%sky --pool t", {"default", "train"}, FLAGS),
        ("%%sky --placement ", {"pack", "strict_spread"}, FLAGS),
        ("%%sky --map ", {"xs", "model"}, FLAGS),
        ("%%sky -i xs,m", {"xs", "model"}, FLAGS),
        ("%%sky --gpu ", {"A100", "H100", "T4"}, FLAGS),
        ("%%sky --provider ", {"local", "ssh"}, FLAGS),
        ("%%sky --policy ", {"pressure", "binpack"}, FLAGS),
        ("%%sky --plugin torch,k", {"keras", "torch"}, FLAGS),
        ("%%sky --executor ", {"thread", "process"}, FLAGS),
        ("%%sky --nodes ", set(), FLAGS),
        ("%sky ", set(COMMANDS), FLAGS),
        ("%sky st", set(COMMANDS), FLAGS),
        ("%sky down ", {"default", "train", "--pool"}, FLAGS - {"--pool"}),
        ("%sky scale --pool ", {"default", "train"}, FLAGS),
        ("%sky up ", {"default", "train", "--nodes"}, {"--map", "--on"}),
        ("%sky up train --allocation ", {"spot", "on-demand"}, {"--nodes", "train"}),
        ("%sky scale train ", {"--wait"}, {"train", "0"}),
        ("%sky drain ", {"train", "0", "1"}, {"--all"}),
        ("%sky drain train ", {"0", "1"}, {"train"}),
        ("%sky drain train 1 ", {"--pool"}, {"0", "train"}),
        ("%sky attach ", {"left", "--pool", "--budget"}, {"default", "train"}),
        ("%sky attach --pool ", {"left"}, {"default", "train"}),
        ("%sky reap left ", {"left", "--pool"}, {"default", "train"}),
        ("%sky kept --pool ", {"default", "train"}, {"table"}),
        ("%sky drop table --pool=", {"default", "train"}, {"table"}),
        ("%sky drop table ", {"table"}, {"train"}),
        ("%sky cancel ", {"--all", "--task", "--cell", "--pool"}, {"train"}),
        ("%sky cancel --task 3 --pool ", {"train"}, {"--all"}),
        ("%sky help ", {"up", "scale", "help"}, {"default", "--pool"}),
        ("%sky nothing ", set(), {"train", "--pool"}),
    ],
)
def test_completions_depend_on_the_position(text: str, some: set[str], none_of: set[str]) -> None:
    found = words(text)
    assert some <= found
    assert not none_of & found


def test_paths_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    for name in ("a.csv", "data/b.csv", ".hidden"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert words("%%sky --file ") == {"a.csv", "data/"}
    assert words("%%sky --nodes 2 --fetch 'da") == {"a.csv", "data/"}
    assert words("%%sky --sync=data/b") == {"data/b.csv"}
    assert words("%%sky --file nowhere/") == set()


def test_shell_completes_and_explains_the_magics(
    shell: InteractiveShell, pools: PoolManager, monkeypatch: pytest.MonkeyPatch, project: Write
) -> None:
    project("[pools.train]\nnodes = 2")
    monkeypatch.setattr("skyward_kernel.pools._resident", pools)
    load_ipython_extension(shell)
    one: Any = shell

    def completed(line: str, rest: str = "") -> list[str]:
        """Return the completions at the end of the first line of a cell."""
        with provisionalcompleter():
            return [each.text for each in one.Completer.completions(line + rest, len(line))]

    assert completed("%%sky --nob", "\nx = 1") == ["--noblock"]
    assert completed("%%sky --pool tr", "\nx = 1") == ["train"]
    assert completed("%sky! --nob") == ["--noblock"]
    assert completed("%sky dec") == ["decisions"]
    assert set(completed("%%sky --", "\nx = 1")) == FLAGS, "and no names of Python"
    assert completed("%%sky --pool=", "\nx = 1") == ["train"]
    assert completed("%sky down --pool=t") == ["train"]
    assert completed("left = %sky down ") == ["train", "--all", "--pool"]
    assert completed("x[0], y = %sky dec") == ["decisions"]
    assert completed("%sky! --on h") == ["head"]
    assert "head" not in completed("x = 1 %sky! --on h")
    shown = one.object_inspect_text("%%sky")
    assert "Run a cell on the nodes of a pool" in shown
    assert "--noblock" in shown
    unload_ipython_extension(shell)
    assert "--noblock" not in completed("%%sky --nob")


def test_numbers_of_nodes_tasks_and_cells_are_listed() -> None:
    views = [
        task(3, ended_at=None, origin=Origin(12, "c-1", "code")),
        task(4, ended_at=None, origin=None),
        task(2, ended_at=1.0, origin=Origin(11, "c-0", "code")),
    ]
    found = {
        name: SimpleNamespace(
            groups=groups,
            snapshot=lambda name=name, ranks=ranks: snapshot(name, nodes=tuple(map(node, ranks))),
            report=lambda tasks=tasks: SimpleNamespace(tasks=tasks),
        )
        for name, groups, ranks, tasks in [
            ("train", {"cpu": 1, "gpu": 2}, [0, 3], views),
            ("other", {"default": 1}, [7], []),
        ]
    }
    pools: Any = SimpleNamespace(names=list(found), peek=found.get)
    listed = values(pools, lambda: ["train"], list, lambda: [1, 2])
    assert offered("%%sky --pool=train --on ", listed) == ["one", "all", "head", "0", "3", "cpu", "gpu"]
    assert offered("%sky! --on ", listed) == ["one", "all", "head", "0", "3", "7", "cpu", "gpu"]
    assert offered("%%sky --pool other --on ", listed) == ["one", "all", "head", "7"]
    assert offered("%sky scale train 3 --group ", listed) == ["cpu", "gpu"]
    assert offered("%sky update --group=", listed) == ["cpu", "gpu"]
    assert offered("%sky update other --group ", listed) == []
    assert offered("%sky show ", listed) == ["1", "2"]
    assert offered("%sky cancel ", listed)[:2] == ["1", "2"]
    assert offered("%sky cancel --task ", listed) == ["3", "4"]
    assert offered("%sky cancel --cell=", listed) == ["12"]


def test_orphans_of_the_journal_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        Orphan("left-1", "left", "host", 1, 9.0, 2, due=False),
        Orphan("none-2", "none", "host", 1, 9.0, 0, due=False),
    ]
    monkeypatch.setattr("skyward.frontends.pools.orphans", lambda: found)
    listed = values(PoolManager(), lambda: ["open"], list)
    assert offered("%sky attach ", listed) == ["left", "--budget", "--pool"]
    assert offered("%sky reap ", listed) == ["left", "--warm", "--pool"]

    def broken() -> None:
        raise JournalError("It cannot be read.")

    monkeypatch.setattr("skyward.frontends.pools.orphans", broken)
    assert offered("%sky reap ", listed) == ["--warm", "--pool"]
