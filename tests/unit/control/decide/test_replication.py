"""Who gets a blob from whom: each node once, from a node that has it or gets it, whatever is lost on the way."""

from collections.abc import Iterable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from skyward.control.decide.replication import (
    CLIENT,
    MOST_TRIED,
    Effect,
    GiveUp,
    Have,
    Pull,
    ReplicationPlan,
    Transfer,
    Wait,
)

pytestmark = pytest.mark.unit

KEYS = (b"a", b"b")
NODES = 8


class World(RuleBasedStateMachine):
    """Nodes that want blobs, drop them, fail to get them and die, held against what the plan has them do."""

    def __init__(self) -> None:
        super().__init__()
        self.plan = ReplicationPlan()
        self.alive: set[int] = set()
        self.ports: set[int] = set()
        self.next = 0
        self.has: set[tuple[int, bytes]] = set()
        self.wants: dict[tuple[int, bytes], Effect] = {}
        """What each that wants was last told."""

    def do(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            place = effect.node, effect.key
            assert place in self.wants, f"{effect} for a node that does not want it, or has it"
            match effect:
                case Have():
                    del self.wants[place]
                    self.has.add(place)
                case GiveUp():
                    del self.wants[place]
                case Pull(node, _, source):
                    assert {node, source} <= self.ports, f"{effect} without a port"
                    assert source != node
                    self.wants[place] = effect
                case _:
                    before = self.wants[place]
                    assert not isinstance(before, Transfer), f"{effect} while the client sends it"
                    self.wants[place] = effect

    def pick(self, data: st.DataObject, kind: type[Effect]) -> Effect:
        return data.draw(st.sampled_from([told for told in self.wants.values() if isinstance(told, kind)]))

    def told(self, kind: type[Effect]) -> bool:
        return any(isinstance(told, kind) for told in self.wants.values())

    @precondition(lambda self: len(self.alive) < NODES)
    @rule()
    def a_node_comes(self) -> None:
        self.alive.add(self.next)
        self.next += 1

    @precondition(lambda self: self.alive - self.ports)
    @rule(data=st.data(), works=st.sampled_from([True, True, True, False]))
    def a_port_opens(self, data: st.DataObject, works: bool) -> None:
        node = data.draw(st.sampled_from(sorted(self.alive - self.ports)))
        if works:
            self.ports.add(node)
            self.do(self.plan.opened(node))
        else:
            self.do(self.plan.closed(node))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), key=st.sampled_from(KEYS))
    def want(self, data: st.DataObject, key: bytes) -> None:
        node = data.draw(st.sampled_from(sorted(self.alive)))
        if (node, key) not in self.has and (node, key) not in self.wants:
            self.wants[node, key] = Wait(node, key)
            self.do(self.plan.want(node, key))

    @precondition(lambda self: self.told(Transfer))
    @rule(data=st.data(), why=st.sampled_from(["", "", "the link is down"]))
    def the_client_has_sent(self, data: st.DataObject, why: str) -> None:
        told = self.pick(data, Transfer)
        self.do(self.plan.sent(told.node, told.key, why))
        assert (told.node, told.key) not in self.wants

    @precondition(lambda self: self.told(Pull))
    @rule(data=st.data(), why=st.sampled_from(["", "", "it broke"]), reached=st.booleans(), late=st.booleans())
    def a_node_has_pulled(self, data: st.DataObject, why: str, reached: bool, late: bool) -> None:
        told = self.pick(data, Pull)
        assert isinstance(told, Pull)
        if late:  # from an attempt before
            assert self.plan.fetched(told.node, told.key, told.attempt - 1, why) == []
            return
        if not why and (told.source, told.key) not in self.has:
            return  # its source has to have it before
        self.do(self.plan.fetched(told.node, told.key, told.attempt, why, reached=reached or not why))

    @precondition(lambda self: self.told(Wait))
    @rule(data=st.data())
    def patience_ends(self, data: st.DataObject) -> None:
        told = self.pick(data, Wait)
        self.do(self.plan.hurry(told.node, told.key))
        assert isinstance(self.wants[told.node, told.key], Transfer)

    @precondition(lambda self: self.has)
    @rule(data=st.data())
    def a_node_drops(self, data: st.DataObject) -> None:
        node, key = data.draw(st.sampled_from(sorted(self.has)))
        self.has.discard((node, key))
        self.do(self.plan.dropped(node, key))

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def a_node_dies(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(sorted(self.alive)))
        self.alive.discard(node)
        self.ports.discard(node)
        self.has = {place for place in self.has if place[0] != node}
        self.do(self.plan.lost(node))
        assert all(place[0] != node for place in self.wants)

    @invariant()
    def the_book_is_right(self) -> None:
        for key in KEYS:
            assert self.plan.holders(key) == {node for node, held in self.has if held == key}
        for (node, key), told in self.wants.items():
            match told:
                case Transfer():
                    assert self.plan.source(node, key) == CLIENT
                case Pull(source=source):
                    assert self.plan.source(node, key) == source
                case Wait():
                    assert self.plan.source(node, key) is None

    @invariant()
    def every_chain_begins_at_one_that_has_it_or_at_the_client(self) -> None:
        for (node, key), told in self.wants.items():
            seen = {node}
            while isinstance(told, Pull) and (told.source, key) not in self.has:
                assert told.source not in seen, "a circle"
                seen.add(told.source)
                told = self.wants[told.source, key]
            assert not isinstance(told, Wait) or len(seen) == 1, "a source that gets it from nowhere"

    def teardown(self) -> None:
        """With nothing more lost, all get what they want."""
        while self.wants:
            before = len(self.wants)
            for node, key in tuple(self.wants):
                match self.wants.get((node, key)):
                    case Transfer():
                        self.do(self.plan.sent(node, key))
                    case Pull(attempt=attempt, source=source) if (source, key) in self.has:
                        self.do(self.plan.fetched(node, key, attempt))
                    case Wait():
                        self.do(self.plan.hurry(node, key))
                        self.do(self.plan.sent(node, key))
            assert len(self.wants) < before, f"nobody goes on: {self.wants}"


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=200, stateful_step_count=40)


