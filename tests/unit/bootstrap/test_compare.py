"""Differences between this process and a node, each reported once, for used packages only."""

import pickle
import platform
import sys
from typing import Any

import cloudpickle
import matplotlib.figure
import numpy as np
import pytest

from skyward.bootstrap import Facts, Mismatches, modules_in, words_in
from skyward.bootstrap.compare import distributions_of

HERE = {"numpy": "2.1.0", "pandas": "2.2.3", "torch": "2.6.0+cu128", "cloudpickle": "3.1.1"}


def mismatches(python: str = platform.python_version(), **packages: str) -> Mismatches:
    return Mismatches(Facts(python, "/x/bin/python", packages, {}), "node 3", HERE)


def test_other_python_version_is_reported_at_join() -> None:
    minor = sys.version_info.minor
    (reported,) = mismatches(f"3.{minor - 1}.7").at_join()
    assert reported.startswith(f"node 3 runs Python 3.{minor - 1}.7 and this process {platform.python_version()}: ")
    assert mismatches(f"3.{minor}.99").at_join() == []


def test_differences_of_used_packages_are_reported_once() -> None:
    node = mismatches(numpy="1.26.4", pandas="1.0")
    assert node.of(["json", "numpy.random.mtrand", "my_own_module"]) == [
        'node 3 has numpy 1.26.4 and this process 2.1.0; `Image(pip=["numpy==2.1.0"])` or `--pip numpy==2.1.0` '
        "makes them the same."
    ]
    assert node.of(["numpy"]) == []
    assert node.of(["numpy", "pandas.core.frame"]) == [
        'node 3 has pandas 1.0 and this process 2.2.3; `Image(pip=["pandas==2.2.3"])` or `--pip pandas==2.2.3` '
        "makes them the same."
    ]


def test_package_missing_on_the_node_is_reported() -> None:
    reported = mismatches().of(["pandas"])
    assert reported == ["pandas 2.2.3 is used here and is not installed on node 3; add it with `--pip pandas`."]


@pytest.mark.parametrize("theirs", ["2.1.0", "2.1.3", "2.1", "2.1.0+cpu"])
def test_patch_versions_count_as_equal(theirs: str) -> None:
    assert mismatches(numpy=theirs).of(["numpy"]) == []


def test_local_versions_default_to_installed_packages() -> None:
    node = Mismatches(Facts("3.13.0", "/x", {"numpy": "0.1"}, {}))
    (reported,) = node.of(["numpy"])
    assert reported.startswith(f"the node has numpy 0.1 and this process {np.__version__}; ")


def test_differing_lists_all_distributions() -> None:
    assert mismatches(numpy="1.26.4", nowhere="0.1").differing() == {"numpy": {"numpy"}}


def test_imports_inside_a_pickled_function_are_found() -> None:
    """Imports inside the function count too, though no reference by name shows them."""

    def plot() -> object:
        import matplotlib.pyplot

        return matplotlib.pyplot.figure()

    words = words_in(cloudpickle.dumps(plot))
    assert "matplotlib" in words
    assert "numpy" not in words
    assert isinstance(words_in(b"no pickle"), set)


@pytest.mark.parametrize(
    ("value", "modules"),
    [
        (np.arange(3), {"numpy"}),
        ([np.arange(3), np.float32(1), matplotlib.figure.Figure], {"numpy", "matplotlib"}),
        (["numpy", "pandas.core.frame", {"torch": "torch"}], set()),
    ],
)
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_modules_of_a_pickle_are_found(value: Any, modules: set[str], protocol: int) -> None:
    data = pickle.dumps(value, protocol=protocol)
    assert set(distributions_of(modules_in(data))) == modules


def test_modules_of_a_pickled_function_are_found() -> None:
    data = cloudpickle.dumps(lambda: (np.zeros(1), matplotlib.figure.Figure, np))
    assert {"numpy", "matplotlib"} <= set(distributions_of(modules_in(data)))


@pytest.mark.parametrize("data", [b"", b"\x80\x05", b"not a pickle", pickle.dumps(np.arange(3), protocol=5)[:-9]])
def test_invalid_pickle_is_no_error(data: bytes) -> None:
    assert isinstance(modules_in(data), set)


def test_modules_are_mapped_to_distributions_of_other_names() -> None:
    assert distributions_of(["PIL.Image", "yaml", "sys", "os.path", "matplotlib.pyplot"])[0] == "matplotlib"
