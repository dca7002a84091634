"""The container provider on a real engine: messages of refused commands, cleanup, and foreign containers."""

import asyncio
import time
from pathlib import Path

import pytest

import skyward as sky
from skyward.providers.protocol import Cluster, ExecAccess, Offer, Provider
from skyward.specs import Spec
from tests.containers.conftest import containers
from tests.containers.engine import IMAGE, MOUNTS, Engine
from tests.identity import identity

pytestmark = pytest.mark.containers


async def offered(provider: Provider) -> Offer:
    return await anext(provider.offers())


async def prepared(provider: Provider, pool: str) -> Cluster:
    return await provider.prepare(Spec(), await offered(provider), identity(pool))


def refusal(provider: sky.Container, **fields: object) -> str:
    with pytest.raises(sky.SkywardError) as caught:
        sky.Compute(provider=provider, nodes=1, max_provision_attempts=1, **fields).open()  # type: ignore[arg-type]
    return str(caught.value)


def test_offer_is_the_machine_of_the_engine(engine: Engine) -> None:
    offer = asyncio.run(offered(containers(engine, hourly_price=0.5).create_provider()))
    assert offer.instance_type.vcpus == float(engine.call("info", "--format", "{{.NCPU}}"))
    assert offer.instance_type.memory_gb > 0
    assert offer.on_demand_price == 0.5
    assert offer.spot_price is None


def test_engine_that_does_not_answer_is_named(tmp_path: Path) -> None:
    assert refusal(sky.Container(host=f"unix://{tmp_path}/nowhere")) == (
        f"The container engine does not answer `docker info`: Cannot connect to the Docker daemon at "
        f"unix://{tmp_path}/nowhere. Is the docker daemon running?; start it, or name another with "
        "`sky.Container(host=...)`."
    )


def test_missing_image_is_named(engine: Engine) -> None:
    """A closed port of 127.0.0.1: no registry is contacted."""
    message = refusal(containers(engine, image="127.0.0.1:9/nobody:1"))
    assert message.startswith("Image '127.0.0.1:9/nobody:1' is not on the engine's machine, and could not be pulled: ")
    assert message.endswith("pull or build it there, or name another with `sky.Container(image=...)`.")


def test_limits_beyond_the_machine_are_refused(engine: Engine) -> None:
    assert "vcpus excludes 1; the nearest, vm (container), has" in refusal(containers(engine), vcpus=5000)
    assert "memory_gb excludes 1; the nearest, vm (container), has" in refusal(containers(engine), memory_gb=90000)
    assert "accelerator excludes 1" in refusal(containers(engine), accelerator="A100")


def test_refused_options_are_named(engine: Engine) -> None:
    message = refusal(containers(engine, options=["--cap-add", "nonsense"]))
    assert f"no container of image {IMAGE!r} could be started" in message
    assert "nonsense" in message.lower()


def test_image_without_a_shell_is_refused(engine: Engine) -> None:
    """Without the mounts, the test's image has no shell."""
    assert '"sh": executable file not found' in refusal(containers(engine, options=()))


def test_missing_interpreter_is_named(engine: Engine) -> None:
    message = refusal(containers(engine, python="/no/such/python"))
    assert "the worker ended during startup" in message
    assert "/no/such/python" in message


def test_docker_host_variable_selects_the_engine(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", engine.host)
    assert asyncio.run(offered(sky.Container().create_provider())).instance_type.vcpus


def test_machines_are_found_by_label_and_termination_is_idempotent(engine: Engine) -> None:
    asyncio.run(_found(engine))


async def _found(engine: Engine) -> None:
    provider = containers(engine).create_provider()
    cluster = await prepared(provider, "found")
    other = await prepared(provider, "other")
    cluster, made = await provider.provision(cluster, 2)
    ids = {instance.id for instance in made}
    assert {instance.id for instance in await provider.find(cluster)} == ids
    assert not await provider.find(other)
    for instance in made:
        assert isinstance(instance.access, ExecAccess)
        _, seen = await provider.get_instance(cluster, instance.id)
        assert seen == instance
        assert seen.status == "running"
    for _ in range(2):
        await provider.terminate(cluster, sorted(ids))
        await provider.teardown(cluster)
        await provider.teardown(other)
    assert await provider.get_instance(cluster, made[0].id) == (cluster, None)


def test_cancelled_request_leaves_no_container(engine: Engine) -> None:
    asyncio.run(_cut(engine))


async def _cut(engine: Engine) -> None:
    provider = containers(engine).create_provider()
    cluster = await prepared(provider, "cut-0")
    for pause in (0.0, 0.1, 0.2, 0.3):
        asking = asyncio.create_task(provider.provision(cluster, 2))
        await asyncio.sleep(pause)
        if asking.cancel():
            with pytest.raises(asyncio.CancelledError):
                await asking
        else:  # the request had completed
            _, instances = await asking
            await provider.terminate(cluster, [each.id for each in instances])
        assert not engine.of("cut")
    await provider.teardown(cluster)


def test_foreign_containers_and_networks_are_left_alone(engine: Engine) -> None:
    """A similar container and a foreign network stay; an orphaned network of Skyward is removed."""
    long_ago = f"skyward-made={time.time() - 7200:.0f}"
    engine.call("network", "create", "skyward-of-another")
    engine.call("network", "create", "--label", long_ago, "skyward-left-behind")
    engine.call("network", "create", "--label", long_ago, "skyward-in-use")
    engine.call("network", "create", "--label", f"skyward-made={time.time():.0f}", "skyward-young")
    foreign = ("--name", "skyward-mine-00000000", "--label", "skyward-pool=not-mine", "--network", "skyward-in-use")
    engine.call("run", "--detach", *foreign, *MOUNTS, IMAGE, "sleep", "1000")
    try:
        with sky.Compute(name="mine", provider=containers(engine), nodes=1):
            pass
        assert engine.inspect("skyward-mine-00000000")["State"]["Running"]
        assert {"skyward-of-another", "skyward-in-use", "skyward-young"} <= set(engine.networks())
        assert "skyward-left-behind" not in engine.networks()
    finally:
        engine.call("kill", "skyward-mine-00000000")  # podman's `rm` would wait for a process that ignores SIGTERM
        engine.call("rm", "--force", "skyward-mine-00000000")
        engine.call("network", "rm", "skyward-of-another", "skyward-in-use", "skyward-young")


def test_network_that_was_removed_is_created_again(engine: Engine) -> None:
    """Another pool removes it as an orphan while this one has no node."""
    asyncio.run(_made_again(engine))


async def _made_again(engine: Engine) -> None:
    provider = containers(engine).create_provider()
    cluster = await prepared(provider, "idle")
    engine.call("network", "rm", "skyward-idle")
    cluster, (instance,) = await provider.provision(cluster, 1)
    assert instance.address
    await provider.terminate(cluster, [instance.id])
    await provider.teardown(cluster)
