"""Broadcasts whose members work together, on real local nodes: places, failures, losses, meetings, interrupts."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import skyward as sky
from skyward.control.act.tasks import deadlock
from skyward.plugins import OnNode
from tests.local.ring_plugin import Ring
from tests.notebook import managed_pools, new_notebook
from tests.waiting import interrupt_when, wait_for

pytestmark = pytest.mark.local

FOR_EVER = 3600.0


@sky.function
def places(value: int) -> tuple[list[Any], int, int, int, str]:
    """Return what all members send, and the place of this one."""
    from tests.local.ring_plugin import current, exchange

    info = current()
    found = exchange([info.position, value])
    return found, info.local_position, info.node_position, os.getpid(), os.environ["RING_PROCESS"]


@sky.function
def alone() -> tuple[int, int, str]:
    """Return the place outside of a collective."""
    from tests.local.ring_plugin import current

    info = current()
    return info.position, info.count, info.generation


@sky.function
def rounds(folder: str, bad: int = -1, how: str = "raise", times: int = 1) -> list[int]:
    """Exchange twice; member `bad` fails between, the first `times` times."""
    from tests.local.ring_plugin import current, exchange

    place = current().position
    first = exchange(place)
    Path(folder, f"met-{place}-{os.getpid()}").touch()
    attempts = len(list(Path(folder).glob(f"tried-{place}-*")))
    Path(folder, f"tried-{place}-{attempts}").touch()
    exchange(place)  # nobody fails before all have left their traces
    if place == bad and attempts < times:
        match how:
            case "raise":
                raise ValueError(f"member {place} failed")
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "node":
                os.kill(os.getppid(), signal.SIGKILL)
            case "block":
                time.sleep(FOR_EVER)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
    return [*first, *exchange(place)]


@sky.function
def pause(path: str, until: str) -> str:
    """Report the start, and wait for a file."""
    Path(path).touch()
    while not Path(until).exists():
        time.sleep(0.01)
    return path


@sky.function
def count(n: int) -> Iterator[int]:
    """Exchange numbers, and yield their sums."""
    from tests.local.ring_plugin import exchange

    for number in range(n):
        yield sum(exchange(number))


@pytest.fixture(scope="module")
def ring() -> Iterator[sky.Compute]:
    """Two nodes with two processes each, which work together."""
    with sky.Compute(nodes=2, plugins=[Ring(procs_per_node=2)]) as pool:
        yield pool


def members_met(folder: Path, members: int) -> bool:
    return len({path.name.split("-")[1] for path in folder.glob("met-*")}) == members


def test_members_have_places_in_order_of_rank_on_all_processes_of_all_nodes(ring: sky.Compute) -> None:
    results = places(7) @ ring
    assert [found for found, *_ in results] == [[[0, 7], [1, 7], [2, 7], [3, 7]]] * 4
    assert [(node, local) for _, local, node, *_ in results] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert len({pid for *_, pid, _ in results}) == 4
    assert {process for *_, process in results} == {"0.0", "0.1", "1.0", "1.1"}


def test_members_are_numbered_without_the_holes_in_the_ranks() -> None:
    with sky.Compute(nodes=sky.Nodes.parse("3/1:3"), policy="no", plugins=[Ring()]) as pool:
        pool.drain(1)
        wait_for(lambda: [node.rank for node in pool.snapshot().nodes] == [0, 2], "the drained node to go")
        results = places(7) @ pool
        assert [(found, node) for found, _, node, *_ in results] == [([[0, 7], [1, 7]], 0), ([[0, 7], [1, 7]], 1)]


def test_call_on_one_node_is_in_no_collective(ring: sky.Compute) -> None:
    assert alone() >> ring == (0, 1, "")


def test_error_of_a_member_ends_the_others_and_is_the_only_error(ring: sky.Compute, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="member 2 failed") as raised:
        rounds(str(tmp_path), bad=2) @ ring
    assert "It failed in rank 2 of 4, on node 1." in raised.value.__notes__
    assert len(places(1) @ ring) == 4


def test_member_that_blocks_is_stopped_when_another_one_fails(ring: sky.Compute, tmp_path: Path) -> None:
    """The first member waits in the exchange, and so does the third; the last one raises."""
    with pytest.raises(ValueError, match="member 3 failed"):
        rounds(str(tmp_path), bad=3) @ ring
    assert len(places(2) @ ring) == 4


def test_killed_member_is_a_loss_that_ends_the_others(ring: sky.Compute, tmp_path: Path) -> None:
    with pytest.raises(sky.NodeLostError, match="the process it ran in was killed"):
        rounds(str(tmp_path), bad=1, how="kill") @ ring
    assert len(places(3) @ ring) == 4


def test_interrupt_ends_a_blocked_collective(ring: sky.Compute, tmp_path: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        interrupt_when(lambda: members_met(tmp_path, 4), "all members to meet"),
    ):
        rounds(str(tmp_path), bad=0, how="block") @ ring
    assert len(places(4) @ ring) == 4


def test_cancelling_one_member_ends_the_whole_collective(ring: sky.Compute, tmp_path: Path) -> None:
    run = ring.start(rounds(str(tmp_path), bad=0, how="block"), on="all")
    wait_for(lambda: members_met(tmp_path, 4), "all members to meet")
    assert ring.cancel(run.tasks[2]) == 1
    wait_for(run.future.done, "the collective to end")
    assert run.state == "cancelled"
    assert len(places(5) @ ring) == 4


def test_timeout_of_a_blocked_collective(ring: sky.Compute, tmp_path: Path) -> None:
    with pytest.raises(sky.TaskTimeoutError):
        rounds(str(tmp_path), bad=0, how="block").with_timeout(1.0) @ ring
    assert len(places(6) @ ring) == 4


def test_collective_waits_for_all_its_slots_and_starts_before_later_tasks(ring: sky.Compute, tmp_path: Path) -> None:
    until = str(tmp_path / "go")
    running = [pause(str(tmp_path / f"started-{each}"), until) > ring for each in range(3)]
    wait_for(lambda: len(list(tmp_path.glob("started-*"))) == 3, "three of four slots to be busy")
    together = ring.start(rounds(str(tmp_path)), on="all")
    later = [pause(str(tmp_path / f"later-{each}"), until) > ring for each in range(4)]
    assert not list(tmp_path.glob("tried-*"))
    Path(until).touch()
    assert [future.result() for future in running] == [str(tmp_path / f"started-{each}") for each in range(3)]
    assert len(together.future.result()) == 4
    assert all(future.result() for future in later)


def test_elements_of_all_members_arrive_as_one_stream(ring: sky.Compute) -> None:
    with count(3) @ ring as stream:
        elements = list(stream)
    assert sorted(elements) == [(rank, 4 * number) for rank in range(4) for number in range(3)]
    assert [number for rank, number in elements if rank == 2] == [0, 4, 8]


def test_error_follows_the_elements_of_a_stream(ring: sky.Compute) -> None:
    @sky.function
    def fails() -> Iterator[int]:
        from tests.local.ring_plugin import current, exchange

        yield exchange(1)[0]
        if current().position == 1:
            raise ValueError("no second element")
        yield exchange(2)[0]

    stream = fails() @ ring
    found: list[tuple[int, int]] = []
    with pytest.raises(ValueError, match="no second element"):
        found.extend(stream)
    assert (1, 1) in found


def test_closed_stream_stops_the_collective(ring: sky.Compute) -> None:
    stream = count(10**9) @ ring
    assert next(stream)[1] == 0
    stream.close()
    assert len(places(1) @ ring) == 4


@pytest.mark.parametrize("streams", ["on one node", "on all nodes"])
def test_collective_that_waits_for_the_slot_of_its_own_stream_is_refused(ring: sky.Compute, streams: str) -> None:
    """The generator is paused until it is read, by the thread that waits for the collective."""

    @sky.function
    def endless() -> Iterator[int]:
        yield from range(10**9)

    read = endless() >> ring if streams == "on one node" else endless() @ ring
    with read as stream, pytest.raises(sky.SlotsHeldError, match=r"endless\(\)"):
        for _ in stream:
            places(1) @ ring
    assert len(places(2) @ ring) == 4


def test_task_whose_node_is_kept_for_a_collective_that_cannot_start_is_refused(tmp_path: Path) -> None:
    """The collective waits for the slot of a stream, whose reader waits for the other node."""

    @sky.function
    def endless() -> Iterator[int]:
        yield from range(10**9)

    @sky.function
    def same(value: int) -> int:
        return value

    with sky.Compute(nodes=2, plugins=[Ring()]) as pool:
        with endless() >> pool as stream:
            assert (same(next(stream)) >> pool) == 0
            run = pool.start(alone(), on="all")
            with pytest.raises(sky.SlotsHeldError, match=r"endless\(\)"):
                same(next(stream)) >> pool
        assert len(run.future.result()) == 2


def test_member_that_has_ended_is_no_task_that_waits_for_its_slot(tmp_path: Path) -> None:
    """Its slot is held by a stream that is paused, and a task waits for it; its collective goes on."""
    go = tmp_path / "go"

    @sky.function
    def wait_in_rank_1(path: str) -> int:
        from tests.local.ring_plugin import current

        while current().position == 1 and not Path(path).exists():
            time.sleep(0.01)
        return current().position

    @sky.function
    def endless() -> Iterator[int]:
        yield from range(10**9)

    with sky.Compute(nodes=2, plugins=[Ring()]) as pool:
        run = pool.start(wait_in_rank_1(str(go)), on="all")
        wait_for(lambda: pool.snapshot().running == 1, "rank 0 to end")
        with endless() >> pool as stream:
            next(stream)
            queued = pool.start(alone(), on=1)
            looks = 3 * deadlock._EVERY
            with pytest.raises(TimeoutError):
                run.future.result(looks)
            go.touch()
            assert run.future.result() == [0, 1]
        queued.future.result()


def test_collective_that_chosen_nodes_cannot_hold_is_refused() -> None:
    plugins = [Ring(procs_per_node=2)]
    groups = {
        name: sky.Spec(provider=sky.Local(), resources={"gpus": gpus}, nodes=1, plugins=plugins)
        for name, gpus in (("small", 1), ("big", 2))
    }
    call = alone().with_resources(gpus=1)
    with sky.Compute(groups=groups) as pool:
        assert len(pool.start(call, on="big").future.result()) == 2
        with pytest.raises(sky.UsageError, match=r"1 gpus in each of 2 processes, which no node of group 'small'"):
            pool.start(call, on="small").future.result()


@pytest.mark.parametrize("retries", [0, 1])
def test_cell_that_raises_in_a_member_stops_the_others(retries: int, tmp_path: Path) -> None:
    source = f"""
