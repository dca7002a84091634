"""The lease of a worker, driven by a fake clock."""

from collections.abc import Callable

import pytest

from skyward.worker.runtime.lease import Lease

pytestmark = pytest.mark.unit


def lease_end(idle: Callable[[int], bool], renewed: Callable[[int], bool]) -> int:
    """Return the second in which a lease of 5 s, with 10 s to finish, ends its worker."""
    now = 0
    ended: list[int] = []

    def pause(seconds: float) -> None:
        nonlocal now
        assert seconds == 1
        now += 1
        assert now < 100
        if renewed(now):
            lease.renew()

    lease = Lease(5, lambda: idle(now), lambda: ended.append(now), finish_within=10, check_every=1, pause=pause)
    lease.keep()
    assert ended == [now]
    return now


def test_lease_without_renewal_expires() -> None:
    assert lease_end(idle=lambda now: True, renewed=lambda now: False) == 6


def test_renewal_restores_the_whole_lease() -> None:
    assert lease_end(idle=lambda now: True, renewed=lambda now: now <= 20) == 25


def test_running_task_may_finish() -> None:
    assert lease_end(idle=lambda now: now >= 9, renewed=lambda now: False) == 9


def test_endless_task_is_ended() -> None:
    assert lease_end(idle=lambda now: False, renewed=lambda now: False) == 16


def test_lease_is_changed_while_it_runs() -> None:
    now = 0
    ended: list[int] = []

    def pause(seconds: float) -> None:
        nonlocal now
        now += 1
        assert now < 100
        if now == 3:
            lease.change(20, 0)

    lease = Lease(5, lambda: False, lambda: ended.append(now), finish_within=10, check_every=1, pause=pause)
    lease.keep()
    assert ended == [3 + 20]
    assert lease.longest == 20


def test_returning_client_renews_expired_lease() -> None:
    assert lease_end(idle=lambda now: False, renewed=lambda now: now == 12) == 12 + 5 + 10
