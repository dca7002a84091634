"""Volumes on the client: what machines need for them, their message, and the nodes that pass copies on."""

import asyncio
import pickle
import socket
from typing import Any

import pytest

import skyward as sky
from skyward.control.act.nodes.copies import VolumeCopies
from skyward.control.act.nodes.node_volumes import NodeVolumes
from skyward.control.act.nodes.starting import WorkerStarter
from skyward.control.act.nodes.volume_reports import VolumeReports
from skyward.control.act.nodes.volumes import attach_command, check_credentials, check_volumes
from skyward.specs import Options
from skyward.storage.location import BucketLocation
from skyward.wire.protocol.messages import Peered
from skyward.wire.protocol.volumes import AttachVolumes, NodeVolume


def spec(mode: Any = "copy", *, secret: str = "secret") -> sky.Spec:
    storage = sky.Storage("https://store.invalid", access_key="key", secret_key=secret)
    return sky.Spec(volumes=[sky.Volume("bucket", "/data", "train", mode != "sync", storage, mode)])


async def plan(of: sky.Spec) -> Any:
    return await WorkerStarter("pool", Options()).plan_of(of, None)


@pytest.mark.parametrize(("mode", "has_tools"), [("auto", True), ("mount", True), ("copy", False), ("sync", False)])
def test_environment_has_the_client_of_stores_and_the_programs_that_the_mode_needs(mode: str, has_tools: bool) -> None:
    made = asyncio.run(plan(spec(mode)))
    assert any(requirement.startswith("obstore") for requirement in made.pip)
    assert ("volumes" in [step.name for step in made.plugins]) == has_tools


def test_credentials_are_not_part_of_the_environment() -> None:
    first, second = asyncio.run(plan(spec())), asyncio.run(plan(spec(secret="another")))
    assert first.image_hash == second.image_hash
    assert "another" not in repr(second)


def test_environment_without_volumes_is_as_it_was() -> None:
    made = asyncio.run(plan(sky.Spec()))
    assert made.pip == ()
    assert made.plugins == ()


