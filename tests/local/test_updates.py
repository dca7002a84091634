"""Rolling updates of real pools: nodes of an earlier spec are replaced one by one."""

import dataclasses
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward import events
from skyward.control.observe.snapshot import PoolSnapshot
from skyward.pool.compute import Compute
from tests.local.fake_cloud import FakeCloud
from tests.waiting import wait_for

pytestmark = pytest.mark.local

OLD, NEW = sky.Image(env={"VERSION": "old"}), sky.Image(env={"VERSION": "new"})


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """A file that tasks wait for; created at the end, so that no task keeps waiting."""
    path = tmp_path / "gate"
    yield path
    path.touch()


@sky.function
def version() -> str:
    import os

    return os.environ["VERSION"]


@sky.function
def edited() -> int:
    import edited_module  # type: ignore[import-not-found]

    value: int = edited_module.X
    return value


@sky.function
def held(gate: str, runs: str) -> str:
    """Run until the gate exists; return the version of the node, and leave a line for each run in a file."""
    import os
    import time
    from pathlib import Path

    with Path(runs).open("a") as file:
        file.write("run\n")
    while not Path(gate).exists():
        time.sleep(0.01)
    return os.environ["VERSION"]


@sky.function(resources={"A100": 1})
def held_on_a100(gate: str) -> None:
    import time
    from pathlib import Path

    while not Path(gate).exists():
        time.sleep(0.01)


@sky.function
def kept_list() -> sky.Kept[list[int]]:
    return sky.keep([1, 2, 3], "numbers")


@sky.function
def total(numbers: Any) -> int:
    return sum(numbers)


@sky.function(resources={"H100": 1})
def on_h100() -> str:
    return "ran"


def wait_until(pool: Compute, true: Callable[[PoolSnapshot], bool], what: str) -> None:
    wait_for(lambda: true(pool.snapshot()), what)


def is_updated(pool: PoolSnapshot) -> bool:
    """Return whether no outdated node is left, and the pool has its size again."""
    return not any(node.outdated for node in pool.nodes) and len(pool.nodes) == pool.desired


def reasons(pool: Compute) -> list[str]:
    return [each.reason for each in pool.decisions()]


