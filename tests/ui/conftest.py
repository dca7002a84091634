"""Fixtures with a real JupyterLab and a headless Chromium."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.machines.conftest import network
from tests.ui.browser_network import BrowserNetwork
from tests.ui.lab import Lab
from tests.ui.notebook7 import Notebook7
from tests.ui.serving import CHROMIUM, Server, jupyter_lab, launched, opened

__all__ = ["network"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of this tier if there is no browser, unless one is required."""
    if CHROMIUM is None and os.environ.get("SKYWARD_BROWSER") != "required":
        skip = pytest.mark.skip(reason="no Chromium found: install it to run the tests of the panel")
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(skip)


@pytest.fixture(scope="session")
def browser_network() -> Iterator[BrowserNetwork | None]:
    """Network of the browser; None without root, where no test can add networks to this host's."""
    if os.geteuid() != 0:
        yield None
        return
    network = BrowserNetwork()
    yield network
    network.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, browser_network: BrowserNetwork | None) -> Iterator[Server]:
    """JupyterLab, which also serves Notebook 7."""
    with jupyter_lab(tmp_path_factory.mktemp("lab"), sys.executable) as server:
        if browser_network is not None:
            browser_network.connect(server.port)
        yield server


@pytest.fixture(scope="module")
def browser(browser_network: BrowserNetwork | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The browser."""
    with launched(browser_network, tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def lab(server: Server, browser: Any, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A JupyterLab page with its own notebook, which is shut down at the end; a failing test leaves a screenshot."""
    with opened(Lab, server, browser, request) as lab:
        yield lab


@pytest.fixture
def notebook7(server: Server, browser: Any, request: pytest.FixtureRequest) -> Iterator[Notebook7]:
    """A Notebook 7 page with its own notebook."""
    with opened(Notebook7, server, browser, request) as notebook:
        yield notebook
