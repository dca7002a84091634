"""RunPod from the offer to the deleted pod, with real machines as pods."""

import pytest

import skyward as sky
from tests.cloud.conftest import settings
from tests.fakes.runpod import NO_CAPACITY, FakeRunPod
from tests.waiting import wait_for

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(180)]


@sky.function
def hostname() -> str:
    import socket

    return socket.gethostname()


def test_pool_rents_two_pods_runs_and_deletes_them(runpod_machines: FakeRunPod) -> None:
    with sky.Compute(provider=settings(runpod_machines), accelerator="RTX_4090", nodes=2, logging=False) as pool:
        assert len(set(hostname() @ pool)) == 2
        pods = runpod_machines.pods.values()
        assert [pod["interruptible"] for pod in pods] == [True, True]
        snapshot = pool.snapshot()
        assert snapshot.per_hour == pytest.approx(2 * 0.35)
        with pytest.raises(sky.NoClusterError):
            pool.dict("names")["a"] = 1
    assert runpod_machines.pods == {}


def test_pool_falls_back_to_on_demand_when_there_is_no_spot_capacity(runpod_machines: FakeRunPod) -> None:
    runpod_machines.fail("POST", "/v1/pods", NO_CAPACITY, times=-1, when=lambda pod: pod["interruptible"])
    with sky.Compute(provider=settings(runpod_machines), accelerator="RTX_4090", nodes=1, logging=False) as pool:
        assert hostname() >> pool
        (pod,) = runpod_machines.pods.values()
        assert pod["interruptible"] is False
        assert pool.snapshot().per_hour == pytest.approx(0.69)


@pytest.mark.parametrize("after", [True, False])
def test_lost_answer_buys_no_dearer_pod(runpod_machines: FakeRunPod, after: bool) -> None:
    runpod_machines.fail("POST", "/v1/pods", None, after=after)
    with sky.Compute(provider=settings(runpod_machines), accelerator="RTX_4090", nodes=1, logging=False) as pool:
        assert hostname() >> pool
        (pod,) = runpod_machines.pods.values()
        assert (pod["gpuCount"], pod["interruptible"]) == (1, True)
        assert pool.snapshot().per_hour == pytest.approx(0.35)
    assert runpod_machines.pods == {}


def test_reclaimed_pod_is_replaced_and_its_task_runs_again(runpod_machines: FakeRunPod) -> None:
    with sky.Compute(provider=settings(runpod_machines), accelerator="RTX_4090", nodes=1, logging=False) as pool:
        name = hostname() >> pool
        (first,) = runpod_machines.pods

        @sky.function
        def elsewhere() -> str:
            """Return once it runs on another pod."""
            import socket
            import time

            while socket.gethostname() == name:
                time.sleep(0.05)
            return socket.gethostname()

        future = elsewhere() > pool
        wait_for(lambda: pool.snapshot().running == 1, "the task")
        runpod_machines.reclaim(first)
        assert future.result(120) != name
        (second,) = runpod_machines.pods
        assert second != first
    assert runpod_machines.pods == {}