def test_variables_change_and_running_tasks_end_where_they_run(gate: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    with sky.Compute(nodes=(2, 4), policy="no", image=OLD) as pool:
        assert set(version() @ pool) == {"old"}
        running = [held(str(gate), str(runs)) > pool for _ in range(2)]
        wait_until(pool, lambda now: now.running == 2, "the tasks to run")
        pool.update(image=NEW)
        assert pool.spec.image == NEW
        wait_until(pool, lambda now: any(node.state == "draining" for node in now.nodes), "a node to drain")
        assert (version() >> pool) == "new"
        now = pool.snapshot()
        assert [node.outdated for node in now.nodes] == [True, True, False]
        gate.touch()
        assert [each.result() for each in running] == ["old", "old"]
        wait_until(pool, is_updated, "the nodes to be replaced")
        assert set(version() @ pool) == {"new"}
        assert len(runs.read_text().splitlines()) == 2
        assert 0 in [node.rank for node in pool.snapshot().nodes]
        texts = reasons(pool)
        assert "node 1 was launched from an earlier spec of group 'default'; node 2 takes its place once" in str(texts)
        assert texts[-1] == "the update of group 'default' is complete: no node of an earlier spec is left"


def test_task_for_a_node_that_only_its_successor_can_hold_runs_on_that() -> None:
    """Regression: the outdated node waited for the task, and the task for the successor of the node."""
    with sky.Compute(nodes=2) as pool:
        pool.update(resources={"H100": 1})
        runs = [pool.start(on_h100(), on=rank) for rank in (0, 1)]
        assert [run.future.result() for run in runs] == ["ran", "ran"]
        wait_until(pool, is_updated, "the nodes to be replaced")


def test_task_for_a_node_of_a_group_that_can_never_hold_it_is_refused() -> None:
    """Regression: the task waited for ever."""
    small, big = sky.Spec(nodes=1, vcpus=1), sky.Spec(nodes=1, vcpus=1, resources={"H100": 1})
    with sky.Compute(groups={"small": small, "big": big}) as pool:
        run = pool.start(on_h100(), on=0)
        with pytest.raises(sky.NoGroupFitsError, match="asks for 1 H100 on node 0, which can never have that"):
            run.future.result()


def test_collections_outlast_updates_of_groups_that_have_one_node_each() -> None:
    """Regression: the node of each group left at once, and the content was lost without a notice."""
    groups = {name: sky.Spec(nodes=1, vcpus=1, image=OLD) for name in ("first", "second")}
    with sky.Compute(groups=groups) as pool:
        shared = pool.dict("shared")
        shared["key"] = 5
        for name in groups:
            pool.update(group=name, image=NEW)
        wait_until(pool, is_updated, "the nodes to be replaced")
        assert shared["key"] == 5


def test_pool_of_one_node_is_replaced_when_its_task_has_ended(gate: Path, tmp_path: Path) -> None:
    with sky.Compute(nodes=1, image=OLD) as pool:
        notes = pool.events(events.PoolNote)
        running = held(str(gate), str(tmp_path / "runs")) > pool
        wait_until(pool, lambda now: now.running == 1, "the task to run")
        pool.update(image=NEW)
        assert "before its successor starts: group 'default' may have at most 1 node" in reasons(pool)[-1]
        assert [node.outdated for node in pool.snapshot().nodes] == [True]
        waiting = version() > pool
        gate.touch()
        assert running.result() == "old"
        assert waiting.result() == "new"
        assert wait_for_new(pool)
    said = [note.text for note in notes if isinstance(note, events.PoolNote)]
    assert any("its only node is replaced without another one beside it" in text for text in said)


def test_collections_outlast_an_update_with_room_for_one_node_more() -> None:
    with sky.Compute(nodes=(1, 2), policy="no", image=OLD) as pool:
        shared = pool.dict("shared")
        shared["key"] = 5
        for image in (NEW, OLD):
            pool.update(image=image)
            wait_until(pool, is_updated, "the node to be replaced")
            assert [node.rank for node in pool.snapshot().nodes] == [0]
            assert shared["key"] == 5


def test_nodes_keep_their_ranks_and_the_tasks_for_them(gate: Path, tmp_path: Path) -> None:
    """Regression: node 1 became node 2, so that tasks for node 1 failed."""
    with sky.Compute(nodes=2, image=OLD) as pool:
        running = pool.start(held(str(gate), str(tmp_path / "runs")), on=1)
        wait_until(pool, lambda now: now.running == 1, "the task to run")
        queued = pool.start(version(), on=1)
        pool.update(image=NEW)
        gate.touch()
        assert running.future.result(30) == "old"
        assert queued.future.result(30) in ("old", "new")
        wait_until(pool, is_updated, "the nodes to be replaced")
        assert [node.rank for node in pool.snapshot().nodes] == [0, 1]
        assert pool.start(version(), on=1).future.result(30) == "new"


def test_broadcast_under_way_has_a_result_for_each_of_its_nodes(gate: Path, tmp_path: Path) -> None:
    """Regression: the successor of a node that had ended its part ran the call again."""

    @sky.function
    def part(gate: str) -> int:
        import time
        from pathlib import Path

        rank = sky.instance_info().node
        while rank == 0 and not Path(gate).exists():
            time.sleep(0.01)
        return rank

    with sky.Compute(nodes=2, image=OLD) as pool:
        run = pool.start(part(str(gate)), on="all")
        wait_until(pool, lambda now: now.running == 1, "the part of node 1 to end")
        pool.update(image=NEW)
        wait_until(pool, lambda now: sum(not node.outdated for node in now.nodes) == 1, "node 1 to be replaced")
        assert (version() >> pool) == "new"
        gate.touch()
        assert run.future.result(30) == [0, 1]


def wait_for_new(pool: Compute) -> bool:
    wait_until(pool, is_updated, "the nodes to be replaced")
    return (version() >> pool) == "new"


def test_node_with_kept_values_is_replaced_once_they_are_dropped() -> None:
    with sky.Compute(nodes=(2, 4), policy="no", image=OLD) as pool:
        numbers: Any = kept_list() >> pool
        (node,) = [value.node for value in pool.kept()]
        pool.update(image=NEW)
        wait_until(pool, lambda now: sum(each.outdated for each in now.nodes) == 1, "the other node to be replaced")
        wait_for(lambda: f"stays for now: node {node} keeps numbers" in reasons(pool)[-1], "the reason")
        assert (total(numbers) >> pool) == 6
        numbers.drop()
        assert wait_for_new(pool)


def test_policies_go_on_while_nodes_are_replaced() -> None:
    with sky.Compute(nodes=(1, 3), image=OLD, autoscale_idle_timeout=600) as pool:
        assert (version() >> pool) == "old"
        pool.update(image=NEW)
        assert set(pool.map(lambda _: version.local(), range(6))) <= {"old", "new"}
        assert wait_for_new(pool)


def test_equal_spec_changes_nothing_and_says_so() -> None:
    with sky.Compute(nodes=1, image=OLD) as pool:
        notes = pool.events(events.PoolNote)
        machine = pool.snapshot().nodes[0].machine
        before = reasons(pool)
        pool.update(image=sky.Image(env={"VERSION": "old"}))
        assert (version() >> pool) == "old"
        assert pool.snapshot().nodes[0].machine == machine
        assert reasons(pool) == before
    said = [note.text for note in notes if isinstance(note, events.PoolNote)]
    assert any("group 'default' has this spec already, so its nodes are not replaced" in text for text in said)


def test_notice_of_an_equal_spec_says_how_to_ship_edited_files(tmp_path: Path) -> None:
    (tmp_path / "edited_module.py").write_text("X = 1\n")
    image = sky.Image(includes=[str(tmp_path / "edited_module.py")])
    with sky.Compute(nodes=(1, 2), policy="no", image=image) as pool:
        assert (edited() >> pool) == 1
        (tmp_path / "edited_module.py").write_text("X = 2\n")
        notes = pool.events(events.PoolNote)
        pool.update(image=image)
        assert (edited() >> pool) == 1
        pool.update(image=dataclasses.replace(image, env={"CODE": "2"}))
        wait_until(pool, is_updated, "the node to be replaced")
        assert (edited() >> pool) == 2
    said = [note.text for note in notes if isinstance(note, events.PoolNote)]
    assert any("compared by their paths, not by their content" in text for text in said)


def test_fields_that_the_provider_does_not_act_on_replace_no_node() -> None:
    with sky.Compute(nodes=1, image=OLD) as pool:
        notes = pool.events(events.PoolNote)
        machine = pool.snapshot().nodes[0].machine
        pool.update(region="mars", architecture="arm64")
        assert pool.spec.region is None
        assert (version() >> pool) == "old"
        assert [(node.machine, node.outdated) for node in pool.snapshot().nodes] == [(machine, False)]
    said = [note.text for note in notes if isinstance(note, events.PoolNote)]
    assert any("its provider does not act on architecture and region" in text for text in said)


def test_nodes_stay_if_the_machines_of_the_new_spec_do_not_start() -> None:
    with sky.Compute(nodes=(1, 2), policy="no", image=OLD, provision_retry_delay=0.01) as pool:
        pool.update(provider=sky.Local(fail_rate=1.0, seed=1))
        wait_for(lambda: "stays for now" in reasons(pool)[-1], "the reason")
        assert (version() >> pool) == "old"
        pool.update(provider=None)
        wait_until(pool, is_updated, "the node to be one of the present spec again")
        assert (version() >> pool) == "old"


def test_single_node_comes_back_if_its_successor_does_not_start() -> None:
    with sky.Compute(nodes=1, image=OLD, provision_retry_delay=0.01) as pool:
        pool.update(provider=sky.Local(fail_rate=1.0, seed=1), image=NEW)
        wait_for(lambda: "stays for now" in reasons(pool)[-1], "the reason")
        assert "takes the place of the one that made room, and the update ends" in reasons(pool)[-2]
        assert "stays for now: the update has ended, because no node of the present spec could" in reasons(pool)[-1]
        assert (version() >> pool) == "old"
        pool.update(provider=None)
        assert wait_for_new(pool)


def test_nodes_come_from_another_provider(tmp_path: Path) -> None:
    cloud = FakeCloud(str(tmp_path))
    with sky.Compute(nodes=(1, 2), policy="no", image=OLD) as pool:
        pool.update(provider=cloud, image=NEW)
        assert wait_for_new(pool)
        assert [node.kind.split()[0] for node in pool.snapshot().nodes] == ["fake"]
    assert cloud.left == []


def test_failed_preparation_changes_nothing(tmp_path: Path) -> None:
    cloud = FakeCloud(str(tmp_path))
    with sky.Compute(nodes=1, image=OLD) as pool:
        cloud.fail("before prepare")
        with pytest.raises(sky.ProvisioningError, match="could not be updated: .*the cloud is down before prepare"):
            pool.update(provider=cloud)
        with pytest.raises(sky.SpecError, match="no_such_folder"):
            pool.update(image=sky.Image(includes=["no_such_folder"]))
        assert pool.spec.image == OLD
        assert not any(node.outdated for node in pool.snapshot().nodes)
        assert (version() >> pool) == "old"
    assert cloud.left == []


def test_nodes_are_never_of_a_spec_that_was_refused(gate: Path) -> None:
    newest = sky.Image(env={"VERSION": "newest"})
    with sky.Compute(nodes=(1, 2), policy="no", image=OLD, accelerator="A100") as pool:
        running = held_on_a100(str(gate)) > pool
        wait_until(pool, lambda now: now.running == 1, "the task to run")
        with pytest.raises(sky.UsageError, match="tasks that have not ended need 1 A100"):
            pool.update(accelerator="H100", image=NEW)
        gate.touch()
        running.result()
        pool.update(accelerator="H100", image=newest)
        wait_until(pool, is_updated, "the node to be replaced")
        assert set(version() @ pool) == {"newest"}


def test_update_after_an_interrupted_one_launches_nothing_from_its_spec(tmp_path: Path) -> None:
    refused = FakeCloud(str(tmp_path / "refused"))
    Path(refused.directory).mkdir()
    with sky.Compute(nodes=(1, 2), policy="no", image=OLD) as pool:
        refused.fail("after prepare")
        with pytest.raises(sky.ProvisioningError, match="could not be updated"):
            pool.update(provider=refused, image=sky.Image(env={"VERSION": "refused"}))
        is_held = refused.hold("before prepare")
        main = threading.main_thread().ident
        assert main is not None
        interrupter = threading.Thread(target=interrupt, args=(is_held, main))
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            pool.update(provider=refused, image=sky.Image(env={"VERSION": "refused"}))
        interrupter.join()
        refused.release("before prepare")
        pool.update(image=NEW)
        assert wait_for_new(pool)
        assert {node.kind.split()[0] for node in pool.snapshot().nodes} == {"local"}
    assert refused.left == []


def test_close_ends_an_update_that_is_prepared(tmp_path: Path) -> None:
    cloud = FakeCloud(str(tmp_path))
    pool = sky.Compute(nodes=1, image=OLD).open()
    is_held = cloud.hold("before offers")
    with ThreadPoolExecutor(1) as thread:
        updating = thread.submit(lambda: pool.update(provider=cloud))
        wait_for(is_held, "the provider to be asked")
        pool.close()
        with pytest.raises(sky.PoolClosedError, match="was closed before it was updated"):
            updating.result()
    cloud.release("before offers")
    assert cloud.left == []


def test_accelerators_change_once_no_task_needs_the_earlier_ones(gate: Path, tmp_path: Path) -> None:
    with sky.Compute(nodes=(1, 2), policy="no", image=OLD, accelerator="A100") as pool:
        running = held(str(gate), str(tmp_path / "runs")).with_resources(A100=1) > pool
        wait_until(pool, lambda now: now.running == 1, "the task to run")
        with pytest.raises(sky.UsageError, match="tasks that have not ended need 1 A100"):
            pool.update(accelerator="H100")
        gate.touch()
        assert running.result() == "old"
        pool.update(accelerator="H100")
        assert pool.spec.accelerator == sky.accelerators.H100()
        assert (on_h100() >> pool) == "ran"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "takes the fields that change"),
        ({"nodes": 3}, r"use `pool\.resize\(nodes\)`"),
        ({"ttl": 5}, "cannot change on an open pool"),
        ({"plugins": []}, "cannot change on an open pool"),
        ({"worker": sky.Worker(2)}, "slots of its nodes"),
        ({"pip": ["numpy"]}, r"write `image=sky\.Image\(pip="),
        ({"imag": OLD}, "did you mean 'image'"),
        ({"image": OLD, "group": "gpu"}, "has no group 'gpu'"),
        ({"image": OLD, "group": 3}, "group must be the name of a group, such as 'default', but got 3"),
        ({"vcpus": -1}, "vcpus must be"),
        ({"policy": "no"}, "scaling policy cannot change"),
        ({"max_nodes": 3}, r"change with `pool\.resize\(\(2, 8\)\)`"),
        ({"name": "other"}, "name of an open pool cannot change"),
        ({"provider": [sky.Local(), sky.Local()]}, "takes one provider"),
    ],
)
def test_fields_that_cannot_change_are_refused(pool: sky.Compute, fields: Any, message: str) -> None:
    with pytest.raises(sky.SpecError, match=message):
        pool.update(**fields)
    assert not any(node.outdated for node in pool.snapshot().nodes)


