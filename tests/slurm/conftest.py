"""The clusters of the tests of this tier, and pools of their jobs."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

import skyward as sky
from tests.required import leave_out_for
from tests.slurm.cluster import SlurmCluster, Tracking, why_not
from tests.waiting import wait_for


def _running(tracking: Tracking) -> Iterator[SlurmCluster]:
    leave_out_for(why_not(), "SKYWARD_SLURM")
    running = SlurmCluster(tracking)
    try:
        yield running
    finally:
        running.close()


@pytest.fixture(scope="session")
def by_control_group() -> Iterator[SlurmCluster]:
    """Cluster for the whole run, which ends all processes of a step with it."""
    yield from _running("cgroup")


@pytest.fixture(scope="session")
def by_parents() -> Iterator[SlurmCluster]:
    """Cluster for the whole run, which does not find processes that have detached themselves."""
    yield from _running("linuxproc")


def _checked(running: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    monkeypatch.setenv("SLURM_CONF", running.configuration)
    before = {*running.jobs()}
    yield running
    left = {*running.jobs()} - before
    assert not left, f"jobs left on the cluster: {', '.join(sorted(left))}"
    if not before:
        wait_for(lambda: not running.processes(), f"the processes of jobs to end: {running.processes()}", 30)
        left = {str(path.relative_to(running.scratch)) for path in running.scratch.rglob("*")}
        assert not left, f"files of ended jobs left on their nodes: {', '.join(sorted(left))}"


@pytest.fixture
def cluster(by_control_group: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """A cluster, with its commands; checks that a test leaves no job and no process."""
    yield from _checked(by_control_group, monkeypatch)


@pytest.fixture(params=["cgroup", "linuxproc"])
def either(
    request: pytest.FixtureRequest,
    by_control_group: SlurmCluster,
    by_parents: SlurmCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[SlurmCluster]:
    """Each of the two clusters in turn, checked like `cluster`."""
    yield from _checked(by_control_group if request.param == "cgroup" else by_parents, monkeypatch)


def jobs(cluster: SlurmCluster, **settings: Any) -> sky.Slurm:
    """Return a provider of jobs on the cluster, with this host's environment."""
    given = {"python": sys.executable, "scratch": str(cluster.scratch), "directory": str(cluster.root), **settings}
    return sky.Slurm(**given)
