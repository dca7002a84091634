"""`%pip install` in a `%%sky` cell: what `--pip` is."""

import pytest

from tests.unit.jupyter.conftest import FakeCompute, Notebook

pytestmark = pytest.mark.unit


def test_packages_are_those_of_the_pool_that_the_cell_opens(notebook: Notebook, compute: type[FakeCompute]) -> None:
    notebook("%%sky --pip numpy\n%pip install six 'torch>=2'\nx = 1")
    assert compute.made[0].spec.image.pip == ("numpy", "six", "torch>=2")
    assert notebook["x"] == 1


def test_the_same_cell_runs_again_on_the_open_pool(notebook: Notebook, compute: type[FakeCompute]) -> None:
    for _ in range(2):
        assert notebook("%%sky --pip numpy\n%pip install six\nx = 1").error is None
    assert notebook("%%sky\n%pip install six\nx = 1").error is None
    assert len(compute.made) == 1


def test_a_pool_that_is_open_without_a_package_says_how(notebook: Notebook, compute: type[FakeCompute]) -> None:
    notebook("%sky up")
    assert notebook("%%sky\n%pip install six\nx = 1").shown_error == (
        "UsageError: %pip install six: pool 'default' is open without it, and packages are installed when a pool "
        "opens: close it with `%sky down default` and run this cell again."
    )
    assert compute.made[0].sent == []