def opened(*nodes: int) -> ReplicationPlan:
    plan = ReplicationPlan()
    for node in nodes:
        plan.opened(node)
    return plan


def sources(plan: ReplicationPlan, key: bytes, *nodes: int) -> list[int | None]:
    return [plan.source(node, key) for node in nodes]


def test_a_broadcast_is_a_chain_that_leaves_the_client_once() -> None:
    plan = opened(*range(8))
    effects = [effect for node in range(8) for effect in plan.want(node, b"a")]
    assert [type(effect) for effect in effects] == [Transfer, *[Pull] * 7]
    assert sources(plan, b"a", *range(8)) == [CLIENT, 0, 1, 2, 3, 4, 5, 6]


def test_those_that_have_it_share_the_work() -> None:
    plan = opened(*range(6))
    for node in (0, 1):
        for effect in plan.want(node, b"a"):
            if isinstance(effect, Transfer):
                plan.sent(node, b"a")
            elif isinstance(effect, Pull):
                plan.fetched(node, b"a", effect.attempt)
    for node in range(2, 6):
        plan.want(node, b"a")
    assert sources(plan, b"a", 2, 3) == [0, 1]
    assert sources(plan, b"a", 4, 5) == [2, 3]


def test_what_a_node_has_from_before_is_not_sent_again() -> None:
    """As after `sky.attach`: its blobs came from another client."""
    plan = opened(0, 1)
    plan.has(1, b"a")
    assert [type(effect) for effect in plan.want(0, b"a")] == [Pull]
    assert plan.source(0, b"a") == 1


def test_a_chain_that_loses_a_link_is_joined_again() -> None:
    plan = opened(*range(5))
    for node in range(5):
        plan.want(node, b"a")
    effects = plan.lost(2)
    assert effects[0] == GiveUp(2, b"a", "the node is gone")
    assert [(type(effect), effect.node) for effect in effects[1:]] == [(Pull, 3)]
    assert sources(plan, b"a", 0, 1, 3, 4) == [CLIENT, 0, 1, 3]


