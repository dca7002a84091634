"""`import skyward`: fast, without other modules, and the only place of public names."""

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
    """Return the value that `code` prints in a new interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return ast.literal_eval(done.stdout)


def test_every_public_name_exists() -> None:
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


def test_functions_load_no_module_of_pools() -> None:
    """Nodes load these modules at every start."""
    loaded = "[name for name in sys.modules if name.startswith('skyward.specs.')]"
    code = f"import skyward.functions.decorator, sys; print({loaded})"
    assert python(code) == ["skyward.specs.retries"]


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'skyward' has no attribute 'nothing'$"):
        _ = skyward.nothing  # type: ignore[attr-defined]


def test_names_of_the_published_library_have_replacements() -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'Session': no session is needed: open a pool with"):
        _ = skyward.Session  # type: ignore[attr-defined]
    assert not set(OF_THE_MODULE) & set(skyward.__all__)
    assert not [name for name in OF_A_POOL if hasattr(skyward.Compute, name)]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        (
            "Vultr",
            "Vultr is not supported yet: use `sky.SSH(hosts=[...])` for your own machines, `sky.Container()` for ",
        ),
        ("metrics", "nodes are always measured: `pool.metrics()` returns the figures"),
        ("compute", "use `sky.function` for functions and `sky.Compute` for pools"),
        ("A100", "use `sky.accelerators.A100`"),
        ("compte", "did you mean 'Compute'?"),
        ("instanceinfo", "did you mean 'InstanceInfo' or 'instance_info'?"),
    ],
)
def test_missing_name_raises_with_a_hint(name: str, hint: str) -> None:
    """A submodule of the same name that is already loaded makes no difference."""
    ask = f"try: skyward.{name}\nexcept AttributeError as error: print([str(error)])"
    (said,) = python(f"import skyward, skyward.events.metrics, skyward.pool.compute\n{ask}")
    assert said.startswith(f"module 'skyward' has no attribute {name!r}: {hint}")
    assert name not in skyward.__all__


def test_python_adds_no_suggestion_of_its_own_to_the_hint() -> None:
    with pytest.raises(AttributeError) as caught:
        _ = skyward.compte  # type: ignore[attr-defined]
    (shown,) = traceback.format_exception_only(caught.value)
    assert shown == "AttributeError: module 'skyward' has no attribute 'compte': did you mean 'Compute'?\n"


def test_version_equals_the_distribution_version() -> None:
    assert skyward.__version__ == version("skyward-jupyter")


def test_import_loads_no_other_module() -> None:
    code = "import sys; old = set(sys.modules); import skyward; print(sorted(set(sys.modules) - old))"
    assert set(python(code)) <= {"skyward", "types"}


@pytest.mark.parametrize(
    "first",
    [
        "import skyward.functions.decorator",
        "from skyward.functions.decorator import SkyFunction",
        "import skyward.functions.pending",
        "import skyward",
    ],
)
def test_decorator_is_not_shadowed_by_its_module(first: str) -> None:
    code = f"{first}; import skyward; print([type(skyward.function).__name__, skyward.sky is not None])"
    assert python(code) == ["function", True]


@pytest.mark.parametrize(
    "module",
    [
        *("accelerators", "specs", "task.instance", "task.output", "task.sharding"),
        *("functions.decorator", "functions.pending", "pool.resource_requests"),
    ],
)
def test_each_room_imports_alone(module: str) -> None:
    assert (
        python(f"import skyward.{module}, sys; print(int('asyncio' in sys.modules or 'IPython' in sys.modules))") == 0
    )
