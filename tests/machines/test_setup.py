"""Setup of a worker's environment on empty machines, from the spec's image."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import pytest

import skyward as sky
from skyward.specs.plugin import Plugin, PluginStep
from tests.local.bootstrapping import make_wheel
from tests.machines.conftest import hosts
from tests.machines.machine import Machine, Network
from tests.machines.package_source import UV, package_source
from tests.waiting import wait_for

pytestmark = [pytest.mark.machines, pytest.mark.timeout(180)]


@pytest.fixture
def wheels(network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folder of packages that is the machines' only package source."""
    with package_source(network, tmp_path / "wheels", monkeypatch) as folder:
        yield folder


def bare(network: Network) -> Machine:
    """Machine with uv on its path, and without Skyward."""
    machine = network.add()
    (machine.disk / "usr/local/bin/uv").symlink_to(UV.resolve())
    return machine


@sky.function
def executable() -> str:
    import sys

    return sys.executable


@sky.function
def torchy() -> str:
    import torchy  # type: ignore[import-not-found]  # made by the test, on the node

    return str(torchy.VERSION)


def test_environment_of_nodes_has_the_contents_of_the_image(network: Network, wheels: Path) -> None:
    make_wheel(wheels, "torchy", "2.5")
    machine = bare(network)
    provider = replace(hosts(network), python=None)
    image = sky.Image(pip=["torchy"], env={"GREETING": "hello"})
    with sky.Compute(provider=provider, nodes=1, image=image) as pool:
        where = executable() >> pool
        assert where.startswith("/opt/skyward/envs/")
        assert torchy() >> pool == "2.5"
    before = (machine.disk / where.lstrip("/")).lstat().st_mtime
    with sky.Compute(provider=provider, nodes=1, image=image) as pool:
        assert executable() >> pool == where
    assert (machine.disk / where.lstrip("/")).lstat().st_mtime == before


def test_failing_phase_is_named(network: Network, wheels: Path) -> None:
    bare(network)
    provider = replace(hosts(network), python=None)
    pool = sky.Compute(
        provider=provider, nodes=1, image=sky.Image(pip=["nowhere-to-be-found"]), max_provision_attempts=1
    )
    with pytest.raises(sky.ProvisioningError, match=r"(?s)bootstrap phase 'deps' failed.*nowhere-to-be-found"):
        pool.open()


@sky.function
def plotted() -> str:
    import matplotlib as plots

    return str(plots.VERSION)  # type: ignore[attr-defined]  # the one that the test made


@sky.function
def plain() -> int:
    return 1


def test_version_difference_of_a_used_package_is_warned_about_once(
    network: Network, wheels: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of two packages that are older on the machine, only the one that a function imports, at its first use."""
    make_wheel(wheels, "matplotlib", "1.5")
    make_wheel(wheels, "numpy", "1.5")
    machine = bare(network)
    provider = replace(hosts(network), python=None)
    with sky.Compute(provider=provider, nodes=1, image=sky.Image(pip=["matplotlib", "numpy"])) as pool:
        assert plain() >> pool == 1
        assert plotted() >> pool == "1.5"
        wait_for(lambda: "has matplotlib 1.5" in caplog.text, "the warning")
        assert sky.function(lambda: __import__("matplotlib").VERSION)() >> pool == "1.5"
    warnings = [record.getMessage() for record in caplog.records if "this process" in record.getMessage()]
    here = version("matplotlib")
    assert warnings == [
        f"root@{machine.address} has matplotlib 1.5 and this process {here}; "
        f'`Image(pip=["matplotlib=={here}"])` or `--pip matplotlib=={here}` makes them the same.'
    ]


def age(path: Path, days: float) -> None:
    """Set the modification time of a file to `days` ago."""
    if not path.is_dir():
        path.touch()
    os.utime(path, (time.time() - days * 86400,) * 2)


def test_environments_unused_for_long_are_removed(network: Network, wheels: Path) -> None:
    """Except those in use by a worker, and the newest few."""
    machine = bare(network)
    provider = replace(hosts(network), python=None)
    with sky.Compute(provider=provider, nodes=1) as long_lived:
        where = executable() >> long_lived
        root = machine.disk / "opt/skyward"
        (own,) = (path.name for path in (root / "envs").iterdir())
        for days in (31, 32, 33, 34, 35):
            for kind in ("envs", "state", "logs"):
                (root / kind / f"old{days}").mkdir()
            age(root / "used" / f"old{days}", days)
        assert [*(root / "cache/archive-v0").glob("*")]
        age(root / "used" / own, 50)
        age(root / "pruned", 2)
        by_another_name = replace(provider, hosts=[f"{machine.address}:22"])  # a pool has exclusive use of a host
        with sky.Compute(provider=by_another_name, nodes=1, image=sky.Image(env={"A": "b"})) as newer:
            other = Path(executable() >> newer).parents[1].name
            wait_for(lambda: time.time() - (root / "pruned").stat().st_mtime < 86400, "old environments to be removed")
            wait_for(lambda: not [*(root / "trash").iterdir()], "their files to be removed")
            wait_for(lambda: not [*(root / "cache/archive-v0").glob("*")], "uv's cache of packages to be removed")
            assert (root / "logs/prune").read_text() == ""
        assert {path.name for path in (root / "envs").iterdir()} == {own, other, "old31", "old32", "old33"}
        assert {path.name for path in (root / "state").iterdir()} == {own, other, "old31", "old32", "old33"}
        assert time.time() - (root / "used" / own).stat().st_mtime < 86400
        assert executable() >> long_lived == where


@sky.function
def hub_cache() -> Path:
    return Path(os.environ["HF_HOME"])


@sky.function
def cached(text: str) -> tuple[str, str]:
    """Return the folder of the Hub's cache, and the text of a file in it; write it first if there is a text."""
    path = Path(os.environ["HF_HOME"], "hub", "models--org--name", "file")
    if text:
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return os.environ["HF_HOME"], path.read_text()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetching(Plugin):
    """Plugin whose set-up step puts a file into the Hub's cache."""

    name = "fetching"

    def steps(self, spec: sky.Spec) -> tuple[PluginStep, ...]:
        return (PluginStep("fetching", 'mkdir -p "$HF_HOME/hub" && echo fetched >"$HF_HOME/hub/step"'),)


def test_cache_of_a_framework_is_there_in_another_environment(network: Network, wheels: Path) -> None:
    """And its unused parts are removed once no worker uses them."""
    machine = bare(network)
    provider = replace(hosts(network), python=None)
    with sky.Compute(provider=provider, nodes=1, plugins=[Fetching()]) as pool:
        assert cached("weights") >> pool == ("/opt/skyward/caches/huggingface", "weights")
        first = executable() >> pool
    with sky.Compute(provider=provider, nodes=1, image=sky.Image(env={"A": "b"})) as pool:
        assert executable() >> pool != first
        assert cached("") >> pool == ("/opt/skyward/caches/huggingface", "weights")
    root = machine.disk / "opt/skyward"
    assert (root / "caches/huggingface/hub/step").read_text() == "fetched\n"
    file = root / "caches/huggingface/hub/models--org--name/file"
    for path in (file, file.parent):
        age(path, 31)
    age(root / "pruned", 2)
    with sky.Compute(provider=provider, nodes=1, image=sky.Image(env={"HF_HOME": "/data/hub"})) as pool:
        assert hub_cache() >> pool == Path("/data/hub")
        wait_for(lambda: not file.parent.exists(), "the unused part to be removed")
