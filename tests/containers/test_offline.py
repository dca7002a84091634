"""Containers on a network without a route: the client sends them what they need."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import skyward as sky
from tests.containers.conftest import containers
from tests.containers.engine import MOUNTS, Engine
from tests.local.bootstrapping import make_index, make_wheel, repack
from tests.machines.serving import served_at

pytestmark = [pytest.mark.containers, pytest.mark.timeout(180)]


@pytest.fixture
def closed(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Network without a route; the package index is on this host's loopback."""
    wheels = [repack(tmp_path / "wheels", name) for name in ("blake3", "casty", "cloudpickle", "uvloop")]
    make_index(tmp_path / "simple", [*wheels, make_wheel(tmp_path / "wheels", "torchy", "2.5")])
    for name in ("PIP_CERT", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "UV_INDEX"):
        monkeypatch.delenv(name, raising=False)
    for name in ("SKYWARD_CACHE_DIR", "UV_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    engine.call("network", "create", "--internal", "closed")
    try:
        with served_at("127.0.0.1", tmp_path) as address:
            monkeypatch.setenv("UV_DEFAULT_INDEX", f"{address}simple")
            yield "closed"
    finally:
        engine.call("network", "rm", "closed")


@sky.function
def torchy() -> str:
    import torchy  # type: ignore[import-not-found]  # made by the test, in the container

    return str(torchy.VERSION)


def test_containers_without_a_route_are_set_up_by_the_client(engine: Engine, closed: str) -> None:
    """They have Python, without uv. Both get the supplies that were collected once."""
    options = [*MOUNTS, "--env", f"PATH={sys.base_prefix}/bin:/usr/sbin:/usr/bin"]
    provider = containers(engine, python=None, options=options, network=closed)
    with sky.Compute(provider=provider, nodes=2, image=sky.Image(pip=["torchy"])) as pool:
        assert torchy() @ pool == ["2.5", "2.5"]
        logs = [pool.start_log(rank) for rank in range(2)]
    assert all("set up from this computer: it cannot fetch packages (" in log for log in logs)
