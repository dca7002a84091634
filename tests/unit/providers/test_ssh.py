"""`sky.SSH`: parsing of hosts, and lending of machines."""

import asyncio
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import pytest

import skyward as sky
from skyward.errors import ProvisioningError
from skyward.providers.protocol import Cluster, Instance, InstanceType, Offer, SSHAccess
from tests.identity import identity

pytestmark = pytest.mark.unit

OFFER = Offer("ssh", InstanceType("hosts", 0, 0))
CLUSTER = Cluster("ssh-1", "pool", sky.Spec(), OFFER)
OTHERS = Cluster("ssh-2", "others", sky.Spec(), OFFER)


@pytest.fixture(autouse=True)
def _nothing_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start without the loans of other tests, which last until they are garbage-collected."""
    monkeypatch.setattr("skyward_providers.ssh._loans", WeakValueDictionary())


def lend(provider: Any, count: int) -> list[Instance]:
    return list(asyncio.run(provider.provision(CLUSTER, count))[1])


def access(text: str, **given: Any) -> SSHAccess:
    (instance,) = lend(sky.SSH(hosts=[text], **given).create_provider(), 1)
    assert isinstance(instance.access, SSHAccess)
    return instance.access


@pytest.mark.parametrize(
    ("text", "user", "host", "port"),
    [
        ("gpu1", None, "gpu1", None),
        ("me@gpu1", "me", "gpu1", None),
        ("gpu1:2222", None, "gpu1", 2222),
        ("me@10.0.0.1:22", "me", "10.0.0.1", 22),
        ("fd00::2", None, "fd00::2", None),
        ("me@[fd00::2]:2222", "me", "fd00::2", 2222),
        ("me@domain@gpu1", "me@domain", "gpu1", None),
    ],
)
def test_hosts_are_parsed(text: str, user: str | None, host: str, port: int | None) -> None:
    found = access(text)
    assert (found.user, found.host, found.port) == (user, host, port)


@pytest.mark.parametrize(
    "text", ["gpu1:", "gpu1:0", "gpu1:99999", "gpu1:x", "me@", "[fd00::2]x", "-oProxyCommand=x", "a b"]
)
def test_malformed_hosts_are_refused(text: str) -> None:
    with pytest.raises(sky.SpecError, match=r"^hosts must name machines as 'host', 'user@host' or 'user@host:port'"):
        sky.SSH(hosts=[text])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"hosts": []}, "hosts must name at least one machine, as in `sky.SSH(hosts=['me@gpu1'])`."),
        ({"hosts": "gpu1"}, "hosts must be a list, but got the string 'gpu1'; write `hosts=['gpu1']`."),
        ({"hosts": ["a", "b", "a"]}, "hosts names 'a' twice: a machine runs one node at a time."),
        ({"hosts": ["a"], "grace": 0}, "grace must be a positive number, but got 0."),
        ({"hosts": ["a"], "client_keys": [1]}, "client_keys must hold paths of private keys, but it holds a int."),
    ],
)
def test_invalid_settings_of_ssh_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(sky.SpecError) as caught:
        sky.SSH(**given)
    assert str(caught.value) == message


def test_settings_apply_to_every_machine() -> None:
    found = access("gpu1", username="me", client_keys="~/.ssh/key", known_hosts="known", config="none", grace=5)
    assert found == SSHAccess("gpu1", None, "me", ("~/.ssh/key",), "known", config="none", grace=5, lent=True)
    assert access("you@gpu1", username="me").user == "you"


def test_machine_of_a_lost_node_is_lent_last() -> None:
    async def scenario() -> list[str]:
        provider = sky.SSH(hosts=["a", "b", "c"]).create_provider()
        _, (first,) = await provider.provision(CLUSTER, 1)
        await provider.terminate(CLUSTER, [first.id])
        _, rest = await provider.provision(CLUSTER, 5)
        return [first.address, *(instance.address for instance in rest)]

    assert asyncio.run(scenario()) == ["a", "b", "c", "a"]


def test_provision_waits_for_a_machine_to_be_released() -> None:
    async def scenario() -> Instance:
        provider = sky.SSH(hosts=["a"]).create_provider()
        _, (first,) = await provider.provision(CLUSTER, 1)
        again = asyncio.ensure_future(provider.provision(CLUSTER, 1))
        await asyncio.sleep(0)
        assert not again.done()
        await provider.terminate(CLUSTER, [first.id, first.id])
        _, (second,) = await again
        return second

    assert asyncio.run(scenario()).address == "a"


def test_provision_fails_if_every_host_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skyward_providers.ssh._FREE_WITHIN", 0.0)
    provider = sky.SSH(hosts=["a"]).create_provider()
    lend(provider, 1)
    with pytest.raises(ProvisioningError, match=r"^every host is in use \(1 in all\)$"):
        lend(provider, 1)


def test_pools_and_groups_of_a_process_share_hosts() -> None:
    """Each group has a provider of its own, and a host runs one node at a time."""

    async def scenario() -> None:
        first, second = (sky.SSH(hosts=["a", "b"]).create_provider() for _ in range(2))
        _, (one,) = await first.provision(CLUSTER, 1)
        _, others = await second.provision(OTHERS, 2)
        assert [one.address, *(each.address for each in others)] == ["a", "b"]
        assert (await second.get_instance(OTHERS, one.id))[1] is None, "it belongs to another pool"
        waiting = asyncio.ensure_future(second.provision(OTHERS, 1))
        await asyncio.sleep(0)
        await second.terminate(OTHERS, [one.id])
        await asyncio.sleep(0)
        assert not waiting.done(), "only the provider that lent it can end the loan"
        await first.terminate(CLUSTER, [one.id])
        assert [each.address for each in (await waiting)[1]] == ["a"]

    asyncio.run(scenario())


def test_attaching_again_takes_over_the_hosts_of_a_pool() -> None:
    """As after a failed attempt to attach to it, in this process."""

    async def scenario() -> None:
        left, attached = (sky.SSH(hosts=["a"]).create_provider() for _ in range(2))
        _, (machine,) = await left.provision(CLUSTER, 1)
        assert (await attached.get_instance(CLUSTER, machine.id))[1] == machine
        await left.terminate(CLUSTER, [machine.id])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(left.provision(OTHERS, 1), 0.01)
        await attached.terminate(CLUSTER, [machine.id])
        assert (await left.provision(OTHERS, 1))[1] == [machine]

    asyncio.run(scenario())


@dataclass
class Limits:
    soft: int
    hard: int


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Limits:
    limits = Limits(1024, 4096)

    def change(which: int, to: tuple[int, int]) -> None:
        limits.soft, limits.hard = to

    monkeypatch.setattr(resource, "getrlimit", lambda which: (limits.soft, limits.hard))
    monkeypatch.setattr(resource, "setrlimit", change)
    return limits


def test_descriptor_limit_is_raised_for_hundreds_of_nodes(limits: Limits) -> None:
    provider = sky.SSH(hosts=[f"h{number}" for number in range(500)]).create_provider()

    def prepare(nodes: int) -> None:
        asyncio.run(provider.prepare(sky.Spec(nodes=sky.Nodes(nodes)), OFFER, identity("pool")))

    prepare(10)
    assert limits.soft == 1024
    prepare(200)
    assert limits == Limits(200 * 16 + 256, 4096)
    with pytest.raises(sky.SpecError, match=r"^500 nodes need about 8256 file descriptors, and the limit of this"):
        prepare(500)


@pytest.mark.parametrize("field", ["client_keys", "known_hosts", "config"])
def test_missing_file_is_named_when_the_pool_opens(tmp_path: Path, field: str) -> None:
    missing, there = tmp_path / "gone", tmp_path / "there"
    there.touch()
    settings: Any = {field: missing}
    with pytest.raises(sky.SpecError) as caught:
        asyncio.run(sky.SSH(hosts=["a"], **settings).create_provider().prepare(sky.Spec(), OFFER, identity("p")))
    assert str(caught.value) == f"sky.SSH names '{missing}' as {field}, and there is no such file."
    settings = {field: there}
    asyncio.run(sky.SSH(hosts=["a"], **settings).create_provider().prepare(sky.Spec(), OFFER, identity("p")))
    asyncio.run(sky.SSH(hosts=["a"], config="none").create_provider().prepare(sky.Spec(), OFFER, identity("p")))
