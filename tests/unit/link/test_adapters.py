"""Decisions of a controller about worker adapters: with lost messages, broken connections and lost adapters."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skyward.link.adapters import registry
from skyward.link.adapters.registry import RESEND, SILENCE, AdapterRegistry, Effect, GroupRequirements
from skyward.providers.protocol import Instance
from skyward.values.needs import Needs
from skyward.values.validation import FrozenMap
from skyward.wire.protocol.adapter import (
    Answer,
    Challenge,
    Goodbye,
    Heartbeat,
    HeartbeatEcho,
    ShutdownWorkerGroup,
    StartWorkerGroup,
)

pytestmark = pytest.mark.unit


def beat(name: str = "a", most: int = -1, *groups: str, price: float = 0.0) -> Heartbeat:
    return Heartbeat(name, most, hourly_price=price, worker_group_ids=groups)


def started(request: str, group: str) -> Answer:
    return Answer(request, group, "start", "success", workers=(Instance("machine", "running"),))


def sent(effects: list[Effect]) -> list[object]:
    return [effect.message for effect in effects if isinstance(effect, registry.SendFrame)]


def joined(name: str = "a", most: int = -1) -> AdapterRegistry:
    found = AdapterRegistry("s")
    found.connected(1, 0.0)
    assert found.handle(1, beat(name, most), 0.0) == [
        registry.AdapterJoined(name),
        registry.SendFrame(1, HeartbeatEcho()),
    ]
    return found


def test_group_is_started_and_shut_down() -> None:
    found = joined()
    request, effects = found.start(GroupRequirements(), 1.0)
    assert request
    assert effects == [registry.SendFrame(1, StartWorkerGroup(request))]
    machine = Instance("g", "running")
    assert found.handle(1, started(request, "g"), 2.0) == [registry.GroupStarted(request, machine)]
    assert found.instance("g") == machine
    (end,) = sent(found.shutdown("g", 3.0))
    assert isinstance(end, ShutdownWorkerGroup)
    assert found.instance("g") is None
    assert found.shutdown("g", 3.0) == [], "it is being shut down"
    answer = Answer(end.request, "g", "shutdown", "success")
    assert found.handle(1, answer, 4.0) == [registry.GroupEnded("g")]
    assert found.handle(1, answer, 4.0) == [], "the answer is a duplicate"
    assert found.shutdown("g", 5.0) == [registry.GroupEnded("g")]


def test_commands_are_sent_again_until_they_are_answered() -> None:
    found = joined()
    _, effects = found.start(GroupRequirements(), 0.0)
    assert found.next_tick() == RESEND
    assert found.tick(RESEND - 0.1) == []
    assert found.tick(RESEND) == effects
    found.disconnected(1)
    assert found.tick(RESEND * 1.5) == [], "no adapter is connected"
    found.connected(2, 9.0)
    assert sent(found.handle(2, beat(), 9.0)) == [*sent(effects), HeartbeatEcho()]


def test_starting_groups_count_against_the_limit() -> None:
    found = joined(most=2)
    assert found.start(GroupRequirements(), 0.0)[0]
    second = found.start(GroupRequirements(), 0.0)[0]
    assert second
    assert found.start(GroupRequirements(), 0.0) == (None, [])
    assert found.why_none(GroupRequirements()) == "the adapters have no room (a has 2 at most)"
    refusal = Answer(second, "", "start", "too_much")
    assert found.handle(1, refusal, 1.0) == [registry.GroupRefused(second, "adapter a: too much")]
    assert found.start(GroupRequirements(), 1.0)[0]


def test_cheapest_adapter_that_fits_is_asked() -> None:
    found = AdapterRegistry("s")
    kinds = [("dear", 3.0, {"gpu"}, 8.0), ("cheap", 1.0, {"gpu"}, 2.0), ("plain", 0.5, set[str](), 64.0)]
    for link, (name, price, able, cpus) in enumerate(kinds):
        found.connected(link, 0.0)
        resources = FrozenMap({"CPU": cpus})
        found.handle(link, Heartbeat(name, -1, 1, frozenset(able), resources, price), 0.0)
    gpu = Needs(capabilities={"gpu"})

    def asked(wanted: GroupRequirements) -> list[int]:
        return [effect.link for effect in found.start(wanted, 0.0)[1] if isinstance(effect, registry.SendFrame)]

    assert asked(GroupRequirements()) == [2]
    assert asked(GroupRequirements(gpu)) == [1]
    assert asked(GroupRequirements(Needs({"CPU": 4}, {"gpu"}))) == [0]
    assert asked(GroupRequirements(Needs({"CPU": 4}, {"gpu"}), most=2.0)) == []
    assert "no adapter has nodes with 4 CPU and capability 'gpu' for at most $2/h" in found.why_none(
        GroupRequirements(Needs({"CPU": 4}, {"gpu"}), most=2.0)
    )


def test_silent_adapter_is_lost_and_returns_with_its_groups() -> None:
    found = joined()
    request, _ = found.start(GroupRequirements(), 0.0)
    assert request
    found.handle(1, started(request, "g"), 0.0)
    pending, _ = found.start(GroupRequirements(), 0.0)
    assert pending
    assert found.tick(SILENCE - 0.1) != []
    reason = "it was silent for 10 s"
    assert found.tick(SILENCE) == [
        registry.AdapterLost("a", reason),
        registry.GroupRefused(pending, f"adapter a is gone: {reason}"),
        registry.GroupLost("g", f"adapter a is gone: {reason}"),
        registry.Close(1, "no heartbeat arrived"),
    ]
    assert found.instance("g") is None
    assert found.next_tick() is None
    found.connected(2, 20.0)
    assert found.handle(2, beat("a", -1, "g"), 20.0) == [
        registry.AdapterJoined("a"),
        registry.SendFrame(2, HeartbeatEcho()),
        registry.GroupReturned("g"),
    ]
    assert found.instance("g")


def test_unrequested_groups_are_shut_down() -> None:
    found = joined()
    request, _ = found.start(GroupRequirements(), 0.0)
    assert request
    found.abandon(request)
    (end,) = sent(found.handle(1, started(request, "g"), 1.0))
    assert isinstance(end, ShutdownWorkerGroup)
    assert end.worker_group_id == "g"
    echo, end = sent(found.handle(1, beat("a", -1, "g", "stray"), 2.0))
    assert isinstance(end, ShutdownWorkerGroup)
    assert (echo, end.worker_group_id) == (HeartbeatEcho(), "stray")
    assert sent(found.handle(1, beat("a", -1, "g", "stray"), 3.0)) == [HeartbeatEcho()], "both are being shut down"


def test_group_with_a_pending_answer_is_not_shut_down() -> None:
    found = joined()
    request, effects = found.start(GroupRequirements(), 0.0)
    assert request
    found.disconnected(1)
    found.connected(2, 1.0)
    assert sent(found.handle(2, beat("a", -1, "g"), 1.0)) == [*sent(effects), HeartbeatEcho()]
    assert found.handle(2, started(request, "g"), 1.0) == [registry.GroupStarted(request, Instance("g", "running"))]


def test_group_missing_from_a_heartbeat_is_lost() -> None:
    found = joined()
    request, _ = found.start(GroupRequirements(), 0.0)
    assert request
    found.handle(1, started(request, "g"), 1.0)
    assert registry.GroupLost("g", "adapter a no longer has it") in found.handle(1, beat(), 2.0)
    assert found.instance("g") is None


def test_failed_shutdown_is_requested_again() -> None:
    found = joined()
    request, _ = found.start(GroupRequirements(), 0.0)
    assert request
    found.handle(1, started(request, "g"), 0.0)
    (end,) = sent(found.shutdown("g", 0.0))
    assert isinstance(end, ShutdownWorkerGroup)
    assert found.handle(1, Answer(end.request, "g", "shutdown", "unknown_action", reason="the API failed"), 1.0) == []
    assert sent(found.tick(1.0 + RESEND)) == [end]


def test_adapter_that_violates_the_protocol_is_disconnected() -> None:
    found = joined()
    assert found.handle(1, beat("b"), 1.0) == [registry.Close(1, "the adapter changed its id on an open connection")]
    assert found.handle(1, beat("a"), 1.0) == [], "the connection is closed"
    found.connected(2, 1.0)
    assert found.handle(2, Challenge("n"), 1.0) == [registry.Close(2, "unexpected Challenge from an adapter")]
    found.connected(3, 1.0)
    assert registry.Close(3, "no heartbeat identified the adapter") in found.tick(1.0 + SILENCE)
    found = joined()
    first, second = found.start(GroupRequirements(), 0.0)[0], found.start(GroupRequirements(), 0.0)[0]
    assert first
    assert second
    found.handle(1, started(first, "g"), 0.0)
    refused, closed = found.handle(1, started(second, "g"), 0.0)
    assert refused == registry.GroupRefused(second, "adapter a answered without a new worker group")
    assert isinstance(closed, registry.Close)


class World:
    """Adapters and the connections to one controller. Connections keep order, and may break at any time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.registry = AdapterRegistry("s")
        self.now = 0.0
        self.groups: dict[str, dict[str, str]] = {"a": {}, "b": {}}
        self.answers: dict[str, Answer] = {}
        self.links: dict[int, str] = {}
        self.up: dict[int, list[object]] = {}
        self.down: dict[int, list[object]] = {}
        self.made = 0
        self.asked: set[str] = set()
        self.settled: list[str] = []
        self.handed: dict[str, bool] = {}

    def do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case registry.SendFrame(link, message):
                    assert link in self.links, "the connection is open"
                    self.down[link].append(message)
                case registry.Close(link, _):
                    self.links.pop(link, None)
                case registry.GroupStarted(request, instance):
                    self.settled.append(request)
                    self.handed[instance.id] = True
                case registry.GroupRefused(request, _):
                    self.settled.append(request)
                case registry.GroupLost(group, _):
                    assert self.handed[group]
                    self.handed[group] = False
                case registry.GroupReturned(group):
                    assert not self.handed[group]
                    self.handed[group] = True
                case _:
                    pass

    def connect(self, name: str) -> None:
        self.made += 1
        self.links[self.made] = name
        self.up[self.made], self.down[self.made] = [], []
        self.do(self.registry.connected(self.made, self.now))
        self.beat(self.made)

    def beat(self, link: int) -> None:
        self.up[link].append(beat(self.links[link], -1, *self.groups[self.links[link]].values()))

    def cut(self, link: int) -> None:
        del self.links[link]
        self.do(self.registry.disconnected(link))

    def deliver(self, link: int) -> None:
        """Deliver one message in each direction."""
        if self.down[link]:
            answer = self.obey(self.links[link], self.down[link].pop(0))
            if answer is not None:
                self.up[link].append(answer)
        if self.up[link]:
            self.do(self.registry.handle(link, self.up[link].pop(0), self.now))  # type: ignore[arg-type]  # only messages are put existing

    def obey(self, name: str, command: object) -> Answer | None:
        groups = self.groups[name]
        match command:
            case StartWorkerGroup(request):
                if request not in self.answers:
                    self.made += 1
                    groups[request] = f"{name}/{self.made}"
                    self.answers[request] = started(request, groups[request])
                return self.answers[request]
            case ShutdownWorkerGroup(request, group):
                self.groups[name] = {key: each for key, each in groups.items() if each != group}
                return Answer(request, group, "shutdown", "success")
        return None

    def step(self) -> None:
        choose = self.random
        link = choose.choice(sorted(self.links)) if self.links else None
        match choose.randrange(12):
            case 0 | 1:
                request, effects = self.registry.start(GroupRequirements(), self.now)
                if request is not None:
                    self.asked.add(request)
                    self.do(effects)
            case 2 if self.handed:
                group = choose.choice(sorted(self.handed))
                del self.handed[group]
                self.do(self.registry.shutdown(group, self.now))
            case 3 if self.asked:
                request = choose.choice(sorted(self.asked))
                if request not in self.settled:
                    self.registry.abandon(request)
                    self.settled.append(request)
            case 4:
                self.connect(choose.choice("ab"))
            case 5 if link:
                self.cut(link)
            case 6:
                self.now += choose.choice((0.1, RESEND, SILENCE))
                self.do(self.registry.tick(self.now))
            case 7 if link:
                self.beat(link)
            case 8 if link and choose.random() < 0.3:  # the adapter stops with a goodbye
                self.groups[self.links[link]].clear()
                self.up[link].append(Goodbye("the adapter was stopped", ends_groups=True))
            case _ if link:
                self.deliver(link)

    def settle_down(self) -> None:
        """Reconnect all adapters, deliver all messages, and let all deadlines pass."""
        for link in tuple(self.links):
            self.cut(link)
        for name in "ab":
            self.connect(name)
        for _ in range(8):
            for _ in range(40):
                for link in tuple(self.links):
                    self.deliver(link)
            self.now += RESEND
            for link in tuple(self.links):
                self.beat(link)
                self.deliver(link)
            self.do(self.registry.tick(self.now))


@given(seed=st.integers(0, 2**32), steps=st.integers(0, 120))
@settings(max_examples=300)
def test_adapters_converge_to_the_wanted_groups(seed: int, steps: int) -> None:
    world = World(seed)
    for _ in range(steps):
        world.step()
    world.settle_down()
    assert set(world.settled) >= world.asked, "every request has a result"
    assert len(world.settled) == len(set(world.settled)), "no request has two results"
    existing = {group for groups in world.groups.values() for group in groups.values()}
    assert existing == {group for group, here in world.handed.items() if here}
    assert existing == {group for group in world.handed if world.registry.instance(group)}
