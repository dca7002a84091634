"""Cluster of a pool: it changes by one node at a time, so that members never disagree about the placement of data."""

import asyncio
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from skyward.control.act.nodes import cluster as cluster_module
from skyward.control.act.nodes.cluster import ClusterManager
from skyward.errors import CollectionLostError, CollectionUnavailableError
from skyward.link import collections
from skyward.wire.collections.requests import CollectionRequest
from skyward.wire.protocol.messages import (
    Clustered,
    CollectionsFilled,
    CopiesReport,
    Join,
    Leave,
    Losses,
    LossReported,
    NodeCommand,
)
from tests.waiting import wait_for_async

pytestmark = pytest.mark.unit

REQUEST = CollectionRequest("counter", "c", "value")


class Member:
    """A node that records the commands about the cluster, and does nothing."""

    held = frozenset[bytes]()
    phase = "ready"

    def __init__(self, rank: int) -> None:
        self.rank = self.machine = rank
        self.address = f"127.0.0.1:{rank}"
        self.instance = SimpleNamespace(id=f"machine-{rank}", address="127.0.0.1")
        self.commands: list[Join | Leave] = []
        self.losses: list[tuple[str, str]] = []
        self.asked = asyncio.Event()
        self.cut_off = False

    async def reach(self, address: str) -> str:
        if self.cut_off:
            raise ConnectionError("no tunnel")
        return address

    def dial(self, address: str) -> str:
        return address

    def tell(self, command: NodeCommand) -> None:
        if isinstance(command, Losses):
            self.losses = [(loss.kind, loss.name) for loss in command.lost]
        if isinstance(command, Join | Leave):
            self.commands.append(command)
            self.asked.set()


def cluster_of(count: int) -> tuple[ClusterManager, list[Any]]:
    clustering = ClusterManager("pool", bytes(32))
    members: list[Any] = [Member(rank) for rank in range(count)]
    for member in members:
        clustering.handle(member, Clustered(member.address))
    return clustering, members


async def certified(clustering: ClusterManager) -> None:
    """Start, and wait for the certificates."""
    clustering.start()
    making = clustering._making
    assert making is not None
    await making


async def settled() -> None:
    """Let all tasks run until they wait."""
    for _ in range(10):
        await asyncio.sleep(0)


async def told_to_join(member: Member) -> Join:
    async with asyncio.timeout(20):
        await member.asked.wait()
    (join,) = member.commands
    assert isinstance(join, Join), f"the first command to node {member.rank} is to join"
    return join


def test_next_node_joins_after_all_earlier_ones_and_knows_them() -> None:
    async def scene() -> None:
        clustering = ClusterManager("pool", bytes(32))
        newcomers: list[Any] = [Member(rank) for rank in range(3)]
        for newcomer in newcomers:
            clustering.add(newcomer)
        clustering.start()
        there: list[str] = []
        for number, newcomer in enumerate(newcomers):
            assert (await told_to_join(newcomer)).seeds == tuple(there)
            assert not any(later.commands for later in newcomers[number + 1 :])
            clustering.handle(newcomer, Clustered(newcomer.address))
            there.append(newcomer.address)
        await clustering.close()

    asyncio.run(scene())


def test_user_is_told_once_of_a_node_that_cannot_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "_RETRY_DELAY", 0.0)
    notes: list[str] = []

    async def scene() -> None:
        clustering = ClusterManager("pool", bytes(32), note=notes.append)
        apart: Any = Member(0)
        clustering.add(apart)
        clustering.start()
        for _ in range(5):
            async with asyncio.timeout(20):
                await apart.asked.wait()
            apart.asked.clear()
            clustering.handle(apart, Clustered("", "no route to host"))
        await clustering.close()

    asyncio.run(scene())
    assert notes == ["Node 0 cannot join the cluster of its pool (no route to host): tasks on it have no collections."]


def test_no_node_leaves_while_another_joins() -> None:
    async def scene() -> None:
        clustering, (_, leaver) = cluster_of(2)
        newcomer: Any = Member(2)
        clustering.add(newcomer)
        clustering.start()
        await told_to_join(newcomer)
        async with asyncio.TaskGroup() as group:
            group.create_task(clustering.leave(leaver))
            await settled()
            assert leaver.commands == []
            clustering.handle(newcomer, Clustered(newcomer.address))
            await settled()
            assert leaver.commands == [Leave()]
            clustering.handle(leaver, Clustered("", "it has left"))
        await clustering.close()

    asyncio.run(scene())


