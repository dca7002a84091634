"""Tasks are placed on real nodes that have their data, and otherwise round robin."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import skyward as sky
from tests.local.pools import blob_bytes_sent
from tests.local.tasks import pid, place

pytestmark = pytest.mark.local

MB = 1_000_000


@pytest.fixture(scope="module")
def nodes() -> Iterator[sky.Compute]:
    """Four nodes with one slot each."""
    with sky.Compute(nodes=4) as compute:
        yield compute


@sky.function
def rank_of(data: Any) -> int:
    return sky.instance_info().node


@sky.function
def rank_once(data: Any, gate: str) -> int:
    import time

    while not Path(gate).exists():
        time.sleep(0.002)
    return sky.instance_info().node


def array(number: int) -> Any:
    return np.full(8 * MB // 8, number)


def test_data_is_sent_once_to_consecutive_tasks(nodes: sky.Compute) -> None:
    data, before = array(1), blob_bytes_sent(nodes)
    where = {rank_of(data) >> nodes for _ in range(6)}
    assert len(where) == 1
    assert blob_bytes_sent(nodes) - before == pytest.approx(8 * MB, rel=0.01)


def test_arrays_used_in_turns_stay_where_they_are(nodes: sky.Compute) -> None:
    arrays = [array(number) for number in range(10, 15)]
    where = [rank_of(each) >> nodes for each in arrays]
    before = blob_bytes_sent(nodes)
    for _ in range(3):
        assert [rank_of(each) >> nodes for each in arrays] == where
    assert blob_bytes_sent(nodes) == before


def test_task_does_not_wait_for_a_busy_holder(nodes: sky.Compute, tmp_path: Path) -> None:
    data = array(20)
    holder = rank_of(data) >> nodes
    busy = rank_once(data, str(tmp_path / "gate")) > nodes
    other = rank_of(data) >> nodes
    (tmp_path / "gate").touch()
    assert busy.result() == holder
    assert other != holder


def test_tasks_without_data_are_spread_evenly(nodes: sky.Compute) -> None:
    rank_of(array(30)) >> nodes
    assert Counter((place() >> nodes)[0] for _ in range(12)) == dict.fromkeys(range(4), 3)


def test_group_whose_arrays_the_nodes_have_sends_nothing(nodes: sky.Compute) -> None:
    arrays = [array(number) for number in range(40, 52)]
    sky.gather(*(rank_of(each) for each in arrays)) >> nodes
    before = blob_bytes_sent(nodes)
    for _ in range(3):
        sky.gather(*(rank_of(each) for each in arrays)) >> nodes
    assert blob_bytes_sent(nodes) - before < len(arrays) * 8 * MB  # a third of the bytes that round robin sends


def test_replacement_of_a_lost_node_is_sent_what_it_needs() -> None:
    with sky.Compute(nodes=1) as pool:
        data = array(60)
        assert rank_of(data) >> pool == 0
        os.kill(pid() >> pool, signal.SIGKILL)
        assert rank_of(data) >> pool == 0
        assert blob_bytes_sent(pool) == pytest.approx(8 * MB, rel=0.01)
