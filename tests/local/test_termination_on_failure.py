"""Failures while a pool opens or closes: its machines are terminated before the caller gets the error, or are
on record for `skyward reap`. A failure to terminate one machine does not affect the others."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import skyward as sky
from skyward.control.act.nodes.launching import launchers_of
from skyward.journal import Journal, JournalSeal
from skyward.process import background
from tests.local import tasks
from tests.local.fake_cloud import FakeCloud
from tests.waiting import wait_for

pytestmark = [pytest.mark.local, pytest.mark.usefixtures("own_journal")]


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    """Run it on a thread; return the error that it raised."""
    errors: list[BaseException] = []

    def attempt() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    return thread, errors


def test_machines_are_terminated_when_opening_is_interrupted(cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C, while the machines are up and closing takes time."""
    run = background.run
    cloud.hold("before teardown")

    class Interrupted:
        def __init__(self, future: object) -> None:
            self._future = future

        def result(self) -> None:
            wait_for(lambda: any(each.startswith("machines") for each in cloud.left), "a machine")
            monkeypatch.setattr(background, "run", run)
            threading.Timer(0.2, cloud.release, ["before teardown"]).start()
            raise KeyboardInterrupt

        def cancel(self) -> None:
            self._future.cancel()  # type: ignore[attr-defined]  # of any result of `run`

    monkeypatch.setattr(background, "run", lambda coroutine: Interrupted(run(coroutine)))
    with pytest.raises(KeyboardInterrupt):
        sky.Compute(provider=cloud, nodes=2).open()
    assert cloud.left == []


def test_interrupted_opening_prints_only_the_interrupt() -> None:
    script = """
import os, signal, threading, time
import skyward as sky

pool = sky.Compute(nodes=1, name="op", provider=sky.Local(boot_time=60))


def interrupt() -> None:
    while pool.snapshot().state != "provisioning":
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)


threading.Thread(target=interrupt).start()
pool.open()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr.endswith("KeyboardInterrupt\n"), done.stderr
    assert "never retrieved" not in done.stderr


def test_pool_closed_while_it_opens_leaves_no_machines(cloud: FakeCloud) -> None:
    held = cloud.hold("after prepare")
    pool = sky.Compute(provider=cloud, nodes=1, name="hasty")
    opener, errors = in_thread(pool.open)
    wait_for(held, "the pool to be opening")
    closer, wrong = in_thread(pool.close)
    cloud.release("after prepare")
    closer.join(30)
    opener.join(30)
    assert not closer.is_alive()
    assert not opener.is_alive()
    assert not wrong
    assert [str(error) for error in errors] == ["Pool 'hasty' was closed while it was opening."]
    assert cloud.left == []
    with pytest.raises(sky.UsageError, match="no pool 'hasty'"):
        sky.attach("hasty")


def test_machines_of_a_request_with_a_lost_answer_are_terminated(cloud: FakeCloud) -> None:
    cloud.fail("after create", times=2)
    with sky.Compute(provider=cloud, nodes=1) as pool:
        assert tasks.pid() >> pool
        machines = [each for each in cloud.left if each.startswith("machines")]
        assert len(machines) == 1, "machines of the two failed requests are still billed"
    assert cloud.left == []


def test_machines_of_another_group_are_not_taken_for_a_lost_answer(cloud: FakeCloud) -> None:
    """A cloud lists the machines of all groups of a pool."""
    groups = {name: sky.Spec(provider=cloud, nodes=1, vcpus=1) for name in ("one", "other")}
    with sky.Compute(groups=groups) as pool:
        before: list[int] = tasks.pid() @ pool
        cloud.fail("after create")
        pool.resize(2, group="one")
        wait_for(lambda: sum(node.state == "active" for node in pool.snapshot().nodes) == 3, "a third node")
        assert len([each for each in cloud.left if each.startswith("machines")]) == 3
        assert set(before) <= set(tasks.pid() @ pool)
    assert cloud.left == []


def test_taking_over_one_group_leaves_another_its_machines(cloud: FakeCloud) -> None:
    groups = {name: sky.Spec(provider=cloud, nodes=1, vcpus=1) for name in ("one", "other")}
    with sky.Compute(groups=groups) as pool:
        assert pool._pool is not None
        record = pool._pool._record
        machines = cloud.left
        with Journal() as journal:
            entries = journal.clusters(record.id, JournalSeal(record._claim.secrets_key))
        taken = launchers_of(record, pool.groups, pool.options)
        for name, launcher in taken.items():
            launcher.adopt([entry for entry in entries if entry.group == name])
        background.run(taken["one"].prepare()).result()
        assert not any("per hour" in note for note in taken["one"].notes), "nothing is bought"
        assert cloud.left == machines


def test_partly_prepared_resources_are_removed(cloud: FakeCloud) -> None:
    cloud.fail("after prepare")
    said = (
        r"Pool '.*' could not be opened: provider 'fake' raised OSError in prepare\(\): the cloud is down after prepare"
    )
    with pytest.raises(sky.ProvisioningError, match=said):
        sky.Compute(provider=cloud, nodes=1).open()
    assert cloud.left == []


def test_unreachable_cloud_does_not_block_termination_on_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clouds = {name: FakeCloud(str(tmp_path / name)) for name in ("up", "down")}
    for cloud in clouds.values():
        Path(cloud.directory).mkdir()
    pool = sky.Compute(
        name="both",
        groups={name: sky.Spec(provider=cloud, nodes=1, vcpus=1) for name, cloud in reversed(clouds.items())},
    )
    pool.open()
    clouds["down"].fail("before terminate")
    with pytest.raises(sky.ProvisioningError, match=r"(?s)'both' may be left: .*is down.* Run `skyward reap both`"):
        pool.close()
    told = capsys.readouterr().err
    assert "closed after" not in told
    assert "could not be closed completely, so machines may be left: " in told
    assert ".. " not in told
    assert clouds["up"].left == []
    assert clouds["down"].left
    assert [done.error for done in sky.reap(["both"])] == [""]
    assert clouds["down"].left == []


def test_reaping_continues_after_an_unreachable_cloud(tmp_path: Path) -> None:
    clouds = [FakeCloud(str(tmp_path / name)) for name in ("one", "two")]
    for cloud in clouds:
        Path(cloud.directory).mkdir()
    pool = sky.Compute(
        name="both", groups={f"g{i}": sky.Spec(provider=c, nodes=1, vcpus=1) for i, c in enumerate(clouds)}
    )
    pool.open()
    for cloud in clouds:
        cloud.fail("before terminate")
    with pytest.raises(sky.ProvisioningError):
        pool.close()
    clouds[0].fail("before terminate")
    (done,) = sky.reap(["both"])
    assert "is down" in done.error
    assert clouds[0].left
    assert clouds[1].left == []
    assert [again.error for again in sky.reap(["both"])] == [""]
    assert clouds[0].left == []
