"""SIGKILL of a client at any point of launching or terminating machines leaves nothing behind once it is reaped."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

import skyward as sky
from skyward.cli.main import main
from skyward.journal import Journal, data_directory
from skyward.pool.reaping.orphans import orphans
from tests.killed_client import count_points, has_ended, kill_at
from tests.local.fake_cloud import FakeCloud
from tests.local.pools import processes_in
from tests.scale import SCALE
from tests.waiting import wait_for

pytestmark = [pytest.mark.local, pytest.mark.usefixtures("own_journal")]

ROOT = str(Path(__file__).parents[2])

CLIENT = """
import os, sys
import skyward as sky
from skyward.control.act.nodes.node import Node
from tests.local.fake_cloud import FakeCloud

directory, phase = sys.argv[1:]
pool = sky.Compute(provider=FakeCloud(directory), nodes=2, name="doomed", ttl=0)


def enter(node, now):
    if now == phase:
        os.kill(os.getpid(), 9)
    vars(node)["phase"] = now


Node.phase = property(lambda node: vars(node)["phase"], enter)
with pool:
    pass
"""

POINTS = [
    "before prepare",
    "after prepare",
    "before create",
    "among creates",
    "after create",
    "before terminate",
    "among terminates",
    "before teardown",
    "after teardown",
]


def kill_client(cloud: FakeCloud, *, point: str = "", phase: str = "") -> None:
    """Run a client that opens and closes a pool of two nodes, and that dies at a point, or in a phase of a node."""
    env = {**os.environ, "PYTHONPATH": ROOT, "FAKE_CLOUD_KILL": point}
    client = subprocess.run([sys.executable, "-c", CLIENT, cloud.directory, phase], env=env, check=False)
    assert client.returncode == -signal.SIGKILL


@pytest.mark.parametrize("point", POINTS)
def test_client_killed_at_a_call_of_the_cloud_leaves_nothing(cloud: FakeCloud, point: str) -> None:
    kill_client(cloud, point=point)
    (done,) = sky.reap()
    assert (done.orphan.name, done.error) == ("doomed", "")
    assert cloud.left == []
    wait_for(lambda: not processes_in(cloud.directory), "the workers to end")
    assert sky.reap() == []


@pytest.mark.parametrize(("point", "launched"), [("before create", 0), ("among creates", 1), ("after create", 2)])
def test_machines_of_which_no_answer_is_recorded_are_billed(cloud: FakeCloud, point: str, launched: int) -> None:
    began = time.time()
    kill_client(cloud, point=point)
    (done,) = sky.reap()
    assert done.terminated == launched
    with Journal() as journal:
        bills = journal.bills(0)
    assert len(bills) == launched
    for bill in bills:
        assert bill.ended is not None
        assert began < bill.began < bill.ended < time.time()
        assert bill.spent == pytest.approx((bill.ended - bill.began) / 3600)


@pytest.mark.parametrize("phase", ["worker", "joining", "ready"])
def test_client_killed_while_a_node_starts_leaves_nothing(cloud: FakeCloud, phase: str) -> None:
    kill_client(cloud, phase=phase)
    (orphan,) = orphans()
    assert orphan.machines == 2
    assert [done.error for done in sky.reap()] == [""]
    assert cloud.left == []
    wait_for(lambda: not processes_in(cloud.directory), "the workers to end")


def test_only_pools_past_their_lease_are_reaped_automatically(cloud: FakeCloud) -> None:
    kill_client(cloud, point="before terminate")
    assert sky.reap(due=True) == []
    (key,) = (data_directory() / "pools").iterdir()
    past = time.time() - 700  # its lease of 0 s, and the time that running tasks have to finish
    os.utime(key, (past, past))
    assert [done.orphan.due for done in sky.reap(due=True)] == [True]
    assert cloud.left == []


def test_refused_termination_is_retried(cloud: FakeCloud) -> None:
    kill_client(cloud, point="before terminate")
    away = Path(cloud.directory, "machines")
    kept = away.rename(away.with_name("kept"))
    away.touch()
    (done,) = sky.reap()
    assert "machines" in done.error
    away.unlink()
    kept.rename(away)
    assert [done.error for done in sky.reap()] == [""]
    assert cloud.left == []


def test_launch_that_cannot_be_journalled_is_refused(cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(Path(cloud.directory, "file", "within")))
    Path(cloud.directory, "file").touch()
    with pytest.raises(sky.JournalError, match="name another directory in the environment variable SKYWARD_DATA_DIR"):
        sky.Compute(provider=cloud, nodes=1).open()
    assert cloud.left == []


def test_command_lists_what_it_terminated(cloud: FakeCloud, capsys: pytest.CaptureFixture[str]) -> None:
    kill_client(cloud, point="before terminate")
    assert main(["reap", "--dry-run"]) == 0
    assert "doomed" in capsys.readouterr().out
    assert len(cloud.left) == 3
    assert main(["reap"]) == 0
    assert capsys.readouterr().out.startswith("doomed: 2 machines terminated")
    assert cloud.left == []
    assert main(["reap"]) == 0
    assert capsys.readouterr().out == "No orphaned machines.\n"


def test_command_refuses_names_of_which_no_pool_is_orphaned(
    cloud: FakeCloud, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reap", "another"]) == 1
    assert capsys.readouterr() == ("", "skyward reap: no pool 'another'; the journal has no pools.\n")
    kill_client(cloud, point="before terminate")
    for options in (["--dry-run"], []):
        assert main(["reap", "another", *options]) == 1
        assert capsys.readouterr() == ("", "skyward reap: no pool 'another'; the journal has doomed.\n")
    with sky.Compute(provider=cloud, nodes=1, name="alive"):
        capsys.readouterr()
        assert main(["reap", "alive", "doomed"]) == 1
        out, err = capsys.readouterr()
        assert out == "doomed: 2 machines terminated\n"
        assert err.startswith(f"skyward reap: pool 'alive' is not orphaned: process {os.getpid()} on ")
    assert cloud.left == []


def test_module_of_a_provider_that_is_not_found_is_named(
    cloud: FakeCloud, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_client(cloud, point="before terminate")
    with monkeypatch.context() as elsewhere:
        elsewhere.setitem(sys.modules, "tests.local.fake_cloud", None)
        assert main(["reap", "doomed"]) == 1
        assert "module 'tests.local.fake_cloud' of its records is not found here; add the folder" in (
            capsys.readouterr().out
        )
    assert main(["reap", "doomed"]) == 0
    assert cloud.left == []


def test_local_pool_that_ended_with_its_client_cannot_be_attached(cloud: FakeCloud) -> None:
    kill_client(cloud, phase="ready")
    with pytest.raises(sky.UsageError, match="Pool 'doomed' has no nodes to attach to: none was ready"):
        sky.attach("doomed")
    assert cloud.left == []


def test_local_pool_whose_client_is_killed_while_opening_leaves_nothing(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {"TMPDIR": str(temporary)}
    points, kills = count_points("nodes=2", env), min(20, 2 * SCALE + 2)
    for number in range(kills):
        mark = kill_at(1 + points * number // (kills - 1), "nodes=2", env)
        wait_for(partial(has_ended, mark), "the workers to end")
        for key in (data_directory() / "pools").iterdir():  # of a pool without a record: removed after a while
            os.utime(key, (time.time() - 700,) * 2)
        assert {done.error for done in sky.reap()} <= {""}
        assert list(temporary.iterdir()) == [], f"after kill {number} of {kills}"
        assert sky.reap() == []
        assert not list((data_directory() / "pools").iterdir())


def test_reap_takes_one_name_as_a_name_and_not_as_a_sequence(cloud: FakeCloud) -> None:
    kill_client(cloud, point="after create")
    assert sky.reap("doomed and more") == []
    assert [reaped.orphan.name for reaped in sky.reap("doomed")] == ["doomed"]
    for wrong in (3, None, ["doomed", 3], ""):
        with pytest.raises(sky.UsageError, match="Pools are reaped by their names"):
            sky.reap(wrong)  # type: ignore[arg-type]  # intended


def test_attach_refuses_invalid_names() -> None:
    with pytest.raises(sky.UsageError, match="A pool is attached to by its name"):
        sky.attach(None)  # type: ignore[arg-type]  # intended
