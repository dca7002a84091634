"""CPython's own tests of executors, against `pool.executor()`.

Left out are those that create executors with a number of workers.
"""

from collections.abc import Iterator
from typing import Any

import pytest

import skyward as sky

executors = pytest.importorskip(
    "test.test_concurrent_futures.executor", reason="this Python has no tests of its library"
)

pytestmark = pytest.mark.local

NAMES = sorted(
    name for name in dir(executors.ExecutorTest) if name.startswith("test_") and name != "test_max_workers_negative"
)


@pytest.fixture(scope="module")
def nodes() -> Iterator[sky.Compute]:
    with sky.Compute(provider="local", nodes=2, name="cpython") as pool:
        yield pool


@pytest.mark.parametrize("name", NAMES)
def test_test_of_the_standard_library_passes(nodes: sky.Compute, name: str) -> None:
    import unittest

    class Case(executors.ExecutorTest, unittest.TestCase):  # type: ignore[misc, name-defined]  # found at run time
        worker_count = 2

        def setUp(self) -> None:
            self.executor: Any = nodes.executor()

        def tearDown(self) -> None:
            self.executor.shutdown()

    result = unittest.TestResult()
    Case(name).run(result)
    assert not result.skipped, result.skipped
    assert result.testsRun == 1
    assert not [text for _, text in (*result.failures, *result.errors)], result
