"""The plugin of functions: they travel by value, and wrap processes and tasks."""

import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import Any

import pytest

import skyward as sky
from skyward.plugins.nodes.around_node import AroundOnNode
from skyward.task.instance import InstanceInfo
from skyward.task.on_node import TaskInfo

pytestmark = pytest.mark.unit

INFO = InstanceInfo(node=1, total_nodes=2)
seen: list[object] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


def generator(info: object) -> Iterator[str]:
    seen.append(info)
    try:
        yield "inside"
    finally:
        seen.append("left")


def node_of(plugin: Any) -> AroundOnNode:
    return AroundOnNode(**plugin.settings())


class Context(AbstractContextManager[str]):
    """A context manager that is a class."""

    def __init__(self, info: object) -> None:
        seen.append(info)

    def __enter__(self) -> str:
        return "inside"

    def __exit__(self, *_: object) -> None:
        seen.append("left")


@pytest.mark.parametrize("function", [generator, contextmanager(generator), Context, lambda info: generator(info)])
def test_functions_yield_or_return_a_context(function: Callable[[object], Any]) -> None:
    node = node_of(sky.plugins.around(process=function, task=function))
    with node.around_process(INFO) as inside:
        assert (inside, seen) == ("inside", [INFO])
    for number in (1, 2):
        seen.clear()
        with node.around_task(TaskInfo(task=number)):
            assert seen == [TaskInfo(task=number)]
        assert seen == [TaskInfo(task=number), "left"]


def test_generator_sees_the_error_of_the_task() -> None:
    node = node_of(sky.plugins.around(task=generator))
    with pytest.raises(ZeroDivisionError), node.around_task(TaskInfo(task=1)):
        raise ZeroDivisionError
    assert seen[1:] == ["left"]


def test_one_function_is_enough() -> None:
    with node_of(sky.plugins.around(task=generator)).around_process(INFO) as inside:
        assert (inside, seen) == (None, [])
    with node_of(sky.plugins.around(process=generator)).around_task(TaskInfo(task=1)) as inside:
        assert (inside, seen) == (None, [])


def test_function_that_returns_no_context_is_an_error() -> None:
    node = node_of(sky.plugins.around(task=lambda info: info.task))
    with pytest.raises(TypeError, match=r"`sky.plugins.around\(task=...\)` returned int: it must return a context"):
        node.around_task(TaskInfo(task=1))


def test_plugin_is_a_value() -> None:
    plugin = sky.plugins.around(process=generator, task=generator)
    assert plugin == sky.plugins.around(process=generator, task=generator) != sky.plugins.around(task=generator)
    assert pickle.loads(pickle.dumps(plugin)) == plugin
    assert {plugin: 1}[pickle.loads(pickle.dumps(plugin))] == 1
    assert sky.Spec(plugins=[plugin]).plugins == (plugin,)


def test_functions_of_a_notebook_travel_by_value() -> None:
    """Another interpreter has neither the function nor what it uses."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("import random\nfactor = 3\ndef seeded(task):\n    random.seed(factor * task.task)\n    yield factor\n", names)
    plugin = sky.plugins.around(task=names["seeded"])
    assert plugin == sky.plugins.around(task=names["seeded"])
    program = (
        "import pickle, random, sys\n"
        "from skyward.plugins.nodes.around_node import AroundOnNode\n"
        "from skyward.task.on_node import TaskInfo\n"
        "node = AroundOnNode(**pickle.load(sys.stdin.buffer))\n"
        "with node.around_task(TaskInfo(task=5)) as factor:\n"
        "    print(factor, random.random())\n"
    )
    given = pickle.dumps(dict(plugin.settings()))
    done = subprocess.run([sys.executable, "-c", program], input=given, capture_output=True, check=True, timeout=50)
    assert done.stdout.decode().split() == ["3", str(random.Random(15).random())]


def test_functions_are_unpickled_where_they_are_needed() -> None:
    node = AroundOnNode(process="not a pickle", task="not a pickle")
    assert node.environment(INFO, 0) == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, r"around needs a function: write `sky.plugins.around\(task=f\)`"),
        ({"task": "seeded"}, "task must be a function of one argument, as in `task=f`, but got 'seeded'"),
        ({"process": 1}, "process must be a function of one argument"),
    ],
)
def test_what_is_not_a_function_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(sky.SpecError, match=message):
        sky.plugins.around(**given)


def test_function_that_cannot_be_pickled_is_refused() -> None:
    lock = Lock()

    def locked(task: TaskInfo) -> Iterator[None]:
        with lock:
            yield

    with pytest.raises(sky.SpecError, match=r"task cannot be sent to nodes \(.*\): make what it uses inside of it"):
        sky.plugins.around(task=locked)


def test_door_has_the_function() -> None:
    assert "around" in dir(sky.plugins)
    assert {"cuml", "huggingface", "mig", "mps"} <= {*dir(sky.plugins)}
    with pytest.raises(AttributeError, match="There is no plugin 'arround'; did you mean 'around'"):
        getattr(sky.plugins, "arround")  # noqa: B009  # type checkers know that it is not there
