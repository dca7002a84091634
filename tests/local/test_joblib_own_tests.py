"""Joblib's own tests of backends, against a pool.

Each test that takes the names of backends is run with this backend; `EXCLUDED` has the others, with the reason.
"""

import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import skyward as sky
from skyward.pool.joblib_backend import backend_class

own = pytest.importorskip("joblib.test.test_parallel", reason="this joblib has no tests")

pytestmark = [
    pytest.mark.local,
    pytest.mark.filterwarnings("ignore:.*tasks which were still being processed:UserWarning"),  # of lost generators
]

OUTER = ("backend", "parent_backend", "outer_backend")
"""Names of the parameters for the backend under test."""

INNER = ("child_backend", "inner_backend")
"""Names of the parameters for the backend of nested calls."""

_FILES = "asserts joblib's memory-mapped files, which a pool does not make"
_LOKY = "asserts processes of loky and multiprocessing"
_NESTED = "asserts that nested calls use threads; on a node they use the slot alone"
_SCRIPT = "runs a script that has the name of another backend"

EXCLUDED = {
    "test_auto_memmap_on_arrays_from_generator": _FILES,
    "test_background_thread_parallelism": "does not use the backend that it takes",
    "test_dispatch_multiprocessing": "shares a manager of multiprocessing, which only child processes may use",
    "test_error_capture": f"{_LOKY}; an interrupt raised in a call is an error of the call here",
    "test_initializer_context": _LOKY,
    "test_initializer_parallel": _LOKY,
    "test_memmapping_leaks": _FILES,
    "test_nested_backend_context_manager": _NESTED,
    "test_nested_exception_dispatch": "fails with joblib's own backends too",
    "test_nested_parallel_warnings": "asserts warnings of loky's and multiprocessing's about nesting",
    "test_nested_parallelism_limit": _NESTED,
    "test_parallel_as_context_manager": _LOKY,
    "test_parallel_thread_limit": _LOKY,
    "test_parallel_with_interactively_defined_functions": _SCRIPT,
    "test_parallel_with_unpicklable_functions_in_args": _SCRIPT,
    "test_thread_bomb_mitigation": _NESTED,
}


SLOW = types.SimpleNamespace(time=lambda: time.time() / 2, sleep=time.sleep)
"""The clock of the tests, which compare times: at half speed, since a node may be slow on a busy machine.

Not slower: what they detect is a wait of 5 s instead of less than 2 s, or of 10 s instead of less than 5 s.
"""


@pytest.fixture(scope="module", autouse=True)
def _nodes() -> Iterator[None]:
    with sky.Compute(provider="local", nodes=2, name="own"), pytest.MonkeyPatch.context() as patch:
        patch.setitem(own.BACKENDS, "skyward", backend_class())  # the tests compare types with it
        yield


def _parameters(test: Callable[..., object]) -> list[pytest.Mark]:
    return [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]


def _names(mark: pytest.Mark) -> list[str]:
    given = mark.args[0]
    return [name.strip() for name in given.split(",")] if isinstance(given, str) else list(given)


def _takes_a_backend(test: object) -> bool:
    return callable(test) and any(name in OUTER for mark in _parameters(test) for name in _names(mark))


def _on_pool(test: types.FunctionType) -> types.FunctionType:
    """Return a copy of a test whose backend is this one, and whose other parameters are its own."""
    names = {**test.__globals__, "time": SLOW}
    copy = types.FunctionType(test.__code__, names, test.__name__, test.__defaults__, test.__closure__)
    marks = []
    for mark in _parameters(test):
        first, *others = _names(mark)
        if first in OUTER:
            values: list[Any] = ["skyward"] if not others else [("skyward", *[False] * len(others))]
            marks.append(pytest.mark.parametrize(mark.args[0], values))
        elif first in INNER:
            marks.append(pytest.mark.parametrize(first, ["threading"]))
        else:
            marks.append(getattr(pytest.mark, mark.name)(*mark.args, **mark.kwargs))
    copy.pytestmark = [each.mark for each in marks]  # type: ignore[attr-defined]  # as pytest's decorators set it
    return copy


_TESTS = {name: test for name, test in vars(own).items() if name.startswith("test_") and _takes_a_backend(test)}

globals().update({name: _on_pool(test) for name, test in _TESTS.items() if name not in EXCLUDED})


def test_every_test_is_run_or_excluded_with_a_reason() -> None:
    assert EXCLUDED.keys() <= _TESTS.keys()
    assert len(_TESTS) - len(EXCLUDED) >= 20
