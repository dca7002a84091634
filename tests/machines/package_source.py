"""A package source on the machines' bridge, for machines without internet."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.local.bootstrapping import repack
from tests.machines.machine import Network
from tests.machines.serving import served

__all__ = ["UV", "package_source"]

UV = Path(__file__).parents[2] / ".venv/bin/uv"


@contextmanager
def package_source(network: Network, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Serve the packages that a node needs to the machines, as their only source; yield the folder with them."""
    for name in ("blake3", "casty", "cloudpickle", "uvloop"):
        repack(folder, name)
    with served(network, folder) as address:
        for name in ("PIP_CERT", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_DEFAULT_INDEX"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PIP_FIND_LINKS", address)
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        yield folder
