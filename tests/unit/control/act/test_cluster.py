"""The cluster of a pool changes by one node at a time, so that its nodes never disagree about who keeps what."""

import asyncio
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from skyward.control.act.nodes import cluster as room
from skyward.control.act.nodes.cluster import Clustering
from skyward.errors import CollectionLostError, CollectionUnavailableError
from skyward.link import collections
from skyward.wire.collections.requests import Request
from skyward.wire.protocol.messages import Clustered, Command, Join, Kept, Leave, Losses, Told

pytestmark = pytest.mark.unit

REQUEST = Request("counter", "c", "value")


class Member:
    """A node that takes what it is told of the cluster, and does nothing."""

    held = frozenset[bytes]()
    phase = "ready"

    def __init__(self, rank: int) -> None:
        self.rank = self.machine = rank
        self.address = f"127.0.0.1:{rank}"
        self.instance = SimpleNamespace(id=f"machine-{rank}", address="127.0.0.1")
        self.told: list[Join | Leave] = []
        self.losses: list[tuple[str, str]] = []
        self.asked = asyncio.Event()
        self.cut_off = False

    async def reach(self, address: str) -> str:
        if self.cut_off:
            raise ConnectionError("no tunnel")
        return address

    def dial(self, address: str) -> str:
        return address

    def tell(self, command: Command) -> None:
        if isinstance(command, Losses):
            self.losses = [(loss.kind, loss.name) for loss in command.lost]
        if isinstance(command, Join | Leave):
            self.told.append(command)
            self.asked.set()


def cluster_of(count: int) -> tuple[Clustering, list[Any]]:
    clustering = Clustering("pool", bytes(32))
    members: list[Any] = [Member(rank) for rank in range(count)]
    for member in members:
        clustering.heard(member, Clustered(member.address))
    return clustering, members


async def certified(clustering: Clustering) -> None:
    """Start, and wait for what lets us in."""
    clustering.start()
    making = clustering._making
    assert making is not None
    await making


async def settled() -> None:
    """Let everything that can go on do so."""
    for _ in range(10):
        await asyncio.sleep(0)


async def told_to_join(member: Member) -> Join:
    async with asyncio.timeout(20):
        await member.asked.wait()
    (join,) = member.told
    assert isinstance(join, Join), f"node {member.rank} is told to join first"
    return join


def test_the_next_joins_when_all_before_are_there_and_knows_them() -> None:
    async def scene() -> None:
        clustering = Clustering("pool", bytes(32))
        newcomers: list[Any] = [Member(rank) for rank in range(3)]
        for newcomer in newcomers:
            clustering.add(newcomer)
        clustering.start()
        there: list[str] = []
        for number, newcomer in enumerate(newcomers):
            assert (await told_to_join(newcomer)).seeds == tuple(there)
            assert not any(later.told for later in newcomers[number + 1 :])
            clustering.heard(newcomer, Clustered(newcomer.address))
            there.append(newcomer.address)
        await clustering.close()

    asyncio.run(scene())


def test_none_leaves_while_one_joins() -> None:
    async def scene() -> None:
        clustering, (_, leaver) = cluster_of(2)
        newcomer: Any = Member(2)
        clustering.add(newcomer)
        clustering.start()
        await told_to_join(newcomer)
        async with asyncio.TaskGroup() as group:
            group.create_task(clustering.leave(leaver))
            await settled()
            assert leaver.told == []
            clustering.heard(newcomer, Clustered(newcomer.address))
            await settled()
            assert leaver.told == [Leave()]
            clustering.heard(leaver, Clustered("", "it has left"))
        await clustering.close()

    asyncio.run(scene())


def test_none_joins_while_one_leaves() -> None:
    async def scene() -> None:
        clustering, (first, leaver) = cluster_of(2)
        clustering.start()
        async with asyncio.TaskGroup() as group:
            group.create_task(clustering.leave(leaver))
            await settled()
            newcomer: Any = Member(2)
            clustering.add(newcomer)
            assert newcomer.told == []
            clustering.heard(leaver, Clustered("", "it has left"))
        assert (await told_to_join(newcomer)).seeds == (first.address,)
        await clustering.close()

    asyncio.run(scene())


