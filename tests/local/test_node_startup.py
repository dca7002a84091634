"""Starts of nodes: usual durations, and reports of failures."""

import time
from pathlib import Path

import pytest

import skyward as sky
from skyward.control.observe.snapshot import NodeView, StartupFailureView
from tests.waiting import wait_for

pytestmark = [pytest.mark.local, pytest.mark.usefixtures("own_journal")]

FAILS = """
import os, sys
if os.environ.get("SKYWARD_NODE_ID") == "1" and os.path.exists({flag!r}):
    print(*(f"line {{number}}" for number in range(100)), sep="\\n", file=sys.stderr, flush=True)
    os._exit(3)
"""
"""Code of a worker of rank 1 at its start, while a file exists."""


def fails_while(flag: Path) -> sky.Image:
    """An image whose node 1 fails to start while `flag` exists."""
    flag.touch()
    (flag.parent / "site").mkdir()
    (flag.parent / "site" / "sitecustomize.py").write_text(FAILS.format(flag=str(flag)))
    return sky.Image(env={"PYTHONPATH": str(flag.parent / "site")})


def trouble(pool: sky.Compute) -> StartupFailureView | None:
    return next(iter(pool.snapshot().startup_failures), None)


def test_node_that_fails_reports_its_phase_and_the_next_attempt(tmp_path: Path) -> None:
    image = fails_while(tmp_path / "fails")
    with sky.Compute(nodes=(1, 2), image=image, provision_retry_delay=600, policy="no") as pool:
        assert pool.snapshot().startup_failures == ()
        pool.resize(2)
        wait_for(lambda: trouble(pool), "the node to fail")
        failure = trouble(pool)
        assert failure is not None
        assert (failure.rank, failure.phase, failure.gave_up) == (1, "worker", False)
        assert failure.reason == "the worker ended during startup (status 3)"
        assert failure.lines == ("line 97", "line 98", "line 99")
        assert (failure.attempt, failure.attempts) == (2, 3)
        assert failure.retry_at is not None
        assert 500 < failure.retry_at - time.time() < 601
        log = pool.start_log(1)
        assert "  worker\n" in log
        assert "\nline 0\n" in log, "the log is incomplete"
        assert "ready" in pool.start_log(0)
        assert pool.start_log(9) == ""


def test_worker_killed_while_it_starts_is_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    dies = "import os, sys\nprint('loading', file=sys.stderr, flush=True)\nos.kill(os.getpid(), 9)\n"
    (tmp_path / "site" / "sitecustomize.py").write_text(dies)
    image = sky.Image(env={"PYTHONPATH": str(tmp_path / "site")})
    with (
        pytest.raises(sky.NodeStartError, match=r"the worker ended during startup \(killed by SIGKILL\):\nloading$"),
        sky.Compute(nodes=1, image=image, max_provision_attempts=1, provision_retry_delay=0.01),
    ):
        pass


def test_worker_killed_before_it_listens_is_reported_at_once(tmp_path: Path) -> None:
    """Its supervisor is still running then."""
    (tmp_path / "site").mkdir()
    dies = "import os\nos.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), 9))\n"
    (tmp_path / "site" / "sitecustomize.py").write_text(dies)
    image = sky.Image(env={"PYTHONPATH": str(tmp_path / "site")})
    with (
        pytest.raises(sky.NodeStartError, match=r"the worker ended during startup \(killed by SIGKILL\)$"),
        sky.Compute(nodes=1, image=image, max_provision_attempts=1, provision_retry_delay=0.01),
    ):
        pass


def test_node_is_given_up_and_no_longer_reported_once_it_starts(tmp_path: Path) -> None:
    image = fails_while(tmp_path / "fails")
    with sky.Compute(nodes=(1, 2), image=image, provision_retry_delay=0.01, policy="no") as pool:
        pool.resize(2)
        wait_for(lambda: (failure := trouble(pool)) and failure.gave_up, "the node to be given up")
        failure = trouble(pool)
        assert failure is not None
        assert (failure.attempt, failure.attempts, failure.retry_at) == (4, 3, None)
        assert pool.start_log(1).count("start ") == 3, "a start is missing"
        (tmp_path / "fails").unlink()
        pool.resize((2, 3))
        wait_for(lambda: sum(node.state == "active" for node in pool.snapshot().nodes) == 2, "the node to be retried")
        assert pool.snapshot().startup_failures == ()


def test_machine_that_cannot_be_launched_is_reported() -> None:
    with sky.Compute(nodes=(0, 1), provider=sky.Local(fail_rate=1), provision_retry_delay=600, policy="no") as pool:
        pool.resize((1, 2))
        wait_for(lambda: trouble(pool), "the request to fail")
        failure = trouble(pool)
        assert failure is not None
        assert (failure.phase, failure.reason) == ("requested", "simulated failure (fail_rate)")
        assert failure.attempts == 0, "an open pool must keep retrying"
        assert "fail_rate" in pool.start_log(0)


def test_each_phase_is_shown_with_its_usual_duration() -> None:
    def startups(pool: sky.Compute) -> NodeView | None:
        return next((node for node in pool.snapshot().nodes if node.phase == "requested"), None)

    provider = sky.Local(boot_time=2.0)
    with sky.Compute(nodes=1, provider=provider):
        pass
    with sky.Compute(nodes=(0, 1), provider=provider, policy="no") as pool:
        pool.resize((1, 2))
        wait_for(lambda: startups(pool), "a requested node")
        node = startups(pool)
        assert node is not None, "the request takes 2 s"
        assert node.usual is not None, "another pool has observed the duration"
        assert node.usual >= 1.9
        assert node.phase_at is not None
        wait_for(lambda: any(node.state == "active" for node in pool.snapshot().nodes), "the node")
        (up,) = pool.snapshot().nodes
        assert (up.phase_at, up.usual) == (None, None)
