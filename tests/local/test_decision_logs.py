"""Decision logs of pools of real nodes. The simulator and a pool decide the same from the same inputs: a replay."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import skyward as sky
from skyward.control.observe.snapshot import PoolSnapshot
from skyward.decision_log.lines import read_decision_log
from skyward.pool.compute import Compute
from skyward.scaling.registry import POLICIES
from skyward.simulator.replay import replay

pytestmark = pytest.mark.local


@sky.function
def held(gate: str) -> int:
    """Run until the gate exists; return the rank it ran on."""
    import time
    from pathlib import Path

    while not Path(gate).exists():
        time.sleep(0.01)
    return sky.instance_info().node


def until(pool: Compute, true: Callable[[PoolSnapshot], bool]) -> None:
    """Return once a condition holds for the snapshot of the pool."""
    pause = threading.Event()
    for _ in range(2000):
        if true(pool.snapshot()):
            return
        pause.wait(0.02)
    pytest.fail(f"it never came to that: {pool.snapshot()}; {[str(event) for event in pool.decisions()]}")


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "no"])
def test_replay_gives_the_decisions_of_a_pool_with_boots_prices_and_failures(policy: str, tmp_path: Path) -> None:
    log, gates = tmp_path / "decisions.jsonl", [tmp_path / name for name in ("first", "second")]
    machines = sky.Local(boot_time=0.3, hourly_price=3.2, fail_rate=0.3, seed=5)
    with Compute(
        provider=machines,
        nodes=(1, 3),
        policy=policy,
        budget=50.0,
        provision_retry_delay=0.05,
        max_provision_attempts=20,
        autoscale_cooldown=0.3,
        autoscale_idle_timeout=0.5,
        decision_log=log,
    ) as pool:
        for gate in gates:
            waiting = [held(str(gate)) > pool for _ in range(35)]
            until(pool, lambda now: len(now.nodes) > 1)
            gate.touch()
            for future in waiting:
                future.result()
        until(pool, lambda now: len(now.nodes) == 1)
        decided = [event for event in pool.decisions() if event.by == "policy" and not event.held_back]
    result = replay(log)
    assert result.policies == (policy,)
    assert result.differences == ()
    assert result.notices == ()
    assert result.changes == len(decided) >= 2
    assert result.evaluations > result.changes


def test_log_that_cannot_be_written_is_reported_and_the_pool_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gate").touch()
    with Compute(nodes=(1, 2), console="minimal", decision_log=tmp_path) as pool:
        assert held(str(tmp_path / "gate")) >> pool == 0
    assert capsys.readouterr().err.count("cannot be written (Is a directory); the pool continues without it") == 1


def test_resizes_are_in_the_log_and_an_elastic_pool_without_a_log_writes_none(tmp_path: Path) -> None:
    log = tmp_path / "decisions.jsonl"
    with Compute(nodes=(1, 3), decision_log=str(log)) as pool:
        pool.resize((2, 3))
        until(pool, lambda now: sum(node.state == "active" for node in now.nodes) == 2)
    kinds = [json.loads(line)["kind"] for line in log.read_text().splitlines()]
    assert kinds[:2] == ["pool", "ready"]
    assert "cooldown" in kinds
    header = read_decision_log(log)[0][0].record
    assert getattr(header, "opened", 0) > 0
    log.unlink()
    with Compute(nodes=(1, 3)) as pool:
        assert pool.snapshot().nodes
    assert not log.exists()
