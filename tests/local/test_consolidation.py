"""A dear node of a real pool is replaced by a cheaper one while tasks keep coming."""

import threading
from pathlib import Path

import pytest

import skyward as sky
from skyward.pool.compute import Compute
from skyward.simulator.replay import replay

pytestmark = pytest.mark.local


@sky.function
def short(folder: str, number: int) -> int:
    """Run for a moment, after noting the start; return the number."""
    import time
    from pathlib import Path

    with (Path(folder) / f"{number}").open("a") as starts:
        starts.write("started\n")
    time.sleep(0.2)
    return number


def test_dear_node_is_replaced_without_stopping_a_task(tmp_path: Path) -> None:
    log, starts = tmp_path / "decisions.jsonl", tmp_path / "starts"
    starts.mkdir()
    groups = {
        "cheap": sky.Spec(vcpus=1, nodes=(1, 1), provider=sky.Local(hourly_price=100.0, boot_time=0.2)),
        "dear": sky.Spec(vcpus=1, nodes=(0, 1), provider=sky.Local(hourly_price=1100.0, boot_time=0.2)),
    }
    pool = Compute(
        groups=groups,
        autoscale_cooldown=0.2,
        consolidate_within=30.0,
        warn_above=None,
        decision_log=log,
        target_wait="fast",
    )
    numbers = iter(range(10_000))
    stop = threading.Event()
    done: list[int] = []

    def keep_busy() -> None:
        while not stop.is_set():
            number = next(numbers)
            assert short(str(starts), number) >> pool == number
            done.append(number)

    def until_nodes_of(groups: set[str]) -> None:
        pause = threading.Event()
        for _ in range(3000):
            nodes = pool.snapshot().nodes
            if {node.group for node in nodes} == groups and all(node.state == "active" for node in nodes):
                return
            pause.wait(0.02)
        pytest.fail(f"it never came to {groups}: {pool.snapshot()}; {[str(event) for event in pool.decisions()]}")

    with pool:
        clients = [threading.Thread(target=keep_busy) for _ in range(4)]
        for client in clients:
            client.start()
        try:
            until_nodes_of({"cheap", "dear"})
            pool.resize((1, 4), group="cheap")
            until_nodes_of({"cheap"})
        finally:
            stop.set()
            for client in clients:
                client.join()
        reasons = [event.reason for event in pool.decisions() if not event.held_back]
    assert any("1 node of 'dear' at $1,100.00 per hour can be replaced by" in reason for reason in reasons)
    assert any("leaves once its tasks have ended" in reason for reason in reasons)
    assert len(done) == len(list(starts.iterdir()))
    assert all(each.read_text() == "started\n" for each in starts.iterdir()), "a task ran twice"
    assert replay(log).differences == ()
