"""Slurm: a client that is killed at any command leaves no job, once its pools are reaped."""

import os
from pathlib import Path

import pytest

from tests.cloud.kills import reaped_after_each_kill
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import jobs
from tests.slurm.gate import gate

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]


def test_client_killed_at_any_command_leaves_no_job(
    cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gate(tmp_path / "commands") as gated:
        commands = reaped_after_each_kill(
            gated,
            repr(jobs(cluster)).replace("Slurm(", "sky.Slurm(", 1),
            cluster.jobs,
            tmp_path / "data",
            monkeypatch,
            variables={"PATH": f"{gated.commands}:{os.environ['PATH']}"},
        )
    assert commands >= 6