def test_only_the_named_group_is_updated() -> None:
    groups = {
        "a": sky.Spec(capabilities={"a"}, nodes=(1, 2), image=OLD),
        "b": sky.Spec(capabilities={"b"}, nodes=(1, 2), image=OLD),
    }
    with sky.Compute(groups=groups, policy="no") as pool:
        with pytest.raises(sky.SpecError, match="has several groups: name one"):
            pool.update(image=NEW)
        pool.update(group="b", image=NEW)
        wait_until(pool, is_updated, "the node to be replaced")
        assert sorted(version() @ pool) == ["new", "old"]


UPDATED = """
import os, sys, time
import skyward as sky

@sky.function
def waits(go):
    print("begun", flush=True)
    while not os.path.exists(go):
        time.sleep(0.01)
    return os.environ["VERSION"]

old, new = (sky.Image(env={"VERSION": name}) for name in ("old", "new"))
provider = sky.Local(outlives=True)
pool = sky.Compute(provider=provider, nodes=(2, 4), policy="no", name="updated", ttl=60, image=old).open()
left = [waits(sys.argv[1]) > pool for _ in range(2)]
while pool.logs().text.count("begun") < 2:
    time.sleep(0.01)
pool.update(image=new)
while not any(node.state == "draining" for node in pool.snapshot().nodes):
    time.sleep(0.01)
os.kill(os.getpid(), 9)
"""


