"""Kept values on real nodes: each task gets the object itself, and a clear error once it is lost."""

import copy
import gc
import importlib
import inspect
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import skyward as sky
from skyward import events
from tests.local.tasks import pid, place
from tests.waiting import wait_for

pytestmark = pytest.mark.local


class Model:
    """An object that cannot be pickled, and records its end."""

    def __init__(self, marker: str = "") -> None:
        self.lock = threading.Lock()
        self.steps = 0
        self.marker = marker

    def __del__(self) -> None:
        if self.marker:
            Path(self.marker).touch()


@sky.function
def load(name: str = "model", marker: str = "") -> sky.Kept[Any]:
    return sky.keep(Model(marker), name)


@sky.function
def load_when(gate: str) -> sky.Kept[Any]:
    while not Path(gate).exists():
        time.sleep(0.002)
    return sky.keep(Model(), "other")


@sky.function
def step(model: Any) -> tuple[int, int, int]:
    """Return the node, the identity of the model, and its step count, one more than before."""
    with model.lock:
        model.steps += 1
    return sky.instance_info().node, id(model), model.steps


@sky.function
def step_when(model: Any, gate: str) -> int:
    while not Path(gate).exists():
        time.sleep(0.002)
    model.steps += 1
    return int(model.steps)


@sky.function
def whole(model: Any) -> Any:
    return {"the model": model, "steps": model.steps}


@sky.function
def both(one: Any, other: Any) -> bool:
    return one is other


@sky.function
def keep_array(size: int) -> sky.Kept[Any]:
    return sky.keep(np.arange(size), "array")


@sky.function
def keep_and_fail() -> None:
    sky.keep([1, 2, 3], "doomed")
    raise ValueError("after all")


@pytest.fixture(scope="module")
def nodes() -> Iterator[sky.Compute]:
    """Three nodes with one slot each."""
    with sky.Compute(nodes=3, name="keeps") as compute:
        yield compute


