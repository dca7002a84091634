"""Logs of a pool during outages: each stream is complete, without duplicates; and metrics of machines."""

import time
from collections import defaultdict

import pytest

import skyward as sky
from tests.machines.conftest import hosts
from tests.machines.machine import Network
from tests.waiting import wait_for

pytestmark = [pytest.mark.machines, pytest.mark.timeout(180)]


@sky.function
def speak(name: str, lines: int) -> str:
    import sys

    for number in range(lines):
        print(f"{name} {number}", file=sys.stderr if number % 10 == 9 else sys.stdout)
        time.sleep(0.01)
    return name


def expected(name: str, lines: int) -> dict[str, str]:
    """Return the output of `speak`, by stream."""
    texts = {"stdout": "", "stderr": ""}
    for number in range(lines):
        texts["stderr" if number % 10 == 9 else "stdout"] += f"{name} {number}\n"
    return texts


def check_whole(pool: sky.Compute, task: int, name: str, lines: int) -> None:
    texts: dict[str, str] = defaultdict(str)
    for entry in pool.logs(task=task):
        assert entry.offset == len(texts[entry.stream]), f"{entry} does not continue its stream"
        texts[entry.stream] += entry.text
    assert texts == expected(name, lines)


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_output_during_an_outage_is_complete(network: Network, executor: str) -> None:
    machine = network.add()
    worker = sky.Worker(concurrency=4, executor=executor)  # type: ignore[arg-type]  # one of the two
    with sky.Compute(provider=hosts(network), nodes=1, worker=worker) as pool:
        runs = {name: pool.start(speak(name, 500)) for name in "abcd"}
        follower = pool.follow()
        first = next(follower)
        for _ in range(2):
            machine.cut()
            time.sleep(2)
            machine.mend()
            time.sleep(0.5)
        assert [run.future.result(60) for run in runs.values()] == list(runs)
        for name, run in runs.items():
            check_whole(pool, run.tasks[0], name, 500)
        whole = pool.logs().text
    followed = [first, *follower]
    assert sum(len(entry.text) for entry in followed) == len(whole)
    assert follower.dropped == 0


def test_output_at_the_end_of_a_removed_node_is_received(network: Network) -> None:
    network.add()
    network.add()

    @sky.function
    def last_words() -> None:
        import atexit

        atexit.register(print, "goodbye")
        print("hello")

    with sky.Compute(provider=hosts(network), nodes=(1, 2), autoscale_idle_timeout=600) as pool:
        pool.resize(2)
        wait_for(lambda: sum(node.state == "active" for node in pool.snapshot().nodes) == 2, "two nodes")
        pool.start(last_words(), on=1).future.result(60)
        pool.resize(1)
        wait_for(lambda: len(pool.snapshot().nodes) == 1, "the second node to be removed")
        assert pool.logs(node=1).text == "hello\ngoodbye\n"


def test_pool_closes_while_a_machine_is_unreachable(network: Network) -> None:
    machine = network.add()
    with sky.Compute(provider=hosts(network), nodes=1) as pool:
        assert speak("a", 1) >> pool == "a"
        machine.cut()
    assert pool.logs().text == "a 0\n"


def test_metrics_of_a_machine_cover_the_whole_machine(network: Network) -> None:
    network.add()
    with sky.Compute(provider=hosts(network), nodes=1, metrics_interval=0.2) as pool:
        wait_for(lambda: len(pool.metrics(0)[0]) > 1, "the first metrics")
        now = pool.snapshot().nodes[0].metrics
        assert now is not None
        assert now.scope == "machine"
        assert None not in (now.memory, now.memory_total, now.disk_free, now.read, now.received, now.sent)
