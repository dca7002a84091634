"""Whatever a provider raises or returns becomes an error that names it, and leaves the library's loop alone."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from skyward.control.act.machines.guarded import GuardedProvider, ProviderCallError, guarded
from skyward.errors import ProvisioningError
from skyward.providers.protocol import Cluster, Instance, Offer, Provider, ProviderConfig
from skyward.providers.protocol import InstanceType as Type
from skyward.specs import Spec
from tests.identity import identity

pytestmark = pytest.mark.unit

OFFER = Offer("offer", Type("type", 1, 1))
CLUSTER = Cluster("c-1", "p-1", Spec(), OFFER)
POOL = identity("p")
MACHINE = Instance("m-1", "provisioning")


class Faulty:
    """A provider whose every call raises or returns the same."""

    def __init__(self, outcome: object) -> None:
        self._outcome = outcome

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*_: object) -> object:
            if isinstance(self._outcome, BaseException):
                raise self._outcome
            return self._outcome

        async def offers() -> Any:
            yield await call()

        return offers if name == "offers" else call


def provider(outcome: object) -> Provider:
    return GuardedProvider(cast("Provider", Faulty(outcome)), "faulty")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("boom"), "raised KeyError in provision(): 'boom'"),
        (SystemExit(3), "raised SystemExit in provision(): 3"),
        (KeyboardInterrupt(), "raised KeyboardInterrupt in provision()"),
        (GeneratorExit(), "raised GeneratorExit in provision()"),
        (asyncio.CancelledError(), "raised CancelledError in provision()"),
        (TimeoutError(), "raised TimeoutError in provision()"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_unknown_error_names_the_provider_the_call_and_its_type(error: BaseException, said: str) -> None:
    with pytest.raises(ProviderCallError) as raised:
        asyncio.run(_provision(error))
    assert str(raised.value) == f"provider 'faulty' {said}"
    assert raised.value.__cause__ is error


async def _provision(outcome: object) -> object:
    return await provider(outcome).provision(CLUSTER, 1)


def test_error_of_the_library_is_passed_on() -> None:
    error = ProvisioningError("no capacity: try another region")
    with pytest.raises(ProvisioningError) as raised:
        asyncio.run(_provision(error))
    assert raised.value is error


def test_cancellation_of_the_caller_is_passed_on() -> None:
    async def main() -> None:
        class Slow:
            async def teardown(self, _: Cluster) -> None:
                await asyncio.sleep(1000)

        task = asyncio.create_task(_teardown(GuardedProvider(cast("Provider", Slow()), "slow")))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


async def _teardown(of: Provider) -> None:
    await of.teardown(CLUSTER)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (
            lambda each: each.prepare(Spec(), OFFER, identity("p")),
            "prepare() of provider 'faulty' must return a Cluster",
        ),
        (lambda each: each.provision(CLUSTER, 1), "provision() of provider 'faulty' must return (Cluster, instances)"),
        (lambda each: each.get_instance(CLUSTER, "m"), "must return (Cluster, Instance or None)"),
        (lambda each: each.find(CLUSTER), "find() of provider 'faulty' must return instances"),
    ],
)
@pytest.mark.parametrize("value", [None, (CLUSTER, ["m-1"]), "m-1"], ids=["none", "ids", "text"])
def test_value_of_another_type_is_refused(call: Callable[[Provider], Any], expected: str, value: object) -> None:
    async def main() -> None:
        await call(provider(value))

    with pytest.raises(ProviderCallError) as raised:
        asyncio.run(main())
    assert expected in str(raised.value)
    assert ", but returned " in str(raised.value)


def test_values_of_the_protocol_are_passed_on() -> None:
    async def main() -> None:
        assert await provider(CLUSTER).prepare(Spec(), OFFER, POOL) is CLUSTER
        assert await provider((CLUSTER, (MACHINE,))).provision(CLUSTER, 1) == (CLUSTER, [MACHINE])
        assert await provider((CLUSTER, None)).get_instance(CLUSTER, "m-1") == (CLUSTER, None)
        assert await provider((MACHINE,)).find(CLUSTER) == [MACHINE]
        assert [each async for each in provider(OFFER).offers()] == [OFFER]

    asyncio.run(main())


def test_exit_while_listing_offers_or_creating_the_provider_is_an_error() -> None:
    class Exits:
        name = "exits"

        def create_provider(self) -> Provider:
            raise SystemExit(3)

    async def main() -> None:
        async for _ in provider(SystemExit(3)).offers():
            pass

    with pytest.raises(ProviderCallError, match=r"raised SystemExit in offers\(\): 3"):
        asyncio.run(main())
    with pytest.raises(ProviderCallError, match=r"raised SystemExit in create_provider\(\): 3"):
        guarded(cast("ProviderConfig", Exits()))
