"""Pools that their process leaves: their leases, their budgets, and what a process that attaches for a while leaves."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

import skyward as sky
from skyward.journal import Journal, data_directory
from skyward.pool.reaping.orphans import orphans
from skyward.pool.reaping.recorded_pools import RecordedPool, recorded_pools
from skyward.specs.plugin import Plugin
from tests.killed_client import kill_when_up
from tests.local.pools import processes_in
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.usefixtures("own_journal"),
    pytest.mark.local,
    pytest.mark.skipif(sys.platform != "linux", reason="nodes outlive their client on Linux"),
]

LEAVES = """
import faulthandler
import skyward as sky
faulthandler.dump_traceback_later(90, exit=True)

@sky.function
def one():
    return 1

provider = sky.Local(outlives=True, hourly_price=3.6)
pool = sky.Compute(provider=provider, nodes=2, name="left", OPTIONS).open()
assert one() @ pool == [1, 1]
assert pool.leave()
print(pool.snapshot().lease)
"""

ATTACHES = """
import skyward as sky
pool = sky.attach("left")
# ends
assert pool.leave()
"""

ENDS_AT_ONCE = """
import os, time
while pool.snapshot().lease >= 500:
    time.sleep(0.01)
os._exit(7)
"""
LIMITED = LEAVES.replace("OPTIONS", "ttl=600, budget=0.16").replace(
    "assert pool.leave()",
    """
from skyward.pool.compute import limit_leases
limit_leases(pool)
# ends
""",
)
INTERRUPTED = """
import os, signal, sys
import skyward as sky
from skyward.control.act.nodes.node import Node

start = Node.start

async def interrupted(self, *args, **details):
    await start(self, *args, **details)
    os.kill(os.getpid(), signal.SIGINT)

Node.start = interrupted
try:
    sky.attach("left")
except KeyboardInterrupt:
    sys.exit(7)
"""


def run(script: str, **options: object) -> str:
    """Run a client to its end, and return what it has printed."""
    given = ", ".join(f"{name}={value!r}" for name, value in options.items())
    words = [sys.executable, "-c", script.replace("OPTIONS", given)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode in (0, 7), done.stderr
    return done.stdout


def workers() -> list[psutil.Process]:
    return processes_in(os.environ["TMPDIR"], "skyward.worker")


def left() -> RecordedPool:
    (pool,) = recorded_pools("left")
    return pool


@pytest.fixture(autouse=True)
def clean(own_journal: None) -> Iterator[None]:
    yield
    sky.reap()


def test_pool_that_is_left_ends_before_its_budget_is_exceeded() -> None:
    """Regression: its lease was that of its spec, which cost many times the budget."""
    reserved = "from skyward.control.act import leases as module\nmodule.LEAVE_RESERVE = 55.0\n"
    lease = float(run(reserved + LEAVES, ttl=600, budget=0.13))  # of 2 nodes for $0.001 a second: 65 s
    assert 0 < lease < 10
    assert left().lease == lease
    assert left().budget == 0.13
    wait_for(lambda: not workers(), "the end of the lease")
    assert left().ended
    (orphan,) = orphans("left")
    assert (orphan.ended, orphan.per_hour, orphan.attachable) == (True, 0.0, False)


def test_pool_without_a_budget_is_left_for_its_lease() -> None:
    assert float(run(LEAVES, ttl=600)) == left().lease == 600


def test_pool_whose_budget_covers_no_lease_is_not_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skyward.control.act.leases.LEAVE_RESERVE", 100.0)
    provider = sky.Local(outlives=True, hourly_price=3600.0)
    pool = sky.Compute(name="left", provider=provider, budget=90.0, warn_above=None).open()
    try:
        with pytest.raises(
            sky.UsageError, match=r"^Pool 'left' cannot be left: \S+ of its budget of \$90.00 is spent, "
        ):
            pool.leave()
        assert pool.is_open
    finally:
        pool.close()
    assert recorded_pools("left") == []


def test_attaching_restores_the_lease_that_the_budget_had_shortened() -> None:
    assert float(run(LEAVES, ttl=600, budget=0.3)) < 150
    pool = sky.attach("left", budget=20.0)
    assert left().lease == 600
    assert pool.leave()
    assert pool.snapshot().lease == 600
    pool.close()


@pytest.mark.parametrize("opens", [ATTACHES, LIMITED], ids=["attached", "own"])
def test_killed_process_leaves_no_longer_lease_than_the_budget_covers(opens: str) -> None:
    """Regression: its nodes had all of their lease, which cost many times the budget."""
    if opens is ATTACHES:
        run(LEAVES, ttl=600, budget=0.16)  # of 2 nodes for $0.001 a second: 80 s
    run(opens.replace("# ends", ENDS_AT_ONCE))
    assert (left().state, left().owner) == ("left", "")
    assert left().spent + left().lease * 0.002 <= 0.16
    wait_for(lambda: not workers(), "the end of the lease")
    assert left().ended


def test_pool_is_left_idle_though_nothing_ran_since_attaching() -> None:
    """Regression: ends of tasks that its former process had not confirmed were on their way, and locked the pool."""
    run(LEAVES, ttl=60)
    for _ in range(5):
        run(ATTACHES)
        assert (left().left_idle, left().state) == (True, "left")


def test_task_of_a_process_that_has_died_keeps_the_pool_for_whoever_takes_it_over(tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = LEAVES.replace("assert pool.leave()", f"""
import os, time
@sky.function
def waits():
    while not os.path.exists({str(go)!r}):
        time.sleep(0.01)
