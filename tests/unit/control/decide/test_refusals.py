"""Refused requests for machines: which source is asked next, and when a rank is given up."""

from math import inf

import pytest

from skyward.control.decide.machines import messages as m
from skyward.control.decide.machines.budget import Ledger
from skyward.control.decide.machines.reconciler import Reconciler
from skyward.control.decide.machines.requests import Limits
from skyward.control.decide.machines.sources import Backoff, MachineSource, RefusalKind
from skyward.control.decide.messages import Resize
from skyward.scaling.snapshot import Group
from tests.unit.control.decide.plane_world import World

SPOT = MachineSource("runpod", "a100", "", "spot")
DEMAND = MachineSource("runpod", "a100", "", "on-demand")
OTHER = MachineSource("aws", "p4d", "", "spot", position=1)


def opened(*sources: MachineSource, **limits: float) -> tuple[Reconciler, list[m.ReconcilerEffect]]:
    reconciler = Reconciler({"": sources}, limits=Limits(**limits))  # type: ignore[arg-type]  # whole numbers among them
    return reconciler, reconciler.handle(m.Desired({"": 1}), 0.0)


def launch(effects: list[m.ReconcilerEffect]) -> m.Launch | None:
    return next((each for each in effects if isinstance(each, m.Launch)), None)


def refuse(
    reconciler: Reconciler, effects: list[m.ReconcilerEffect], kind: RefusalKind, now: float = 1.0
) -> list[m.ReconcilerEffect]:
    asked = launch(effects)
    assert asked is not None
    return reconciler.handle(m.Refused(asked.machines, f"refused: {kind}", kind), now)


def given_up(effects: list[m.ReconcilerEffect]) -> str:
    return next((each.reason for each in effects if isinstance(each, m.GiveUp)), "")


@pytest.mark.parametrize("kind", ["capacity", "quota", "impossible"])
def test_refusal_for_a_known_reason_asks_the_next_offer_at_once(kind: RefusalKind) -> None:
    reconciler, effects = opened(SPOT, DEMAND, OTHER)
    effects = refuse(reconciler, effects, kind)
    second = launch(effects)
    assert second is not None
    assert second.source == DEMAND
    assert not given_up(effects)


def test_denied_provider_is_not_asked_for_any_of_its_offers_again() -> None:
    reconciler, effects = opened(SPOT, DEMAND, OTHER)
    second = launch(refuse(reconciler, effects, "denied"))
    assert second is not None
    assert second.source == OTHER


def test_pool_that_opens_gives_up_once_every_offer_has_refused() -> None:
    reconciler, effects = opened(SPOT, DEMAND, OTHER)
    for _ in range(2):
        effects = refuse(reconciler, effects, "capacity")
        assert not given_up(effects)
    effects = refuse(reconciler, effects, "capacity")
    assert given_up(effects) == "none of 3 offers has a machine; the last one: refused: capacity"


def test_more_attempts_ask_every_offer_again_after_the_pause() -> None:
    reconciler, effects = opened(SPOT, rounds=2, no_capacity=60.0)
    assert not given_up(refuse(reconciler, effects, "capacity"))
    assert reconciler.requester.retry_at == 61.0
    effects = reconciler.handle(m.Reconcile(), 61.0)
    assert given_up(refuse(reconciler, effects, "capacity", 62.0)) == "refused: capacity"


def test_open_pool_asks_again_later() -> None:
    reconciler, effects = opened(SPOT)
    reconciler.opening = False
    assert not given_up(refuse(reconciler, effects, "capacity"))
    again = launch(reconciler.handle(m.Reconcile(), 302.0))
    assert again is not None
    assert again.source == SPOT


@pytest.mark.parametrize("kind", ["denied", "impossible"])
def test_open_pool_gives_up_what_no_source_can_ever_give(kind: RefusalKind) -> None:
    reconciler, effects = opened(SPOT)
    reconciler.opening = False
    assert given_up(refuse(reconciler, effects, kind)) == f"refused: {kind}"


def test_lost_answer_is_no_reason_to_ask_an_offer_that_costs_more() -> None:
    reconciler, effects = opened(SPOT, DEMAND, OTHER)
    asked = []
    for now in (1.0, 11.0, 21.0):
        effects = refuse(reconciler, effects, "unknown", now)
        if launch(effects) is None:
            assert reconciler.requester.retry_at is not None
            effects = reconciler.handle(m.Reconcile(), reconciler.requester.retry_at)
        again = launch(effects)
        asked.append(again and again.source)
    assert asked == [SPOT, SPOT, DEMAND]
    assert not given_up(effects)


def test_answers_between_lost_ones_keep_the_offer_in_use() -> None:
    backoff = Backoff(patience=2)
    for now in range(0, 1000, 100):
        backoff.failed(SPOT, now, now)
        assert backoff.choose((SPOT, DEMAND), now) is None
        backoff.answered(SPOT, now)
        backoff.succeeded(SPOT)


