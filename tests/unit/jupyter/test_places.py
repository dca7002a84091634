"""`--on`: on several nodes of a pool, by rank or by group."""

import pytest

from skyward.values.validation import FrozenMap
from tests.unit.jupyter.conftest import FakeCompute, Notebook

pytestmark = pytest.mark.unit


def test_ranks_give_lists_and_labels(notebook: Notebook, compute: type[FakeCompute]) -> None:
    ran = notebook("%%sky --nodes 3 --on 0,2\nprint('hi')\nz = 5\nz")
    assert compute.made[0].sent[0][1] == (0, 2)
    assert ran.out == "[node 0] hi\n[node 0] 5\n"
    assert notebook["z"] == [5, 5]
    assert notebook["_"] == [5, 5]


def test_several_nodes_change_nothing_in_place(notebook: Notebook) -> None:
    notebook("d = {}; same = d")
    notebook("%%sky --nodes 3 --on 1:3\nd['a'] = 1")
    assert notebook["same"] == {}


def test_one_rank_changes_the_object_of_the_notebook(notebook: Notebook) -> None:
    notebook("d = {}; same = d")
    notebook("%%sky --nodes 3 --on 2\nd['a'] = 1")
    assert notebook["same"] == {"a": 1}


def test_an_unknown_group_is_refused_before_a_pool_is_opened(notebook: Notebook, compute: type[FakeCompute]) -> None:
    shown = notebook("%%sky --on gpu\n1").shown_error
    assert shown.startswith("UsageError: on must be 'one', 'all', 'head', a rank")
    assert shown.endswith("pool 'default' has no groups.")
    assert compute.made == []


def test_an_unknown_group_of_an_open_pool_is_refused(notebook: Notebook, compute: type[FakeCompute]) -> None:
    notebook("%sky up")
    compute.made[0].groups = FrozenMap({"cpu": (), "gpu": ()})
    assert notebook("%%sky --on gpus\n1").shown_error.endswith(
        "Pool 'default' has no group 'gpus'; did you mean 'gpu'?"
    )
