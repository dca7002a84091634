"""The cluster of the tests of this tier, and pools of its pods."""

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import skyward as sky
from tests.kubernetes.cluster import IMAGE, POD, Cluster, why_not
from tests.required import leave_out_for


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder for what kubectl remembers of clusters, in place of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Cluster]:
    """Cluster for the whole run. Without one, skip with the reason, or fail if `SKYWARD_KUBERNETES=required`."""
    slow = "" if os.environ.get("SKYWARD_KUBERNETES") else "they take 8 minutes: run `make pods`"
    leave_out_for(why_not() or slow, "SKYWARD_KUBERNETES")
    cluster = Cluster()
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster; checks that a test leaves no pod and no config map."""
    before = set(shared_cluster.names())
    yield shared_cluster
    left = set(shared_cluster.names()) - before
    assert not left, f"left in the cluster: {', '.join(sorted(left))}"


def pods(cluster: Cluster, **settings: Any) -> sky.Kubernetes:
    """Return a provider of pods of the cluster, with this host's environment mounted."""
    given = {
        "kubeconfig": str(cluster.kubeconfig),
        "binary": str(cluster.binary),
        "image": IMAGE,
        "python": sys.executable,
        "pod_template": POD,
        **settings,
    }
    return sky.Kubernetes(**given)


@pytest.fixture(scope="module")
def pool(shared_cluster: Cluster) -> Iterator[sky.Compute]:
    """Two nodes, each in a pod with limits."""
    with sky.Compute(name="two", provider=pods(shared_cluster), nodes=2, vcpus=0.5, memory_gb=1.5) as compute:
        yield compute
