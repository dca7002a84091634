"""What differs between this process and a node, told once and only where it is used."""

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


def test_another_python_is_told_at_join() -> None:
    minor = sys.version_info.minor
    (told,) = mismatches(f"3.{minor - 1}.7").at_join()
    assert told.startswith(f"node 3 runs Python 3.{minor - 1}.7 and this process {platform.python_version()}: ")
    assert mismatches(f"3.{minor}.99").at_join() == []


def test_only_what_a_payload_uses_is_told_and_once() -> None:
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


def test_a_package_that_the_node_lacks() -> None:
    told = mismatches().of(["pandas"])
    assert told == ["pandas 2.2.3 is used here and is not installed on node 3; add it with `--pip pandas`."]


@pytest.mark.parametrize("theirs", ["2.1.0", "2.1.3", "2.1", "2.1.0+cpu"])
def test_what_is_taken_for_the_same(theirs: str) -> None:
    assert mismatches(numpy=theirs).of(["numpy"]) == []


def test_versions_are_looked_up_where_they_are_not_given() -> None:
    node = Mismatches(Facts("3.13.0", "/x", {"numpy": "0.1"}, {}))
    (told,) = node.of(["numpy"])
    assert told.startswith(f"the node has numpy 0.1 and this process {np.__version__}; ")


def test_what_differs_at_all() -> None:
    assert mismatches(numpy="1.26.4", nowhere="0.1").differing() == {"numpy": {"numpy"}}


def test_the_words_in_a_pickled_function() -> None:
    """What is imported inside of it counts too, which no reference by name shows."""

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
def test_the_modules_in_a_pickle(value: Any, modules: set[str], protocol: int) -> None:
    data = pickle.dumps(value, protocol=protocol)
    assert set(distributions_of(modules_in(data))) == modules


def test_the_modules_in_a_function() -> None:
    data = cloudpickle.dumps(lambda: (np.zeros(1), matplotlib.figure.Figure, np))
    assert {"numpy", "matplotlib"} <= set(distributions_of(modules_in(data)))


@pytest.mark.parametrize("data", [b"", b"\x80\x05", b"not a pickle", pickle.dumps(np.arange(3), protocol=5)[:-9]])
def test_what_is_no_pickle_is_no_error(data: bytes) -> None:
    assert isinstance(modules_in(data), set)


def test_modules_and_distributions_have_different_names() -> None:
    assert distributions_of(["PIL.Image", "yaml", "sys", "os.path", "matplotlib.pyplot"])[0] == "matplotlib"
