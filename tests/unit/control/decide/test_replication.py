"""Replication of blobs: each node gets a blob once, from a node that has or receives it, whatever is lost."""

from collections.abc import Iterable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from skyward.control.decide.replication import (
    CLIENT,
    MOST_TRIED,
    Have,
    NotReplicated,
    Pull,
    ReplicationEffect,
    ReplicationPlan,
    Transfer,
    WaitForPeers,
)

pytestmark = pytest.mark.unit

KEYS = (b"a", b"b")
NODES = 8


class World(RuleBasedStateMachine):
    """Nodes that want blobs, drop them, fail to get them and die, checked against the plan's effects."""

    def __init__(self) -> None:
        super().__init__()
        self.plan = ReplicationPlan()
        self.alive: set[int] = set()
        self.ports: set[int] = set()
        self.next = 0
        self.has: set[tuple[int, bytes]] = set()
        self.wants: dict[tuple[int, bytes], ReplicationEffect] = {}
        """The latest effect for each node that wants a blob."""

    def do(self, effects: Iterable[ReplicationEffect]) -> None:
        for effect in effects:
            place = effect.node, effect.key
            assert place in self.wants, f"{effect} for a node that does not want it, or has it"
            match effect:
                case Have():
                    del self.wants[place]
                    self.has.add(place)
                case NotReplicated():
                    del self.wants[place]
                case Pull(node, _, source):
                    assert {node, source} <= self.ports, f"{effect} without a port"
                    assert source != node
                    self.wants[place] = effect
                case _:
                    before = self.wants[place]
                    assert not isinstance(before, Transfer), f"{effect} while the client sends it"
                    self.wants[place] = effect

    def pick(self, data: st.DataObject, kind: type[ReplicationEffect]) -> ReplicationEffect:
        return data.draw(st.sampled_from([effect for effect in self.wants.values() if isinstance(effect, kind)]))

    def has_pending(self, kind: type[ReplicationEffect]) -> bool:
        return any(isinstance(effect, kind) for effect in self.wants.values())

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
            self.wants[node, key] = WaitForPeers(node, key)
            self.do(self.plan.want(node, key))

    @precondition(lambda self: self.has_pending(Transfer))
    @rule(data=st.data(), why=st.sampled_from(["", "", "the link is down"]))
    def the_client_has_sent(self, data: st.DataObject, why: str) -> None:
        effect = self.pick(data, Transfer)
        self.do(self.plan.sent(effect.node, effect.key, why))
        assert (effect.node, effect.key) not in self.wants

    @precondition(lambda self: self.has_pending(Pull))
    @rule(data=st.data(), why=st.sampled_from(["", "", "it broke"]), reached=st.booleans(), late=st.booleans())
    def a_node_has_pulled(self, data: st.DataObject, why: str, reached: bool, late: bool) -> None:
        effect = self.pick(data, Pull)
        assert isinstance(effect, Pull)
        if late:  # from an earlier attempt
            assert self.plan.fetched(effect.node, effect.key, effect.attempt - 1, why) == []
            return
        if not why and (effect.source, effect.key) not in self.has:
            return  # its source must have it first
        self.do(self.plan.fetched(effect.node, effect.key, effect.attempt, why, reached=reached or not why))

    @precondition(lambda self: self.has_pending(WaitForPeers))
    @rule(data=st.data())
    def patience_ends(self, data: st.DataObject) -> None:
        effect = self.pick(data, WaitForPeers)
        self.do(self.plan.hurry(effect.node, effect.key))
        assert isinstance(self.wants[effect.node, effect.key], Transfer)

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
    def holders_are_consistent(self) -> None:
        for key in KEYS:
            assert self.plan.holders(key) == {node for node, held in self.has if held == key}
        for (node, key), effect in self.wants.items():
            match effect:
                case Transfer():
                    assert self.plan.source(node, key) == CLIENT
                case Pull(source=source):
                    assert self.plan.source(node, key) == source
                case WaitForPeers():
                    assert self.plan.source(node, key) is None

    @invariant()
    def every_chain_starts_at_a_holder_or_at_the_client(self) -> None:
        for (node, key), effect in self.wants.items():
            seen = {node}
            while isinstance(effect, Pull) and (effect.source, key) not in self.has:
                assert effect.source not in seen, "a cycle"
                seen.add(effect.source)
                effect = self.wants[effect.source, key]
            assert not isinstance(effect, WaitForPeers) or len(seen) == 1, "no source in a chain may wait"

    def teardown(self) -> None:
        """With nothing more lost, every node gets what it wants."""
        while self.wants:
            before = len(self.wants)
            for node, key in tuple(self.wants):
                match self.wants.get((node, key)):
                    case Transfer():
                        self.do(self.plan.sent(node, key))
                    case Pull(attempt=attempt, source=source) if (source, key) in self.has:
                        self.do(self.plan.fetched(node, key, attempt))
                    case WaitForPeers():
                        self.do(self.plan.hurry(node, key))
                        self.do(self.plan.sent(node, key))
            assert len(self.wants) < before, f"no progress: {self.wants}"


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=200, stateful_step_count=40)


