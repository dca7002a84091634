"""Fixtures with a real JupyterLab and a headless Chromium."""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.free_port import free_port
from tests.machines.conftest import network
from tests.ui.lab import Lab
from tests.ui.notebook7 import Notebook7

__all__ = ["network"]

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LIMIT = 100.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of this tier if there is no browser, unless one is required."""
    if CHROMIUM is None and os.environ.get("SKYWARD_BROWSER") != "required":
        skip = pytest.mark.skip(reason="no Chromium found: install it to run the tests of the panel")
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(skip)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Address and folder of a JupyterLab with fixed settings, which also serves Notebook 7."""
    home = tmp_path_factory.mktemp("lab")
    settings = home / "settings" / "@jupyterlab"
    for plugin, values in {
        "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
        "codemirror-extension/plugin": {"defaultConfig": {"autoClosingBrackets": False}},
        "docmanager-extension/plugin": {"autosave": False},
    }.items():
        path = settings / f"{plugin}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    notebooks = home / "notebooks"
    notebooks.mkdir()
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    own = {
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
    }
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}", "--ip=127.0.0.1"),
        *("--IdentityProvider.token=", "--ServerApp.password=", f"--ServerApp.root_dir={notebooks}"),
        *("--ServerApp.disable_check_xsrf=True", "--ServerApp.port_retries=0"),
        *("--LabApp.expose_app_in_browser=True", "--JupyterNotebookApp.expose_app_in_browser=True"),
    ]
    log = home / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, env={**os.environ, **own}, stdout=out, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + LIMIT
        while True:
            try:
                with urllib.request.urlopen(f"{address}/api", timeout=5):
                    break
            except OSError:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, f"JupyterLab did not answer in {LIMIT:.0f} s: {log.read_text()}"
                time.sleep(0.1)
        yield address, notebooks
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Tests run as root in containers, where Chromium has no sandbox and little shared memory.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def lab(server: tuple[str, Path], browser: Any, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A JupyterLab page with its own notebook, which is shut down at the end; a failing test leaves a screenshot."""
    with _opened(Lab, server, browser, request) as lab:
        yield lab


@pytest.fixture
def notebook7(server: tuple[str, Path], browser: Any, request: pytest.FixtureRequest) -> Iterator[Notebook7]:
    """A Notebook 7 page with its own notebook."""
    with _opened(Notebook7, server, browser, request) as notebook:
        yield notebook


@contextmanager
def _opened[Front: Lab](
    front: type[Front], server: tuple[str, Path], browser: Any, request: pytest.FixtureRequest
) -> Iterator[Front]:
    address, folder = server
    name = f"{request.node.name.partition('[')[0].removeprefix('test_')[:40]}.ipynb"
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    notebook.cells = [nbformat.v4.new_code_cell("")]
    (folder / name).write_text(nbformat.writes(notebook))
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(LIMIT * 1000)
    lab = front(page, address, name)
    before = request.session.testsfailed
    opened = False
    try:
        lab.open()
        opened = True
        yield lab
    finally:
        if not opened or request.session.testsfailed > before:
            lab.see(f"failed-{name}")
        page.close()
        _end_all(address)


def _end_all(address: str) -> None:
    """Shut down every kernel and every terminal."""
    for kind, key in (("sessions", "id"), ("terminals", "name")):
        with urllib.request.urlopen(f"{address}/api/{kind}", timeout=20) as reply:
            running = json.load(reply)
        for each in running:
            end = urllib.request.Request(f"{address}/api/{kind}/{each[key]}", method="DELETE")
            with urllib.request.urlopen(end, timeout=30):
                pass