@pytest.fixture(autouse=True)
def _nothing_is_kept_longer_than_its_handle(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "nodes" in request.fixturenames:
        pool: sky.Compute = request.getfixturevalue("nodes")

        def empty() -> bool:
            gc.collect()
            return not pool.kept()

        wait_for(empty, "the kept values to be freed")


def test_each_task_gets_the_object_itself_on_its_node(nodes: sky.Compute) -> None:
    model = load() >> nodes
    found = [step(model) >> nodes for _ in range(6)]
    assert {(node, identity) for node, identity, _ in found} == {found[0][:2]}
    assert [steps for *_, steps in found] == [1, 2, 3, 4, 5, 6]
    assert model.nodes == (found[0][0],)


def test_future_and_group_run_on_the_node_of_the_value(nodes: sky.Compute) -> None:
    model = load() >> nodes
    alone = step(model) > nodes
    first, _, second = sky.gather(step(model), place(), step(model)) >> nodes
    found = [alone.result(), first, second]
    assert {node for node, *_ in found} == set(model.nodes)
    assert {each[2] for each in found} == {1, 2, 3}


def test_handle_describes_its_value(nodes: sky.Compute) -> None:
    array = keep_array(1000) >> nodes
    assert (array.name, array.kind, array.nbytes, array.pool) == ("array", "numpy ndarray", 8000, "keeps")
    assert repr(array).startswith(f"<Kept array: numpy ndarray, 7.8 KiB, on node {array.nodes[0]} of pool 'keeps', ")
    (view,) = nodes.kept()
    assert (view.name, view.kind, view.nbytes, view.node) == ("array", "numpy ndarray", 8000, array.nodes[0])
    assert view.until == pytest.approx(time.time() + 3600, abs=60)
    assert array.until == pytest.approx(view.until, abs=1)


def test_fetch_returns_a_copy(nodes: sky.Compute) -> None:
    array = keep_array(100_000) >> nodes
    here = array.fetch()
    assert np.array_equal(here, np.arange(100_000))
    here[0] = 7
    assert array.fetch()[0] == 0


def test_unpicklable_value_is_not_fetched(nodes: sky.Compute) -> None:
    model = load() >> nodes
    with pytest.raises(
        sky.NotPicklableError, match=r"^model cannot be sent back from the node: model\.lock is of type"
    ):
        model.fetch()
    assert (step(model) >> nodes)[2] == 1


def test_result_that_contains_the_object_has_its_handle(nodes: sky.Compute) -> None:
    model = load() >> nodes
    found = whole(model) >> nodes
    assert found["steps"] == 0
    assert isinstance(found["the model"], sky.Kept)
    assert both(model, found["the model"]) >> nodes is True


def test_use_as_a_value_raises_its_location(nodes: sky.Compute) -> None:
    model: Any = load() >> nodes
    uses: list[Callable[[], object]] = [
        *(lambda: model.steps, lambda: model(1), lambda: model[0], lambda: len(model), lambda: list(model)),
        *(lambda: bool(model), lambda: model == 1, lambda: model != 1, lambda: model < 1, lambda: model + 1),
        *(lambda: 1 - model, lambda: -model, lambda: int(model), lambda: float(model), lambda: range(model)),
        *(lambda: model.__enter__(), lambda: setattr(model, "steps", 1), lambda: f"{model:.2f}", lambda: next(model)),
        *(lambda: np.asarray(model), lambda: np.ones(3) + model, lambda: np.mean(model)),
    ]
    for use in uses:
        with pytest.raises(
            sky.KeptElsewhereError, match=rf"^model is kept on node {model.nodes[0]}\. Use it in a %%sky"
        ):
            use()
    assert not hasattr(model, "steps")


def test_handle_can_be_stored_like_any_object(nodes: sky.Compute) -> None:
    model: Any = load() >> nodes
    other: Any = load() >> nodes
    assert model == model
    assert model != other
    assert model in [other, model]
    assert {model: 1, other: 2}[model] == 1
    assert len({model, other, model}) == 2
    assert copy.copy(model) is copy.deepcopy([model])[0] is pickle.loads(pickle.dumps(model)) is model
    assert "fetch" in dir(model)
    assert dict(inspect.getmembers(model))["name"] == "model"
    assert f"{model}" == str(model) == repr(model)
    assert importlib.import_module("pandas").Series([model, other])[1] is other


def test_values_of_two_nodes_are_refused_by_name(nodes: sky.Compute) -> None:
    one, other = load("one") @ nodes, load("other") @ nodes
    with pytest.raises(sky.UsageError, match=r"^one is kept on node 0 and other is kept on node 1, so no node has all"):
        both(one[0], other[1]) >> nodes
    assert both(one[1], other[1]) >> nodes is False


def test_task_for_another_node_is_refused(nodes: sky.Compute) -> None:
    model = (load() @ nodes)[1]
    with pytest.raises(sky.UsageError, match=r"^model is kept on node 1, so this cannot run on node 2"):
        nodes.start(step(model), on=2).future.result()
    assert nodes.start(step(model), on=1).future.result()[0] == 1


def test_each_node_of_a_broadcast_has_its_own_value(nodes: sky.Compute) -> None:
    models = sky.Kept.join(load() @ nodes)
    assert models.nodes == (0, 1, 2)
    first = step(models) @ nodes
    assert [node for node, *_ in first] == [0, 1, 2]
    assert [identity for _, identity, _ in step(models) @ nodes] == [identity for _, identity, _ in first]
    node, identity, steps = step(models) >> nodes
    assert steps == 3
    assert identity == first[node][1]


def test_broadcast_of_a_value_of_one_node_is_refused(nodes: sky.Compute) -> None:
    model = load() >> nodes
    with pytest.raises(
        sky.UsageError, match=r"^model is kept on node \d only, and the pool has 3 nodes: run this on on"
    ):
        step(model) @ nodes


def test_handles_of_one_node_are_not_joined(nodes: sky.Compute) -> None:
    model = nodes.start(load(), on=1).future.result()
    other = nodes.start(load(), on=1).future.result()
    with pytest.raises(sky.UsageError, match=r"takes one handle per node, but got 2 on 1 n"):
        sky.Kept.join([model, other])


@pytest.mark.parametrize(
    ("given", "shown"), [([1], "1"), ("abc", "'a'"), (5, "5"), ([None], "None"), ([["a"]], r"\['a'\]")]
)
def test_only_handles_are_joined(given: Any, shown: str) -> None:
    with pytest.raises(TypeError, match=rf"^`sky.Kept.join` takes a list of handles, .*, but got {shown}\.$"):
        sky.Kept.join(given)


def test_one_handle_is_joined_to_itself(nodes: sky.Compute) -> None:
    model = load() >> nodes
    assert sky.Kept.join(model) is model


def test_name_of_a_kept_value_must_be_a_string(nodes: sky.Compute) -> None:
    @sky.function
    def keep_badly() -> None:
        sky.keep([], 5)  # type: ignore[arg-type]  # intended

    with pytest.raises(sky.SpecError, match="^The name of a kept value must be a string, as in .*, but got 5"):
        keep_badly() >> nodes


def test_unreferenced_value_is_freed_on_the_node(nodes: sky.Compute, tmp_path: Path) -> None:
    model = load(marker=str(tmp_path / "ended")) >> nodes
    step(model) >> nodes
    del model
    gc.collect()
    wait_for((tmp_path / "ended").exists, "the object to end on its node")


def test_dropped_value_is_freed_despite_references(nodes: sky.Compute, tmp_path: Path) -> None:
    model = load(marker=str(tmp_path / "ended")) >> nodes
    model.drop()
    model.drop()
    wait_for((tmp_path / "ended").exists, "the object to end on its node")
    assert not nodes.kept()
    assert repr(model) == "<Kept model: tests Model, 48 B; no longer kept: it was dropped>"
    with pytest.raises(
        sky.KeptLostError, match=r"^model is no longer kept: it was dropped\. Rerun the code that made it"
    ):
        step(model) >> nodes
    with pytest.raises(sky.KeptLostError, match=r"^model is no longer kept: it was dropped"):
        model.fetch()


def test_task_with_the_value_keeps_it_to_its_end(nodes: sky.Compute, tmp_path: Path) -> None:
    """The handle is dropped while the task is queued behind another, and while it runs."""
    model = load() >> nodes
    first = step_when(model, str(tmp_path / "gate")) > nodes
    second = step_when(model, str(tmp_path / "gate")) > nodes
    del model
    gc.collect()
    (tmp_path / "gate").touch()
    assert (first.result(), second.result()) == (1, 2)
    del first, second


def test_handle_in_a_result_read_late_is_valid(nodes: sky.Compute) -> None:
    model = load() >> nodes
    later = whole(model) > nodes
    wait_for(later.done, "the task")
    del model
    gc.collect()
    assert (step(later.result()["the model"]) >> nodes)[2] == 1
    del later


def test_value_kept_by_a_failed_task_is_freed(nodes: sky.Compute) -> None:
    with pytest.raises(ValueError, match="after all"):
        keep_and_fail() >> nodes
    wait_for(lambda: not nodes.kept(), "it to be freed")


def test_future_of_a_handle_as_an_argument_is_the_object(nodes: sky.Compute) -> None:
    """Without a transfer to the client, and on the node of the object."""
    found = [step(load() > nodes) > nodes for _ in range(4)]
    assert [future.result()[2] for future in found] == [1, 1, 1, 1]
    shards = load() @ nodes
    later = step(whole(shards[2]) > nodes) > nodes
    with pytest.raises(AttributeError, match="lock"):  # of the dict, which was sent instead
        later.result()
    assert (step(shards[2]) >> nodes)[:1] == (2,)


def test_value_of_an_unread_future_is_freed_with_it(nodes: sky.Compute) -> None:
    future = load() > nodes
    wait_for(future.done, "the task")
    assert nodes.kept()
    del future
    wait_for(lambda: gc.collect() >= 0 and not nodes.kept(), "it to be freed")


def test_connection_and_generator_continue_on_their_node(nodes: sky.Compute) -> None:
    @sky.function
    def connect() -> sky.Kept[Any]:
        import sqlite3

        connection = sqlite3.connect(":memory:")
        connection.execute("create table t (x)")
        return sky.keep(connection, "connection")

    @sky.function
    def insert(connection: Any, x: int) -> int:
        connection.execute("insert into t values (?)", (x,))
        return int(connection.execute("select sum(x) from t").fetchone()[0])

    @sky.function
    def count() -> sky.Kept[Any]:
        return sky.keep((number for number in range(100)), "numbers")

    @sky.function
    def following(numbers: Any) -> int:
        return int(next(numbers))

    connection, numbers = connect() >> nodes, count() >> nodes
    assert [insert(connection, x) >> nodes for x in (1, 2, 3)] == [1, 3, 6]
    assert [following(numbers) >> nodes for _ in range(3)] == [0, 1, 2]


def test_value_kept_twice_is_freed_twice(nodes: sky.Compute) -> None:
    @sky.function
    def keep_again(model: Any) -> sky.Kept[Any]:
        return sky.keep(model, "again")

    model = load() >> nodes
    again = keep_again(model) >> nodes
    assert both(model, again) >> nodes is True
    model.drop()
    assert (step(again) >> nodes)[2] == 1


def test_keep_works_in_tasks_only() -> None:
    with pytest.raises(sky.NotOnNodeError, match=r"^`sky\.keep` works only in a task"):
        sky.keep(1)


def test_keep_for_must_be_a_duration(nodes: sky.Compute) -> None:
    @sky.function
    def keep_for(seconds: Any) -> Any:
        return sky.keep([], "list", keep_for=seconds)

    with pytest.raises(sky.SpecError, match="keep_for"):
        keep_for(-1) >> nodes
    assert (keep_for(0) >> nodes).until <= time.time()


def test_task_with_a_value_of_another_pool_is_refused(nodes: sky.Compute) -> None:
    model = load() >> nodes
    with (
        sky.Compute(nodes=1, name="other") as other,
        pytest.raises(sky.UsageError, match=r"^model is kept in pool 'keep"),
    ):
        step(model) >> other


def test_process_slots_cannot_keep_values() -> None:
    with (
        sky.Compute(nodes=1, worker=sky.Worker(executor="process")) as pool,
        pytest.raises(sky.UsageError, match=r"^model cannot be kept: the tasks of this pool run in separate processes"),
    ):
        load() >> pool


def test_lost_node_reports_its_kept_values_at_once_and_by_name(tmp_path: Path) -> None:
    with sky.Compute(nodes=2, name="loses") as pool:
        lost_values = pool.events(events.NodeValuesLost)
        model, other = pool.start(load(), on=1).future.result(), pool.start(load("other"), on=0).future.result()
        process = pool.start(pid(), on=1).future.result()
        running = step_when(model, str(tmp_path / "never")) > pool
        waiting = step(model) > pool
        wait_for(lambda: pool.snapshot().running, "the task to run")
        os.kill(process, signal.SIGKILL)
        for future in (running, waiting):
            with pytest.raises(
                sky.KeptLostError, match=r"\(\) uses model, which was lost with its node: node 1 died: its"
            ):
                future.result(60)
        lost = lost_values.get(20)
        assert isinstance(lost, events.NodeValuesLost)
        assert (lost.node, lost.names) == (1, ("model",))
        with pytest.raises(sky.KeptLostError, match=r"^model is no longer kept: node 1 is gone: its process was kille"):
            step(model) >> pool
        wait_for(lambda: len(pool.snapshot().nodes) == 2 and place() @ pool, "a new node 1")
        with pytest.raises(sky.KeptLostError, match=r"^model is no longer kept"):
            step(model) >> pool
        assert (step(other) >> pool)[2] == 1
        lost_values.close()


def test_lost_part_of_several_is_not_left_out() -> None:
    with sky.Compute(nodes=2) as pool:
        models = sky.Kept.join(load() @ pool)
        os.kill(pool.start(pid(), on=1).future.result(), signal.SIGKILL)
        wait_for(lambda: models.nodes == (0,), "node 1 to be lost")
        with pytest.raises(sky.KeptLostError, match=r"^model of node 1 is no longer kept"):
            step(models) @ pool
        assert (step(models) >> pool)[0] == 0
        assert repr(models).endswith("; lost on node 1>")


def test_closed_pool_keeps_nothing() -> None:
    with sky.Compute(nodes=1, name="closes") as pool:
        model = load() >> pool
    assert repr(model) == "<Kept model: tests Model, 48 B; no longer kept: its pool was closed>"
    with pytest.raises(sky.KeptLostError, match="its pool was closed"):
        model.fetch()
    model.drop()


def test_pool_is_not_made_smaller_than_its_nodes_with_kept_values() -> None:
    with sky.Compute(nodes=(1, 3), name="stays") as pool:
        pool.resize(3)
        wait_for(lambda: len(place() @ pool) == 3, "three nodes")
        model = pool.start(load(), on=2).future.result()
        with pytest.raises(
            sky.UsageError, match=r"^Pool 'stays' cannot have 1 node: node 2 keeps model, so 2 nodes st"
        ):
            pool.resize(1)
        with pytest.raises(sky.UsageError, match=r"^Node 2 of pool 'stays' cannot be drained: it keeps model"):
            pool.drain(2)
        pool.resize(2)
        wait_for(lambda: sorted(rank for rank, *_ in place() @ pool) == [0, 2], "node 1 to go, and not node 2")
        assert (step(model) >> pool)[0] == 2
        model.drop()
        pool.resize(1)
        wait_for(lambda: [rank for rank, *_ in place() @ pool] == [0], "node 2 to go")


@pytest.mark.parametrize("by", ["drain", "resize"])
def test_value_kept_on_a_draining_node_costs_no_other_kept_value(tmp_path: Path, by: str) -> None:
    gate = tmp_path / "gate"
    with sky.Compute(nodes=(1, 3), name="spares", autoscale_cooldown=0.3, autoscale_idle_timeout=0.3) as pool:
        pool.resize(3)
        wait_for(lambda: len(place() @ pool) == 3, "three nodes")
        pool.resize((1, 3))
        model = pool.start(load(), on=2).future.result()
        late = pool.start(load_when(str(gate)), on=1)
        if by == "drain":
            wait_for(lambda: pool.snapshot().running == 1, "the task to run")
            pool.drain(1)
            with pytest.raises(sky.UsageError, match="it is already draining, and terminates once its tasks are done"):
                pool.drain(1)
        else:
            pool.resize(2)
        wait_for(lambda: pool.snapshot().nodes[1].state == "draining", "the drain of node 1")
        gate.touch()
        other = late.future.result()
        wait_for(
            lambda: any(
                each.by == "policy" and "node 1 keeps other, node 2" in each.reason + each.held_back
                for each in pool.decisions()
            ),
            "the policy to spare both",
        )
        assert (step(model) >> pool)[0] == 2
        assert (step(other) >> pool)[0] == 1
        assert any(str(each).startswith("2 -> 3 nodes: node 1 keeps other") for each in pool.decisions())


CLIENT = """
import os, sys
import skyward as sky

@sky.function
def keep(number):
    return sky.keep({"number": number}, "data")

pool = sky.Compute(provider=sky.Local(outlives=True), nodes=2, name="left", ttl=60).open()
data = [keep(number) > pool for number in (1, 2)]
for each in data:
    each.result()
print("ready", flush=True)
os.kill(os.getpid(), 9)
"""


@sky.function
def number_of(data: Any) -> int:
    return int(data["number"])


@pytest.mark.skipif(sys.platform != "linux", reason="nodes outlive their client on Linux")
def test_another_process_finds_the_kept_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path / "data"))
    done = subprocess.run([sys.executable, "-c", CLIENT], capture_output=True, text=True, check=False, timeout=100)
    assert "ready" in done.stdout, done.stderr
    with sky.attach("left") as pool:
        assert [(view.name, view.kind) for view in pool.kept()] == [("data", "dict"), ("data", "dict")]
        with pytest.raises(
            sky.UsageError, match=r"^No node of pool 'left' keeps a value named 'dat'; did you mean 'da"
        ):
            pool.handle("dat")
        data = pool.handle("data")
        assert sorted(number_of(data) @ pool) == [1, 2]
        assert sorted(each["number"] for each in data.fetch()) == [1, 2]