def test_the_second_is_told_to_leave_when_the_first_has_left() -> None:
    async def scene() -> None:
        clustering, (_, first, second, third) = cluster_of(4)
        async with asyncio.TaskGroup() as group:
            for member in (first, second, third):
                group.create_task(clustering.leave(member))
            for before, now, after in ((None, first, second), (first, second, third), (second, third, None)):
                await settled()
                assert now.told == [Leave()], f"node {now.rank} is next"
                assert before is None or before.told == [Leave()]
                assert after is None or after.told == [], f"node {after.rank} has to wait for node {now.rank}"
                clustering.heard(now, Clustered("", "it has left"))
        await clustering.close()

    asyncio.run(scene())


def test_one_that_is_lost_on_its_way_out_holds_up_nobody() -> None:
    async def scene() -> None:
        clustering, (_, first, second) = cluster_of(3)
        async with asyncio.TaskGroup() as group:
            for member in (first, second):
                group.create_task(clustering.leave(member))
            await settled()
            clustering.remove(first)
            await settled()
            assert second.told == [Leave()]
            clustering.heard(second, Clustered("", "it has left"))
        await clustering.close()

    asyncio.run(scene())


def test_one_that_is_removed_while_it_joins_is_no_member_when_it_is_in_after_all() -> None:
    async def scene() -> None:
        clustering, (first,) = cluster_of(1)
        late: Any = Member(1)
        clustering.add(late)
        clustering.start()
        await told_to_join(late)
        clustering.remove(late)
        clustering.heard(late, Clustered(late.address))
        newcomer: Any = Member(2)
        clustering.add(newcomer)
        assert (await told_to_join(newcomer)).seeds == (first.address,), "the one that was removed is no way in"
        await clustering.close()

    asyncio.run(scene())


def test_one_that_is_to_go_while_it_joins_comes_in_and_hands_over_what_it_was_given_meanwhile() -> None:
    async def scene() -> None:
        clustering, _ = cluster_of(1)
        leaver: Any = Member(1)
        clustering.add(leaver)
        clustering.start()
        await told_to_join(leaver)
        leaving = asyncio.get_running_loop().create_task(clustering.leave(leaver))
        await settled()
        assert not leaving.done(), "it went while the others took it for one of them"
        assert len(leaver.told) == 1
        clustering.heard(leaver, Clustered(leaver.address))
        await settled()
        assert leaver.told[1:] == [Leave()]
        assert not leaving.done()
        clustering.heard(leaver, Clustered("", "it has left"))
        await leaving
        await clustering.close()

    asyncio.run(scene())


def test_one_that_is_to_go_and_does_not_get_in_is_not_invited_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_AGAIN", 0.0)

    async def scene() -> None:
        clustering, (first,) = cluster_of(1)
        leaver: Any = Member(1)
        clustering.add(leaver)
        clustering.start()
        await told_to_join(leaver)
        leaving = asyncio.get_running_loop().create_task(clustering.leave(leaver))
        await settled()
        clustering.heard(leaver, Clustered("", "nobody took it in"))
        await leaving
        newcomer: Any = Member(2)
        clustering.add(newcomer)
        assert (await told_to_join(newcomer)).seeds == (first.address,), "the next waits for one that is gone"
        await settled()
        assert len(leaver.told) == 1
        await clustering.close()

    asyncio.run(scene())


def test_the_last_one_has_nobody_to_hand_over_to() -> None:
    async def scene() -> None:
        clustering, (only,) = cluster_of(1)
        await clustering.leave(only)
        assert only.told == []
        await clustering.close()

    asyncio.run(scene())


class Client(collections.ClusterClient):
    """A client that finds ways to members, and stays outside."""

    made: ClassVar[list["Client"]] = []

    seeds: tuple[str, ...] = ()

    async def enter(self, seeds: tuple[str, ...]) -> None:
        self.made.append(self)
        self.seeds = seeds

    async def perform(self, request: Request) -> str:
        return "answer"

    async def until_it_reaches(self, *members: Member) -> None:
        async with asyncio.timeout(20):
            while set(self._dials) != {member.address for member in members}:  # noqa: ASYNC110  # it tells nobody
                await asyncio.sleep(0.01)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    monkeypatch.setattr(room, "_AGAIN", 0.01)
    monkeypatch.setattr(collections, "ClusterClient", Client)
    monkeypatch.setattr(Client, "made", [])
    return Client.made


