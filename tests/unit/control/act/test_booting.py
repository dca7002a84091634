"""Waiting for launched machines to run."""

import asyncio
from collections.abc import Iterable

import pytest

from skyward.control.act.machines import booting
from skyward.control.act.machines.guarded import ProviderCallError
from skyward.errors import CredentialsError, NodeStartError, RateLimitError
from skyward.providers import Instance, LocalAccess

BOOTING = Instance("m-1", "provisioning", detail="no address yet", hourly_price=2.0)
RUNNING = Instance("m-1", "running", LocalAccess("127.0.0.1", "/tmp"))

type Answer = Instance | Exception | None


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(booting, "_FIRST_POLL", 0.0)


def wait(answers: Iterable[Answer], within: float = 10.0) -> Instance:
    remaining = iter(answers)

    async def get(instance: str) -> Instance | None:
        assert instance == "m-1"
        answer = next(remaining)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return asyncio.run(booting.until_running(BOOTING, get, within))


def test_machine_is_returned_once_it_runs_and_has_access() -> None:
    without = Instance("m-1", "running")
    found = wait([BOOTING, without, RUNNING])
    assert found.access == RUNNING.access
    assert found.hourly_price == 2.0


def test_machine_may_be_invisible_at_first() -> None:
    assert wait([None, None, RUNNING]).status == "running"


def test_machine_that_stays_invisible_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(booting, "_VISIBLE_WITHIN", -1.0)
    with pytest.raises(NodeStartError, match="does not list it any more"):
        wait([None])


def test_machine_that_ends_while_it_boots_fails_with_the_reason() -> None:
    with pytest.raises(NodeStartError, match="ended while it booted: reclaimed by the provider"):
        wait([Instance("m-1", "exited", detail="reclaimed by the provider")])


def test_provider_that_does_not_answer_for_a_while_is_asked_again() -> None:
    errors: list[Answer] = [RateLimitError("too fast"), ProviderCallError("connection reset"), RUNNING]
    assert wait(errors).status == "running"


def test_provider_that_refuses_the_credentials_fails_at_once() -> None:
    with pytest.raises(CredentialsError):
        wait([CredentialsError("the key was revoked")])


def test_timeout_says_what_the_machine_waited_for() -> None:
    with pytest.raises(NodeStartError, match=r"was not running within .*: no address yet"):
        wait([], within=-1.0)
