"""The lease of a worker, in the steps of its own clock."""

from collections.abc import Callable

import pytest

from skyward.worker.runtime.lease import Lease

pytestmark = pytest.mark.unit


def kept(idle: Callable[[int], bool], renewed: Callable[[int], bool]) -> int:
    """The second in which a lease of 5 s, with 10 s to finish, ends its worker."""
    now = 0
    ended: list[int] = []

    def pause(seconds: float) -> None:
        nonlocal now
        assert seconds == 1
        now += 1
        assert now < 100
        if renewed(now):
            lease.renew()

    lease = Lease(5, lambda: idle(now), lambda: ended.append(now), finish_within=10, look=1, pause=pause)
    lease.keep()
    assert ended == [now]
    return now


def test_it_ends_when_nobody_renews_it() -> None:
    assert kept(idle=lambda now: True, renewed=lambda now: False) == 6


def test_each_renewal_gives_all_of_it() -> None:
    assert kept(idle=lambda now: True, renewed=lambda now: now <= 20) == 25


def test_what_runs_finishes() -> None:
    assert kept(idle=lambda now: now >= 9, renewed=lambda now: False) == 9


def test_what_runs_on_and_on_is_ended() -> None:
    assert kept(idle=lambda now: False, renewed=lambda now: False) == 16


def test_a_client_that_is_back_keeps_it_from_ending() -> None:
    assert kept(idle=lambda now: False, renewed=lambda now: now == 12) == 12 + 5 + 10
