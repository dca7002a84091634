"""The publisher sends only changes, at a limited rate, and from one thread."""

import threading
import time

import pytest

from skyward_kernel.panel.bridge import PanelBridge
from skyward_kernel.panel.publisher import Publisher
from skyward_kernel.pools import PoolManager
from tests.unit.kernel.conftest import FakeKernel, FakePool
from tests.waiting import wait_for

pytestmark = pytest.mark.unit


def test_nothing_is_sent_when_nothing_changes(pools: PoolManager, pool: FakePool) -> None:
    sent: list[object] = []
    publisher = Publisher(pools, sent.append)
    assert publisher.poll()
    for _ in range(20):
        assert not publisher.poll()
    pool.revision += 1  # a new revision without a visible change
    assert not publisher.poll()
    assert len(sent) == 1


def test_changes_are_sent_at_most_ten_times_a_second(kernel: FakeKernel, pools: PoolManager, pool: FakePool) -> None:
    """Changes within a tenth of a second are batched into one message."""
    bridge = PanelBridge(kernel, pools)
    try:
        kernel.connect()
        wait_for(lambda: len(kernel.messages("snapshot")) > 1, "the snapshot")
        began, before = time.monotonic(), len(kernel.published)
        while time.monotonic() - began < 1.0:
            pool.changed(queued=pool.shown.queued + 1)
        assert len(kernel.published) - before <= 11
    finally:
        bridge.close()


def test_new_pool_of_the_same_name_triggers_a_snapshot(pools: PoolManager, pool: FakePool) -> None:
    sent: list[dict[str, object]] = []
    publisher = Publisher(pools, sent.append)
    publisher.poll()
    pools.close("p")
    pools.get_or_open("p")
    publisher.poll()
    assert [message["kind"] for message in sent] == ["delta", "snapshot"]


def test_snapshots_are_sent_periodically_while_there_is_work(pools: PoolManager, pool: FakePool) -> None:
    sent: list[dict[str, object]] = []
    publisher = Publisher(pools, sent.append)
    pool.changed(running=1)
    publisher.poll()
    assert sent[-1]["kind"] == "snapshot"


class Raced(Publisher):
    """Publisher of which another thread requests a snapshot right after each look at the last request."""

    wanted = False

    @property
    def _full(self) -> bool:
        seen, self.wanted = self.wanted, True
        return seen

    @_full.setter
    def _full(self, value: bool) -> None:
        self.wanted = value


def test_request_for_a_snapshot_during_a_poll_is_not_lost(pools: PoolManager, pool: FakePool) -> None:
    sent: list[dict[str, object]] = []
    publisher = Raced(pools, sent.append)
    publisher.poll()
    publisher.poll()
    assert [message["kind"] for message in sent] == ["delta", "snapshot"]


def test_restarted_publisher_sends_from_one_thread_only(pools: PoolManager) -> None:
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
    assert held.wait(20), "the first thread sends"
    stopping = threading.Thread(target=publisher.stop)
    stopping.start()
    try:
        wait_for(lambda: publisher._thread is None, "the stop request")
        publisher.start()
        go_on.set()
        wait_for(lambda: len(senders) == 2, "the second thread to send")
        wait_for(lambda: not stopping.is_alive(), "the end of the first thread")
        assert together == [0, 0]
    finally:
        go_on.set()
        publisher.stop()
