"""`import skyward`: fast, alone, and the one place for public names."""

import ast
import inspect
import subprocess
import sys
import traceback
from importlib.metadata import version
from typing import Any

import pytest

import skyward
from skyward import errors
from skyward.published_names import OF_A_POOL, OF_THE_MODULE

pytestmark = pytest.mark.unit


def python(code: str) -> Any:
    """The value that `code` prints, in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return ast.literal_eval(done.stdout)


def test_every_public_name_is_there() -> None:
    assert sorted(set(skyward.__all__)) == sorted(skyward.__all__) == dir(skyward)
    for name in skyward.__all__:
        assert getattr(skyward, name) is not None


def test_type_checkers_see_the_same_names() -> None:
    block = next(node for node in ast.parse(inspect.getsource(skyward)).body if isinstance(node, ast.If))
    imported = {
        name.asname or name.name for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names
    }
    assert imported - {"InteractiveShell"} == set(skyward.__all__)


def test_every_error_is_public() -> None:
    assert set(errors.__all__) <= set(skyward.__all__)


def test_a_call_knows_what_it_needs_and_nothing_of_pools() -> None:
    """A node loads these at every start."""
    loaded = "[name for name in sys.modules if name.startswith('skyward.specs.')]"
    code = f"import skyward.functions.function, sys; print({loaded})"
    assert python(code) == ["skyward.specs.retries"]


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match=r"^module 'skyward' has no attribute 'nothing'$"):
        _ = skyward.nothing  # type: ignore[attr-defined]


def test_names_of_the_published_library_say_what_takes_their_place() -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'Session': it is not needed: open each pool by itself"):
        _ = skyward.Session  # type: ignore[attr-defined]
    assert not set(OF_THE_MODULE) & set(skyward.__all__)
    assert not [name for name in OF_A_POOL if hasattr(skyward.Compute, name)]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("AWS", "no AWS yet: `sky.SSH(hosts=[...])` uses machines that you have, `sky.Container()` containers"),
        ("metrics", "nodes are measured by themselves: `pool.metrics()` gives what they use"),
        ("compute", "it is `sky.function`, for functions, and `sky.Compute`, for pools"),
        ("A100", "it is `sky.accelerators.A100`"),
        ("compte", "did you mean 'Compute'?"),
        ("instanceinfo", "did you mean 'InstanceInfo' or 'instance_info'?"),
    ],
)
def test_a_name_that_is_missing_says_what_is_meant(name: str, meant: str) -> None:
    """Whatever was loaded before: a module of ours may have that name."""
    ask = f"try: skyward.{name}\nexcept AttributeError as error: print([str(error)])"
    (said,) = python(f"import skyward, skyward.events.metrics, skyward.pool.compute\n{ask}")
    assert said.startswith(f"module 'skyward' has no attribute {name!r}: {meant}")
    assert name not in skyward.__all__


def test_python_adds_no_guess_of_its_own_to_what_a_missing_name_says() -> None:
    with pytest.raises(AttributeError) as caught:
        _ = skyward.compte  # type: ignore[attr-defined]
    (shown,) = traceback.format_exception_only(caught.value)
    assert shown == "AttributeError: module 'skyward' has no attribute 'compte': did you mean 'Compute'?\n"


def test_version_is_that_of_the_distribution() -> None:
    assert skyward.__version__ == version("skyward-jupyter")


def test_the_import_brings_nothing_along() -> None:
    code = "import sys; old = set(sys.modules); import skyward; print(sorted(set(sys.modules) - old))"
    assert set(python(code)) <= {"skyward", "types"}


@pytest.mark.parametrize(
    "first",
    [
        "import skyward.functions.function",
        "from skyward.functions.function import SkyFunction",
        "import skyward.functions.pending",
        "import skyward",
    ],
)
def test_the_decorator_is_not_hidden_by_its_module(first: str) -> None:
    code = f"{first}; import skyward; print([type(skyward.function).__name__, skyward.sky is not None])"
    assert python(code) == ["function", True]


@pytest.mark.parametrize(
    "module",
    [
        *("accelerators", "specs", "task.instance", "task.output", "task.sharding"),
        *("functions.function", "functions.pending", "pool.resource_requests"),
    ],
)
def test_each_room_loads_on_its_own(module: str) -> None:
    assert (
        python(f"import skyward.{module}, sys; print(int('asyncio' in sys.modules or 'IPython' in sys.modules))") == 0
    )