def test_update_goes_on_in_the_process_that_attaches(gate: Path) -> None:
    subprocess.run([sys.executable, "-c", UPDATED, str(gate)], check=False, timeout=100)
    with sky.attach("updated") as pool:
        assert pool.spec.image == NEW
        assert [node.outdated for node in pool.snapshot().nodes] == [True, True, False]
        gate.touch()
        assert [task.result() for task in pool.recovered] == ["old", "old"]
        wait_until(pool, is_updated, "the nodes to be replaced")
        assert set(version() @ pool) == {"new"}
        assert pool.snapshot().desired == 2


def test_interrupted_update_changes_nothing(tmp_path: Path) -> None:
    cloud = FakeCloud(str(tmp_path))
    with sky.Compute(nodes=1, image=OLD) as pool:
        is_held = cloud.hold("before offers")
        main = threading.main_thread().ident
        assert main is not None
        interrupter = threading.Thread(target=interrupt, args=(is_held, main))
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            pool.update(provider=cloud)
        interrupter.join()
        cloud.release("before offers")
        assert pool.spec.provider is None
        assert (version() >> pool) == "old"
        assert not any(node.outdated for node in pool.snapshot().nodes)


def interrupt(is_held: Callable[[], bool], thread: int) -> None:
    """Interrupt a thread once it waits for a provider."""
    import signal

    wait_for(is_held, "the provider to be asked")
    signal.pthread_kill(thread, signal.SIGINT)