def test_the_loss_of_the_first_makes_the_client_send_it_to_the_next_alone() -> None:
    plan = opened(*range(5))
    for node in range(5):
        plan.want(node, b"a")
    assert plan.lost(0)[1:] == [Transfer(1, b"a")]
    assert sources(plan, b"a", 1, 2, 3, 4) == [CLIENT, 1, 2, 3]


def test_what_fails_at_the_client_moves_those_who_wait_for_it() -> None:
    plan = opened(0, 1)
    plan.want(0, b"a")
    plan.want(1, b"a")
    assert plan.sent(0, b"a", "the link is down") == [GiveUp(0, b"a", "the link is down"), Transfer(1, b"a")]


def test_a_node_whose_others_fail_it_gets_it_from_the_client() -> None:
    plan = opened(*range(6))
    for node in range(6):
        plan.want(node, b"a")
        plan.sent(node, b"a")
    (told,) = plan.want(5, b"a")
    for _ in range(MOST_TRIED):
        assert isinstance(told, Pull)
        (told,) = plan.fetched(5, b"a", told.attempt, "it broke")
    assert told == Transfer(5, b"a")


def test_a_node_that_reaches_no_other_is_asked_to_no_more() -> None:
    """As behind a NAT: it would wait in vain for each blob."""
    plan = opened(*range(4))
    plan.want(0, b"a")
    plan.sent(0, b"a")
    for node in (1, 2):
        plan.want(node, b"a")
        plan.hurry(node, b"a")
    (told,) = plan.want(3, b"a")
    for _ in range(2):
        assert isinstance(told, Pull)
        (told,) = plan.fetched(3, b"a", told.attempt, "no route", reached=False)
    assert told == Transfer(3, b"a")
    plan.want(0, b"b")
    assert plan.want(3, b"b") == [Transfer(3, b"b")]


def test_while_ports_are_closed_the_others_wait() -> None:
    plan = ReplicationPlan()
    assert plan.want(0, b"a") == [Transfer(0, b"a")]
    assert plan.want(1, b"a") == [Wait(1, b"a")]
    assert plan.opened(1) == []
    (told,) = plan.opened(0)
    assert (type(told), told.node, plan.source(1, b"a")) == (Pull, 1, 0)


def test_a_node_that_has_waited_for_too_long_is_sent_it() -> None:
    plan = ReplicationPlan()
    plan.want(0, b"a")
    plan.want(1, b"a")
    assert plan.hurry(1, b"a") == [Transfer(1, b"a")]
    assert plan.hurry(1, b"a") == []


def test_nobody_waits_for_a_node_that_cannot_open_its_port() -> None:
    plan = ReplicationPlan()
    plan.want(0, b"a")
    plan.want(1, b"a")
    assert plan.closed(0) == [Transfer(1, b"a")]
    assert plan.want(2, b"a") == [Wait(2, b"a")]  # from 1


def test_a_node_that_others_get_it_from_does_not_wait() -> None:
    """Node 3, whose port is closed still, has it soon; but 4 would wait behind 2."""
    plan = opened(1, 2, 4)
    plan.want(3, b"a")
    plan.want(1, b"a")
    plan.hurry(1, b"a")
    for node in (2, 4):
        plan.want(node, b"a")
    assert sources(plan, b"a", 3, 1, 2, 4) == [CLIENT, CLIENT, 1, 2]
    assert plan.lost(1)[1:] == [Transfer(2, b"a")]


def test_what_is_dropped_while_others_get_it_comes_from_elsewhere() -> None:
    plan = opened(0, 1)
    plan.want(0, b"a")
    plan.sent(0, b"a")
    plan.want(1, b"a")
    assert plan.dropped(0, b"a") == [Transfer(1, b"a")]
    assert plan.dropped(0, b"a") == []
