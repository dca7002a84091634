"""A pool of containers works like a pool of machines over SSH."""

import os
import pty
import subprocess
from contextlib import suppress

import numpy as np
import pytest

import skyward as sky
from skyward.providers.protocol import ExecAccess
from tests.containers.conftest import containers
from tests.containers.engine import Engine
from tests.remote_tasks import count, doubled, hostname

pytestmark = pytest.mark.containers


@sky.function
def met() -> list[tuple[str, int]]:
    me = sky.instance_info().node
    entries = sky.dict("met")
    entries[f"node {me}"] = me
    sky.barrier("all are in", 2).wait()
    return sorted((name, entries[name]) for name in ("node 0", "node 1"))


@sky.function
def peers() -> list[str]:
    return [peer.private_ip for peer in sky.instance_info().peers]


def test_functions_run_in_containers(pool: sky.Compute, shared_engine: Engine) -> None:
    ids = [shared_engine.inspect(name)["Config"]["Hostname"] for name in shared_engine.of(pool.name)]
    assert len(ids) == 2
    assert sorted(hostname() @ pool) == sorted(ids)


def test_output_of_containers_is_shown_by_the_client(pool: sky.Compute, capsys: pytest.CaptureFixture[str]) -> None:
    hostname() @ pool
    output = capsys.readouterr().out
    assert "this is node 0" in output
    assert "this is node 1" in output


def test_large_buffers_are_transferred_both_ways(pool: sky.Compute) -> None:
    data = np.random.default_rng(0).integers(0, 100, 20_000_000, dtype=np.uint8)
    assert np.array_equal(doubled(data) >> pool, data * 2)


def test_inputs_and_outputs_of_containers_are_streamed(pool: sky.Compute) -> None:
    assert list(count(10_000) >> pool) == list(range(10_000))


def test_collections_are_shared_between_containers(pool: sky.Compute) -> None:
    """Over the pool's network, as members of its cluster."""
    assert met() @ pool == [[("node 0", 0), ("node 1", 1)]] * 2


def test_containers_know_the_addresses_of_their_peers(pool: sky.Compute, shared_engine: Engine) -> None:
    found = peers() @ pool
    of_engine = [
        next(iter(shared_engine.inspect(name)["NetworkSettings"]["Networks"].values()))["IPAddress"]
        for name in shared_engine.of(pool.name)
    ]
    assert found[0] == found[1]
    assert sorted(found[0]) == sorted(of_engine)


def test_containers_have_limits_and_labels_and_no_ports(pool: sky.Compute, shared_engine: Engine) -> None:
    for name in shared_engine.of(pool.name):
        words = shared_engine.inspect(name)
        assert words["HostConfig"]["NanoCpus"] == 1e9
        assert words["HostConfig"]["Memory"] == 1.5 * 2**30
        assert words["HostConfig"]["ShmSize"] == 0.75 * 2**30
        assert words["HostConfig"]["AutoRemove"]
        (network,) = words["NetworkSettings"]["Networks"]
        assert network == f"skyward-{words['Config']['Labels']['skyward-pool']}"
        assert words["Config"]["Labels"]["skyward-request"]
        assert not words["NetworkSettings"]["Ports"]
        assert name.startswith("skyward-two-")


def test_engine_shows_no_secret_of_the_pool(pool: sky.Compute, shared_engine: Engine) -> None:
    """A user of the engine sees the containers' start options, and no secret that gives access to a worker."""
    for name in shared_engine.of(pool.name):
        assert "PRIVATE KEY" not in str(shared_engine.inspect(name)).upper()
        assert "PRIVATE KEY" not in shared_engine.call("top", name, "-eo", "pid,args")


def test_closed_pool_leaves_nothing_on_the_engine(engine: Engine) -> None:
    with sky.Compute(provider=containers(engine), nodes=1) as pool:
        assert hostname() >> pool
        (name,) = engine.of(pool.name)
        assert engine.entering(name)
        sky.counter("from here").increment(2)  # the client enters the cluster through the container
        assert sky.counter("from here").value == 2
    assert not engine.of(pool.name)
    assert not engine.entering(name)


def networks(engine: Engine, pool: str) -> list[str]:
    return [name for name in engine.networks() if name.startswith(f"skyward-{pool}-")]


def test_concurrent_pools_have_separate_networks(engine: Engine) -> None:
    """Closing one leaves the other unchanged."""
    with sky.Compute(name="one", provider=containers(engine), nodes=1) as one:
        with sky.Compute(name="other", provider=containers(engine), nodes=1) as other:
            (first,), (second,) = engine.of(one.name), engine.of(other.name)
            assert len(networks(engine, "one")) == len(networks(engine, "other")) == 1
            assert (hostname() >> one) != (hostname() >> other)
        assert second not in engine.containers()
        assert not networks(engine, "other")
        assert hostname() >> one
        assert engine.of(one.name) == [first]


def test_pool_joins_an_existing_network(engine: Engine) -> None:
    engine.call("network", "create", "of-somebody")
    try:
        with sky.Compute(provider=containers(engine, network="of-somebody"), nodes=1) as pool:
            (name,) = engine.of(pool.name)
            assert list(engine.inspect(name)["NetworkSettings"]["Networks"]) == ["of-somebody"]
            assert hostname() >> pool
        assert "of-somebody" in engine.networks()
    finally:
        engine.call("network", "rm", "of-somebody")


def test_pool_uses_the_network_of_the_host(engine: Engine) -> None:
    with sky.Compute(provider=containers(engine, network="host"), nodes=1) as pool:
        assert hostname() >> pool


def test_terminal_opens_in_the_container(pool: sky.Compute, shared_engine: Engine) -> None:
    (access,) = [node.access for node in pool.snapshot().nodes if node.rank == 0]
    assert isinstance(access, ExecAccess)
    ours, theirs = pty.openpty()
    with subprocess.Popen(access.terminal, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as shell:
        os.close(theirs)
        os.write(ours, b"test -t 0 && echo at $(uname -n).; exit\n")
        output = b""
        with suppress(OSError):  # the end of a terminal
            while part := os.read(ours, 4096):
                output += part
        assert shell.wait(60) == 0, output
    os.close(ours)
    name = access.terminal[access.terminal.index("-it") + 1]
    assert f"at {shared_engine.inspect(name)['Config']['Hostname']}." in output.decode()
