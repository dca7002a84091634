"""Launches of several machines by one request each."""

import asyncio
from collections.abc import Sequence

import pytest

from skyward.errors import NoCapacityError
from skyward.providers import Instance
from skyward_providers.cloud import launch_each

pytestmark = pytest.mark.unit


async def nothing(ids: Sequence[str]) -> None:
    raise AssertionError(f"{ids} were terminated")


def test_machines_that_were_launched_are_returned_though_others_were_refused() -> None:
    async def create(number: int) -> Instance:
        if number:
            raise NoCapacityError("sold out")
        return Instance("m-0", "provisioning")

    assert [each.id for each in asyncio.run(launch_each(3, create, nothing))] == ["m-0"]


def test_first_refusal_is_raised_when_nothing_was_launched() -> None:
    async def create(number: int) -> Instance:
        raise NoCapacityError(f"sold out {number}")

    with pytest.raises(NoCapacityError, match="sold out 0"):
        asyncio.run(launch_each(3, create, nothing))


def test_unknown_outcome_is_raised_although_others_were_launched() -> None:
    async def create(number: int) -> Instance:
        if number == 1:
            raise ConnectionResetError
        return Instance(f"m-{number}", "provisioning")

    with pytest.raises(ConnectionResetError):
        asyncio.run(launch_each(3, create, nothing))


@pytest.mark.parametrize("fails", [False, True])
def test_aborted_launch_terminates_what_it_launched_and_stays_aborted(fails: bool) -> None:
    ended: list[str] = []

    async def main() -> None:
        begun, go = asyncio.Event(), asyncio.Event()

        async def create(number: int) -> Instance:
            begun.set()
            await go.wait()
            return Instance(f"m-{number}", "provisioning")

        async def terminate(ids: Sequence[str]) -> None:
            ended.extend(ids)
            if fails:
                raise OSError("the network is down")

        launching = asyncio.ensure_future(launch_each(3, create, terminate, at_once=1))
        await begun.wait()
        launching.cancel()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await launching

    asyncio.run(main())
    assert ended == ["m-0"]
