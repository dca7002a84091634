"""For nbval: no lines of progress; notebooks of training frameworks have more time, and are left out without these."""

from collections.abc import Generator
from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("torch") and find_spec("keras") else ["train/*"]

_IMPORTS_WITHIN = 400
"""Seconds for a cell that waits for processes which import training frameworks, on a busy machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give notebooks of training frameworks more time."""
    for item in items:
        if item.path.match("notebooks/train/*.ipynb"):
            item.add_marker(pytest.mark.timeout(_IMPORTS_WITHIN))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None]:
    """Start the kernels of notebooks with progress off, and those of no other test.

    Its lines come and go with the time, and nbval keeps a display that is cleared again.
    """
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SKYWARD_PROGRESS", "off")
        yield