def test_no_node_joins_while_another_leaves() -> None:
    async def scene() -> None:
        clustering, (first, leaver) = cluster_of(2)
        clustering.start()
        async with asyncio.TaskGroup() as group:
            group.create_task(clustering.leave(leaver))
            await settled()
            newcomer: Any = Member(2)
            clustering.add(newcomer)
            assert newcomer.commands == []
            clustering.handle(leaver, Clustered("", "it has left"))
        assert (await told_to_join(newcomer)).seeds == (first.address,)
        await clustering.close()

    asyncio.run(scene())


def test_second_node_leaves_after_the_first_has_left() -> None:
    async def scene() -> None:
        clustering, (_, first, second, third) = cluster_of(4)
        async with asyncio.TaskGroup() as group:
            for member in (first, second, third):
                group.create_task(clustering.leave(member))
            for before, now, after in ((None, first, second), (first, second, third), (second, third, None)):
                await settled()
                assert now.commands == [Leave()], f"node {now.rank} is next"
                assert before is None or before.commands == [Leave()]
                assert after is None or after.commands == [], f"node {after.rank} has to wait for node {now.rank}"
                clustering.handle(now, Clustered("", "it has left"))
        await clustering.close()

    asyncio.run(scene())


def test_node_lost_while_leaving_does_not_block_the_next() -> None:
    async def scene() -> None:
        clustering, (_, first, second) = cluster_of(3)
        async with asyncio.TaskGroup() as group:
            for member in (first, second):
                group.create_task(clustering.leave(member))
            await settled()
            clustering.remove(first)
            await settled()
            assert second.commands == [Leave()]
            clustering.handle(second, Clustered("", "it has left"))
        await clustering.close()

    asyncio.run(scene())


def test_node_removed_while_joining_never_becomes_a_member() -> None:
    async def scene() -> None:
        clustering, (first,) = cluster_of(1)
        late: Any = Member(1)
        clustering.add(late)
        clustering.start()
        await told_to_join(late)
        clustering.remove(late)
        clustering.handle(late, Clustered(late.address))
        newcomer: Any = Member(2)
        clustering.add(newcomer)
        assert (await told_to_join(newcomer)).seeds == (first.address,), "the removed node is not a seed"
        await clustering.close()

    asyncio.run(scene())


def test_node_drained_while_joining_joins_first_and_then_hands_over() -> None:
    async def scene() -> None:
        clustering, _ = cluster_of(1)
        leaver: Any = Member(1)
        clustering.add(leaver)
        clustering.start()
        await told_to_join(leaver)
        leaving = asyncio.get_running_loop().create_task(clustering.leave(leaver))
        await settled()
        assert not leaving.done(), "the node left while the others counted it as a member"
        assert len(leaver.commands) == 1
        clustering.handle(leaver, Clustered(leaver.address))
        await settled()
        assert leaver.commands[1:] == [Leave()]
        assert not leaving.done()
        clustering.handle(leaver, Clustered("", "it has left"))
        await leaving
        await clustering.close()

    asyncio.run(scene())


def test_node_drained_while_joining_is_not_invited_again_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "_RETRY_DELAY", 0.0)

    async def scene() -> None:
        clustering, (first,) = cluster_of(1)
        leaver: Any = Member(1)
        clustering.add(leaver)
        clustering.start()
        await told_to_join(leaver)
        leaving = asyncio.get_running_loop().create_task(clustering.leave(leaver))
        await settled()
        clustering.handle(leaver, Clustered("", "nobody took it in"))
        await leaving
        newcomer: Any = Member(2)
        clustering.add(newcomer)
        assert (await told_to_join(newcomer)).seeds == (first.address,), "the next node waits for the removed one"
        await settled()
        assert len(leaver.commands) == 1
        await clustering.close()

    asyncio.run(scene())


def test_last_node_leaves_without_handing_over() -> None:
    async def scene() -> None:
        clustering, (only,) = cluster_of(1)
        await clustering.leave(only)
        assert only.commands == []
        await clustering.close()

    asyncio.run(scene())


class Client(collections.ClusterClient):
    """A client that connects to members, and does not enter the cluster."""

    made: ClassVar[list["Client"]] = []

    seeds: tuple[str, ...] = ()

    async def enter(self, seeds: tuple[str, ...]) -> None:
        self.made.append(self)
        self.seeds = seeds

    async def perform(self, request: CollectionRequest) -> str:
        return "answer"

    async def until_it_reaches(self, *members: Member) -> None:
        addresses = {member.address for member in members}
        await wait_for_async(lambda: set(self._dials) == addresses, "the client to reach the members")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    monkeypatch.setattr(cluster_module, "_RETRY_DELAY", 0.01)
    monkeypatch.setattr(collections, "ClusterClient", Client)
    monkeypatch.setattr(Client, "made", [])
    return Client.made