import os
from pathlib import Path
place, marks = int(os.environ["SKYWARD_NODE"]), Path({str(tmp_path)!r})
(marks / f"{{place}}-{{len(list(marks.glob(f'{{place}}-*')))}}").touch()
if place == 1:
    raise ValueError("one failed")
import time
time.sleep(3600)
"""
    with managed_pools() as pools, new_notebook(pools) as notebook:
        pools.observe()
        with sky.Compute(name="ring", nodes=2, plugins=[Ring()]):
            ran = notebook(f"%%sky --on all --pool ring --retries {retries}{source}")
        pools.stop_observing()  # it would close the pools of other tests
    assert "one failed" in str(ran.error)
    assert len(list(tmp_path.glob("1-*"))) == retries + 1


def test_two_pools_meet_at_places_of_their_own(ring: sky.Compute, tmp_path: Path) -> None:
    with sky.Compute(nodes=2, plugins=[Ring()]) as other:
        both = [ring.start(places(each), on="all") for each in range(3)]
        both += [other.start(places(each), on="all") for each in range(3)]
        sizes = [len(run.future.result()) for run in both]
    assert sizes == [4, 4, 4, 2, 2, 2]


def test_broadcast_runs_again_after_the_loss_of_a_process(tmp_path: Path) -> None:
    with sky.Compute(nodes=2, plugins=[Ring(restarts=1)]) as pool:
        assert rounds(str(tmp_path), bad=1, how="kill") @ pool == [[0, 1, 0, 1]] * 2
        (tmp_path / "second").mkdir()
        with pytest.raises(sky.NodeLostError):
            rounds(str(tmp_path / "second"), bad=1, how="kill", times=2) @ pool


def test_broadcast_runs_again_after_the_loss_of_a_node(tmp_path: Path) -> None:
    with sky.Compute(nodes=2, plugins=[Ring(restarts=1)]) as pool:
        assert rounds(str(tmp_path), bad=1, how="node") @ pool == [[0, 1, 0, 1]] * 2


def test_exception_that_a_retry_covers_runs_the_whole_broadcast_again(tmp_path: Path) -> None:
    with sky.Compute(nodes=2, plugins=[Ring()]) as pool:
        assert rounds(str(tmp_path), bad=1).with_retries(1, ValueError) @ pool == [[0, 1, 0, 1]] * 2
        assert len(list(tmp_path.glob("tried-0-*"))) == 2


def test_member_that_does_not_come_is_named() -> None:
    with sky.Compute(nodes=2, plugins=[Ring(meeting_timeout=8.0)]) as pool:
        (pid,) = [pid for _, _, node, pid, _ in places(0) @ pool if node == 1]
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(sky.PluginError, match=r"rank 1 \(node 1\) did not meet the others within 8 s"):
            places(1) @ pool


def test_process_is_replaced_if_the_framework_allows_one_collective_only() -> None:
    with sky.Compute(nodes=2, plugins=[Ring(once=True)]) as pool:
        first, second = ([pid for *_, pid, _ in places(0) @ pool] for _ in range(2))
        assert not set(first) & set(second)


def test_variable_of_the_user_wins() -> None:
    @sky.function
    def fixed() -> str:
        return os.environ["RING_FIXED"]

    with sky.Compute(plugins=[Ring()], image=sky.Image(env={"RING_FIXED": "mine"})) as pool:
        assert fixed() >> pool == "mine"


@pytest.mark.parametrize(
    ("hook", "text"),
    [
        ("environment", r"plugin 'ring' could not choose its variables on node 0: ValueError: no environment today"),
        ("process", r"plugin 'ring' could not start on node 0: ValueError: no process today"),
        ("abort process", r"the process of slot 0 on node 0 ended while it was prepared"),
    ],
)
def test_plugin_that_cannot_start_fails_the_node_in_one_sentence(hook: str, text: str) -> None:
    with pytest.raises(sky.NodeStartError, match=text), sky.Compute(plugins=[Ring(fails=hook)]):
        pass


@pytest.mark.parametrize("executor", ["process", "thread"])
def test_plugin_without_its_package_fails_the_pool_at_once(
    executor: Literal["process", "thread"], capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = Ring(fails="import for process", together=executor == "process")
    text = r"could not start: module 'ring_framework' is not installed on node 0; add it with Image\(pip=\['ring-fra"
    with (
        pytest.raises(sky.NodeStartError, match=text),
        sky.Compute(worker=sky.Worker(executor=executor), plugins=[plugin]),
    ):
        pass
    shown = capsys.readouterr().err
    assert shown.count("failed in phase 'plugins'") == 1
    assert "trying again" not in shown


@pytest.mark.parametrize(
    ("hook", "text"),
    [
        ("task", "plugin 'ring' could not prepare the task on node 0: ValueError: no task today"),
        ("end of a task", "plugin 'ring' could not finish the task on node 0: ValueError: no end of a task today"),
    ],
)
def test_plugin_that_fails_around_a_task(hook: str, text: str) -> None:
    with sky.Compute(plugins=[Ring(fails=hook)]) as pool, pytest.raises(sky.PluginError, match=text) as raised:
        alone() >> pool
    assert raised.value.plugin == "ring"


def test_abort_in_a_hook_costs_the_task_and_not_the_node() -> None:
    with sky.Compute(plugins=[Ring(fails="abort task")]) as pool:
        before = [node.machine for node in pool.snapshot().nodes]
        with pytest.raises(sky.NodeLostError):
            alone() >> pool
        assert [node.machine for node in pool.snapshot().nodes] == before


def test_node_half_has_defaults() -> None:
    half = OnNode()
    assert half.environment(None, 0) == {}  # type: ignore[arg-type]  # it uses no argument
    assert not half.follows_loss(ValueError())
