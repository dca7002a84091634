"""Pools with machines of worker adapters, which are real processes."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import skyward as sky
from tests.free_port import free_port
from tests.waiting import wait_for

pytestmark = pytest.mark.local

TOKEN = "a token of these tests"


@sky.function
def where() -> tuple[int, str, int]:
    """Return rank, working directory and process of the task."""
    return sky.instance_info().node, os.getcwd(), os.getpid()


class Process:
    """An adapter as a user starts it. Its output is in `output`, a file."""

    def __init__(self, output: Path, address: str, token: str, *options: str) -> None:
        self.output = output
        with output.open("wb") as errors:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "skyward_providers.adapter", "--connect", address, *options],
                env={**os.environ, "SKYWARD_ADAPTER_TOKEN": token},
                stderr=errors,
            )

    def keeper(self) -> psutil.Process:
        """The child process of the adapter, which owns the groups."""
        (keeper,) = psutil.Process(self.popen.pid).children()
        return keeper

    def end(self) -> int:
        self.popen.terminate()
        return self.popen.wait(20)


type Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start adapters, which end with the test."""
    started: list[Process] = []

    def begin(address: str, token: str, *options: str) -> Process:
        started.append(Process(tmp_path / f"output-{len(started)}", address, token, *options))
        return started[-1]

    yield begin
    for process in started:
        process.end()


@pytest.fixture
def adapters() -> Iterator[sky.Adapter]:
    with sky.Adapter() as entered:
        yield entered


def directories() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob("skyward-*"))


def test_nodes_of_a_pool_are_launched_by_an_adapter(adapters: sky.Adapter, start: Start) -> None:
    adapter = start(adapters.address, adapters.token, "--max-groups", "2")
    for _ in range(2):  # the adapter serves several pools in turn, with one connection each
        with sky.Compute(provider=adapters, nodes=2) as pool:
            ran = where() @ pool
            assert [rank for rank, *_ in ran] == [0, 1]
            assert {Path(directory).parent for _, directory, _ in ran} <= set(directories())
        wait_for(lambda: not directories(), "the adapter to remove the directories of the pool")
    assert adapter.end() == 0
    assert adapter.output.read_text().count("is connected to") == 2