SOLD_OUT = """
import os, sys, time
import skyward as sky

old, new = (sky.Image(env={"VERSION": name}) for name in ("old", "new"))
options = sky.Options(provision_retry_delay=0.01)
provider = sky.Local(outlives=True)
pool = sky.Compute(provider=provider, nodes=2, name="sold-out", ttl=60, image=old, options=options).open()
pool.update(image=new, provider=sky.Local(outlives=True, fail_rate=1.0, seed=1))
while sys.argv[1] == "ended" and not (
    "the update has ended" in pool.decisions()[-1].reason
    and [node.state for node in pool.snapshot().nodes] == ["active", "active"]
):
    time.sleep(0.01)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("killed", ["begun", "ended"])
def test_update_that_fell_back_does_not_begin_again_in_the_process_that_attaches(killed: str) -> None:
    """Regression: a node was removed again, and its successor waited for the sold-out provider."""
    subprocess.run([sys.executable, "-c", SOLD_OUT, killed], check=False, timeout=100)
    with sky.attach("sold-out") as pool:
        wait_for(lambda: "the update has ended" in reasons(pool)[-1], "the update to end")
        wait_until(pool, lambda now: [node.state for node in now.nodes] == ["active", "active"], "the earlier nodes")
        assert version() @ pool == ["old", "old"]
        assert [node.rank for node in pool.snapshot().nodes] == [0, 1]
        assert killed == "begun" or not any(" and goes" in reason for reason in reasons(pool))
        pool.update(provider=sky.Local(outlives=True))
        wait_until(pool, is_updated, "the nodes to be replaced")
        assert set(version() @ pool) == {"new"}


STOPPING = """
import os, time
import skyward as sky