def test_pool_that_opens_gives_up_once_two_offers_do_not_answer() -> None:
    reconciler, effects = opened(SPOT, DEMAND, OTHER, refusals=2, first_backoff=0.0)
    for now in (1.0, 2.0, 3.0):
        effects = refuse(reconciler, effects, "unknown", now)
        assert not given_up(effects)
    assert given_up(refuse(reconciler, effects, "unknown", 4.0)) == "refused: unknown"


def test_offer_that_is_waited_for_keeps_the_rank_when_the_next_one_has_nothing() -> None:
    reconciler, effects = opened(SPOT, DEMAND)
    effects = refuse(reconciler, effects, "capacity", 1.0)
    second = launch(effects)
    assert second is not None
    assert second.source == DEMAND
    reconciler.requester.backoff._resting[SPOT] = 1.0
    reconciler.requester.backoff.failed(SPOT, 2.0, 2.0)  # another rank asked it again
    assert not given_up(refuse(reconciler, effects, "capacity", 2.5))


def test_provider_that_wants_a_long_pause_is_not_waited_for() -> None:
    backoff = Backoff()
    backoff.failed(SPOT, 0.0, 0.0, "rate", 30.0)
    assert backoff.choose((SPOT, OTHER), 1.0) is None
    backoff.failed(SPOT, 30.0, 30.0, "rate", 900.0)
    assert backoff.choose((SPOT, OTHER), 31.0) == OTHER


def test_pause_is_at_least_as_long_as_the_provider_asks() -> None:
    backoff = Backoff()
    backoff.failed(SPOT, 0.0, 1.0, "rate", 12.0)
    assert backoff.ready_at(SPOT) == 13.0
    backoff.failed(OTHER, 0.0, 1.0, "denied")
    assert backoff.ready_at(OTHER) == inf


def test_machine_that_starts_does_not_end_the_pause_for_lack_of_capacity() -> None:
    backoff = Backoff()
    backoff.failed(SPOT, 0.0, 1.0, "capacity")
    backoff.succeeded(SPOT)
    assert backoff.ready_at(SPOT) == 301.0


def test_other_failure_does_not_shorten_the_pause_for_lack_of_capacity() -> None:
    backoff = Backoff()
    backoff.failed(SPOT, 0.0, 1.0, "capacity")
    backoff.failed(SPOT, 1.0, 2.0)
    assert backoff.ready_at(SPOT) == 301.0


def test_late_answer_for_lack_of_capacity_counts_after_another_failure() -> None:
    backoff = Backoff()
    backoff.failed(SPOT, 1.0, 2.0)
    backoff.failed(SPOT, 0.0, 3.0, "capacity")
    assert backoff.ready_at(SPOT) == 303.0


def test_late_denial_of_a_request_that_is_to_be_repeated_counts() -> None:
    reconciler, effects = opened(SPOT, OTHER, request=10.0)
    asked = launch(effects)
    assert asked is not None
    reconciler.ledger.budget = 0.0  # the request is not repeated at once
    reconciler.requester.backoff.failed(SPOT, 0.0, 1.0)
    reconciler.requester.backoff.failed(OTHER, 0.0, 1.0)
    reconciler.handle(m.Refused(asked.machines, "refused: denied", "denied"), 2.0)
    assert reconciler.requester.backoff.ready_at(SPOT) == inf


def open_pool(*groups: Group, **sources: tuple[MachineSource, ...]) -> World:
    return World(*groups, sources=sources).open()


def deny(world: World) -> None:
    for number in tuple(world.asked):
        del world.asked[number]
        world.tell(m.Refused((number,), "the key is not valid", "denied"))


def test_lost_node_that_no_provider_replaces_ends_the_tasks_that_wait_for_it() -> None:
    world = open_pool(Group("default", 2, 3))
    world.tell(Resize({"default": (3, 3)}))
    deny(world)
    assert world.plane.failure
    for rank in (0, 1):
        world.tell(m.Lost(world.machine_of(rank), "it did not answer"))
    world.bury()
    (task,) = world.submit()
    assert world.settled[task] == "abandoned"
    assert "the key is not valid" in world.reasons[task]


def test_group_that_can_grow_takes_the_tasks_of_one_that_cannot() -> None:
    world = open_pool(
        Group("cheap", 0, 1, hourly_price=1.0),
        Group("dear", 0, 1, hourly_price=2.0),
        cheap=(SPOT,),
        dear=(OTHER,),
    )
    (task,) = world.submit()
    deny(world)
    world.wait(60)
    world.deliver()
    world.finish()
    assert world.settled == {task: "value"}


def test_repeated_request_needs_no_more_of_the_budget() -> None:
    dear = MachineSource("runpod", "a100", hourly_price=60.0)
    ledger = Ledger(1.5)  # covers the reserve of one machine, not of two
    reconciler = Reconciler({"": (dear,)}, ledger, Limits(request=10.0))
    first = launch(reconciler.handle(m.Desired({"": 1}), 0.0))
    again = launch(reconciler.handle(m.Reconcile(), 11.0))
    assert first is not None
    assert again == first
