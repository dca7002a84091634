"""Prices of clouds that Skyward does not rent from: gpuhunt's catalogue, from a server of ours."""

import csv
import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

import skyward as sky
from skyward.market.gpuhunt_catalogue import gpuhunt_providers
from skyward.views.offers import as_of

pytest.importorskip("gpuhunt", reason="gpuhunt is not installed")
pytestmark = pytest.mark.cloud

ROWS = (
    {"instance_name": "Standard_ND96", "location": "eastus", "price": "27.2", "cpu": "96", "memory": "900",
     "gpu_count": "8", "gpu_name": "A100", "gpu_memory": "80", "spot": "False", "gpu_vendor": "nvidia"},
    {"instance_name": "Standard_ND96", "location": "eastus", "price": "9.5", "cpu": "96", "memory": "900",
     "gpu_count": "8", "gpu_name": "A100", "gpu_memory": "80", "spot": "True", "gpu_vendor": "nvidia"},
    {"instance_name": "Standard_D4ps", "location": "eastus", "price": "0.15", "cpu": "4", "memory": "16",
     "gpu_count": "0", "gpu_name": "", "gpu_memory": "", "spot": "False", "cpu_arch": "arm"},
)  # fmt: skip  # a table

COLUMNS = ("instance_name", "location", "price", "cpu", "memory", "gpu_count", "gpu_name", "gpu_memory", "spot",
           "disk_size", "gpu_vendor", "flags", "cpu_arch", "provider_data")  # fmt: skip  # as above


def archive(provider: str) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="")
    writer.writeheader()
    writer.writerows(ROWS if provider == "azure" else ())
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr(f"{provider}.csv", text.getvalue())
    return packed.getvalue()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        provider, _, file = self.path.removeprefix("/").partition("/")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"20260701-42" if file == "version" else archive(provider))

    def log_message(self, format: str, *values: object) -> None:
        pass


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("GPUHUNT_CATALOG_URL", f"http://127.0.0.1:{server.server_port}")
        yield
        server.shutdown()
        thread.join()


@pytest.mark.usefixtures("published")
def test_prices_of_other_clouds_are_shown_with_the_date_of_their_catalogue() -> None:
    found = sky.offers(provider="gpuhunt", accelerator="A100:8")
    assert [(each.provider, each.type, each.region, each.market, each.hourly_price) for each in found] == [
        ("azure", "Standard_ND96", "eastus", "spot", 9.5),
        ("azure", "Standard_ND96", "eastus", "on-demand", 27.2),
    ]
    first = found[0]
    assert (first.origin, first.is_current, first.listed) == ("gpuhunt", False, datetime(2026, 7, 1, tzinfo=UTC))
    assert as_of(first) == "2026-07-01, gpuhunt"
    both = sky.offers(provider="local,gpuhunt", vcpus=1)
    shown = {(each.provider, each.type, each.architecture) for each in both}
    assert ("azure", "Standard_D4ps", "arm64") in shown
    assert "local" in {each.provider for each in both}
    assert sky.offers(provider="gpuhunt", accelerator="H100") == []


def test_catalogue_that_cannot_be_fetched_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("GPUHUNT_CATALOG_URL", "http://127.0.0.1:9")
    assert sky.offers(provider="gpuhunt", accelerator="A100") == []
    assert "Provider 'azure' did not list its offers (the catalogue of gpuhunt could not be fetched" in caplog.text


def test_command_shows_no_traceback_of_a_catalogue_that_cannot_be_fetched(tmp_path: Path) -> None:
    """Runs in a separate process, since pytest handles all logs."""
    places = {"SKYWARD_DATA_DIR": str(tmp_path), "GPUHUNT_CATALOG_URL": "http://127.0.0.1:9"}
    command = [sys.executable, "-m", "skyward", "offers", "--gpu", "A100", "--provider", "gpuhunt"]
    done = subprocess.run(command, env={**os.environ, **places}, capture_output=True, text=True, check=False)
    assert "Provider 'azure' did not list its offers (the catalogue of gpuhunt could not be fetched" in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_is_rented_from_the_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(sky.ProviderMissingError, match="There is no provider 'gpuhunt'"):
        sky.Compute(provider="gpuhunt").open()
    monkeypatch.setattr("skyward.market.gpuhunt_catalogue.find_spec", lambda name: None)
    with pytest.raises(sky.ProviderMissingError, match=r"pip install 'skyward-jupyter\[gpuhunt\]'"):
        gpuhunt_providers()