def test_message_has_the_credentials_as_they_are_when_a_node_starts() -> None:
    keys = iter(["first", "second"])
    storage = sky.Storage("https://store.invalid", access_key="key", secret_key=lambda: next(keys))
    of = sky.Spec(volumes=[sky.Volume("bucket", "/data", storage=storage)])
    for expected in ("first", "second"):
        command = asyncio.run(attach_command(of, None))
        assert command is not None
        assert command.volumes[0].location.secret_key == expected
        assert expected not in repr(command)


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> sky.Spec:
    """Spec whose volume is in a store that does not answer this machine; its nodes are on other machines."""
    monkeypatch.setattr("skyward.control.act.nodes.volumes._CHECK_WITHIN", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        storage = sky.Storage(f"http://127.0.0.1:{server.getsockname()[1]}", access_key="key", secret_key="secret")
    return sky.Spec(provider=sky.RunPod(), volumes=[sky.Volume("bucket", "/data", storage=storage)])


def test_store_that_answers_neither_a_node_nor_the_client_ends_the_launches(away: sky.Spec) -> None:
    failure = sky.NodeStartError("the store did not answer")
    with pytest.raises(sky.NodeStartError, match="does not answer this machine either") as raised:
        asyncio.run(WorkerStarter("pool", Options())._check_stores(away, failure))
    assert raised.value.is_final


def test_store_that_a_node_has_reached_before_may_come_back(away: sky.Spec) -> None:
    starter = WorkerStarter("pool", Options())
    starter._attached.update(away.volumes)
    asyncio.run(starter._check_stores(away, sky.NodeStartError("the store did not answer")))


def test_notice_about_a_store_that_only_nodes_may_reach_names_it_once(away: sky.Spec) -> None:
    (notice,) = asyncio.run(check_volumes([away]))
    assert notice.count("http://127.0.0.1") == 1
    assert "connection refused" in notice


def test_function_that_returns_no_credentials_now_is_no_reason_to_give_up() -> None:
    def gone() -> str:
        raise OSError("no network")

    storage = sky.Storage("https://store.invalid", access_key="key", secret_key=gone)
    of = sky.Spec(volumes=[sky.Volume("bucket", "/data", storage=storage)])
    with pytest.raises(sky.ProvisioningError, match="secret_key failed with OSError") as raised:
        asyncio.run(check_credentials(of))
    assert not isinstance(raised.value, sky.CredentialsError)
    left = sky.Spec(volumes=[sky.Volume("bucket", "/data", storage=pickle.loads(pickle.dumps(storage)))])
    with pytest.raises(sky.CredentialsError, match="exists only in the process that made it"):
        asyncio.run(check_credentials(left))


def test_files_that_are_not_in_the_store_are_told_once() -> None:
    reports, told, closed = VolumeReports(), list[str](), node("a")
    closed.rank, closed.volumes.unflushed = 3, "1 file could not be uploaded: s3://bucket/a; the store is away"
    reports.closed(closed)
    assert told == [], "the error of the close tells it"
    reports.note_all(told.append)
    closed.volumes.unflushed = "another"
    reports.closed(closed, told.append)
    reports.closed(closed, told.append)
    assert told == [
        "files that tasks wrote to volumes are not in the store: node 3: 1 file could not be uploaded: s3://bucket/a; "
        "the store is away.",
        "files that tasks wrote to volumes are not in the store: node 3: another.",
    ]
    assert len(reports.unflushed) == 2


class Nodes:
    """Nodes that open their ports at once, unless they are told not to."""

    def __init__(self) -> None:
        self.copies = VolumeCopies(self._introduce)
        self.silent: set[Any] = set()

    async def _introduce(self, node: Any) -> None:
        if node not in self.silent:
            self.copies.handle(node, Peered(f"{node.name}:1"))

    async def attach(self, node: Any, *volumes: NodeVolume, is_local: bool = False) -> tuple[tuple[str, ...], ...]:
        command = AttachVolumes(volumes, "", is_local)
        return (await self.copies.with_peers(node, command)).peers


class Node:
    """A node by its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.volumes = NodeVolumes()


def node(name: str) -> Any:
    return Node(name)


def copied(prefix: str = "train", mode: Any = "copy", *, read_only: bool = True) -> NodeVolume:
    return NodeVolume("/data", mode, read_only, BucketLocation("bucket", prefix, "https://store.invalid"))


def test_each_node_is_told_the_nodes_that_began_before_it_those_with_few_others_first() -> None:
    async def run() -> list[tuple[tuple[str, ...], ...]]:
        nodes = Nodes()
        return [await nodes.attach(node(name), copied()) for name in "abcd"]

    told = [each[0] for each in asyncio.run(run())]
    assert told[0] == ()
    assert told[1] == ("a:1",)
    assert told[2] == ("b:1", "a:1")
    assert told[3][0] == "c:1"
    assert len(told[3]) == 3


def test_other_prefixes_and_writable_volumes_and_local_nodes_have_no_peers() -> None:
    async def run() -> None:
        nodes = Nodes()
        await nodes.attach(node("a"), copied())
        assert await nodes.attach(node("b"), copied("test")) == ((),)
        assert await nodes.attach(node("c"), copied(mode="sync", read_only=False)) == ()
        assert await nodes.attach(node("d"), copied(), is_local=True) == ()

    asyncio.run(run())


def test_node_that_is_gone_is_not_told() -> None:
    async def run() -> tuple[tuple[str, ...], ...]:
        nodes, first = Nodes(), node("a")
        await nodes.attach(first, copied())
        nodes.copies.remove(first)
        return await nodes.attach(node("b"), copied())

    assert asyncio.run(run()) == ((),)


def test_node_without_a_port_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skyward.control.act.nodes.copies._PORT_WITHIN", 0.01)

    async def run() -> tuple[tuple[str, ...], ...]:
        nodes, first = Nodes(), node("a")
        nodes.silent.add(first)
        await nodes.attach(first, copied())
        return await nodes.attach(node("b"), copied())

    assert asyncio.run(run()) == ((),)
