"""Attaching to the pool of a killed client: its tasks, their results, and their output are recovered."""

import os
import re
from functools import partial
from pathlib import Path

import pytest

import skyward as sky
from tests.killed_client import count_points, has_ended, kill_at, kill_at_work
from tests.local.kernel import started
from tests.machines.conftest import hosts, source_of_hosts
from tests.machines.machine import Machine, Network
from tests.scale import SCALE
from tests.waiting import wait_for

pytestmark = [pytest.mark.machines, pytest.mark.timeout(180)]

TASKS = """
import faulthandler, time
faulthandler.dump_traceback_later(90, exit=True)
from collections.abc import Iterator

@sky.function
def told(value):
    return value

@sky.function
def long(go):
    import os, time
    for number in range(3):
        print("line", number, flush=True)
    while not os.path.exists(go):
        time.sleep(0.01)
    print("and on")
    return "done all the same"

@sky.function
def large(go):
    import os, time, numpy
    while not os.path.exists(go):
        time.sleep(0.01)
    return numpy.arange(500_000)

@sky.function
def counted(go):
    import os, time
    for number in range(3):
        yield number
    while not os.path.exists(go):
        time.sleep(0.01)
    yield 3

@sky.function
def failing(go):
    import os, time
    while not os.path.exists(go):
        time.sleep(0.01)
    raise ValueError("it failed meanwhile")

@sky.function
def fed(items: Iterator[int]):
    return sum(items)

@sky.function
def size(data):
    return len(data)

def never():
    yield 1
    time.sleep(1000)
"""

START = """
import numpy
assert told(1) >> pool == 1
data = numpy.zeros(3_000_000, dtype="u1")
data.flags.writeable = False
assert size(data) >> pool == 3_000_000
assert size(data) >> pool == 3_000_000
pool.dict("kept")["key"] = "value"
tasks = [pool.start(each("/root/go")) for each in (long, large, counted, failing)]
tasks.append(pool.start(fed(never())))
told(2) @ pool  # so that what was sent before it has arrived
"""


def killed_client(network: Network, executor: str = "thread") -> None:
    """Start a client process, and kill it while its tasks run."""
    options = "nodes=2, name='left', ttl=60, bootstrap_timeout=10, "
    options += f"worker=sky.Worker(concurrency=8, executor={executor!r})"
    kill_at_work(TASKS, START, source_of_hosts(network, grace=5), options)


def let_go(machine: Machine) -> None:
    """Let the waiting tasks on a machine continue."""
    Path(f"/proc/{machine.pids()[0]}/root/root/go").touch()


def place() -> int:
    return sky.instance_info().node


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_tasks_of_a_killed_client_are_recovered(network: Network, executor: str) -> None:
    machines = [network.add(), network.add()]
    killed_client(network, executor)
    workers = [machine.running("skyward.worker")[0] for machine in machines]
    let_go(machines[0])  # its tasks end while there is no client
    with sky.attach("left") as pool:
        tasks = {task.name: task for task in pool.recovered}
        assert set(tasks) - {"told"} == {"long", "large", "counted", "failing", "fed"}
        let_go(machines[1])
        assert tasks["long"].result(30) == "done all the same"
        assert tasks["long"].output.endswith("and on\n")
        assert tasks["large"].result(30).sum() == 499_999 * 250_000
        assert list(tasks["counted"].items())[-1] == 3
        with pytest.raises(ValueError, match="it failed meanwhile"):
            tasks["failing"].result(30)
        with pytest.raises(
            sky.InputLostError, match=r"^fed\(\) was fed by an iterator of the process that sent it, which"
        ):
            tasks["fed"].result(30)
        assert sky.function(place)() @ pool == [0, 1]
        assert pool.dict("kept")["key"] == "value"
        assert [machine.running("skyward.worker")[0] for machine in machines] == workers
        snapshot = pool.snapshot()
        assert (snapshot.running, snapshot.queued) == (0, 0)
    wait_for(lambda: not any(machine.running("skyward.worker") for machine in machines), "the workers to end")
    with pytest.raises(sky.UsageError, match="There is no pool 'left' to attach to; the journal has none"):
        sky.attach("left")


