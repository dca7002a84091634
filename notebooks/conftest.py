"""For nbval, which keeps a display that is cleared again: no lines of progress, which come and go with the time."""

from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None]:
    """Start the kernels of notebooks with progress off, and those of no other test."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SKYWARD_PROGRESS", "off")
        yield
