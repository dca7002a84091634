"""JupyterLab servers, and headless Chromiums with pages of them."""

import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import pytest

from tests.free_port import free_port
from tests.ui.browser_network import BrowserNetwork
from tests.ui.lab import Lab

__all__ = ["CHROMIUM", "Server", "jupyter_lab", "launched", "opened"]

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LIMIT = 100.0

_SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "codemirror-extension/plugin": {"defaultConfig": {"autoClosingBrackets": False}},
    "docmanager-extension/plugin": {"autosave": False},
}


class Server(NamedTuple):
    """A running JupyterLab, which also serves Notebook 7 if that is installed.

    Attributes:
        address: its URL.
        folder: the folder of its notebooks.
        port: its port, of this host's loopback.
    """

    address: str
    folder: Path
    port: int


@contextmanager
def jupyter_lab(home: Path, python: str, variables: Mapping[str, str] = os.environ) -> Iterator[Server]:
    """Run the JupyterLab of an environment, with fixed settings and all its files in `home`."""
    for plugin, values in _SETTINGS.items():
        path = home / "settings" / "@jupyterlab" / f"{plugin}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    port = free_port()
    server = Server(f"http://127.0.0.1:{port}", home / "notebooks", port)
    server.folder.mkdir(exist_ok=True)
    own = {
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
    }
    command = [
        *(python, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}", "--ip=127.0.0.1"),
        *("--IdentityProvider.token=", "--ServerApp.password=", f"--ServerApp.root_dir={server.folder}"),
        *("--ServerApp.disable_check_xsrf=True", "--ServerApp.port_retries=0"),
        *("--LabApp.expose_app_in_browser=True", "--JupyterNotebookApp.expose_app_in_browser=True"),
    ]
    log = home / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, env={**variables, **own}, stdout=out, stderr=subprocess.STDOUT, cwd=home)
    try:
        deadline = time.monotonic() + LIMIT
        while True:
            try:
                with urllib.request.urlopen(f"{server.address}/api", timeout=5):
                    break
            except OSError:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, f"JupyterLab did not answer in {LIMIT:.0f} s: {log.read_text()}"
                time.sleep(0.1)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def launched(network: BrowserNetwork | None, folder: Path) -> Iterator[Any]:
    """Run the browser, in its own network if there is one."""
    from playwright.sync_api import sync_playwright

    assert CHROMIUM is not None
    program = CHROMIUM if network is None else network.program(folder, CHROMIUM)
    with sync_playwright() as playwright:
        # Tests run as root in containers, where Chromium has no sandbox and little shared memory.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()


@contextmanager
def opened[Front: Lab](
    front: type[Front], server: Server, browser: Any, request: pytest.FixtureRequest
) -> Iterator[Front]:
    """Open a page with a notebook of its own, which is shut down at the end; a failing test leaves a screenshot."""
    name = f"{request.node.name.partition('[')[0].removeprefix('test_')[:40]}.ipynb"
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    notebook.cells = [nbformat.v4.new_code_cell("")]
    (server.folder / name).write_text(nbformat.writes(notebook))
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(LIMIT * 1000)
    lab = front(page, server.address, name)
    before = request.session.testsfailed
    was_opened = False
    try:
        lab.open()
        was_opened = True
        yield lab
    finally:
        if not was_opened or request.session.testsfailed > before:
            lab.see(f"failed-{name}")
        page.close()
        _end_all(server.address)


def _end_all(address: str) -> None:
    """Shut down every kernel and every terminal."""
    for kind, key in (("sessions", "id"), ("terminals", "name")):
        with urllib.request.urlopen(f"{address}/api/{kind}", timeout=20) as reply:
            running = json.load(reply)
        for each in running:
            end = urllib.request.Request(f"{address}/api/{kind}/{each[key]}", method="DELETE")
            with urllib.request.urlopen(end, timeout=30):
                pass
