"""The information of a node about itself, and its sources."""

import re
import socket
from collections.abc import Iterator

import pytest

from skyward import InstanceInfo, NotOnNodeError, SpecError, instance_info, is_head
from skyward.task.instance import AcceleratorInfo, NetworkInfo, Peer, set_instance_info

pytestmark = pytest.mark.unit

INFO = InstanceInfo(
    node=1,
    worker=2,
    total_nodes=3,
    workers_per_node=4,
    accelerators=8,
    total_accelerators=24,
    head_addr="10.0.0.1",
    job_id="job",
    peers=(Peer(0, "10.0.0.1", "1.2.3.4"), Peer(1, "10.0.0.2"), Peer(2, "10.0.0.3")),
    accelerator=AcceleratorInfo("A100", 8, 80),
    network=NetworkInfo("eth0", 100),
)


@pytest.fixture(autouse=True)
def off_node(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("COMPUTE_POOL", raising=False)
    yield
    set_instance_info(None)


def test_properties_follow_from_the_fields() -> None:
    assert (INFO.global_worker_index, INFO.total_workers, INFO.is_head, INFO.head_port) == (6, 12, False, 29500)
    assert INFO.hostname == socket.gethostname()
    assert is_head(InstanceInfo(node=0, total_nodes=2))
    assert not is_head(INFO)


def test_json_round_trip() -> None:
    assert InstanceInfo.from_json(INFO.to_json()) == INFO
    bare = InstanceInfo(node=0, total_nodes=1)
    assert InstanceInfo.from_json(bare.to_json()) == bare


def test_json_with_unknown_fields_is_read() -> None:
    text = '{"node": 0, "total_nodes": 2, "rack": 3, "peers": [{"node": 0, "private_ip": "a", "zone": "z"}]}'
    assert InstanceInfo.from_json(text) == InstanceInfo(node=0, total_nodes=2, peers=(Peer(0, "a"),))


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "{}", '{"node": 0}', '{"node": 0, "total_nodes": 1, "peers": 3}'])
def test_invalid_json_raises(text: str) -> None:
    with pytest.raises(SpecError, match=r"^COMPUTE_POOL does not describe a node \(.*\): " + re.escape(repr(text))):
        InstanceInfo.from_json(text)


def test_instance_info_off_node_raises() -> None:
    expected = "`sky.instance_info()` works only on a node: call it inside a `@sky.function` that was sent to a pool."
    with pytest.raises(NotOnNodeError, match=f"^{re.escape(expected)}$"):
        instance_info()


def test_info_comes_from_environment_until_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPUTE_POOL", INFO.to_json())
    assert instance_info() == INFO
    info = InstanceInfo(node=0, total_nodes=9)
    set_instance_info(info)
    assert instance_info() is info
