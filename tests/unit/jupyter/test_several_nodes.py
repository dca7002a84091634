"""`--on` with several nodes of a pool, by rank or by group."""

import pytest

from skyward.values.validation import FrozenMap
from tests.unit.jupyter.conftest import FakeCompute, Notebook

pytestmark = pytest.mark.unit


def test_several_ranks_return_lists_and_label_output(notebook: Notebook, compute: type[FakeCompute]) -> None:
    ran = notebook("%%sky --nodes 3 --on 0,2\nprint('hi')\nz = 5\nz")
    assert compute.made[0].sent[0][1] == (0, 2)
    assert ran.out == "[node 0] hi\n[node 0] 5\n"
    assert notebook["z"] == [5, 5]
    assert notebook["_"] == [5, 5]


def test_several_nodes_do_not_change_objects_in_place(notebook: Notebook) -> None:
    notebook("d = {}; same = d")
    notebook("%%sky --nodes 3 --on 1:3\nd['a'] = 1")
    assert notebook["same"] == {}


def test_single_rank_changes_objects_in_place(notebook: Notebook) -> None:
    notebook("d = {}; same = d")
    notebook("%%sky --nodes 3 --on 2\nd['a'] = 1")
    assert notebook["same"] == {"a": 1}


def test_unknown_group_is_rejected_before_a_pool_is_opened(notebook: Notebook, compute: type[FakeCompute]) -> None:
    shown = notebook("%%sky --on gpu\n1").shown_error
    assert shown.startswith("UsageError: on must be 'one', 'all', 'head', a rank")
    assert shown.endswith("pool 'default' has no groups.")
    assert compute.made == []


def test_unknown_group_of_an_open_pool_is_rejected(notebook: Notebook, compute: type[FakeCompute]) -> None:
    notebook("%sky up")
    compute.made[0].groups = FrozenMap({"cpu": (), "gpu": ()})
    assert notebook("%%sky --on gpus\n1").shown_error.endswith(
        "Pool 'default' has no group 'gpus'; did you mean 'gpu'?"
    )