def test_the_client_goes_without_a_member_that_it_cannot_reach_and_tries_again(made: list[Client]) -> None:
    async def scene() -> None:
        clustering, (first, second) = cluster_of(2)
        await certified(clustering)
        first.cut_off = True
        assert await clustering._perform(REQUEST) == "answer"
        (client,) = made
        assert client.seeds == (second.address,)
        first.cut_off = False
        await client.until_it_reaches(first, second)
        third: Any = Member(2)
        third.cut_off = True
        clustering.heard(third, Clustered(third.address))
        await settled()
        third.cut_off = False
        await client.until_it_reaches(first, second, third)
        await clustering.close()

    asyncio.run(scene())


def test_client_enters_the_new_cluster_after_all_members_were_lost(made: list[Client]) -> None:
    async def scene() -> None:
        clustering, (only,) = cluster_of(1)
        await certified(clustering)
        assert await clustering._perform(REQUEST) == "answer"
        clustering.heard(only, Kept((("counter", "c"), ("queue", "q"))))
        notes: list[str] = []
        clustering._note = notes.append
        clustering.remove(only)
        assert notes == ["nodes were gone at the same time: counter 'c', queue 'q' lost their content"]
        newcomer: Any = Member(1)
        clustering.add(newcomer)
        join = await told_to_join(newcomer)
        assert join.seeds == ()
        assert [(loss.kind, loss.name, loss.whole) for loss in join.lost] == [
            ("counter", "c", True),
            ("queue", "q", True),
        ]
        clustering.heard(newcomer, Clustered(newcomer.address))
        with pytest.raises(CollectionLostError, match="^Counter 'c' has lost its content: all nodes that kept it"):
            await clustering._perform(REQUEST)
        assert newcomer.losses == [("queue", "q")]
        assert await clustering._perform(REQUEST) == "answer"
        assert [client.seeds for client in made] == [(only.address,), (newcomer.address,)]
        clustering.heard(newcomer, Told("queue", "q"))
        assert newcomer.losses == []
        await clustering.close()

    asyncio.run(scene())


def test_operation_asks_for_a_node_and_waits_as_long_as_it_boots(
    made: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_WAIT_FOR_IT", 0.0)
    asked: list[str] = []

    def need_node() -> str:
        asked.append("a node")
        return ""

    async def scene() -> None:
        clustering = Clustering("pool", bytes(32), need_node)
        await certified(clustering)
        operation = asyncio.get_running_loop().create_task(clustering._perform(REQUEST))
        async with asyncio.timeout(20):
            while len(asked) < 5:  # noqa: ASYNC110  # it is asked for again and again
                await asyncio.sleep(0)
        assert not operation.done()
        monkeypatch.setattr(room, "_WAIT_FOR_IT", 20.0)
        late: Any = Member(0)
        clustering.add(late)
        clustering.heard(late, Clustered(late.address))
        assert await operation == "answer"
        await clustering.close()

    asyncio.run(scene())


def test_operation_fails_at_once_when_no_node_can_be_had(made: list[Client]) -> None:
    async def scene() -> None:
        clustering = Clustering("pool", bytes(32), lambda: "pool 'pool' has spent its budget")
        await certified(clustering)
        with pytest.raises(CollectionUnavailableError, match="cannot be reached: pool 'pool' has spent its budget.$"):
            await clustering._perform(REQUEST)
        await clustering.close()

    asyncio.run(scene())


def test_an_operation_fails_when_no_member_can_be_reached(made: list[Client], monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        clustering, (only,) = cluster_of(1)
        await certified(clustering)
        only.cut_off = True
        monkeypatch.setattr(room, "_WAIT_FOR_IT", 0.1)
        with pytest.raises(CollectionUnavailableError, match="no node of pool 'pool' could be reached"):
            await clustering._perform(REQUEST)
        monkeypatch.setattr(room, "_WAIT_FOR_IT", 20.0)
        only.cut_off = False
        assert await clustering._perform(REQUEST) == "answer"
        await clustering.close()

    asyncio.run(scene())
