"""The browser's own network."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from tests.machines.machine import Network
from tests.ui.browser_network import BrowserNetwork

pytestmark = [pytest.mark.ui, pytest.mark.timeout(240)]

DOWNLOADS = """() => {
    window.downloads = 0; window.failures = [];
    const again = () => fetch('/', {cache: 'no-store'}).then(answer => answer.text()).then(
        () => { window.downloads++; return again(); }, error => { window.failures.push(String(error)); });
    for (let each = 0; each < 40; each++) again();
}"""
"""Downloads the page again and again, forty times at once: six have a connection, and the others are those dropped."""


class Handler(BaseHTTPRequestHandler):
    """Serves one page, over a new connection each time."""

    def do_GET(self) -> None:  # the name that the library calls
        with suppress(OSError):  # the page may be closed at any time
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"a page")

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def page_server() -> Iterator[int]:
    """Serve the page. Yield the port."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def test_downloads_continue_while_networks_come_and_go(
    browser: Any, browser_network: BrowserNetwork, network: Network
) -> None:
    with page_server() as port:
        browser_network.connect(port)
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{port}/")
        page.evaluate(DOWNLOADS)
        network.add()
        network.close()
        seen = page.evaluate("window.downloads")
        page.wait_for_function("seen => window.downloads >= seen + 500 || window.failures.length", arg=seen)
        assert page.evaluate("window.failures") == []
        page.close()