left = waits() > pool
while not left.running():
    time.sleep(0.01)
""")  # fmt: skip  # a script
    kill_when_up(script.replace("OPTIONS", "ttl=60"))
    assert not left().left_idle
    run(ATTACHES)
    assert not left().left_idle
    go.touch()
    run(ATTACHES.replace("# ends", "[task.result() for task in pool.recovered]"))
    assert left().left_idle


def test_interrupted_attaching_keeps_the_pool_as_it_was() -> None:
    """Regression: it counted as one with unfinished tasks; interrupted at the end, its nodes were terminated."""
    run(LEAVES, ttl=60)
    before = {process.pid for process in workers()}
    run(INTERRUPTED)
    assert (left().left_idle, left().state) == (True, "left")
    assert {process.pid for process in workers()} == before
    with sky.attach("left") as pool:
        assert pool.snapshot().active == 2


@dataclass(frozen=True)
class Fails(Plugin):
    name = "fails"

    @contextmanager
    def around_pool(self, pool: sky.Compute) -> Iterator[None]:
        if os.environ.get("FAILS"):
            raise RuntimeError("the service does not answer")
        yield


def test_pool_is_not_lost_because_a_plugin_fails_while_attaching(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: its nodes were terminated."""
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))))
    monkeypatch.setenv("PYTHONPATH", path)
    with_it = LEAVES.replace("nodes=2", "nodes=2, plugins=(Fails(),)")
    run(f"from tests.local.test_left_pools import Fails\n{with_it}", ttl=60)
    before = {process.pid for process in workers()}
    monkeypatch.setenv("FAILS", "1")
    with pytest.raises(RuntimeError, match="does not answer"):
        sky.attach("left")
    assert (left().left_idle, left().state) == (True, "left")
    assert {process.pid for process in workers()} == before
    monkeypatch.delenv("FAILS")
    with sky.attach("left") as pool:
        assert pool.snapshot().active == 2


def test_nodes_that_have_ended_are_shown_as_gone() -> None:
    """Regression: the pool was shown as running under its lease."""
    run(LEAVES, ttl=600)
    assert (left().state, [each.ended for each in left().machines]) == ("left", [False, False])
    for worker in workers():
        worker.send_signal(signal.SIGKILL)
    wait_for(lambda: left().ended, "the end of the nodes")
    assert (left().state, left().lease_left, left().per_hour) == ("ended", 0.0, 0.0)


def test_costs_end_with_the_nodes() -> None:
    """Regression: they grew on, and so the pool had spent more than its budget."""
    run(LEAVES, ttl=600, budget=20.0)
    one, other = workers()[0], workers()[1:]
    wait_for(lambda: left().spent > 0, "the first costs")
    one.send_signal(signal.SIGKILL)
    wait_for(lambda: any(each.ended for each in left().machines), "the end of a node")
    assert left().per_hour == pytest.approx(3.6 * sum(not each.ended for each in left().machines))
    for worker in other:
        worker.send_signal(signal.SIGKILL)
    wait_for(lambda: left().ended, "the end of the nodes")
    spent = left().spent
    with Journal() as journal:
        costs = journal.costs(left().id)
    assert costs is not None
    assert costs.per_hour == 0.0
    assert costs.spent >= spent
    (of_pool,) = sky.costs()
    assert (of_pool.running, of_pool.spent, left().spent) == (0, spent, spent)
    sky.reap()
    assert [each.spent for each in sky.costs()] == [spent]


def test_costs_end_with_the_lease_at_the_latest() -> None:
    run(LEAVES, ttl=60, budget=20.0)
    with Journal() as journal:
        (entry,) = journal.pools("left")
        (before,) = {bill.at for bill in journal.bills(0.0, entry.id)[:1]}
        os.utime(data_directory() / "pools" / entry.id, times=(before - 70.0, before - 70.0))  # noticed late
    for worker in workers():
        worker.send_signal(signal.SIGKILL)
    wait_for(lambda: left().ended and not left().per_hour, "the end of the nodes")
    with Journal() as journal:
        bills = journal.bills(0.0, entry.id)
    assert min(bill.ended or 0.0 for bill in bills) == before
    assert sum(bill.spent for bill in bills) == pytest.approx(0.0, abs=0.002)  # of 2 nodes for $0.001 a second


def test_nodes_that_end_with_their_process_are_gone_with_it() -> None:
    kill_when_up('import skyward as sky\npool = sky.Compute(name="left", provider=sky.Local()).open()')
    assert (left().state, left().ended) == ("ended", True)
    with Journal() as journal:
        assert [entry.name for entry in journal.pools()] == ["left"]
