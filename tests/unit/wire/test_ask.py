"""Requests to actors of collections that are repeated until one is answered."""

import asyncio
from dataclasses import dataclass
from typing import Any, override

import pytest
from casty import Askable

from skyward.wire.collections.ask import REASK, Address

pytestmark = pytest.mark.unit


@dataclass(frozen=True)
class Question(Askable[str]):
    """A message that is answered after any length of time."""


class Lossy(Address[Question]):
    """Address whose actor does not get the first `lost` requests; `waited` lists how long each was waited for."""

    def __init__(self, lost: int) -> None:
        self.lost = lost
        self.waited: list[float] = []

    @override
    async def once(self, message: Askable[Any], within: float) -> Any:
        self.waited.append(within)
        if len(self.waited) <= self.lost:
            raise TimeoutError
        return "answer"


def test_lost_requests_are_repeated_soon_and_then_less_often() -> None:
    """Regression: the first barrier of a new pool took 4 s, since its request was lost while the cluster formed."""
    address = Lossy(lost=8)
    assert asyncio.run(address.wait(Question())) == "answer"
    assert address.waited == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, REASK, REASK, REASK]


def test_requests_are_not_repeated_less_often_than_the_actor_expects() -> None:
    address = Lossy(lost=6)
    assert asyncio.run(address.wait(Question(), again=2)) == "answer"
    assert address.waited[-2:] == [2, 2]
