"""Images of containers: built with an environment, used by pools, deleted; nothing is left of an interrupted build."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import skyward as sky
from skyward.providers.conformance import check_provider
from tests.containers.conftest import containers
from tests.containers.engine import IMAGE, MOUNTS, ROOT, Engine
from tests.local.bootstrapping import make_wheel, repack
from tests.waiting import interrupt_when

pytestmark = [pytest.mark.containers, pytest.mark.timeout(240)]

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
WHEELS = {"UV_NO_INDEX": "1", "UV_FIND_LINKS": "/wheels"}
SECRET = "a-token-that-nobody-may-read"


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options of containers with a Python, uv and a folder of packages: without Skyward, and without internet."""
    for name in ("blake3", "casty", "cloudpickle", "uvloop"):
        repack(tmp_path, name)
    make_wheel(tmp_path, "torchy", "2.5")
    for name in ("PIP_CERT", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_DEFAULT_INDEX"):
        monkeypatch.delenv(name, raising=False)
    return [
        *MOUNTS,
        *("--volume", f"{tmp_path}:/wheels:ro"),
        *("--env", f"PATH={sys.base_prefix}/bin:/usr/sbin:/usr/bin:{ROOT}/.venv/bin"),
    ]


def images_of(engine: Engine) -> set[str]:
    return set(engine.call("image", "ls", "--format", "{{.Repository}}:{{.Tag}}").split())


@pytest.fixture
def clean(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The images of the engine before the test, which are those after it. Records of others are not seen."""
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path / "data"))
    before = images_of(engine)
    yield before
    left = images_of(engine) - before
    for each in left:
        engine.call("image", "rm", "--force", each)
    assert not left


@sky.function
def seen() -> tuple[str, str, str | None]:
    import torchy  # type: ignore[import-not-found]  # made by the test, in the container

    return sys.executable, str(torchy.VERSION), os.environ.get("TOKEN")


def test_pool_uses_the_image_that_was_built_with_its_environment(
    engine: Engine, clean: set[str], options: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    provider = containers(engine, python=None, options=options)
    image = sky.Image(pip=["torchy"], env={"TOKEN": SECRET, **WHEELS})
    built = sky.build_image(provider=provider, image=image)
    assert engine.containers() == []
    assert engine.networks() == []
    assert images_of(engine) - clean == {built.id}
    assert sky.images() == [built]
    assert (built.provider, built.monthly_price, built.contents) == ("container", 0.0, f"Python {PYTHON}, torchy")
    assert built.size_gb > 0
    assert sky.build_image(provider=provider, image=image) == built

    # The token is neither in its files nor in its settings.
    files = engine.call(
        "run",
        "--rm",
        *MOUNTS,
        "--entrypoint",
        "sh",
        built.id,
        "-c",
        f"grep -rls {SECRET} /opt/skyward /root /tmp /var /etc || echo none; ls /opt/skyward",
    )
    assert files.split() == ["none", "envs", "lock", "pruned", "state", "trees", "used"]
    assert SECRET not in engine.call("image", "inspect", built.id)

    (tmp_path / "torchy-2.5-py3-none-any.whl").unlink()  # a pool could not install it
    with sky.Compute(provider=provider, nodes=1, image=image) as pool:
        where, *rest = seen() >> pool
        assert where.startswith("/opt/skyward/envs/")
        assert rest == ["2.5", SECRET]
        (node,) = engine.of(pool.name)
        assert engine.inspect(node)["Config"]["Image"] == built.id
    notes = [str(event) for event in pool.events(sky.events.PoolNote, replay=True)]
    assert any(f"Using image {built.id}, built " in note for note in notes)

    assert sky.delete_image(built.id)
    assert sky.images() == []
    assert images_of(engine) == clean
    with pytest.raises(sky.UsageError, match="No image .* is on record; these are: none"):
        sky.delete_image(built.id)


def test_image_that_was_deleted_outside_is_forgotten_and_not_used(
    engine: Engine, clean: set[str], options: list[str]
) -> None:
    provider = containers(engine, python=None, options=options)
    image = sky.Image(pip=["torchy"], env=WHEELS)
    built = sky.build_image(provider=provider, image=image)
    engine.call("image", "rm", built.id)
    with sky.Compute(provider=provider, nodes=1, image=image) as pool:
        assert (seen() >> pool)[1] == "2.5"
        (node,) = engine.of(pool.name)
        assert engine.inspect(node)["Config"]["Image"] == provider.image
    assert sky.images() == []


CLIENT = """
import os, signal
import skyward as sky
from skyward_providers.container_engine import Engine

call = Engine.call

async def killed(self, *words, **values):
    if words[0] == {at!r}:
        {first}
        os.kill(os.getpid(), signal.SIGKILL)
    return await call(self, *words, **values)

Engine.call = killed
sky.build_image(provider=sky.Container(**{settings!r}), image=sky.Image(pip=["torchy"], env={env!r}))
"""


@pytest.mark.parametrize(("at", "first"), [("commit", "await call(self, *words, **values)"), ("rm", "pass")])
def test_killed_build_leaves_nothing_but_a_finished_image(
    engine: Engine, clean: set[str], options: list[str], at: str, first: str
) -> None:
    settings = {"image": IMAGE, **engine.settings, "options": options}
    script = CLIENT.format(at=at, first=first, settings=settings, env=WHEELS)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(engine.containers()) == 1
    assert [reaped.error for reaped in sky.reap()] == [""]
    assert engine.containers() == engine.networks() == []
    built = {each.id for each in sky.images()}
    assert len(built) == (at == "rm")
    assert images_of(engine) - clean == built
    for each in built:
        sky.delete_image(each)


@pytest.mark.parametrize(
    ("option", "why"),
    [
        (["--volume", "/opt/skyward"], "have a volume at /opt/skyward, which is not part of an image"),
        (["--env", f"TOKEN={SECRET}"], "would store the value of TOKEN in the image: set it with"),
    ],
)
def test_containers_whose_image_would_be_wrong_are_refused(
    engine: Engine, clean: set[str], options: list[str], option: list[str], why: str
) -> None:
    provider = containers(engine, python=None, options=[*options, *option])
    with pytest.raises(sky.ProvisioningError, match=why):
        sky.build_image(provider=provider, image=sky.Image(env=WHEELS))
    assert engine.containers() == []
    assert (sky.images(), sky.orphans()) == ([], [])


def test_interrupted_build_leaves_nothing(engine: Engine, clean: set[str], options: list[str]) -> None:
    provider = containers(engine, python=None, options=options)
    with interrupt_when(lambda: engine.of("image-build"), "the container"), pytest.raises(KeyboardInterrupt):
        sky.build_image(provider=provider, image=sky.Image(pip=["torchy"], env=WHEELS))
    assert engine.containers() == engine.networks() == []
    assert (sky.images(), sky.orphans()) == ([], [])


def test_provider_passes_the_conformance_suite(engine: Engine, clean: set[str], tmp_path: Path) -> None:
    asyncio.run(check_provider(containers(engine), tmp_path))