def opened(*nodes: int) -> ReplicationPlan:
    plan = ReplicationPlan()
    for node in nodes:
        plan.opened(node)
    return plan


def sources(plan: ReplicationPlan, key: bytes, *nodes: int) -> list[int | None]:
    return [plan.source(node, key) for node in nodes]


def test_broadcast_is_a_chain_that_leaves_the_client_once() -> None:
    plan = opened(*range(8))
    effects = [effect for node in range(8) for effect in plan.want(node, b"a")]
    assert [type(effect) for effect in effects] == [Transfer, *[Pull] * 7]
    assert sources(plan, b"a", *range(8)) == [CLIENT, 0, 1, 2, 3, 4, 5, 6]


def test_holders_share_the_transfers() -> None:
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


def test_existing_blob_is_not_sent_again() -> None:
    """As after `sky.attach`: another client sent its blobs."""
    plan = opened(0, 1)
    plan.has(1, b"a")
    assert [type(effect) for effect in plan.want(0, b"a")] == [Pull]
    assert plan.source(0, b"a") == 1


def test_chain_is_repaired_after_the_loss_of_a_link() -> None:
    plan = opened(*range(5))
    for node in range(5):
        plan.want(node, b"a")
    effects = plan.lost(2)
    assert effects[0] == NotReplicated(2, b"a", "the node is gone")
    assert [(type(effect), effect.node) for effect in effects[1:]] == [(Pull, 3)]
    assert sources(plan, b"a", 0, 1, 3, 4) == [CLIENT, 0, 1, 3]


def test_client_resends_only_to_the_next_node_after_the_loss_of_the_first() -> None:
    plan = opened(*range(5))
    for node in range(5):
        plan.want(node, b"a")
    assert plan.lost(0)[1:] == [Transfer(1, b"a")]
    assert sources(plan, b"a", 1, 2, 3, 4) == [CLIENT, 1, 2, 3]


def test_failed_transfer_moves_the_nodes_behind_it() -> None:
    plan = opened(0, 1)
    plan.want(0, b"a")
    plan.want(1, b"a")
    assert plan.sent(0, b"a", "the link is down") == [NotReplicated(0, b"a", "the link is down"), Transfer(1, b"a")]


def test_node_falls_back_to_the_client_after_failed_pulls() -> None:
    plan = opened(*range(6))
    for node in range(6):
        plan.want(node, b"a")
        plan.sent(node, b"a")
    (effect,) = plan.want(5, b"a")
    for _ in range(MOST_TRIED):
        assert isinstance(effect, Pull)
        (effect,) = plan.fetched(5, b"a", effect.attempt, "it broke")
    assert effect == Transfer(5, b"a")


def test_unreachable_node_pulls_no_more() -> None:
    """As behind a NAT, where it would wait in vain for each blob."""
    plan = opened(*range(4))
    plan.want(0, b"a")
    plan.sent(0, b"a")
    for node in (1, 2):
        plan.want(node, b"a")
        plan.hurry(node, b"a")
    (effect,) = plan.want(3, b"a")
    for _ in range(2):
        assert isinstance(effect, Pull)
        (effect,) = plan.fetched(3, b"a", effect.attempt, "no route", reached=False)
    assert effect == Transfer(3, b"a")
    plan.want(0, b"b")
    assert plan.want(3, b"b") == [Transfer(3, b"b")]


def test_nodes_wait_while_ports_are_closed() -> None:
    plan = ReplicationPlan()
    assert plan.want(0, b"a") == [Transfer(0, b"a")]
    assert plan.want(1, b"a") == [WaitForPeers(1, b"a")]
    assert plan.opened(1) == []
    (effect,) = plan.opened(0)
    assert (type(effect), effect.node, plan.source(1, b"a")) == (Pull, 1, 0)


def test_client_sends_the_blob_after_a_long_wait() -> None:
    plan = ReplicationPlan()
    plan.want(0, b"a")
    plan.want(1, b"a")
    assert plan.hurry(1, b"a") == [Transfer(1, b"a")]
    assert plan.hurry(1, b"a") == []


def test_no_node_waits_for_one_that_cannot_open_its_port() -> None:
    plan = ReplicationPlan()
    plan.want(0, b"a")
    plan.want(1, b"a")
    assert plan.closed(0) == [Transfer(1, b"a")]
    assert plan.want(2, b"a") == [WaitForPeers(2, b"a")]  # from 1


def test_node_with_dependents_does_not_wait() -> None:
    """Node 3, whose port is still closed, will have it soon, but 4 would wait behind 2."""
    plan = opened(1, 2, 4)
    plan.want(3, b"a")
    plan.want(1, b"a")
    plan.hurry(1, b"a")
    for node in (2, 4):
        plan.want(node, b"a")
    assert sources(plan, b"a", 3, 1, 2, 4) == [CLIENT, CLIENT, 1, 2]
    assert plan.lost(1)[1:] == [Transfer(2, b"a")]


def test_dropped_blob_is_pulled_from_another_source() -> None:
    plan = opened(0, 1)
    plan.want(0, b"a")
    plan.sent(0, b"a")
    plan.want(1, b"a")
    assert plan.dropped(0, b"a") == [Transfer(1, b"a")]
    assert plan.dropped(0, b"a") == []
