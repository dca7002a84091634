"""The publisher sends what is different, as seldom as it may, and from one thread."""

import threading
import time

import pytest

from skyward_kernel.bridge import PanelBridge, PoolForm
from skyward_kernel.pools import PoolManager
from skyward_kernel.publisher import Publisher
from tests.unit.panel.conftest import FakeKernel, FakePool, wait_for

pytestmark = pytest.mark.unit


def test_nothing_is_sent_when_nothing_changes(pools: PoolManager, pool: FakePool) -> None:
    sent: list[object] = []
    publisher = Publisher(pools, sent.append)
    assert publisher.look()
    for _ in range(20):
        assert not publisher.look()
    pool.revision += 1  # something happened, and nothing is different
    assert not publisher.look()
    assert len(sent) == 1


def test_a_change_goes_out_at_most_ten_times_a_second(kernel: FakeKernel, pools: PoolManager, pool: FakePool) -> None:
    """Many changes in one tenth of a second are one message."""
    bridge = PanelBridge(kernel, pools, PoolForm((), dict, lambda *_: None))
    try:
        kernel.connect()
        wait_for(lambda: len(kernel.said("snapshot")) > 1, "the snapshot")
        began, before = time.monotonic(), len(kernel.published)
        while time.monotonic() - began < 1.0:
            pool.changed(queued=pool.shown.queued + 1)
        assert len(kernel.published) - before <= 11
    finally:
        bridge.close()


def test_a_pool_of_the_same_name_is_another_pool(pools: PoolManager, pool: FakePool) -> None:
    sent: list[dict[str, object]] = []
    publisher = Publisher(pools, sent.append)
    publisher.look()
    pools.close("p")
    pools.get_or_open("p")
    publisher.look()
    assert [message["kind"] for message in sent] == ["delta", "snapshot"]


def test_while_there_is_work_a_snapshot_goes_out_now_and_then(pools: PoolManager, pool: FakePool) -> None:
    sent: list[dict[str, object]] = []
    publisher = Publisher(pools, sent.append)
    pool.changed(running=1)
    publisher.look()
    assert sent[-1]["kind"] == "snapshot"


def test_one_thread_sends_also_when_it_is_begun_anew_before_it_has_ended(pools: PoolManager) -> None:
    held, go_on = threading.Event(), threading.Event()
    senders: list[threading.Thread] = []
    together: list[int] = []

    def send(_: object) -> None:
        if threading.current_thread() not in senders:
            together.append(sum(each.is_alive() for each in senders))
            senders.append(threading.current_thread())
        held.set()
        go_on.wait(20)

    publisher = Publisher(pools, send)
    publisher.start()
    assert held.wait(20), "it sends"
    stopping = threading.Thread(target=publisher.stop)
    stopping.start()
    try:
        wait_for(lambda: publisher._thread is None, "the end to be asked for")
        publisher.start()
        go_on.set()
        wait_for(lambda: len(senders) == 2, "another thread that sends")
        wait_for(lambda: not stopping.is_alive(), "the end of the first thread")
        assert together == [0, 0]
    finally:
        go_on.set()
        publisher.stop()
