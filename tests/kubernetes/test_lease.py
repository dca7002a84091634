"""Leases of pods: without a client, a pod ends itself, and nothing is left after a reap."""

import sys

import pytest

import skyward as sky
from skyward.journal import owner_id
from tests.killed_client import kill_at_work
from tests.kubernetes.cluster import IMAGE, POD, Cluster
from tests.waiting import wait_for

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(240)]

WORK = """
@sky.function
def work(seconds):
    import time
    print("begun", flush=True)
    time.sleep(seconds)
    return "done"
"""


def killed_client(cluster: Cluster, pool: str, nodes: int, ttl: float) -> None:
    """Start a client process and kill it while its task runs."""
    given = {"kubeconfig": str(cluster.kubeconfig), "binary": str(cluster.binary), "image": IMAGE, "grace": 10.0}
    provider = f"sky.Kubernetes(**{ {**given, 'python': sys.executable, 'pod_template': POD}!r})"
    options = f"name={pool!r}, nodes={nodes}, ttl={ttl}"
    kill_at_work(WORK, "run = pool.start(work(5))", provider, options, printed="begun")
    assert len(cluster.pods(pool)) >= nodes


def test_reap_after_a_killed_client_leaves_nothing(cluster: Cluster) -> None:
    killed_client(cluster, "doomed", 2, 600)
    (reaped,) = sky.reap(["doomed"])
    assert reaped.error == ""
    assert cluster.names() == []


def test_pod_of_a_killed_client_ends_itself(cluster: Cluster) -> None:
    """After its lease of 40 s (the grace, and 30 s), and 30 s without a worker. The reap deletes its object."""
    killed_client(cluster, "orphan", 1, 0)
    (pod,) = cluster.pods("orphan")
    assert pod["status"]["phase"] == "Running"
    assert pod["metadata"]["labels"]["skyward-owner"] == owner_id()
    wait_for(lambda: cluster.pods("orphan")[0]["status"]["phase"] == "Succeeded", "the pod to end", within=120)
    sky.reap(["orphan"])
    assert cluster.names() == []