old, new = (sky.Image(env={"VERSION": name}) for name in ("old", "new"))
pool = sky.Compute(provider=sky.Local(outlives=True), nodes=2, name="stopping", ttl=60, image=old).open()
pool.update(image=new)
while not any(node.state == "stopping" or not node.outdated for node in pool.snapshot().nodes):
    pass
os.kill(os.getpid(), 9)
"""


def test_successor_keeps_its_rank_if_the_process_ends_while_a_node_stops() -> None:
    """Regression: the machine that was stopping became a node again, and its successor got another rank."""
    subprocess.run([sys.executable, "-c", STOPPING], check=False, timeout=100)
    with sky.attach("stopping") as pool:
        assert pool.start(version(), on=1).future.result(30) == "new"
        wait_until(pool, is_updated, "the nodes to be replaced")
        assert [node.rank for node in pool.snapshot().nodes] == [0, 1]
        assert not any("desired nodes when its process ended" in reason for reason in reasons(pool))


ALL_LEAVE = """
import os, sys
import skyward as sky

old, new = (sky.Image(env={"VERSION": name}) for name in ("old", "new"))
options = sky.Options(provision_retry_delay=0.01)
provider = sky.Local(outlives=True)
pool = sky.Compute(provider=provider, nodes=1, name="all-leave", ttl=60, image=old, options=options).open()
pool.update(image=new, provider=sky.Local(outlives=True, boot_time=1, fail_rate=float(sys.argv[1]), seed=1))
while any(node.state in ("active", "draining") for node in pool.snapshot().nodes):
    pass
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize(("fail_rate", "comes"), [(0, "new"), (1, "old")])
def test_update_goes_on_if_the_process_ends_while_no_node_is_active(fail_rate: int, comes: str) -> None:
    """Regression: attaching was refused for a false reason, and the machines were terminated."""
    subprocess.run([sys.executable, "-c", ALL_LEAVE, str(fail_rate)], check=False, timeout=100)
    (orphan,) = sky.orphans("all-leave")
    assert orphan.attachable
    with sky.attach("all-leave") as pool:
        assert (version() >> pool) == comes
        assert [node.rank for node in pool.snapshot().nodes] == [0]


LAST_ENDED = """
import os, threading
import skyward as sky
from skyward.journal import PoolRecord

PoolRecord.gone = lambda *_: os.kill(os.getpid(), 9)
old, new = (sky.Image(env={"VERSION": name}) for name in ("old", "new"))
provider = sky.Local(outlives=True)
pool = sky.Compute(provider=provider, nodes=1, name="last-ended", ttl=60, image=old).open()
pool.update(image=new, provider=sky.Local(outlives=True, boot_time=1))
threading.Event().wait()
"""


def test_update_goes_on_if_the_process_ends_before_it_records_that_the_last_node_has_ended() -> None:
    """Regression: the pool was listed as one that cannot be attached to, although it could be."""
    subprocess.run([sys.executable, "-c", LAST_ENDED], check=False, timeout=100)
    (orphan,) = sky.orphans("last-ended")
    assert (orphan.machines, orphan.ended, orphan.attachable) == (1, True, True)
    with sky.attach("last-ended") as pool:
        assert (version() >> pool) == "new"
