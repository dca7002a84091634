"""Whatever goes wrong while a pool opens or closes: its machines are given back before the caller hears of it, or are
on record for `sky reap`; and what can be given back is, whatever else cannot."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import skyward as sky
from skyward.control.act.nodes.launching import launchers_of
from skyward.journal import Journal, Seal
from skyward.process import background
from tests.local import tasks
from tests.local.conftest import Wait
from tests.local.rented import Rented

pytestmark = [pytest.mark.local, pytest.mark.timeout(120)]


@pytest.fixture(autouse=True)
def _journal_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path / "data"))


@pytest.fixture
def cloud(tmp_path: Path) -> Rented:
    return Rented(str(tmp_path))


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    """Do it beside; and what it raised."""
    errors: list[BaseException] = []

    def attempt() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    return thread, errors


def test_whoever_is_interrupted_while_a_pool_opens_finds_its_machines_gone(
    cloud: Rented, monkeypatch: pytest.MonkeyPatch, wait_for: Wait
) -> None:
    """Ctrl-C, while the machines are there and closing takes its time."""
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
            self._future.cancel()  # type: ignore[attr-defined]  # of whatever `run` gives

    monkeypatch.setattr(background, "run", lambda coroutine: Interrupted(run(coroutine)))
    with pytest.raises(KeyboardInterrupt):
        sky.Compute(provider=cloud, nodes=2).open()
    assert cloud.left == []


def test_a_pool_that_is_closed_while_it_opens(cloud: Rented, wait_for: Wait) -> None:
    held = cloud.hold("after prepare")
    pool = sky.Compute(provider=cloud, nodes=1, name="hasty")
    opener, errors = in_thread(pool.open)
    wait_for(held, "it to be opening")
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


def test_what_came_of_a_request_whose_answer_was_lost_is_given_back(cloud: Rented) -> None:
    cloud.fail("after create", times=2)
    with sky.Compute(provider=cloud, nodes=1) as pool:
        assert tasks.pid() >> pool
        machines = [each for each in cloud.left if each.startswith("machines")]
        assert len(machines) == 1, "the machines of the two requests that failed are paid for"
    assert cloud.left == []


def test_what_another_group_has_is_nobody_s_lost_answer(cloud: Rented, wait_for: Wait) -> None:
    """A cloud that is asked for the machines of a pool names those of all its groups."""
    groups = {name: sky.Spec(provider=cloud, nodes=1, vcpus=1) for name in ("one", "other")}
    with sky.Compute(groups=groups) as pool:
        before: list[int] = tasks.pid() @ pool
        cloud.fail("after create")
        pool.resize(2, group="one")
        wait_for(lambda: sum(node.state == "active" for node in pool.snapshot().nodes) == 3, "a third node")
        assert len([each for each in cloud.left if each.startswith("machines")]) == 3
        assert set(before) <= set(tasks.pid() @ pool)
    assert cloud.left == []


def test_a_group_that_is_taken_over_leaves_another_its_machines(cloud: Rented) -> None:
    groups = {name: sky.Spec(provider=cloud, nodes=1, vcpus=1) for name in ("one", "other")}
    with sky.Compute(groups=groups) as pool:
        assert pool._pool is not None
        record = pool._pool._record
        machines = cloud.left
        with Journal() as journal:
            entries = journal.clusters(record.id, Seal(record._claim.secrets_key))
        taken = launchers_of(record, pool.groups, pool.options)
        for name, launcher in taken.items():
            launcher.adopt([entry for entry in entries if entry.group == name])
        background.run(taken["one"].prepare()).result()
        assert cloud.left == machines


def test_what_was_half_prepared_is_removed(cloud: Rented) -> None:
    cloud.fail("after prepare")
    with pytest.raises(OSError, match="the cloud is down after prepare"):
        sky.Compute(provider=cloud, nodes=1).open()
    assert cloud.left == []


def test_one_cloud_that_is_down_keeps_no_machines_of_another(tmp_path: Path) -> None:
    clouds = {name: Rented(str(tmp_path / name)) for name in ("up", "down")}
    for cloud in clouds.values():
        Path(cloud.directory).mkdir()
    pool = sky.Compute(
        name="both",
        groups={name: sky.Spec(provider=cloud, nodes=1, vcpus=1) for name, cloud in reversed(clouds.items())},
    )
    pool.open()
    clouds["down"].fail("before terminate")
    with pytest.raises(sky.ProvisioningError, match=r"(?s)'both' may be left: .*is down.* Run `sky reap both`"):
        pool.close()
    assert clouds["up"].left == []
    assert clouds["down"].left
    assert [done.error for done in sky.reap(["both"])] == [""]
    assert clouds["down"].left == []


def test_reaping_goes_on_after_a_cloud_that_is_down(tmp_path: Path) -> None:
    clouds = [Rented(str(tmp_path / name)) for name in ("one", "two")]
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