def test_client_enters_without_an_unreachable_member_and_retries_it(made: list[Client]) -> None:
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
        clustering.handle(third, Clustered(third.address))
        await settled()
        third.cut_off = False
        await client.until_it_reaches(first, second, third)
        await clustering.close()

    asyncio.run(scene())


def test_connections_of_the_client_to_a_lost_member_lead_to_the_others(made: list[Client]) -> None:
    async def scene() -> None:
        clustering, (first, second, third) = cluster_of(3)
        await certified(clustering)
        assert await clustering._perform(REQUEST) == "answer"
        (client,) = made
        assert client._dial(first.address) == first.address
        clustering.remove(first)
        assert {client._dial(first.address) for _ in range(2)} == {second.address, third.address}
        assert client._dial(second.address) == second.address
        clustering.handle(third, Clustered("", "it has left"))
        assert {client._dial(gone.address) for gone in (first, third) for _ in range(2)} == {second.address}
        clustering.handle(third, Clustered(third.address))
        await client.until_it_reaches(second, third)
        assert client._dial(third.address) == third.address
        await clustering.close()

    asyncio.run(scene())


def test_loss_of_one_collection_is_told_in_the_singular(made: list[Client]) -> None:
    async def scene() -> None:
        clustering, (only,) = cluster_of(1)
        await certified(clustering)
        assert await clustering._perform(REQUEST) == "answer"
        clustering.handle(only, CollectionsFilled((("dict", "d"),)))
        notes: list[str] = []
        clustering._note = notes.append
        clustering.remove(only)
        assert [note.split(":")[1] for note in notes] == [" dict 'd' lost its content. Fill it again."]
        await clustering.close()

    asyncio.run(scene())


def test_client_enters_the_new_cluster_after_all_members_were_lost(made: list[Client]) -> None:
    async def scene() -> None:
        clustering, (only,) = cluster_of(1)
        await certified(clustering)
        assert await clustering._perform(REQUEST) == "answer"
        clustering.handle(only, CollectionsFilled((("counter", "c"), ("queue", "q"))))
        notes: list[str] = []
        clustering._note = notes.append
        clustering.remove(only)
        assert [note.split(":")[1] for note in notes] == [
            " counter 'c', queue 'q' lost their content. Fill them again."
        ]
        newcomer: Any = Member(1)
        clustering.add(newcomer)
        join = await told_to_join(newcomer)
        assert join.seeds == ()
        assert [(loss.kind, loss.name, loss.whole) for loss in join.lost] == [
            ("counter", "c", True),
            ("queue", "q", True),
        ]
        clustering.handle(newcomer, Clustered(newcomer.address))
        with pytest.raises(CollectionLostError, match="^Counter 'c' has lost its content: all nodes with a copy"):
            await clustering._perform(REQUEST)
        assert newcomer.losses == [("queue", "q")]
        assert await clustering._perform(REQUEST) == "answer"
        assert [client.seeds for client in made] == [(only.address,), (newcomer.address,)]
        clustering.handle(newcomer, LossReported("queue", "q"))
        assert newcomer.losses == []
        await clustering.close()

    asyncio.run(scene())


def test_operation_requests_a_node_and_waits_while_it_boots(
    made: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "_CLUSTER_WITHIN", 0.0)
    asked: list[str] = []

    def need_node() -> str:
        asked.append("a node")
        return ""

    async def scene() -> None:
        clustering = ClusterManager("pool", bytes(32), need_node)
        await certified(clustering)
        operation = asyncio.get_running_loop().create_task(clustering._perform(REQUEST))
        async with asyncio.timeout(20):
            while len(asked) < 5:  # noqa: ASYNC110  # it is asked for again and again
                await asyncio.sleep(0)
        assert not operation.done()
        monkeypatch.setattr(cluster_module, "_CLUSTER_WITHIN", 20.0)
        late: Any = Member(0)
        clustering.add(late)
        clustering.handle(late, Clustered(late.address))
        assert await operation == "answer"
        await clustering.close()

    asyncio.run(scene())


