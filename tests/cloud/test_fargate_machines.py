"""AWS Fargate from the offer to the stopped task, with real machines that run the tasks' start command."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward.journal import data_directory
from skyward.providers import Instance
from skyward_providers.adapter_serve import serve
from tests.cloud.fargate_cases import fargate_at, launched
from tests.fakes.aws import FakeAWS
from tests.fakes.aws.task_machines import TaskMachines
from tests.machines.machine import Network
from tests.machines.package_source import UV, package_source
from tests.waiting import wait_for, wait_for_async

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(240)]


@pytest.fixture
def machines(aws: FakeAWS, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskMachines]:
    """Machines of a fake AWS that get their packages from this host."""
    with package_source(network, tmp_path / "wheels", monkeypatch):
        found = TaskMachines(aws.shim.tasks, network, UV.resolve())
        yield found
        found.leave(aws.shim.tasks)


@sky.function
def hostname() -> str:
    return socket.gethostname()


def test_pool_launches_two_tasks_runs_and_stops_them(aws: FakeAWS, machines: TaskMachines) -> None:
    with sky.Compute(provider=fargate_at(aws), vcpus=2, allocation="spot", nodes=2, logging=False) as pool:
        assert set(hostname() @ pool) == {each.name for each in machines.by_id.values()}
        assert pool.snapshot().per_hour > 0
        pool.dict("names")["a"] = 1
    assert aws.left() == []
    assert not [each for each in machines.by_id.values() if each.pids()]


def test_pool_falls_back_to_on_demand_when_there_is_no_spot_capacity(aws: FakeAWS, machines: TaskMachines) -> None:
    aws.shim.tasks.capacity["FARGATE_SPOT"] = 0
    with sky.Compute(
        provider=fargate_at(aws), vcpus=1, memory_gb=2, max_hourly_cost=0.05, nodes=1, logging=False
    ) as pool:
        assert hostname() >> pool
        assert pool.snapshot().per_hour > 0.03
    assert aws.left() == []


def test_task_that_is_taken_back_drains_and_is_replaced(aws: FakeAWS, machines: TaskMachines) -> None:
    """AWS sends SIGTERM, and lets the container go on for two minutes."""

    @sky.function
    def patient() -> str:
        import time
        from pathlib import Path

        while not Path("/gate").exists():
            time.sleep(0.05)
        return socket.gethostname()

    with sky.Compute(provider=fargate_at(aws), vcpus=2, allocation="spot", nodes=2, logging=False) as pool:
        names = hostname() @ pool
        (last,) = [id for id, machine in machines.by_id.items() if machine.name == names[1]]  # the head leaves last
        futures = [patient() > pool for _ in range(2)]
        wait_for(lambda: pool.snapshot().running == 2, "the tasks of the pool")
        aws.shim.tasks.interrupt(last)
        wait_for(lambda: len(machines.by_id) == 3, "the replacement")
        for each in machines.by_id.values():
            (each.disk / "gate").touch()
        assert {future.result(60) for future in futures} == set(names)
        wait_for(lambda: not machines.by_id[last].pids(), "the end of the task that has drained")
        assert names[1] not in set(hostname() @ pool)
    assert aws.left() == []


def test_task_without_a_client_ends_itself(
    aws: FakeAWS, machines: TaskMachines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skyward_providers.cloud.user_data.watch_loop.__defaults__", (3, 3, 1))

    async def main() -> Instance | None:
        provider, cluster, (task,) = await launched(fargate_at(aws), tmp_path)
        await wait_for_async(lambda: not machines.by_id[task].pids(), "the end of the task")
        instance: Instance | None = (await provider.get_instance(cluster, task))[1]
        await provider.teardown(cluster)
        return instance

    ended = asyncio.run(main())
    assert ended is not None
    assert (ended.status, ended.detail) == ("exited", "its container ended")
    assert aws.left() == []


@pytest.fixture
def adapters() -> Iterator[sky.Adapter]:
    with sky.Adapter() as entered:
        yield entered


def test_adapter_launches_tasks_for_a_pool_of_another_process(
    aws: FakeAWS, machines: TaskMachines, adapters: sky.Adapter, tmp_path: Path
) -> None:
    """The worker adapter of the specification: its groups are tasks of ECS, and it ends them all."""
    settings = fargate_at(aws)
    options = {"caller_cidr": settings.caller_cidr, "spot_prices_url": settings.spot_prices_url, "cluster": "scaler"}
    words = [word for name, value in options.items() for word in ("--setting", f"{name}={value}")]
    created: Any = settings.create_provider()
    asyncio.run(created._account.call("ecs", "create_cluster", "us-east-1", clusterName="scaler"))
    output = tmp_path / "output"
    with output.open("wb") as errors:
        adapter = subprocess.Popen(
            [
                sys.executable, "-m", "skyward_providers.adapter", "--connect", adapters.address, "--provider",
                "fargate", *words, "--spec", "vcpus=4", "--spec", "memory_gb=30", "--spec", "allocation=on-demand",
                "--max-groups", "2",
            ],
            env={**os.environ, "SKYWARD_ADAPTER_TOKEN": adapters.token},
            stderr=errors,
        )  # fmt: skip  # one option a line would hide the command
    try:
        with sky.Compute(provider=adapters, nodes=2, logging=False) as pool:
            names = set(hostname() @ pool)
            assert names == {each.name for each in machines.by_id.values()}
            assert {each.started_by for each in aws.tasks()} == {aws.tasks()[0].started_by}
            (run, _) = [each.values for each in aws.asked("RunTask")]
            assert {each["key"] for each in run["tags"]} == {"skyward-pool", "skyward-owner", "skyward-request"}
            (last,) = [id for id, machine in machines.by_id.items() if machine.name == (hostname() @ pool)[1]]
            machines.by_id[last].kill()
            wait_for(lambda: len(machines.by_id) == 3, "the replacement of a task that has ended")
        wait_for(lambda: aws.left() == ["scaler"], "the adapter to end its groups")
    finally:
        adapter.terminate()
        assert adapter.wait(60) == 0, output.read_text()
    assert not list(data_directory().glob("*/fargate-*"))


def test_adapter_ends_a_task_that_does_not_run_in_time(
    aws: FakeAWS, adapters: sky.Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.shim.tasks.pending_for = 1000
    monkeypatch.setattr(sky.Fargate, "boot_timeout", 0.5)
    settings = fargate_at(aws)

    async def main() -> None:
        spec = sky.Spec(vcpus=1)
        serving = asyncio.create_task(serve(settings, connect=adapters.address, token=adapters.token, spec=spec))
        opening = asyncio.to_thread(opened)
        try:
            assert "was not running within" in await opening
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    def opened() -> str:
        with (
            pytest.raises(sky.SkywardError) as raised,
            sky.Compute(provider=adapters, nodes=1, logging=False, max_provision_attempts=1),
        ):
            pass
        return str(raised.value)

    asyncio.run(main())
    assert aws.asked("StopTask")
    assert aws.left() == []
