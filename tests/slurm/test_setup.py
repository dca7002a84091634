"""Setup of a worker's environment in a job, from the spec's image."""

import sys
from pathlib import Path

import pytest

import skyward as sky
from tests.containers.engine import ROOT
from tests.local.bootstrapping import make_wheel, repack
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import jobs

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180)]


@sky.function
def seen() -> tuple[str, str, str | None, float]:
    import os

    import torchy  # type: ignore[import-not-found]  # made by the test, in the job

    return sys.prefix, str(torchy.VERSION), os.environ.get("GREETING"), Path(sys.prefix).stat().st_mtime


def test_nodes_share_the_environment_of_the_image(
    cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made once, in a directory that the nodes share, and used again by the next pool."""
    for name in ("blake3", "casty", "cloudpickle", "uvloop"):
        repack(tmp_path, name)
    make_wheel(tmp_path, "torchy", "2.5")
    for name in ("PIP_CERT", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_DEFAULT_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{ROOT}/.venv/bin:{sys.base_prefix}/bin:/usr/sbin:/usr/bin")
    from_wheels = {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(tmp_path)}
    image = sky.Image(pip=["torchy"], env={"GREETING": "hello", **from_wheels})
    provider = jobs(cluster, python=None, time=600)
    with sky.Compute(provider=provider, nodes=2, image=image) as pool:
        first, second = seen() @ pool
    with sky.Compute(provider=provider, nodes=1, image=image) as pool:
        third = seen() >> pool
    assert first == second == third
    where, version, greeting, _ = first
    assert where.startswith(f"{cluster.root}/envs/")
    assert (version, greeting) == ("2.5", "hello")
