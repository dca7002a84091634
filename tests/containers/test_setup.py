"""Setup of a worker's environment in a container, from the spec's image."""

import sys
from pathlib import Path

import pytest

import skyward as sky
from skyward.bootstrap import PHASES
from tests.containers.conftest import containers
from tests.containers.engine import MOUNTS, ROOT, Engine
from tests.local.bootstrapping import make_wheel, repack

pytestmark = [pytest.mark.containers, pytest.mark.timeout(180)]

FROM_WHEELS = {"UV_NO_INDEX": "1", "UV_FIND_LINKS": "/wheels"}


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options of containers with a Python, uv and a folder of packages: without Skyward, and without internet."""
    for name in ("blake3", "casty", "cloudpickle", "uvloop"):
        repack(tmp_path, name)
    make_wheel(tmp_path, "torchy", "2.5")
    for name in ("PIP_CERT", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_DEFAULT_INDEX"):
        monkeypatch.delenv(name, raising=False)
    uv = (ROOT / ".venv/bin/uv").resolve()
    return [
        *MOUNTS,
        *("--volume", f"{tmp_path}:/wheels:ro"),
        *("--volume", f"{uv}:/opt/skyward/uv/bin/uv:ro"),
        *("--env", f"PATH={sys.base_prefix}/bin:/usr/sbin:/usr/bin"),
        *("--env", "OF_THE_IMAGE=yes"),
    ]


@sky.function
def seen() -> tuple[str, str, str | None, str | None]:
    import os

    import torchy  # type: ignore[import-not-found]  # made by the test, in the container

    return sys.executable, str(torchy.VERSION), os.environ.get("GREETING"), os.environ.get("OF_THE_IMAGE")


def test_environment_of_containers_has_the_contents_of_the_image(engine: Engine, options: list[str]) -> None:
    """In addition to the environment variables of the container's own image."""
    image = sky.Image(pip=["torchy"], env={"GREETING": "hello", **FROM_WHEELS})
    with sky.Compute(provider=containers(engine, python=None, options=options), nodes=1, image=image) as pool:
        where, *rest = seen() >> pool
        assert where.startswith("/opt/skyward/envs/")
        assert rest == ["2.5", "hello", "yes"]


@sky.function
def environment() -> tuple[str, int, float]:
    found = Path(sys.prefix).stat()
    return sys.prefix, found.st_ino, found.st_mtime


def test_volume_keeps_the_environment_for_later_containers(engine: Engine, options: list[str]) -> None:
    engine.call("volume", "create", "kept")
    options += ["--volume", "kept:/opt/skyward"]
    image = sky.Image(pip=["torchy"], env=FROM_WHEELS)
    try:
        provider = containers(engine, python=None, options=options)
        with sky.Compute(provider=provider, nodes=2, image=image) as pool:
            first, second = environment() @ pool
        with sky.Compute(provider=provider, nodes=1, image=image) as pool:
            third = environment() >> pool
        assert first == second == third
    finally:
        engine.call("volume", "rm", "kept")


def test_failing_phase_in_a_container_is_named(engine: Engine, options: list[str]) -> None:
    assert "deps" in PHASES
    pool = sky.Compute(
        provider=containers(engine, python=None, options=options),
        nodes=1,
        image=sky.Image(pip=["nowhere-to-be-found"], env=FROM_WHEELS),
        max_provision_attempts=1,
    )
    with pytest.raises(sky.ProvisioningError, match=r"(?s)bootstrap phase 'deps' failed.*nowhere-to-be-found"):
        pool.open()
