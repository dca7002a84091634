"""Warm machines: kept after their pool and taken over by the next one, at RunPod with real machines as pods."""

import time
from typing import Any

import pytest

import skyward as sky
from skyward.control.act.nodes import fleet
from skyward.journal import Journal, PoolEntry, WarmEntry
from tests.cloud.conftest import settings
from tests.fakes.runpod import FakeRunPod
from tests.waiting import wait_for

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(240)]


@sky.function
def leave_traces() -> str:
    import os
    import socket
    import subprocess
    from pathlib import Path

    for path in (Path.home() / "results" / "mine.txt", Path("/tmp/mine"), Path("/dev/shm/mine"), Path("here.txt")):
        path.parent.mkdir(exist_ok=True)
        path.write_text(os.environ["TOKEN"])
    (Path.home() / ".ssh" / "id_deploy").write_text(os.environ["TOKEN"])
    with (Path.home() / ".ssh" / "authorized_keys").open("a") as keys:
        keys.write(f"ssh-ed25519 AAAA {os.environ['TOKEN']}\n")
    subprocess.Popen(["sleep", "7654"], start_new_session=True)
    return socket.gethostname()


@sky.function
def hostname() -> str:
    import socket

    return socket.gethostname()


@sky.function
def look_for_traces() -> tuple[str, list[str]]:
    import contextlib
    import socket
    import subprocess
    from pathlib import Path

    folders = ("/tmp", "/dev/shm", "/root/results", "/root/.ssh", "/opt/skyward", "/var/tmp")
    found = subprocess.run(["grep", "-rl", "hidden-" + "value", *folders], capture_output=True, text=True, check=False)
    lines = found.stdout.splitlines()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if b"7654" in (process / "cmdline").read_bytes():
                lines.append(str(process))
    return socket.gethostname(), lines


def recorded(name: str) -> list[PoolEntry]:
    with Journal() as journal:
        return journal.pools(name)


def warm_machines(name: str) -> list[WarmEntry]:
    with Journal() as journal:
        return [each for pool in journal.pools(name) for each in journal.warm.of(pool.id)]


def compute(cloud: FakeRunPod, name: str, **fields: Any) -> sky.Compute:
    options = sky.Options(logging=False, console="minimal", budget=fields.pop("budget", None))
    return sky.Compute(name=name, provider=settings(cloud), accelerator="RTX_4090", options=options, **fields)


def test_next_pool_takes_the_machine_over_clean_and_the_last_one_ends_everything(
    runpod_machines: FakeRunPod, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = "hidden-" + "value"
    index = sky.PipIndex(f"https://me:{secret}@127.0.0.1/simple", packages=["private"])
    image = sky.Image(env={"TOKEN": secret}, pip_indexes=[index])
    with compute(runpod_machines, "first", warm=600, image=image) as pool:
        host = leave_traces() >> pool
    (pod,) = runpod_machines.pods
    assert "1 machine is kept warm until" in capsys.readouterr().err
    machine = runpod_machines.machine(pod)
    assert len(machine.running("skyward.worker")) == 1, "what stands in for the worker keeps the watchdog quiet"
    (orphan,) = sky.orphans()
    assert (orphan.name, orphan.machines, orphan.attachable, orphan.due) == ("first", 1, False, False)
    assert sky.reap(due=True) == []

    with compute(runpod_machines, "second") as pool:
        assert (look_for_traces() >> pool) == (host, [])
        assert machine.running("skyward.worker.warm") == []
        assert list(runpod_machines.pods) == [pod]
        assert sky.orphans() == []
        (reason,) = [each for each in capsys.readouterr().err.splitlines() if "is taken over instead" in each]
        assert "'first'" in reason
    assert runpod_machines.pods == {}
    with Journal() as journal:
        assert journal.pools() == []
        kinds = [bill.kind for bill in journal.bills(0) if bill.name == "first"]
    assert sum(kind.endswith(", kept warm") for kind in kinds) == 1


def test_removed_nodes_are_kept_too_and_used_again_and_the_deadline_ends_all(
    runpod_machines: FakeRunPod, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "LASTS_FOR", 0.0)
    with compute(runpod_machines, "elastic", warm=20, nodes=2) as pool:
        pods = set(runpod_machines.pods)
        pool.resize(1)
        wait_for(lambda: [node.state for node in pool.snapshot().nodes].count("active") == 1, "one node")
        wait_for(lambda: [each.ready for each in warm_machines("elastic")] == [True], "its machine to be kept")
        assert sorted(node.phase for node in pool.snapshot().nodes) == ["ready", "warm"]
        pool.resize(2)
        wait_for(lambda: len(set(hostname() @ pool)) == 2, "two nodes")
        assert "is used again instead of launching one" in capsys.readouterr().err
        assert set(runpod_machines.pods) == pods
    assert set(runpod_machines.pods) == pods
    assert "2 machines are kept warm until" in capsys.readouterr().err
    wait_for(lambda: not runpod_machines.pods, "the deadline", within=90)
    wait_for(lambda: not recorded("elastic"), "the end of the pool")


def test_budget_covers_all_machines_that_are_kept_together(runpod_machines: FakeRunPod) -> None:
    began, budget = time.time(), 5.0
    with compute(runpod_machines, "elastic", warm=36_000, nodes=2, budget=budget) as pool:
        pool.resize(1)
        wait_for(lambda: [each.ready for each in warm_machines("elastic")] == [True], "its machine to be kept")
    kept = warm_machines("elastic")
    assert len(kept) == 2
    assert sum(each.per_hour * (each.until - began) / 3600 for each in kept) <= budget
    assert [done.error for done in sky.reap(warm=True)] == [""]


def test_budget_keeps_no_machine_that_it_does_not_cover(
    runpod_machines: FakeRunPod, capsys: pytest.CaptureFixture[str]
) -> None:
    with compute(runpod_machines, "poor", warm=36_000, budget=0.02) as pool:
        pool.set_budget(pool.snapshot().spent + 0.0098)  # 100 s, of which draining takes 60
    assert runpod_machines.pods == {}
    assert "No machine is kept warm: what the budget leaves" in capsys.readouterr().err
