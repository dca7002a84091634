"""Machines with a minimal system: no Python, uv, pip or curl, and no network except mirrors on their bridge."""

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import skyward as sky
from tests.local.bootstrapping import make_wheel, repack
from tests.machines import minimal
from tests.machines.conftest import hosts
from tests.machines.machine import Machine, Network, why_not
from tests.machines.serving import served
from tests.required import leave_out_for

pytestmark = [pytest.mark.machines, pytest.mark.timeout(600)]  # the first run creates the system

UV = Path(__file__).parents[2] / ".venv/bin/uv"
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="module")
def offered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the mirrors: packages for apt, packages for Python, and Python itself."""
    leave_out_for(why_not(), "SKYWARD_MACHINES")
    leave_out_for(minimal.why_not(), "SKYWARD_MINIMAL_ROOT")
    folder = tmp_path_factory.mktemp("offered")
    for name in ("blake3", "casty", "cloudpickle", "uv", "uvloop"):
        repack(folder / "wheels", name)
    make_wheel(folder / "wheels", "torchy", "2.5")
    (folder / "apt").mkdir()
    for path in minimal.packages().iterdir():
        (folder / "apt" / path.name).symlink_to(path)
    minimal.make_python(folder)
    return folder


@dataclass(frozen=True)
class Bare:
    """A machine, and the mirrors that it may be configured with."""

    network: Network
    machine: Machine
    mirrors: str

    @property
    def provider(self) -> sky.SSH:
        return replace(hosts(self.network), python=None)

    def offer_packages(self, folder: str = "apt") -> None:
        """Configure apt with its mirror."""
        sources = self.machine.disk / "etc/apt/sources.list"
        sources.write_text(f"deb [trusted=yes] {self.mirrors}{folder}/ ./\n")

    def bring_uv(self) -> None:
        """Install uv on the machine."""
        uv = self.machine.disk / "usr/local/bin/uv"
        shutil.copy(UV.resolve(), uv)

    def refusal(self, python: str) -> str:
        """Return the first line of the error of a pool that fails to open."""
        image = sky.Image(python=python)
        pool = sky.Compute(provider=self.provider, nodes=1, max_provision_attempts=1, image=image)
        with pytest.raises(sky.ProvisioningError, match="has no Python") as caught:
            pool.open()
        return next(line for line in str(caught.value).splitlines() if "has no Python" in line)


@pytest.fixture
def bare(network: Network, offered: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bare]:
    network.system = minimal.system()
    machine = network.add()
    for name in ("python3", f"python{MINOR}", "uv", "pip", "curl", "wget"):
        assert not (machine.disk / "usr/bin" / name).exists()
        assert not (machine.disk / "usr/local/bin" / name).exists()
    with served(network, offered) as mirrors:
        for name in ("PIP_CERT", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_DEFAULT_INDEX"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PIP_FIND_LINKS", f"{mirrors}wheels/")
        monkeypatch.setenv("PIP_TRUSTED_HOST", network.address)
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("UV_PYTHON_DOWNLOADS_JSON_URL", f"{mirrors}none.json")
        yield Bare(network, machine, mirrors)


def offer_python(bare: Bare, offered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure uv with the Python to fetch."""
    described = minimal.described_python(f"{bare.mirrors}python.tar.gz")
    (offered / "downloads.json").write_text(json.dumps(described))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS_JSON_URL", f"{bare.mirrors}downloads.json")


@sky.function
def seen() -> dict[str, object]:
    import os
    import shutil
    import sys

    import ours  # type: ignore[import-not-found]  # included
    import torchy  # type: ignore[import-not-found]  # made by the test, on the node

    print("naïve ✓")
    return {
        "python": sys.version_info[:3],
        "base": sys.base_prefix,
        "bc": shutil.which("bc"),
        "torchy": torchy.VERSION,
        "ours": ours.WHO,
        "variables": (os.environ.get("GREETING"), os.environ.get("KERNEL")),
    }


@sky.function
def base_prefix() -> str:
    import sys

    return sys.base_prefix


def test_machine_passes_every_phase_of_setup(
    bare: Bare, offered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """apt installs a Python of another version, for pip, which installs uv, which installs the right Python."""
    bare.offer_packages()
    offer_python(bare, offered, monkeypatch)
    (tmp_path / "ours.py").write_text("WHO = 'us'\n")
    image = sky.Image(
        apt=["bc"],
        pip=["torchy"],
        env={"GREETING": "grüezi"},
        shell_vars={"KERNEL": "uname -s"},
        includes=[str(tmp_path / "ours.py")],
    )
    with sky.Compute(provider=bare.provider, nodes=1, image=image) as pool:
        found = seen() >> pool
    assert str(found.pop("base")).startswith("/opt/skyward/python/")
    assert found == {
        "python": sys.version_info[:3],
        "bc": "/usr/bin/bc",
        "torchy": "2.5",
        "ours": "us",
        "variables": ("grüezi", "Linux"),
    }
    assert "naïve ✓" in capsys.readouterr().out


def test_python_that_uv_cannot_fetch_is_installed_by_apt(bare: Bare, offered: Path) -> None:
    bare.bring_uv()
    folder = offered / "own"
    folder.mkdir()
    minimal.add_package(folder, f"python{MINOR}", MINOR, offered / "python.tar.gz")
    bare.offer_packages("own")
    with sky.Compute(provider=bare.provider, nodes=1) as pool:
        assert base_prefix() >> pool == "/usr"


def test_downloads_that_the_machine_lacks_are_sent_by_the_client(bare: Bare) -> None:
    """Its mirrors have packages, but neither a Python nor a uv that it could fetch without one."""
    with sky.Compute(provider=bare.provider, nodes=1) as pool:
        assert (base_prefix() >> pool).startswith("/opt/skyward/python/")
        assert "it cannot fetch uv and Python (uv is not installed, and no Python with pip" in pool.start_log(0)


def test_python_that_cannot_be_had_is_named(bare: Bare) -> None:
    bare.bring_uv()
    assert bare.refusal("3.99").partition("node 0: ")[2] == (
        "the machine has no Python 3.99 and cannot fetch one, and this computer cannot either: install it there, or "
        "select another with Image(python=...):"
    )