def test_operation_fails_at_once_without_any_possible_node(made: list[Client]) -> None:
    async def scene() -> None:
        clustering = ClusterManager("pool", bytes(32), lambda: "pool 'pool' has spent its budget")
        await certified(clustering)
        with pytest.raises(CollectionUnavailableError, match="cannot be reached: pool 'pool' has spent its budget.$"):
            await clustering._perform(REQUEST)
        await clustering.close()

    asyncio.run(scene())


def test_operation_fails_without_a_reachable_member(made: list[Client], monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        clustering, (only,) = cluster_of(1)
        await certified(clustering)
        only.cut_off = True
        monkeypatch.setattr(cluster_module, "_CLUSTER_WITHIN", 0.1)
        with pytest.raises(CollectionUnavailableError, match="no node of pool 'pool' could be reached"):
            await clustering._perform(REQUEST)
        monkeypatch.setattr(cluster_module, "_CLUSTER_WITHIN", 20.0)
        only.cut_off = False
        assert await clustering._perform(REQUEST) == "answer"
        await clustering.close()

    asyncio.run(scene())


def test_nodes_form_a_new_cluster_when_theirs_cannot_remove_its_lost_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "_STUCK_FOR", 0.0)

    async def scene() -> None:
        clustering, nodes = cluster_of(2)
        await certified(clustering)
        clustering.handle(nodes[0], CollectionsFilled((("counter", "c"),)))
        everyone = tuple(str(rank) for rank in range(4))  # two were lost before
        for node in nodes:
            clustering.handle(node, CopiesReport(str(node.rank), everyone, True))
        for node in nodes:
            async with asyncio.timeout(20):
                await node.asked.wait()
            assert node.commands == [Leave(hand_over=False)]
            node.commands.clear()
            node.asked.clear()
            clustering.handle(node, Clustered("", "it has left"))
        join = await told_to_join(nodes[0])
        assert (join.seeds, [(loss.name, loss.whole) for loss in join.lost]) == ((), [("c", True)])
        clustering.handle(nodes[0], Clustered(nodes[0].address))
        assert (await told_to_join(nodes[1])).seeds == (nodes[0].address,)
        await clustering.close()

    asyncio.run(scene())


def test_node_lost_while_it_joins_may_have_taken_over_values() -> None:
    async def scene() -> None:
        clustering, (first,) = cluster_of(1)
        await certified(clustering)
        clustering.handle(first, CollectionsFilled((("counter", "c"),)))
        newcomer: Any = Member(1)
        clustering.add(newcomer)
        await told_to_join(newcomer)
        clustering.remove(newcomer)
        assert first.losses == [("counter", "c")]
        await clustering.close()

    asyncio.run(scene())


def report_all(clustering: ClusterManager, nodes: list[Any]) -> None:
    """The nodes report that they have all copies."""
    for node in nodes:
        clustering.handle(node, CopiesReport(str(node.rank), tuple(str(each.rank) for each in nodes), True))


def test_node_joins_once_the_others_have_copies_of_what_it_will_move() -> None:
    async def scene() -> None:
        clustering, nodes = cluster_of(3)
        await certified(clustering)
        clustering.handle(nodes[0], CollectionsFilled((("counter", "c"),)))
        newcomer: Any = Member(3)
        clustering.add(newcomer)
        await settled()
        assert not newcomer.commands, "it moves single copies"
        report_all(clustering, nodes)
        assert (await told_to_join(newcomer)).lost == ()
        await clustering.close()

    asyncio.run(scene())


def test_loss_is_told_if_single_copies_are_moved_after_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "_SETTLE_WITHIN", 0.0)

    async def scene() -> None:
        clustering, nodes = cluster_of(3)
        await certified(clustering)
        clustering.handle(nodes[0], CollectionsFilled((("counter", "c"),)))
        newcomer: Any = Member(3)
        clustering.add(newcomer)
        assert [loss.name for loss in (await told_to_join(newcomer)).lost] == ["c"]
        await clustering.close()

    asyncio.run(scene())


def test_replacement_joins_at_once_if_the_others_cannot_make_copies_without_it() -> None:
    async def scene() -> None:
        clustering, nodes = cluster_of(3)
        await certified(clustering)
        clustering.handle(nodes[0], CollectionsFilled((("counter", "c"),)))
        report_all(clustering, nodes)
        clustering.remove(nodes[0])
        assert nodes[2].losses == []
        clustering.remove(nodes[1])
        newcomer: Any = Member(3)
        clustering.add(newcomer)
        assert [loss.name for loss in (await told_to_join(newcomer)).lost] == ["c"]
        await clustering.close()

    asyncio.run(scene())
