"""`%pip install` in a `%%sky` cell, which is equivalent to `--pip`."""

import pytest

from tests.unit.jupyter.conftest import FakeCompute, Notebook

pytestmark = pytest.mark.unit


def test_pip_install_adds_packages_to_the_opened_pool(notebook: Notebook, compute: type[FakeCompute]) -> None:
    notebook("%%sky --pip numpy\n%pip install six 'torch>=2'\nx = 1")
    assert compute.made[0].spec.image.pip == ("numpy", "six", "torch>=2")
    assert notebook["x"] == 1


def test_same_cell_runs_again_on_the_open_pool(notebook: Notebook, compute: type[FakeCompute]) -> None:
    for _ in range(2):
        assert notebook("%%sky --pip numpy\n%pip install six\nx = 1").error is None
    assert notebook("%%sky\n%pip install six\nx = 1").error is None
    assert len(compute.made) == 1


def test_missing_package_of_an_open_pool_is_an_error_with_a_fix(notebook: Notebook, compute: type[FakeCompute]) -> None:
    notebook("%sky up")
    assert notebook("%%sky\n%pip install six\nx = 1").shown_error == (
        "UsageError: %pip install six: pool 'default' is open without it, and packages are installed when a node "
        "starts: replace its nodes one by one with `%sky update default --pip six`, or close it with `%sky down "
        "default` and run this cell again."
    )
    assert compute.made[0].sent == []