OPEN = """
import skyward as sky
pool = sky.Compute(provider={provider}, nodes=1, name="train", ttl=60, worker=sky.Worker(concurrency=2)).open()

@sky.function
def train(go):
    import os, time
    print("epoch 1", flush=True)
    while not os.path.exists(go):
        time.sleep(0.01)
    return "trained"

@sky.function
def nothing():
    pass

run = pool.start(train("/root/go"))
nothing() @ pool  # so that what was sent before it has arrived
"""


def test_restarted_kernel_attaches_to_its_pool(network: Network) -> None:
    machine = network.add()
    with started() as kernel:
        opened = kernel(OPEN.format(provider=source_of_hosts(network)))
        assert "error" not in opened.types, opened.error
        kernel.kill_and_restart()
        let_go(machine)
        said = kernel("pool = %sky attach train").text()
        # The widths of the columns follow their content.
        assert re.match(r"Attached to pool 'train' with \d+ recovered tasks?\.\nindex  task  cell  code", said), said
        assert re.search(r"^ +0 +\d+ +2\* +train +0 ", said, re.MULTILINE), said
        assert "* in the previous kernel" in said
        assert kernel("next(task for task in pool.recovered if task.name == 'train').result(20)").data == ["'trained'"]
        assert kernel("%%sky --pool train\nimport skyward as sky\nsky.instance_info().node").data == ["0"]
        assert "already" in "".join(kernel("%sky attach train").error[1])
        assert kernel("%sky reap").text() == "No orphaned machines.\n"


def test_pool_of_a_killed_client_is_reaped(network: Network) -> None:
    machines = [network.add(), network.add()]
    killed_client(network)
    (done,) = sky.reap()
    assert (done.orphan.name, done.orphan.machines, done.orphan.due, done.error) == ("left", 2, False, "")
    wait_for(lambda: not any(machine.running("skyward.worker") for machine in machines), "the workers to end")
    for machine in machines:
        assert not list(Path(f"/proc/{machine.pids()[0]}/root/opt/skyward/nodes").iterdir())
    assert sky.reap() == []


def test_pool_whose_client_dies_while_opening_leaves_nothing(network: Network) -> None:
    machine = network.add()
    options = f"provider={source_of_hosts(network, grace=5)}, nodes=1"
    nodes = Path(f"/proc/{machine.pids()[0]}/root/opt/skyward/nodes")
    points, kills = count_points(options, {}), min(20, 2 * SCALE)
    for number in range(kills):
        mark = kill_at(1 + points * (number + 1) // kills, options, {})
        assert {done.error for done in sky.reap()} <= {""}, f"after kill {number} of {kills}"
        wait_for(lambda: not machine.running("skyward.worker"), "the worker to end")
        wait_for(lambda: not nodes.exists() or not list(nodes.iterdir()), "its directory to be removed")
        wait_for(partial(has_ended, mark), "the local processes of the client to end")
        assert sky.reap() == []


def test_attaching_recovers_the_remaining_nodes_after_the_loss_of_a_machine(network: Network) -> None:
    machines = [network.add(), network.add()]
    killed_client(network)
    machines[1].kill()
    with sky.attach("left") as pool:
        assert {task.node for task in pool.recovered} == {0}
        assert sky.function(place)() >> pool == 0


def test_pool_with_a_living_owner_cannot_be_attached_to(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    network.add()
    with sky.Compute(provider=hosts(network), nodes=1, name="mine"):
        with pytest.raises(sky.UsageError, match="Pool 'mine' is open in this process already: use it"):
            sky.attach("mine")
        monkeypatch.setattr("skyward.pool.attach.socket.gethostname", lambda: "elsewhere")
        with pytest.raises(sky.UsageError, match=rf"belongs to process {os.getpid()} on .*, which is still running"):
            sky.attach("mine")
        assert sky.reap() == []
