"""`sky.SSH`: what it takes for a machine, and how it lends them."""

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

pytestmark = pytest.mark.unit

OFFER = Offer("ssh", InstanceType("hosts", 0, 0))
CLUSTER = Cluster("ssh-1", "pool", sky.Spec(), OFFER)
OTHERS = Cluster("ssh-2", "others", sky.Spec(), OFFER)


@pytest.fixture(autouse=True)
def _nothing_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests have lent and never taken back is lent until it is collected."""
    monkeypatch.setattr("skyward_providers.ssh._homes", WeakValueDictionary())


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
def test_hosts(text: str, user: str | None, host: str, port: int | None) -> None:
    found = access(text)
    assert (found.user, found.host, found.port) == (user, host, port)


@pytest.mark.parametrize(
    "text", ["gpu1:", "gpu1:0", "gpu1:99999", "gpu1:x", "me@", "[fd00::2]x", "-oProxyCommand=x", "a b"]
)
def test_what_is_no_host(text: str) -> None:
    with pytest.raises(sky.SpecError, match=r"^hosts must name machines as 'host', 'user@host' or 'user@host:port'"):
        sky.SSH(hosts=[text])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"hosts": []}, "hosts must name at least one machine, as in `sky.SSH(hosts=['me@gpu1'])`."),
        ({"hosts": "gpu1"}, "hosts must be a list, but got the text 'gpu1'; write `hosts=['gpu1']`."),
        ({"hosts": ["a", "b", "a"]}, "hosts names 'a' twice: a machine is the home of one node at a time."),
        ({"hosts": ["a"], "grace": 0}, "grace must be a positive number, but got 0."),
        ({"hosts": ["a"], "client_keys": [1]}, "client_keys must hold paths of private keys, but it holds a int."),
    ],
)
def test_what_is_not_allowed(given: dict[str, Any], said: str) -> None:
    with pytest.raises(sky.SpecError) as caught:
        sky.SSH(**given)
    assert str(caught.value) == said


def test_options_reach_every_machine() -> None:
    found = access("gpu1", username="me", client_keys="~/.ssh/key", known_hosts="known", config="none", grace=5)
    assert found == SSHAccess("gpu1", None, "me", ("~/.ssh/key",), "known", config="none", grace=5, lent=True)
    assert access("you@gpu1", username="me").user == "you"


def test_a_lost_machine_is_lent_last() -> None:
    async def story() -> list[str]:
        provider = sky.SSH(hosts=["a", "b", "c"]).create_provider()
        _, (first,) = await provider.provision(CLUSTER, 1)
        await provider.terminate(CLUSTER, [first.id])
        _, rest = await provider.provision(CLUSTER, 5)
        return [first.address, *(instance.address for instance in rest)]

    assert asyncio.run(story()) == ["a", "b", "c", "a"]


def test_a_machine_that_is_being_given_back_is_waited_for() -> None:
    async def story() -> Instance:
        provider = sky.SSH(hosts=["a"]).create_provider()
        _, (first,) = await provider.provision(CLUSTER, 1)
        again = asyncio.ensure_future(provider.provision(CLUSTER, 1))
        await asyncio.sleep(0)
        assert not again.done()
        await provider.terminate(CLUSTER, [first.id, first.id])
        _, (second,) = await again
        return second

    assert asyncio.run(story()).address == "a"


def test_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skyward_providers.ssh._FREE_WITHIN", 0.0)
    provider = sky.SSH(hosts=["a"]).create_provider()
    lend(provider, 1)
    with pytest.raises(ProvisioningError, match=r"^every host is in use \(1 in all\)$"):
        lend(provider, 1)


def test_pools_and_groups_of_a_process_share_the_hosts() -> None:
    """Each of their settings makes a provider of its own, and a host is the home of one node at a time."""

    async def story() -> None:
        first, second = (sky.SSH(hosts=["a", "b"]).create_provider() for _ in range(2))
        _, (one,) = await first.provision(CLUSTER, 1)
        _, others = await second.provision(OTHERS, 2)
        assert [one.address, *(each.address for each in others)] == ["a", "b"]
        assert (await second.get_instance(OTHERS, one.id))[1] is None, "it is another pool's"
        waiting = asyncio.ensure_future(second.provision(OTHERS, 1))
        await asyncio.sleep(0)
        await second.terminate(OTHERS, [one.id])
        await asyncio.sleep(0)
        assert not waiting.done(), "who did not lend it cannot take it back"
        await first.terminate(CLUSTER, [one.id])
        assert [each.address for each in (await waiting)[1]] == ["a"]

    asyncio.run(story())


def test_a_pool_that_was_left_has_its_hosts_again() -> None:
    """As where attaching to it failed once, in this process."""

    async def story() -> None:
        left, attached = (sky.SSH(hosts=["a"]).create_provider() for _ in range(2))
        _, (machine,) = await left.provision(CLUSTER, 1)
        assert (await attached.get_instance(CLUSTER, machine.id))[1] == machine
        await left.terminate(CLUSTER, [machine.id])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(left.provision(OTHERS, 1), 0.01)
        await attached.terminate(CLUSTER, [machine.id])
        assert (await left.provision(OTHERS, 1))[1] == [machine]

    asyncio.run(story())


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


def test_descriptors_for_hundreds_of_nodes(limits: Limits) -> None:
    provider = sky.SSH(hosts=[f"h{number}" for number in range(500)]).create_provider()

    def prepare(nodes: int) -> None:
        asyncio.run(provider.prepare(sky.Spec(nodes=sky.Nodes(nodes)), OFFER, "pool"))

    prepare(10)
    assert limits.soft == 1024
    prepare(200)
    assert limits == Limits(200 * 16 + 256, 4096)
    with pytest.raises(sky.SpecError, match=r"^500 nodes take about 8256 file descriptors, and this process may have"):
        prepare(500)


@pytest.mark.parametrize("field", ["client_keys", "known_hosts", "config"])
def test_a_file_that_does_not_exist_is_named_as_the_pool_opens(tmp_path: Path, field: str) -> None:
    missing, there = tmp_path / "gone", tmp_path / "there"
    there.touch()
    settings: Any = {field: missing}
    with pytest.raises(sky.SpecError) as caught:
        asyncio.run(sky.SSH(hosts=["a"], **settings).create_provider().prepare(sky.Spec(), OFFER, "p"))
    assert str(caught.value) == f"sky.SSH names '{missing}' as {field}, and there is no such file."
    settings = {field: there}
    asyncio.run(sky.SSH(hosts=["a"], **settings).create_provider().prepare(sky.Spec(), OFFER, "p"))
    asyncio.run(sky.SSH(hosts=["a"], config="none").create_provider().prepare(sky.Spec(), OFFER, "p"))