def test_killed_adapter_leaves_no_machine_and_another_one_replaces_the_nodes(
    adapters: sky.Adapter, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    first = start(adapters.address, adapters.token)
    with sky.Compute(provider=adapters, nodes=2) as pool:
        before = where() @ pool
        keeper = first.keeper()
        first.popen.send_signal(signal.SIGKILL)
        wait_for(lambda: not keeper.is_running(), "the machines of the adapter to end")
        assert not any(Path(directory).exists() for _, directory, _ in before)
        wait_for(lambda: caplog.text.count("is lost: adapter local-") == 2, "the pool to report it")
        assert "is gone: its process was killed" in caplog.text
        start(adapters.address, adapters.token)
        wait_for(
            lambda: sum(node.state == "active" for node in pool.snapshot().nodes) == 2, "the lost nodes to be replaced"
        )
        after = where() @ pool
        assert [rank for rank, *_ in after] == [0, 1]
        assert not {process for *_, process in after} & {process for *_, process in before}


def test_tasks_run_again_when_an_adapter_stops(
    adapters: sky.Adapter, start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    started, gate = tmp_path / "started", tmp_path / "gate"

    @sky.function
    def patient() -> int:
        import time

        with started.open("a") as file:
            file.write("x")
        while not gate.exists():
            time.sleep(0.005)
        return os.getpid()

    first = start(adapters.address, adapters.token)
    with sky.Compute(provider=adapters, nodes=1, cluster=False) as pool:
        future = patient() > pool
        wait_for(lambda: started.exists() and started.read_text() == "x", "the task to run")
        assert first.end() == 0
        wait_for(lambda: "it was told to stop" in caplog.text, "the pool to report it")
        start(adapters.address, adapters.token)
        wait_for(lambda: started.read_text() == "xx", "the task to run again")
        gate.touch()
        assert future.result(20)


def test_killed_client_leaves_no_machine(start: Start, tmp_path: Path) -> None:
    """Its workers end with it, and the adapter terminates the machines after the grace period."""
    program = """
import sys, pathlib, skyward as sky
with sky.Adapter(token=sys.argv[1]) as adapters:
    pathlib.Path(sys.argv[2]).write_text(adapters.address)
    with sky.Compute(provider=adapters, nodes=2, cluster=False, name="killed"):
        print("open", flush=True)
        sys.stdin.read()
"""
    address = tmp_path / "address"
    with subprocess.Popen(
        [sys.executable, "-c", program, TOKEN, str(address)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as client:
        wait_for(lambda: address.exists() and address.read_text(), "the port")
        adapter = start(address.read_text(), TOKEN, "--grace", "0.3")
        assert client.stdout is not None
        assert client.stdout.readline() == b"open\n"
        assert directories()
        client.kill()
    ending = "ending the 2 groups of the controller: it has been gone for 0.3 s"
    wait_for(lambda: ending in adapter.output.read_text(), "the adapter to terminate the machines")
    wait_for(lambda: not directories(), "the machines to be terminated")
    assert [done.error for done in sky.reap(["killed"])] == [""]


def test_wrong_token_is_refused(adapters: sky.Adapter, start: Start, caplog: pytest.LogCaptureFixture) -> None:
    good = start(adapters.address, adapters.token)
    with sky.Compute(provider=adapters, nodes=1, cluster=False) as pool:
        stranger = start(adapters.address, "another token of no worth")
        assert stranger.popen.wait(20) == 2
        assert stranger.output.read_text() == "adapter: the token is wrong\n"
        assert "it does not know the token" in caplog.text
        assert where() >> pool
    assert good.end() == 0


def test_adapter_obeys_no_impostor(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as impostor:
        adapter = start(f"127.0.0.1:{impostor.getsockname()[1]}", TOKEN)
        connection, _ = impostor.accept()
        with connection, connection.makefile("rwb") as lines:
            lines.write(b'{"v":2,"type":"challenge","nonce":"n"}\n')
            lines.flush()
            assert TOKEN.encode() not in lines.readline()
            lines.write(b'{"v":2,"type":"welcome","proof":"trust me"}\n')
            lines.flush()
            assert lines.read() == b""
    assert adapter.popen.wait(20) == 2
    assert "does not know the token" in adapter.output.read_text()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--provider", "nobody"], "There is no provider 'nobody'"),
        (["--max-groups", "-2"], "--max-groups must be at least 0"),
        (["--setting", "hourly_price"], "must be NAME=JSON"),
        (["--setting", "hourly_price=-1"], "hourly_price must be"),
        (["--spec", "vcpu=2"], "no field 'vcpu'; did you mean 'vcpus'"),
        (
            ["--spec", "max_hourly_cost=1", "--setting", "hourly_price=2"],
            "of 1 offer from local, max_hourly_cost excludes 1",
        ),
        (["--connect", "here"], "connect must be 'host:port'"),
    ],
)
def test_invalid_command_line_is_reported(start: Start, options: list[str], expected: str) -> None:
    adapter = start("127.0.0.1:9", TOKEN, *options)
    assert adapter.popen.wait(20) == 2
    assert expected in adapter.output.read_text()
    assert len(adapter.output.read_text().splitlines()) == 1


def test_death_of_the_child_process_is_reported(start: Start) -> None:
    adapter = start("127.0.0.1:9", TOKEN)
    wait_for(lambda: psutil.Process(adapter.popen.pid).children(), "the second process")
    adapter.keeper().kill()
    assert adapter.popen.wait(20) == 1
    assert "killed by SIGKILL" in adapter.output.read_text()


def test_invalid_settings_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for listen in ("here", ":7", "127.0.0.1:x", "127.0.0.1:65536", "::1:7", "a b:7"):
        with pytest.raises(sky.SpecError, match="listen must be 'host:port'"):
            sky.Adapter(listen)
    with pytest.raises(sky.SpecError, match="at least 16 characters"):
        sky.Adapter(token="short")
    with pytest.raises(sky.SpecError, match=r"write `with sky\.Adapter\(\) as adapters:`"):
        sky.Compute(provider=sky.Adapter()).open()
    monkeypatch.setenv("SKYWARD_ADAPTER_TOKEN", TOKEN)
    assert sky.Adapter().token == TOKEN
    assert TOKEN not in repr(sky.Adapter())


def test_pool_without_an_adapter_explains_how_to_start_one(adapters: sky.Adapter) -> None:
    nobody = sky.Adapter(f"127.0.0.1:{free_port()}", connect_timeout=0.1)
    with (
        pytest.raises(sky.NoOffersError, match=rf"No adapter connected to {nobody.listen} within 0.1 s; start one"),
        sky.Compute(provider=nobody, nodes=1),
    ):
        pytest.fail("it opened")
