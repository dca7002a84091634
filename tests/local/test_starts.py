"""How nodes start: how long that usually takes, and what is told where it fails."""

import time
from pathlib import Path

import pytest

import skyward as sky
from skyward.control.observe.snapshot import NodeView, StartupFailureView
from tests.local.conftest import Wait

pytestmark = pytest.mark.local

FAILS = """
import os, sys
if os.environ.get("SKYWARD_NODE_ID") == "1" and os.path.exists({flag!r}):
    print(*(f"line {{number}}" for number in range(100)), sep="\\n", file=sys.stderr, flush=True)
    os._exit(3)
"""
"""What a worker of rank 1 does as it starts, as long as a file is there."""


@pytest.fixture(autouse=True)
def _journal_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path / "data"))


def fails_while(flag: Path) -> sky.Image:
    """An image whose node 1 does not come up as long as `flag` is there."""
    flag.touch()
    (flag.parent / "site").mkdir()
    (flag.parent / "site" / "sitecustomize.py").write_text(FAILS.format(flag=str(flag)))
    return sky.Image(env={"PYTHONPATH": str(flag.parent / "site")})


def trouble(pool: sky.Compute) -> StartupFailureView | None:
    return next(iter(pool.snapshot().troubles), None)


def test_a_node_that_fails_says_in_which_phase_and_when_it_is_tried_again(tmp_path: Path, wait_for: Wait) -> None:
    image = fails_while(tmp_path / "fails")
    with sky.Compute(nodes=(1, 2), image=image, provision_retry_delay=600, policy="no") as pool:
        assert pool.snapshot().troubles == ()
        pool.resize(2)
        wait_for(lambda: trouble(pool), "the node to fail")
        told = trouble(pool)
        assert told is not None
        assert (told.rank, told.phase, told.gave_up) == (1, "worker", False)
        assert told.reason == "the worker ended as it started (status 3)"
        assert told.lines == ("line 97", "line 98", "line 99")
        assert (told.attempt, told.attempts) == (2, 3)
        assert told.retry_at is not None
        assert 500 < told.retry_at - time.time() < 601
        log = pool.start_log(1)
        assert "  worker\n" in log
        assert "\nline 0\n" in log, "the log is whole"
        assert "ready" in pool.start_log(0)
        assert pool.start_log(9) == ""


def test_worker_killed_while_it_starts_is_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    dies = "import os, sys\nprint('loading', file=sys.stderr, flush=True)\nos.kill(os.getpid(), 9)\n"
    (tmp_path / "site" / "sitecustomize.py").write_text(dies)
    image = sky.Image(env={"PYTHONPATH": str(tmp_path / "site")})
    with (
        pytest.raises(sky.NodeStartError, match=r"the worker ended as it started \(killed by SIGKILL\):\nloading$"),
        sky.Compute(nodes=1, image=image, max_provision_attempts=1, provision_retry_delay=0.01),
    ):
        pass


def test_worker_killed_once_it_runs_and_before_it_listens_is_reported_at_once(tmp_path: Path) -> None:
    """Its supervisor is still there then."""
    (tmp_path / "site").mkdir()
    dies = "import os\nos.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), 9))\n"
    (tmp_path / "site" / "sitecustomize.py").write_text(dies)
    image = sky.Image(env={"PYTHONPATH": str(tmp_path / "site")})
    with (
        pytest.raises(sky.NodeStartError, match=r"the worker ended as it started \(killed by SIGKILL\)$"),
        sky.Compute(nodes=1, image=image, max_provision_attempts=1, provision_retry_delay=0.01),
    ):
        pass


def test_a_node_is_given_up_and_is_no_trouble_once_it_is_up(tmp_path: Path, wait_for: Wait) -> None:
    image = fails_while(tmp_path / "fails")
    with sky.Compute(nodes=(1, 2), image=image, provision_retry_delay=0.01, policy="no") as pool:
        pool.resize(2)
        wait_for(lambda: (told := trouble(pool)) and told.gave_up, "the node to be given up")
        told = trouble(pool)
        assert told is not None
        assert (told.attempt, told.attempts, told.retry_at) == (4, 3, None)
        assert pool.start_log(1).count("start ") == 3, "every start is kept"
        (tmp_path / "fails").unlink()
        pool.resize((2, 3))
        wait_for(lambda: sum(node.state == "active" for node in pool.snapshot().nodes) == 2, "the node, tried afresh")
        assert pool.snapshot().troubles == ()


def test_machines_that_are_not_to_be_had(wait_for: Wait) -> None:
    with sky.Compute(nodes=(0, 1), provider=sky.Local(fail_rate=1), provision_retry_delay=600, policy="no") as pool:
        pool.resize((1, 2))
        wait_for(lambda: trouble(pool), "the request to fail")
        told = trouble(pool)
        assert told is not None
        assert (told.phase, told.reason) == ("requested", "this machine was told to fail (fail_rate)")
        assert told.attempts == 0, "a pool that is open asks again for ever"
        assert "fail_rate" in pool.start_log(0)


def test_each_phase_is_told_against_what_it_usually_takes(wait_for: Wait) -> None:
    def boots(pool: sky.Compute) -> NodeView | None:
        return next((node for node in pool.snapshot().nodes if node.phase == "requested"), None)

    provider = sky.Local(boot_time=2.0)
    with sky.Compute(nodes=1, provider=provider):
        pass
    with sky.Compute(nodes=(0, 1), provider=provider, policy="no") as pool:
        pool.resize((1, 2))
        wait_for(lambda: boots(pool), "a node that is asked for")
        node = boots(pool)
        assert node is not None, "it is asked for during 2 s"
        assert node.usual is not None, "another pool has seen how long that takes"
        assert node.usual >= 1.9
        assert node.phase_at is not None
        wait_for(lambda: any(node.state == "active" for node in pool.snapshot().nodes), "the node")
        (up,) = pool.snapshot().nodes
        assert (up.phase_at, up.usual) == (None, None)
